"""Centring of dense rows, and their matrix products, by numpy and BLAS.

Only the lower triangle of a scatter matrix is updated, because the matrix is symmetric.

numpy and scipy each have a BLAS library with threads of its own. After a product, the threads of
one library stay busy for a while on cores that the other library needs. So all products of a batch
use the same library. Batches of many rows use numpy, like the other products of the program.
Batches of few rows use scipy, whose function dsyrk adds a product to a matrix in place.
"""

import numpy as np
from scipy.linalg.blas import dgemm, dsyr, dsyrk

from stream_dr.statistics.moments.centred_part import add_to_double_double

FEW = 256
"""Number of rows below which products are added in place.

For few rows, adding a separate matrix (features, features) to the sums costs as much as computing
the matrix.
"""


def write_root_weighted_rows(
    X: np.ndarray,
    weights: np.ndarray,
    total_weight: float,
    centred_rows: np.ndarray,
    nonzero_counts_to_update: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Centre rows, and return their mean as two arrays.

    Writes √w (X − mean) into `centred_rows`. Returns high and low (d,) for d features. The mean is
    high + low. The mean is computed first from X, then corrected by the mean of X − first mean. So
    the error of the mean is 1e-16 of the standard deviation of the rows, not of the size of the
    rows. Costs O(b d).

    X: (b, d), b rows.
    weights: (b,) weights w.
    total_weight: sum of the weights, above 0.
    centred_rows: (b, d) float64, the output.
    nonzero_counts_to_update: (d,), changed in place. To the entry of each feature is added the
        number of rows of weight above 0 in which the feature is not 0.
    """
    # Count the rows of weight above 0 in which each feature is not 0.
    weighing = X if weights.all() else X[weights > 0]
    zero = weighing == 0.0
    nonzero_counts_to_update += len(weighing) - np.count_nonzero(zero, axis=0) if zero.any() else len(weighing)

    # Copy the rows as float64, because numpy multiplies other types without BLAS.
    centred_rows[:] = X
    # einsum uses no threads. Threads of BLAS would stay busy on cores that later products need.
    point = np.einsum("i,ij->j", weights, centred_rows) / total_weight
    centred_rows -= point
    step = np.einsum("i,ij->j", weights, centred_rows) / total_weight
    centred_rows -= step
    if (weights != 1.0).any():
        centred_rows *= np.sqrt(weights)[:, None]
    return add_to_double_double(point, np.zeros_like(point), step)


def add_scatter_product(lower_triangle: np.ndarray, rows: np.ndarray) -> None:
    """Add the product rowsᵀ rows to the lower triangle of a matrix.

    The upper triangle of the matrix has arbitrary values afterwards.

    lower_triangle: the matrix (features, features), changed in place.
    rows: (b, features), b rows.
    """
    # BLAS raises an error for rows without features. (A table may have only constant columns.)
    if lower_triangle.size and len(rows) < FEW:
        dsyrk(1.0, rows.T, beta=1.0, c=lower_triangle.T, overwrite_c=1)
    else:
        lower_triangle += rows.T @ rows


def add_cross_product(cross: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> None:
    """Add the matrix product rowsᵀ targets to the cross sums.

    cross: (features, k), the cross sums of features and k target columns, changed in place.
    rows: (b, features), b rows.
    targets: (b, k).
    """
    if cross.size and len(rows) < FEW:
        dgemm(1.0, targets.T, rows.T, beta=1.0, c=cross.T, trans_b=1, overwrite_c=1)
    else:
        cross += rows.T @ targets


def add_outer_product_to_lower(lower_scatter: np.ndarray, vector: np.ndarray, factor: float) -> None:
    """Add factor · vector vectorᵀ to the lower triangle of `lower_scatter`.

    lower_scatter: (features, features), changed in place.
    vector: (features,).
    """
    if len(vector):
        dsyr(factor, vector, a=lower_scatter.T, overwrite_a=1)


def symmetric_from_lower_triangle(scatter: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix with the lower triangle of `scatter`.

    scatter: (features, features). Its upper triangle is not read.
    """
    out = np.tril(scatter)
    out += np.tril(scatter, -1).T
    return out
