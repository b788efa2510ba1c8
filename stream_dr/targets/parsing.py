"""Parsing of the targets y that a caller passes.

Three modules do the work. normalise.py converts y to a list or an array, kind.py decides the kind,
and build.py constructs a Targets object.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stream_dr.errors import InvalidTargets
from stream_dr.targets.build import build_targets
from stream_dr.targets.kind import check_target_kind, infer_targets_kind, reconcile_target_kind
from stream_dr.targets.normalise import normalise_targets
from stream_dr.targets.targets import KINDS, Targets


def parse_targets(
    y: Any, n_rows: int, allowed_kinds: Sequence[str], requested_kind: str = "auto", earlier_kind: str | None = None
) -> Targets:
    """Convert the caller's targets y to a Targets object.

    Raises InvalidTargets if y cannot be read, or does not have one target per row. Raises
    TargetKindMismatch if y is of a kind that the estimator or earlier batches exclude.

    Parameters
    ----------
    y : array-like or Targets
        Labels or numbers (rows,), indicators or numbers (rows, k), or a list of label collections.
        An array (rows, 1) is read like (rows,), unless the kind is "multilabel".
    n_rows : int
        Number of rows.
    allowed_kinds : sequence of str
        Kinds that the estimator can learn from.
    requested_kind : str
        Kind that the caller passed, one of KINDS, or "auto" to infer the kind.
    earlier_kind : str or None
        Kind of the targets of earlier batches.
    """
    wanted = reconcile_target_kind(requested_kind, earlier_kind)
    if isinstance(y, Targets):
        targets = y
    else:
        form = normalise_targets(
            y,
            keep_columns=wanted == "multilabel",
            lists_are_numbers=wanted == "continuous",
        )
        targets = build_targets(form, infer_targets_kind(form, allowed_kinds, wanted))

    if targets.rows != n_rows:
        raise InvalidTargets(
            f"Found input variables with inconsistent numbers of samples: {n_rows} rows but {targets.rows} targets; "
            "pass one target a row."
        )
    check_target_kind(targets.kind, allowed_kinds, wanted)
    return targets


def parse_target_array(y: np.ndarray, target_kind: str = "auto") -> Targets:
    """Convert targets of an array in a file to Targets.

    target_kind: kind of the targets. "auto" means that the type and the values decide the kind.
        With "auto", a vector of floats is read as labels if all floats are whole numbers or NaN.
    """
    may_be_labels = y.size == len(y) and y.dtype.kind == "f" and target_kind == "auto"
    is_whole = may_be_labels and np.all(np.isnan(y) | (y == np.floor(y)))
    return parse_targets(y, len(y), ("class",) if is_whole else KINDS, target_kind)
