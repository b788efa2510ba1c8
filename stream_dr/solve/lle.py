"""lle: coordinates in which every row is the same mean of its neighbours as in the rows themselves.

W: barycentric weights of each row in its k nearest others, rows summing to 1 [GLPLS eq. 2.31]; the places are the
smallest eigenvectors of (I − W)ᵀ(I − W) [eq. 2.34] past as many zeros as the neighbour graph has parts, of unit length.

Cost: O(r k² features + r k³) for the weights, some rows' at a time in 32 MB, or what one row's neighbours take; O(r³) once
for the places, dense; apply O(r · features + k² features + k³) a row.

Why this way: each local Gram matrix is divided by its trace before its diagonal is raised, so the weights do not
depend on the unit of the features, and k equal rows share the weight evenly instead of dividing by zero.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from stream_dr.checks import at_least, finite, matrix, one_of, shaped, within
from stream_dr.projection import SOLUTIONS
from stream_dr.solve.landmarks import Kept, kept, of_variance_1, placed
from stream_dr.solve.neighbours import SEARCH_CHUNK, nearest_landmarks
from stream_dr.solve.spectral import EPS, with_fixed_signs
from stream_dr.statistics.protocol import nested_state


@nested_state
class Barycentre(NamedTuple):
    """Locally linear embedding of landmarks; a new row is the mean of its nearest landmarks' places by barycentric
    weights.

    landmarks: the reservoir's rows. places: (r, components). eigenvalues: (components,) of (I − W)ᵀ(I − W), ascending.
    neighbours: landmarks a new row counts as near. reg: share of a local Gram matrix's trace added to its diagonal.
    """

    landmarks: Kept
    places: np.ndarray
    eigenvalues: np.ndarray
    neighbours: int
    reg: float
    solution: str = "exact"

    def check(self) -> None:
        """Raise DamagedFile unless places are those of its landmarks."""
        one_of(self, "solution", SOLUTIONS)
        r, p = self.landmarks.check(), matrix(self, "places")[1]
        shaped(self, np.float64, places=(r, p), eigenvalues=(p,))
        finite(self, "places", "eigenvalues")
        at_least(self, 0.0, "reg")
        within(self, 1, max(r, 1) + 1, "neighbours")

    @property
    def kind(self) -> str:
        """ "landmarks"."""
        return "landmarks"

    @property
    def n_features(self) -> int:
        """Width of the rows it was learned from."""
        return self.landmarks.width

    @property
    def n_components(self) -> int:
        """Columns of its answer."""
        return int(self.places.shape[1])

    def oriented(self, order: np.ndarray, signs: np.ndarray) -> "Barycentre":
        """The same embedding with its components in another order (components,) and with signs (components,) ±1."""
        places = np.ascontiguousarray(self.places[:, order] * signs)
        return self._replace(places=places, eigenvalues=self.eigenvalues[order])

    def apply(self, X: Any) -> np.ndarray:
        """Place rows (rows, features), dense or CSR, at (rows, components). Raises WidthMismatch."""
        return placed(self.landmarks, self.places, X, self.mean_of_neighbours)

    def mean_of_neighbours(self, rows: Any, squared: np.ndarray) -> np.ndarray:
        """Barycentric means of the places of the landmarks nearest to rows at squared distances (rows, r)."""
        near = np.argpartition(squared, self.neighbours - 1, axis=1)[:, : self.neighbours]
        weights = barycentric_weights(rows, self.landmarks.rows, near, self.reg)
        ends = np.arange(0, near.size + 1, near.shape[1])
        return np.asarray(sp.csr_matrix((weights.ravel(), near.ravel(), ends), shape=squared.shape) @ self.places)


def locally_linear(rows: Any, n_components: int, n_neighbors: int, reg: float, unit: bool = False) -> Barycentre:
    """Places of rows (r, features), at most n_components; k = n_neighbors others, at most r − 1.

    unit: places have variance 1 along every component; otherwise they are of unit length.
    """
    r = rows.shape[0]
    if r < 2:
        return Barycentre(kept(rows), np.zeros((r, 0)), np.zeros(0), 1, reg)
    k = min(n_neighbors, r - 1)
    W = weight_matrix(rows, k, reg)
    parts = int(connected_components(W, directed=False)[0])
    last = min(parts + n_components, r)
    if last == parts:
        return Barycentre(kept(rows), np.zeros((r, 0)), np.zeros(0), k, reg)
    values, places = eigh(lle_alignment(W).toarray(), subset_by_index=[parts, last - 1])
    places = with_fixed_signs(of_variance_1(places) if unit else places)
    return Barycentre(kept(rows), places, np.maximum(values, 0.0), k, reg)


def weight_matrix(rows: Any, n_neighbors: int, reg: float, codes: np.ndarray | None = None) -> sp.csr_matrix:
    """W (r, r) CSR: barycentric weights of each row in its nearest others, at most n_neighbors.

    codes: (r,) classes; others of a row's own class only. A row without any other is its own mean.
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
    """(I − W)ᵀ(I − W) [GLPLS eq. 2.34]."""
    M = sp.eye_array(W.shape[0], format="csr") - W
    return sp.csr_matrix(M.T @ M)


def barycentric_weights(rows: Any, landmarks: Any, near: np.ndarray, reg: float) -> np.ndarray:
    """(rows, k) weights, summing to 1, of the landmarks `near` (rows, k) that best give each row back."""
    n, k = near.shape
    weights = np.empty((n, k))
    step = max(1, SEARCH_CHUNK // (k * max(k, landmarks.shape[1])))
    for start in range(0, n, step):
        part = slice(start, start + step)
        gram = _local_gram(rows[part], landmarks, near[part])
        trace = np.einsum("nii->n", gram)
        gram /= np.where(trace > 0, trace, 1.0)[:, None, None]
        gram[:, np.arange(k), np.arange(k)] += max(reg, k * EPS)
        weights[part] = np.linalg.solve(gram, np.ones((len(gram), k, 1)))[:, :, 0]
    return weights / weights.sum(axis=1, keepdims=True)


def _local_gram(rows: Any, landmarks: Any, near: np.ndarray) -> np.ndarray:
    """(rows, k, k) inner products of the landmarks' differences from their row."""
    if not sp.issparse(landmarks):
        dense = rows.toarray() if sp.issparse(rows) else rows
        differences = landmarks[near] - dense[:, None, :]
        return differences @ differences.transpose(0, 2, 1)
    rows, k = sp.csr_matrix(rows), near.shape[1]
    out = np.empty((len(near), k, k))
    for i, them in enumerate(near):
        differences = landmarks[them] - sp.vstack([rows[i]] * k, format="csr")
        out[i] = (differences @ differences.T).toarray()
    return out
