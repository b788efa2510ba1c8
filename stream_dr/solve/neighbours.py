"""neighbours: who is near whom, among the landmarks (the reservoir's rows) and from new rows to them.

Landmarks are (r, features), dense or CSR. Distances are squared and Euclidean. Among landmarks the search is
scikit-learn's `NearestNeighbors`; new rows need their distances to all landmarks anyway (is the new row near enough
to be one of *its* neighbours?), so they are computed in chunks: O(r · features) a row dense, O(r · entries) sparse,
32 MB at most at a time.

Why this way: dense distances are sums of squared differences, never the product form that loses what is small beside the
rows' size; sparse ones are, so columns that most landmarks have a value in are first shifted to their middle. A landmark
asked again comes out nearer than rounding (`Kept.same`), and is known for what it is.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

SEARCH_CHUNK = 1 << 20
"""Distances held at a time."""


def nearest(landmarks: Any, k: int, with_self: bool) -> np.ndarray:
    """(r, k) indices of each landmark's nearest landmarks; with_self counts the landmark itself as the first of the k."""
    landmarks = shifted(landmarks, middle(landmarks))  # scikit-learn's search takes the product form, too
    if not with_self:
        return NearestNeighbors(n_neighbors=k).fit(landmarks).kneighbors(return_distance=False)
    return NearestNeighbors(n_neighbors=k).fit(landmarks).kneighbors(landmarks, return_distance=False)


def within(landmarks: Any, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (pairs,), (pairs,) of different landmarks at most `radius` apart, each both ways round."""
    landmarks = shifted(landmarks, middle(landmarks))
    found = NearestNeighbors(radius=radius).fit(landmarks).radius_neighbors(return_distance=False)
    return np.repeat(np.arange(len(found)), [len(near) for near in found]), np.concatenate(found).astype(np.int64)


def pair_distances(landmarks: Any, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """(pairs,) squared distances of landmarks i to landmarks j; O(features) a pair."""
    out = np.empty(len(i))
    step = max(1, SEARCH_CHUNK // max(1, landmarks.shape[1]))
    for start in range(0, len(i), step):
        part = slice(start, start + step)
        out[part] = norms(landmarks[i[part]] - landmarks[j[part]])
    return out


def middle(landmarks: Any) -> np.ndarray:
    """(features,) each column's median, which is one of its values, so that whole numbers stay whole and equal distances
    equal; of sparse rows 0 where fewer than half have a value, so that they stay sparse."""
    half = landmarks.shape[0] // 2
    if not sp.issparse(landmarks):
        return np.asarray(np.partition(landmarks, half, axis=0)[half])
    out, often = np.zeros(landmarks.shape[1]), np.flatnonzero(2 * landmarks.count_nonzero(axis=0) >= landmarks.shape[0])
    out[often] = np.partition(landmarks[:, often].toarray(), half, axis=0)[half]
    return out


def shifted(rows: Any, by: np.ndarray) -> Any:
    """Rows (rows, features), dense or CSR, less `by` (features,)."""
    if not by.any():
        return rows
    if not sp.issparse(rows):
        return rows - by
    return sp.csr_matrix(rows - sp.csr_matrix(np.ones((rows.shape[0], 1))) @ sp.csr_matrix(by))


def distances(rows: Any, landmarks: Any, by: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Squared distances (chunk, r) of rows to all landmarks, chunk by chunk with the rows' slice; sparse ones less `by`."""
    step = max(1, SEARCH_CHUNK // max(1, landmarks.shape[0]))
    landmarks = shifted(landmarks, by) if sp.issparse(landmarks) else landmarks
    for start in range(0, rows.shape[0], step):
        part = slice(start, min(start + step, rows.shape[0]))
        yield part, _all_distances(rows[part], landmarks, by)


def fit_width(rows: Any, width: int) -> Any:
    """Sparse rows with the landmarks' width: columns past it contribute nothing, missing ones are zero."""
    if not sp.issparse(rows) or rows.shape[1] == width:
        return rows
    if rows.shape[1] > width:
        return rows[:, :width]
    return sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))


def _all_distances(rows: Any, landmarks: Any, by: np.ndarray) -> np.ndarray:
    """Squared distances (rows, r); sparse landmarks are shifted by `by` already."""
    if not sp.issparse(landmarks):
        dense = rows.toarray() if sp.issparse(rows) else rows.astype(np.float64, copy=False)
        return cdist(dense, landmarks, "sqeuclidean")
    rows = shifted(sp.csr_matrix(rows).astype(np.float64), by)
    products = (rows @ landmarks.T).toarray()
    return _clipped(norms(rows)[:, None], norms(landmarks), products)


def _clipped(a: np.ndarray, b: np.ndarray, products: np.ndarray) -> np.ndarray:
    """|x|² + |y|² − 2 xᵀy, zero where it is no more than rounding."""
    squares = a + b
    out = squares - 2.0 * products
    return np.where(out > 16 * np.finfo(np.float64).eps * squares, out, 0.0)


def norms(rows: Any) -> np.ndarray:
    """(rows,) squared lengths."""
    if not sp.issparse(rows):
        return np.einsum("ij,ij->i", rows, rows)
    return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
