"""Recent: drafts that were just appended, still parsed, so that the model thread need not read and parse them again.

Bounded in bytes; what does not fit is read from the log. A draft's Block comes from the very bytes that were written.

Why this way: the log stays the queue, and a model that keeps up with it costs one parse a batch instead of two.
"""

import threading
from collections import OrderedDict

from stream_dr.engine.draft import Draft

BYTES = 64 << 20
"""Bytes of bodies held."""


class Recent:
    """Positions and their drafts, oldest first; thread-safe."""

    def __init__(self, max_bytes: int = BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[int, Draft] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, position: int, draft: Draft) -> None:
        """Hold a draft; the oldest go when there are too many bytes."""
        with self._lock:
            self._held[position] = draft
            self._bytes += len(draft.body)
            while self._bytes > self._max_bytes:
                self._drop()

    def take(self, after: int, limit: int) -> list[tuple[int, Draft]]:
        """At most `limit` drafts at positions after + 1, after + 2 …, without gap; those before are forgotten. Empty
        when the next one is not held."""
        with self._lock:
            while self._held and next(iter(self._held)) <= after:
                self._drop()
            found: list[tuple[int, Draft]] = []
            for position, draft in self._held.items():
                if position != after + 1 + len(found) or len(found) >= limit:
                    break
                found.append((position, draft))
            return found

    def _drop(self) -> None:
        self._bytes -= len(self._held.popitem(last=False)[1].body)
