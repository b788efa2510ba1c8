"""graph: the weighted neighbourhood graph of a reservoir's rows, for LaplacianEigenmaps and LPP.

An edge joins i and j where one is among the k nearest of the other; its weight is 1 [GLPLS eq. 2.25] or the heat kernel
exp(−|x_i − x_j|²/t) [GLPLS eq. 2.35]. By edges "average" it is half of that where only one of the two counts the other
among its nearest, and a row is the first of its own k; by "or" every edge has its whole weight and a row has k others, as
in those equations. With a radius ε an edge joins rows at most ε apart instead.
Label-aware: an edge between rows of different classes is cut. No row has an edge to itself.

Cost: the neighbour search, then O(r k features).

Why this way: averaging the two directions and counting a row among its own k is what scikit-learn's SpectralEmbedding
does, so one can be checked against the other.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.solve.neighbours import nearest, pair_distances, within

Edges = Literal["average", "or"]
"""How one-sided edges are weighed; see the module's text."""

SLACK = 1.0 + 1e-9
"""A row this near to the edge of a neighbourhood is in it: distances are rounded."""


class Graph(NamedTuple):
    """The graph and what is needed to attach a new row to it.

    weights: (r, r) CSR float64, symmetric, zero diagonal. degrees: (r,). radii: (r,) squared distance to the farthest
    of a row's k nearest. temperature: t of the heat kernel, None for weights of 1. neighbours: others a row counts, k, k − 1
    or, within a radius, none. one_sided: share of its weight that an edge has which only one end counts.
    """

    weights: sp.csr_matrix
    degrees: np.ndarray
    radii: np.ndarray
    temperature: float | None
    neighbours: int
    one_sided: float


def neighbourhood_graph(
    rows: Any,
    n_neighbors: int,
    heat: bool,
    temperature: float | None,
    codes: np.ndarray | None = None,
    edges: Edges = "average",
    radius: float | None = None,
) -> Graph:
    """The graph of rows (r, features), dense or CSR.

    n_neighbors: k, at most r. heat: heat kernel or 1. temperature: t; None takes the mean squared length of the edges.
    codes: (r,) classes, edges between different ones being cut; None keeps all. radius: ε, in place of n_neighbors.
    """
    r, average = rows.shape[0], edges == "average" and radius is None
    if r < 2:
        return Graph(sp.csr_matrix((r, r)), np.zeros(r), np.zeros(r), None, 0, 0.5 if average else 1.0)
    k = min(n_neighbors, r if average else r - 1)
    starts, ends = within(rows, radius) if radius is not None else _pairs(nearest(rows, k, with_self=average))
    lengths = pair_distances(rows, starts, ends)
    radii = np.full(r, radius**2) if radius is not None else lengths.reshape(r, k).max(axis=1) * SLACK
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


def _pairs(near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends (r · k,) of the edges to neighbours (r, k)."""
    return np.repeat(np.arange(len(near)), near.shape[1]), near.ravel()


def _temperature(lengths: np.ndarray, given: float | None) -> float:
    if given is not None:
        return float(given)
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return mean if mean > 0 else 1.0
