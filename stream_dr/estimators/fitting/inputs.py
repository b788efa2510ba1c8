"""Types of the rows, targets and weights that callers may pass.

`stream_dr/rows/kinds.py` decides which of them a value is. The protocols name the interface by which a library's
tables are recognised, so that no such library is imported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import scipy.sparse as sp
from numpy.typing import ArrayLike

from stream_dr.rows.block import Block
from stream_dr.targets.targets import Targets


class ArrowStream(Protocol):
    """A table, or a stream of tables: pandas, polars, DuckDB, Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of Arrow's C stream interface."""
        ...


class ArrowScanner(Protocol):
    """A data set or scanner of Arrow, read batch by batch."""

    def to_batches(self) -> object:
        """Return an iterator over record batches."""
        ...


class LazyFrame(Protocol):
    """A lazy frame of polars, read batch by batch."""

    def collect_batches(self) -> object:
        """Return an iterator over frames."""
        ...


class DaskCollection(Protocol):
    """An array or dataframe of Dask."""

    def __dask_graph__(self) -> object:
        """Return the graph of its tasks."""
        ...


class EventSource(Protocol):
    """A stream that can be read again, such as a log, a data set or an iterable of batches."""

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) of the events after `after` and up to `until`."""
        ...


TableLike = ArrowStream | ArrowScanner | LazyFrame
"""A table with named columns, whole or batch by batch."""

RowsLike: TypeAlias = (
    ArrayLike | Sequence[Mapping[str, object]] | sp.sparray | sp.spmatrix | TableLike | DaskCollection | Block
)
"""Rows (rows, features) as callers may pass them: arrays, sparse matrices, tables, lists of dicts or
texts, streams of tables, Dask collections."""

TargetsLike = ArrayLike | Sequence[object] | Targets | TableLike | DaskCollection | None
"""One target a row, or the name of the table's column of targets, or None."""

WeightsLike = ArrayLike | TableLike | DaskCollection | None
"""Weights (rows,), each at least 0, or None for 1 each."""

RefineSource = EventSource | Iterable[tuple[RowsLike, TargetsLike] | tuple[RowsLike, TargetsLike, WeightsLike]]
"""Rows learned before, to be read again: a source of events, or (X, y) or (X, y, weights) of each batch."""
