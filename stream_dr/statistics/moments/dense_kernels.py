"""dense_kernels: centring of dense rows, and the lower triangle of a scatter, by numpy and BLAS.

Only the lower triangle of a scatter is kept up to date, as the product of a matrix with its own transpose gives it.
"""

import numpy as np
from scipy.linalg.blas import dsyr

from stream_dr.statistics.moments.centred_part import moved


def centre_rows(
    X: np.ndarray, weights: np.ndarray, total: float, rows: np.ndarray, nonzero: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The weighted mean of X (b, d) as high + low (d,), and rows (b, d) = √w (X − mean); total: Σ w > 0. Adds to nonzero
    (d,) the rows of weight that are not 0 there.

    The mean is found twice, the second time of what the first leaves: it is right to 1e-16 of the rows' spread, not of their
    size. O(b d).
    """
    nonzero += np.count_nonzero(X if weights.all() else X[weights > 0], axis=0)
    rows[:] = X  # as float64: of another type numpy's product is not BLAS's
    point = weights @ rows / total
    rows -= point
    step = weights @ rows / total
    rows -= step
    if (weights != 1.0).any():
        rows *= np.sqrt(weights)[:, None]
    return moved(point, np.zeros_like(point), step)


def add_outer(scatter: np.ndarray, step: np.ndarray, factor: float) -> None:
    """Lower triangle of scatter (d, d) += factor · step stepᵀ."""
    if len(step):
        dsyr(factor, step, a=scatter.T, overwrite_a=1)


def mirrored(scatter: np.ndarray) -> np.ndarray:
    """The symmetric (d, d) matrix of which scatter holds the lower triangle."""
    out = np.tril(scatter)
    out += np.tril(scatter, -1).T
    return out
