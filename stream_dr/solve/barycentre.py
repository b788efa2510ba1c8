"""Locally linear embedding: rows as means of their neighbours.

Every row's place is the same mean of its neighbours' places as the row is of theirs. W holds
barycentric weights of each row in its k nearest others, rows summing to 1 [GLPLS eq. 2.31]. The
places are the smallest eigenvectors of (I − W)ᵀ(I − W) [eq. 2.34], of unit length. As many zero
eigenvectors as the neighbour graph has parts are skipped.

Weights cost O(r k² features + r k³), for some rows at a time in 32 MB, or the memory of one row's
neighbours. Places cost O(r³), dense. Applying costs O(r · features + k² features + k³) a row.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from stream_dr.checks import (
    check_array_shapes,
    check_at_least,
    check_finite_arrays,
    check_one_of,
    check_within,
    require_matrix,
)
from stream_dr.projection import SOLUTIONS, ProjectionKind
from stream_dr.rows.block import Rows
from stream_dr.solve.landmarks import SampledLandmarks, places_of_rows, to_landmarks, to_unit_variance
from stream_dr.solve.neighbours import SEARCH_CHUNK, nearest_landmarks
from stream_dr.solve.spectral import EPS, with_fixed_signs
from stream_dr.statistics.protocol import nested_state


@nested_state
class Barycentre(NamedTuple):
    """Locally linear embedding of landmarks.

    A new row is placed at the mean of its nearest landmarks' places, by barycentric weights.

    Attributes
    ----------
    landmarks : Kept
        Rows of the reservoir.
    places : (r, components) float64
    eigenvalues : (components,) float64
        Eigenvalues of (I − W)ᵀ(I − W), ascending.
    neighbours : int
        Number of landmarks that a new row counts as near.
    reg : float
        Share of a local Gram matrix's trace that is added to its diagonal.
    """

    landmarks: SampledLandmarks
    places: np.ndarray
    eigenvalues: np.ndarray
    neighbours: int
    reg: float
    solution: str = "exact"

    def check(self) -> None:
        """Raise DamagedFile unless the places are those of its landmarks."""
        check_one_of(self, "solution", SOLUTIONS)
        r = self.landmarks.check()
        p = require_matrix(self, "places")[1]
        check_array_shapes(self, np.float64, places=(r, p), eigenvalues=(p,))
        check_finite_arrays(self, "places", "eigenvalues")
        check_at_least(self, 0.0, "reg")
        check_within(self, 1, max(r, 1) + 1, "neighbours")

    @property
    def kind(self) -> ProjectionKind:
        """Kind of projection, "landmarks"."""
        return "landmarks"

    @property
    def n_features(self) -> int:
        """Number of features of the landmarks."""
        return self.landmarks.width

    @property
    def n_components(self) -> int:
        """Number of components."""
        return int(self.places.shape[1])

    def oriented(self, order: np.ndarray, signs: np.ndarray) -> "Barycentre":
        """Return the embedding with its components in another order and with other signs.

        order: (components,) indices. signs: (components,) of ±1.
        """
        places = np.ascontiguousarray(self.places[:, order] * signs)
        return self._replace(places=places, eigenvalues=self.eigenvalues[order])

    def apply(self, X: Rows) -> np.ndarray:
        """Return the places (rows, components) of rows (rows, features), dense or CSR.

        Raises WidthMismatch.
        """
        return places_of_rows(self.landmarks, self.places, X, self.mean_of_neighbours)

    def mean_of_neighbours(self, rows: Rows, squared: np.ndarray) -> np.ndarray:
        """Return the barycentric mean of the places of each row's nearest landmarks.

        squared: (rows, r) squared distances of rows to landmarks.
        """
        near = np.argpartition(squared, self.neighbours - 1, axis=1)[:, : self.neighbours]
        weights = barycentric_weights(rows, self.landmarks.rows, near, self.reg)
        ends = np.arange(0, near.size + 1, near.shape[1])
        return np.asarray(sp.csr_matrix((weights.ravel(), near.ravel(), ends), shape=squared.shape) @ self.places)


def locally_linear(rows: Rows, n_components: int, n_neighbors: int, reg: float, unit: bool = False) -> Barycentre:
    """Return the embedding of rows (r, features) in at most `n_components` dimensions.

    n_neighbors: number of others, at most r − 1. unit: if true, places have variance 1 along every
    component. Otherwise they are of unit length.
    """
    r = rows.shape[0]
    if r < 2:
        return Barycentre(to_landmarks(rows), np.zeros((r, 0)), np.zeros(0), 1, reg)
    k = min(n_neighbors, r - 1)
    W = weight_matrix(rows, k, reg)
    parts = int(connected_components(W, directed=False)[0])
    last = min(parts + n_components, r)
    if last == parts:
        return Barycentre(to_landmarks(rows), np.zeros((r, 0)), np.zeros(0), k, reg)
    values, places = eigh(lle_alignment(W).toarray(), subset_by_index=[parts, last - 1])
    places = with_fixed_signs(to_unit_variance(places) if unit else places)
    return Barycentre(to_landmarks(rows), places, np.maximum(values, 0.0), k, reg)


def weight_matrix(rows: Rows, n_neighbors: int, reg: float, codes: np.ndarray | None = None) -> sp.csr_matrix:
    """Return the barycentric weights W (r, r) CSR.

    They are those of each row in its nearest others.

    n_neighbors: maximum number of others. codes: (r,) classes, or None. With classes, only others
    of a row's own class count. A row without any other is its own mean.
    """
    r = rows.shape[0]
    groups = [np.arange(r)] if codes is None else [np.flatnonzero(codes == c) for c in np.unique(codes)]
    starts, ends, weights = [], [], []
    for group in groups:
        k = min(n_neighbors, len(group) - 1)
        near = group[nearest_landmarks(rows[group], k, with_self=False)] if k else group[:, None]
        starts.append(np.repeat(group, near.shape[1]))
        ends.append(near.ravel())
        weights.append(barycentric_weights(rows[group], rows, near, reg).ravel())
    return sp.csr_matrix((np.concatenate(weights), (np.concatenate(starts), np.concatenate(ends))), shape=(r, r))


def lle_alignment(W: sp.csr_matrix) -> sp.csr_matrix:
    """Return (I − W)ᵀ(I − W) [GLPLS eq. 2.34]."""
    M = sp.eye_array(W.shape[0], format="csr") - W
    return sp.csr_matrix(M.T @ M)


def barycentric_weights(rows: Rows, landmarks: Rows, near: np.ndarray, reg: float) -> np.ndarray:
    """Return the weights (rows, k) of nearby landmarks.

    Their weighted mean is the closest one to the row.

    near: (rows, k) indices of landmarks. Each row's weights sum to 1.
    """
    n, k = near.shape
    weights = np.empty((n, k))
    step = max(1, SEARCH_CHUNK // (k * max(k, landmarks.shape[1])))
    for start in range(0, n, step):
        part = slice(start, start + step)
        gram = _local_gram(rows[part], landmarks, near[part])

        # Divided by the trace, so that weights do not depend on the unit of the features, and
        # equal rows share the weight evenly instead of dividing by zero.
        trace = np.einsum("nii->n", gram)
        gram /= np.where(trace > 0, trace, 1.0)[:, None, None]
        gram[:, np.arange(k), np.arange(k)] += max(reg, k * EPS)
        weights[part] = np.linalg.solve(gram, np.ones((len(gram), k, 1)))[:, :, 0]
    return weights / weights.sum(axis=1, keepdims=True)


def _local_gram(rows: Rows, landmarks: Rows, near: np.ndarray) -> np.ndarray:
    """Return the inner products (rows, k, k) of differences.

    The differences are those of landmarks from their row.
    """
    if not sp.issparse(landmarks):
        dense = rows.toarray() if sp.issparse(rows) else rows
        differences = landmarks[near] - dense[:, None, :]
        return differences @ differences.transpose(0, 2, 1)

    rows = sp.csr_matrix(rows)
    k = near.shape[1]
    out = np.empty((len(near), k, k))
    for i, them in enumerate(near):
        differences = landmarks[them] - sp.vstack([rows[i]] * k, format="csr")
        out[i] = (differences @ differences.T).toarray()
    return out
