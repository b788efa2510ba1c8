"""Eigenvectors of b·Sb + w·Cxx/N: the family of SKM and (weighted) maximum margin criteria [mathematics §2].

With St = Cxx/N = Sb + Sw: SKM's 2 Sb + (1 − a) Sw is b = 1 + a, w = 1 − a; weighted MMC's Sb − α Sw is b = 1 + α,
w = −α. Sb comes as its factor G (features, c), G Gᵀ = Sb, exact from the class means at any width.

Where w = 0 the eigenvectors of Sb are the answer. With Cxx it is a symmetric eigenproblem, O(d³); with
its diagonal only, Sw = diag(Cxx)/N − diag(Sb) stands for Sw and Lanczos finds what is positive, O(d c) a step.

Why this way: components are ordered by algebraic value, because a direction with a negative eigenvalue is worse than
none; directions whose eigenvalue is rounding are left out, so none is made of noise.
"""

from inspect import signature
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from stream_dr.solve.spectral import EPS, indefinite_eigenpairs

SEEDED: dict[str, Any] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}
"""Where Lanczos has used up its space it goes on from a random vector, which scipy draws from the system since 1.17."""


def combined(G: np.ndarray, b: float, total: np.ndarray, w: float, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs of b·G Gᵀ + w·St by algebraic value.

    Returns vectors (features, r) and values (r,). Costs O(d³) time and O(d²) memory.

    G: (features, c). total: (features, features) St = Cxx/N. floor: eigenvalues of St at or below it are rounding.
    Eigenvalues within rounding of zero are dropped.
    """
    values, vectors = indefinite_eigenpairs(b * (G @ G.T) + w * total, abs(w) * floor)
    return vectors, values


def combined_diagonal(G: np.ndarray, b: float, total: np.ndarray, w: float) -> tuple[np.ndarray, np.ndarray]:
    """The positive eigenpairs of (b + w)·G Gᵀ − D, D = −w·diag(Sw) ≥ 0, for w < 0: at most c of them.

    total: (features,) diagonal of St. The within-class scatter is taken to be diagonal. O(d c) a Lanczos step.
    """
    within = -w * np.maximum(total - np.einsum("ij,ij->i", G, G), 0.0)
    d, c = G.shape
    if c == 0 or d <= c + 1:
        values, vectors = np.linalg.eigh((b + w) * (G @ G.T) - np.diag(within)) if d <= 4096 else _none(d)
    else:
        product = LinearOperator((d, d), matvec=lambda v: (b + w) * (G @ (G.T @ v)) - within * v, dtype=np.float64)
        start = G @ np.arange(1.0, c + 1.0)
        values, vectors = eigsh(product, k=c, which="LA", v0=start, ncv=min(d, max(4 * c, 40)), tol=1e-12, **SEEDED)
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > d * EPS * float(np.abs(values).max(initial=0.0))]
    return vectors[:, order], values[order]


def _none(d: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0), np.zeros((d, 0))
