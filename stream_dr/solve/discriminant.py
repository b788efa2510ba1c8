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

`scatter_sum_eigenpairs` uses the whole St, which costs O(d³) for d features.
`positive_scatter_sum_eigenpairs` uses only the diagonal of St. Lanczos' method then computes the
positive eigenpairs, which costs O(d c) a step.

Components are ordered by signed eigenvalue and not by absolute value, because a direction with a
negative eigenvalue is worse than no direction. Directions whose eigenvalue is only rounding error
are dropped.
"""

from inspect import signature

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from stream_dr.solve.spectral import EPS, LoadingsAndEigenvalues, nonzero_indefinite_eigenpairs

LANCZOS_SEED_ARGUMENT: dict[str, int] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}
"""Keyword argument that makes scipy's Lanczos solver `eigsh` repeatable.

If Lanczos' method cannot extend its search space, it continues from a random vector. Since version
1.17, scipy takes this vector from the system's random numbers unless `rng` is passed. Earlier
versions have no argument `rng`, so the dict is empty for them.
"""


def scatter_sum_eigenpairs(
    between_factor: np.ndarray,
    between_weight: float,
    total_scatter: np.ndarray,
    total_scatter_weight: float,
    total_scatter_rounding_error: float = 0.0,
) -> LoadingsAndEigenvalues:
    """Return the eigenpairs of a weighted sum of scatter matrices.

    The sum (features, features) is `between_weight` times the between-class scatter plus
    `total_scatter_weight` times the total scatter. Returns r eigenvectors (features, r) and their
    eigenvalues (r,), largest first. Eigenvalues may be negative. Those that are only rounding error
    are dropped. Costs O(d³) time and O(d²) memory for d
    features.

    between_factor: (features, c), factor for c classes. `between_factor` times its transpose is
        the scatter between classes.
    between_weight: weight of the scatter between classes.
    total_scatter: (features, features), total scatter of the rows, divided by the number of rows.
    total_scatter_weight: weight of the total scatter.
    total_scatter_rounding_error: absolute value up to which eigenvalues of `total_scatter` are
        rounding error.
    """
    matrix = between_weight * (between_factor @ between_factor.T) + total_scatter_weight * total_scatter
    values, vectors = nonzero_indefinite_eigenpairs(matrix, abs(total_scatter_weight) * total_scatter_rounding_error)
    return LoadingsAndEigenvalues(vectors, values)


def positive_scatter_sum_eigenpairs(
    between_factor: np.ndarray, between_weight: float, total_scatter_diagonal: np.ndarray, total_scatter_weight: float
) -> LoadingsAndEigenvalues:
    """Return positive eigenpairs of a weighted sum of scatter matrices.

    The sum (features, features) is `between_weight` times the scatter between classes plus
    `total_scatter_weight` times the total scatter, for a negative `total_scatter_weight`. The total
    scatter is taken as the scatter between classes plus only the diagonal of the scatter within
    classes.

    Returns r eigenvectors (features, r) and eigenvalues (r,), largest first. r is at most the
    number c of classes. A step of Lanczos' method costs O(d c) for d features.

    between_factor: (features, c), factor for c classes. `between_factor` times its transpose is
        the scatter between classes.
    between_weight: weight of the scatter between classes.
    total_scatter_diagonal: (features,), diagonal of the total scatter, divided by the number of
        rows.
    total_scatter_weight: weight of the total scatter, negative.
    """
    between_diagonal = np.einsum("ij,ij->i", between_factor, between_factor)
    within = -total_scatter_weight * np.maximum(total_scatter_diagonal - between_diagonal, 0.0)
    weight = between_weight + total_scatter_weight
    d, c = between_factor.shape
    if c == 0:
        return LoadingsAndEigenvalues(np.zeros((d, 0)), np.zeros(0))

    # Lanczos' method computes c eigenpairs, and needs more features than c.
    # With fewer features, decompose the whole matrix.
    if d <= c + 1:
        values, vectors = np.linalg.eigh(weight * (between_factor @ between_factor.T) - np.diag(within))
    else:

        def multiply(v: np.ndarray) -> np.ndarray:
            return np.asarray(weight * (between_factor @ (between_factor.T @ v)) - within * v)

        product = LinearOperator((d, d), matvec=multiply, dtype=np.float64)
        options = {"v0": between_factor @ np.arange(1.0, c + 1.0), "ncv": min(d, max(4 * c, 40)), "tol": 1e-12}
        values, vectors = eigsh(product, k=c, which="LA", **options, **LANCZOS_SEED_ARGUMENT)

    # Sort the eigenpairs by descending eigenvalue. Drop negative eigenvalues and rounding error.
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > d * EPS * float(np.abs(values).max(initial=0.0))]
    return LoadingsAndEigenvalues(vectors[:, order], values[order])
