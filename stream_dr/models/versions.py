"""Versions: the projections that a model published lately, by number."""

from collections import deque
from typing import NamedTuple, cast

import numpy as np

from stream_dr.projection import Columns, Linear, Mapped, Orientable, Projection, linear_part
from stream_dr.readout import Readout
from stream_dr.solve.orientation import feature_places, least_squares_map, move_rows

MOST_BYTES = 64 << 20
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
    """The last published projections, in memory.

    most: largest number of projections.
    most_bytes: largest number of bytes of their arrays. The newest two may take more.

    One thread at a time adds. All threads may read.
    """

    def __init__(self, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._published: deque[Published] = deque(maxlen=most)
        self._most_bytes = most_bytes

    def add(self, published: Published) -> None:
        """Add a projection, and drop the oldest ones if there are too many."""
        self._published.append(published)
        while len(self._published) > 2 and sum(_array_bytes(p.projection) for p in self._published) > self._most_bytes:
            self._published.popleft()

    def find(self, number: int) -> Published | None:
        """Return the projection of that version, or None."""
        return next((published for published in tuple(self._published) if published.version == number), None)

    @property
    def numbers(self) -> list[int]:
        """Versions that can be found, oldest first."""
        return [published.version for published in tuple(self._published)]


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
