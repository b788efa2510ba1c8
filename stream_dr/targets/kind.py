"""Decision whether targets y are "class", "multilabel" or "continuous".

The kind is the kind of earlier batches, or else the parameter `target`. If there are no earlier
batches and `target` is "auto", the form of y decides:

- A list of label collections is multilabel.
- An array (rows, k) of only 0 and 1 is multilabel. Any other array (rows, k) is continuous. An
  array (rows, 1) is read like (rows,), unless the kind is known to be multilabel.
- An array (rows,) of str, int or bool is class.
- An array (rows,) of floats is class if every value is whole and the estimator learns from one
  label per row. Other arrays (rows,) of floats are continuous.
"""

from collections.abc import Sequence

import numpy as np

from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.rows.raw_rows import LARGEST
from stream_dr.targets.label_codes import check_float_labels_exact
from stream_dr.targets.normalise import CollectionsOrArray, has_strings
from stream_dr.targets.targets import KINDS, Targets, TargetsKind, raise_unsupported_target_kind


def reconcile_target_kind(requested_kind: str, earlier_kind: str | None) -> str | None:
    """Return the kind that the caller or earlier batches decided.

    Returns None if neither the caller nor earlier batches have decided. Raises TargetKindMismatch
    if the two decisions differ.

    requested_kind: kind that the caller passed, one of KINDS, or "auto" for no decision.
    earlier_kind: kind of the targets of earlier batches, or None.
    """
    if requested_kind != "auto" and earlier_kind in KINDS and earlier_kind != requested_kind:
        raise TargetKindMismatch(
            f"target={requested_kind!r} was given; rows so far had {earlier_kind} targets. Pass those with "
            f"target={earlier_kind!r}, or start anew."
        )
    return earlier_kind or (None if requested_kind == "auto" else requested_kind)


def infer_targets_kind(y: CollectionsOrArray, estimator_kinds: Sequence[str], settled_kind: str | None) -> TargetsKind:
    """Return "class", "multilabel" or "continuous", the kind of targets y.

    Raises InvalidTargets if y has a form that no kind has. Raises TargetKindMismatch if y cannot
    be read as `settled_kind`.

    y: a list of label collections, or an array (rows, k) or (rows,), as `normalise_targets`
        returns it.
    estimator_kinds: kinds that the estimator can learn from. They decide how floats are read. The
        kind that is returned may be another one.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    if isinstance(y, list):
        return "multilabel"
    if settled_kind == "continuous" and has_strings(y):
        first = next((v for v in y.ravel() if isinstance(v, str | bytes)), None)
        raise TargetKindMismatch(
            f"labels were given ({first!r}); this model was started with numbers. Pass numbers, or start a new model."
        )
    if y.ndim == 2:
        return _infer_kind_of_matrix(y, settled_kind)
    return _infer_kind_of_vector(y, estimator_kinds, settled_kind)


def check_target_kind(kind: str, allowed_kinds: Sequence[str], settled_kind: str | None) -> None:
    """Raise TargetKindMismatch unless targets are of a suitable kind.

    kind: kind of the targets ("class", "multilabel" or "continuous").
    allowed_kinds: kinds that the estimator can learn from.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    # Prefer the error that names estimators for these targets, unless another kind is settled.
    if kind not in allowed_kinds and (kind == "multilabel" or settled_kind in (None, kind)):
        raise_unsupported_target_kind(kind, allowed_kinds)
    if settled_kind not in (None, kind):
        raise TargetKindMismatch(
            f"targets are of kind {kind}; this model was started with {settled_kind}. "
            f"Pass {settled_kind} targets or start a new model; target= says how numbers are read."
        )


def has_too_many_labels_for_classes(kind: str | None, n_labels: int, n_rows: int) -> bool:
    """Return True if labels are probably measurements or ids.

    The result is True if there is one label a row, if there are more than 100 distinct labels, and
    if the number of distinct labels is more than a tenth of the number of rows. Classes usually
    have fewer labels.

    kind: kind of the targets, or None if there are none.
    n_labels: number of distinct labels.
    n_rows: number of rows.
    """
    return kind == "class" and n_labels > max(100, n_rows / 10)


def check_targets_unambiguous(passed_targets: object, parsed_targets: Targets) -> None:
    """Raise InvalidTargets if estimators would read targets differently.

    Estimators read whole numbers written as floats differently. An estimator that takes one label
    per row reads these numbers as labels. Other estimators read the numbers as measurements.

    passed_targets: targets as the caller passed them, before they were parsed.
    parsed_targets: the parsed targets, for an unknown estimator.
    """
    if isinstance(passed_targets, Targets) or not parsed_targets.rows:
        return
    values = parsed_targets.values
    if values is not None and values.shape[1] == 1 and np.all(values == np.floor(values)):
        raise InvalidTargets(
            "y is whole numbers that can be classes or measurements, and no targets so far say which; what the first ones "
            'are holds for good. Give target="class" or target="continuous".'
        )


def _infer_kind_of_matrix(y: np.ndarray, settled_kind: str | None) -> TargetsKind:
    """Return the kind of targets in an array (rows, k).

    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    if y.dtype.kind not in "biuf":
        raise InvalidTargets(f"a 2-D y must be numbers, not {y.dtype}; pass lists of labels for several labels a row.")
    if settled_kind == "class":
        raise TargetKindMismatch("several labels a row were given where one is needed. Use OPLS, CCA or HSL.")

    if settled_kind != "continuous" and np.all((y == 0) | (y == 1)) and (settled_kind == "multilabel" or y.size):
        return "multilabel"
    if settled_kind == "multilabel":
        raise TargetKindMismatch(
            "a 2-D y with values other than 0 and 1; this model was started with multilabel targets."
        )
    return "continuous"


def _infer_kind_of_vector(y: np.ndarray, allowed_kinds: Sequence[str], settled_kind: str | None) -> TargetsKind:
    """Return the kind of an array of targets y (rows,).

    allowed_kinds: kinds that the estimator can learn from.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    if y.dtype.kind == "c":
        raise InvalidTargets("Complex data not supported: targets are complex numbers.")
    if y.dtype.kind == "f" and _floats_are_measurements(y[~np.isnan(y)], allowed_kinds, settled_kind):
        return "continuous"
    if settled_kind == "multilabel":
        raise TargetKindMismatch(
            "one label a row was given; this model was started with multilabel targets. Pass a list of labels a row."
        )
    return "continuous" if settled_kind == "continuous" else "class"


def _floats_are_measurements(y: np.ndarray, allowed_kinds: Sequence[str], settled_kind: str | None) -> bool:
    """True if floats are measurements, False if they are labels.

    Floats can be labels only if all are whole. Raises InvalidTargets or TargetKindMismatch.

    y: (rows,) floats without NaN.
    allowed_kinds: kinds that the estimator can learn from.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    # Floats can be labels only if all are whole, and if the estimator reads one label per row.
    values = y.astype(np.float64, copy=False)
    if not np.all(np.abs(values) <= LARGEST):
        raise InvalidTargets("Input y contains NaN or infinity; targets must be finite.")
    whole = bool(np.all(values == np.floor(values)))
    one_label = "class" in allowed_kinds and not {"multilabel", "continuous"} <= set(allowed_kinds)

    # Floats are measurements if that is decided, or if they cannot be labels.
    if settled_kind == "continuous" or (settled_kind is None and not (one_label and whole)):
        if settled_kind is None and "continuous" not in allowed_kinds:
            raise InvalidTargets(
                "Unknown label type: continuous. Targets are numbers that are not whole; this estimator needs "
                "labels: pass str, int or bool."
            )
        return True

    # The floats are labels. Labels must be whole numbers that a float represents exactly.
    if not whole:
        raise TargetKindMismatch(
            "Unknown label type: continuous. Targets are numbers that are not whole; this model takes labels: "
            "pass str, int, bool or whole numbers, or start a new model."
        )
    check_float_labels_exact(y)
    return False
