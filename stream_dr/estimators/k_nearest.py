"""KNearest: k nearest neighbours on a uniform sample of the rows; the classifier the papers put behind a projection.

No projection itself, so it is not in the registry: it goes after one, `KNearest().fit(lda.transform(X), y)`, or on the rows
as they are. For the nearest class mean, the papers' other classifier, see `ClassMeans.predict`.

Cost: learning as a reservoir, O(1) a row and O(entries) for the few kept; memory 8 · reservoir · features bytes dense;
predicting one scikit-learn neighbour search over the sample. Merges: yes, by a hypergeometric draw. Unlearns: no.

Why this way: a stream's k-NN must forget something; a uniform sample keeps every part of the stream at its share.
"""

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.validation import validate_data

from stream_dr.block import Block, as_rows
from stream_dr.errors import CannotMerge, EmptyInput, NotFitted, TargetsRequired, WidthMismatch
from stream_dr.estimators.parameter_checks import check_positive_int
from stream_dr.feature_maps.draws import check_seed
from stream_dr.label_codes import label_array
from stream_dr.statistics.reservoir import Reservoir, ReservoirAccumulator
from stream_dr.target_parsing import parse_targets


class KNearest(ClassifierMixin, BaseEstimator):
    """k nearest neighbours on a reservoir.

    Parameters: n_neighbors, k (fewer where the sample has fewer); reservoir, rows sampled at most; random_state, seed of the
    sample (None is 0). Fitted: classes_ (classes,) labels seen, n_samples_seen_, n_features_in_, state_ (the Reservoir).
    Time a row O(1) to learn; memory 8 · reservoir · features bytes. Merges; does not unlearn. Left out: weights of
    neighbours by distance.

    >>> from stream_dr import KNearest
    >>> KNearest().partial_fit([[0.0], [1.0], [9.0]], ["low", "low", "high"]).predict([[7.0]]).tolist()
    ['high']
    """

    def __init__(self, n_neighbors: int = 1, reservoir: int = 2000, *, random_state: int | None = None) -> None:
        self.n_neighbors = n_neighbors
        self.reservoir = reservoir
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything, then learn rows X (rows, features) with one label a row."""
        self._check_columns(X, reset=True)
        return self._learn(self._fresh(), X, y, refuse_empty=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on learning rows X (rows, features), one label a row. Unchanged on error.

        classes: ignored, for callers used to scikit-learn's classifiers; new labels may come at any time.
        """
        self._check_columns(X, reset=not hasattr(self, "_sample"))
        return self._learn(self._sample if hasattr(self, "_sample") else self._fresh(), X, y)

    def predict(self, X: Any) -> np.ndarray:
        """The label (rows,) most frequent among each row's nearest sampled ones. Raises NotFitted, WidthMismatch."""
        state = self.state_
        rows, _ = as_rows(X)
        self._check_columns(X)
        if not rows.shape[0]:
            raise EmptyInput(f"Found array with 0 sample(s) (shape={rows.shape}) while a minimum of 1 is required.")
        if not self._search:
            k = min(self.n_neighbors, len(state.numbers))
            self._search.append(KNeighborsClassifier(k).fit(state.kept, state.codes))
        return label_array(state.labels)[self._search[0].predict(rows)]

    def merge(self, other: "KNearest") -> Self:
        """Make self a sample of both streams; `other` is left alone. Raises CannotMerge."""
        if type(other) is not type(self) or other.get_params() != self.get_params():
            raise CannotMerge(f"{other!r} cannot be merged into {self!r}: merge samples of one set of parameters.")
        return self._keep(self._fresh(self.state_.merge(other.state_)))

    @property
    def state_(self) -> Reservoir:
        """The sample and its labels, immutable. Raises NotFitted before any row."""
        if not hasattr(self, "_sample") or not self._sample.rows:
            raise NotFitted(f"This {type(self).__name__} instance is not fitted yet: it has learned no row so far.")
        return self._sample.freeze()

    @property
    def classes_(self) -> np.ndarray:
        """Labels seen so far, sorted."""
        return label_array(sorted(self.state_.labels))

    @property
    def n_samples_seen_(self) -> int:
        """Rows learned."""
        return self.state_.rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_sample")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_columns(self, X: Any, reset: bool = False) -> None:
        """Raise WidthMismatch for other columns than the first rows', by name or number."""
        try:
            validate_data(self, X, skip_check_array=True, reset=reset)
        except ValueError as e:
            raise WidthMismatch(str(e)) from e

    def _fresh(self, state: Reservoir | None = None) -> ReservoirAccumulator:
        check_positive_int("n_neighbors", self.n_neighbors)
        check_positive_int("reservoir", self.reservoir)
        check_seed(self.random_state)
        return ReservoirAccumulator(self.reservoir, self.random_state or 0, True, state)

    def _learn(self, sample: ReservoirAccumulator, X: Any, y: Any, refuse_empty: bool = False) -> Self:
        rows, names = as_rows(X)
        if refuse_empty and 0 in rows.shape:
            what = "sample" if not rows.shape[0] else "feature"
            raise EmptyInput(f"Found array with 0 {what}(s) (shape={rows.shape}) while a minimum of 1 is required.")
        if y is None:
            raise TargetsRequired(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected; it is read as one label a row.",
                DataConversionWarning,
                stacklevel=3,
            )
        sample.add(Block(rows, parse_targets(y, rows.shape[0], ("class",), known=sample.target_kind), names=names))
        return self._keep(sample)

    def _keep(self, sample: ReservoirAccumulator) -> Self:
        self._sample = sample
        self._search: list[
            KNeighborsClassifier
        ] = []  # filled by the first predict, so that predict changes no attribute
        return self
