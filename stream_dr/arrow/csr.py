"""csr: three arrays from outside → a CSR matrix the numerics may trust.

Cost: one pass over the indices; a copy only when a row is not sorted.

Why this way: Arrow and JSON rows meet here, so "sorted, distinct, within the width" is decided once.
"""

import numpy as np
import scipy.sparse as sp

from stream_dr.errors import InvalidIndex

WIDEST = 2**31 - 1
"""Width no sparse batch may pass: indices are int32."""


def sound_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """CSR of that shape over arrays known to be sorted, distinct and within it; none is copied. O(1)."""
    matrix = sp.csr_matrix((data, indices, indptr.astype(np.int32, copy=False)), shape=shape)
    matrix.has_canonical_format = True
    return matrix


def canonical_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, width: int) -> sp.csr_matrix:
    """CSR (rows, width) over the given arrays, not copied when sorted; sorts within rows, refuses repeated indices.

    data (entries,) float32 or float64; indices (entries,) int32 within 0 … width − 1; indptr (rows + 1,).
    Raises InvalidIndex naming row and column.
    """
    shape = (len(indptr) - 1, width)
    matrix = sp.csr_matrix((data, indices, indptr.astype(np.int32, copy=False)), shape=shape)
    if matrix.has_canonical_format:
        return matrix
    matrix = sp.csr_matrix((data.copy(), indices.copy(), matrix.indptr), shape=shape)
    matrix.sort_indices()
    if not sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=shape).has_canonical_format:
        rows = np.repeat(np.arange(shape[0]), np.diff(matrix.indptr))
        at = int(np.flatnonzero((matrix.indices[1:] == matrix.indices[:-1]) & (rows[1:] == rows[:-1]))[0])
        row, column = int(rows[at]), int(matrix.indices[at])
        raise InvalidIndex(f"row {row} has index {column} more than once; add its values up.", row=row, column=column)
    matrix.has_canonical_format = True
    return matrix
