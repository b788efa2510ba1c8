"""Weighted neighbourhood graph of a reservoir's rows, for LaplacianEigenmaps and LPP.

An edge joins i and j if one is among the k nearest of the other. Its weight is 1 [GLPLS eq. 2.25]
or the heat kernel exp(−|x_i − x_j|²/t) [GLPLS eq. 2.35]. With a radius ε, an edge joins rows at
most ε apart instead.

With edges "average", the weight is halved if only one of the two counts the other among its
nearest, and a row is the first of its own k. scikit-learn's SpectralEmbedding does the same, so
one can be checked against the other. With "or", every edge has its whole weight and a row has k
others, as in those equations.

If there are classes, edges between rows of different classes are cut. It costs the neighbour
search, and O(r k features).
"""

from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.rows.block import Rows
from stream_dr.solve.neighbours import nearest_landmarks, pair_distances, pairs_within

Edges = Literal["average", "or"]
"""Weighting of one-sided edges, described in the module's docstring."""

SLACK = 1.0 + 1e-9
"""Factor by which squared radii are widened, because distances are rounded."""


class Graph(NamedTuple):
    """The graph, and the numbers that attach a new row to it.

    Attributes
    ----------
    weights : (r, r) CSR float64
        Symmetric, zero diagonal.
    degrees : (r,) float64
        Row sums of the weights.
    radii : (r,) float64
        Squared distance to the farthest of a row's k nearest.
    temperature : float or None
        t of the heat kernel. None for weights of 1.
    neighbours : int
        Number of others that a row counts, k or k − 1. 0 with a radius.
    one_sided : float
        Share of its weight that an edge has if only one end counts the other.
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
    heat: bool,
    temperature: float | None,
    codes: np.ndarray | None = None,
    edges: Edges = "average",
    radius: float | None = None,
) -> Graph:
    """Return the graph of rows (r, features), dense or CSR.

    Parameters
    ----------
    n_neighbors : int
        k, at most r.
    heat : bool
        True for weights by the heat kernel, False for weights of 1.
    temperature : float or None
        t. None means the mean squared length of the edges.
    codes : (r,) int or None
        Classes. Edges between different classes are cut.
    radius : float or None
        ε, in place of n_neighbors.
    """
    r = rows.shape[0]
    average = edges == "average" and radius is None
    if r < 2:
        return Graph(sp.csr_matrix((r, r)), np.zeros(r), np.zeros(r), None, 0, 0.5 if average else 1.0)
    k = min(n_neighbors, r if average else r - 1)
    starts, ends = (
        pairs_within(rows, radius) if radius is not None else _edge_pairs(nearest_landmarks(rows, k, with_self=average))
    )
    lengths = pair_distances(rows, starts, ends)
    radii = np.full(r, radius**2) if radius is not None else lengths.reshape(r, k).max(axis=1) * SLACK

    # No row has an edge to itself.
    others = starts != ends
    starts, ends, lengths = starts[others], ends[others], lengths[others]
    t = _temperature(lengths, temperature) if heat else None
    weights = np.exp(-lengths / t) if t is not None else np.ones(len(lengths))
    if codes is not None:
        weights = weights * (codes[starts] == codes[ends])

    directed = sp.csr_matrix((weights, (starts, ends)), shape=(r, r))
    graph = (0.5 * (directed + directed.T) if average else directed.maximum(directed.T)).tocsr()
    graph.eliminate_zeros()
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    counted = 0 if radius is not None else k - 1 if average else k
    return Graph(graph, degrees, radii, t, counted, 0.5 if average else 1.0)


def _edge_pairs(near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends (r · k,) of the edges.

    near: (r, k), neighbours.
    """
    return np.repeat(np.arange(len(near)), near.shape[1]), near.ravel()


def _temperature(lengths: np.ndarray, temperature: float | None) -> float:
    """Return the temperature, by default the mean squared length of the edges."""
    if temperature is not None:
        return float(temperature)
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return mean if mean > 0 else 1.0
