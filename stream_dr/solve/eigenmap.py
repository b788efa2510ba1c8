"""Laplacian eigenmaps: smooth coordinates of a neighbourhood graph.

Nyström's formula gives the coordinates of new rows. The nodes of the graph are r landmarks
(sampled rows of the stream):

* S (r, r) are the weights of the edges.
* D (r, r) is the diagonal matrix of the degrees, which are the row sums of S.
* L = D − S is the Laplacian.

The coordinates z (r,) of a component solve L z = λ D z [GLPLS eq. 2.29] with zᵀ D z = 1 [GLPLS
eq. 2.28]. λ is the component's eigenvalue. The program computes eigenvectors of the matrix
I − D^-1/2 S D^-1/2, which has the eigenvalues λ.

The graph has one zero eigenvalue for each of its connected components. The eigenvectors of the
eigenvalue zero only show in which connected component a row is. They are skipped by default.

The coordinates of a new row follow from Nyström's formula. The formula divides by μ = 1 − λ, so a
component with μ ≤ 1e-6 is dropped. For a landmark, the formula gives exactly the landmark's own
coordinates, because D⁻¹ S z = μ z. The rule for edges between landmarks also gives the edges of a
new row.

Solving costs O(r³), because the eigenproblem is dense. Projecting a new row costs O(r · features).
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from stream_dr import checks
from stream_dr.projection import SOLUTIONS, ProjectionKind
from stream_dr.rows.block import Rows
from stream_dr.solve.graph import Graph
from stream_dr.solve.neighbours import SampledLandmarks, as_landmarks, place_rows, scale_to_unit_variance
from stream_dr.solve.spectral import with_fixed_signs
from stream_dr.statistics.protocol import register_nested_state

SMALLEST_MU = 1e-6
"""Number that 1 − eigenvalue of a component must exceed.

The formula for coordinates of new rows divides by 1 − eigenvalue. So components for which it is at
most this number are dropped.
"""


@register_nested_state
class Eigenmap(NamedTuple):
    """Laplacian eigenmaps of landmarks (r sampled rows of the stream).

    Rows that are near each other are joined by weighted edges. A new row's coordinate in a
    component comes from Nyström's formula. It is the mean of the landmarks' coordinates, weighted
    by the edges between the new row and the landmarks, divided by 1 − the component's eigenvalue.

    Attributes
    ----------
    landmarks : SampledLandmarks
        The landmarks themselves.
    places : (r, components) float64
        Coordinates of the r landmarks.
    eigenvalues : (components,) float64
        Eigenvalue of each component, ascending.
    radii : (r,) float64
        Squared distance within which a new row counts as a neighbour of each landmark.
    neighbours : int
        Number of landmarks that count as neighbours of a new row.
    temperature : float
        Parameter t of the heat kernel exp(−d²/t), the weight of an edge of length d. 0 means that
        all edges have weight 1.
    parts : int
        Number of connected components of the graph of landmarks.
    solution : str
        Name of the method of solution, one of SOLUTIONS in projection.py.
    one_sided : float
        Factor for the weight of a one-sided edge. An edge is one-sided if only one of its two rows
        counts as a neighbour of the other row.
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
        """Raise DamagedFile unless all arrays have one row per landmark."""
        checks.check_one_of(self, "solution", SOLUTIONS)
        self.landmarks.check()
        r = self.landmarks.n_landmarks
        p = checks.shape_of_checked_matrix(self, "places")[1]
        checks.check_dtype_and_shapes(self, np.float64, places=(r, p), eigenvalues=(p,), radii=(r,))
        checks.check_finite_arrays(self, "places", "eigenvalues")
        checks.check_at_least(self, 0.0, "radii", "temperature", "one_sided")
        checks.check_within(self, 0, r + 1, "neighbours")
        checks.check_within(self, 1, checks.FEATURE_COUNT_LIMIT, "parts")

    @property
    def kind(self) -> ProjectionKind:
        """Kind of the projection, "landmarks".

        Landmarks are sampled rows. New rows are placed by their distances to the landmarks.
        """
        return "landmarks"

    @property
    def n_features(self) -> int:
        """Number of features of the landmarks."""
        return self.landmarks.width

    @property
    def n_components(self) -> int:
        """Number of components."""
        return int(self.places.shape[1])

    def orient_components(self, order: np.ndarray, signs: np.ndarray) -> "Eigenmap":
        """Return the embedding with reordered components and changed signs.

        order: (components,). Entry i is the present index of the new component i.
        signs: (components,) of ±1, factors of the reordered components.
        """
        places = np.ascontiguousarray(self.places[:, order] * signs)
        return self._replace(places=places, eigenvalues=self.eigenvalues[order])

    def apply(self, X: Rows) -> np.ndarray:
        """Return the coordinates (rows, components) of new rows.

        X: (rows, features), dense or CSR.

        Raises WidthMismatch if dense rows do not have `n_features` columns.
        """
        return place_rows(self.landmarks, self.places, X, self.place_by_nystrom)

    def place_by_nystrom(self, rows: Rows, squared_distances: np.ndarray) -> np.ndarray:
        """Return the coordinates (rows, components) of rows by Nyström's formula.

        A row's coordinates are a weighted mean of the landmarks' coordinates, divided by 1 minus
        each component's eigenvalue. Landmarks are sampled rows of the stream.

        rows: (rows, features), dense or CSR.
        squared_distances: (rows, r) squared distances of the rows to the r landmarks. A landmark
            at distance 0 is the row itself, so the row has no edge to this landmark.
        """
        squared_distances = np.where(squared_distances > 0, squared_distances, np.inf)

        # `ends` counts how many of a new row and a landmark have the other as a neighbour.
        # First count the landmarks that have the new row as a neighbour.
        ends = (squared_distances <= self.radii).astype(np.float64)
        if self.neighbours:
            near = np.argpartition(squared_distances, self.neighbours - 1, axis=1)[:, : self.neighbours]
            ends[np.arange(len(ends))[:, None], near] += 1.0

        # Compute the weights of the edges between new rows and landmarks.
        # Divide a row's weights of the heat kernel by the largest, so that not all underflow to 0.
        edges = np.minimum(self.one_sided * ends, 1.0)
        if self.temperature:
            nearest = squared_distances.min(axis=1, keepdims=True)
            edges *= np.exp((np.where(np.isfinite(nearest), nearest, 0.0) - squared_distances) / self.temperature)

        total = edges.sum(axis=1, keepdims=True)
        means: np.ndarray = (edges @ self.places) / np.where(total > 0, total, 1.0)
        return means / (1.0 - self.eigenvalues)


def laplacian_eigenmaps(
    rows: Rows, graph: Graph, n_components: int, unit_variance: bool = False, drop_zero_eigenvectors: bool = True
) -> Eigenmap:
    """Return the Laplacian eigenmaps of r rows (r, features).

    rows: dense or CSR.
    graph: neighbourhood graph of the rows.
    n_components: maximum number of components.
    unit_variance: if true, coordinates have variance 1 along every component. If false, the sum of
        each component's squared coordinates, weighted by the degrees of the graph, is 1.
    drop_zero_eigenvectors: if true, skip the eigenvectors of the eigenvalue zero. Their number is
        the number of connected components of the graph.
    """
    # The components are eigenvectors number `first` to `last` - 1, by ascending eigenvalue.
    r = rows.shape[0]
    parts = int(connected_components(graph.weights, directed=False)[0])
    first = parts if drop_zero_eigenvectors else 0
    last = min(first + n_components, r)

    # Solve a symmetric eigenproblem for the graph's weights, divided by the roots of the degrees.
    # Divide the eigenvectors by the roots of the degrees to get the coordinates of the rows.
    values, places = np.zeros(0), np.zeros((r, 0))
    if last > first:
        root = np.sqrt(np.where(graph.degrees > 0, graph.degrees, 1.0))
        normal = sp.diags(1.0 / root) @ graph.weights @ sp.diags(1.0 / root)
        values, vectors = eigh(np.eye(r) - normal.toarray(), subset_by_index=[first, last - 1])
        places = with_fixed_signs(vectors / root[:, None])
        places = scale_to_unit_variance(places) if unit_variance else places

    # Drop components for which 1 − eigenvalue is about zero.
    # The formula for the coordinates of new rows divides by 1 − eigenvalue.
    keep = 1.0 - values > SMALLEST_MU
    eigenvalues, temperature = np.maximum(values[keep], 0.0), graph.temperature or 0.0
    return Eigenmap(
        as_landmarks(rows),
        np.ascontiguousarray(places[:, keep]),
        eigenvalues,
        graph.radii,
        graph.neighbours,
        temperature,
        max(parts, 1),
        one_sided=graph.one_sided,
    )
