"""tall_qr: thin QR of a matrix with many more rows than columns, from its Gram matrix where that is exact enough.

Cholesky of MᵀM twice (CholeskyQR2; Fukaya, Nakatsukasa, Yanagisawa, Yamamoto 2014) is orthonormal to eps as long as the
condition of M stays below 1e8: all of it products of matrices, which take a fraction of Householder's time. Columns that
are dependent, or nearly so, go to Householder's.

Why this way: conjugate gradient orthonormalises two tall matrices a pass, and on a stream of 20,000 rows that took longer
than reading them; nearly always they are well conditioned.
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular

SAFE = 1e-6
"""Smallest ratio of the Cholesky factor's diagonal entries taken for a good condition."""


def tall_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q (m, n) orthonormal to eps and upper triangular R (n, n) with Q R = matrix (m, n), m ≥ n. O(m n²)."""
    first = _cholesky_qr(matrix)
    second = None if first is None else _cholesky_qr(first[0])
    if first is None or second is None:
        return np.linalg.qr(matrix)
    return second[0], second[1] @ first[1]


def _cholesky_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """One step; None where the Gram matrix says too little about the columns. Columns are scaled to length 1 first."""
    gram = matrix.T @ matrix
    lengths = np.sqrt(np.diagonal(gram))
    if gram.size == 0 or not np.all(lengths > 0):
        return None
    try:
        factor = cholesky(gram / lengths / lengths[:, None], check_finite=False)
    except np.linalg.LinAlgError:
        return None
    if np.diagonal(factor).min() < SAFE:
        return None
    inverse = solve_triangular(factor, np.eye(len(factor)), check_finite=False) / lengths[:, None]
    return matrix @ inverse, factor * lengths
