"""Convert scipy's sparse matrices, and arrays of indices, to safe CSR matrices.

Compiled loops use the indices of a safe CSR matrix without a check. Costs two passes over the
indices. Rows are copied only if their indices are not sorted, or if the matrix is not CSR.
"""

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from stream_dr.errors import InvalidIndex, InvalidRows

if TYPE_CHECKING:
    import scipy.sparse as sp


# scipy does not check index arrays: with an invalid index, its conversions read out of bounds.
# The functions below check the indices before scipy converts a matrix.


# Sparse rows become a CSR matrix, whose column indices are int32.
MAX_WIDTH = 2**31 - 1
"""Maximum number of columns of sparse rows."""


def is_sparse(X: object) -> bool:
    """True if X is a scipy sparse matrix or array.

    Costs O(1).
    """
    if isinstance(X, np.ndarray):
        return False
    # If scipy.sparse is not loaded, X cannot be sparse. Loading it here would take time.
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and bool(loaded.issparse(X))


def sparse_as_csr(X: Any) -> "sp.csr_matrix":
    """Return a scipy matrix as CSR of floats.

    The values are float32 or float64. The indices of each row of the result are sorted and
    distinct. Values of equal index are summed. The caller's matrix is not changed.

    X: sparse matrix of any scipy format.

    Raises InvalidIndex if the index arrays are not valid. Raises InvalidRows for complex numbers,
    or if X does not have two dimensions.
    """
    raise_if_complex(X)
    if X.ndim != 2:
        raise InvalidRows(f"Expected 2D array, got {X.ndim}D sparse array instead: rows must be (rows, features).")

    matrix = X
    if X.format != "csr":
        matrix = _convert_to_csr(X)
    # `canonical` is True if the indices of each row are sorted and distinct. Invalid indices raise
    # an error here.
    canonical = has_canonical_indices(matrix, matrix.shape, "row")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    # A copy is changed, because `sum_duplicates` sorts and sums in place.
    if not canonical:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def stored_row_fields(rows: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return rows as the three arrays that a State stores.

    A State is what an estimator has learned, as arrays. The three arrays are `values`, `indices`
    and `indptr` of the CSR form. If the rows are dense, `values` has the rows themselves, and
    `indices` and `indptr` are None. `rows_from_fields` does the reverse.

    rows: (rows, columns), dense or CSR.
    """
    if not is_sparse(rows):
        return np.ascontiguousarray(rows), None, None
    return rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64)


def rows_from_fields(values: np.ndarray, indices: np.ndarray | None, indptr: np.ndarray | None, n_columns: int) -> Any:
    """Return a matrix of rows from the three arrays that a State stores.

    The matrix is CSR, or dense if `indices` and `indptr` are None.

    values: the rows, or the values of the CSR matrix.
    indices: column indices of the CSR matrix. None if the rows are dense.
    indptr: offsets of the rows of the CSR matrix. None if the rows are dense.
    n_columns: number of columns of a CSR matrix. Not used for dense rows.
    """
    if indices is None or indptr is None:
        return values
    # scipy is imported here, so that a client that sends dense rows need not load scipy.
    import scipy.sparse as sp

    return sp.csr_matrix((values, indices, indptr), shape=(len(indptr) - 1, n_columns))


def sparse_rows_to_dicts(X: Any) -> list[dict[str, list[Any]]]:
    """Return the rows of a CSR matrix as dicts of `indices` and `values`, for JSON."""
    rows = []
    for start, end in pairwise(X.indptr.tolist()):
        indices = X.indices[start:end].tolist()
        values = X.data[start:end].tolist()
        rows.append({"indices": indices, "values": values})
    return rows


def pad_with_zero_columns(X: Any, n_columns: int) -> Any:
    """Return rows X with columns of zeros added.

    X: dense or CSR.
    n_columns: number of columns of the returned rows.
    """
    if X.shape[1] == n_columns:
        return X
    if not is_sparse(X):
        return np.pad(X, ((0, 0), (0, n_columns - X.shape[1])))
    return rows_from_fields(X.data, X.indices, X.indptr, n_columns)


def stack_rows(upper: Any, lower: Any, n_columns: int) -> Any:
    """Return the rows of `upper`, then those of `lower`, as float64.

    The result is CSR if `upper` is CSR.

    n_columns: number of columns of the result. The columns that rows lack are zeros.
    """
    import scipy.sparse as sp

    # Convert `lower` to the form of `upper`, dense or CSR.
    if is_sparse(upper):
        lower = sp.csr_matrix(lower)
    elif is_sparse(lower):
        lower = lower.toarray()
    upper = pad_with_zero_columns(upper, n_columns)
    lower = pad_with_zero_columns(lower, n_columns)
    if is_sparse(upper):
        return sp.vstack([upper, lower], format="csr", dtype=np.float64)
    return np.vstack([upper, lower], dtype=np.float64)


def row_of_entry(indptr: np.ndarray, entry: int) -> int:
    """Return the row of an entry, in an array with the entries of all rows.

    indptr: (rows + 1,). Row i has the entries from indptr[i] up to indptr[i + 1].
    """
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def raise_if_complex(X: Any) -> None:
    """Raise InvalidRows if an array, dense or sparse, has complex numbers."""
    if X.dtype.kind == "c":
        raise InvalidRows(
            "Complex data not supported: rows are complex numbers; pass real and imaginary parts as columns."
        )


def _convert_to_csr(X: Any) -> "sp.csr_matrix":
    """Return a matrix of another sparse format as CSR.

    The indices are checked before the conversion. Raises InvalidIndex if the index arrays are not
    valid.
    """
    # The results of `has_canonical_indices` are not used: it is called for the error that it
    # raises. In CSC, columns take the place of rows, so the shape is reversed. BSR has indices of
    # blocks. Other formats are converted to COO, which has a row index and a column index for each
    # value.
    if X.format == "csc":
        has_canonical_indices(X, X.shape[::-1], "column")
    elif X.format == "bsr":
        blocks = (X.shape[0] // X.blocksize[0], X.shape[1] // X.blocksize[1])
        has_canonical_indices(X, blocks, "row of blocks")
    else:
        X = X.tocoo()
        if not len(X.row) == len(X.col) == len(X.data):
            raise InvalidIndex(f"{len(X.data)} values have {len(X.row)} rows and {len(X.col)} columns; give one each.")
        _refuse_outside_coo(X.row, X.shape[0], "row")
        _refuse_outside_coo(X.col, X.shape[1], "column")
    return X.tocsr()


def _refuse_outside_coo(indices: np.ndarray, limit: int, axis_word: str) -> None:
    """Raise InvalidIndex for an index below 0, or not below `limit`."""
    # indices: (entries,), row index or column index of each entry.
    # axis_word: word for the axis, in the error message.
    outside = indices[(indices < 0) | (indices >= limit)]
    if len(outside):
        raise InvalidIndex(f"an entry has the {axis_word} {outside[0]}; it must be from 0 to {limit - 1}.")


def has_canonical_indices(X: Any, shape: tuple[int, int], row_word: str) -> bool:
    """True if every row's indices are sorted and distinct.

    For a CSC matrix, a row here is a column of the matrix. Raises InvalidIndex if the index arrays
    are not valid. If an index is out of range, the error names the row and the index.

    X: CSR, CSC or BSR matrix.
    shape: number of rows, and number that every index must be below.
    row_word: word for a row in error messages.
    """
    indptr = X.indptr
    indices = X.indices
    if indptr.dtype.kind != "i" or indices.dtype.kind != "i" or len(indptr) != shape[0] + 1:
        raise InvalidIndex(f"indptr must be {shape[0] + 1} integers, and indices integers; make the matrix anew.")

    # Row i has the indices from indptr[i] up to indptr[i + 1], so indptr must not decrease.
    # For single rows, a ufunc's `reduce` is faster than the methods any, max and all.
    n_values = min(len(X.data), len(indices))
    if indptr[0] != 0 or indptr[-1] > n_values or np.logical_or.reduce(indptr[1:] < indptr[:-1]):
        raise InvalidIndex(
            f"ends of {row_word}s (indptr) must begin at 0, not fall, and stay within the {n_values} entries."
        )

    used = indices[: indptr[-1]]
    _refuse_outside(used, indptr, shape[1], row_word)

    # Compare each index with the next index, also across the ends of rows.
    # Then overwrite the results of the comparisons across ends by True.
    ascends = used[1:] > used[:-1]
    if shape[0] > 1:
        # `starts` are the offsets of all rows except the first row. If the first or last rows are
        # empty, a start has no index before or after it, and no comparison.
        starts = indptr[1:-1]
        inner_starts = starts[(starts > 0) & (starts < len(used))]
        ascends[inner_starts - 1] = True
    return bool(np.logical_and.reduce(ascends))


def _refuse_outside(indices: np.ndarray, indptr: np.ndarray, limit: int, row_word: str) -> None:
    """Raise InvalidIndex for an index that is below 0, or not below `limit`.

    indices, indptr: row i has the indices indices[indptr[i]:indptr[i + 1]].
    row_word: word for a row in the error message.
    """
    # Return if all indices are valid. For single rows, a ufunc's `reduce` is faster than the
    # methods min and max.
    if not len(indices) or (np.minimum.reduce(indices) >= 0 and np.maximum.reduce(indices) < limit):
        return
    # `at` is the position of the first invalid index. For a CSC matrix, `row` is a column of the
    # matrix, and `index` a row.
    at = int(np.argmax((indices < 0) | (indices >= limit)))
    row = row_of_entry(indptr, at)
    index = int(indices[at])
    message = f"{row_word} {row} has index {index}; indices are integers from 0 to {limit - 1}."
    if row_word == "column":
        raise InvalidIndex(message, row=index, column=row)
    raise InvalidIndex(message, row=row, column=index)


def checked_csr(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, declared_width: int | None
) -> "sp.csr_matrix":
    """Return a CSR matrix (rows, features) with sorted indices.

    Nothing is copied if the indices are int32 and those of each row are sorted already. Raises
    InvalidIndex for an index out of range or repeated within a row. The error names the row and
    the index.

    Parameters
    ----------
    data : ndarray (entries,), float32 or float64
        Values of all rows, one row after the other.
    indices : ndarray (entries,), integers
        Column of each value.
    indptr : ndarray (rows + 1,)
        Offsets of the rows in `data` and `indices`.
    declared_width : int or None
        Number of columns of the matrix. If None, it is the largest index + 1.
    """
    limit = declared_width or MAX_WIDTH
    _refuse_outside(indices, indptr, limit, "row")
    indices = indices.astype(np.int32, copy=False)
    width = declared_width or int(indices.max(initial=-1)) + 1
    matrix = rows_from_fields(data, indices, indptr.astype(np.int32, copy=False), width)
    if matrix.has_canonical_format:
        return matrix

    # Sort a copy, because `sort_indices` changes the caller's `data` and `indices` in place.
    matrix = matrix.copy()
    matrix.sort_indices()
    # Sorted rows have the canonical format unless an index is repeated in a row.
    if not matrix.has_canonical_format:
        # Find the first repeated index, for the error message.
        columns = matrix.indices
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        repeated = (columns[1:] == columns[:-1]) & (rows[1:] == rows[:-1])
        at = int(np.argmax(repeated))
        row = int(rows[at])
        column = int(columns[at])
        raise InvalidIndex(f"row {row} has index {column} more than once; add its values up.", row=row, column=column)

    return matrix
