"""laplacian_eigenmaps: the smooth coordinates of a neighbourhood graph, and Nyström's formula for new rows.

Solves L z = λ D z [GLPLS eq. 2.29] with zᵀ D z = 1 [eq. 2.28], L = D − S; the λ are those of I − D^-1/2 S D^-1/2. As
many zero eigenvectors as the graph has parts are skipped, unless asked for: they only say which part a row is in.

Cost: O(r³) once, dense; apply O(r · features) a row.

Why this way: on the landmarks D⁻¹ S z = (1 − λ) z, so Nyström's formula is exact there, provided a new row is
attached by the training graph's own rule. A component with μ = 1 − λ ≤ 1e-6 has no such
extension and is left out.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from stream_dr.checks import WIDEST, at_least, finite, matrix, one_of, shaped, within
from stream_dr.projection import SOLUTIONS
from stream_dr.solve.graph import Graph
from stream_dr.solve.landmarks import Kept, kept, of_variance_1, placed
from stream_dr.solve.spectral import with_fixed_signs
from stream_dr.statistics.protocol import nested_state

SMALLEST_MU = 1e-6
"""Components whose μ = 1 − λ is not above this are left out."""


@nested_state
class Eigenmap(NamedTuple):
    """Laplacian eigenmaps of landmarks [mathematics §7], by Nyström: z(x) = (1/μ) Σ_j w(x, x_j) z_j / Σ_j w(x, x_j).

    landmarks: the reservoir's rows. places: (r, components). eigenvalues: (components,) λ, ascending; μ = 1 − λ.
    radii: (r,) squared radius of each landmark's neighbourhood. neighbours: landmarks a new row counts as near.
    temperature: t of the heat kernel; 0 for weights of 1. parts: of the graph. one_sided: share of its weight that an edge
    has which only one end counts.
    """

    landmarks: Kept
    places: np.ndarray
    eigenvalues: np.ndarray
    radii: np.ndarray
    neighbours: int
    temperature: float
    parts: int = 1
    solution: str = "exact"
    one_sided: float = 0.5

    def check(self) -> None:
        """Raise DamagedFile unless places and radii are those of its landmarks."""
        one_of(self, "solution", SOLUTIONS)
        r, p = self.landmarks.check(), matrix(self, "places")[1]
        shaped(self, np.float64, places=(r, p), eigenvalues=(p,), radii=(r,))
        finite(self, "places", "eigenvalues")
        at_least(self, 0.0, "radii", "temperature", "one_sided")
        within(self, 0, r + 1, "neighbours")
        within(self, 1, WIDEST, "parts")

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

    def oriented(self, order: np.ndarray, signs: np.ndarray) -> "Eigenmap":
        """The same embedding with its components in another order (components,) and with signs (components,) ±1."""
        places = np.ascontiguousarray(self.places[:, order] * signs)
        return self._replace(places=places, eigenvalues=self.eigenvalues[order])

    def apply(self, X: Any) -> np.ndarray:
        """Place rows (rows, features), dense or CSR, at (rows, components). Raises WidthMismatch."""
        return placed(self.landmarks, self.places, X, self.nystrom)

    def nystrom(self, rows: Any, squared: np.ndarray) -> np.ndarray:
        """Nyström's formula for rows at squared distances (rows, r); a landmark at distance 0 is the row itself, no edge."""
        squared = np.where(squared > 0, squared, np.inf)
        ends = (squared <= self.radii).astype(np.float64)  # 0, 1 or 2 of the edge's ends count the other
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
    rows: Any, graph: Graph, n_components: int, unit: bool = False, drop_first: bool = True
) -> Eigenmap:
    """Places of rows (r, features) by their graph: at most n_components smallest eigenvalues past the parts' zeros.

    unit: places have variance 1 along every component; otherwise zᵀ D z = 1. drop_first: pass over
    those zeros, whose eigenvectors only say which part a row is in.
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
        places = of_variance_1(places) if unit else places
    keep = 1.0 - values > SMALLEST_MU
    eigenvalues, temperature = np.maximum(values[keep], 0.0), graph.temperature or 0.0
    return Eigenmap(
        kept(rows),
        np.ascontiguousarray(places[:, keep]),
        eigenvalues,
        graph.radii,
        graph.neighbours,
        temperature,
        max(parts, 1),
        one_sided=graph.one_sided,
    )
