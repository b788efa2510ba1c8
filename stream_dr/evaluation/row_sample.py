"""row_sample: a uniform sample of rows as they came (dense, sparse, a table's), to be projected by every new projection."""

from typing import Any

import numpy as np

from stream_dr.rows.block import Block, Rows
from stream_dr.statistics.reservoir import ReservoirAccumulator


class RowSample:
    """capacity: most rows kept. seed: of the draws. O(capacity) memory, O(1) a row, and O(capacity) a batch of a table."""

    def __init__(self, capacity: int, seed: int) -> None:
        self._drawn = ReservoirAccumulator(capacity, seed)
        self._tables: list[tuple[np.ndarray, Rows]] = []

    @property
    def n_features(self) -> int:
        """Width of the rows so far; of a table's nothing is known."""
        return self._drawn.n_features

    def add(self, block: Block) -> None:
        """Offer a batch's rows. Raises as ReservoirAccumulator.add."""
        if not block.table:
            self._drawn.add(block._replace(weights=None))
            return
        before = self._drawn.rows
        self._drawn.add(Block(np.zeros((block.rows, 1))))  # which rows are drawn depends on their numbers alone
        drawn = self.numbers()
        new = drawn[drawn >= before]
        self._tables.append((new, block.X[new - before]))

    def numbers(self) -> np.ndarray:
        """(kept,) int64: the kept rows' numbers in the stream, ascending."""
        return self._drawn.freeze().numbers

    def projected(self, projection: Any) -> Rows:
        """(kept, components): the kept rows through a projection, in the order of their numbers."""
        kept = self._drawn.freeze()
        if not self._tables:
            found: Rows = projection.apply(kept.kept)
            return found
        there = [(numbers, X, np.isin(numbers, kept.numbers)) for numbers, X in self._tables]
        self._tables = [(numbers[mine], X[mine]) for numbers, X, mine in there if mine.any()]
        return np.vstack([projection.apply(X) for _, X in self._tables])
