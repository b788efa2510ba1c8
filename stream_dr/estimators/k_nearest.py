"""KNearest, a nearest-neighbours classifier on a sample of the rows."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from stream_dr.batch.sparse import is_sparse, pad_with_zero_columns
from stream_dr.batch.targets import Targets, label_array
from stream_dr.errors import CannotMerge
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike
from stream_dr.estimators.fitting.named_columns import (
    LabelScore,
    refuse_empty_rows,
    warn_of_column,
)
from stream_dr.estimators.fitting.parameters import check_positive_int
from stream_dr.estimators.fitting.stream_learner import FittedState, NotFitted, StreamLearner
from stream_dr.feature_maps.feature_map import check_seed_or_none
from stream_dr.projection import check_n_features
from stream_dr.statistics.protocol import Accumulator, State
from stream_dr.statistics.reservoir import Reservoir, ReservoirAccumulator


@dataclass(eq=False, repr=False)
class KNearest(LabelScore, StreamLearner):
    """Classify rows by their nearest neighbours in a sample.

    The papers use this classifier for projected rows, as in `KNearest().fit(lda.transform(X), y)`.
    Rows that are not projected may be classified, too. The classifier does not project rows, so it
    cannot be a model of a service.

    >>> from stream_dr import KNearest
    >>> KNearest().partial_fit([[0.0], [1.0], [9.0]], ["low", "low", "high"]).predict([[7.0]]).tolist()
    ['high']

    Targets are one label a row. States can be merged. The merged sample is drawn from the two
    samples in proportion to the lengths of their streams. Rows cannot be unlearned. `ClassMeans`
    classifies by the nearest class mean instead.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 1
        Number of neighbours k. If the sample has fewer rows, all sampled rows are neighbours.
    reservoir : int ≥ 1, default 2000
        Maximum number of rows in the sample.
    random_state : int or None, default None
        Seed of the sample. None means 0.

    Attributes
    ----------
    classes_ : ndarray (classes,)
        Labels learned so far, sorted.
    n_samples_seen_ : int
        Number of rows learned.
    n_features_in_ : int
        Number of features of the rows learned so far.
    target_column_ : str or None
        Name of the column of X with the targets, which `transform` and others leave out. None if
        the targets were no column of X.
    feature_names_in_ : ndarray (features,), object
        Names of the features, if the first rows were a table of named columns.
    state_ : Reservoir
        The sample. `state_.kept` (sampled rows, features) are the sampled rows. `state_.codes`
        (sampled rows,) are the indices of their labels in `state_.labels`.
    fitted_ : FittedState
        Accumulator that samples new rows. Internal; use `state_`.

    Notes
    -----
    The classifier stores a uniform sample, because a whole stream is too large. Every row of the
    stream has the same probability to be in the sample.

    Learning a row costs O(1), or O(entries) if the row is sampled. Predicting costs one
    scikit-learn neighbour search over the sample. The state of dense rows takes 8 · reservoir ·
    features bytes. All neighbours have the same weight, whatever their distance.
    """

    state_type: ClassVar[type] = Reservoir
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    merges: ClassVar[bool] = True
    fixed: ClassVar[tuple[str, ...]] = ("reservoir", "random_state")

    n_neighbors: int = 1
    reservoir: int = 2000
    _: KW_ONLY
    random_state: int | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_positive_int("n_neighbors", self.n_neighbors)
        check_positive_int("reservoir", self.reservoir)
        check_seed_or_none(self.random_state)

    def accumulator(self, state: State | None = None) -> ReservoirAccumulator:
        """Return an accumulator that samples rows.

        The accumulator is empty, or continues from `state`.
        """
        return ReservoirAccumulator(self.reservoir, self.random_state or 0, "all", cast(Reservoir | None, state))

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the approximate size of the state in bytes.

        The size is 8 · reservoir · (features + 3), computed for dense rows.
        """
        return self.reservoir * 8 * (n_features + 3)

    def fit(self, X: RowsLike, y: TargetsLike) -> Self:
        """Forget all learned rows, then learn rows and labels.

        X: (rows, features).
        y: (rows,), labels. For a table, y may be the name of the column with the labels.
        """
        return self._fit(X, y, None)

    def partial_fit(self, X: RowsLike, y: TargetsLike, classes: ArrayLike | None = None) -> Self:
        """Learn more rows with one label a row.

        If an error is raised, the state is unchanged.

        X: (rows, features).
        y: (rows,), labels, or the name of a column, as in `fit`.
        classes: ignored, because new labels may come at any time. The parameter exists for code
            that was written for scikit-learn's classifiers.
        """
        return self._partial_fit(X, y, None)

    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the most frequent label (rows,) among each row's neighbours.

        If several labels are equally frequent, the first in `classes_` is returned. Raises
        NotFitted if no row was learned so far, and WidthMismatch if X has another number of
        features than the rows learned.
        """
        rows = self._rows_to_classify(X)
        search, classes = self._neighbour_search()
        return np.asarray(classes[search.predict(rows)])

    def predict_proba(self, X: RowsLike) -> np.ndarray:
        """Return each class's share of a row's neighbours.

        The result is (rows, classes) float64. Columns are in the order of `classes_`.
        """
        rows = self._rows_to_classify(X)
        search, classes = self._neighbour_search()
        shares = np.zeros((rows.shape[0], len(classes)))
        shares[:, search.classes_] = search.predict_proba(rows)
        return shares

    def kneighbors(self, X: RowsLike = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return distances and indices of the nearest sampled rows.

        The arrays are (rows, k). The nearest row comes first. Indices refer to the rows of
        `state_.kept`.

        Parameters
        ----------
        X : rows (rows, features) or None, default None
            Rows whose neighbours are searched. None means the sampled rows themselves, of which
            none is its own neighbour.
        n_neighbors : int or None, default None
            Number of neighbours k. None means the estimator's parameter n_neighbors.
        return_distance : bool, default True
            If False, only the indices are returned.
        """
        # scikit-learn's classifier `search` finds the neighbours. For it, too, rows=None means the
        # sampled rows themselves.
        rows = None
        if X is not None:
            rows = self._rows_to_classify(X)
        search, _ = self._neighbour_search()
        return search.kneighbors(rows, n_neighbors, return_distance)

    def merge(self, other: "KNearest") -> Self:
        """Replace the sample by a sample of both estimators' streams.

        other: another KNearest, which is not changed.

        Raises CannotMerge if the parameters or the feature names of the two estimators differ.
        """
        if type(other) is not type(self) or other.get_params() != self.get_params():
            raise CannotMerge(f"{other!r} cannot be merged into {self!r}: merge samples of one set of parameters.")
        return self.merge_state(other)

    @property
    def state_(self) -> Reservoir:
        """Sampled rows with their labels, immutable.

        Raises NotFitted if no row was learned so far.
        """
        with self.lock:
            return cast(Reservoir, self.fitted().accumulator.freeze())

    @property
    def classes_(self) -> np.ndarray:
        """Labels seen so far, sorted."""
        return label_array(sorted(self.fitted().accumulator.labels))

    def fitted(self) -> FittedState:
        """Return the fitted state (sample and feature names).

        Raises NotFitted if no row was learned so far.
        """
        if "fitted_" not in vars(self) or not self.fitted_.accumulator.rows:
            raise NotFitted(f"This {type(self).__name__} instance is not fitted yet: it has learned no row so far.")
        self.fitted_.check_learning_parameters_unchanged(self)
        return self.fitted_

    def _rows_to_classify(self, X: RowsLike) -> Any:
        """Return rows to classify. Raises EmptyInput if there is no row."""
        rows = self._rows_to_project(X).X
        refuse_empty_rows(rows)
        # Sparse rows without a stated width may have fewer columns than the learned rows.
        if is_sparse(rows) and rows.shape[1] < self.n_features_in_:
            rows = pad_with_zero_columns(rows, self.n_features_in_)
        check_n_features(rows.shape[1], self.n_features_in_, type(self).__name__)
        return rows

    def _neighbour_search(self) -> tuple[Any, np.ndarray]:
        """Return scikit-learn's k-NN classifier of the sample, and its classes.

        The classifier's labels are indices in the classes (classes,). The classifier is cached
        until the sample or n_neighbors changes.
        """
        from sklearn.neighbors import KNeighborsClassifier

        # `version` changes each time that rows are learned.
        with self.lock:
            fitted = self.fitted()
            state = self.state_
            search = fitted.neighbour_search
            version = fitted.version

        # Fit if no search is cached or k changed. There are no more neighbours than sampled rows.
        labels = sorted(state.labels)
        k = min(self.n_neighbors, len(state.numbers))
        if search is None or search.n_neighbors != k:
            # `state.codes` has indices in `state.labels`, whose order is that of their first rows.
            # Convert them to indices in the sorted labels.
            new_codes = {label: code for code, label in enumerate(labels)}
            codes = np.array([new_codes[label] for label in state.labels])[state.codes]
            search = KNeighborsClassifier(k).fit(state.kept, codes)
            # Store the result, unless rows were learned meanwhile.
            with self.lock:
                if fitted.version == version:
                    fitted.neighbour_search = search
        return search, label_array(labels)

    def _parse_targets(self, accumulator: Accumulator, y: TargetsLike, n_rows: int) -> Targets | None:
        warn_of_column(y, stacklevel=6)
        return super()._parse_targets(accumulator, y, n_rows)
