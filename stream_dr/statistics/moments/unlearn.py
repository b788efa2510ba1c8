"""unlearn: a MomentState without rows it has learned [mathematics §1].

C_A = C − C_B − (N n_B / N_A) δ δᵀ is exact to eps · ‖C before‖ / ‖C after‖: 2e-15 when a tenth is removed, 2e-12 at 99.8 %.
The largest trace ever seen is kept, so the state can say what removals have cost (`unlearn_cost`), and a warning is given
from 1e-6 on. What has no row left (a class, a feature of sparse rows, the whole state) is set to exact zeros.

Under decay the clock goes back with the newest rows, and forgets the oldest, so that either leaves what would be there had
they never come. Rows taken out from amidst others leave their time behind: the rows before them stay as old as they were.

Cost: O(d k), with exact scatter O(d²) more.
"""

import warnings
from typing import Any

import numpy as np

from stream_dr.errors import CannotUnlearn
from stream_dr.statistics.moments.centred_part import CentredPart
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.sparse_sums import WEIGHT, SparsePart
from stream_dr.statistics.moments.state import MomentState, empty_state, joined_sums, keeps, scaled, together, trace

COSTLY = 1e-6
"""Relative error left by unlearning from which a warning is given."""

NOTHING = 1e-12
"""A share of the weight below this is none."""


TOLERANCE = 1e-9
"""Relative excess of the weight removed that is taken for rounding."""


ROUNDING = 1e-12
"""Share of the largest weight ever seen that sums of weights may be off by."""


class PrecisionWarning(UserWarning):
    """Given when so much was unlearned that what is left is known to fewer than six digits."""


def without(whole: MomentState, part: MomentState) -> MomentState:
    """`whole` without `part`, rows learned before at the weight they have now (part has no decay of its own).

    Raises CannotUnlearn when part holds more rows, weight, labels, label sets or features than whole.
    """
    skipped = _left(whole.rows_skipped, part.rows_skipped, "rows without target")
    if part.rows == 0:
        return whole._replace(rows_skipped=skipped)
    rows = _left(whole.rows, part.rows, "rows")
    _check_contained(whole, part)
    a, b = together(whole, scaled(part, 1.0 / whole.scale))
    largest = max(whole.largest_weight, whole.scale * whole.weight)
    noise = ROUNDING * largest / whole.scale
    weight = _left_weight(a.weight, b.weight, noise, "weight")
    _check_parts(a, b, noise)
    if rows == 0:
        return empty_state(whole.encoding, whole.scatter, whole.decay, *keeps(whole))._replace(rows_skipped=skipped)
    out = a._replace(
        rows=rows,
        rows_skipped=skipped,
        weight=weight,
        largest_trace=max(whole.largest_trace, trace(whole)),
        largest_weight=largest,
        **_exact_zeros(joined_sums(a, b, -1.0)),
    )
    if weight == 0.0 and whole.decay < 1.0:
        raise CannotUnlearn(
            f"the {rows} rows that would remain weigh less, after decay, than the rounding of those taken out. Learn them "
            "again from the start, without the rows that are to go."
        )
    if weight == 0.0:
        return scaled(out, 0.0)
    _warn_if_costly(out)
    return out


def elapsed(state: MomentState, removed: int, age: int) -> MomentState:
    """A decayed `state` after `removed` consecutive rows were taken out that `age` rows had come after: its clock."""
    if state.decay == 1.0 or not 0 < age < state.rows:
        state = state._replace(clock=max(state.clock - removed, 0))
    if state.decay == 1.0 or age or not state.rows:
        return state
    younger = state.decay**-removed
    return state._replace(
        scale=state.scale * younger,
        largest_trace=state.largest_trace * younger,
        largest_weight=state.largest_weight * younger,
    )


def _exact_zeros(sums: dict[str, Any]) -> dict[str, Any]:
    """Sums with no negative variance, and exact zeros for labels without rows."""
    features, targets = sums["features"], sums["targets"]
    if isinstance(features, CentredPart):
        features = features.clamped()
    if targets.labelled:
        features.cross[:, targets.label_weights <= 0.0] = 0.0
    return {**sums, "features": features, "targets": targets}


def _check_contained(whole: MomentState, part: MomentState) -> None:
    if part.target_kind != whole.target_kind:
        raise CannotUnlearn(f"{part.target_kind} targets cannot be unlearned; {whole.target_kind} ones were learned.")


def _check_parts(a: MomentState, b: MomentState, noise: float) -> None:
    """Features of sparse rows, labels and label sets of states brought together."""
    f, g = a.features, b.features
    if isinstance(f, SparsePart) and isinstance(g, SparsePart):
        had, removed = f.features[:, WEIGHT], g.features[:, WEIGHT]
        for j in np.flatnonzero(removed > had * (1.0 + TOLERANCE) + noise)[:1]:
            _left_weight(had[j], removed[j], noise, f"weight of rows with feature {j}")
    old, gone = a.targets, b.targets
    for j in np.flatnonzero(gone.label_rows > 0) if old.labelled else ():
        _left(int(old.label_rows[j]), int(gone.label_rows[j]), f"rows with label {a.labels[j]!r}")
        _left_weight(old.label_weights[j], gone.label_weights[j], noise, f"weight of label {a.labels[j]!r}")
    if isinstance(a.label_sets, LabelSets):
        rows = dict(zip(a.label_sets.sets, a.label_sets.rows.tolist(), strict=True))
        for s, n in zip(b.label_sets.sets, b.label_sets.rows.tolist(), strict=True):
            _left(rows.get(s, 0), n, f"rows with the labels {[a.labels[c] for c in s]!r}")


def _left(had: int, removed: int, what: str) -> int:
    if removed > had:
        raise CannotUnlearn(
            f"{removed} {what} would be removed but {had} were learned; unlearn only rows that were learned."
        )
    return had - removed


def _left_weight(had: float, removed: float, noise: float, what: str) -> float:
    """had − removed, exactly 0 where the rest is rounding."""
    left = had - removed
    if left < -TOLERANCE * had - noise:
        raise CannotUnlearn(
            f"{what} {removed:g} would be removed but {had:g} is there; give the weights the rows were learned with."
        )
    return left if left > NOTHING * had else 0.0


def _warn_if_costly(state: MomentState) -> None:
    cost = state.unlearn_cost
    if cost > COSTLY:
        warnings.warn(
            f"so much was unlearned that the scatter left is known to {cost:.0e} relative only; rebuild from the rows "
            "that remain for full precision.",
            PrecisionWarning,
            stacklevel=4,
        )
