"""Eigenvectors of b·Sb + w·St, for SKM and (weighted) maximum margin criteria.

St = Cxx/N is the total scatter of N rows, where Cxx (features, features) is the scatter of the
centred rows. St = Sb + Sw, where Sb is the scatter between classes and Sw the scatter within
classes. b and w are numbers:

* SKM's matrix 2 Sb + (1 − a) Sw is b·Sb + w·St with b = 1 + a and w = 1 − a.
* Weighted MMC's matrix Sb − α Sw is b·Sb + w·St with b = 1 + α and w = −α.

Sb is passed as a factor G (features, c) with G Gᵀ = Sb, for c classes. G is exact at any number of
features, because it follows from the class means [mathematics §2].

* With w = 0 the answer is the eigenvectors of Sb.
* With all of Cxx the problem is a symmetric eigenproblem, which costs O(d³) for d features.
* With only the diagonal of Cxx, Sw is taken as diag(Cxx)/N − diag(Sb). Lanczos' method computes
  the positive eigenpairs, which costs O(d c) a step.

Components are ordered by algebraic value and not by size, because a direction with a negative
eigenvalue is worse than none. Directions whose eigenvalue is only rounding error are dropped.
"""

from inspect import signature

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from stream_dr.solve.spectral import EPS, indefinite_eigenpairs

SEEDED: dict[str, int] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}
"""Argument of scipy's Lanczos solver that makes its random vectors repeatable.

If Lanczos' method has used up its space, it continues from a random vector. Since version 1.17,
scipy takes this vector from the system's random numbers unless `rng` is passed.
"""


def combined_eigenpairs(
    G: np.ndarray, b: float, total: np.ndarray, w: float, floor: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs of b·G Gᵀ + w·St by descending algebraic value.

    G Gᵀ is the scatter between classes and St the total scatter. Returns eigenvectors (features,
    r) and eigenvalues (r,). Eigenvalues within rounding of zero are dropped. Costs O(d³) time and
    O(d²) memory for d features.

    G: (features, c), factor of the between-class scatter, for c classes.
    b, w: factors of the two terms.
    total: (features, features), the total scatter St of the rows, divided by their number.
    floor: size up to which eigenvalues of St are rounding error.
    """
    values, vectors = indefinite_eigenpairs(b * (G @ G.T) + w * total, abs(w) * floor)
    return vectors, values


def combined_eigenpairs_diagonal(G: np.ndarray, b: float, total: np.ndarray, w: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive eigenpairs of (b + w)·G Gᵀ − D, for w < 0.

    G Gᵀ is the scatter between classes. D = −w·diag(Sw) ≥ 0, where Sw is the scatter within
    classes, of which only the diagonal is used. Returns at most c eigenvectors (features, r) and
    eigenvalues (r,), largest first. Costs O(d c) a Lanczos step for d features and c classes.

    G: (features, c), factor of the between-class scatter.
    b, w: factors of the between-class scatter and of the total scatter St.
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
    """Return an empty result, with eigenvalues (0,) and eigenvectors (d, 0)."""
    return np.zeros(0), np.zeros((d, 0))
