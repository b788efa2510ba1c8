"""Embeddings of sampled rows: Laplacian eigenmaps and locally linear.

Laplacian eigenmaps are smooth coordinates of a neighbourhood graph. Nyström's formula gives the
coordinates of new rows. The nodes of the graph are r landmarks (sampled rows of the stream):

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

Solving Laplacian eigenmaps costs O(r³), because the eigenproblem is dense. Projecting a new row
costs O(r · features).

Locally linear embedding describes rows as means of their neighbours. Each row is close to a
weighted mean of its k nearest other rows. The weights (called barycentric) are the matrix W (r, r)
for r rows. Each row of W sums to 1 [GLPLS eq. 2.31]. The embedding chooses coordinates such that
each row's coordinates are the mean of its neighbours' coordinates, with the weights W.

The coordinates are eigenvectors of the matrix (I − W)ᵀ(I − W), scaled to length 1. The
eigenvectors of the smallest eigenvalues are taken [GLPLS eq. 2.34]. The matrix has one zero
eigenvalue for each connected component of the neighbour graph. The eigenvectors of the eigenvalue
zero are skipped.

Costs of locally linear embedding, for r rows:

* The weights cost O(r k² features + r k³) time. They are computed for a chunk of rows at a time,
  in about 32 MB. A chunk has at least one row, even if this row's neighbours need more.
* The coordinates cost O(r³) time, because the eigenproblem is dense.
* Projecting a new row costs O(r · features + k² features + k³) time.
"""

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from stream_dr import checks
from stream_dr.batch.block import Rows
from stream_dr.projection import SOLUTIONS, ProjectionKind
from stream_dr.solve.neighbours import (
    SEARCH_CHUNK,
    Graph,
    SampledLandmarks,
    as_landmarks,
    nearest_landmarks,
    place_rows,
    scale_to_unit_variance,
)
from stream_dr.solve.spectral import EPS, with_fixed_signs
from stream_dr.statistics.protocol import register_nested_state

SMALLEST_MU = 1e-6
"""Number that 1 − eigenvalue of a component must exceed.

The formula for coordinates of new rows divides by 1 − eigenvalue. So components for which it is at
most this number are dropped.
"""


def _check_places(embedding: "Eigenmap | BarycentricProjection") -> int:
    """Raise DamagedFile unless the coordinates fit the landmarks.

    Returns the number of landmarks.
    """
    checks.check_one_of(embedding, "solution", SOLUTIONS)
    embedding.landmarks.check()
    r = embedding.landmarks.n_landmarks
    p = checks.shape_of_checked_matrix(embedding, "places")[1]
    checks.check_dtype_and_shapes(embedding, np.float64, places=(r, p), eigenvalues=(p,))
    checks.check_finite_arrays(embedding, "places", "eigenvalues")
    return r


@register_nested_state
class Eigenmap(NamedTuple):
    """Laplacian eigenmaps of landmarks (r sampled rows of the stream).

    Rows that are near each other are joined by weighted edges. Let S (r, r) be the weights of the
    edges between landmarks, D the diagonal matrix of the row sums of S, and L = D − S. The
    landmarks' coordinates z (r,) in a component solve L z = λ D z. A new row's coordinate comes
    from Nyström's formula. It is the mean of the landmarks' coordinates, weighted by the edges
    between the new row and the landmarks, divided by 1 − λ.

    Attributes
    ----------
    landmarks : SampledLandmarks
        The landmarks themselves.
    places : (r, components) float64
        Coordinates of the r landmarks.
    eigenvalues : (components,) float64
        Eigenvalue λ of each component, ascending.
    radii : (r,) float64
        Square of each landmark's radius. A new row is a neighbour of a landmark if it lies within
        this radius.
    neighbours : int
        Number of nearest landmarks that are neighbours of a new row. 0 if only radii count.
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
        """Raise DamagedFile unless this Eigenmap's arrays are valid.

        `landmarks`, `places` and `radii` must have one row for each landmark, `places` and
        `eigenvalues` one entry for each component. Numbers must be finite and in their range.
        """
        r = _check_places(self)
        checks.check_dtype_and_shapes(self, np.float64, radii=(r,))
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

        Landmarks are sampled rows of the stream, which are joined by a graph of their neighbours.
        A new row gets weighted edges to landmarks by the rule of this graph. Its coordinate in a
        component is the mean of the landmarks' coordinates, weighted by the edges, divided by
        1 − λ. λ is the component's eigenvalue of the graph's normalised Laplacian. For a landmark,
        the mean would be 1 − λ times the landmark's own coordinate.

        rows: (rows, features), dense or CSR.
        squared_distances: (rows, r) squared distances of the rows to the r landmarks. There is no
            edge at distance 0, because an edge never joins a row to itself.
        """
        squared_distances = np.where(squared_distances > 0, squared_distances, np.inf)
        # An edge of two ends has weight 1, and an edge of one end has weight `one_sided` (0.5 or 1,
        # by the rule of the graph).
        edges = np.minimum(self.one_sided * self._edge_ends(squared_distances), 1.0)
        if self.temperature:
            # The heat kernel is exp(−d²/t) for the distance d. A row's smallest d² is subtracted,
            # so that not all its weights underflow to 0. This changes no weighted mean.
            nearest = squared_distances.min(axis=1, keepdims=True)
            nearest = np.where(np.isfinite(nearest), nearest, 0.0)
            edges *= np.exp((nearest - squared_distances) / self.temperature)

        # A row without edges gets the coordinates 0.
        total = edges.sum(axis=1, keepdims=True)
        means: np.ndarray = (edges @ self.places) / np.where(total > 0, total, 1.0)
        return means / (1.0 - self.eigenvalues)

    def _edge_ends(self, squared_distances: np.ndarray) -> np.ndarray:
        """Return the number of ends (0, 1 or 2) of each edge from a row to a landmark.

        An edge has 2 ends if both are neighbours of each other, 1 if only one is a neighbour of the
        other. A landmark has the rows within its radius as neighbours. A row has its nearest
        landmarks, or none if the graph has one given radius (`neighbours` is 0).
        """
        ends = (squared_distances <= self.radii).astype(np.float64)
        if self.neighbours:
            near = np.argpartition(squared_distances, self.neighbours - 1, axis=1)[:, : self.neighbours]
            ends[np.arange(len(ends))[:, None], near] += 1.0
        return ends


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
    # `parts` is the number of connected components of the graph.
    r = rows.shape[0]
    parts = int(connected_components(graph.weights, directed=False)[0])
    first = 0
    if drop_zero_eigenvectors:
        first = parts
    last = min(first + n_components, r)

    # Solve a symmetric eigenproblem for the graph's weights, divided by the roots of the degrees.
    # Divide the eigenvectors by the roots of the degrees to get the coordinates of the rows.
    values = np.zeros(0)
    places = np.zeros((r, 0))
    if last > first:
        root = np.sqrt(np.where(graph.degrees > 0, graph.degrees, 1.0))
        normal = sp.diags(1.0 / root) @ graph.weights @ sp.diags(1.0 / root)
        values, vectors = eigh(np.eye(r) - normal.toarray(), subset_by_index=[first, last - 1])
        places = with_fixed_signs(vectors / root[:, None])
        if unit_variance:
            places = scale_to_unit_variance(places)

    # Drop components for which 1 − eigenvalue is about zero.
    # The formula for the coordinates of new rows divides by 1 − eigenvalue.
    keep = 1.0 - values > SMALLEST_MU
    eigenvalues = np.maximum(values[keep], 0.0)
    places = np.ascontiguousarray(places[:, keep])
    temperature = graph.temperature or 0.0
    return Eigenmap(
        as_landmarks(rows),
        places,
        eigenvalues,
        graph.radii,
        graph.neighbours,
        temperature,
        max(parts, 1),
        one_sided=graph.one_sided,
    )


@register_nested_state
class BarycentricProjection(NamedTuple):
    """Locally linear embedding of landmarks (sampled rows).

    The coordinates of a new row are the weighted mean of its nearest landmarks' coordinates. The
    weights (called barycentric) sum to 1. With these weights, the weighted mean of the nearest
    landmarks is as close to the new row as possible.

    Attributes
    ----------
    landmarks : SampledLandmarks
        The r landmarks.
    places : (r, components) float64
        Coordinates of the r landmarks.
    eigenvalues : (components,) float64
        Eigenvalue of each component, ascending. With the matrix W (r, r), whose row i has the
        weights of landmark i's own neighbours, they are eigenvalues of (I − W)ᵀ(I − W).
    neighbours : int
        Number of landmarks that count as neighbours of a new row.
    reg : float
        Regularisation of the weights. The larger `reg` is, the more equal are the weights.
    solution : str
        Name of the method of solution, one of SOLUTIONS in projection.py.
    """

    landmarks: SampledLandmarks
    places: np.ndarray
    eigenvalues: np.ndarray
    neighbours: int
    reg: float
    solution: str = "exact"

    def check(self) -> None:
        """Raise DamagedFile unless this projection's arrays are valid.

        `places` must have one row for each landmark, and one column for each of the `eigenvalues`.
        Numbers must be finite and in their range.
        """
        r = _check_places(self)
        checks.check_at_least(self, 0.0, "reg")
        checks.check_within(self, 1, max(r, 1) + 1, "neighbours")

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

    def orient_components(self, order: np.ndarray, signs: np.ndarray) -> "BarycentricProjection":
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
        return place_rows(self.landmarks, self.places, X, self.place_by_neighbour_mean)

    def place_by_neighbour_mean(self, rows: Rows, squared_distances: np.ndarray) -> np.ndarray:
        """Return each row's coordinates (rows, components) from its nearest landmarks.

        Landmarks are sampled rows of the stream. A row's coordinates are the weighted mean of its
        nearest landmarks' coordinates. `barycentric_weights` computes the weights.

        rows: (rows, features), dense or CSR.
        squared_distances: (rows, r) squared distances of the rows to the r landmarks.
        """
        # `near` (rows, neighbours) has the indices of each row's nearest landmarks.
        near = np.argpartition(squared_distances, self.neighbours - 1, axis=1)[:, : self.neighbours]
        weights = barycentric_weights(rows, self.landmarks.rows, near, self.reg)
        # Row i of the CSR matrix (rows, r) has the weights of row i's nearest landmarks.
        indptr = np.arange(0, near.size + 1, near.shape[1])
        sparse_weights = sp.csr_matrix((weights.ravel(), near.ravel(), indptr), shape=squared_distances.shape)
        return np.asarray(sparse_weights @ self.places)


def locally_linear_embedding(
    rows: Rows, n_components: int, n_neighbors: int, reg: float, unit_variance: bool = False
) -> BarycentricProjection:
    """Return the locally linear embedding of r rows.

    Issues a warning if an eigenvalue is only rounding error.

    rows: (r, features), dense or CSR.
    n_components: maximum number of components.
    n_neighbors: number of other rows that count as a row's neighbours. At most r − 1 are used.
    reg: regularisation of the weights by which a row is a mean of its neighbours. The larger `reg`
        is, the more equal are the weights.
    unit_variance: if true, the coordinates are scaled to variance 1 along every component. If
        false, each component's coordinates (r,) have Euclidean length 1.
    """
    # One row has no neighbours, so the embedding has no components.
    r = rows.shape[0]
    landmarks = as_landmarks(rows)
    if r < 2:
        return BarycentricProjection(landmarks, np.zeros((r, 0)), np.zeros(0), 1, reg)

    # Compute the matrix W of the weights of each row's neighbours.
    # Each connected component of the neighbour graph causes one eigenvalue 0, which is skipped.
    k = min(n_neighbors, r - 1)
    W = barycentric_weight_matrix(rows, k, reg)
    parts = int(connected_components(W, directed=False)[0])
    last = min(parts + n_components, r)
    if last == parts:
        return BarycentricProjection(landmarks, np.zeros((r, 0)), np.zeros(0), k, reg)

    alignment = lle_alignment_matrix(W)
    values, places = eigh(alignment.toarray(), subset_by_index=[parts, last - 1])

    # The largest sum of a row's absolute entries bounds the eigenvalues. Eigenvalues up to 32 · EPS
    # of this bound are rounding errors. The factor 32 is a safety margin.
    bound = 32 * EPS * float(abs(alignment).sum(axis=1).max())
    count = int((values <= bound).sum())
    if count:
        warnings.warn(
            f"{count} of the {len(values)} components have an eigenvalue that is only rounding error. Such a component "
            "is constant on parts of the neighbour graph, or, with a tiny reg, one of many equal solutions. Set more "
            "n_neighbors, or a larger reg.",
            stacklevel=2,
        )

    if unit_variance:
        places = scale_to_unit_variance(places)
    places = with_fixed_signs(places)
    return BarycentricProjection(landmarks, places, np.maximum(values, 0.0), k, reg)


def _neighbours_in_group(rows: Rows, group: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Return the indices in `rows` of the neighbours of each row of a group."""
    # The neighbours are in the group, too. group: indices of its rows. The result is (rows of the
    # group, k) for k neighbours.
    # A row that is alone in its group is its own neighbour.
    k = min(n_neighbors, len(group) - 1)
    if not k:
        return group[:, None]
    return group[nearest_landmarks(rows[group], k, include_self=False)]  # type: ignore[no-any-return]


def barycentric_weight_matrix(
    rows: Rows, n_neighbors: int, reg: float, class_codes: np.ndarray | None = None
) -> sp.csr_matrix:
    """Return the weights of each row's neighbours, as CSR.

    The result is (r, r) for r rows. The weights (called barycentric) of a row's neighbours sum to
    1. With these weights, the mean of the neighbours is as close to the row as possible.

    rows: (r, features), r rows, dense or CSR.
    n_neighbors: maximum number of neighbours of a row.
    reg: regularisation of the weights by which a row is a mean of its neighbours. The larger `reg`
        is, the more equal are the weights.
    class_codes: (r,) class of each row, or None. If not None, only rows of equal class are
        neighbours, and a row that is alone in its class has weight 1 on itself.
    """
    # A group has the indices of rows of one class. Without classes, all rows are one group.
    r = rows.shape[0]
    codes = np.zeros(r) if class_codes is None else class_codes
    groups = [np.flatnonzero(codes == code) for code in np.unique(codes)]

    row_indices = []
    column_indices = []
    weights = []
    for group in groups:
        near = _neighbours_in_group(rows, group, n_neighbors)
        row_indices.append(np.repeat(group, near.shape[1]))
        column_indices.append(near.ravel())
        weights.append(barycentric_weights(rows[group], rows, near, reg).ravel())
    row_and_column = (np.concatenate(row_indices), np.concatenate(column_indices))
    return sp.csr_matrix((np.concatenate(weights), row_and_column), shape=(r, r))


def lle_alignment_matrix(W: sp.csr_matrix) -> sp.csr_matrix:
    """Return the matrix (I − W)ᵀ(I − W), as CSR.

    Its eigenvectors are the coordinates of locally linear embedding.

    W: (r, r). Row i has the weights with which row i is closest to a mean of its neighbours.
    """
    M = sp.eye_array(W.shape[0], format="csr") - W
    return sp.csr_matrix(M.T @ M)


def barycentric_weights(rows: Rows, landmarks: Rows, neighbour_indices: np.ndarray, reg: float) -> np.ndarray:
    """Return the barycentric weights of landmarks near each row.

    The result is (rows, k) for k landmarks near each row. Landmarks are sampled rows of the
    stream. Each row's weights sum to 1. With these weights, the weighted mean of the k landmarks
    is as close to the row as possible.

    rows: (rows, features), dense or CSR.
    landmarks: (r, features), r landmarks, dense or CSR.
    neighbour_indices: (rows, k), indices of the k landmarks near each row.
    reg: regularisation. The larger `reg` is, the more equal are the weights of a row.
    """
    n, k = neighbour_indices.shape
    weights = np.empty((n, k))

    # Let G (k, k) be the inner products of a row's differences to its k landmarks. The closest
    # mean has the weights w that minimise wᵀ G w and sum to 1: w is G⁻¹ times a vector of ones,
    # divided by its sum. A row takes k differences of all features, and k · k inner products.
    # Handle the rows in chunks, so that temporary arrays have at most about SEARCH_CHUNK values.
    step = max(1, SEARCH_CHUNK // (k * max(k, landmarks.shape[1])))
    for start in range(0, n, step):
        part = slice(start, start + step)
        gram = _local_gram_matrices(rows[part], landmarks, neighbour_indices[part])

        # Divide each row's matrix of inner products by its trace (the sum of its diagonal).
        # The weights then do not depend on the unit of the rows' values.
        trace = np.einsum("nii->n", gram)
        gram /= np.where(trace > 0, trace, 1.0)[:, None, None]
        # Add the regularisation to the diagonals. Without any, the matrices may be singular.
        gram[:, np.arange(k), np.arange(k)] += max(reg, k * EPS)
        ones = np.ones((len(gram), k, 1))
        weights[part] = np.linalg.solve(gram, ones)[:, :, 0]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _local_gram_matrices(rows: Rows, landmarks: Rows, neighbour_indices: np.ndarray) -> np.ndarray:
    """Return a matrix of inner products for each row.

    The result is (rows, k, k). Matrix i has the inner products of k vectors. Each vector is the
    difference between row i and one of the k landmarks near row i.

    rows: (rows, features), dense or CSR.
    landmarks: (landmarks, features), sampled rows of the stream, dense or CSR.
    neighbour_indices: (rows, k), indices of the k landmarks near each row.
    """
    # With dense landmarks, compute the inner products for all rows at once.
    # With CSR landmarks, handle rows one by one: CSR arrays cannot have three dimensions.
    if not sp.issparse(landmarks):
        dense = rows
        if sp.issparse(rows):
            dense = rows.toarray()
        differences = landmarks[neighbour_indices] - dense[:, None, :]
        return np.asarray(differences @ differences.transpose(0, 2, 1))

    rows = sp.csr_matrix(rows)
    k = neighbour_indices.shape[1]
    out = np.empty((len(neighbour_indices), k, k))
    for i, indices in enumerate(neighbour_indices):
        differences = landmarks[indices] - sp.vstack([rows[i]] * k, format="csr")
        out[i] = (differences @ differences.T).toarray()
    return out
