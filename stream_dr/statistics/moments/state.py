"""MomentState: the sums from which projections are computed [mathematics §1].

It is the state of every estimator that computes its projection from sums, without further passes.

The state holds sums over rows: the total weight, the means and second moments of the d features,
their cross sums with k target columns, and sums of the targets. Second moments are stored for all
pairs of features, or for each feature only. On request the state also holds a scatter matrix for
each class (for WMV) or sums for each distinct set of labels (for HSL).

Sums of dense rows are stored centred. If the whole scatter matrix is stored, sums of sparse rows
are stored centred, too. Otherwise they are stored about fixed points. The method `centred` returns
centred sums in either case.

`merge` adds two states, and `subtract_state` (unlearn.py) subtracts a state from another. Merging
an empty state changes no bit. Memory is 8·(d·(k + 5) + k²) bytes, and 8·d² more for a whole
scatter matrix (`moment_bytes`).
"""

from typing import NamedTuple

import numpy as np

from stream_dr.batch.block import Rows
from stream_dr.batch.targets import KINDS, Label, check_label_type
from stream_dr.checks import (
    ROW_COUNT_LIMIT,
    check_at_least,
    check_common_state_fields,
    check_field_equals,
    check_one_of,
    check_within,
    field_error,
)
from stream_dr.errors import CannotMerge, InvalidParameter, InvalidTargets
from stream_dr.statistics.moments.centred_part import CentredPart, empty_centred_part
from stream_dr.statistics.moments.class_scatter import ClassScatter
from stream_dr.statistics.moments.encoding import Encoding, Fourier, check_encoding
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.largest import EPS, Largest
from stream_dr.statistics.moments.sparse_sums import SparsePart
from stream_dr.statistics.moments.target_sums import TargetPart, add_or_subtract_targets, empty_targets, target_mean
from stream_dr.statistics.protocol import Absent


class Centred(NamedTuple):
    """Means and centred second moments, from which solvers compute projections.

    The rows have d features and k target columns. In the formulas below, x is a row, y its targets
    and w its weight. x̄ and ȳ are the weighted means of x and y. Arrays are float64.

    Attributes
    ----------
    weight : float
        N = Σ w.
    rows : int
        Number of rows learned.
    mean : (d,)
        x̄.
    diagonal : (d,) or None
        Σ w (x − x̄)² of each feature. None if the state stores no scatter matrix.
    scatter : (d, d) or None
        Σ w (x − x̄)(x − x̄)ᵀ. None unless the state stores the whole scatter matrix.
    labels : tuple of Label
        Distinct labels. () if targets are continuous.
    label_weights : (k,)
        Weight of the rows with each label. Zeros if targets are continuous.
    target_mean : (k,)
        ȳ.
    cross : (d, k)
        Σ w (x − x̄)(y − ȳ)ᵀ.
    target_scatter : (k, k)
        Σ w (y − ȳ)(y − ȳ)ᵀ.
    noise : float
        Absolute error that unlearning may have left in the sums.
    """

    weight: float
    rows: int
    mean: np.ndarray
    diagonal: np.ndarray | None
    scatter: np.ndarray | None
    labels: tuple[Label, ...]
    label_weights: np.ndarray
    target_mean: np.ndarray
    cross: np.ndarray
    target_scatter: np.ndarray
    noise: float


class MomentState(NamedTuple):
    """Sums of rows and targets, from which projections are computed.

    Under decay, the weight of a row shrinks with every later row. Then all sums are stored divided
    by `scale`: true sum = scale · stored sum. Without decay the scale is 1.

    Attributes
    ----------
    encoding : Encoding
        Encoding of the targets as k numeric columns.
    scatter : str
        Part of the scatter matrix that is stored: "exact" (all), "diagonal" or "none". "auto"
        until the first batch decides.
    decay : float
        Factor by which the weight of a row shrinks with every later row.
    rows : int
        Number of rows learned and not unlearned.
    rows_skipped : int
        Number of rows that were not learned because they had no target.
    clock : int
        Number of learned rows whose decay is included in the sums.
    n_features : int
        Number of features d.
    dense : bool
        True if any rows were dense, so that d is fixed.
    target_kind : str or None
        "class", "multilabel" or "continuous". None before the first targets.
    target_width : int
        Number of entries of a continuous target, before any encoding. 0 for other targets.
    labels : tuple of Label
        Distinct labels in order of first appearance.
    scale : float
        Factor from stored sums to true sums.
    weight : float
        Total weight of all rows, divided by `scale`.
    features, targets, class_scatter, label_sets
        Sums of the features, of the targets, of each class, and of each distinct set of labels.
        `Absent` if they are not stored, or before the first batch.
    largest : Largest
        Largest value that each sum had just before rows were unlearned. It shows how large the
        rounding errors of the sums may be.
    """

    encoding: Encoding
    scatter: str
    decay: float
    rows: int
    rows_skipped: int
    clock: int
    n_features: int
    dense: bool
    target_kind: str | None
    target_width: int
    labels: tuple[Label, ...]
    scale: float
    weight: float
    features: CentredPart | SparsePart | Absent
    targets: TargetPart
    class_scatter: ClassScatter | Absent
    label_sets: LabelSets | Absent
    largest: Largest = Largest()

    def check(self) -> None:
        """Raise DamagedFile if fields of the state contradict each other.

        All sums must be for the same features, labels and kind of targets.
        """
        # Parameters and counts must have valid values.
        check_encoding(self.encoding)
        check_one_of(self, "scatter", ("auto", "exact", "diagonal", "none"))
        check_common_state_fields(self, KINDS)
        check_within(self, 0, ROW_COUNT_LIMIT, "clock", "target_width")
        check_at_least(self, 0.0, "weight")
        if not (0.0 < self.decay <= 1.0 and self.scale > 0.0):
            raise field_error(self, "decay", f"{self.decay}, of scale {self.scale}", "in (0, 1], and the scale above 0")
        if self.encoding == "none":
            check_field_equals(self, "target_kind", None)
        if self.target_kind != "continuous":
            check_field_equals(self, "target_width", 0)
        elif self.target_width < 1:
            raise field_error(self, "target_width", "0", "at least 1, targets being numbers")

        # All arrays of sums must be for the same d features and k target columns.
        d = self.n_features
        k = len(self.labels)
        exact = self.scatter == "exact"
        if self.target_kind == "continuous":
            k = self.encoding.size if isinstance(self.encoding, Fourier) else self.target_width
        self.targets.check(self.target_kind, k)
        self.largest.check(d, k)
        self._check_features(d, k, exact)
        if isinstance(self.class_scatter, ClassScatter):
            self.class_scatter.check(d, k if exact else 0)
        if isinstance(self.label_sets, LabelSets):
            self.label_sets.check(d, k)

    def _check_features(self, n_features: int, n_target_columns: int, whole_scatter: bool) -> None:
        part = self.features
        if isinstance(part, CentredPart):
            part.check(n_features, n_target_columns, whole_scatter)
        elif isinstance(part, SparsePart) and not whole_scatter:
            part.check(n_features, n_target_columns)
        elif not isinstance(part, Absent) or self.rows or n_features or n_target_columns:
            needed = "CentredPart, or SparsePart without exact scatter, or Absent before any row"
            raise field_error(self, "features", type(part).__name__, needed)
        if not isinstance(part, Absent):
            check_one_of(self, "scatter", ("exact", "diagonal", "none"))

    @property
    def n_target_columns(self) -> int:
        """Number of target columns."""
        return len(self.targets.total) if self.targets.labelled else len(self.targets.values.mean)

    @property
    def label_rows(self) -> np.ndarray:
        """Array (labels,) int64, the number of rows with each label."""
        return self.targets.label_rows

    @property
    def unlearn_relative_error(self) -> float:
        """Largest relative error in the sums that unlearning has caused.

        For one sum, the relative error is 2.2e-16 times its largest value before any unlearn,
        divided by its present value. The sums are the scatter of every feature, the weight or
        scatter of every target, and the weight of all rows. The error is at most 1e-6, because an
        unlearn that would cause a larger error raises PrecisionLost.
        """
        return self.largest.rounding_error_from_unlearning(current_sums(self))

    def merge(self, other: "MomentState") -> "MomentState":
        """Return the state of all rows of `self` and `other`.

        With decay < 1, the rows of `other` must have come after the rows of `self`. Raises
        CannotMerge. Costs O(d k + d²) for d features and k target columns.
        """
        check_same_parameters(self, other)

        # If a state has no rows, the result is the other state, with the skipped rows of both.
        skipped = self.rows_skipped + other.rows_skipped
        if other.rows == 0 or self.rows == 0:
            learned, empty = (self, other) if other.rows == 0 else (other, self)
            scatter = empty.scatter if learned.scatter == "auto" else learned.scatter
            return learned._replace(rows_skipped=skipped, scatter=scatter)

        # Let the rows of `self` decay, because the rows of `other` came later.
        # Then give `self` the scale of `other`, because stored sums are divided by a scale.
        _check_mergeable(self, other)
        a, b = align_states_together(scale_state(self, self.scale * self.decay**other.clock / other.scale), other)
        return a._replace(
            rows=a.rows + b.rows,
            rows_skipped=skipped,
            clock=a.clock + b.clock,
            dense=a.dense or b.dense,
            scale=other.scale,
            weight=a.weight + b.weight,
            largest=a.largest.join(b.largest),
            **combine_aligned_sums(a, b, 1.0)._asdict(),
        )

    def centred(self) -> Centred:
        """Return the means and centred second moments for the solvers.

        Centred means that the mean is subtracted from each row. A state may also store sums that
        are not centred. They are centred here. Costs O(d k + d²) for d features and k target
        columns.
        """
        # The state stores all sums divided by its scale s, so sums are multiplied by s below.
        s = self.scale
        part = centred_features(self)
        targets = self.targets
        mean_y = target_mean(targets, self.weight)
        cyy = targets.scatter(self.weight)

        diagonal = s * part.sums_of_squares if self.scatter != "none" else None
        scatter = s * part.scatter if part.exact and self.scatter == "exact" else None
        label_weights = s * targets.label_weights if targets.labelled else np.zeros(self.n_target_columns)
        return Centred(
            s * self.weight,
            self.rows,
            part.mean,
            diagonal,
            scatter,
            self.labels,
            label_weights,
            mean_y,
            s * part.cross,
            s * cyy,
            EPS * s * float(self.largest.features.sum()),
        )

    def weighted_set_sums(self, set_factors: Rows) -> np.ndarray:
        """Return centred row sums, multiplied by factors of label sets.

        A label set is a distinct combination of labels. For each label set, the rows that have it
        are centred on the mean of all rows, multiplied by their weights and summed. The result
        (features, m) is the matrix (features, sets) of these sums times `set_factors`. The
        estimator HSL computes its right-hand sides with this method.

        set_factors: (sets, m), m factors of each label set, dense or CSR.
        """
        assert isinstance(self.label_sets, LabelSets)
        part = centred_features(self)
        return self.scale * self.label_sets.weighted_row_sums(set_factors, part.mean, part.low)


def empty_state(
    encoding: Encoding, scatter: str = "auto", decay: float = 1.0, label_sets: bool = False, class_scatter: bool = False
) -> MomentState:
    """Return a MomentState of no rows.

    The parameters are the same as in MomentAccumulator.
    """
    targets = empty_targets(None, 0)
    classes = ClassScatter.empty() if class_scatter else Absent()
    sets = LabelSets.empty() if label_sets else Absent()
    counts = (0, 0, 0, 0, False, None, 0, (), 1.0, 0.0)
    return MomentState(encoding, scatter, decay, *counts, Absent(), targets, classes, sets)


def empty_like(state: MomentState) -> MomentState:
    """Return a MomentState of no rows with the parameters of another state."""
    return empty_state(state.encoding, state.scatter, state.decay, *_optional_parts(state))


def centred_features(state: MomentState) -> CentredPart:
    """Return the mean and centred sums of a state's features.

    The result also has the cross sums of features and targets. Sums of sparse rows that are stored
    about fixed points are converted to sums about the mean. Like the stored sums, the result must
    be multiplied by the state's `scale` to get true sums.
    """
    part = state.features
    if isinstance(part, SparsePart):
        offset = target_mean(state.targets, state.weight) - part.reference
        if not state.targets.labelled:
            offset = offset + state.targets.values.low
        return part.centred(state.weight, offset)
    return empty_centred_part(0, state.n_target_columns, whole_scatter=False) if isinstance(part, Absent) else part


def current_sums(state: MomentState) -> Largest:
    """Return the present value of each sum of the state.

    The sums are the total weight, the scatter of each feature, and the weight or scatter of each
    target. They are returned as stored, so true values are larger by the factor `state.scale`. If
    the state stores no scatter, the scatter of each feature is returned as 0.
    """
    part = state.features
    targets = state.targets
    scatter = np.zeros(state.n_features)
    if state.scatter != "none" and isinstance(part, SparsePart):
        scatter = part.sums_of_squares(state.weight)
    elif state.scatter != "none" and isinstance(part, CentredPart):
        scatter = part.sums_of_squares
    return Largest(state.weight, scatter, targets.label_weights if targets.labelled else targets.values.sums_of_squares)


def moment_bytes(
    encoding: Encoding, n_features: int, n_target_columns: int, whole_scatter: bool, class_scatter: bool = False
) -> int:
    """Return the largest memory of a MomentState in bytes.

    For d features and k target columns, the number is 8·(d·(k + 5) + k² + 4·k) bytes. A whole
    scatter matrix needs 8·d² bytes more, and scatter matrices of classes need 8·k·(d² + 2·d + 1)
    bytes more. Sums for each distinct set of labels are not included, because the number of sets
    depends on the rows.

    n_features: number d of features.
    n_target_columns: number k of labels, or of entries of a continuous target.
    whole_scatter: True if the whole scatter matrix is stored.
    class_scatter: True if a scatter matrix is stored for each class.
    """
    d = n_features
    k = 0 if encoding == "none" else n_target_columns
    if isinstance(encoding, Fourier):
        k = max(k, encoding.size)
    numbers = d * (k + 5) + k * k + 4 * k + (d * d if whole_scatter else 0)
    return 8 * (numbers + (k * (d * d + 2 * d + 1) if class_scatter and whole_scatter else 0))


def _optional_parts(state: MomentState) -> tuple[bool, bool]:
    """Return whether a state stores sums of label sets, and scatter matrices of classes."""
    return not isinstance(state.label_sets, Absent), not isinstance(state.class_scatter, Absent)


def check_stored_optional_sums(state: MomentState, encoding: Encoding, label_sets: bool, class_scatter: bool) -> None:
    """Raise InvalidParameter unless the state fits an estimator's needs.

    An estimator needs an encoding of the targets, and exactly the optional sums given below.

    encoding: encoding of the targets as numeric columns.
    label_sets: True if the estimator needs sums for each distinct set of labels.
    class_scatter: True if the estimator needs a scatter matrix for each class.
    """
    if state.encoding != encoding or _optional_parts(state) != (label_sets, class_scatter):
        raise InvalidParameter(
            "what was learned does not hold what these parameters need: they were changed after the first row. "
            "Call fit with the rows again, or set the parameters back."
        )


def check_same_parameters(first_state: MomentState, second_state: MomentState) -> None:
    """Raise CannotMerge unless two states have the same parameters.

    The parameters are the encoding of the targets, the decay, the stored part of the scatter
    matrix, and which optional sums are stored. The value "auto" of the scatter fits every value.
    """
    for name in ("encoding", "decay", "scatter"):
        mine = getattr(first_state, name)
        theirs = getattr(second_state, name)
        if mine != theirs and not (name == "scatter" and "auto" in (mine, theirs)):
            raise CannotMerge(f"states of {name} {mine!r} and {theirs!r} do not fit: learn both with the same {name}.")
    if _optional_parts(first_state) != _optional_parts(second_state):
        raise CannotMerge("only one of the states keeps class scatter or label sets: learn both the same way.")


def align_states_together(*states: MomentState) -> tuple[MomentState, ...]:
    """Give states equal features and labels for adding their sums.

    The results have the labels of the first state, then the new labels of the second state, and so
    on. A state stores sums either about the mean of the rows (centred) or, for sparse rows, about
    fixed points. If the states differ in this, all results store sums about the mean.
    """
    # Give each distinct label of the states an index.
    labels = tuple(dict.fromkeys(label for state in states for label in state.labels))
    number = {label: j for j, label in enumerate(labels)}
    width = max(state.n_features for state in states)
    total = max(len(labels), *(state.n_target_columns for state in states))

    # Renumber the labels of each state, and add features.
    # If only some states then store sums about the mean, convert all sums to sums about the mean.
    aligned = []
    for state in states:
        columns = np.array([number[label] for label in state.labels], dtype=np.int64)
        columns = columns if state.labels else np.arange(state.n_target_columns)
        if width == state.n_features and np.array_equal(columns, np.arange(total)):
            aligned.append(state._replace(labels=labels))
            continue
        part = state.features
        classes = state.class_scatter
        sets = state.label_sets
        moved = state._replace(
            n_features=width,
            labels=labels,
            features=part if isinstance(part, Absent) else part.aligned(width, columns, total),
            targets=state.targets.aligned(columns, total, state.target_kind == "multilabel"),
            class_scatter=classes if isinstance(classes, Absent) else classes.aligned(width, columns, total),
            label_sets=sets if isinstance(sets, Absent) else sets.with_renumbered_labels(columns),
            largest=state.largest.aligned(columns, total),
        )
        aligned.append(moved)
    if len({isinstance(state.features, SparsePart) for state in aligned}) > 1:
        aligned = [state._replace(features=centred_features(state)) for state in aligned]
    return tuple(aligned)


def scale_state(state: MomentState, factor: float) -> MomentState:
    """Return the state with every stored sum multiplied by factor.

    The attribute `scale` (the factor from stored sums to true sums) is unchanged.
    """
    if factor == 1.0:
        return state
    names = ("features", "targets", "class_scatter", "label_sets", "largest")
    sums = {name: getattr(state, name) for name in names}
    sums = {name: part if isinstance(part, Absent) else part.scaled(factor) for name, part in sums.items()}
    return state._replace(weight=state.weight * factor, **sums)


class JoinedSums(NamedTuple):
    """Sums over the rows of two states together.

    The fields have the same meaning as in MomentState.
    """

    features: CentredPart | SparsePart
    targets: TargetPart
    class_scatter: ClassScatter | Absent
    label_sets: LabelSets | Absent


def combine_aligned_sums(first_state: MomentState, second_state: MomentState, sign: float) -> JoinedSums:
    """Add the sums of two states, or subtract them.

    first_state, second_state: states with the same features and labels. Both store sums about the
        mean, or both about fixed points (align_states_together).
    sign: 1 to add the rows of `second_state`, −1 to remove them from the rows of `first_state`.
    """
    # Join the sums of the targets and of the features, over all rows.
    targets = add_or_subtract_targets(first_state.targets, second_state.targets, sign)
    if isinstance(first_state.features, SparsePart) and isinstance(second_state.features, SparsePart):
        features: CentredPart | SparsePart = first_state.features.join(second_state.features, sign)
    else:
        first = first_state.targets
        second = second_state.targets
        # The mean target of the second state minus that of the first state.
        step = target_mean(second, second_state.weight) - target_mean(first, first_state.weight)
        if not second.labelled:
            step = step + (second.values.low - first.values.low)
        features = centred_features(first_state).join(centred_features(second_state), step, sign)

    # Join the scatter matrices of each class, and the sums for each distinct set of labels.
    classes = first_state.class_scatter
    sets = first_state.label_sets
    if isinstance(classes, ClassScatter) and isinstance(second_state.class_scatter, ClassScatter):
        classes = classes.join(second_state.class_scatter, sign, targets.label_weights > 0.0)
    if isinstance(sets, LabelSets) and isinstance(second_state.label_sets, LabelSets):
        sets = sets.join(second_state.label_sets, first_state.n_features, sign)
    return JoinedSums(features, targets, classes, sets)


def _check_mergeable(first_state: MomentState, second_state: MomentState) -> None:
    """Raise CannotMerge unless two states' rows and targets fit together.

    Checks the number of features, the kind of targets, the number of target columns and the type
    of the labels.
    """
    fixed = {s.n_features for s in (first_state, second_state) if s.dense}
    if len(fixed) > 1 or (fixed and max(first_state.n_features, second_state.n_features) not in fixed):
        raise CannotMerge(
            f"states of {first_state.n_features} and {second_state.n_features} features cannot be merged: "
            "dense rows fix the width."
        )
    if first_state.target_kind != second_state.target_kind:
        raise CannotMerge(
            f"states of {first_state.target_kind} and {second_state.target_kind} targets cannot be merged."
        )
    if first_state.target_width != second_state.target_width:
        raise CannotMerge(
            f"states of {first_state.target_width} and {second_state.target_width} target columns cannot be merged."
        )
    try:
        check_label_type(first_state.labels, second_state.labels)
    except InvalidTargets as e:
        raise CannotMerge(f"states cannot be merged: {e}") from e
