"""Versions: the projections that a model published lately, by number.

The newest two are in memory. Arrays of older ones are appended to unlinked files, each mapped
once. A file is freed with the last array that uses it, or with the process. Its pages are page
cache, which the kernel may write out and evict. 32 projections of 47,236 features and 10
components take 120 MB that hardly anyone reads. In memory they would make a service grow as long
as it publishes.

Nothing in a file is ever overwritten, so a reader of an old projection can go on. If a file cannot
be written, the projection is dropped: a full disk must not keep a model from publishing.

Cost: one copy of each projection into the page cache when the second after it is added, and a
descriptor for each 64 MiB.
"""

import logging
import mmap
import os
import tempfile
import weakref
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from stream_dr.projection import Columns, Linear, Mapped, Orientable, Projection, linear_part
from stream_dr.readout import Readout
from stream_dr.solve.orientation import feature_places, least_squares_map, move_rows

log = logging.getLogger("stream_dr.versions")

LEAST_BYTES = 1 << 16
"""Size in bytes below which arrays stay in memory."""

FILE_BYTES = 64 << 20
"""Size of a file in bytes. When it is full another one follows.

A file is larger if an array needs it.
"""

MOST_BYTES = 256 << 20
"""Number of bytes for each model past which older versions are dropped.

The newest two always stay.
"""


class Change(NamedTuple):
    """Linear map from one projection's output to another's: z_new ≈ z_old · map + offset.

    map: (p_old, p_new) float64, by least squares.
    offset: (p_new,) float64.
    residual: ‖L_old · map − L_new‖ / ‖L_new‖. 0 means the same subspace, 1 nothing in common.
    """

    map: np.ndarray
    offset: np.ndarray
    residual: float


class Published(NamedTuple):
    """Projection as readers see it.

    version: number that ascends and is never used twice, also across restarts.
    position: last event that it includes.
    rows: number of rows that it includes.
    change: change from the version before it, or None.
    refined_at, residual: position and residual of a refined solution, or None.
    """

    version: int
    position: int
    projection: Projection
    rows: int = 0
    change: Change | None = None
    refined_at: int | None = None
    residual: float | None = None

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues (components,). Empty if the projection selects columns."""
        inner = self.projection.inner if isinstance(self.projection, Mapped) else self.projection
        return np.zeros(0) if isinstance(inner, Columns) else cast(Orientable, inner).eigenvalues

    @property
    def readout(self) -> Readout | None:
        """Prediction from the components, or None."""
        linear = linear_part(self.projection)
        return None if linear is None else linear.readout


class Versions:
    """The last published projections, at most `most`.

    folder: path of the folder for older ones. None keeps them in memory.
    file_bytes: size of a file in the folder, unless one array is larger.

    One thread at a time adds. All threads may read.
    """

    def __init__(self, most: int, folder: Path | None = None, file_bytes: int = FILE_BYTES) -> None:
        self._file_bytes = file_bytes
        self._folder = folder
        self._published: deque[Published] = deque(maxlen=most)
        self._file: _File | None = None

    def add(self, published: Published) -> None:
        """Add a Published. The one before the newest two moves to the file."""
        self._published.append(published)
        if self._folder is not None and len(self._published) > 2:
            self._move_to_file(len(self._published) - 3)

        while len(self._published) > 2 and sum(_array_bytes(p.projection) for p in self._published) > MOST_BYTES:
            self._published.popleft()

    def find(self, number: int) -> Published | None:
        """Return the Published of that version, or None."""
        return next((published for published in tuple(self._published) if published.version == number), None)

    @property
    def numbers(self) -> list[int]:
        """Versions that can be found, oldest first."""
        return [published.version for published in tuple(self._published)]

    def _move_to_file(self, at: int) -> None:
        """Move the arrays of a Published to the file, or drop it if that fails."""
        older = self._published[at]
        try:
            self._published[at] = older._replace(projection=self._in_file(older.projection))
        except OSError as e:
            log.warning("version %d is let go, there is no file for it: %s", older.version, e)
            del self._published[at]

    def _in_file(self, value: Any) -> Any:
        """Return the same nested NamedTuple with its large arrays in the file, read-only."""
        if isinstance(value, np.ndarray):
            return self._append_to_file(np.ascontiguousarray(value)) if value.nbytes >= LEAST_BYTES else value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._in_file, value))
        return value

    def _append_to_file(self, array: np.ndarray) -> np.ndarray:
        """Return an array's copy in the file."""
        if self._file is None or self._file.free_bytes < array.nbytes:
            self._file = _File(self._folder, max(self._file_bytes, array.nbytes))
        return self._file.append(array)


class _File:
    """File without a name, mapped as a whole.

    free_bytes: number of bytes that are free.
    """

    def __init__(self, folder: Path | None, size: int) -> None:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.truncate(size)
            self._pages = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._used = 0
        self.free_bytes = size

    def append(self, array: np.ndarray) -> np.ndarray:
        """Return an array's copy in the file.

        Each array takes a multiple of 64 bytes, so that the next one is aligned.
        """
        data = array.reshape(-1).view(np.uint8).data
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], self._used + written)
        copy = np.frombuffer(self._pages, array.dtype, array.size, self._used).reshape(array.shape)
        self._used += -(-array.nbytes // 64) * 64
        self.free_bytes = max(0, len(self._pages) - self._used)
        return copy


def _array_bytes(value: object) -> int:
    """Return the number of bytes of the arrays in a nested tuple."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(_array_bytes, value)) if isinstance(value, tuple) else 0


def projection_change(old: Projection, new: Projection) -> Change | None:
    """Return the Change from one projection to another.

    None if a projection is not linear.
    """
    before, after = linear_part(old), linear_part(new)
    if before is None or after is None:
        return None
    columns = feature_places(old, new)
    map_, residual = least_squares_map(move_rows(before.loadings, columns), after.loadings)
    shift = _mean_at(before, columns, len(after.mean)) - after.mean
    return Change(map_, shift @ after.loadings, residual)


def _mean_at(projection: Linear, at: np.ndarray, width: int) -> np.ndarray:
    """Return a projection's mean with its columns moved to their places.

    at: (columns,) place of each column. Columns past `width`, and columns that are gone, are left
    out.
    """
    wide = np.zeros(width)
    moved = move_rows(projection.mean, at[: len(projection.mean)])[:width]
    wide[: len(moved)] = moved
    return wide
