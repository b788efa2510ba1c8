"""Types of rows, targets and weights that callers may pass.

`stream_dr/batch/rows.py` finds out which of these types a value has.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from stream_dr.batch.block import Block
from stream_dr.batch.rows import ArrowStream, LazyBatches, Source
from stream_dr.batch.targets import Targets

TableLike = ArrowStream | LazyBatches
"""Table with named columns, complete or batch by batch."""

RowsLike: TypeAlias = ArrayLike | Sequence[Mapping[str, object]] | sp.sparray | sp.spmatrix | TableLike | Block
"""Rows (rows, features) that callers may pass.

Rows may be arrays, sparse matrices, tables, lists of dicts or texts, streams of tables, or Dask
collections.
"""

TargetsLike = ArrayLike | Sequence[object] | Targets | TableLike | None
"""Targets, one for each row, or the name of the table column that has the targets, or None."""

WeightsLike = ArrayLike | TableLike | None
"""Weights (rows,), each at least 0. None means a weight of 1 for each row."""

GroupsLike = Sequence[object] | np.ndarray | None
"""Group (rows,) of each row, such as a person's name. None if rows have no groups."""

RefineSource = Source | Iterable[tuple[RowsLike, TargetsLike] | tuple[RowsLike, TargetsLike, WeightsLike]]
"""Rows that were learned before and are read again by `refine`.

The value is a source of events (an object with a method `events`), or an iterable of batches
(X, y) or (X, y, weights).
"""
