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

A nearest-mean classifier gives a row the class of the nearest mean. The accuracy of this
classifier is one score of a model while the model learns. It is also one score of a projection in
an evaluation. For rows (rows, p), computing the means costs O(rows p). Computing the distances of
the rows to k means costs O(rows k p).

Projections place new rows by their distances to `SampledLandmarks`. These are the rows of a
reservoir (a random sample of the stream). `places` are the landmarks'
own coordinates in the projection. A new row that equals a landmark gets the landmark's
coordinates. The coordinates of any other row are computed by the projection's own rule:

* `Eigenmap` (embedding.py) uses Nyström's formula.
* `BarycentricProjection` (embedding.py) uses the weighted mean of the nearest landmarks'
  coordinates.

Placing a row costs O(r · features), for the row's distances to all r landmarks. Dense landmarks
take 8 · r · features bytes. Landmarks are stored as plain arrays, so that a projection can be
written to a file without conversion.

`Graph` is the weighted neighbourhood graph of a reservoir, for LaplacianEigenmaps and LPP. By
default, an edge joins two rows if at least one of the two rows is among the k nearest rows of the
other row. If a radius is set, an edge joins two rows if their distance is at most the radius.

The weight of an edge is 1 [GLPLS eq. 2.25] or the heat kernel exp(−|x_i − x_j|²/t) [GLPLS eq.
2.35] for the rows x_i and x_j and a parameter t.

An edge is one-sided if row j is among the k nearest rows of row i, but row i is not among the k
nearest rows of row j. A parameter decides the weight of one-sided edges:

* "average" halves the weight. A row counts as the first of its own k nearest rows. scikit-learn's
  SpectralEmbedding has this rule, so the results can be compared.
* "or" does not change the weight. A row does not count as one of its own k nearest rows.

If the rows have classes, edges between rows of different classes are removed. After the search for
neighbours, the graph of r rows costs O(r k features).
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from stream_dr import checks
from stream_dr.batch.block import Rows
from stream_dr.projection import check_n_features
from stream_dr.statistics.protocol import register_nested_state


def means_by_class(Z: Rows, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the mean (classes, components) of the rows of each class.

    Z: (rows, components), dense or CSR.
    codes: (rows,), index of each row's class, from 0.
    n_classes: number of classes. The mean of a class without rows is NaN.
    """
    # `indicator` (classes, rows) has a 1 where a row belongs to a class.
    rows = len(codes)
    class_and_row = (codes, np.arange(rows))
    indicator = sp.csr_matrix((np.ones(rows), class_and_row), shape=(n_classes, rows))
    sums = indicator @ Z
    if sp.issparse(sums):
        sums = sums.toarray()
    counts = np.bincount(codes, minlength=n_classes)[:, None]
    # A class without rows has the mean 0 / 0 = NaN. Suppress numpy's warning about this.
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts)


def squared_distances(Z: Rows, points: Rows) -> np.ndarray:
    """Return the squared Euclidean distances (rows, points), never negative.

    Z: (rows, components), dense or CSR.
    points: (points, components), dense or CSR. If a point has a value that is not finite, all
        distances to the point are infinite.
    """
    products = Z @ points.T
    if sp.issparse(products):
        products = products.toarray()
    else:
        products = np.asarray(products)
    # The squared distance of rows x and y is |x|² + |y|² − 2 xᵀy. It may be slightly negative by
    # rounding, and is NaN (∞ − ∞) if a value is not finite.
    squared = squared_lengths(Z)[:, None] + squared_lengths(points) - 2.0 * products
    return np.where(np.isnan(squared), np.inf, np.maximum(squared, 0.0))


def nearest_mean(Z: Rows, class_means: np.ndarray) -> np.ndarray:
    """Return the index of the mean nearest to each row.

    The result is (rows,). If several means are equally near, the index of the first is returned.

    Z: (rows, components), dense or CSR.
    class_means: (classes, components).
    """
    return np.asarray(np.argmin(squared_distances(Z, class_means), axis=1))


def squared_lengths(Z: Rows) -> np.ndarray:
    """Return the squared length (rows,) of each row of Z.

    Z: (rows, components), dense or CSR.
    """
    if sp.issparse(Z):
        return np.asarray(Z.multiply(Z).sum(1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", Z, Z))


SEARCH_CHUNK = 1 << 20
"""Maximum number of float64 values (8 MB) of one array.

Rows are handled in chunks, so that no array is larger.
"""


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
    # Without queries, scikit-learn takes the landmarks, and leaves out each landmark itself.
    queries = landmarks if include_self else None
    return np.asarray(search.kneighbors(queries, return_distance=False))


def landmark_index_pairs_within(landmarks: Rows, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of landmarks at most `radius` apart.

    Returns two index arrays (pairs,), the first and the second landmark of each pair. Landmarks i
    and j appear as the pair (i, j) and as the pair (j, i). No landmark is paired with itself.

    landmarks: (r, features), r sampled rows of the stream, dense or CSR.
    radius: maximum Euclidean distance.
    """
    from sklearn.neighbors import NearestNeighbors

    # Subtract the medians, because distances are more accurate for landmarks near zero.
    landmarks = subtract_shift_keeping_sparsity(landmarks, upper_column_medians(landmarks))
    # `neighbours` has an array for each landmark, with the indices of the other landmarks near it.
    neighbours = NearestNeighbors(radius=radius).fit(landmarks).radius_neighbors(return_distance=False)
    starts = np.repeat(np.arange(len(neighbours)), [len(near) for near in neighbours])
    return starts, np.concatenate(neighbours).astype(np.int64)


def squared_pair_distances(landmarks: Rows, start_indices: np.ndarray, end_indices: np.ndarray) -> np.ndarray:
    """Return the squared distance (pairs,) of each pair of landmarks.

    landmarks: (r, features), r sampled rows of the stream, dense or CSR.
    start_indices: (pairs,), index of the first landmark of each pair.
    end_indices: (pairs,), index of the second landmark of each pair.
    """
    # The differences of a chunk of pairs have at most about SEARCH_CHUNK values.
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
    # The medians of whole numbers are then whole numbers. `np.partition` puts the value that would
    # have the index `half` in sorted order at this index.
    half = rows.shape[0] // 2
    if not sp.issparse(rows):
        return np.asarray(np.partition(rows, half, axis=0)[half])

    # `often` are the columns in which at least half of the rows have a value.
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
    # `ones` (rows, 1) times `shift` (1, features) has the shift in each row, and is sparse.
    ones = sp.csr_matrix(np.ones((rows.shape[0], 1)))
    return sp.csr_matrix(rows - ones @ sp.csr_matrix(shift))


def squared_distance_chunks(rows: Rows, landmarks: Rows, shift: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield squared distances to all landmarks in chunks of rows.

    rows: (rows, features), dense or CSR.
    landmarks: (r, features), r sampled rows of the stream.
    shift: (features,), medians of the landmarks. If the landmarks are sparse, the medians are first
        subtracted from landmarks and rows, because the formula for sparse rows is accurate only for
        rows near zero. The distances do not change. Dense rows have another formula, which does not
        need it.
    """
    # A chunk of rows has at most about SEARCH_CHUNK distances.
    step = max(1, SEARCH_CHUNK // max(1, landmarks.shape[0]))
    if sp.issparse(landmarks):
        landmarks = subtract_shift_keeping_sparsity(landmarks, shift)
    for start in range(0, rows.shape[0], step):
        part = slice(start, min(start + step, rows.shape[0]))
        chunk = rows[part]
        if sp.issparse(landmarks):
            chunk = subtract_shift_keeping_sparsity(sp.csr_matrix(chunk).astype(np.float64), shift)
        yield (part, _squared_distances_to_landmarks(chunk, landmarks))


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


def _squared_distances_to_landmarks(rows: Rows, landmarks: Rows) -> np.ndarray:
    """Return the squared distances (rows, r) of rows to r landmarks.

    Both are dense or CSR. If the landmarks are CSR, the rows must be CSR, too, and all of them
    should be near zero, because the formula for CSR rows is inexact for long rows.

    rows: (rows, features).
    landmarks: (r, features), r sampled rows of the stream.
    """
    if not sp.issparse(landmarks):
        dense = rows.toarray() if sp.issparse(rows) else rows
        return np.asarray(cdist(dense, landmarks, "sqeuclidean"))

    # The squared distance of rows x and y is |x|² + |y|² − 2 xᵀy.
    # Set distances within rounding of zero to zero. The factor 16 is a safety margin.
    squares = squared_lengths(rows)[:, None] + squared_lengths(landmarks)
    distances = squares - 2.0 * (rows @ landmarks.T).toarray()
    return np.where(distances > 16 * np.finfo(np.float64).eps * squares, distances, 0.0)


@register_nested_state
class SampledLandmarks(NamedTuple):
    """Landmarks (sampled rows of the stream) as plain arrays.

    Attributes
    ----------
    values : (r, features) float64, or (entries,) for CSR rows
        Values of the r landmarks.
    indices : (entries,) int32 or None
        Column of each entry of CSR rows. None for dense rows.
    indptr : (r + 1,) int64 or None
        Start of each CSR row in `values` and `indices`. None for dense rows.
    width : int
        Number of features.
    middle : (features,) float64
        Vector that is subtracted from sparse rows before distances are computed, for accuracy.
    same : float
        Squared distance up to which a row counts as equal to a landmark.
    """

    values: np.ndarray
    indices: np.ndarray | None
    indptr: np.ndarray | None
    width: int
    middle: np.ndarray = np.zeros(0)
    same: float = 0.0

    def check(self) -> None:
        """Raise DamagedFile unless the landmarks' arrays are valid.

        `values`, `indices` and `indptr` must be rows of `width` features, dense or CSR. `middle`
        must be empty or have `width` entries. Numbers must be finite and in their range.
        """
        checks.check_within(self, 0, checks.FEATURE_COUNT_LIMIT, "width")
        checks.check_stored_rows(self, self.n_landmarks, self.width)
        # `middle` is empty if the rows are dense.
        n_middle = self.width if len(self.middle) else 0
        checks.check_dtype_and_shapes(self, np.float64, middle=(n_middle,))
        checks.check_finite_arrays(self, "middle")
        checks.check_at_least(self, 0.0, "same")

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks."""
        if self.indptr is None:
            return len(self.values)
        return max(len(self.indptr) - 1, 0)

    @property
    def rows(self) -> Rows:
        """Landmarks (r, features), r sampled rows, dense or CSR."""
        if self.indices is None or self.indptr is None:
            return self.values
        shape = (len(self.indptr) - 1, self.width)
        return sp.csr_matrix((self.values, self.indices, self.indptr), shape=shape)


def _equality_limit(landmarks: Rows, centre: np.ndarray) -> float:
    """Return the squared distance up to which a row counts as equal to a landmark."""
    # The distance is 1e-10 of the landmarks' typical distance from their centre. It is not 0,
    # because a feature map may return one row with different last digits.
    from_centre = squared_lengths(subtract_shift_keeping_sparsity(landmarks, centre))
    return 1e-20 * float(from_centre.mean())


def as_landmarks(rows: Rows) -> SampledLandmarks:
    """Return sampled rows as landmarks.

    Landmarks are rows with which a projection compares new rows. The values are not copied.

    rows: (r, features), the sampled rows, dense or CSR.
    """
    n_features = rows.shape[1]
    medians = np.zeros(n_features)
    equal_squared_distance = 0.0
    if rows.shape[0]:
        medians = upper_column_medians(rows)
        equal_squared_distance = _equality_limit(rows, medians)

    # The medians will be subtracted from sparse rows, because the formula for distances of sparse
    # rows is accurate only near zero. Dense rows have another formula, and do not need them.
    if sp.issparse(rows):
        indices = rows.indices.astype(np.int32)
        indptr = rows.indptr.astype(np.int64)
        return SampledLandmarks(rows.data, indices, indptr, n_features, medians, equal_squared_distance)
    no_medians = np.zeros(0)
    return SampledLandmarks(rows, None, None, n_features, no_medians, equal_squared_distance)


def scale_to_unit_variance(coordinates: np.ndarray) -> np.ndarray:
    """Return coordinates scaled to variance 1 along each component.

    coordinates: (r, components), coordinates of r rows. A constant component is returned
        unchanged.
    """
    if not len(coordinates):
        return coordinates
    # The deviation of a constant component is only rounding error of its coordinates.
    deviations = coordinates.std(axis=0)
    varies = deviations > 1e-9 * np.abs(coordinates).max(axis=0)
    return coordinates / np.where(varies, deviations, 1.0)


PlacementRule = Callable[[Rows, np.ndarray], np.ndarray]
"""Function that computes new rows' coordinates from their distances to landmarks.

Landmarks are r sampled rows of the stream. The function's first argument are the new rows (rows,
features). The second argument are their squared distances (rows, r) to the landmarks. The function
returns coordinates (rows, components).
"""


def place_rows(landmarks: SampledLandmarks, places: np.ndarray, X: Rows, place_other_rows: PlacementRule) -> np.ndarray:
    """Return the coordinates (rows, components) of new rows.

    Landmarks are sampled rows whose coordinates are known. A new row that equals a landmark up to
    rounding errors gets the landmark's coordinates. Any other row gets the coordinates that
    `place_other_rows` returns.

    places: (r, components), coordinates of the r landmarks.
    X: (rows, features), dense or CSR.
    place_other_rows: function that receives rows and their squared distances (rows, r) to the
        landmarks, and returns the rows' coordinates (rows, components).

    Raises WidthMismatch if dense rows have another number of features than the landmarks.
    """
    X = fit_sparse_width(X, landmarks.width)
    check_n_features(X.shape[1], landmarks.width)
    # Without landmarks, all coordinates are 0. Without components, there are none.
    out = np.zeros((X.shape[0], places.shape[1]))
    if not places.size:
        return out

    # `landmarks.middle` (features,) is subtracted from sparse rows, for accurate distances.
    # `landmarks.same` is the squared distance up to which a row equals a landmark.
    for part, squared in squared_distance_chunks(X, landmarks.rows, landmarks.middle):
        closest = squared.argmin(axis=1)
        same = squared[np.arange(len(closest)), closest] <= landmarks.same
        chunk = places[closest]
        if not same.all():
            chunk[~same] = place_other_rows(X[part][~same], squared[~same])
        out[part] = chunk
    return out


Edges = Literal["average", "or"]
"""Rule for the weight of one-sided edges in a neighbourhood graph.

An edge is one-sided if only one of its two rows is among the nearest rows of the other row.
"average" halves the weight of one-sided edges. "or" does not change the weight.
"""

RADIUS_SLACK = 1.0 + 1e-9
"""Factor by which squared radii are enlarged.

Without this factor, a rounding error could exclude a row whose distance equals the radius.
"""


class Graph(NamedTuple):
    """Neighbourhood graph of r rows, and its rule for edges.

    By the same rule, new rows get edges to the r rows.

    Attributes
    ----------
    weights : (r, r) CSR float64
        Weights of the edges, symmetric with a zero diagonal.
    degrees : (r,) float64
        Row sums of the weights.
    radii : (r,) float64
        Squared distance of each row to the farthest of its k nearest rows. It is multiplied by
        1 + 1e-9, so that no rounding error excludes the farthest row. If the graph was made with a
        radius, every value is the squared radius.
    temperature : float or None
        Parameter t of the heat kernel exp(−d²/t), the weight of an edge of length d. None means
        that all edges have weight 1.
    neighbours : int
        Number of neighbours of a row, without the row itself. 0 if the graph was made with a
        radius. If `one_sided` is 1, the number is k. If it is 0.5, a row counts as the first of its
        own k nearest rows, so the number is k − 1.
    one_sided : float
        Factor for the weight of a one-sided edge: 0.5 or 1. An edge is one-sided if only one of its
        two rows counts as a neighbour of the other row.
    """

    weights: sp.csr_matrix
    degrees: np.ndarray
    radii: np.ndarray
    temperature: float | None
    neighbours: int
    one_sided: float


def neighbourhood_graph(
    rows: Rows,
    n_neighbors: int,
    heat_kernel: bool,
    temperature: float | None,
    class_codes: np.ndarray | None = None,
    one_sided_edges: Edges = "average",
    radius: float | None = None,
) -> Graph:
    """Return the neighbourhood graph of rows.

    Parameters
    ----------
    rows : (r, features)
        The r rows to join by edges, dense or CSR.
    n_neighbors : int
        Number k of nearest rows, at most r. An edge joins a row to each of its k nearest rows.
    heat_kernel : bool
        True: the weight of an edge between rows x_i and x_j is the heat kernel
        exp(−|x_i − x_j|²/t). False: the weight is 1.
    temperature : float or None
        Parameter t of the heat kernel. None means the mean squared length of the edges.
    class_codes : (r,) int or None
        Class of each row. Edges between different classes are removed.
    one_sided_edges : {"average", "or"}
        Rule for the weight of one-sided edges. An edge is one-sided if only one of its two rows is
        among the k nearest rows of the other row. "average" halves the weight. "or" does not
        change the weight.
    radius : float or None
        If not None, an edge joins two rows at most this far apart. n_neighbors is then ignored.
    """
    r = rows.shape[0]
    average = one_sided_edges == "average" and radius is None
    one_sided = 0.5 if average else 1.0
    if r < 2:
        return Graph(sp.csr_matrix((r, r)), np.zeros(r), np.zeros(r), None, 0, one_sided)

    # With "average", a row counts as one of its own neighbours.
    n_near = r if average else r - 1
    k = min(n_neighbors, n_near)
    starts, ends, lengths, radii = _find_edges(rows, k, average, radius)

    # Compute the weights (edges,) from the squared lengths. A weight of 0 removes an edge.
    t = None
    weights = np.ones(len(lengths))
    if heat_kernel:
        t = _heat_kernel_temperature(lengths, temperature)
        weights = np.exp(-lengths / t)
    if class_codes is not None:
        weights = weights * (class_codes[starts] == class_codes[ends])

    # Halve or keep the weight of edges of which only one row is near the other.
    directed = sp.csr_matrix((weights, (starts, ends)), shape=(r, r))
    graph = _symmetric_weights(directed, average)
    graph.eliminate_zeros()
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    n_others = 0
    if radius is None:
        n_others = k - 1 if average else k
    return Graph(graph, degrees, radii, t, n_others, one_sided)


def _find_edges(
    rows: Rows, k: int, include_self: bool, radius: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the edges of a neighbourhood graph.

    Returns four arrays: the first row of each edge, its second row, its squared length, and the
    squared distance (r,) within which each of the r rows has its neighbours.

    k: number of neighbours of a row. Not used if there is a radius.
    include_self: True to count a row as the first of its own k neighbours. It then has edges to
        only k − 1 other rows, because no edge joins a row to itself.
    radius: largest distance of neighbours, or None.
    """
    # Either all rows have one radius, or a row's radius is the distance of its k-th neighbour.
    # RADIUS_SLACK, just above 1, keeps this neighbour within the radius despite rounding errors.
    r = rows.shape[0]
    if radius is not None:
        starts, ends = landmark_index_pairs_within(rows, radius)
        lengths = squared_pair_distances(rows, starts, ends)
        radii = np.full(r, radius**2)
    else:
        starts = np.repeat(np.arange(r), k)
        ends = nearest_landmarks(rows, k, include_self=include_self).ravel()
        lengths = squared_pair_distances(rows, starts, ends)
        radii = lengths.reshape(r, k).max(axis=1) * RADIUS_SLACK

    # Leave out edges of a row to itself, which there are if a row is its own neighbour.
    others = starts != ends
    return starts[others], ends[others], lengths[others], radii


def _symmetric_weights(directed: sp.csr_matrix, average: bool) -> sp.csr_matrix:
    """Return edge weights that are equal in both directions.

    directed: (r, r). Entry (i, j) is the weight if row j is a neighbour of row i, else 0.
    average: True for the mean of the weights of the two directions. False for the larger weight.
    """
    if average:
        return (0.5 * (directed + directed.T)).tocsr()
    return directed.maximum(directed.T).tocsr()


def _heat_kernel_temperature(squared_edge_lengths: np.ndarray, temperature: float | None) -> float:
    """Return the parameter t of the heat kernel exp(−d²/t).

    The heat kernel is the weight of an edge of length d.

    squared_edge_lengths: (edges,) squared lengths of the edges.
    temperature: value of t, or None. If None, t is the mean of `squared_edge_lengths`, or 1 if the
        mean is 0.
    """
    if temperature is not None:
        return float(temperature)
    mean = 0.0
    if len(squared_edge_lengths):
        mean = float(squared_edge_lengths.mean())
    if mean > 0:
        return mean
    return 1.0
