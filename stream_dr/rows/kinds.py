"""Kinds of input rows, such as arrays, texts or frames.

`rows_kind` is called once, by the function to which a caller passes the rows X. The kind is then
passed on with X. Each module decides how it handles each kind.
"""

from collections.abc import Mapping, Sequence, Sized
from enum import StrEnum
from typing import Any

import numpy as np

from stream_dr.rows.block import Block
from stream_dr.rows.interfaces import ArrowArray, ArrowScanner, ArrowStream, ArrowTable, Chunked, DaskCollection, Frame
from stream_dr.rows.raw_rows import is_table
from stream_dr.rows.sparse_rows import is_sparse


class Kind(StrEnum):
    """Kind of the rows X that a caller passes.

    Attributes
    ----------
    BLOCK : a Block
    RAW : columns of a table for a feature map
    ARRAY : an array, a list of rows, or anything else that numpy may convert to an array
    SPARSE : a scipy matrix of any sparse format
    TEXTS : a list of strings, one per row
    DICTS : a list of dicts, one per row
    NUMBERS : a pandas frame of numbers only
    FRAME : a pandas frame with texts, categories or missing values
    TABLE : a table in memory of polars, Arrow or another library that narwhals supports
    COLUMN : a single column of vectors or texts, or an Arrow column of numbers
    STREAM : an Arrow reader, data set or scanner, a LazyFrame or a DuckDB relation, read in
    batches
    DASK_ARRAY : a Dask array
    DASK_FRAME : a Dask dataframe
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
"""Kinds of rows that Dask computes."""

PANDAS = (Kind.NUMBERS, Kind.FRAME, Kind.DASK_FRAME)
"""Kinds of rows with the interface of pandas frames."""

COLUMNAR = (Kind.NUMBERS, Kind.FRAME, Kind.TABLE, Kind.COLUMN, Kind.STREAM)
"""Kinds of rows that can be converted to Arrow columns."""


def rows_kind(X: object) -> Kind:
    """Return the kind of rows, such as array or frame.

    Costs O(1), or O(rows) for lists.
    """
    if isinstance(X, np.ndarray) and X.ndim == 2:
        return Kind.ARRAY
    if isinstance(X, Block):
        return Kind.BLOCK
    if is_table(X):
        return Kind.RAW
    if isinstance(X, np.ndarray | list | tuple):
        return _kind_of_list(X)
    if is_sparse(X):
        return Kind.SPARSE
    if isinstance(X, DaskCollection):
        return Kind.DASK_ARRAY if isinstance(X, Chunked) else Kind.DASK_FRAME
    if isinstance(X, Frame):
        return _kind_of_pandas(X)
    return _kind_of_arrow(X)


def _kind_of_list(X: np.ndarray | Sequence[object]) -> Kind:
    """Return the kind of a list or an array.

    The kind is TEXTS or DICTS if all rows are strings or all rows are dicts. In all other cases,
    the kind is ARRAY.
    """
    if not isinstance(X, np.ndarray) or X.ndim == 1:
        for kind, value in ((Kind.TEXTS, str), (Kind.DICTS, Mapping)):
            if len(X) and all(isinstance(row, value) for row in X):
                return kind
    return Kind.ARRAY


def _kind_of_pandas(X: Any) -> Kind:
    """Return the kind of a pandas frame or series.

    A frame is of the kind NUMBERS if all columns are numbers, and FRAME if not. A series is of the
    kind ARRAY if it has numbers, and COLUMN if not.
    """
    types = [X.dtype] if X.ndim == 1 else list(X.dtypes)
    numeric = all(isinstance(kind, np.dtype) and kind != np.dtype(object) for kind in types)
    # Count sparse columns as numbers.
    # Only if all columns of a pandas frame are sparse, the frame has the attribute `sparse`.
    numeric = numeric or hasattr(X, "sparse")

    if X.ndim == 1:
        return Kind.ARRAY if numeric else Kind.COLUMN
    return Kind.NUMBERS if numeric else Kind.FRAME


def _kind_of_arrow(X: object) -> Kind:
    """Return the kind of an Arrow or other object.

    Tables, streams and columns are objects with Arrow's interface, or objects that narwhals
    supports. All other objects are of the kind ARRAY.
    """
    is_stream = isinstance(X, ArrowStream)
    is_whole = is_stream or isinstance(X, ArrowArray)
    # narwhals would raise an error for a table in which two columns have the same name.
    if is_whole and isinstance(X, ArrowTable):
        return Kind.TABLE
    if isinstance(X, ArrowScanner):
        return Kind.STREAM

    import narwhals

    frame: object = narwhals.from_native(X, pass_through=True, allow_series=True)  # type: ignore[call-overload]
    if isinstance(frame, narwhals.DataFrame):
        return Kind.TABLE
    if isinstance(frame, narwhals.LazyFrame) or (frame is X and is_stream and not isinstance(X, Sized)):
        return Kind.STREAM
    if is_whole or isinstance(frame, narwhals.Series):
        return Kind.COLUMN
    return Kind.ARRAY
