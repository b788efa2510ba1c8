"""nearest_mean: the class whose mean is nearest, by which a projection is judged while it learns and when it is evaluated.

Cost: O(rows p) for means, O(rows k p) for distances of rows (rows, p) to k means.
"""

import numpy as np
import scipy.sparse as sp

from stream_dr.rows.block import Rows


def means_by_class(Z: Rows, codes: np.ndarray, labels: int) -> np.ndarray:
    """Means (labels, p) of rows Z (rows, p), dense or CSR, by their codes (rows,) below `labels`; NaN where none is."""
    rows = len(codes)
    indicator = sp.csr_matrix((np.ones(rows), (codes, np.arange(rows))), shape=(labels, rows))
    sums = indicator @ Z
    counts = np.bincount(codes, minlength=labels)[:, None]
    with np.errstate(invalid="ignore"):
        return np.asarray((sums.toarray() if sp.issparse(sums) else sums) / counts)


def squared_distances(Z: Rows, points: Rows) -> np.ndarray:
    """(rows, points) squared Euclidean distances, never negative; infinite for points that are not finite."""
    products = Z @ points.T
    products = products.toarray() if sp.issparse(products) else np.asarray(products)
    apart = _squares(Z)[:, None] + _squares(points) - 2.0 * products
    return np.where(np.isnan(apart), np.inf, np.maximum(apart, 0.0))


def nearest(Z: Rows, means: np.ndarray) -> np.ndarray:
    """Codes (rows,) of the means (labels, p) nearest to rows Z (rows, p); the first where several are."""
    return np.argmin(squared_distances(Z, means), axis=1)


def _squares(Z: Rows) -> np.ndarray:
    return np.asarray(Z.multiply(Z).sum(1)).ravel() if sp.issparse(Z) else np.einsum("ij,ij->i", Z, Z)
