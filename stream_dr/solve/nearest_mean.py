"""Nearest mean: classify rows by the class whose mean is nearest.

Models are judged by it while they learn, and so is a projection when it is evaluated. Means cost
O(rows p). Distances of rows (rows, p) to k means cost O(rows k p).
"""

import numpy as np
import scipy.sparse as sp

from stream_dr.rows.block import Rows


def means_by_class(Z: Rows, codes: np.ndarray, labels: int) -> np.ndarray:
    """Return the mean (labels, p) of each class.

    Z: (rows, p), dense or CSR. codes: (rows,) class of each row, below `labels`. A class without
    rows has NaN.
    """
    rows = len(codes)
    indicator = sp.csr_matrix((np.ones(rows), (codes, np.arange(rows))), shape=(labels, rows))
    sums = indicator @ Z
    counts = np.bincount(codes, minlength=labels)[:, None]
    # Classes without rows are 0 / 0.
    with np.errstate(invalid="ignore"):
        return np.asarray((sums.toarray() if sp.issparse(sums) else sums) / counts)


def squared_distances(Z: Rows, points: Rows) -> np.ndarray:
    """Return the squared Euclidean distances (rows, points), never negative.

    Infinite for points that are not finite.
    """
    products = Z @ points.T
    products = products.toarray() if sp.issparse(products) else np.asarray(products)
    squared = _squared_lengths(Z)[:, None] + _squared_lengths(points) - 2.0 * products
    return np.where(np.isnan(squared), np.inf, np.maximum(squared, 0.0))


def nearest_mean(Z: Rows, means: np.ndarray) -> np.ndarray:
    """Return the code (rows,) of the mean nearest to each row.

    Z: (rows, p). means: (labels, p). The first of several means at the same distance is taken.
    """
    return np.argmin(squared_distances(Z, means), axis=1)


def _squared_lengths(Z: Rows) -> np.ndarray:
    """Return the squared length (rows,) of each row."""
    return np.asarray(Z.multiply(Z).sum(1)).ravel() if sp.issparse(Z) else np.einsum("ij,ij->i", Z, Z)
