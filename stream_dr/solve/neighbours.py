"""neighbours: who is near whom, among the landmarks (the reservoir's rows) and from new rows to them.

Landmarks are (r, features), dense or CSR. Distances are squared and Euclidean. Among landmarks the search is
scikit-learn's `NearestNeighbors`; new rows need their distances to all landmarks anyway (is the new row near enough
to be one of *its* neighbours?), so they are computed in chunks: O(r · features) a row dense, O(r · entries) sparse,
32 MB at most at a time.

Why this way: dense distances are sums of squared differences, never the product form that puts a landmark at a
distance from itself; sparse ones are, with what is only rounding set to zero. So a landmark asked again is known for
what it is.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

CHUNK = 1 << 22
"""Distances held at a time."""


def nearest(landmarks: Any, k: int, with_self: bool) -> np.ndarray:
    """(r, k) indices of each landmark's nearest landmarks; with_self counts the landmark itself as the first of the k."""
    if not with_self:
        return NearestNeighbors(n_neighbors=k).fit(landmarks).kneighbors(return_distance=False)
    return NearestNeighbors(n_neighbors=k).fit(landmarks).kneighbors(landmarks, return_distance=False)


def pair_distances(landmarks: Any, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """(pairs,) squared distances of landmarks i to landmarks j; O(features) a pair."""
    out = np.empty(len(i))
    step = max(1, CHUNK // max(1, landmarks.shape[1]))
    for start in range(0, len(i), step):
        part = slice(start, start + step)
        if sp.issparse(landmarks):
            a, b = landmarks[i[part]], landmarks[j[part]]
            out[part] = _clipped(_norms(a), _norms(b), np.asarray(a.multiply(b).sum(axis=1)).ravel())
        else:
            out[part] = _row_sums(landmarks[i[part]] - landmarks[j[part]])
    return out


def distances(rows: Any, landmarks: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """Squared distances (chunk, r) of rows to all landmarks, chunk by chunk with the rows' slice."""
    step = max(1, CHUNK // max(1, landmarks.shape[0]))
    for start in range(0, rows.shape[0], step):
        part = slice(start, min(start + step, rows.shape[0]))
        yield part, _all_distances(rows[part], landmarks)


def fit_width(rows: Any, width: int) -> Any:
    """Sparse rows with the landmarks' width: columns past it contribute nothing, missing ones are zero."""
    if not sp.issparse(rows) or rows.shape[1] == width:
        return rows
    if rows.shape[1] > width:
        return rows[:, :width]
    return sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))


def _all_distances(rows: Any, landmarks: Any) -> np.ndarray:
    if not sp.issparse(landmarks):
        dense = rows.toarray() if sp.issparse(rows) else rows.astype(np.float64, copy=False)
        return cdist(dense, landmarks, "sqeuclidean")
    rows = sp.csr_matrix(rows).astype(np.float64)
    products = (rows @ landmarks.T).toarray()
    return _clipped(_norms(rows)[:, None], _norms(landmarks), products)


def _clipped(a: np.ndarray, b: np.ndarray, products: np.ndarray) -> np.ndarray:
    """|x|² + |y|² − 2 xᵀy, zero where it is no more than rounding."""
    squares = a + b
    out = squares - 2.0 * products
    return np.where(out > 16 * np.finfo(np.float64).eps * squares, out, 0.0)


def _norms(rows: Any) -> np.ndarray:
    return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()


def _row_sums(differences: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", differences, differences)
