"""Thin QR of a matrix with many more rows than columns.

Cholesky of the Gram matrix MᵀM, twice (CholeskyQR2; Fukaya, Nakatsukasa, Yanagisawa, Yamamoto
2014), is orthonormal to eps as long as the condition of M stays below 1e8. It consists of matrix
products, which take a fraction of the time of Householder's reflections. Householder's are used
for columns that are dependent, or nearly so.

Conjugate gradient orthonormalises two tall matrices a pass. With Householder's that took longer
than reading the rows of a stream of 20,000. Nearly always the matrices are well conditioned.
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular

SAFE = 1e-6
"""Smallest ratio of Cholesky diagonal entries at a good condition."""


def tall_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the thin QR of a matrix (m, n), m ≥ n.

    Q (m, n) is orthonormal to eps, R (n, n) upper triangular, and Q R = matrix. Costs O(m n²).
    """
    first = _cholesky_qr(matrix)
    second = None if first is None else _cholesky_qr(first[0])
    if first is None or second is None:
        return np.linalg.qr(matrix)
    return second[0], second[1] @ first[1]


def _cholesky_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return Q and R of one Cholesky step.

    Columns are scaled to length 1 first. None if the condition of the columns is not good.
    """
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
