"""InformationGain, which selects the features most informative of the label.

The estimator learns the sums of which features are not 0, by label (`PresenceAccumulator`).

It learns each row with all of its nonzero values replaced by 1. So the sums of a MomentState become
weights of rows. With the state `s`,

- `s.features.features[:, WEIGHT]` are the weights of the rows in which each feature is present,
- `s.features.cross` (features, labels) are the weights of these rows by label.

Dense rows are learned as sparse rows, too. If the weights of rows are whole numbers (1 by default),
the sums are exact to the last bit.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block, Rows
from stream_dr.errors import CannotUnlearn, InvalidParameter
from stream_dr.estimators.fitting.estimator import AdditiveEstimator, MappedMethod, StateType
from stream_dr.estimators.fitting.mapping import check_feature_map, inner_projection
from stream_dr.estimators.fitting.parameters import check_choice, check_positive_int
from stream_dr.projection import Columns
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.batch_plan import PlannedBatch
from stream_dr.statistics.moments.sparse_sums import WEIGHT, SparsePart
from stream_dr.statistics.moments.state import MomentState, moment_bytes
from stream_dr.statistics.moments.unlearn import TOLERANCE


class PresenceAccumulator(MomentAccumulator):
    """Accumulator of the weights of rows with each feature and label.

    state: sums to continue from, or None. Its arrays are copied.
    """

    def __init__(self, state: MomentState | None = None) -> None:
        super().__init__("indicator", "none", state=state)

    def check_and_plan_batch(self, block: Block) -> PlannedBatch:
        """Check a batch, and return it ready to be counted.

        The counts are of rows in which a feature is present (not 0), by feature and label. So X of
        the returned PlannedBatch is 1 where the batch's X is not 0.
        """
        batch = super().check_and_plan_batch(block)
        return batch._replace(X=_presences(batch.X))

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        Raises CannotUnlearn if rows cannot be removed. They cannot, for example, if the summed
        weight of the rows that have some feature and some label would become negative.
        """
        before = self.freeze()
        super().remove(block)
        part = self.freeze().features
        if isinstance(part, SparsePart) and (part.cross < -TOLERANCE * before.weight).any():
            self._load_state(before)
            raise CannotUnlearn("rows that were not learned, or with other labels or weights, cannot be taken out.")


class Presences(NamedTuple):
    """Arrays of CSR rows with 1 for each present feature.

    This is not a csr_matrix, because creating one takes as long as learning a row.

    Attributes
    ----------
    indptr : (rows + 1,)
        Start of each row in `indices` and `data`.
    indices : (entries,)
        Feature of each entry.
    data : (entries,)
        1, or 0 for a stored zero.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


def _presences(X: Rows) -> Presences:
    """Return the arrays of a CSR matrix that is 1 where X is not 0."""
    if not isinstance(X, np.ndarray):
        return Presences(X.indptr, X.indices, X.data.astype(bool).astype(X.data.dtype))
    row_numbers, columns = np.nonzero(X)
    indptr = np.searchsorted(row_numbers, np.arange(len(X) + 1)).astype(np.int32)
    return Presences(indptr, columns.astype(np.int32), np.ones(len(columns), X.dtype))


_CHUNK = 1 << 20
"""Maximum number of counts that are processed at a time.

Each feature has one count for each label.
"""


@dataclass(eq=False, repr=False)
class InformationGain(MappedMethod[MomentState], AdditiveEstimator):
    """Select the features whose presence says most about the label.

    A feature is present in a row if its value is not 0. So the method is suited to word counts and
    other sparse rows. The projection selects columns and does not combine them.

    >>> from stream_dr import InformationGain
    >>> InformationGain(n_components=1).fit([[1, 0], [1, 2], [0, 3]], ["a", "a", "b"]).columns_
    array([0])

    Targets are one or several labels a row. States can be merged exactly, and rows can be
    unlearned exactly. Use PLSDA or CCA if targets are numbers. Use them also if the values of
    features matter and not only their presence.

    Parameters
    ----------
    n_components : int ≥ 1, default 500
        Number of features to select. If the rows have fewer features, all are selected.
    target : {"auto", "class", "multilabel"}, default "auto"
        Kind of targets. "auto" takes the kind of the first batch.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first, such as hashing. Fourier features
        are not suitable, because they are present in every row.

    Attributes
    ----------
    columns_ : ndarray (components,), int64
        Indices of the selected features, best first.
    scores_ : ndarray (components,), float64
        Information gain of the selected features, in nats. `eigenvalues_` are the same numbers.
    components_ : ndarray (components, features), float64
        Rows of the identity matrix for the selected features, computed when read.

    Notes
    -----
    The information gain of a feature is the mutual information of the feature's presence and the
    label. Let t mean "the feature is present" and ¬t "the feature is absent". With the entropy H
    and the probability P, the gain in nats is

        IG = H(label) − P(t) H(label | t) − P(¬t) H(label | ¬t)

    With several labels a row, the gain is a sum over all labels. Each summand is the mutual
    information of the feature's presence and whether the row has the label. The method is a
    baseline in [SKM section 5.1] (IG3, IG500), after Yang and Pedersen.

    A feature that is present in every row or in no row has gain 0. Features of equal gain are
    ordered by index.

    Learning a row costs O(entries · (labels of the row + 1)), and O(labels²) if a row may have
    several labels. Solving costs O(features · labels). The state takes
    8 · (features · (labels + 4) + labels²) bytes. There is no `decay`, because merging and
    unlearning are exact only while the counts are integers. To forget old rows, start a new model
    at a later position of the stream.
    """

    limit: ClassVar[str] = "there are no more features"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel")
    is_linear: ClassVar[bool] = False
    state_type: ClassVar[StateType] = StateType(MomentState)
    fixed: ClassVar[tuple[str, ...]] = ("feature_map",)

    n_components: int = 500
    _: KW_ONLY
    target: Literal["auto", "class", "multilabel"] = "auto"
    feature_map: JsonDict | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        check_positive_int("n_components", self.n_components)
        check_choice("target", self.target, ("auto", "class", "multilabel"))
        check_feature_map(self.feature_map)

    def inner_accumulator(self, state: MomentState | None) -> PresenceAccumulator:
        """Return an accumulator of the weights of rows by feature and class.

        For each feature and each class, it sums the weights of the rows of this class in which the
        feature is not 0. The accumulator is empty, or continues from `state`.
        """
        return PresenceAccumulator(state)

    def solve_inner(self, state: MomentState) -> Columns:
        """Return the projection to the features of largest information gain.

        The feature of largest gain comes first.
        """
        scores = information_gain(state)
        best = np.argsort(-scores, kind="stable")[: self.n_components].astype(np.int64)
        return Columns(best, scores[best], state.n_features)

    def inner_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size of the learned sums in bytes.

        For each feature and each label, the sum is the weight of the rows with this label in which
        the feature is not 0.

        n_features: number of features after the feature map.
        n_targets: number of labels.
        """
        return moment_bytes("indicator", n_features, n_targets, whole_scatter=False)

    @property
    def columns_(self) -> np.ndarray:
        """Indices of the selected features, best first, int64 (components,)."""
        return self._linear_projection_array("columns")

    @property
    def scores_(self) -> np.ndarray:
        """Information gain of each selected feature, in nats, float64 (components,)."""
        return self._linear_projection_array("scores")

    def get_support(self, indices: bool = False) -> np.ndarray:
        """Return a mask (features,) of the selected features.

        If there is a feature map, the mask is for the columns that the map returns.

        indices: if true, return the indices (components,) of the selected features in ascending
            order, and not a mask. `columns_` has the same indices in the order of `transform`,
            best first.
        """
        if indices:
            return np.sort(self.columns_)
        mask = np.zeros(self._n_mapped_features(), dtype=bool)
        mask[self.columns_] = True
        return mask

    @property
    def components_(self) -> np.ndarray:
        """Rows of the identity matrix for the selected features.

        The array is (components, features). The product X · components_ᵀ has the selected columns
        of X. Each access creates a new array of 8 · components · features bytes. `columns_` has
        the same information in less memory.
        """
        columns = self.columns_
        chosen = np.zeros((len(columns), self._n_mapped_features()))
        chosen[np.arange(len(columns)), columns] = 1.0
        return chosen

    @property
    def eigenvalues_(self) -> np.ndarray:
        """Information gain of each component, equal to `scores_`, float64 (components,)."""
        return self.scores_

    @property
    def mean_(self) -> np.ndarray:
        """Zeros (features,) float64, because columns are not centred."""
        return np.zeros(self._n_mapped_features())

    def _n_mapped_features(self) -> int:
        """Return the number of features to select from, after the feature map."""
        return int(inner_projection(self.projection()).n_features)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Return the names of the selected features, best first.

        If there is a feature map, the names are the names of the map's columns. Features without
        names are called x0, x1 and so on by their indices.

        input_features: names of all features. None means the names of the learned table's columns.
            Ignored if there is a feature map.
        """
        names = input_features
        if input_features is None:
            names = self.fitted().names
        # With a feature map, only the map knows the names of its columns, or they have none.
        if self.feature_map is not None:
            names = getattr(self.projection(), "feature_names", None)
        if names is None:
            return np.asarray([f"x{i}" for i in self.columns_], dtype=object)
        if len(names) != (width := self._n_mapped_features()):
            raise InvalidParameter(f"input_features has {len(names)} names; the rows have {width} features.")
        return np.asarray(list(names), dtype=object).take(self.columns_)


def information_gain(state: MomentState) -> np.ndarray:
    """Return the information gain (features,) of each feature in nats.

    The gain is at least 0. If no rows were learned, the gain of every feature is 0.
    """
    # `sums` are the state's sums for each feature. They are no SparsePart if no row was learned.
    gains = np.zeros(state.n_features)
    sums = state.features
    if state.weight <= 0 or not len(state.labels) or not isinstance(sums, SparsePart):
        return gains

    # `present` (features,) is the weight of the rows in which each feature is not 0, and `cross`
    # (features, labels) the weight of these rows with each label. Take some features at a time,
    # about _CHUNK numbers, because the arrays for all features would take much memory.
    present = sums.features[:, WEIGHT]
    step = max(1, _CHUNK // len(state.labels))
    for start in range(0, state.n_features, step):
        part = slice(start, start + step)
        gain = _class_information_gain if state.target_kind == "class" else _multilabel_information_gain
        gains[part] = gain(sums.cross[part], present[part], state.targets.label_weights, state.weight)
    return np.maximum(gains, 0.0)


def _class_information_gain(
    joint_weights: np.ndarray, present_weights: np.ndarray, class_weights: np.ndarray, total_weight: float
) -> np.ndarray:
    """Return the mutual information of each feature's presence and the class.

    The result (features,) is in nats.

    joint_weights: (features, classes), weight of the rows of each class in which the feature is
        present.
    present_weights: (features,), weight of the rows in which the feature is present.
    class_weights: (classes,), weight of the rows of each class.
    total_weight: weight of all rows.
    """
    # The rows with the feature and the rows without it each give a part of the mutual information.
    # The weights of rows without the feature are differences, which rounding may make negative.
    absent_joint_weights = np.maximum(class_weights - joint_weights, 0.0)
    absent_weights = np.maximum(total_weight - present_weights, 0.0)
    present_terms = _mutual_information_parts(joint_weights, present_weights, class_weights, total_weight)
    absent_terms = _mutual_information_parts(absent_joint_weights, absent_weights, class_weights, total_weight)
    return np.asarray((present_terms + absent_terms) / total_weight)


def _multilabel_information_gain(
    joint_weights: np.ndarray, present_weights: np.ndarray, label_weights: np.ndarray, total_weight: float
) -> np.ndarray:
    """Return the information gain (features,) for rows with several labels.

    The gain of a feature, in nats, is a sum over labels. Each summand is the mutual information of
    the feature's presence and whether a row has the label.

    joint_weights: (features, labels), weight of the rows with each label in which the feature is
        present.
    present_weights: (features,), weight of the rows in which the feature is present.
    label_weights: (labels,), weight of the rows with each label.
    total_weight: weight of all rows.
    """
    # For each label, treat the rows with the label and the rows without it as two classes.
    # `two_joint_weights` (features, 2) and `two_weights` (2,) are the weights of these classes.
    gains = np.zeros(len(present_weights))
    for j, weight in enumerate(label_weights):
        # The difference is at least 0, except for rounding errors.
        without = np.maximum(present_weights - joint_weights[:, j], 0.0)
        two_joint_weights = np.column_stack([joint_weights[:, j], without])
        two_weights = np.asarray([weight, total_weight - weight])
        gains += _class_information_gain(two_joint_weights, present_weights, two_weights, total_weight)
    return gains


def _mutual_information_parts(
    joint_weights: np.ndarray, feature_weights: np.ndarray, class_weights: np.ndarray, total_weight: float
) -> np.ndarray:
    """Return each feature's part of a mutual information.

    The mutual information of a feature's presence and the class is a sum of two parts, divided by
    `total_weight`. Call this function once for the rows with each feature, and once for the rows
    without it. These rows are called the counted rows. The result is (features,).

    Let b be the weight of the counted rows of a class, m the weight of the counted rows of all
    classes, n the weight of all rows of the class, and N `total_weight`. The part is the sum over
    classes of b log(b N / (m n)), where 0 log 0 = 0. It is exactly 0 if all rows are counted.

    joint_weights: (features, classes), weight of the rows of each class that are counted for the
        feature.
    feature_weights: (features,), weight of the rows of all classes that are counted for the
        feature.
    class_weights: (classes,), weight of the rows of each class.
    total_weight: weight of all rows.
    """
    # `expected` (features, classes) is m n / N, so the part is the sum of b log(b / expected).
    # If all rows are counted for a feature, use the class weights n without any division.
    # Then b / expected is exactly 1, without a rounding error.
    all_counted = (feature_weights == total_weight)[:, None]
    expected = np.where(all_counted, class_weights, feature_weights[:, None] * (class_weights / total_weight))

    # Terms of weight 0 are 0. For these, the ratio 1 is used, whose logarithm is defined.
    positive = (joint_weights > 0) & (expected > 0)
    ratio = np.where(positive, joint_weights, 1.0) / np.where(positive, expected, 1.0)
    return np.asarray((joint_weights * np.log(ratio)).sum(axis=1))
