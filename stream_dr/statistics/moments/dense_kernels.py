"""Centring and products of dense rows by numpy and BLAS.

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
"""Number of rows below which BLAS adds a product to the sums in place.

The product is a matrix (features, features). For few rows, adding a separate matrix to the sums
costs as much as computing it.
"""


def write_centred_rows_and_return_mean_parts(
    X: np.ndarray,
    weights: np.ndarray,
    total_weight: float,
    centred_rows: np.ndarray,
    nonzero_counts_to_update: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Centre rows, and multiply them by their weights' square roots.

    Writes √w (x − mean) into `centred_rows` for each row x of weight w. Returns two arrays (d,)
    for d features, whose sum is the mean of the rows. The second array holds the digits that do
    not fit into the first. So the mean is exact to 1e-16 of the rows' standard deviation, even if
    the rows are far from 0.

    X: (b, d), b rows x.
    weights: (b,) weights w.
    total_weight: sum of the weights, above 0.
    centred_rows: (b, d) float64, the output.
    nonzero_counts_to_update: (d,), changed in place. To the entry of each feature is added the
        number of rows of weight above 0 in which the feature is not 0.
    """
    # For each feature, count the rows of weight above 0 in which the feature is not 0.
    weighing = X if weights.all() else X[weights > 0]
    zero = weighing == 0.0
    nonzero_counts_to_update += len(weighing) - np.count_nonzero(zero, axis=0) if zero.any() else len(weighing)

    # Copy the rows as float64, because numpy multiplies other types without BLAS.
    centred_rows[:] = X
    # Compute the mean by einsum, which uses no threads.
    # Threads of BLAS would stay busy afterwards, on cores that later matrix products need.
    point = np.einsum("i,ij->j", weights, centred_rows) / total_weight
    centred_rows -= point
    step = np.einsum("i,ij->j", weights, centred_rows) / total_weight
    centred_rows -= step
    if (weights != 1.0).any():
        centred_rows *= np.sqrt(weights)[:, None]
    return add_to_double_double(point, np.zeros_like(point), step)


def add_scatter_product(lower_triangle: np.ndarray, rows: np.ndarray) -> None:
    """Add rowsᵀ rows to the lower triangle of a matrix.

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
    """Add the matrix product rowsᵀ targets to `cross`.

    cross: (features, k), sums of products of features and k target columns, changed in place.
    rows: (b, features), b rows of features.
    targets: (b, k), the targets of these rows.
    """
    if cross.size and len(rows) < FEW:
        dgemm(1.0, targets.T, rows.T, beta=1.0, c=cross.T, trans_b=1, overwrite_c=1)
    else:
        cross += rows.T @ targets


def add_outer_product_to_lower(lower_scatter: np.ndarray, vector: np.ndarray, factor: float) -> None:
    """Add factor · vector vectorᵀ to a matrix's lower triangle.

    lower_scatter: (features, features), changed in place.
    vector: (features,).
    """
    if len(vector):
        dsyr(factor, vector, a=lower_scatter.T, overwrite_a=1)


def symmetric_from_lower_triangle(scatter: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix that has this lower triangle.

    scatter: (features, features). Its upper triangle is not read.
    """
    out = np.tril(scatter)
    out += np.tril(scatter, -1).T
    return out
