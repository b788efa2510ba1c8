"""InformationGain: select the features that tell most about the label."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.additive import AdditiveEstimator
from stream_dr.estimators.fitting.mapping import (
    StateType,
    check_feature_map,
    inner_projection,
    make_accumulator,
    mapped_bytes,
    solve_mapped,
)
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_positive_int
from stream_dr.projection import Columns, Projection
from stream_dr.statistics.feature_counts import FeatureCountAccumulator, FeatureCounts
from stream_dr.statistics.protocol import Accumulator, State

_CHUNK = 1 << 20
"""Maximum number of (feature, label) counts that are worked on at a time."""


@dataclass(eq=False, repr=False)
class InformationGain(AdditiveEstimator):
    """Select the features whose presence tells most about the label.

    A feature is present in a row if it is not 0, so the method fits word counts and other sparse
    rows. The result is a choice of columns, not a rotation.

    >>> from stream_dr import InformationGain
    >>> InformationGain(n_components=1).fit([[1, 0], [1, 2], [0, 3]], ["a", "a", "b"]).columns_
    array([0])

    Targets are one or several labels a row. Merges and unlearns exactly. For continuous targets or
    features whose values matter, use PLSDA or CCA.

    Parameters
    ----------
    n_components : int ≥ 1, default 500
        Number of features to select. If the rows have fewer features, all are selected.
    target : {"auto", "class", "multilabel"}, default "auto"
        Kind of targets. "auto" takes the kind of the first batch.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first, such as hashing. Fourier features
        are never 0, so their presence tells nothing.

    Attributes
    ----------
    columns_ : ndarray (components,), int64
        Indices of the features selected, best first.
    scores_ : ndarray (components,), float64
        Information gain of the features selected, in nats. `eigenvalues_` are the same numbers.
    components_ : ndarray (components, features), float64
        Rows of the identity matrix for the features selected, computed when read.

    Notes
    -----
    The information gain of a feature is the mutual information of its presence and the label,
    IG(t) = H(label) − P(t) H(label | t) − P(¬t) H(label | ¬t) in nats. t is the event that the
    feature is present, and 0 log 0 = 0. With several labels a row, the gain is the sum over labels
    of the mutual information of presence and "the row has this label". The method is a baseline in
    [SKM section 5.1] (IG3, IG500), after Yang and Pedersen.

    A feature in every row or in no row has gain 0 and comes last. Features of equal gain are
    ordered by index, so equal counts give equal choices.

    Learning a row costs O(entries · labels of the row), solving O(features · labels). State: 8 ·
    features · (labels + 1) bytes. There is no `decay`, because merging and unlearning are exact
    only while the counts are whole numbers. To forget old rows, start a new model at a later
    position of the stream (PUT with a position).
    """

    limit: ClassVar[str] = "there are no more features"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel")
    state_type: ClassVar[StateType] = StateType(FeatureCounts)
    fixed: ClassVar[tuple[str, ...]] = ("feature_map",)

    n_components: int = 500
    _: KW_ONLY
    target: Literal["auto", "class", "multilabel"] = "auto"
    feature_map: JsonDict | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter unless n_components ≥ 1 and target is known."""
        check_positive_int("n_components", self.n_components)
        check_choice("target", self.target, ("auto", "class", "multilabel"))
        check_feature_map(self.feature_map)

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return an accumulator of counts that is empty or continues from `state`."""
        return make_accumulator(self.feature_map, FeatureCountAccumulator, state)

    def solve(self, state: State) -> Projection:
        """Return the projection to the best columns, by the counts in `state`."""
        return solve_mapped(state, self._best_columns)

    def _best_columns(self, state: FeatureCounts) -> Columns:
        scores = information_gain(state)
        best = np.argsort(-scores, kind="stable")[: self.n_components].astype(np.int64)
        return Columns(best, scores[best], state.n_features)

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size in bytes, 8 · (features · (labels + 1) + 2 · labels).

        With a feature map, the features are the mapped ones.
        """
        return mapped_bytes(self.feature_map, _count_bytes, n_features, n_targets)

    @property
    def columns_(self) -> np.ndarray:
        """Indices (components,) int64 of the features selected, best first."""
        return self._linear("columns")

    @property
    def scores_(self) -> np.ndarray:
        """Information gain (components,) float64 of the features selected, in nats."""
        return self._linear("scores")

    def get_support(self, indices: bool = False) -> np.ndarray:
        """Return the mask (features,) bool of the features selected.

        indices: if true, return the indices (components,) of the features in ascending order, as
            scikit-learn's selectors do. `columns_` has the order of `transform`, best first.

        With a feature map, the features are the mapped ones.
        """
        if indices:
            return np.sort(self.columns_)
        mask = np.zeros(self._width(), dtype=bool)
        mask[self.columns_] = True
        return mask

    @property
    def components_(self) -> np.ndarray:
        """Rows of the identity (components, features) float64 for the features selected.

        rows · components_ᵀ are the selected columns. Each access creates a new array of 8 ·
        components · features bytes. `columns_` holds the same information.
        """
        columns = self.columns_
        chosen = np.zeros((len(columns), self._width()))
        chosen[np.arange(len(columns)), columns] = 1.0
        return chosen

    @property
    def eigenvalues_(self) -> np.ndarray:
        """Information gain (components,) float64 of each component, the same as `scores_`."""
        return self.scores_

    @property
    def mean_(self) -> np.ndarray:
        """Zeros (features,) float64, because columns are not centred."""
        return np.zeros(self._width())

    def _width(self) -> int:
        """Return the number of features to choose from, after the feature map if any."""
        return int(inner_projection(self.projection()).n_features)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Return the names of the features selected.

        The names are taken from `input_features`, or from the table that was learned. Without
        names they are x0, x1 … With a feature map, they are the names of the map's columns, or x0,
        x1 … if these have no names.
        """
        names = self.fitted().names if input_features is None else input_features
        if self.feature_map is not None:
            names = getattr(self.projection(), "feature_names", None)
        if names is None:
            return np.asarray([f"x{i}" for i in self.columns_], dtype=object)
        if len(names) != self._width():
            raise InvalidParameter(f"input_features has {len(names)} names; the rows have {self._width()} features.")
        return np.asarray(list(names), dtype=object)[self.columns_]


def information_gain(state: FeatureCounts) -> np.ndarray:
    """Return the information gain (features,) of each feature in nats, ≥ 0.

    Without rows, the gain of every feature is 0.
    """
    gains = np.zeros(state.n_features)
    if state.weight <= 0 or not len(state.labels):
        return gains
    step = max(1, _CHUNK // len(state.labels))
    for start in range(0, state.n_features, step):
        part = slice(start, start + step)
        gain = _class_gain if state.target_kind == "class" else _label_gain
        gains[part] = gain(state.counts[part], state.present[part], state.label_weights, state.weight)
    return np.maximum(gains, 0.0)


def _class_gain(both: np.ndarray, present: np.ndarray, labels: np.ndarray, total: float) -> np.ndarray:
    """Return the mutual information (features,) of presence and class.

    both: (features, classes), weight of the rows of each class in which the feature is present.
    present: (features,), weight of the rows in which the feature is present.
    labels: (classes,), weight of the rows of each class.
    total: weight of all rows.
    """
    absent = np.maximum(labels - both, 0.0)
    missing = np.maximum(total - present, 0.0)
    return (_entropy_terms(both, present, labels, total) + _entropy_terms(absent, missing, labels, total)) / total


def _label_gain(both: np.ndarray, present: np.ndarray, labels: np.ndarray, total: float) -> np.ndarray:
    """Return the sum over labels of the mutual information of presence and label.

    both: (features, labels), weight of the rows of each label in which the feature is present.
    present: (features,), weight of the rows in which the feature is present.
    labels: (labels,), weight of the rows of each label.
    total: weight of all rows.
    """
    gains = np.zeros(len(present))
    for j, weight in enumerate(labels):
        pair = np.column_stack([both[:, j], np.maximum(present - both[:, j], 0.0)])
        gains += _class_gain(pair, present, np.asarray([weight, total - weight]), total)
    return gains


def _count_bytes(n_features: int, n_targets: int) -> int:
    return 8 * (n_features * (n_targets + 1) + 2 * n_targets)


def _entropy_terms(both: np.ndarray, marginal: np.ndarray, labels: np.ndarray, total: float) -> np.ndarray:
    """Return Σ_j n_j log(n_j N / (n m_j)) for each feature.

    n_j is the entry of `both` for class j, n the feature's `marginal`, m_j the class's weight in
    `labels`, and N `total`. 0 log 0 = 0. The sum is exactly 0 if n = N.
    """
    always = (marginal == total)[:, None]
    expected = np.where(always, labels, marginal[:, None] * (labels / total))
    there = (both > 0) & (expected > 0)
    ratio = np.where(there, both, 1.0) / np.where(there, expected, 1.0)
    return (both * np.log(ratio)).sum(1)
