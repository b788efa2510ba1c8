"""Waits: futures of who waits for positions, done once what was waited for is true; nothing polls."""

import threading
from collections.abc import Callable
from concurrent.futures import Future


class Waits:
    """reached: whether a position is. A future that was cancelled is forgotten. Thread-safe."""

    def __init__(self, reached: Callable[[int], bool]) -> None:
        self._reached = reached
        self._lock = threading.Lock()
        self._waiting: dict[Future[None], int] = {}
        self._ended = False

    def add(self, position: int) -> "Future[None]":
        """A future that is done once `position` is reached, and cancelled when the waits are ended before."""
        future: Future[None] = Future()
        future.add_done_callback(self._forget)
        with self._lock:
            self._waiting[future] = position
        self.end() if self._ended else self.look()
        return future

    @property
    def furthest(self) -> int:
        """The last position that somebody waits for; −1 when nobody does."""
        with self._lock:
            return max(self._waiting.values(), default=-1)

    def look(self) -> None:
        """What was waited for may be true now: called after every change."""
        with self._lock:
            reached = [future for future, position in self._waiting.items() if self._reached(position)]
        for future in reached:
            if self._forget(future) and future.set_running_or_notify_cancel():
                future.set_result(None)

    def end(self) -> None:
        """What is not reached now will not be: those futures, and all later ones, are cancelled."""
        self._ended = True
        self.look()
        with self._lock:
            left = list(self._waiting)
        for future in left:
            future.cancel()

    def _forget(self, future: "Future[None]") -> bool:
        """Whether the future was still waited for."""
        with self._lock:
            return self._waiting.pop(future, None) is not None
