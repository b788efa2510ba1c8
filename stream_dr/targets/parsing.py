"""parsing: what a caller passes as y, as Targets, in three steps: `normalise`, `kind`, `build`."""

from collections.abc import Sequence
from typing import Any

from stream_dr.errors import InvalidTargets
from stream_dr.targets.build import build
from stream_dr.targets.kind import check_kind, kind_of, wanted_kind
from stream_dr.targets.normalise import normalise
from stream_dr.targets.targets import Targets


def parse_targets(y: Any, rows: int, kinds: Sequence[str], target: str = "auto", known: str | None = None) -> Targets:
    """Targets from what a caller passes as y.

    y: (rows,) labels or numbers, (rows, k) indicator or numbers, a list of label collections, or a Targets.
    kinds: the kinds the estimator can learn from. target: "auto" or one of KINDS. known: the kind decided by an earlier
    batch, or None. Raises InvalidTargets (unreadable, wrong length) or TargetKindMismatch (another kind).
    """
    wanted = wanted_kind(target, known)
    if isinstance(y, Targets):
        targets = y
    else:
        form = normalise(y, one_label=kinds == ("class",) or wanted == "class", numeric=wanted == "continuous")
        targets = build(form, kind_of(form, kinds, wanted))

    if targets.rows != rows:
        raise InvalidTargets(
            f"Found input variables with inconsistent numbers of samples: {rows} rows but {targets.rows} targets; "
            "pass one target a row."
        )
    check_kind(targets.kind, kinds, wanted)
    return targets
