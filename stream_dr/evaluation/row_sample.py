"""A uniform sample of rows, for projections solved later.

Rows may be dense, sparse or a table's. They are stored unprojected, so that every new projection
can be applied to the same rows.
"""

from typing import Protocol

import numpy as np

from stream_dr.rows.block import Block, Rows
from stream_dr.statistics.reservoir import ReservoirAccumulator


class RowMap(Protocol):
    """A map of rows, such as a Projection."""

    def apply(self, X: Rows) -> Rows:
        """Map rows (rows, features) to rows (rows, components)."""
        ...


class RowSample:
    """Uniform sample of the rows of a stream.

    Memory is O(capacity). A row costs O(1), and a batch of a table O(capacity) in addition.

    Parameters
    ----------
    capacity : int
        Maximum number of rows in the sample.
    seed : int
        Seed of the draws.
    """

    def __init__(self, capacity: int, seed: int) -> None:
        self._reservoir = ReservoirAccumulator(capacity, seed)
        self._tables: list[tuple[np.ndarray, Rows]] = []

    @property
    def n_features(self) -> int:
        """Width of the rows so far. It says nothing about a table's."""
        return self._reservoir.n_features

    def add(self, block: Block) -> None:
        """Offer the rows of a batch to the sample.

        Raises the errors of ReservoirAccumulator.add.
        """
        if not block.table:
            self._reservoir.add(block._replace(weights=None))
            return

        # The reservoir cannot store a table's rows. It draws by their numbers alone, so it gets
        # rows of zeros, and the drawn rows of the table are stored here.
        rows_before = self._reservoir.rows
        self._reservoir.add(Block(np.zeros((block.rows, 1))))
        numbers = self.numbers()
        new = numbers[numbers >= rows_before]
        self._tables.append((new, block.X[new - rows_before]))

    def numbers(self) -> np.ndarray:
        """Return the numbers (sampled rows,) int64 of the rows in the stream, ascending."""
        return self._reservoir.freeze().numbers

    def projected(self, projection: RowMap) -> Rows:
        """Return the sampled rows (sampled rows, components) through a projection.

        They are in the order of their numbers.
        """
        reservoir = self._reservoir.freeze()
        if not self._tables:
            return projection.apply(reservoir.kept)

        # Rows of tables that the reservoir has replaced since are dropped here.
        parts = [(numbers, X, np.isin(numbers, reservoir.numbers)) for numbers, X in self._tables]
        self._tables = [(numbers[in_sample], X[in_sample]) for numbers, X, in_sample in parts if in_sample.any()]
        return np.vstack([projection.apply(X) for _, X in self._tables])
