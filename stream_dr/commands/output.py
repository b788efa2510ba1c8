"""Output: results go to stdout, everything else to stderr; progress only where stderr is a terminal.

Why this way: `stream-dr … | next` and a log file of a nightly run both get what they want.
"""

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

stderr = Console(stderr=True)


def say(message: str) -> None:
    """A message to stderr."""
    stderr.print(message, highlight=False, markup=False, soft_wrap=True)


def result(text: str) -> None:
    """A line of the result to stdout."""
    print(text, flush=True)


class Bar:
    """A progress bar: rows (or another unit), how many a second, and what the caller adds; silent when stderr is no
    terminal."""

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
        self._task: TaskID = self._progress.add_task(title, total=total or 1, rate=0.0, note="")

    def show(self, done: int, total: int, note: str = "", title: str | None = None) -> None:
        """So many rows of so many are done."""
        task = self._progress.tasks[0]
        rate = done / task.elapsed if task.elapsed else 0.0
        more: dict[str, Any] = {} if title is None else {"description": title}
        self._progress.update(self._task, completed=done, total=max(total, done, 1), rate=rate, note=note, **more)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        sys.stderr.flush()
