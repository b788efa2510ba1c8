"""moment_merge: two MomentStates as one [MATH §1].

Both are first brought to one width, one vocabulary (labels are matched by name), one form of the features' sums and one
clock; then each kind of sum is joined by its own formula.

Cost: O(d k), with exact scatter O(d²) more.
"""

from typing import Any

import numpy as np

from stream_dr.errors import CannotMerge, InvalidTargets
from stream_dr.statistics.moments.class_scatter import ClassScatter
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.sparse_sums import SparsePart
from stream_dr.statistics.moments.state import MomentState, centred_features, check_spec
from stream_dr.statistics.moments.target_sums import joined_targets
from stream_dr.targets import check_label_type


def merged(older: MomentState, newer: MomentState) -> MomentState:
    """The state of both parts; under decay `newer` came after `older`. Raises CannotMerge."""
    check_spec(older, newer)
    skipped = older.rows_skipped + newer.rows_skipped
    if newer.rows == 0 or older.rows == 0:
        one, other = (older, newer) if newer.rows == 0 else (newer, older)
        scatter = other.scatter if one.scatter == "auto" else one.scatter
        return one._replace(rows_skipped=skipped, scatter=scatter)
    _check_shapes(older, newer)
    a, b = together(scaled(older, older.scale * older.decay**newer.clock / newer.scale), newer)
    return a._replace(
        rows=a.rows + b.rows,
        rows_skipped=skipped,
        clock=a.clock + b.clock,
        dense=a.dense or b.dense,
        scale=newer.scale,
        weight=a.weight + b.weight,
        largest_trace=max(a.largest_trace, b.largest_trace),
        largest_weight=max(a.largest_weight, b.largest_weight),
        **joined_sums(a, b, 1.0),
    )


def together(a: MomentState, b: MomentState) -> tuple[MomentState, MomentState]:
    """Both states at one width, one vocabulary (a's, then b's new labels) and one form of the features' sums."""
    width = max(a.n_features, b.n_features)
    known = {label: j for j, label in enumerate(a.labels)}
    for label in b.labels:
        known.setdefault(label, len(known))
    labels = tuple(known)
    theirs = np.array([known[label] for label in b.labels], dtype=np.int64) if b.labels else np.arange(b.columns)
    total = max(len(labels), a.columns, b.columns)
    a, b = aligned(a, width, labels, np.arange(a.columns), total), aligned(b, width, labels, theirs, total)
    if isinstance(a.features, SparsePart) != isinstance(b.features, SparsePart):
        a, b = a._replace(features=centred_features(a)), b._replace(features=centred_features(b))
    return a, b


def aligned(state: MomentState, width: int, labels: tuple[Any, ...], columns: np.ndarray, total: int) -> MomentState:
    """The state with `width` features and `total` target columns, its column j being columns[j]."""
    if width == state.n_features and np.array_equal(columns, np.arange(total)):
        return state._replace(labels=labels)
    classes, sets = state.class_scatter, state.label_sets
    return state._replace(
        n_features=width,
        labels=labels,
        features=state.features.aligned(width, columns, total),
        targets=state.targets.aligned(columns, total, state.target_kind == "multilabel"),
        class_scatter=classes.aligned(width, columns, total) if isinstance(classes, ClassScatter) else classes,
        label_sets=sets.recoded(columns) if isinstance(sets, LabelSets) else sets,
    )


def scaled(state: MomentState, factor: float) -> MomentState:
    """The state with every stored sum multiplied by factor, its scale left as it is."""
    if factor == 1.0:
        return state
    parts = ("features", "targets", "class_scatter", "label_sets")
    sums = {name: getattr(state, name) for name in parts}
    sums = {name: part.scaled(factor) if hasattr(part, "scaled") else part for name, part in sums.items()}
    return state._replace(weight=state.weight * factor, **sums)


def joined_sums(a: MomentState, b: MomentState, sign: float) -> dict[str, Any]:
    """The sums of states brought together; with sign −1 those of a without b."""
    targets = joined_targets(a.targets, b.targets, sign)
    if isinstance(a.features, SparsePart):
        features: Any = a.features.join(b.features, sign)
    else:
        features = a.features.join(b.features, b.targets.step_from(a.targets, b.weight, a.weight), sign)
    classes, sets = a.class_scatter, a.label_sets
    if isinstance(classes, ClassScatter):
        classes = classes.join(b.class_scatter, sign, targets.label_weights > 0.0)
    if isinstance(sets, LabelSets):
        sets = sets.join(b.label_sets, a.n_features, sign)
    return {"features": features, "targets": targets, "class_scatter": classes, "label_sets": sets}


def _check_shapes(a: MomentState, b: MomentState) -> None:
    """Raise CannotMerge when widths, kinds of targets or types of labels differ."""
    fixed = {s.n_features for s in (a, b) if s.dense}
    if len(fixed) > 1 or (fixed and max(a.n_features, b.n_features) not in fixed):
        raise CannotMerge(
            f"states of {a.n_features} and {b.n_features} features cannot be merged: dense rows fix the width."
        )
    if a.target_kind != b.target_kind:
        raise CannotMerge(f"states of {a.target_kind} and {b.target_kind} targets cannot be merged.")
    if a.target_width != b.target_width:
        raise CannotMerge(f"states of {a.target_width} and {b.target_width} target columns cannot be merged.")
    try:
        check_label_type(a.labels, b.labels)
    except InvalidTargets as e:
        raise CannotMerge(f"states cannot be merged: {e}") from e
