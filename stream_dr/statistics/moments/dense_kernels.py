"""Centring of dense rows, and their products, by numpy and BLAS.

Only the lower triangle of a scatter is updated, as the product of a matrix with its own
transpose gives it.

numpy and scipy each bring a BLAS with threads of its own, and threads of one that has just worked
spin on the cores that the other needs. So a batch has all its products from one of them: from
numpy, as a caller's own products are, or for few rows from scipy, whose dsyrk adds in place.
"""

import numpy as np
from scipy.linalg.blas import dgemm, dsyr, dsyrk

from stream_dr.statistics.moments.centred_part import dd_add

FEW = 256
"""Number of rows below which products are added in place. An addition of d² costs as much as their
product.
"""


def centre_rows(
    X: np.ndarray, weights: np.ndarray, total: float, rows: np.ndarray, nonzero: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Write √w (X − mean) into rows (b, d) and return the mean as high + low (d,).

    X is (b, d), total is Σ w > 0. The number of rows of weight that are not 0 is added to nonzero
    (d,). Costs O(b d).

    The mean is computed twice, the second time of what the first leaves. So it is right to 1e-16
    of the rows' spread, not of their size.
    """
    weighing = X if weights.all() else X[weights > 0]
    zero = weighing == 0.0
    nonzero += len(weighing) - np.count_nonzero(zero, axis=0) if zero.any() else len(weighing)

    # As float64, because numpy multiplies other types without BLAS.
    rows[:] = X
    # By einsum, because BLAS's threads would spin on the product's cores.
    point = np.einsum("i,ij->j", weights, rows) / total
    rows -= point
    step = np.einsum("i,ij->j", weights, rows) / total
    rows -= step
    if (weights != 1.0).any():
        rows *= np.sqrt(weights)[:, None]
    return dd_add(point, np.zeros_like(point), step)


def add_product(scatter: np.ndarray, rows: np.ndarray) -> None:
    """Add rowsᵀ rows (b, d) to the lower triangle of scatter (d, d)."""
    if len(rows) < FEW:
        dsyrk(1.0, rows.T, beta=1.0, c=scatter.T, overwrite_c=1)
    else:
        scatter += rows.T @ rows


def add_cross_product(cross: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> None:
    """Add rowsᵀ targets to cross sums (d, k), for rows (b, d) and targets (b, k)."""
    if len(rows) < FEW:
        dgemm(1.0, targets.T, rows.T, beta=1.0, c=cross.T, trans_b=1, overwrite_c=1)
    else:
        cross += rows.T @ targets


def add_outer(scatter: np.ndarray, step: np.ndarray, factor: float) -> None:
    """Add factor · step stepᵀ to the lower triangle of scatter (d, d)."""
    if len(step):
        dsyr(factor, step, a=scatter.T, overwrite_a=1)


def mirrored(scatter: np.ndarray) -> np.ndarray:
    """Return the symmetric (d, d) matrix whose lower triangle scatter holds."""
    out = np.tril(scatter)
    out += np.tril(scatter, -1).T
    return out
