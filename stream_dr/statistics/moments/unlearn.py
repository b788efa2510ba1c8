"""Removal of rows from a MomentState [mathematics §1].

The rows B are removed from the state of all rows, and the rows A remain. The scatter matrices
follow from

    C_A = C − C_B − (N n_B / N_A) δ δᵀ

C, C_A and C_B (features, features) are the centred scatter matrices of all rows, of A and of B. N,
N_A and n_B are the weights of all rows, of A and of B. δ is the mean of B minus the mean of all
rows. The relative error of a feature is eps · scatter before / scatter after. For example, it is
2e-15 if a tenth of the rows is removed, and 2e-12 if 99.8 % are removed.

The state stores the largest value of each sum (`Largest`). From these values follows the error
that removals have caused (`unlearn_cost`). A removal that would raise the error above 1e-6 raises
PrecisionLost.

The sums of a class, a feature or a state without remaining rows are set to exact zeros. A feature
that has the same nonzero value in all remaining rows also has a small scatter. Such a feature
cannot be distinguished from a feature whose digits are lost.

Under decay, removing the newest rows or the oldest rows gives the state that the other rows alone
would have given. If rows in between are removed, the weights of earlier rows do not change.

Costs O(d k) for d features and k target columns, and O(d²) more with a whole scatter matrix.
"""

import numpy as np

from stream_dr.errors import CannotUnlearn, PrecisionLost
from stream_dr.statistics.moments.centred_part import CentredPart
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.largest import EPS, MOST_LOST, Largest
from stream_dr.statistics.moments.sparse_sums import POINT, SQUARES, WEIGHT, SparsePart
from stream_dr.statistics.moments.state import (
    JoinedSums,
    MomentState,
    brought_together,
    centred_features,
    empty_state,
    joined_sums,
    scale_state,
    stored_parts,
    sum_sizes,
)

TOLERANCE = 1e-9
"""Relative amount by which removed sums may exceed learned sums.

A smaller excess counts as rounding error.
"""

ROUNDING = 1e-12
"""Possible rounding error of a weight, as a share of the largest weight."""


def subtract_state(whole: MomentState, part: MomentState) -> MomentState:
    """Return the state `whole` without the rows of `part`.

    Raises CannotUnlearn if `part` has more rows, weight, scatter, labels, label sets or features
    than `whole`. Raises PrecisionLost if too few digits of the remaining sums would be right.

    part: state of rows that `whole` has learned. The rows have the weights that they now have in
        `whole`. The decay of `part` is 1.
    """
    # Check the numbers of rows.
    skipped = remaining_rows(whole.rows_skipped, part.rows_skipped, "rows without target")
    if part.rows == 0:
        return whole._replace(rows_skipped=skipped)
    rows = remaining_rows(whole.rows, part.rows, "rows")

    # Give the two states the same labels, features and scale.
    _check_contained(whole, part)
    a, b = brought_together(whole, scale_state(part, 1.0 / whole.scale))

    # Check the weights. The largest values show how large rounding errors can be.
    largest = a.largest.join(_varying_sizes(a))
    noise = ROUNDING * largest.weight
    _check_weight(a.weight, b.weight, noise, "weight")
    _check_removable(a, b, noise)

    if rows == 0:
        return empty_state(whole.encoding, whole.scatter, whole.decay, *stored_parts(whole))._replace(
            rows_skipped=skipped
        )

    # Subtract the sums, and check that enough of their digits are right.
    sums = joined_sums(a, b, -1.0)
    _check_scatter(sums, largest, _constant_scatter(a))
    out = a._replace(rows=rows, rows_skipped=skipped, weight=a.weight - b.weight, **_exact_zeros(sums)._asdict())
    out = out._replace(largest=_largest_still_there(largest, out))
    if not out.unlearn_cost <= MOST_LOST:
        raise PrecisionLost(
            f"the {rows} rows that would remain are too small beside those taken out, or too alike, in weight, a column or "
            f"a target: they would be known to {out.unlearn_cost:.0e} relative only. Nothing was changed. Learn them anew, "
            "from the start, without the rows that are to go."
        )
    return out


def _varying_sizes(state: MomentState) -> Largest:
    """Return the present value of each sum of the state.

    If a feature is constant up to rounding errors, its scatter counts as 0.
    """
    now = sum_sizes(state)
    return now._replace(features=np.where(now.features > _constant_scatter(state), now.features, 0.0))


def _constant_scatter(state: MomentState) -> np.ndarray:
    """Return the largest scatter that a constant feature can have.

    The result is (features,), a bound for each feature. A feature with the same value in all rows
    should have the scatter 0. Because of rounding errors its scatter may be larger, but at most
    this bound.
    """
    part = state.features
    if isinstance(part, SparsePart):
        return (8 * EPS) ** 2 * part.features[:, WEIGHT] * part.features[:, POINT] ** 2
    return np.asarray((8 * EPS) ** 2 * state.weight * centred_features(state).mean ** 2)


def _largest_still_there(largest: Largest, state: MomentState) -> Largest:
    """Return the largest values, with 0 for sums that are now empty.

    A sum of a feature or target is empty if no remaining row contributes to the sum.

    largest: largest value of each sum before the removal.
    state: the state after the removal.
    """
    features = largest.features.copy()
    targets = largest.targets.copy()
    part = state.features
    weights = part.features[:, WEIGHT] if isinstance(part, SparsePart) else centred_features(state).counts
    gone = weights == 0.0
    features[gone[: len(features)]] = 0.0
    own = state.targets
    none = own.label_rows == 0 if own.labelled else own.values.counts == 0.0
    targets[none[: len(targets)]] = 0.0
    return largest._replace(features=features, targets=targets)


def _exact_zeros(sums: JoinedSums) -> JoinedSums:
    """Return the sums without negative variances, and with exact zeros.

    The sums of two things become exactly 0: of labels without remaining rows, and of features that
    are 0 in all remaining rows.
    """
    features, targets = sums.features, sums.targets
    if isinstance(features, CentredPart):
        features = features.clamped()
    if targets.labelled:
        features.cross[:, targets.label_weights <= 0.0] = 0.0
    targets = targets._replace(values=targets.values.clamped())
    return sums._replace(features=features, targets=targets)


def _check_scatter(sums: JoinedSums, largest: Largest, rounding: np.ndarray) -> None:
    """Raise CannotUnlearn if a feature's scatter is negative.

    A scatter that is negative only by rounding errors causes no error. A more negative scatter
    shows that some of the removed rows had never been learned.

    sums: the remaining sums.
    largest: largest value of each sum so far.
    rounding: (features,) largest scatter that rounding errors can cause for a constant feature.
    """
    features, values = sums.features, sums.targets.values
    scatter = features.features[:, SQUARES] if isinstance(features, SparsePart) else features.variances
    least = -TOLERANCE * largest.features - rounding
    target_least = (
        -TOLERANCE * largest.targets[: len(values.variances)] - (8 * EPS) ** 2 * values.weight * values.mean**2
    )
    for remaining, bound, what in ((scatter, least, "column"), (values.variances, target_least, "target")):
        for j in np.flatnonzero(remaining < bound)[:1]:
            raise CannotUnlearn(
                f"{what} {j} would be left with a negative scatter; unlearn only rows that were learned."
            )


def _check_contained(whole: MomentState, part: MomentState) -> None:
    if part.target_kind != whole.target_kind:
        raise CannotUnlearn(f"{part.target_kind} targets cannot be unlearned; {whole.target_kind} ones were learned.")


def _check_removable(a: MomentState, b: MomentState, noise: float) -> None:
    """Raise CannotUnlearn if b has more rows or weight than a.

    The rows or weights are compared for each feature of sparse rows, each label and each label
    set.

    a: state from which the rows of b are to be removed.
    b: state with the same features and labels as a.
    noise: rounding error that weights may have.
    """
    # Compare the weight of each feature of sparse rows.
    f, g = a.features, b.features
    if isinstance(f, SparsePart) and isinstance(g, SparsePart):
        had, removed = f.features[:, WEIGHT], g.features[:, WEIGHT]
        for j in np.flatnonzero(removed > had * (1.0 + TOLERANCE) + noise)[:1]:
            _check_weight(had[j], removed[j], noise, f"weight of rows with feature {j}")

    # Compare the rows and the weight of each label.
    old, gone = a.targets, b.targets
    for j in np.flatnonzero(gone.label_rows > 0) if old.labelled else ():
        remaining_rows(int(old.label_rows[j]), int(gone.label_rows[j]), f"rows with label {a.labels[j]!r}")
        _check_weight(old.label_weights[j], gone.label_weights[j], noise, f"weight of label {a.labels[j]!r}")

    # Compare the rows without a label, and the rows of each label set.
    if a.encoding == "partial":
        unlabelled, to_remove = (int(state.rows - state.targets.label_rows.sum()) for state in (a, b))
        remaining_rows(unlabelled, to_remove, "rows without a label")
    if isinstance(a.label_sets, LabelSets) and isinstance(b.label_sets, LabelSets):
        rows = dict(zip(a.label_sets.sets, a.label_sets.rows.tolist(), strict=True))
        for s, n in zip(b.label_sets.sets, b.label_sets.rows.tolist(), strict=True):
            remaining_rows(rows.get(s, 0), n, f"rows with the labels {[a.labels[c] for c in s]!r}")


def remaining_rows(had: int, removed: int, what: str) -> int:
    """Return the number of remaining rows.

    Raises CannotUnlearn if more rows would be removed than were learned.

    had: number of rows learned.
    removed: number of rows to remove.
    what: description of the rows, for the error message.
    """
    if removed > had:
        raise CannotUnlearn(
            f"{removed} {what} would be removed but {had} were learned; unlearn only rows that were learned."
        )
    return had - removed


def _check_weight(had: float, removed: float, noise: float, what: str) -> None:
    if had - removed < -TOLERANCE * had - noise:
        raise CannotUnlearn(
            f"{what} {removed:g} would be removed but {had:g} is there; give the weights the rows were learned with."
        )
