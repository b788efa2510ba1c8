"""Buffers: memory that bodies are received into, and received into again once nobody holds them.

Remembered: free pieces of memory, by size, FREE bytes at most. A piece is taken as a view; it is free again when the last
reference to the view, or to anything that points into it, is gone: a parsed batch is a set of views of its body, so it
keeps it.

Cost: a few µs a body. Memory: pages that were never written to take none; sizes are rounded up to GRAIN.

Why this way: bodies of a megabyte are made by the hundred a second in one thread and let go in another, in any order. From
the allocator they left holes that grew for minutes, and pages that were given back to the system to be asked for again.
"""

import ctypes
import functools
import mmap
import weakref
from collections import defaultdict
from typing import Any

GRAIN = 256 << 10
"""Sizes of pieces are multiples of this."""

FREE = 64 << 20
"""Bytes of free memory that are kept."""


class Buffers:
    """A store of memory; thread-safe. most: bytes of free memory kept."""

    def __init__(self, most: int = FREE) -> None:
        self._most = most
        self._free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    @property
    def free(self) -> int:
        """Bytes of free memory that are kept."""
        return sum(room * len(pieces) for room, pieces in list(self._free.items()))  # counted: threads meet here

    def take(self, size: int) -> memoryview:
        """`size` bytes (at least one) to write to, with whatever was in them before."""
        room = -(-size // GRAIN) * GRAIN
        try:
            memory = self._free[room].pop()
        except IndexError:
            memory = mmap.mmap(-1, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        owner = _owner(room).from_buffer(memory)
        weakref.finalize(owner, self._give_back, memory).atexit = False
        return memoryview(owner).cast("B")[:size]

    def _give_back(self, memory: mmap.mmap) -> None:
        if self.free + len(memory) <= self._most:
            self._free[len(memory)].append(memory)


@functools.lru_cache
def _owner(room: int) -> Any:
    """A type of so many bytes; every view of one of its objects keeps the object."""
    return type("Owner", (ctypes.c_char * room,), {})
