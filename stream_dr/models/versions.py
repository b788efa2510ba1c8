"""Versions: the projections a model has published lately, by number; the newest two in memory, older ones in
mapped files.

Arrays of older versions are appended to an unlinked file, mapped once; it is freed with the last array that uses it, or with
the process. Their pages are page cache, which the kernel may write out and evict. Nothing in a file is ever
overwritten, so whoever still holds an old projection goes on reading it.

Cost: one copy of each projection into the page cache when the second after it comes, a descriptor
for every 64 MiB, and no anonymous memory beyond the newest two, however many are kept.

Why this way: 32 projections of 47,236 features and 10 components are 120 MB that hardly anybody asks for; held in memory
they made a service grow for as long as it took to publish 32 times. Where the file cannot be written the older projection is
let go: it is a convenience, and a full disk must not keep a model from publishing.
"""

import logging
import mmap
import os
import tempfile
import weakref
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stream_dr.projection import Projection
from stream_dr.solve.orientation import alignment, placed, places

log = logging.getLogger("stream_dr.versions")

LEAST_BYTES = 1 << 16
"""Smaller arrays stay in memory."""

FILE_BYTES = 64 << 20
"""Length of a file; one that has no room left is followed by another, longer if an array needs it."""

MOST_BYTES = 256 << 20
"""Older versions are let go past this many bytes a model, whatever number is to be kept; the newest two always stay."""


class Change(NamedTuple):
    """What leads from one projection to another: z_new ≈ z_old · map + offset.

    map: (p_old, p_new) float64, least squares. offset: (p_new,) float64. residual: ‖L_old · map − L_new‖ / ‖L_new‖ (0:
    the same subspace, 1: nothing in common).
    """

    map: np.ndarray
    offset: np.ndarray
    residual: float


class Published(NamedTuple):
    """A projection as readers see it.

    version: ascending, never used twice, also across restarts. position: last event it includes. rows: rows it
    includes. change: from the version before it, or None. refined_at, residual: position and residual of a refined
    solution, or None.
    """

    version: int
    position: int
    projection: Projection
    rows: int = 0
    change: Change | None = None
    refined_at: int | None = None
    residual: float | None = None


class Versions:
    """At most `most` published projections. folder: where older ones are written; None: they stay in memory.

    One thread adds at a time; any thread reads.
    """

    def __init__(self, most: int, folder: Path | None = None) -> None:
        self._folder = folder
        self._kept: deque[Published] = deque(maxlen=most)
        self._file: _File | None = None

    def add(self, published: Published) -> None:
        """Keep a Published; the one before the newest two goes to the file."""
        self._kept.append(published)
        if self._folder is not None and len(self._kept) > 2:
            self._put_away(len(self._kept) - 3)
        while len(self._kept) > 2 and sum(_bytes(kept.projection) for kept in self._kept) > MOST_BYTES:
            self._kept.popleft()

    def find(self, number: int) -> Published | None:
        """The Published of that version, or None."""
        return next((kept for kept in tuple(self._kept) if kept.version == number), None)

    @property
    def numbers(self) -> list[int]:
        """The versions that are kept, oldest first."""
        return [kept.version for kept in tuple(self._kept)]

    def _put_away(self, at: int) -> None:
        older = self._kept[at]
        try:
            self._kept[at] = older._replace(projection=self._in_file(older.projection))
        except OSError as e:
            log.warning("version %d is let go, there is no file for it: %s", older.version, e)
            del self._kept[at]

    def _in_file(self, value: Any) -> Any:
        """The same nested NamedTuple with its large arrays in the file, read-only."""
        if isinstance(value, np.ndarray):
            return self._written(np.ascontiguousarray(value)) if value.nbytes >= LEAST_BYTES else value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._in_file, value))
        return value

    def _written(self, array: np.ndarray) -> np.ndarray:
        if self._file is None or self._file.left < array.nbytes:
            self._file = _File(self._folder, max(FILE_BYTES, array.nbytes))
        return self._file.append(array)


class _File:
    """A file without a name, mapped whole; `left` bytes of it are free."""

    def __init__(self, folder: Path | None, size: int) -> None:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.truncate(size)
            self._pages = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._used, self.left = 0, size

    def append(self, array: np.ndarray) -> np.ndarray:
        """The array's copy in the file; what is left shrinks by it and what aligns the next one."""
        data, written = array.reshape(-1).view(np.uint8).data, 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], self._used + written)
        found = np.frombuffer(self._pages, array.dtype, array.size, self._used).reshape(array.shape)
        self._used += -(-array.nbytes // 64) * 64
        self.left = max(0, len(self._pages) - self._used)
        return found


def _bytes(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(_bytes, value)) if isinstance(value, tuple) else 0


def change(old: Projection, new: Projection) -> Change | None:
    """What leads from old's answers to new's; None where a projection is not linear."""
    before, after = getattr(old, "loadings", None), getattr(new, "loadings", None)
    if before is None or after is None:
        return None
    at = places(old, new)
    found, residual = alignment(placed(before, at), after)
    shift = _mean(old, at, len(after)) - _mean(new, np.arange(len(after)), len(after))
    return Change(found, shift @ after, residual)


def _mean(projection: Projection, at: np.ndarray, width: int) -> np.ndarray:
    """A projection's mean with its columns at their places (columns,), up to the width; but for columns that are gone."""
    mean = getattr(projection, "mean", np.zeros(0))
    wide = np.zeros(width)
    there = placed(mean, at[: len(mean)])[:width]
    wide[: len(there)] = there
    return wide
