"""Removal of rows from a MomentState [mathematics §1].

The rows B are removed from the state of all rows, and the rows A remain. Let C, C_A and C_B
(features, features) be the centred scatter matrices of all rows, of A and of B, and N, N_A and n_B
the weights of all rows, of A and of B. δ is the mean of B minus the mean of all rows. Then

    C_A = C − C_B − (N n_B / N_A) δ δᵀ

The relative error of a feature is eps · scatter before / scatter after. For example, it is 2e-15
if a tenth of the rows is removed, and 2e-12 if 99.8 % are removed.

The state stores the largest value of each sum (`Largest`). From these values follows the error
that removals have caused (`unlearn_relative_error`). A removal that would raise the error above
1e-6 raises PrecisionLost.

The sums of a class, a feature or a state without remaining rows are set to exact zeros. A feature
that has the same nonzero value in all remaining rows also has a small scatter. Such a feature
cannot be distinguished from a feature whose digits are lost.

Under decay, no rows are removed (clock.py), because their present weights are not known.

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
    align_states_together,
    centred_features,
    combine_aligned_sums,
    current_sums,
    empty_like,
)

TOLERANCE = 1e-9
"""Relative amount by which a removed sum may exceed the learned sum.

An excess of up to this amount counts as rounding error.
"""

ROUNDING = 1e-12
"""Possible rounding error of a sum of weights.

It is a share of the largest total weight that the state has had.
"""


def subtract_state(state_of_all: MomentState, state_to_remove: MomentState) -> MomentState:
    """Return the state `state_of_all` without the rows of `state_to_remove`.

    Raises CannotUnlearn if `state_to_remove` has more rows, weight, scatter, labels, label sets or
    features than `state_of_all`. Raises PrecisionLost if too few digits of the remaining sums
    would be right.

    state_of_all: state of decay 1.
    state_to_remove: state of rows that `state_of_all` has learned, with their weights.
    """
    # Check the numbers of rows.
    skipped = subtract_row_count(state_of_all.rows_skipped, state_to_remove.rows_skipped, "rows without target")
    if state_to_remove.rows == 0:
        return state_of_all._replace(rows_skipped=skipped)
    rows = subtract_row_count(state_of_all.rows, state_to_remove.rows, "rows")

    # Give the two states the same labels and features.
    kind = state_of_all.target_kind
    kind_to_remove = state_to_remove.target_kind
    if kind_to_remove != kind:
        raise CannotUnlearn(f"{kind_to_remove} targets cannot be unlearned; {kind} ones were learned.")
    a, b = align_states_together(state_of_all, state_to_remove)

    # Check that no more weight is removed than was learned.
    # `largest` holds the largest value of each sum so far, which bounds the rounding errors.
    # If a feature is constant up to rounding errors, its scatter counts as 0.
    now = current_sums(a)
    bound = _constant_scatter_bound(a)
    largest = a.largest.join(now._replace(features=np.where(now.features > bound, now.features, 0.0)))
    noise = ROUNDING * largest.weight
    _check_removable_weight(a.weight, b.weight, noise, "weight")
    _check_rows_are_contained(a, b, noise)

    if rows == 0:
        return empty_like(state_of_all)._replace(rows_skipped=skipped)

    # Subtract the sums, and check that enough of their digits are right.
    sums = combine_aligned_sums(a, b, -1.0)
    _check_scatter_not_negative(sums, largest, bound)
    parts = _clear_rounding_errors(sums)._asdict()
    out = a._replace(rows=rows, rows_skipped=skipped, weight=a.weight - b.weight, **parts)
    out = out._replace(largest=_zero_empty_sums(largest, out))
    if not out.unlearn_relative_error <= MOST_LOST:
        raise PrecisionLost(
            f"the {rows} rows that would remain are too small beside those taken out, or too alike, in weight, a column or "
            f"a target: they would be known to {out.unlearn_relative_error:.0e} relative only. Nothing was changed. Learn "
            "them anew, from the start, without the rows that are to go."
        )
    return out


def _constant_scatter_bound(state: MomentState) -> np.ndarray:
    """Return the largest scatter (features,) of a constant feature.

    A feature with the same value in all rows should have the scatter 0. Because of rounding errors
    its scatter may be larger, up to the bound that is returned for each feature.
    """
    part = state.features
    if isinstance(part, SparsePart):
        return np.asarray((8 * EPS) ** 2 * part.features[:, WEIGHT] * part.features[:, POINT] ** 2)
    return np.asarray((8 * EPS) ** 2 * state.weight * centred_features(state).mean ** 2)


def _zero_empty_sums(largest: Largest, state: MomentState) -> Largest:
    """Set the largest value of empty sums to 0.

    `largest` holds the largest value that each sum has had. A sum of a feature or target is empty
    if no remaining row contributes to it.

    largest: largest value of each sum before the removal.
    state: the state after the removal.
    """
    features = largest.features.copy()
    targets = largest.targets.copy()
    part = state.features
    weights = part.features[:, WEIGHT] if isinstance(part, SparsePart) else centred_features(state).nonzero
    gone = weights == 0.0
    features[gone[: len(features)]] = 0.0
    own = state.targets
    none = own.label_rows == 0 if own.labelled else own.values.nonzero == 0.0
    targets[none[: len(targets)]] = 0.0
    return largest._replace(features=features, targets=targets)


def _clear_rounding_errors(remaining_sums: JoinedSums) -> JoinedSums:
    """Remove rounding errors from sums after rows were removed.

    Negative scatter becomes 0. The sums of labels without remaining rows become exactly 0, and so
    do the sums of features that are 0 in all remaining rows.
    """
    features = remaining_sums.features
    targets = remaining_sums.targets
    if isinstance(features, CentredPart):
        features = features.without_negative_scatter()
    if targets.labelled:
        features.cross[:, targets.label_weights <= 0.0] = 0.0
    targets = targets._replace(values=targets.values.without_negative_scatter())
    return remaining_sums._replace(features=features, targets=targets)


def _check_scatter_not_negative(remaining_sums: JoinedSums, largest: Largest, rounding_bound: np.ndarray) -> None:
    """Raise CannotUnlearn if a feature's scatter is negative.

    A scatter that is negative only by rounding errors causes no error. A more negative scatter
    shows that some of the removed rows had never been learned.

    remaining_sums: the sums after the removal.
    largest: largest value of each sum so far.
    rounding_bound: (features,) largest scatter that rounding errors can cause for a constant
        feature.
    """
    features = remaining_sums.features
    values = remaining_sums.targets.values
    scatter = features.features[:, SQUARES] if isinstance(features, SparsePart) else features.sums_of_squares
    least = -TOLERANCE * largest.features - rounding_bound
    target_bound = (8 * EPS) ** 2 * values.weight * values.mean**2
    target_least = -TOLERANCE * largest.targets[: len(values.mean)] - target_bound
    for remaining, bound, what in (
        (scatter, least, "column"),
        (values.sums_of_squares, target_least, "target"),
    ):
        for j in np.flatnonzero(remaining < bound)[:1]:
            raise CannotUnlearn(
                f"{what} {j} would be left with a negative scatter; unlearn only rows that were learned."
            )


def _check_rows_are_contained(state_of_all: MomentState, state_to_remove: MomentState, rounding_error: float) -> None:
    """Raise CannotUnlearn if too many rows would be removed.

    The rows to remove must not have more weight, or be more rows, than the learned rows. This is
    checked for each feature of sparse rows, each label and each label set.

    state_of_all: state from which rows are to be removed.
    state_to_remove: state of the rows to remove, with the same features and labels.
    rounding_error: rounding error that weights may have.
    """
    # For each feature of sparse rows, check the weight of the rows in which it is not 0.
    f = state_of_all.features
    g = state_to_remove.features
    if isinstance(f, SparsePart) and isinstance(g, SparsePart):
        had = f.features[:, WEIGHT]
        removed = g.features[:, WEIGHT]
        for j in np.flatnonzero(removed > had * (1.0 + TOLERANCE) + rounding_error)[:1]:
            _check_removable_weight(had[j], removed[j], rounding_error, f"weight of rows with feature {j}")

    # For each label, check that it does not lose more rows or weight than it has.
    old = state_of_all.targets
    gone = state_to_remove.targets
    for j in np.flatnonzero(gone.label_rows > 0) if old.labelled else ():
        label = f"label {state_of_all.labels[j]!r}"
        subtract_row_count(int(old.label_rows[j]), int(gone.label_rows[j]), f"rows with {label}")
        _check_removable_weight(old.label_weights[j], gone.label_weights[j], rounding_error, f"weight of {label}")

    # Check the number of rows without a label, and of rows with each combination of labels.
    if state_of_all.encoding == "partial":
        states = (state_of_all, state_to_remove)
        unlabelled, to_remove = (int(state.rows - state.targets.label_rows.sum()) for state in states)
        subtract_row_count(unlabelled, to_remove, "rows without a label")
    if isinstance(state_of_all.label_sets, LabelSets) and isinstance(state_to_remove.label_sets, LabelSets):
        rows = dict(zip(state_of_all.label_sets.sets, state_of_all.label_sets.rows.tolist(), strict=True))
        for s, n in zip(state_to_remove.label_sets.sets, state_to_remove.label_sets.rows.tolist(), strict=True):
            subtract_row_count(rows.get(s, 0), n, f"rows with the labels {[state_of_all.labels[c] for c in s]!r}")


def subtract_row_count(n_learned: int, n_removed: int, row_description: str) -> int:
    """Return the number of remaining rows.

    Raises CannotUnlearn if more rows would be removed than were learned.

    n_learned: number of rows learned.
    n_removed: number of rows to remove.
    row_description: description of the rows, for the error message.
    """
    if n_removed > n_learned:
        raise CannotUnlearn(
            f"{n_removed} {row_description} would be removed but {n_learned} were learned; unlearn only "
            "rows that were learned."
        )
    return n_learned - n_removed


def _check_removable_weight(
    learned_weight: float, removed_weight: float, rounding_error: float, weight_description: str
) -> None:
    if learned_weight - removed_weight < -TOLERANCE * learned_weight - rounding_error:
        raise CannotUnlearn(
            f"{weight_description} {removed_weight:g} would be removed but {learned_weight:g} is there; "
            "give the weights the rows were learned with."
        )
