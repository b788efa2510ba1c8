"""Cadence: when something costly is due again: after so many rows, or so many seconds, at most a tenth of the time.

Why this way: a snapshot that takes six seconds is not taken every six seconds, whatever the setting says.
"""

import time

SHARE = 10
"""Waits at least this many times as long as the last run took."""


class Cadence:
    """rows, seconds: due after either, None: not by that. Only seconds are stretched by the cost of the last run."""

    def __init__(self, rows: int | None, seconds: float | None) -> None:
        self.rows, self.seconds = rows, seconds
        self._last = time.monotonic()
        self._cost = 0.0
        self._since = 0

    def add(self, rows: int) -> None:
        """Count rows learned."""
        self._since += rows

    @property
    def due(self) -> bool:
        """Whether it is time; never without a row since the last."""
        if self._since == 0:
            return False
        if self.rows is not None and self._since >= self.rows:
            return True
        waited = time.monotonic() - self._last
        return self.seconds is not None and waited >= max(self.seconds, SHARE * self._cost)

    def start(self) -> None:
        """It begins now."""
        self._since = 0
        self._last = time.monotonic()

    def done(self, cost: float) -> None:
        """It took `cost` seconds."""
        self._cost = cost
