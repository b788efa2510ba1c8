"""number_rows: rows of any kind as numbers, dense or CSR, with their columns' names."""

from os import PathLike
from typing import Any

import numpy as np

from stream_dr.errors import InvalidRows, NotNumeric
from stream_dr.rows.block import Rows, check_finite
from stream_dr.rows.frames import matrix_of, table_of, type_name
from stream_dr.rows.kinds import Kind, kind_of
from stream_dr.rows.raw_rows import refuse_table
from stream_dr.rows.sparse_rows import as_csr, refuse_complex


def as_rows(X: Any) -> tuple[Rows, tuple[str, ...] | None]:
    """Rows (rows, features) as a C-ordered ndarray or CSR, and the columns' names where X is a table of named columns.

    Takes every kind but a Block: any scipy sparse format is converted to CSR once, tables go by way of Arrow; float32
    stays float32, all else becomes float64; a C-ordered float array is not copied. Raises NotNumeric, InvalidRows,
    InvalidIndex or NotFinite, and SchemaMismatch for a table's columns.
    """
    kind = kind_of(X)
    if kind is Kind.SPARSE:
        matrix = as_csr(X)
        check_finite(matrix)
        return matrix, None

    refuse_table(X)
    table = None if kind is Kind.NUMBERS else table_of(X)
    if table is not None:
        array, names = matrix_of(table)
    else:
        names = _names(X)
        array = _matrix(X.to_numpy() if kind is Kind.NUMBERS else X)
    check_finite(array)
    return array, names


def _matrix(X: Any) -> np.ndarray:
    """Array-like X as a C-ordered (rows, features) array of floats."""
    try:
        array = np.asarray(X)
        if array.dtype == object and array.ndim == 1 and all(hasattr(row, "__len__") for row in array):
            array = np.asarray(array.tolist())  # a column of vectors
    except ValueError as e:
        raise InvalidRows(f"rows are not a table ({e}); give every row the same number of features.") from e
    if array.ndim == 0 and array.dtype.kind in "OSU":
        raise _not_taken(X)
    refuse_complex(array)
    if array.dtype not in (np.float32, np.float64):
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as e:
            kind = NotNumeric if isinstance(e, TypeError) else InvalidRows
            raise kind(f"rows of dtype {array.dtype} are not numbers ({e}); pass numeric columns only.") from e
    if array.ndim != 2:
        raise InvalidRows(
            f"Expected 2D array, got {array.ndim}D array instead: rows must be (rows, features). "
            "Reshape your data with X.reshape(1, -1) for one row or X.reshape(-1, 1) for one feature."
        )
    return np.ascontiguousarray(array)


def _not_taken(X: Any) -> NotNumeric:
    """The error that says that X is nothing rows can be made of."""
    if isinstance(X, str | PathLike):
        return NotNumeric(f"X is the text {str(X)[:80]!r}; stream_dr.fit(estimator, path, label=…) reads files.")
    return NotNumeric(
        f"X is of type {type_name(X)}; pass an array, a scipy sparse matrix, a list of rows, or a pandas, polars or Arrow "
        "table. Batches that come one by one go to partial_fit."
    )


def _names(X: Any) -> tuple[str, ...] | None:
    """Column names of a table whose columns are all named by strings. Raises InvalidRows for a name that comes twice."""
    names = getattr(X, "column_names", None)
    if names is None:
        names = getattr(X, "columns", None)
    if names is None or not all(isinstance(n, str) for n in names):
        return None
    if len(set(names)) < len(names):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise InvalidRows(f"two columns are called {twice!r}; give every column a name of its own.")
    return tuple(str(n) for n in names) or None
