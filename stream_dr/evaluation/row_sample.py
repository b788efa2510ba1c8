"""Uniform random sample of the rows of a stream.

Rows may be dense, sparse or rows of a table. The sample stores unprojected rows, so that each new
projection can be applied to the same rows.
"""

from collections.abc import Callable

import numpy as np

from stream_dr.rows.block import Block, Rows
from stream_dr.statistics.reservoir import ReservoirAccumulator


class RowSample:
    """Uniform random sample of the rows of a stream.

    The memory is O(max_rows). Adding a batch takes O(rows of the batch), and O(max_rows) more if
    the batch is a table.

    Parameters
    ----------
    max_rows : int
        Maximum number of rows in the sample.
    seed : int
        Seed of the random numbers.
    """

    def __init__(self, max_rows: int, seed: int) -> None:
        self._reservoir = ReservoirAccumulator(max_rows, seed)

        # Sampled rows of tables: (row numbers, rows) for each batch that has some.
        self._tables: list[tuple[np.ndarray, Rows]] = []

    @property
    def n_features(self) -> int:
        """Number of columns of the rows added so far.

        The number has no meaning for rows of a table.
        """
        return self._reservoir.n_features

    def add(self, block: Block) -> None:
        """Add random rows of a batch to the sample.

        If the sample is full, the rows replace earlier rows. Raises the errors of
        ReservoirAccumulator.add.
        """
        if not block.table:
            self._reservoir.add(block._replace(weights=None))
            return

        # The reservoir cannot store rows of a table. It gets a row of zeros for each of them.
        # `_tables` stores the table's rows whose numbers the reservoir has sampled.
        rows_before = self._reservoir.rows
        self._reservoir.add(Block(np.zeros((block.rows, 1))))
        numbers = self.sampled_row_numbers()
        new = numbers[numbers >= rows_before]
        self._tables.append((new, block.X[new - rows_before]))

    def sampled_row_numbers(self) -> np.ndarray:
        """Return the numbers of the sampled rows, in ascending order.

        The result is (sampled rows,) int64. A row's number is its index in the stream, from 0.
        """
        return self._reservoir.freeze().numbers

    def project_sampled_rows(self, project: Callable[[Rows], Rows]) -> Rows:
        """Return the projected sampled rows (sampled rows, components).

        The rows have the same order as in the stream.
        """
        reservoir = self._reservoir.freeze()
        if not self._tables:
            return project(reservoir.kept)

        # Remove the rows that are no longer in the sample, because newer rows replaced them.
        parts = [(numbers, X, np.isin(numbers, reservoir.numbers)) for numbers, X in self._tables]
        self._tables = [(numbers[in_sample], X[in_sample]) for numbers, X, in_sample in parts if in_sample.any()]
        return np.vstack([project(X) for _, X in self._tables])
