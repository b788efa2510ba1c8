"""Claims: what a paper says, what is measured here, and what to make of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Literal, NamedTuple

Verdict = Literal["agrees", "differs", "missing"]
"""missing: the data is not to be had, or the paper does not say what was done."""


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


def told(claims: list[Claim]) -> str:
    """Claims as lines: paper's figure, ours, verdict, reason."""
    lines = []
    for claim in claims:
        lines.append(f"{claim.verdict.upper():8s} {claim.what}: paper {claim.paper}; ours {claim.ours}")
        if claim.reason:
            lines.append(fill(claim.reason, 125, initial_indent=" " * 9, subsequent_indent=" " * 9))
    return "\n".join(lines)


def as_markdown(claims: list[Claim]) -> str:
    """Claims as a table of a page."""
    head = "| | paper | ours | verdict |\n|---|---|---|---|"
    rows = [
        f"| {claim.what} | {claim.paper} | {claim.ours} | **{claim.verdict}**{': ' if claim.reason else ''}{claim.reason} |"
        for claim in claims
    ]
    return "\n".join([head, *rows])
