"""Output: functions that print results, messages and progress.

Results go to stdout, messages and progress to stderr.
"""

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

stderr = Console(stderr=True)

_CONTROL_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Python's escape of each control character, such as \\x1b, by the character's code.

Newline and tab are not included.
"""


def escape_controls(text: str) -> str:
    """Replace control characters by Python's escapes, such as \\x1b.

    Names of columns, labels and files may contain control characters. A terminal would execute
    these characters.
    """
    return text.translate(_CONTROL_ESCAPES)


def say(message: str) -> None:
    """Print a message on stderr."""
    stderr.print(escape_controls(message), highlight=False, markup=False, soft_wrap=True)


def print_result(text: str) -> None:
    """Print a line of a command's result on stdout."""
    print(escape_controls(text), flush=True)


MAX_LINE_INTERVAL = 60.0
"""Maximum number of seconds between two lines of progress, if stderr is not a terminal."""


class ProgressBar:
    """Progress of work, shown on stderr.

    The progress has the number of rows done, the rows per second and a note. If the total is
    known, the progress also has the share of rows done and the remaining time.

    On a terminal, the progress is a bar. Otherwise the progress is printed as lines of text. The
    first line is printed after a second. The time between two lines then doubles with each line,
    up to MAX_LINE_INTERVAL seconds.

    Parameters
    ----------
    title : str
        Name of the work.
    total : int or None
        Total number of rows. None if the total is not known.
    unit : str
        Name of the items that are counted, such as "rows" or "bytes".
    """

    def __init__(self, title: str, total: int | None = None, unit: str = "rows") -> None:
        # The texts in braces are filled by the fields that `show` sets. The bar is shown on
        # terminals only, and needs a total above 0.
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
        self._total = total
        self._unit = unit
        self._restart(title)

    def _restart(self, title: str) -> None:
        """Start the progress of other work, from zero.

        title: name of the work.
        """
        self._title = title
        self._started = time.monotonic()
        # Seconds after the start at which the next line of text is due.
        self._next_line = 1.0
        self._progress.reset(self._task, description=escape_controls(title))

    def show(self, n_done: int, total: int | None = None, note: str = "", title: str | None = None) -> None:
        """Show that `n_done` of `total` rows are done.

        n_done: number of rows done so far.
        total: total number of rows. None: the total that the progress was created with.
        note: text to show after the numbers.
        title: name of the work. A new name starts the progress from zero. None keeps the name.
        """
        if title is not None and title != self._title:
            self._restart(title)

        # Without a known total, the total shown is the number of rows done.
        if total is None:
            total = self._total or n_done
        # Times are in seconds since the work started.
        elapsed = time.monotonic() - self._started
        rate = n_done / elapsed if elapsed > 0 else 0.0
        if stderr.is_terminal:
            note = escape_controls(note)
            self._progress.update(self._task, completed=n_done, total=max(total, n_done, 1), rate=rate, note=note)
        elif elapsed >= self._next_line:
            # The interval doubles with each line, because the next line is at twice the time.
            self._next_line = elapsed + min(elapsed, MAX_LINE_INTERVAL)
            say(self._line(n_done, total, rate, note))

    def _line(self, n_done: int, total: int, rate: float, note: str) -> str:
        """Return the progress as a line of text.

        For example "replay: 1,200 of 10,000 rows (12 %), 400 rows/s, 22 s left, 1 of 4 shards".

        rate: number of rows per second.
        """
        unit = self._unit
        parts = [f"{n_done:,} {unit}", f"{rate:,.0f} {unit}/s"]
        if total > n_done:
            parts[0] = f"{n_done:,} of {total:,} {unit} ({100 * n_done // total} %)"
            if rate:
                parts.append(f"{(total - n_done) / rate:,.0f} s left")
        if note:
            parts.append(note)
        return f"{self._title}: {', '.join(parts)}"

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        sys.stderr.flush()
