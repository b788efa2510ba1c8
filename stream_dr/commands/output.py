"""Output: results go to stdout, everything else to stderr; progress as a bar on a terminal, in lines elsewhere.

Why this way: `stream-dr … | next` and a log file of a nightly run both get what they want.
"""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

stderr = Console(stderr=True)


_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """The text with control characters as Python writes them, \\x1b: names of columns, labels and files come from anywhere,
    and a terminal obeys them."""
    return text.translate(_CONTROLS)


def say(message: str) -> None:
    """A message to stderr."""
    stderr.print(printable(message), highlight=False, markup=False, soft_wrap=True)


def result(text: str) -> None:
    """A line of the result to stdout."""
    print(printable(text), flush=True)


LINES = 60.0
"""Seconds between two lines of progress at most, where there is no terminal."""


class Bar:
    """Progress on work that takes longer than a second: rows (or another unit), how many a second, the share done and
    the time left where the total is known, and what the caller adds. A bar; where stderr is no terminal, plain lines,
    the next after twice the time."""

    def __init__(self, title: str, total: int | None, unit: str = "rows") -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit),
            TextColumn("{task.fields[rate]:,.0f} " + unit + "/s"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=stderr,
            disable=not stderr.is_terminal,
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("", total=total or 1, rate=0.0, note="")
        self._unit = unit
        self._begin(title)

    def _begin(self, title: str) -> None:
        """Begin work of another title, whose rate and time left have nothing of the work before."""
        self._title, self._begun = title, time.monotonic()
        self._next = 1.0
        self._progress.reset(self._task, description=printable(title))

    def show(self, done: int, total: int, note: str = "", title: str | None = None) -> None:
        """So many rows of so many are done; as many of as many: how many there are is not known. Another title begins the
        clock again."""
        if title is not None and title != self._title:
            self._begin(title)
        elapsed = time.monotonic() - self._begun
        rate = done / elapsed if elapsed > 0 else 0.0
        if stderr.is_terminal:
            note = printable(note)
            self._progress.update(self._task, completed=done, total=max(total, done, 1), rate=rate, note=note)
        elif elapsed >= self._next:
            self._next = elapsed + min(elapsed, LINES)
            say(_line(self._title, self._unit, done, total, rate, note))

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        sys.stderr.flush()


def _line(title: str, unit: str, done: int, total: int, rate: float, note: str) -> str:
    """ "replay: 1,200 of 10,000 rows (12 %), 400 rows/s, 22 s left, 1 of 4 shards"."""
    parts = [f"{done:,} {unit}", f"{rate:,.0f} {unit}/s"]
    if total > done:
        parts[0] = f"{done:,} of {total:,} {unit} ({100 * done // total} %)"
        parts += [f"{(total - done) / rate:,.0f} s left"] if rate else []
    return f"{title}: {', '.join([*parts, note] if note else parts)}"
