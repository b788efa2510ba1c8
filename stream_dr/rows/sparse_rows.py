"""sparse_rows: a scipy matrix of any sparse format → a CSR matrix the numerics may trust.

Cost: two looks at every index; a copy only where rows are not sorted, or another format is converted.

Why this way: scipy takes arrays as they are given. An index outside the width, or a row's end outside the arrays, is an
access outside the memory in its own conversions as in any compiled loop, so it is looked for before either.
"""

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from stream_dr.errors import InvalidIndex, InvalidRows

if TYPE_CHECKING:
    import scipy.sparse as sp


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix or array of scipy's; nothing is one where scipy.sparse is not loaded. O(1)."""
    if isinstance(X, np.ndarray):
        return False
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and bool(loaded.issparse(X))


def as_csr(X: Any) -> "sp.csr_matrix":
    """X as CSR with sorted, distinct indices and float32 or float64 values; the caller's matrix is not changed.

    Raises InvalidIndex or InvalidRows.
    """
    refuse_complex(X)
    if X.ndim != 2:
        raise InvalidRows(f"Expected 2D array, got {X.ndim}D sparse array instead: rows must be (rows, features).")
    matrix = X if X.format == "csr" else _converted(X)
    canonical = check_indices(matrix)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if not canonical:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def refuse_complex(X: Any) -> None:
    """Raise InvalidRows for an array, dense or sparse, of complex numbers."""
    if X.dtype.kind == "c":
        raise InvalidRows(
            "Complex data not supported: rows are complex numbers; pass real and imaginary parts as columns."
        )


def check_indices(X: "sp.csr_matrix") -> bool:
    """Whether every row's indices ascend, each once. Raises InvalidIndex naming the row and what does not fit."""
    return _check(X.indptr, X.indices, len(X.data), X.shape, "row")


def _converted(X: Any) -> "sp.csr_matrix":
    """Another sparse format as CSR, once its own indices are known to be within its shape."""
    if X.format == "csc":
        _check(X.indptr, X.indices, len(X.data), X.shape[::-1], "column")
    elif X.format == "bsr":
        blocks = (X.shape[0] // X.blocksize[0], X.shape[1] // X.blocksize[1])
        _check(X.indptr, X.indices, len(X.data), blocks, "row of blocks")
    else:
        X = X.tocoo()
        if not len(X.row) == len(X.col) == len(X.data):
            raise InvalidIndex(f"{len(X.data)} values have {len(X.row)} rows and {len(X.col)} columns; give one each.")
        for name, indices, limit in (("row", X.row, X.shape[0]), ("column", X.col, X.shape[1])):
            odd = indices[(indices < 0) | (indices >= limit)]
            if len(odd):
                raise InvalidIndex(f"an entry has the {name} {odd[0]}; it must be from 0 to {limit - 1}.")
    return X.tocsr()


def _check(indptr: Any, indices: Any, entries: int, shape: tuple[int, int], what: str) -> bool:
    """`check_indices` of compressed rows or columns; shape: how many, and what their indices stay below."""
    if indptr.dtype.kind != "i" or indices.dtype.kind != "i" or len(indptr) != shape[0] + 1:
        raise InvalidIndex(f"indptr must be {shape[0] + 1} integers, and indices integers; make the matrix anew.")
    entries = min(entries, len(indices))
    if indptr[0] != 0 or indptr[-1] > entries or (indptr[1:] < indptr[:-1]).any():
        raise InvalidIndex(
            f"ends of {what}s (indptr) must begin at 0, not fall, and stay within the {entries} entries."
        )
    used = indices[: indptr[-1]]
    unsigned = used.view(f"u{used.itemsize}")  # a negative index is a large one
    if len(used) and not unsigned.max() < shape[1]:
        at = np.flatnonzero((used < 0) | (used >= shape[1]))[0]
        row, index = int(np.searchsorted(indptr, at, side="right")) - 1, int(used[at])
        raise InvalidIndex(
            f"{what} {row} has the index {index}; it must be from 0 to {shape[1] - 1}.", row=row, index=index
        )

    ascends = used[1:] > used[:-1]
    if shape[0] > 1:  # a row's first index follows no other
        begins = indptr[1:-1]
        ascends[begins[(begins > 0) & (begins < len(used))] - 1] = True
    return bool(ascends.all())
