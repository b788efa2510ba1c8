"""kinds: what X is, decided in one place; what is done with rows of each kind is decided where it is done."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from stream_dr.rows.block import Block
from stream_dr.rows.raw_rows import RawRows
from stream_dr.rows.sparse_rows import is_sparse


class Kind(StrEnum):
    """What rows come as.

    RAW: a table's columns, as a Block holds them for a feature map. ARRAY: an array, a list of rows, or whatever else numpy
    may make an array of. SPARSE: a scipy matrix of any sparse format. TEXTS, DICTS: a list of them, one a row. NUMBERS: a
    pandas frame that numpy reads by itself. FRAME: a pandas frame of texts, categories or gaps. TABLE: another library's,
    held whole: polars, Arrow, and what narwhals knows. COLUMN: of vectors, texts or Arrow's numbers. STREAM: Arrow readers,
    data sets and scanners, LazyFrames, DuckDB relations, whose rows are handed over batch by batch.
    """

    BLOCK = "Block"
    RAW = "raw rows"
    ARRAY = "array"
    SPARSE = "sparse matrix"
    TEXTS = "texts"
    DICTS = "dicts"
    NUMBERS = "frame of numbers"
    FRAME = "frame"
    TABLE = "table"
    COLUMN = "column"
    STREAM = "stream of tables"
    DASK_ARRAY = "Dask array"
    DASK_FRAME = "Dask dataframe"


DASK = (Kind.DASK_ARRAY, Kind.DASK_FRAME)
"""Collections whose blocks Dask computes."""

PANDAS = (Kind.NUMBERS, Kind.FRAME, Kind.DASK_FRAME)
"""Frames that have pandas' own interface."""

COLUMNAR = (Kind.NUMBERS, Kind.FRAME, Kind.TABLE, Kind.COLUMN, Kind.STREAM)
"""What Arrow can hold as columns, whatever these are of."""


def kind_of(X: Any) -> Kind:
    """What X is. O(1); of lists O(rows)."""
    if isinstance(X, Block):
        return Kind.BLOCK
    if isinstance(X, RawRows):
        return Kind.RAW
    if isinstance(X, np.ndarray | list | tuple):
        return _of_rows(X)
    if is_sparse(X):
        return Kind.SPARSE
    if hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed"):
        return Kind.DASK_ARRAY if hasattr(X, "chunks") else Kind.DASK_FRAME
    return _of_pandas(X) if hasattr(X, "iloc") else _of_arrow(X)


def _of_rows(X: Any) -> Kind:
    if not isinstance(X, np.ndarray) or X.ndim == 1:
        for kind, value in ((Kind.TEXTS, str), (Kind.DICTS, Mapping)):
            if len(X) and all(isinstance(row, value) for row in X):
                return kind
    return Kind.ARRAY


def _of_pandas(X: Any) -> Kind:
    types = [X.dtype] if X.ndim == 1 else list(X.dtypes)
    numbers = all(isinstance(kind, np.dtype) and kind != np.dtype(object) for kind in types) or hasattr(X, "sparse")
    if X.ndim == 1:
        return Kind.ARRAY if numbers else Kind.COLUMN
    return Kind.NUMBERS if numbers else Kind.FRAME


def _of_arrow(X: Any) -> Kind:
    """What X is that offers Arrow's interface, or that narwhals knows."""
    stream = hasattr(X, "__arrow_c_stream__")
    whole = stream or hasattr(X, "__arrow_c_array__")
    if whole and hasattr(X, "num_columns"):  # Arrow's own, in which two columns may have one name
        return Kind.TABLE
    if hasattr(X, "to_batches") and hasattr(X, "count_rows"):  # an Arrow data set or scanner
        return Kind.STREAM
    import narwhals

    known = narwhals.from_native(X, pass_through=True, allow_series=True)
    if isinstance(known, narwhals.DataFrame):
        return Kind.TABLE
    if isinstance(known, narwhals.LazyFrame) or (known is X and stream and not hasattr(X, "__len__")):
        return Kind.STREAM
    return Kind.COLUMN if whole or isinstance(known, narwhals.Series) else Kind.ARRAY
