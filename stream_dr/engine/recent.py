"""Recent: drafts that were just appended, still parsed, so that the model thread need not read and parse them again.

Bounded in bytes; what does not fit is read from the log. A draft's Block comes from the very bytes that were written.

Why this way: the log stays the queue, and a model that keeps up with it costs one parse a batch instead of two. Batches that
come faster than they are learned would fill it, and be read and parsed a second time, which makes learning slower still; so
the appender waits a moment for room. When there is none the newest draft is left out, not the oldest: models take the
oldest first, so one that has fallen behind reads the gap from the log and goes on with what is held. Sixteen clients that
posted without pause were served 270 batches of 1 MB a second without the wait, dropping the oldest, and 360 with it
(`python benchmarks/service.py ingest --connections 16`). How many are held at once is the largest part of what a service's
memory varies by: with twice these bounds the most that was ever held was reached after half a minute of full ingest, 16 %
above the first ten seconds, with these at once, within 3 % (`python benchmarks/service.py soak`), at the same rates.
"""

import threading
from collections import OrderedDict

from stream_dr.engine.draft import Draft

BYTES = 32 << 20
"""Bytes of batches held, as sent or as unpacked."""

FULL = 0.5
"""Part of them past which `wait_for_room` waits."""


class Recent:
    """Positions and their drafts, oldest first; thread-safe."""

    def __init__(self, max_bytes: int = BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[int, Draft] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, position: int, draft: Draft) -> None:
        """Hold a draft while there is room."""
        with self._changed:
            if self._bytes + draft.size <= self._max_bytes:
                self._held[position] = draft
                self._bytes += draft.size

    def take(self, after: int, limit: int) -> list[tuple[int, Draft]]:
        """At most `limit` drafts at positions after + 1, after + 2 …, without gap; those before are forgotten. Empty
        when the next one is not held."""
        with self._changed:
            self.forget(after)
            found: list[tuple[int, Draft]] = []
            for position, draft in self._held.items():
                if position != after + 1 + len(found) or len(found) >= limit:
                    break
                found.append((position, draft))
            return found

    def forget(self, until: int) -> None:
        """Let go of the drafts at positions ≤ until."""
        with self._changed:
            while self._held and next(iter(self._held)) <= until:
                self._bytes -= self._held.popitem(last=False)[1].size
            self._changed.notify_all()

    def first(self, otherwise: int) -> int:
        """The oldest position that is held, or `otherwise`."""
        with self._changed:
            return next(iter(self._held), otherwise)

    def wait_for_room(self, seconds: float) -> None:
        """Return once there is room again, after `seconds` at the latest."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes <= FULL * self._max_bytes, seconds)
