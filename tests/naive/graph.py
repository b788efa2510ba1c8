"""Neighbourhood graphs, Laplacian eigenmaps, LLE, LPP and NPE from their definitions, with loops and dense matrices."""

import numpy as np
import scipy.linalg


def squared_distances(A, B):
    """(rows of A, rows of B) squared distances, one pair at a time."""
    return np.array([[sum((a - b) ** 2) for b in B] for a in A])


def graph(X, k, heat=False, t=None, codes=None, either=False, radius=None):
    """Symmetric weights (r, r): half for each direction; a row is the first of its own k. Also t.

    either: the whole weight where one counts the other, a row having k others [GLPLS eq. 2.25, 2.35]. radius: others at most
    this far away in place of k, whole weights."""
    r = len(X)
    d = squared_distances(X, X)
    near = [[j for j in np.argsort(d[i], kind="stable") if j != i][: k if either else k - 1] for i in range(r)]
    if radius is not None:
        either, near = True, [[j for j in range(r) if j != i and d[i, j] <= radius**2] for i in range(r)]
    if heat and t is None:
        t = np.mean([d[i, j] for i in range(r) for j in near[i]])
    S = np.zeros((r, r))
    for i in range(r):
        for j in near[i]:
            weight = np.exp(-d[i, j] / t) if heat else 1.0
            if either:
                S[i, j] = S[j, i] = weight
            elif codes is None or codes[i] == codes[j]:
                S[i, j] += weight / 2
                S[j, i] += weight / 2
    return S, t


def laplacian_eigenmaps(X, k, p, **options):
    """L z = λ D z by the dense generalised eigenproblem; λ ascending past the first, z with zᵀ D z = 1."""
    S, _ = graph(X, k, **options)
    D = np.diag(S.sum(axis=1))
    values, vectors = scipy.linalg.eigh(D - S, D)
    return values[1 : p + 1], vectors[:, 1 : p + 1]


def nystrom(X, S, values, places, new, k, heat=False, t=None, either=False, radius=None):
    """One new row's place: attached to the graph as a row that was never in it would be."""
    k = k + 1 if either else k
    d = squared_distances([new], X)[0]
    radii = [np.sort(squared_distances([x], X)[0])[min(k, len(X)) - 1] for x in X]
    near = np.argsort(d, kind="stable")[: min(k, len(X)) - 1]
    w = np.zeros(len(X))
    for j in range(len(X)):
        weight = np.exp(-d[j] / t) if heat else 1.0
        ends = int(j in near) + int(d[j] <= radii[j])
        w[j] = weight * (min(ends, 1) if either else ends / 2)
        if radius is not None:
            w[j] = weight * (d[j] <= radius**2)
    return w @ places / w.sum() / (1 - values)


def barycentric_weights(X, k, reg, codes=None):
    """W (r, r): weights of each row in its k nearest others (of its class), from one constrained least squares each."""
    r = len(X)
    d = squared_distances(X, X)
    W = np.zeros((r, r))
    for i in range(r):
        others = [j for j in np.argsort(d[i], kind="stable") if j != i and (codes is None or codes[i] == codes[j])][:k]
        if not others:
            W[i, i] = 1.0
            continue
        Z = np.array([X[j] - X[i] for j in others])
        G = Z @ Z.T
        G = G + reg * np.trace(G) * np.eye(len(others))
        w = np.linalg.solve(G, np.ones(len(others)))
        W[i, others] = w / w.sum()
    return W


def locality(X, A, B, p, ridge=0.0):
    """Xᵀ A X w = λ Xᵀ B X w with X centred, p smallest λ, ridge in both forms."""
    X = X - X.mean(axis=0)
    eye = ridge * np.eye(X.shape[1])
    values, vectors = scipy.linalg.eigh(X.T @ A @ X + eye, X.T @ B @ X + eye)
    return values[:p], vectors[:, :p]
