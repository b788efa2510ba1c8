"""Types of the rows, targets and weights that callers may pass.

`stream_dr/rows/kinds.py` decides which of them a value is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import scipy.sparse as sp
from numpy.typing import ArrayLike

from stream_dr.rows.block import Block
from stream_dr.rows.interfaces import ArrowScanner, ArrowStream, DaskCollection, LazyBatches
from stream_dr.rows.source import Source
from stream_dr.targets.targets import Targets

TableLike = ArrowStream | ArrowScanner | LazyBatches
"""A table with named columns, whole or batch by batch."""

RowsLike: TypeAlias = (
    ArrayLike | Sequence[Mapping[str, object]] | sp.sparray | sp.spmatrix | TableLike | DaskCollection | Block
)
"""Rows (rows, features) as callers may pass them.

They are arrays, sparse matrices, tables, lists of dicts or texts, streams of tables, or Dask
collections.
"""

TargetsLike = ArrayLike | Sequence[object] | Targets | TableLike | DaskCollection | None
"""One target a row, or the name of the table's column of targets, or None."""

WeightsLike = ArrayLike | TableLike | DaskCollection | None
"""Weights (rows,), each at least 0, or None for 1 each."""

RefineSource = Source | Iterable[tuple[RowsLike, TargetsLike] | tuple[RowsLike, TargetsLike, WeightsLike]]
"""Rows learned before, to be read again.

They are a source of events, or (X, y) or (X, y, weights) of each batch.
"""
