"""Decision which of the three kinds of targets y is.

An earlier batch or `target` decides. Otherwise the form of y does. A list of label collections is
multilabel. (rows, k) of only 0 and 1 is multilabel, and any other continuous. (rows,) of str, int or
bool is class. (rows,) of floats is class if the method takes one label per row and every value is
whole, else continuous.
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
    """Return the kind that an earlier batch or the caller has decided, or None.

    target: kind from the caller, "auto" or one of KINDS. known: kind of earlier batches. Raises
    TargetKindMismatch if the two differ.
    """
    if target != "auto" and known in KINDS and known != target:
        raise TargetKindMismatch(
            f"target={target!r} was given; rows so far had {known} targets. Pass those with target={known!r}, or start anew."
        )
    return known or (None if target == "auto" else target)


def targets_kind(y: Form, kinds: Sequence[str], wanted: str | None) -> str:
    """Return the kind of a normalised y, the wanted one if y can be read so.

    kinds: kinds that the estimator can learn from. Raises InvalidTargets if y is of no kind. Raises
    TargetKindMismatch if it cannot be of the wanted one.
    """
    if isinstance(y, list):
        return "multilabel"
    if wanted == "continuous" and is_text(y):
        first = next((v for v in y.ravel() if isinstance(v, str | bytes)), None)
        raise TargetKindMismatch(
            f"labels were given ({first!r}); this model was started with numbers. Pass numbers, or start a new model."
        )
    return _kind_of_table(y, wanted) if y.ndim == 2 else _kind_of_column(y, kinds, wanted)


def check_kind(kind: str, kinds: Sequence[str], wanted: str | None) -> None:
    """Raise TargetKindMismatch unless the kind is wanted and among the estimator's."""
    # This error names estimators that can learn from such targets.
    if kind not in kinds and (kind == "multilabel" or wanted in (None, kind)):
        refuse_kind(kind, kinds)
    if wanted not in (None, kind):
        raise TargetKindMismatch(
            f"targets are of kind {kind}; this model was started with {wanted}. "
            f"Pass {wanted} targets or start a new model; target= says how numbers are read."
        )


def look_like_numbers(targets: Targets) -> bool:
    """Return True if labels are probably numbers or ids and no classes.

    There are more than 100 of them, and more than a tenth of the rows.
    """
    return targets.kind == "class" and len(targets.labels) > max(100, targets.rows / 10)


def refuse_ambiguous(y: object, targets: Targets) -> None:
    """Raise InvalidTargets if y may mean one label per row but was read otherwise.

    targets: y as read by its form alone. Whole numbers written as floats, and a single column of whole
    numbers, are classes for an estimator that takes one label per row. They are measurements or an
    indicator for one that takes several.
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


def _kind_of_table(y: np.ndarray, wanted: str | None) -> str:
    """Return the kind of y (rows, k)."""
    if y.dtype.kind not in "biuf":
        raise InvalidTargets(f"a 2-D y must be numbers, not {y.dtype}; pass lists of labels for several labels a row.")
    if wanted == "class":
        raise TargetKindMismatch("several labels a row were given where one is needed. Use OPLS, CCA or HSL.")

    if wanted != "continuous" and np.all((y == 0) | (y == 1)) and (wanted == "multilabel" or y.size):
        return "multilabel"
    if wanted == "multilabel":
        raise TargetKindMismatch(
            "a 2-D y with values other than 0 and 1; this model was started with multilabel targets."
        )
    return "continuous"


def _kind_of_column(y: np.ndarray, kinds: Sequence[str], wanted: str | None) -> str:
    """Return the kind of y (rows,)."""
    if np.iscomplexobj(y):
        raise InvalidTargets("Complex data not supported: targets are complex numbers.")
    if y.dtype.kind == "f" and _are_measurements(y[~np.isnan(y)], kinds, wanted):
        return "continuous"
    if wanted == "multilabel":
        raise TargetKindMismatch(
            "one label a row was given; this model was started with multilabel targets. Pass a list of labels a row."
        )
    return "continuous" if wanted == "continuous" else "class"


def _are_measurements(y: np.ndarray, kinds: Sequence[str], wanted: str | None) -> bool:
    """Return True if floats (rows,) without NaN are measurements.

    Otherwise they are whole numbers that stand for labels. Raises InvalidTargets or
    TargetKindMismatch.
    """
    values = y.astype(np.float64, copy=False)
    if not np.all(np.abs(values) <= LARGEST):
        raise InvalidTargets("Input y contains NaN or infinity; targets must be finite.")
    whole = bool(np.all(values == np.floor(values)))
    one_label = "class" in kinds and not {"multilabel", "continuous"} <= set(kinds)

    if wanted == "continuous" or (wanted is None and not (one_label and whole)):
        if wanted is None and "continuous" not in kinds:
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
