"""Laplacian eigenmaps: smooth coordinates of a neighbourhood graph, and Nyström's formula.

They solve L z = λ D z [GLPLS eq. 2.29] with zᵀ D z = 1 [eq. 2.28], where S are the graph's
weights, D its degrees and L = D − S. The λ are those of I − D^-1/2 S D^-1/2. As many zero
eigenvectors as the graph has parts are skipped, unless asked for, because they only say which part
a row is in.

On the landmarks D⁻¹ S z = (1 − λ) z, so Nyström's formula is exact there, if a new row is attached
by the rule of the training graph. A component with μ = 1 − λ ≤ 1e-6 has no such extension and is
dropped. Solving costs O(r³), dense. Applying costs O(r · features) a row.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from stream_dr.checks import (
    WIDEST,
    check_array_shapes,
    check_at_least,
    check_finite_arrays,
    check_one_of,
    check_within,
    require_matrix,
)
from stream_dr.projection import SOLUTIONS, ProjectionKind
from stream_dr.rows.block import Rows
from stream_dr.solve.graph import Graph
from stream_dr.solve.landmarks import SampledLandmarks, places_of_rows, to_landmarks, to_unit_variance
from stream_dr.solve.spectral import with_fixed_signs
from stream_dr.statistics.protocol import nested_state

SMALLEST_MU = 1e-6
"""Largest μ = 1 − λ of a component that is dropped."""


@nested_state
class Eigenmap(NamedTuple):
    """Laplacian eigenmaps of landmarks [mathematics §7].

    New rows are placed by Nyström's formula, z(x) = (1/μ) Σ_j w(x, x_j) z_j / Σ_j w(x, x_j).

    Attributes
    ----------
    landmarks : Kept
        Rows of the reservoir.
    places : (r, components) float64
    eigenvalues : (components,) float64
        λ, ascending. μ = 1 − λ.
    radii : (r,) float64
        Squared radius of each landmark's neighbourhood.
    neighbours : int
        Number of landmarks that a new row counts as near.
    temperature : float
        t of the heat kernel. 0 for weights of 1.
    parts : int
        Number of parts of the graph.
    one_sided : float
        Share of its weight that an edge has if only one end counts the other.
    """

    landmarks: SampledLandmarks
    places: np.ndarray
    eigenvalues: np.ndarray
    radii: np.ndarray
    neighbours: int
    temperature: float
    parts: int = 1
    solution: str = "exact"
    one_sided: float = 0.5

    def check(self) -> None:
        """Raise DamagedFile unless the places and radii are those of its landmarks."""
        check_one_of(self, "solution", SOLUTIONS)
        r = self.landmarks.check()
        p = require_matrix(self, "places")[1]
        check_array_shapes(self, np.float64, places=(r, p), eigenvalues=(p,), radii=(r,))
        check_finite_arrays(self, "places", "eigenvalues")
        check_at_least(self, 0.0, "radii", "temperature", "one_sided")
        check_within(self, 0, r + 1, "neighbours")
        check_within(self, 1, WIDEST, "parts")

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

    def oriented(self, order: np.ndarray, signs: np.ndarray) -> "Eigenmap":
        """Return the embedding with its components in another order and with other signs.

        order: (components,) indices. signs: (components,) of ±1.
        """
        places = np.ascontiguousarray(self.places[:, order] * signs)
        return self._replace(places=places, eigenvalues=self.eigenvalues[order])

    def apply(self, X: Rows) -> np.ndarray:
        """Return the places (rows, components) of rows (rows, features), dense or CSR.

        Raises WidthMismatch.
        """
        return places_of_rows(self.landmarks, self.places, X, self.nystrom)

    def nystrom(self, rows: Rows, squared: np.ndarray) -> np.ndarray:
        """Return the places (rows, components) of rows by Nyström's formula.

        squared: (rows, r) squared distances of rows to landmarks. A landmark at distance 0 is the
        row itself and has no edge.
        """
        squared = np.where(squared > 0, squared, np.inf)
        # 0, 1 or 2 of the edge's ends count the other.
        ends = (squared <= self.radii).astype(np.float64)
        if self.neighbours:
            near = np.argpartition(squared, self.neighbours - 1, axis=1)[:, : self.neighbours]
            ends[np.arange(len(ends))[:, None], near] += 1.0
        edges = np.minimum(self.one_sided * ends, 1.0)
        if self.temperature:
            nearest = squared.min(axis=1, keepdims=True)
            edges *= np.exp((np.where(np.isfinite(nearest), nearest, 0.0) - squared) / self.temperature)
        total = edges.sum(axis=1, keepdims=True)
        return (edges @ self.places) / np.where(total > 0, total, 1.0) / (1.0 - self.eigenvalues)


def laplacian_eigenmaps(
    rows: Rows, graph: Graph, n_components: int, unit: bool = False, drop_first: bool = True
) -> Eigenmap:
    """Return the embedding of rows (r, features) by their graph.

    n_components: maximum number of components. unit: if true, places have variance 1 along every
    component. Otherwise zᵀ D z = 1. drop_first: skip the zero eigenvectors of the graph's parts.
    """
    r = rows.shape[0]
    parts = int(connected_components(graph.weights, directed=False)[0])
    first = parts if drop_first else 0
    last = min(first + n_components, r)
    values, places = np.zeros(0), np.zeros((r, 0))
    if last > first:
        root = np.sqrt(np.where(graph.degrees > 0, graph.degrees, 1.0))
        normal = sp.diags(1.0 / root) @ graph.weights @ sp.diags(1.0 / root)
        values, vectors = eigh(np.eye(r) - normal.toarray(), subset_by_index=[first, last - 1])
        places = with_fixed_signs(vectors / root[:, None])
        places = to_unit_variance(places) if unit else places

    keep = 1.0 - values > SMALLEST_MU
    eigenvalues, temperature = np.maximum(values[keep], 0.0), graph.temperature or 0.0
    return Eigenmap(
        to_landmarks(rows),
        np.ascontiguousarray(places[:, keep]),
        eigenvalues,
        graph.radii,
        graph.neighbours,
        temperature,
        max(parts, 1),
        one_sided=graph.one_sided,
    )
