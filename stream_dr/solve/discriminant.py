"""Eigenvectors of a weighted sum of two scatter matrices.

SKM (supervised Kampong measure) and MMC (maximum margin criterion) are solved with these
eigenvectors. The sum is b·Sb + w·St, with numbers b and w. All matrices are (features, features):

* Sb is the scatter between classes, divided by the number N of rows.
* Sw is the scatter within classes, divided by N.
* St = Sb + Sw is the total scatter of the centred rows, divided by N.

SKM's matrix 2 Sb + (1 − a) Sw is the sum with b = 1 + a and w = 1 − a, where a is a parameter.
Weighted MMC's matrix Sb − α Sw is the sum with b = 1 + α and w = −α, where α is a parameter.

Sb is passed as a factor G (features, c) with G Gᵀ = Sb, for c classes. G is computed from the
class means, so G is exact for any number of features [mathematics §2].

`combined_eigenpairs` uses the whole St, which costs O(d³) for d features.
`combined_eigenpairs_diagonal` uses only the diagonal of St. Lanczos' method then computes the
positive eigenpairs, which costs O(d c) a step.

Components are ordered by eigenvalue and not by absolute value, because a direction with a negative
eigenvalue is worse than none. Directions whose eigenvalue is only rounding error are dropped.
"""

from inspect import signature

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from stream_dr.solve.spectral import EPS, indefinite_eigenpairs

SEEDED: dict[str, int] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}
"""Argument of scipy's Lanczos solver that makes its random vectors repeatable.

If Lanczos' method cannot extend its search space, it continues from a random vector. Since version
1.17, scipy takes this vector from the system's random numbers unless `rng` is passed. Earlier
versions have no such argument, so the dict is empty.
"""


def combined_eigenpairs(
    G: np.ndarray, b: float, total: np.ndarray, w: float, floor: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs of b·G Gᵀ + w·total, largest eigenvalue first.

    G Gᵀ is the scatter between classes. Returns eigenvectors (features, r) and eigenvalues (r,).
    Eigenvalues may be negative. Eigenvalues within rounding of zero are dropped. Costs O(d³) time
    and O(d²) memory for d features.

    G: (features, c), factor of the between-class scatter, for c classes.
    b, w: weights of the two scatter matrices.
    total: (features, features), total scatter of the rows, divided by the number of rows.
    floor: absolute value up to which eigenvalues of `total` are rounding error.
    """
    values, vectors = indefinite_eigenpairs(b * (G @ G.T) + w * total, abs(w) * floor)
    return vectors, values


def combined_eigenpairs_diagonal(G: np.ndarray, b: float, total: np.ndarray, w: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive eigenpairs of (b + w)·G Gᵀ + w·diag(Sw), for w < 0.

    G Gᵀ is the scatter between classes. Sw is the scatter within classes, of which only the
    diagonal is used. Returns eigenvectors (features, r) and eigenvalues (r,), r ≤ c, largest
    first. A step of Lanczos' method costs O(d c) for d features and c classes.

    G: (features, c), factor of the between-class scatter.
    b, w: weights of the between-class scatter and of the total scatter.
    total: (features,), diagonal of the total scatter, divided by the number of rows.
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
