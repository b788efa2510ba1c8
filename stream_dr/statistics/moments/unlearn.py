"""unlearn: a MomentState without rows it has learned [mathematics §1].

C_A = C − C_B − (N n_B / N_A) δ δᵀ is exact to eps · C before / C after, column by column: 2e-15
when a tenth is removed, 2e-12 at 99.8 %. The largest sums ever seen are stored (`Largest`), so the
state knows what removals have cost (`unlearn_cost`). From 1e-6 on they are refused. A class, a
feature or a state without a remaining row is set to exact zeros. A column that is equal in all
remaining rows, but not 0, cannot be told from one whose digits are lost.

Under decay the clock goes back with the newest rows, and forgets the oldest, so the result is as
if either had never come. Rows removed from between others leave their time behind: the rows before
them stay as old as they were.

Costs O(d k), with exact scatter O(d²) more.
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
"""Relative excess of what is removed that counts as rounding."""

ROUNDING = 1e-12
"""Share of the largest weight ever seen by which sums of weights may be off."""


def subtract_state(whole: MomentState, part: MomentState) -> MomentState:
    """Return `whole` without `part`, rows learned before at the weight they have now.

    part has no decay of its own. Raises CannotUnlearn if part holds more rows, weight, scatter,
    labels, label sets or features than whole, and PrecisionLost.
    """
    skipped = _remaining_rows(whole.rows_skipped, part.rows_skipped, "rows without target")
    if part.rows == 0:
        return whole._replace(rows_skipped=skipped)
    rows = _remaining_rows(whole.rows, part.rows, "rows")

    _check_contained(whole, part)
    a, b = brought_together(whole, scale_state(part, 1.0 / whole.scale))

    largest = a.largest.join(_varying_sizes(a))
    noise = ROUNDING * largest.weight
    _check_weight(a.weight, b.weight, noise, "weight")
    _check_removable(a, b, noise)

    if rows == 0:
        return empty_state(whole.encoding, whole.scatter, whole.decay, *stored_parts(whole))._replace(
            rows_skipped=skipped
        )

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


def set_clock_back(state: MomentState, removed: int, age: int) -> MomentState:
    """Return a decayed `state` with its clock set back after rows were removed.

    removed: number of consecutive rows removed. age: number of rows that had come after them.
    """
    if state.decay == 1.0 or not 0 < age < state.rows:
        state = state._replace(clock=max(state.clock - removed, 0))
    if state.decay == 1.0 or age or not state.rows:
        return state
    younger = state.decay**-removed
    return state._replace(scale=state.scale * younger)


def _varying_sizes(state: MomentState) -> Largest:
    """Return the sizes of its sums, 0 where a column's is only rounding."""
    now = sum_sizes(state)
    return now._replace(features=np.where(now.features > _constant_scatter(state), now.features, 0.0))


def _constant_scatter(state: MomentState) -> np.ndarray:
    """Return the scatter (d,) that a constant column may show."""
    part = state.features
    if isinstance(part, SparsePart):
        return (8 * EPS) ** 2 * part.features[:, WEIGHT] * part.features[:, POINT] ** 2
    return np.asarray((8 * EPS) ** 2 * state.weight * centred_features(state).mean ** 2)


def _largest_still_there(largest: Largest, state: MomentState) -> Largest:
    """Return the largest sums, 0 for those known to be exact zeros now."""
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
    """Return sums with no negative variance, and exact zeros for labels without rows."""
    features, targets = sums.features, sums.targets
    if isinstance(features, CentredPart):
        features = features.clamped()
    if targets.labelled:
        features.cross[:, targets.label_weights <= 0.0] = 0.0
    targets = targets._replace(values=targets.values.clamped())
    return sums._replace(features=features, targets=targets)


def _check_scatter(sums: JoinedSums, largest: Largest, rounding: np.ndarray) -> None:
    """Raise CannotUnlearn if scatter would become negative, as for rows never learned."""
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
    """Check features of sparse rows, labels and label sets of states brought together."""
    f, g = a.features, b.features
    if isinstance(f, SparsePart) and isinstance(g, SparsePart):
        had, removed = f.features[:, WEIGHT], g.features[:, WEIGHT]
        for j in np.flatnonzero(removed > had * (1.0 + TOLERANCE) + noise)[:1]:
            _check_weight(had[j], removed[j], noise, f"weight of rows with feature {j}")
    old, gone = a.targets, b.targets
    for j in np.flatnonzero(gone.label_rows > 0) if old.labelled else ():
        _remaining_rows(int(old.label_rows[j]), int(gone.label_rows[j]), f"rows with label {a.labels[j]!r}")
        _check_weight(old.label_weights[j], gone.label_weights[j], noise, f"weight of label {a.labels[j]!r}")
    if isinstance(a.label_sets, LabelSets) and isinstance(b.label_sets, LabelSets):
        rows = dict(zip(a.label_sets.sets, a.label_sets.rows.tolist(), strict=True))
        for s, n in zip(b.label_sets.sets, b.label_sets.rows.tolist(), strict=True):
            _remaining_rows(rows.get(s, 0), n, f"rows with the labels {[a.labels[c] for c in s]!r}")


def _remaining_rows(had: int, removed: int, what: str) -> int:
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
