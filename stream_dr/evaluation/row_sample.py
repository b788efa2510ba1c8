"""Uniform sample of the rows of a stream, to which later projections are applied.

Rows may be dense, sparse or rows of a table. They are stored without projection, so that each new
projection can be applied to the same rows.
"""

from typing import Protocol

import numpy as np

from stream_dr.rows.block import Block, Rows
from stream_dr.statistics.reservoir import ReservoirAccumulator


class RowMap(Protocol):
    """Map of rows to projected rows, such as a Projection."""

    def apply(self, X: Rows) -> Rows:
        """Return the projections (rows, components) of rows (rows, features)."""
        ...


class RowSample:
    """Uniform sample of the rows of a stream.

    Memory is O(capacity). To add a row costs O(1). To add a batch of a table costs O(capacity) in
    addition.

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
        """Number of columns of the rows so far. Not meaningful for rows of a table."""
        return self._reservoir.n_features

    def add(self, block: Block) -> None:
        """Draw rows of a batch into the sample.

        Raises the errors of ReservoirAccumulator.add.
        """
        if not block.table:
            self._reservoir.add(block._replace(weights=None))
            return

        # The reservoir cannot store the rows of a table, so it draws from rows of zeros instead.
        # The table's rows with the drawn numbers are stored here.
        rows_before = self._reservoir.rows
        self._reservoir.add(Block(np.zeros((block.rows, 1))))
        numbers = self.numbers()
        new = numbers[numbers >= rows_before]
        self._tables.append((new, block.X[new - rows_before]))

    def numbers(self) -> np.ndarray:
        """Return the numbers of the sampled rows, as int64 (sampled rows,).

        A number is the index of a row in the stream. Numbers ascend.
        """
        return self._reservoir.freeze().numbers

    def projected(self, projection: RowMap) -> Rows:
        """Return the projections (sampled rows, components) of the sampled rows.

        The order is that of the stream.
        """
        reservoir = self._reservoir.freeze()
        if not self._tables:
            return projection.apply(reservoir.kept)

        # The reservoir may have replaced some rows since they were drawn. These are removed here.
        parts = [(numbers, X, np.isin(numbers, reservoir.numbers)) for numbers, X in self._tables]
        self._tables = [(numbers[in_sample], X[in_sample]) for numbers, X, in_sample in parts if in_sample.any()]
        return np.vstack([projection.apply(X) for _, X in self._tables])
