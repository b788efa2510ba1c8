"""Claims: what a paper says, what is measured here, and what to make of it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Literal, NamedTuple, get_args

from benchmarks.papers.verdicts import Interval, within

Verdict = Literal["agrees", "differs", "undecided", "not told", "missing"]
"""Answer to a claim.

- agrees, differs, undecided: by a rule of `verdicts`.
- not told: the paper does not say what was done, or gives no figure to compare with.
- missing: the data cannot be had.
"""
WORDS: tuple[Verdict, ...] = get_args(Verdict)


class Claim(NamedTuple):
    """what: the figure. paper: as the paper has it. ours: measured here. reason: why it differs, or what was compared."""

    what: str
    paper: str
    ours: str
    verdict: Verdict
    reason: str = ""


class Options(NamedTuple):
    """quick: fewer runs, the same code (the tests' form). pictures: the folder pictures are drawn into, or None."""

    quick: bool = False
    pictures: Path | None = None


Run = Callable[[Options], Iterator[Claim]]
"""What each file of a table or figure has as `run`: it prints what it measures and gives its claims."""


def axis_verdict(intervals: Iterable[Interval], low: float, high: float) -> Verdict:
    """Return the verdict of curves of which only the axis is known.

    A mean whose interval lies wholly off the axis differs. To be on the axis is no agreement, as the
    curve itself is not told.
    """
    off = any(within(interval, low, high) == "differs" for interval in intervals)
    return "differs" if off else "not told"


def told(claims: list[Claim]) -> str:
    """Claims as lines: paper's figure, ours, verdict, reason."""
    lines = []
    for claim in claims:
        lines.append(f"{claim.verdict.upper():9s} {claim.what}: paper {claim.paper}; ours {claim.ours}")
        if claim.reason:
            lines.append(fill(claim.reason, 125, initial_indent=" " * 10, subsequent_indent=" " * 10))
    return "\n".join(lines)


def as_markdown(claims: list[Claim]) -> str:
    """Claims as a table of a page."""
    head = "| | paper | ours | verdict |\n|---|---|---|---|"
    rows = [
        f"| {claim.what} | {claim.paper} | {claim.ours} | **{claim.verdict}**{': ' if claim.reason else ''}{claim.reason} |"
        for claim in claims
    ]
    return "\n".join([head, *rows])
