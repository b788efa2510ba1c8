"""Singular values of finite matrices.

LAPACK's factorisation does not return for some matrices that have an infinity, and sums of huge
numbers may have one.
"""

import numpy as np

from stream_dr.errors import NotFinite


def thin_svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thin singular value decomposition of a matrix (m, k).

    Returns left singular vectors (m, r), singular values (r,) and right singular vectors (r, k),
    for r = min(m, k). Raises NotFinite if the matrix is not finite.
    """
    if not np.isfinite(matrix).all():
        raise NotFinite("sums of the rows are so large that they overflow: there is no solution. Scale the rows.")
    return np.linalg.svd(matrix, full_matrices=False)
