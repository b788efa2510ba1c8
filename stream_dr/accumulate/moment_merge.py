"""moment_merge: two MomentStates as one, and one taken out of another [MATH §1].

Both are first brought to one width, one vocabulary (labels are matched by name), one form and one clock; then each kind
of sum is joined by its own formula.

Cost: O(d k), with exact scatter O(d² + d k).
"""

import warnings
from typing import Any

import numpy as np

from stream_dr.accumulate.centred_sums import CentredPart, joined, padded
from stream_dr.accumulate.class_scatter import ClassScatter
from stream_dr.accumulate.label_sets import LabelSets
from stream_dr.accumulate.moment_state import EPS, MomentState, centred_features, empty_state
from stream_dr.accumulate.protocol import Absent
from stream_dr.accumulate.sparse_sums import COUNT, SparsePart, joined_sparse
from stream_dr.accumulate.target_sums import TargetPart, joined_targets
from stream_dr.errors import CannotMerge, CannotUnlearn, InvalidTargets
from stream_dr.targets import check_label_type

PRECISION_WARNING = 1e-6
"""Relative error left by unlearning from which a warning is given."""

NOTHING = 1e-12
"""A remaining share of weight below this is none."""


class PrecisionWarning(UserWarning):
    """Given when unlearning has removed so much that what is left is known to fewer than six digits."""


def merged(older: MomentState, newer: MomentState) -> MomentState:
    """The state of both parts; under decay `newer` came after `older`. Raises CannotMerge."""
    check_mergeable(older, newer)
    skipped = older.rows_skipped + newer.rows_skipped
    if newer.rows == 0:
        return older._replace(rows_skipped=skipped)
    if older.rows == 0:
        return newer._replace(rows_skipped=skipped)
    factor = older.scale * older.decay**newer.clock / newer.scale
    a, b = together(scaled(older, factor), newer)
    return a._replace(
        rows=a.rows + b.rows,
        rows_skipped=skipped,
        clock=a.clock + b.clock,
        dense=a.dense or b.dense,
        scale=newer.scale,
        weight=a.weight + b.weight,
        largest_trace=max(a.largest_trace, b.largest_trace),
        **_sums(a, b, 1.0),
    )


def check_mergeable(a: MomentState, b: MomentState) -> None:
    """Raise CannotMerge when specs, widths, kinds or label types differ."""
    for name in ("encoding", "decay"):
        if getattr(a, name) != getattr(b, name):
            raise CannotMerge(f"states of {name} {getattr(a, name)!r} and {getattr(b, name)!r} cannot be merged.")
    if "auto" not in (a.scatter, b.scatter) and a.scatter != b.scatter:
        raise CannotMerge(
            f"states with scatter {a.scatter!r} and {b.scatter!r} cannot be merged: learn both with the same scatter=."
        )
    if isinstance(a.class_scatter, Absent) != isinstance(b.class_scatter, Absent) or isinstance(
        a.label_sets, Absent
    ) != isinstance(b.label_sets, Absent):
        raise CannotMerge(
            "one state keeps class scatter or label sets and the other does not: learn both the same way."
        )
    if a.rows == 0 or b.rows == 0:
        return
    if (
        (a.dense and b.n_features > a.n_features)
        or (b.dense and a.n_features > b.n_features)
        or (a.dense and b.dense and a.n_features != b.n_features)
    ):
        raise CannotMerge(f"states of {a.n_features} and {b.n_features} features cannot be merged.")
    if a.target_kind != b.target_kind:
        raise CannotMerge(f"states of {a.target_kind} and {b.target_kind} targets cannot be merged.")
    if a.target_kind == "continuous" and a.columns != b.columns:
        raise CannotMerge(f"states of {a.columns} and {b.columns} target columns cannot be merged.")
    try:
        check_label_type(a.labels, b.labels)
    except InvalidTargets as e:
        raise CannotMerge(f"states cannot be merged: {e}") from e


def without(whole: MomentState, part: MomentState) -> MomentState:
    """`whole` without `part`, whose rows it has learned, at the weight they have now.

    part: without decay (scale 1). Raises CannotUnlearn when it holds more than whole does. Warns PrecisionWarning.
    """
    if part.rows == 0:
        return whole._replace(rows_skipped=_left(whole.rows_skipped, part.rows_skipped, "rows without target"))
    _check_contained(whole, part)
    a, b = together(whole, scaled(part, 1.0 / whole.scale))
    rows, skipped = a.rows - b.rows, _left(a.rows_skipped, part.rows_skipped, "rows without target")
    weight = _left_weight(a.weight, b.weight)
    if rows == 0:
        return emptied(whole)._replace(rows_skipped=skipped)
    traced = max(whole.largest_trace, whole.scale * float(centred_features(whole).variances.sum()))
    if weight == 0.0:
        b = a
    sums = _sums(a, b, -1.0)
    out = a._replace(rows=rows, rows_skipped=skipped, weight=weight, largest_trace=traced, **sums)
    _warn_if_costly(out)
    return out


def emptied(state: MomentState) -> MomentState:
    """The empty state of the same spec."""
    requested = empty_state(
        state.encoding,
        state.scatter,
        state.decay,
        not isinstance(state.label_sets, Absent),
        not isinstance(state.class_scatter, Absent),
    )
    return requested


def together(a: MomentState, b: MomentState) -> tuple[MomentState, MomentState]:
    """Both states at one width, one vocabulary (a's, then b's new labels) and one form of the features' sums."""
    width = max(a.n_features, b.n_features)
    known = {label: j for j, label in enumerate(a.labels)}
    for label in b.labels:
        known.setdefault(label, len(known))
    labels = tuple(known)
    mine = np.arange(a.columns)
    theirs = np.array([known[label] for label in b.labels], dtype=np.int64) if b.labels else np.arange(b.columns)
    total = max(len(labels), a.columns, b.columns)
    a, b = aligned(a, width, labels, mine, total), aligned(b, width, labels, theirs, total)
    if isinstance(a.features, SparsePart) != isinstance(b.features, SparsePart):
        a, b = a._replace(features=centred_features(a)), b._replace(features=centred_features(b))
    return a, b


def aligned(state: MomentState, width: int, labels: tuple[Any, ...], columns: np.ndarray, total: int) -> MomentState:
    """The state with `width` features and `total` target columns, its column j being columns[j]."""
    if width == state.n_features and total == state.columns and np.array_equal(columns, np.arange(total)):
        return state._replace(labels=labels)
    classes = state.class_scatter
    return state._replace(
        n_features=width,
        labels=labels,
        features=_aligned_features(state.features, width, columns, total),
        targets=_aligned_targets(state.targets, columns, total),
        class_scatter=classes.aligned(width, columns, total) if isinstance(classes, ClassScatter) else classes,
    )


def scaled(state: MomentState, factor: float) -> MomentState:
    """The state with every stored sum multiplied by factor, its scale left as it is."""
    if factor == 1.0:
        return state
    f, t, classes = state.features, state.targets, state.class_scatter
    if isinstance(f, SparsePart):
        f = f._replace(features=f.features * np.array([factor, 1.0, factor, 1.0]), cross=f.cross * factor)
    elif isinstance(f, CentredPart):
        f = _scaled_part(f, factor)
    t = t._replace(
        label_weights=t.label_weights * factor,
        total=t.total * factor,
        gram=t.gram * factor,
        values=_scaled_part(t.values, factor),
    )
    classes = classes.scaled(factor) if isinstance(classes, ClassScatter) else classes
    return state._replace(features=f, targets=t, class_scatter=classes, weight=state.weight * factor)


def _scaled_part(part: CentredPart, factor: float) -> CentredPart:
    return part._replace(
        weight=part.weight * factor,
        diagonal=part.diagonal * factor,
        scatter=part.scatter * factor,
        cross=part.cross * factor,
    )


def _aligned_features(part: Any, width: int, columns: np.ndarray, total: int) -> Any:
    cross = np.zeros((width, total))
    cross[: len(part.cross), columns] = part.cross
    if isinstance(part, SparsePart):
        reference = np.zeros(total)
        reference[columns] = part.reference
        return SparsePart(padded(part.features, (width, 4)), cross, reference)
    shape = (width, width) if part.exact else (0, 0)
    return CentredPart(
        part.weight,
        padded(part.mean, (width,)),
        padded(part.low, (width,)),
        padded(part.diagonal, (0 if part.exact else width,)),
        padded(part.scatter, shape),
        cross,
    )


def _aligned_targets(part: TargetPart, columns: np.ndarray, total: int) -> TargetPart:
    if not part.labelled:
        return part
    weights, rows, sums = np.zeros(total), np.zeros(total, dtype=np.int64), np.zeros(total)
    weights[columns], rows[columns], sums[columns] = part.label_weights, part.label_rows, part.total
    gram = np.zeros((total, total) if len(part.gram) else (0, 0))
    if len(part.gram):
        gram[np.ix_(columns, columns)] = part.gram
    return TargetPart(weights, rows, sums, gram, part.values)


def _sums(a: MomentState, b: MomentState, sign: float) -> dict[str, Any]:
    """Features, targets, class scatter and label sets of aligned states a and b joined."""
    targets = joined_targets(a.targets, b.targets, sign)
    if isinstance(a.features, SparsePart):
        features: Any = joined_sparse(a.features, b.features, sign)
    else:
        step = b.targets.step_from(a.targets, b.weight, a.weight)
        features = joined(a.features, b.features, step, sign)
    if sign < 0:
        features = _clamped(features, targets)
    classes, sets = a.class_scatter, a.label_sets
    if isinstance(classes, ClassScatter):
        classes = classes.join(b.class_scatter, sign, targets.label_rows > 0)
    if isinstance(sets, LabelSets):
        sets = sets.join(b.label_sets, sign)
    return {"features": features, "targets": targets, "class_scatter": classes, "label_sets": sets}


def _clamped(part: Any, targets: TargetPart) -> Any:
    """No negative variance, and exact zeros where a label has no row left."""
    gone = targets.label_rows <= 0
    cross = part.cross
    if targets.labelled and gone.any():
        cross = cross.copy()
        cross[:, gone] = 0.0
    if isinstance(part, SparsePart):
        return part._replace(cross=cross)
    scatter = part.scatter
    if part.exact:
        np.fill_diagonal(scatter, np.maximum(np.diagonal(scatter), 0.0))
    return part._replace(cross=cross, diagonal=np.maximum(part.diagonal, 0.0), scatter=scatter)


def _check_contained(whole: MomentState, part: MomentState) -> None:
    """Raise CannotUnlearn where part has rows, labels, weight or features that whole has not."""
    _left(whole.rows, part.rows, "rows")
    if part.target_kind != whole.target_kind:
        raise CannotUnlearn(f"{part.target_kind} targets cannot be unlearned; {whole.target_kind} ones were learned.")
    unknown = [label for label in part.labels if label not in whole.labels]
    if unknown:
        raise CannotUnlearn(f"label {unknown[0]!r} was never learned; unlearn only rows that were.")
    at = {label: j for j, label in enumerate(whole.labels)}
    for j, label in enumerate(part.labels):
        i = at[label]
        _left(int(whole.targets.label_rows[i]), int(part.targets.label_rows[j]), f"rows with label {label!r}")
        _left_weight(
            whole.targets.label_weights[i], part.targets.label_weights[j] / whole.scale, f"weight of label {label!r}"
        )
    f, g = whole.features, part.features
    if isinstance(f, SparsePart) and isinstance(g, SparsePart):
        had = padded(f.features[:, COUNT], (max(len(f.features), len(g.features)),))[: len(g.features)]
        more = np.flatnonzero(g.features[:, COUNT] > had)
        if len(more):
            raise CannotUnlearn(
                f"feature {more[0]} was nonzero in {int(had[more[0]])} rows learned, of which "
                f"{int(g.features[more[0], COUNT])} would be removed; unlearn only rows that were learned."
            )


def _left(had: int, removed: int, what: str) -> int:
    if removed > had:
        raise CannotUnlearn(f"{removed} {what} would be removed but {had} were learned; unlearn only rows that were.")
    return had - removed


def _left_weight(had: float, removed: float, what: str = "weight") -> float:
    """had − removed, exactly 0 where the rest is rounding."""
    left = had - removed
    if left < -1e-9 * had:
        raise CannotUnlearn(
            f"{what} {removed:g} would be removed but {had:g} is there; unlearn rows with the weights they were "
            "learned with."
        )
    return left if left > NOTHING * had else 0.0


def _warn_if_costly(state: MomentState) -> None:
    cost = state.unlearn_cost
    if cost > PRECISION_WARNING:
        warnings.warn(
            f"so much was unlearned that the scatter left is known to {cost:.0e} relative only; rebuild from the rows "
            "that remain for full precision.",
            PrecisionWarning,
            stacklevel=5,
        )


__all__ = ["EPS", "PrecisionWarning", "check_mergeable", "merged", "without"]
