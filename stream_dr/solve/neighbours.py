"""Nearest neighbours among landmarks, and new rows' distances to landmarks.

Landmarks are r sampled rows (r, features) of the stream, dense or CSR. All distances are
Euclidean. Functions that return distances return squared distances.

scikit-learn's `NearestNeighbors` searches for the nearest neighbours of a landmark. For a new row,
the distances to all landmarks are computed, because the new row may be nearer to a landmark than
the landmark's own neighbours. The distances cost O(r · features) for a dense row and
O(r · entries) for a sparse row. They are computed for a chunk of rows at a time, in at most 32 MB
of memory.

Distances of dense rows x and y are sums of squared differences. Distances of sparse rows are
computed as |x|² + |y|² − 2 xᵀy. This formula is inexact if the distance is small compared with the
lengths of the rows. So the median is first subtracted from each column in which at least
half of the landmarks have a value. The subtraction makes the rows shorter.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from stream_dr.rows.block import Rows
from stream_dr.solve.nearest_mean import squared_lengths

SEARCH_CHUNK = 1 << 20
"""Maximum number of float64 values (8 MB) of one array.

Rows are handled in chunks, so that no array is larger.
"""


class DistanceChunk(NamedTuple):
    """Slice of n rows, and their squared distances to landmarks.

    The distances are (n, r) for r landmarks (sampled rows of the stream).
    """

    rows: slice
    squared_distances: np.ndarray


def nearest_landmarks(landmarks: Rows, k: int, include_self: bool) -> np.ndarray:
    """Return the indices of each landmark's k nearest landmarks.

    The result is (r, k) for r landmarks.

    landmarks: (r, features), r sampled rows of the stream.
    k: number of nearest landmarks.
    include_self: if true, each landmark counts as the first of its own k nearest landmarks. If
        false, a landmark is not one of its own k nearest landmarks.
    """
    from sklearn.neighbors import NearestNeighbors

    # Subtract the medians, because the distances are accurate only for landmarks near zero.
    # scikit-learn computes the squared distance of rows x and y as |x|² + |y|² − 2 xᵀy.
    landmarks = subtract_shift_keeping_sparsity(landmarks, upper_column_medians(landmarks))
    search = NearestNeighbors(n_neighbors=k).fit(landmarks)
    return np.asarray(search.kneighbors(landmarks if include_self else None, return_distance=False))


def landmark_index_pairs_within(landmarks: Rows, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of landmarks at most `radius` apart.

    Returns two index arrays (pairs,), the first and the second landmark of each pair. Landmarks i
    and j appear as the pair (i, j) and as the pair (j, i). No landmark is paired with itself.

    landmarks: (r, features), r sampled rows of the stream, dense or CSR.
    radius: maximum Euclidean distance.
    """
    from sklearn.neighbors import NearestNeighbors

    landmarks = subtract_shift_keeping_sparsity(landmarks, upper_column_medians(landmarks))
    neighbours = NearestNeighbors(radius=radius).fit(landmarks).radius_neighbors(return_distance=False)
    starts = np.repeat(np.arange(len(neighbours)), [len(near) for near in neighbours])
    return starts, np.concatenate(neighbours).astype(np.int64)


def squared_pair_distances(landmarks: Rows, start_indices: np.ndarray, end_indices: np.ndarray) -> np.ndarray:
    """Return the squared distance (pairs,) of each pair of landmarks.

    landmarks: (r, features), r sampled rows of the stream, dense or CSR.
    start_indices: (pairs,), index of the first landmark of each pair.
    end_indices: (pairs,), index of the second landmark of each pair.
    """
    out = np.empty(len(start_indices))
    step = max(1, SEARCH_CHUNK // max(1, landmarks.shape[1]))
    for start in range(0, len(start_indices), step):
        part = slice(start, start + step)
        out[part] = squared_lengths(landmarks[start_indices[part]] - landmarks[end_indices[part]])
    return out


def upper_column_medians(rows: Rows) -> np.ndarray:
    """Return the median (features,) of each column.

    If the number of rows is even, the larger of the two middle values is taken. For sparse rows,
    the result is 0 in each column in which fewer than half of the rows have a value. So sparse
    rows stay sparse if the medians are subtracted from them.

    rows: (rows, features), at least one row, dense or CSR.
    """
    # With an even number of rows, take the larger of the two middle values and not their mean.
    # The medians of whole numbers are then whole numbers.
    half = rows.shape[0] // 2
    if not sp.issparse(rows):
        return np.asarray(np.partition(rows, half, axis=0)[half])

    medians = np.zeros(rows.shape[1])
    often = np.flatnonzero(2 * rows.count_nonzero(axis=0) >= rows.shape[0])
    medians[often] = np.partition(rows[:, often].toarray(), half, axis=0)[half]
    return medians


def subtract_shift_keeping_sparsity(rows: Rows, shift: np.ndarray) -> Rows:
    """Return rows minus the vector `shift`.

    The result is dense or CSR, as `rows` are. If `shift` is zero, `rows` are returned without a
    copy.

    rows: (rows, features), dense or CSR.
    shift: (features,).
    """
    if not shift.any():
        return rows
    if not sp.issparse(rows):
        return rows - shift
    return sp.csr_matrix(rows - sp.csr_matrix(np.ones((rows.shape[0], 1))) @ sp.csr_matrix(shift))


def squared_distance_chunks(rows: Rows, landmarks: Rows, shift: np.ndarray) -> Iterator[DistanceChunk]:
    """Yield squared distances to all landmarks in chunks of rows.

    rows: (rows, features), dense or CSR.
    landmarks: (r, features), r sampled rows of the stream.
    shift: (features,). If the landmarks are sparse, this vector is first subtracted from the
        landmarks and from the rows.
    """
    step = max(1, SEARCH_CHUNK // max(1, landmarks.shape[0]))
    landmarks = subtract_shift_keeping_sparsity(landmarks, shift) if sp.issparse(landmarks) else landmarks
    for start in range(0, rows.shape[0], step):
        part = slice(start, min(start + step, rows.shape[0]))
        yield DistanceChunk(part, _squared_distances_to_landmarks(rows[part], landmarks, shift))


def fit_sparse_width(rows: Rows, n_columns: int) -> Rows:
    """Return sparse rows with columns dropped or added.

    n_columns: number of columns of the result. Later columns are dropped, and missing columns are
        added as zeros. Dense rows are returned unchanged, whatever their number of columns.
    """
    if not sp.issparse(rows) or rows.shape[1] == n_columns:
        return rows
    if rows.shape[1] > n_columns:
        return rows[:, :n_columns]
    return sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], n_columns))


def _squared_distances_to_landmarks(rows: Rows, landmarks_shifted_if_sparse: Rows, shift: np.ndarray) -> np.ndarray:
    """Return the squared distances (rows, r) of rows to r landmarks.

    rows: (rows, features), dense or CSR.
    landmarks_shifted_if_sparse: (r, features), r sampled rows of the stream. If the landmarks are
        sparse, the caller has already subtracted `shift` from them.
    shift: (features,). If the landmarks are sparse, this function subtracts `shift` from the rows.
    """
    if not sp.issparse(landmarks_shifted_if_sparse):
        dense = rows.toarray() if sp.issparse(rows) else rows.astype(np.float64, copy=False)
        return np.asarray(cdist(dense, landmarks_shifted_if_sparse, "sqeuclidean"))

    # The squared distance of rows x and y is |x|² + |y|² − 2 xᵀy.
    # Set distances within rounding of zero to zero.
    rows = subtract_shift_keeping_sparsity(sp.csr_matrix(rows).astype(np.float64), shift)
    squares = squared_lengths(rows)[:, None] + squared_lengths(landmarks_shifted_if_sparse)
    distances = squares - 2.0 * (rows @ landmarks_shifted_if_sparse.T).toarray()
    return np.where(distances > 16 * np.finfo(np.float64).eps * squares, distances, 0.0)
