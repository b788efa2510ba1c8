"""graph: the weighted neighbourhood graph of a reservoir's rows, for LaplacianEigenmaps and LPP.

An edge joins i and j where one is among the k nearest of the other; its weight is 1 [GLPLS eq. 2.25] or the heat kernel
exp(−|x_i − x_j|²/t) [GLPLS eq. 2.35], and half of that where only one of the two counts the other among its nearest.
Label- aware: an edge between rows of different classes is cut. A row is the first of its own k nearest and has no
edge to itself.

Cost: the neighbour search, then O(r k features).

Why this way: averaging the two directions and counting a row among its own k is what scikit-learn's SpectralEmbedding
does, so one can be checked against the other (the papers' "or" would give each one-sided edge its whole weight).
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.solve.neighbours import nearest, pair_distances

SLACK = 1.0 + 1e-9
"""A row this near to the edge of a neighbourhood is in it: distances are rounded."""


class Graph(NamedTuple):
    """The graph and what is needed to attach a new row to it.

    weights: (r, r) CSR float64, symmetric, zero diagonal. degrees: (r,). radii: (r,) squared distance to the farthest
    of a row's k nearest. temperature: t of the heat kernel, None for weights of 1. neighbours: k − 1, others a row
    counts.
    """

    weights: sp.csr_matrix
    degrees: np.ndarray
    radii: np.ndarray
    temperature: float | None
    neighbours: int


def neighbourhood_graph(
    rows: Any, n_neighbors: int, heat: bool, temperature: float | None, codes: np.ndarray | None
) -> Graph:
    """The graph of rows (r, features), dense or CSR.

    n_neighbors: k, at most r. heat: heat kernel or 1. temperature: t; None takes the mean squared length of the edges.
    codes: (r,) classes, edges between different ones being cut; None keeps all.
    """
    r = rows.shape[0]
    if r < 2:
        return Graph(sp.csr_matrix((r, r)), np.zeros(r), np.zeros(r), None, 0)
    k = min(n_neighbors, r)
    ends = nearest(rows, k, with_self=True).ravel()
    starts = np.repeat(np.arange(r), k)
    lengths = pair_distances(rows, starts, ends)
    radii = lengths.reshape(r, k).max(axis=1) * SLACK
    others = starts != ends
    starts, ends, lengths = starts[others], ends[others], lengths[others]
    t = _temperature(lengths, temperature) if heat else None
    weights = np.exp(-lengths / t) if t is not None else np.ones(len(lengths))
    if codes is not None:
        weights = weights * (codes[starts] == codes[ends])
    directed = sp.csr_matrix((weights, (starts, ends)), shape=(r, r))
    graph = (0.5 * (directed + directed.T)).tocsr()
    graph.eliminate_zeros()
    return Graph(graph, np.asarray(graph.sum(axis=1)).ravel(), radii, t, k - 1)


def _temperature(lengths: np.ndarray, given: float | None) -> float:
    if given is not None:
        return float(given)
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return mean if mean > 0 else 1.0
