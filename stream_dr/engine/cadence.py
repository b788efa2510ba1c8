"""Cadence: when something costly is due again: after so many rows, or so many seconds, at most a tenth of the time.

Why this way: a snapshot that takes six seconds is not taken every six seconds, whatever the setting says, and never while
one is being taken: states that wait to be written would fill the memory.
"""

import time

SHARE = 10
"""Waits at least this many times as long as the last run took."""


class Cadence:
    """rows, seconds: due after either, None: not by that. One thread starts, another may end what was started."""

    def __init__(self, rows: int | None, seconds: float | None) -> None:
        self.rows, self.seconds = rows, seconds
        self._last = time.monotonic()
        self._cost = 0.0
        self._since = 0
        self._under_way = self._hurried = False

    def another(self) -> "Cadence":
        """One by the same settings, for something else."""
        return Cadence(self.rows, self.seconds)

    def add(self, rows: int) -> None:
        """Count rows learned."""
        self._since += rows

    def ask(self) -> None:
        """There is something to write, though no row may have come."""
        self._since = max(1, self._since)

    def hurry(self) -> None:
        """There is something that should not wait: it is due as soon as nothing is under way."""
        self._hurried = True

    @property
    def due(self) -> bool:
        """Whether it is time; never without a row, or being asked, since the last, and never while one is under way."""
        if self._hurried and not self._under_way:
            return True
        waited = time.monotonic() - self._last
        if self._since == 0 or self._under_way or waited < SHARE * self._cost:
            return False
        by_rows = self.rows is not None and self._since >= self.rows
        return by_rows or (self.seconds is not None and waited >= self.seconds)

    def start(self) -> None:
        """It begins now."""
        self._since = 0
        self._last = time.monotonic()
        self._under_way, self._hurried = True, False

    def done(self) -> None:
        """It has ended."""
        self._cost = time.monotonic() - self._last
        self._under_way = False
