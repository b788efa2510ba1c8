"""Decompositions of matrices: singular values, and thin QR of tall matrices.

LAPACK's singular value decomposition runs forever for some matrices that contain an infinity. Sums
of very large numbers may overflow to infinity, so every matrix is checked first.

Thin QR is for matrices with many more rows than columns. The method is CholeskyQR2 (Fukaya,
Nakatsukasa, Yanagisawa, Yamamoto 2014). For a matrix M (m, n), the Cholesky factor R of the Gram
matrix MᵀM gives Q = M R⁻¹. A second round, with Q instead of M, makes Q orthonormal to eps if the
condition number of M is below 1e8. The matrix products of CholeskyQR2 take a fraction of the time
of Householder's reflections. Householder's method is used only if the columns are (nearly)
dependent.

Conjugate gradient orthonormalises two tall matrices in each step. With Householder's method, the
orthonormalisation took longer than reading the rows of a stream of 20,000 rows. The matrices are
nearly always well conditioned.
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular

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


SMALLEST_SAFE_DIAGONAL = 1e-6
"""Smallest diagonal entry of a Cholesky factor with which CholeskyQR2 is used.

The columns are scaled to length 1 before the Cholesky factor is computed. If a diagonal entry is
smaller than this number, the columns are nearly dependent, and Householder's method is used.
"""

ONE_ROUND_DIAGONAL = 0.3
"""Smallest diagonal entry of a Cholesky factor with which one factorisation is enough.

The columns are scaled to length 1 first. If all diagonal entries are larger than this number, Q is
orthonormal to about 1e-14 after the first factorisation, and the second is skipped.
"""


def tall_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the thin QR factorisation of a tall matrix.

    Returns Q (m, n) with orthonormal columns and an upper triangular R (n, n), with Q R = matrix.

    matrix: (m, n), m ≥ n.
    """
    # One Cholesky factorisation is enough if the columns are far from dependent.
    first = _cholesky_qr(matrix)
    if first is None:
        return np.linalg.qr(matrix)
    Q, R, smallest = first
    if smallest > ONE_ROUND_DIAGONAL:
        return Q, R

    second = _cholesky_qr(Q)
    if second is None:
        return np.linalg.qr(matrix)
    return second[0], second[1] @ R


def _cholesky_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return a QR factorisation from one Cholesky factorisation, or None.

    Returns Q (m, n), R (n, n) and the smallest diagonal entry of the Cholesky factor. This factor
    of the matrix of the columns' inner products is R, up to scaling. The result is None if the
    columns are (nearly) dependent.

    matrix: (m, n), m ≥ n.
    """
    gram = matrix.T @ matrix
    lengths = np.sqrt(np.diagonal(gram))
    if gram.size == 0 or not np.all(lengths > 0):
        return None

    # `gram` has the inner products of the columns.
    # Divide by the lengths of the columns, so that the diagonal of `gram` becomes 1.
    try:
        factor = cholesky(gram / lengths / lengths[:, None], check_finite=False)
    except np.linalg.LinAlgError:
        return None
    smallest = float(np.diagonal(factor).min())
    if smallest < SMALLEST_SAFE_DIAGONAL:
        return None

    # R is `factor` times the columns' lengths, and Q is the matrix times the inverse of R.
    inverse = solve_triangular(factor, np.eye(len(factor)), check_finite=False) / lengths[:, None]
    return matrix @ inverse, factor * lengths, smallest
