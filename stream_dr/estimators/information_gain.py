"""InformationGain: keeps the features that tell most about the label.

IG(t) = H(label) − P(t) H(label | t) − P(¬t) H(label | ¬t), with t "the feature is present (≠ 0)", 0 log 0 = 0, in nats;
this is the mutual information of presence and label. With several labels a row it is the sum over labels of the mutual
information of presence and "the row has this label". Baseline of [SKM section 5.1] (IG3, IG500), after Yang and
Pedersen.

Cost: learning O(entries · labels of the row) a row, memory 8 · features · (labels + 1) bytes; solving O(features ·
labels). Merges: yes, exactly. Unlearns: yes, exactly.

Why this way: the counts are sums, so nothing is lost by a single pass; a feature in every row or in none has gain 0 and
comes last, ties are broken by index so that equal counts give equal choices.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.additive import AdditiveEstimator
from stream_dr.estimators.fitting.mapping import StateType, accumulate, check_feature_map, mapped_bytes, solved
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_positive_int
from stream_dr.projection import Columns, Projection
from stream_dr.statistics.feature_counts import FeatureCountAccumulator, FeatureCounts

_CHUNK = 1 << 20
"""Entries of the (features, labels) table worked on at a time."""


@dataclass(eq=False, repr=False)
class InformationGain(AdditiveEstimator):
    """Keeps the `n_components` features of highest information gain (at most as many as there are).

    Time a row O(entries · labels of the row); memory 8 · features · (labels + 1) bytes. Merges and unlearns exactly.
    Left out: continuous targets and features' values, for which presence is no measure; use PLSDA or CCA. The common
    parameter `decay`: the counts are exact whole numbers, by which merge, unlearn and equal choices from equal counts
    hold; a model started later (PUT from a position) forgets what lies before it.

    Parameters
    ----------
    n_components : int ≥ 1, default 500
        Features kept, at most as many as there are.
    target : {"auto", "class", "multilabel"}, default "auto"
        Kind of targets; "auto": that of the first batch.
    feature_map : dict or None, default None
        Spec of a map that rows go through first: hashing (of Fourier features every one is always present).

    Attributes
    ----------
    columns_ : ndarray (components,), int64
        The features kept, best first.
    scores_ : ndarray (components,), float64
        Their information gain in nats, which is also what `eigenvalues_` gives.
    components_ : ndarray (components, features), float64
        Rows of the identity, made when read.

    >>> from stream_dr import InformationGain
    >>> InformationGain(n_components=1).fit([[1, 0], [1, 2], [0, 3]], ["a", "a", "b"]).columns_
    array([0])
    """

    limit: ClassVar[str] = "there are no more features"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel")
    state_type: ClassVar[Any] = StateType(FeatureCounts)
    fixed: ClassVar[tuple[str, ...]] = ("feature_map",)

    n_components: int = 500
    _: KW_ONLY
    target: Literal["auto", "class", "multilabel"] = "auto"
    feature_map: dict[str, Any] | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter unless n_components ≥ 1 and target is known."""
        check_positive_int("n_components", self.n_components)
        check_choice("target", self.target, ("auto", "class", "multilabel"))
        check_feature_map(self.feature_map)

    def accumulator(self, state: Any = None) -> Any:
        """Counts that start empty, or go on from `state`."""
        return accumulate(self.feature_map, FeatureCountAccumulator, state)

    def solve(self, state: Any) -> Projection:
        """The best columns of `state`."""
        return solved(state, self._best)

    def _best(self, state: FeatureCounts) -> Columns:
        scores = information_gain(state)
        best = np.argsort(-scores, kind="stable")[: self.n_components].astype(np.int64)
        return Columns(best, scores[best], state.n_features)

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """8 · (features · (labels + 1) + 2 · labels), features as mapped where there is a map."""
        return mapped_bytes(self.feature_map, _count_bytes, n_features, n_targets)

    @property
    def columns_(self) -> np.ndarray:
        """(components,) int64 indices of the features kept, best first."""
        return self._linear("columns")

    @property
    def scores_(self) -> np.ndarray:
        """(components,) float64 information gain of the features kept, in nats."""
        return self._linear("scores")

    def get_support(self, indices: bool = False) -> np.ndarray:
        """Mask (features,) bool of the features kept or, with `indices`, their indices (components,), ascending.

        As scikit-learn's selectors have it; `columns_` has the order of `transform`, best first. With a feature map, of the
        mapped features.
        """
        if indices:
            return np.sort(self.columns_)
        mask = np.zeros(self._width(), dtype=bool)
        mask[self.columns_] = True
        return mask

    @property
    def components_(self) -> np.ndarray:
        """(components, features) float64, a 1 a row: rows · components_ᵀ is the kept columns. Made anew each time, of
        8 · components · features bytes; `columns_` says the same."""
        columns = self.columns_
        chosen = np.zeros((len(columns), self._width()))
        chosen[np.arange(len(columns)), columns] = 1.0
        return chosen

    @property
    def eigenvalues_(self) -> np.ndarray:
        """(components,) float64, `scores_`: what each component is worth, in nats."""
        return self.scores_

    @property
    def mean_(self) -> np.ndarray:
        """(features,) float64 zeros: columns are kept as they are."""
        return np.zeros(self._width())

    def _width(self) -> int:
        """Features to choose from: the rows', or their map's."""
        projection: Any = self.projection()
        return int(getattr(projection, "inner", projection).n_features)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The kept features' own names: the table's, `input_features`, or x0, x1 …; with a map its columns', which have
        numbers where they have no names."""
        names = self.holder().names if input_features is None else input_features
        if self.feature_map is not None:
            names = getattr(self.projection(), "feature_names", None)
        if names is None:
            return np.asarray([f"x{i}" for i in self.columns_], dtype=object)
        if len(names) != self._width():
            raise InvalidParameter(f"input_features has {len(names)} names; the rows have {self._width()} features.")
        return np.asarray(list(names), dtype=object)[self.columns_]


def information_gain(state: FeatureCounts) -> np.ndarray:
    """(features,) information gain in nats, ≥ 0; zeros where there are no rows."""
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
    """Mutual information of presence and class: both (features, classes), present (features,), labels (classes,)."""
    absent = np.maximum(labels - both, 0.0)
    missing = np.maximum(total - present, 0.0)
    return (_terms(both, present, labels, total) + _terms(absent, missing, labels, total)) / total


def _label_gain(both: np.ndarray, present: np.ndarray, labels: np.ndarray, total: float) -> np.ndarray:
    """Sum over labels of the mutual information of presence and having the label."""
    gains = np.zeros(len(present))
    for j, weight in enumerate(labels):
        pair = np.column_stack([both[:, j], np.maximum(present - both[:, j], 0.0)])
        gains += _class_gain(pair, present, np.asarray([weight, total - weight]), total)
    return gains


def _count_bytes(n_features: int, n_targets: int) -> int:
    return 8 * (n_features * (n_targets + 1) + 2 * n_targets)


def _terms(both: np.ndarray, marginal: np.ndarray, labels: np.ndarray, total: float) -> np.ndarray:
    """Σ_j n_j log(n_j N / (n m_j)) for each feature: exactly 0 where presence is constant, 0 log 0 = 0."""
    always = (marginal == total)[:, None]
    expected = np.where(always, labels, marginal[:, None] * (labels / total))
    there = (both > 0) & (expected > 0)
    ratio = np.where(there, both, 1.0) / np.where(there, expected, 1.0)
    return (both * np.log(ratio)).sum(1)
