"""Waiting for a condition, instead of sleeping for as long as it might take."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 60.0) -> T:
    """Call `condition` until its result is true, and return that.

    Raises TimeoutError after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {result!r} after {seconds} s")
        time.sleep(0.01)
    return result


def assert_stays(condition: Callable[[], object], seconds: float) -> None:
    """Assert that `condition` stays true for this many seconds.

    For things that must not happen. A failure is seen at once.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition()
        time.sleep(0.01)
