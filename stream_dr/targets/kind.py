"""Decides whether targets y are of kind "class", "multilabel" or "continuous".

The kind of earlier batches and the parameter `target` come first. If neither is given, the form of
y decides:

- A list of label collections is multilabel.
- An array (rows, k) of only 0 and 1 is multilabel. Any other array (rows, k) is continuous.
- An array (rows,) of str, int or bool is class.
- An array (rows,) of floats is class if every value is whole and the estimator can learn from one
  label per row. Otherwise it is continuous.
"""

from collections.abc import Sequence

import numpy as np

from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.rows.interfaces import Shaped
from stream_dr.rows.raw_rows import LARGEST
from stream_dr.targets.label_codes import check_exact
from stream_dr.targets.normalise import Form, is_text
from stream_dr.targets.targets import KINDS, Targets, refuse_kind


def decided_kind(target: str, known: str | None) -> str | None:
    """Return the kind of targets that the caller or an earlier batch has decided.

    None is returned if nothing is decided. Raises TargetKindMismatch if the caller and earlier
    batches differ.

    target: kind given by the caller, "auto" or one of KINDS.
    known: kind of the targets of earlier batches, or None.
    """
    if target != "auto" and known in KINDS and known != target:
        raise TargetKindMismatch(
            f"target={target!r} was given; rows so far had {known} targets. Pass those with target={known!r}, or start anew."
        )
    return known or (None if target == "auto" else target)


def targets_kind(y: Form, kinds: Sequence[str], decided: str | None) -> str:
    """Return the kind of the targets y ("class", "multilabel" or "continuous").

    Raises InvalidTargets if y has a form that no kind has. Raises TargetKindMismatch if y cannot
    be read as `decided`.

    y: a list of label collections, or an array (rows, k) or (rows,), as `normalise_targets`
        returns it.
    kinds: kinds that the estimator can learn from.
    decided: kind that the caller or an earlier batch has decided, or None.
    """
    if isinstance(y, list):
        return "multilabel"
    if decided == "continuous" and is_text(y):
        first = next((v for v in y.ravel() if isinstance(v, str | bytes)), None)
        raise TargetKindMismatch(
            f"labels were given ({first!r}); this model was started with numbers. Pass numbers, or start a new model."
        )
    return _kind_of_table(y, decided) if y.ndim == 2 else _kind_of_column(y, kinds, decided)


def check_kind(kind: str, kinds: Sequence[str], decided: str | None) -> None:
    """Raise TargetKindMismatch unless targets are of a suitable kind.

    kind: kind of the targets ("class", "multilabel" or "continuous").
    kinds: kinds that the estimator can learn from.
    decided: kind that the caller or an earlier batch has decided, or None.
    """
    # refuse_kind raises an error that names estimators for such targets.
    if kind not in kinds and (kind == "multilabel" or decided in (None, kind)):
        refuse_kind(kind, kinds)
    if decided not in (None, kind):
        raise TargetKindMismatch(
            f"targets are of kind {kind}; this model was started with {decided}. "
            f"Pass {decided} targets or start a new model; target= says how numbers are read."
        )


def look_like_numbers(targets: Targets) -> bool:
    """Return True if labels are probably measurements or ids, not classes.

    They probably are if there are more than 100 distinct labels, and more distinct labels than a
    tenth of the rows.
    """
    return targets.kind == "class" and len(targets.labels) > max(100, targets.rows / 10)


def refuse_ambiguous(y: object, targets: Targets) -> None:
    """Raise InvalidTargets if y would mean different things to different estimators.

    This is the case for whole numbers written as floats, and for a single column of whole numbers.
    An estimator that takes one label per row reads them as labels. Other estimators read them as
    measurements, or as an indicator of one label.

    y: targets as the caller passed them.
    targets: y, parsed without knowing the estimator.
    """
    if isinstance(y, Targets) or not targets.rows:
        return
    if targets.values is None:
        doubtful = targets.kind == "multilabel" and isinstance(y, Shaped) and len(y.shape) == 2 and y.shape[1] == 1
    else:
        doubtful = targets.values.shape[1] == 1 and bool(np.all(targets.values == np.floor(targets.values)))
    if doubtful:
        raise InvalidTargets(
            "y is whole numbers that can be classes or measurements, and no targets so far say which; what the first ones "
            'are holds for good. Give target="class" or target="continuous".'
        )


def _kind_of_table(y: np.ndarray, decided: str | None) -> str:
    """Return the kind of an array of targets y (rows, k).

    decided: kind that the caller or an earlier batch has decided, or None.
    """
    if y.dtype.kind not in "biuf":
        raise InvalidTargets(f"a 2-D y must be numbers, not {y.dtype}; pass lists of labels for several labels a row.")
    if decided == "class":
        raise TargetKindMismatch("several labels a row were given where one is needed. Use OPLS, CCA or HSL.")

    if decided != "continuous" and np.all((y == 0) | (y == 1)) and (decided == "multilabel" or y.size):
        return "multilabel"
    if decided == "multilabel":
        raise TargetKindMismatch(
            "a 2-D y with values other than 0 and 1; this model was started with multilabel targets."
        )
    return "continuous"


def _kind_of_column(y: np.ndarray, kinds: Sequence[str], decided: str | None) -> str:
    """Return the kind of an array of targets y (rows,).

    kinds: kinds that the estimator can learn from.
    decided: kind that the caller or an earlier batch has decided, or None.
    """
    if y.dtype.kind == "c":
        raise InvalidTargets("Complex data not supported: targets are complex numbers.")
    if y.dtype.kind == "f" and _floats_are_measurements(y[~np.isnan(y)], kinds, decided):
        return "continuous"
    if decided == "multilabel":
        raise TargetKindMismatch(
            "one label a row was given; this model was started with multilabel targets. Pass a list of labels a row."
        )
    return "continuous" if decided == "continuous" else "class"


def _floats_are_measurements(y: np.ndarray, kinds: Sequence[str], decided: str | None) -> bool:
    """Return True if floats are measurements, False if they are labels.

    Floats can be labels only if all are whole. Raises InvalidTargets or TargetKindMismatch.

    y: (rows,) floats without NaN.
    kinds: kinds that the estimator can learn from.
    decided: kind that the caller or an earlier batch has decided, or None.
    """
    values = y.astype(np.float64, copy=False)
    if not np.all(np.abs(values) <= LARGEST):
        raise InvalidTargets("Input y contains NaN or infinity; targets must be finite.")
    whole = bool(np.all(values == np.floor(values)))
    one_label = "class" in kinds and not {"multilabel", "continuous"} <= set(kinds)

    if decided == "continuous" or (decided is None and not (one_label and whole)):
        if decided is None and "continuous" not in kinds:
            raise InvalidTargets(
                "Unknown label type: continuous. Targets are numbers that are not whole; this estimator needs "
                "labels: pass str, int or bool."
            )
        return True
    if not whole:
        raise TargetKindMismatch(
            "Unknown label type: continuous. Targets are numbers that are not whole; this model takes labels: "
            "pass str, int, bool or whole numbers, or start a new model."
        )
    check_exact(y)
    return False
