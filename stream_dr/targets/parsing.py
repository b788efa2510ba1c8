"""Parsing of what a caller passes as y to Targets, by normalise.py, kind.py and build.py."""

from collections.abc import Sequence
from typing import Any

from stream_dr.errors import InvalidTargets
from stream_dr.targets.build import build_targets
from stream_dr.targets.kind import check_kind, decided_kind, targets_kind
from stream_dr.targets.normalise import normalise_targets
from stream_dr.targets.targets import Targets


def parse_targets(y: Any, rows: int, kinds: Sequence[str], target: str = "auto", known: str | None = None) -> Targets:
    """Return the Targets of what a caller passes as y.

    Raises InvalidTargets if y cannot be read or has another length. Raises TargetKindMismatch if it is
    of another kind.

    Parameters
    ----------
    y : array-like or Targets
        (rows,) labels or numbers, (rows, k) indicator or numbers, or a list of label collections.
    rows : int
        Number of rows.
    kinds : sequence of str
        Kinds that the estimator can learn from.
    target : str
        "auto" or one of KINDS.
    known : str or None
        Kind that an earlier batch has decided.
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
