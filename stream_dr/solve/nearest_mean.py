"""Nearest-mean classifier: a row gets the nearest mean's class.

The accuracy of this classifier is one score of a model while the model learns. It is also one
score of a projection in an evaluation. For rows (rows, p), computing the means costs O(rows p).
Computing the distances of the rows to k means costs O(rows k p).
"""

import numpy as np
import scipy.sparse as sp

from stream_dr.rows.block import Rows


def means_by_class(Z: Rows, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the mean (classes, components) of the rows of each class.

    Z: (rows, components), dense or CSR.
    codes: (rows,), index of each row's class, from 0.
    n_classes: number of classes. The mean of a class without rows is NaN.
    """
    rows = len(codes)
    indicator = sp.csr_matrix((np.ones(rows), (codes, np.arange(rows))), shape=(n_classes, rows))
    sums = indicator @ Z
    counts = np.bincount(codes, minlength=n_classes)[:, None]
    # A class without rows has the mean 0 / 0 = NaN. Suppress numpy's warning about this.
    with np.errstate(invalid="ignore"):
        return np.asarray((sums.toarray() if sp.issparse(sums) else sums) / counts)


def squared_distances(Z: Rows, points: Rows) -> np.ndarray:
    """Return the squared Euclidean distances (rows, points), never negative.

    Z: (rows, components), dense or CSR.
    points: (points, components), dense or CSR. If a point has a value that is not finite, all
        distances to the point are infinite.
    """
    products = Z @ points.T
    products = products.toarray() if sp.issparse(products) else np.asarray(products)
    squared = squared_lengths(Z)[:, None] + squared_lengths(points) - 2.0 * products
    return np.where(np.isnan(squared), np.inf, np.maximum(squared, 0.0))


def nearest_mean(Z: Rows, class_means: np.ndarray) -> np.ndarray:
    """Return the index of the mean nearest to each row.

    The result is (rows,). If several means are equally near, the index of the first is returned.

    Z: (rows, components), dense or CSR.
    class_means: (classes, components).
    """
    return np.asarray(np.argmin(squared_distances(Z, class_means), axis=1))


def squared_lengths(Z: Rows) -> np.ndarray:
    """Return the squared length (rows,) of each row of Z.

    Z: (rows, components), dense or CSR.
    """
    return np.asarray(Z.multiply(Z).sum(1)).ravel() if sp.issparse(Z) else np.einsum("ij,ij->i", Z, Z)
