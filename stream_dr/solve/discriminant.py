"""Eigenvectors of a weighted sum of two scatter matrices.

SKM (supervised Kampong measure) and MMC (maximum margin criterion) are solved with these
eigenvectors. The sum is b·Sb + w·St, with numbers b and w. All matrices are (features, features):

* Sb is the scatter between classes, divided by the number of rows.
* Sw is the scatter within classes, divided by the number of rows.
* St = Sb + Sw is the total scatter of the centred rows, divided by the number of rows.

SKM's matrix 2 Sb + (1 − a) Sw is the sum with b = 1 + a and w = 1 − a, where a is a parameter.
Weighted MMC's matrix Sb − α Sw is the sum with b = 1 + α and w = −α, where α is a parameter.

Sb is passed as a factor G (features, c) with G Gᵀ = Sb, for c classes. G is computed from the
class means, so G is exact for any number of features [mathematics §2].

`combined_eigenpairs` uses the whole St, which costs O(d³) for d features.
`combined_eigenpairs_diagonal` uses only the diagonal of St. Lanczos' method then computes the
positive eigenpairs, which costs O(d c) a step.

Components are ordered by signed eigenvalue and not by absolute value, because a direction with a
negative eigenvalue is worse than no direction. Directions whose eigenvalue is only rounding error
are dropped.
"""

from inspect import signature

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from stream_dr.solve.spectral import EPS, Eigenpairs, LoadingsAndEigenvalues, indefinite_eigenpairs

SEEDED: dict[str, int] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}
"""Keyword argument that makes scipy's Lanczos solver `eigsh` repeatable.

If Lanczos' method cannot extend its search space, it continues from a random vector. Since version
1.17, scipy takes this vector from the system's random numbers unless `rng` is passed. Earlier
versions have no argument `rng`, so the dict is empty for them.
"""


def combined_eigenpairs(
    G: np.ndarray, b: float, total: np.ndarray, w: float, floor: float = 0.0
) -> LoadingsAndEigenvalues:
    """Return the eigenpairs of a weighted sum of two scatter matrices.

    The sum is `b` times the scatter between classes plus `w` times the total scatter. Returns
    eigenvectors (features, r) and eigenvalues (r,). The largest eigenvalue comes first, and
    eigenvalues may be negative. Eigenvalues within rounding of zero are dropped. Costs O(d³) time
    and O(d²) memory for d features.

    G: (features, c), factor for c classes. `G` times its transpose is the scatter between classes.
    b: weight of the scatter between classes.
    total: (features, features), total scatter of the rows, divided by the number of rows.
    w: weight of the total scatter.
    floor: absolute value up to which eigenvalues of `total` are rounding error.
    """
    values, vectors = indefinite_eigenpairs(b * (G @ G.T) + w * total, abs(w) * floor)
    return LoadingsAndEigenvalues(vectors, values)


def combined_eigenpairs_diagonal(G: np.ndarray, b: float, total: np.ndarray, w: float) -> LoadingsAndEigenvalues:
    """Return the positive eigenpairs of a weighted sum of two scatter matrices.

    The sum is `b` times the scatter between classes plus `w` times the total scatter, for a
    negative `w`. The total scatter is the scatter between classes plus the diagonal of the scatter
    within classes. The rest of the scatter within classes is ignored.

    Returns eigenvectors (features, r) and eigenvalues (r,), largest first. r is at most the number
    c of classes. A step of Lanczos' method costs O(d c) for d features.

    G: (features, c), factor for c classes. `G` times its transpose is the scatter between classes.
    b: weight of the scatter between classes.
    total: (features,), diagonal of the total scatter, divided by the number of rows.
    w: weight of the total scatter, negative.
    """
    within = -w * np.maximum(total - np.einsum("ij,ij->i", G, G), 0.0)
    d, c = G.shape

    # Lanczos' method needs more features than eigenpairs. Small problems are solved directly.
    if c == 0 or d <= c + 1:
        values, vectors = np.linalg.eigh((b + w) * (G @ G.T) - np.diag(within)) if d <= 4096 else _no_eigenpairs(d)
    else:
        product = LinearOperator((d, d), matvec=lambda v: (b + w) * (G @ (G.T @ v)) - within * v, dtype=np.float64)
        start = G @ np.arange(1.0, c + 1.0)
        values, vectors = eigsh(product, k=c, which="LA", v0=start, ncv=min(d, max(4 * c, 40)), tol=1e-12, **SEEDED)

    # Sort the pairs, largest eigenvalue first, and drop eigenvalues that may be rounding error.
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > d * EPS * float(np.abs(values).max(initial=0.0))]
    return LoadingsAndEigenvalues(vectors[:, order], values[order])


def _no_eigenpairs(d: int) -> Eigenpairs:
    """Return empty arrays, eigenvalues (0,) and eigenvectors (d, 0).

    d: number of features.
    """
    return Eigenpairs(np.zeros(0), np.zeros((d, 0)))
