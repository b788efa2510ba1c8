"""Weighted neighbourhood graph of rows, for LaplacianEigenmaps and LPP.

The rows are a reservoir (a random sample of the stream). By default, an edge joins two rows if at
least one of the two rows is among the k nearest rows of the other row. If a radius is set, an edge
joins two rows if their distance is at most the radius.

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

from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.rows.block import Rows
from stream_dr.solve.neighbours import landmark_index_pairs_within, nearest_landmarks, squared_pair_distances

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
        Squared distance of each row to the farthest of its k nearest rows, enlarged by 1e-9 of
        itself. If the graph was made with a radius, every value is the squared radius.
    temperature : float or None
        Parameter t of the heat kernel exp(−d²/t), the weight of an edge of length d. None means
        that all edges have weight 1.
    neighbours : int
        Number of neighbours of a row, without the row itself. The number is k with the edge rule
        "or" and k − 1 with the edge rule "average". It is 0 if the graph was made with a radius.
    one_sided : float
        Factor for the weight of a one-sided edge. An edge is one-sided if only one of its two rows
        counts as a neighbour of the other row.
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
    if r < 2:
        return Graph(sp.csr_matrix((r, r)), np.zeros(r), np.zeros(r), None, 0, 0.5 if average else 1.0)

    # Find the pairs of rows that an edge joins, and the squared distance of each pair.
    k = min(n_neighbors, r if average else r - 1)
    if radius is not None:
        starts, ends = landmark_index_pairs_within(rows, radius)
    else:
        starts, ends = np.repeat(np.arange(r), k), nearest_landmarks(rows, k, include_self=average).ravel()
    lengths = squared_pair_distances(rows, starts, ends)
    radii = np.full(r, radius**2) if radius is not None else lengths.reshape(r, k).max(axis=1) * RADIUS_SLACK

    # Remove edges of a row to itself, and compute the weights of the other edges.
    others = starts != ends
    starts, ends, lengths = starts[others], ends[others], lengths[others]
    t = _heat_kernel_temperature(lengths, temperature) if heat_kernel else None
    weights = np.exp(-lengths / t) if t is not None else np.ones(len(lengths))
    if class_codes is not None:
        weights = weights * (class_codes[starts] == class_codes[ends])

    # Halve or keep the weight of edges of which only one row is near the other.
    directed = sp.csr_matrix((weights, (starts, ends)), shape=(r, r))
    graph = (0.5 * (directed + directed.T) if average else directed.maximum(directed.T)).tocsr()
    graph.eliminate_zeros()
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    counted = 0 if radius is not None else k - 1 if average else k
    return Graph(graph, degrees, radii, t, counted, 0.5 if average else 1.0)


def _heat_kernel_temperature(squared_edge_lengths: np.ndarray, temperature: float | None) -> float:
    """Return the parameter t of the heat kernel exp(−d²/t).

    The heat kernel is the weight of an edge of length d.

    squared_edge_lengths: (edges,) squared lengths of the edges.
    temperature: value of t, or None. If None, t is the mean of `squared_edge_lengths`, or 1 if the
        mean is 0.
    """
    if temperature is not None:
        return float(temperature)
    mean = float(squared_edge_lengths.mean()) if len(squared_edge_lengths) else 0.0
    return mean if mean > 0 else 1.0
