"""Parsing of the targets y that a caller passes.

Three modules do the work. normalise.py converts y to a list or an array, kind.py decides the kind,
and build.py constructs a Targets object.
"""

from collections.abc import Sequence
from typing import Any

from stream_dr.errors import InvalidTargets
from stream_dr.targets.build import build_targets
from stream_dr.targets.kind import check_kind, decided_kind, targets_kind
from stream_dr.targets.normalise import normalise_targets
from stream_dr.targets.targets import Targets


def parse_targets(y: Any, rows: int, kinds: Sequence[str], target: str = "auto", known: str | None = None) -> Targets:
    """Convert the caller's targets y to a Targets object.

    Raises InvalidTargets if y cannot be read, or does not have one target per row. Raises
    TargetKindMismatch if y is of a kind that the estimator or earlier batches exclude.

    Parameters
    ----------
    y : array-like or Targets
        Labels or numbers (rows,), indicators or numbers (rows, k), or a list of label collections.
    rows : int
        Number of rows.
    kinds : sequence of str
        Kinds that the estimator can learn from.
    target : str
        Kind that the caller passed, one of KINDS, or "auto" to infer the kind.
    known : str or None
        Kind of the targets of earlier batches.
    """
    wanted = decided_kind(target, known)
    if isinstance(y, Targets):
        targets = y
    else:
        form = normalise_targets(y, one_label=kinds == ("class",) or wanted == "class", numeric=wanted == "continuous")
        targets = build_targets(form, targets_kind(form, kinds, wanted))

    if targets.rows != rows:
        raise InvalidTargets(
            f"Found input variables with inconsistent numbers of samples: {rows} rows but {targets.rows} targets; "
            "pass one target a row."
        )
    check_kind(targets.kind, kinds, wanted)
    return targets
