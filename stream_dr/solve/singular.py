"""Singular value decomposition of finite matrices.

LAPACK's decomposition runs forever for some matrices that contain an infinity. Sums of very large
numbers may overflow to infinity, so every matrix is checked first.
"""

import numpy as np

from stream_dr.errors import NotFinite


def thin_svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thin singular value decomposition of a matrix.

    The matrix is (m, k). Returns the left singular vectors (m, r), the singular values (r,) and
    the right singular vectors (r, k), for r = min(m, k). The largest singular value comes first.

    Raises NotFinite if a value of the matrix is not finite.
    """
    _check_finite(matrix)
    return np.linalg.svd(matrix, full_matrices=False)


def singular_values(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix's singular values, largest first.

    The matrix is (m, k). Raises NotFinite if a value of the matrix is not finite.
    """
    _check_finite(matrix)
    return np.linalg.svd(matrix, compute_uv=False)


def _check_finite(matrix: np.ndarray) -> None:
    """Raise NotFinite if a value of the matrix is not finite."""
    if not np.isfinite(matrix).all():
        raise NotFinite("sums of the rows are so large that they overflow: there is no solution. Scale the rows.")
