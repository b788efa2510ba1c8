"""Eigenvectors of b·Sb + w·Cxx/N, for SKM and (weighted) maximum margin criteria.

St = Cxx/N = Sb + Sw is the total scatter, of which Sb is between and Sw within classes. SKM's 2 Sb
+ (1 − a) Sw is b = 1 + a, w = 1 − a. Weighted MMC's Sb − α Sw is b = 1 + α, w = −α. Sb comes as
its factor G (features, c), G Gᵀ = Sb, exact from the class means at any width [mathematics §2].

With w = 0 the eigenvectors of Sb are the answer. With Cxx it is a symmetric eigenproblem, O(d³).
With the diagonal of Cxx only, Sw is taken as diag(Cxx)/N − diag(Sb), and Lanczos computes the
positive eigenpairs, O(d c) a step.

Components are ordered by algebraic value, because a direction with a negative eigenvalue is worse
than none. Directions whose eigenvalue is rounding are dropped.
"""

from inspect import signature

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from stream_dr.solve.spectral import EPS, indefinite_eigenpairs

SEEDED: dict[str, int] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}
"""Argument of Lanczos' solver that makes its random vectors repeatable.

When Lanczos has used up its space it continues from a random vector. Since 1.17 scipy draws it
from the system.
"""


def combined_eigenpairs(
    G: np.ndarray, b: float, total: np.ndarray, w: float, floor: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs of b·G Gᵀ + w·St by algebraic value.

    Returns vectors (features, r) and values (r,), without those within rounding of zero. Costs
    O(d³) time and O(d²) memory.

    G: (features, c).
    total: (features, features), St = Cxx/N.
    floor: size up to which eigenvalues of St are rounding.
    """
    values, vectors = indefinite_eigenpairs(b * (G @ G.T) + w * total, abs(w) * floor)
    return vectors, values


def combined_eigenpairs_diagonal(G: np.ndarray, b: float, total: np.ndarray, w: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive eigenpairs of (b + w)·G Gᵀ − D, for w < 0.

    There are at most c of them. D = −w·diag(Sw) ≥ 0, so the within-class scatter counts as
    diagonal. Costs O(d c) a Lanczos step.

    total: (features,), diagonal of St.
    """
    within = -w * np.maximum(total - np.einsum("ij,ij->i", G, G), 0.0)
    d, c = G.shape

    if c == 0 or d <= c + 1:
        values, vectors = np.linalg.eigh((b + w) * (G @ G.T) - np.diag(within)) if d <= 4096 else _no_eigenpairs(d)
    else:
        product = LinearOperator((d, d), matvec=lambda v: (b + w) * (G @ (G.T @ v)) - within * v, dtype=np.float64)
        start = G @ np.arange(1.0, c + 1.0)
        values, vectors = eigsh(product, k=c, which="LA", v0=start, ncv=min(d, max(4 * c, 40)), tol=1e-12, **SEEDED)

    order = np.argsort(-values, kind="stable")
    order = order[values[order] > d * EPS * float(np.abs(values).max(initial=0.0))]
    return vectors[:, order], values[order]


def _no_eigenpairs(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return no eigenpairs."""
    return np.zeros(0), np.zeros((d, 0))
