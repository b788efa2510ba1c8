"""When a snapshot is due: by rows or seconds, never while one is taken, at most a tenth of the time."""

from typing import Any

import pytest

from stream_dr.engine import cadence
from stream_dr.engine.cadence import Cadence


def test_due(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(cadence, "time", Clock(now))
    by = Cadence(10, 5.0)
    assert not by.due
    now[0] += 6
    assert not by.due  # nothing was learned
    by.add(1)
    assert by.due
    by.start()
    by.add(50)
    now[0] += 20
    assert not by.due  # one is being taken
    by.done()
    assert not by.due  # which took 20 seconds
    now[0] += 179
    assert not by.due
    now[0] += 2
    assert by.due
    other = by.another()
    other.add(9)
    assert not other.due
    other.add(1)
    assert other.due


def test_what_should_not_wait_waits_for_what_is_under_way_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(cadence, "time", Clock(now))
    by = Cadence(None, None)
    by.hurry()
    assert by.due
    by.start()
    assert not by.due
    by.hurry()
    now[0] += 5
    assert not by.due
    by.done()
    assert by.due
    by.start()
    by.done()
    assert not by.due


class Clock:
    """time.monotonic, set by hand."""

    def __init__(self, now: list[float]) -> None:
        self._now = now

    def monotonic(self) -> Any:
        return self._now[0]
