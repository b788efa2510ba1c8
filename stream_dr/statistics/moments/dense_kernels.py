"""Centring of dense rows, and their matrix products, by numpy and BLAS.

Only the lower triangle of a scatter matrix is updated, because the matrix is symmetric.

numpy and scipy each have a BLAS library with threads of its own. After a product, the threads of
one library stay busy for a while on cores that the other library needs. So all products of a batch
use the same library. Batches of many rows use numpy, like the other products of the program.
Batches of few rows use scipy, whose function dsyrk adds a product to a matrix in place.
"""

import numpy as np
from scipy.linalg.blas import dgemm, dsyr, dsyrk

from stream_dr.statistics.moments.centred_part import dd_add

FEW = 256
"""Number of rows below which products are added in place.

For few rows, adding a separate matrix (features, features) to the sums costs as much as computing
the matrix.
"""


def centre_rows(
    X: np.ndarray, weights: np.ndarray, total: float, rows: np.ndarray, nonzero: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Centre rows, and return their mean as two arrays.

    Writes √w (X − mean) into `rows`. Returns high and low (d,) for d features. The mean is high +
    low. The mean is computed first from X, then corrected by the mean of X − first mean. So the
    error of the mean is 1e-16 of the standard deviation of the rows, not of the size of the rows.
    Costs O(b d).

    X: (b, d), b rows.
    weights: (b,) weights w.
    total: sum of the weights, above 0.
    rows: (b, d) float64, the output.
    nonzero: (d,), changed in place. To the entry of each feature is added the number of rows of
        weight above 0 in which the feature is not 0.
    """
    # Count the rows of weight above 0 in which each feature is not 0.
    weighing = X if weights.all() else X[weights > 0]
    zero = weighing == 0.0
    nonzero += len(weighing) - np.count_nonzero(zero, axis=0) if zero.any() else len(weighing)

    # Copy the rows as float64, because numpy multiplies other types without BLAS.
    rows[:] = X
    # einsum uses no threads. Threads of BLAS would stay busy on cores that later products need.
    point = np.einsum("i,ij->j", weights, rows) / total
    rows -= point
    step = np.einsum("i,ij->j", weights, rows) / total
    rows -= step
    if (weights != 1.0).any():
        rows *= np.sqrt(weights)[:, None]
    return dd_add(point, np.zeros_like(point), step)


def add_product(scatter: np.ndarray, rows: np.ndarray) -> None:
    """Add the product rowsᵀ rows to the lower triangle of scatter.

    The upper triangle of scatter has arbitrary values afterwards.

    scatter: (features, features), changed in place.
    rows: (b, features).
    """
    # BLAS raises an error for rows without features. (A table may have only constant columns.)
    if scatter.size and len(rows) < FEW:
        dsyrk(1.0, rows.T, beta=1.0, c=scatter.T, overwrite_c=1)
    else:
        scatter += rows.T @ rows


def add_cross_product(cross: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> None:
    """Add the matrix product rowsᵀ targets to the cross sums.

    cross: (features, k), the cross sums of features and k target columns, changed in place.
    rows: (b, features).
    targets: (b, k).
    """
    if cross.size and len(rows) < FEW:
        dgemm(1.0, targets.T, rows.T, beta=1.0, c=cross.T, trans_b=1, overwrite_c=1)
    else:
        cross += rows.T @ targets


def add_outer(scatter: np.ndarray, step: np.ndarray, factor: float) -> None:
    """Add factor · step stepᵀ to the lower triangle of scatter.

    scatter: (features, features), changed in place.
    step: (features,).
    """
    if len(step):
        dsyr(factor, step, a=scatter.T, overwrite_a=1)


def mirrored(scatter: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix with the lower triangle of scatter.

    scatter: (features, features). Its upper triangle is not read.
    """
    out = np.tril(scatter)
    out += np.tril(scatter, -1).T
    return out
