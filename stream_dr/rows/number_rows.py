"""Convert rows of any kind to ndarray or CSR, with column names."""

from collections.abc import Iterable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stream_dr.errors import InvalidRows, NotNumeric
from stream_dr.rows.block import Rows, check_finite
from stream_dr.rows.frames import RowsAndNames, as_table, is_pandas, open_rows, type_name
from stream_dr.rows.matrix import as_matrix
from stream_dr.rows.raw_rows import fill_masked, raise_if_raw_rows, repeated_name_error
from stream_dr.rows.sparse_rows import is_sparse, raise_if_complex, sparse_as_csr


def as_rows(X: Any) -> RowsAndNames:
    """Return rows as ndarray or CSR, with their column names.

    Sparse matrices of any scipy format become CSR. Tables are converted through Arrow. float32
    stays float32, and all other types become float64. A C-ordered array of floats is not copied.
    The names are None unless X is a table with named columns.

    X: rows (rows, features) of any kind except a Block.

    Raises:

    - NotNumeric if values are not numbers.
    - InvalidRows if X is not a table of rows and columns.
    - InvalidIndex for a sparse matrix with invalid index arrays.
    - NotFinite for a value that is NaN, infinite or too large.
    - SchemaMismatch or InvalidRows for columns of a table that were prepared for a feature map.
    """
    X = open_rows(X)
    names = None
    rows: Rows
    if isinstance(X, np.ndarray):
        rows = _as_float_matrix(X)
    elif is_sparse(X):
        rows = sparse_as_csr(X)
    elif is_pandas(X) and all(map(_is_number_type, X.dtypes)):
        # numpy converts a single row of numbers ten times faster than Arrow.
        rows = _as_float_matrix(X.to_numpy())
        names = _column_names(X.columns)
    elif (table := as_table(X)) is not None:
        rows, names = as_matrix(table)
    else:
        raise_if_raw_rows(X)
        rows = _as_float_matrix(X)
    check_finite(rows)
    return RowsAndNames(rows, names)


def _is_number_type(kind: object) -> bool:
    """True for the types of pandas columns that numpy converts to numbers."""
    return (isinstance(kind, np.dtype) and kind.kind in "biufc") or str(kind).startswith("Sparse")


def _as_float_matrix(X: ArrayLike) -> np.ndarray:
    """Return an array or nested lists as floats (rows, features).

    The result is C-ordered. Raises InvalidRows or NotNumeric.
    """
    try:
        array = X if type(X) is np.ndarray else np.asarray(fill_masked(X))
    except ValueError as e:
        raise InvalidRows(f"rows are not a table ({e}); give every row the same number of features.") from e

    # numpy makes an array without dimensions of an object that is no list of rows.
    if array.ndim == 0 and array.dtype.kind in "OSU":
        if isinstance(X, str | PathLike):
            raise NotNumeric(f"X is the text {str(X)[:80]!r}; stream_dr.fit(estimator, path, label=…) reads files.")
        raise NotNumeric(
            f"X is of type {type_name(X)}; pass an array, a scipy sparse matrix, a list of rows, or a pandas, polars or "
            "Arrow table. Batches that come one by one go to partial_fit."
        )
    raise_if_complex(array)
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


def _column_names(columns: Iterable[object]) -> tuple[str, ...] | None:
    """Return the names of a frame's columns, or None.

    A frame counts as having no names if it has no columns, or if a column's name is not a string.
    Raises InvalidRows if two columns have the same name.
    """
    names = tuple(str(name) for name in columns if isinstance(name, str))
    if not names or len(names) < len(list(columns)):
        return None
    if repeated := repeated_name_error(names):
        raise repeated
    return names
