"""Linear projections from the scatter between classes or a graph of rows.

SKM (supervised Kampong measure) and MMC (maximum margin criterion) are solved with the
eigenvectors of a weighted sum of two scatter matrices. The sum is b·Sb + w·St, with numbers b and
w. All matrices are (features, features):

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

A graph of rows is used by other estimators. GraphWMV uses `largest_eigenvalue_projection`. LPP
(locality preserving projections) and NPE (neighbourhood preserving embedding) use
`locality_projection`.

`locality_projection` computes directions w (features,) that minimise a ratio [mathematics §7]. X
(r, features) are the centred rows, and w lies in the row space of X. The ratio, with two matrices
A and B (r, r), is

    wᵀ Xᵀ A X w / wᵀ Xᵀ B X w

* For LPP, A is the Laplacian of the neighbourhood graph, and B is the diagonal matrix of the
  graph's degrees.
* For NPE, A is (I − W)ᵀ(I − W), and B is the identity. W (r, r) are barycentric weights, by which
  each row is a mean of its neighbours.

A ridge ρ is added to the numerator and to the denominator. Consider a direction in which the rows
do not vary. With a ridge in the denominator alone, its ratio would be 0/ρ, the smallest possible
ratio. With a ridge in the numerator and in the denominator, its ratio is 1, so it comes last.

The solver computes the singular value decomposition X = U s Vᵀ and scales it by 1/√(s² + ρ), so
that directions of small singular values s lose no precision. Solving costs
O(r features min(r, features)), plus a dense eigenproblem of order min(r, features).
"""

from collections.abc import Callable
from inspect import signature
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, eigsh

from stream_dr.batch.block import Rows
from stream_dr.projection import Linear
from stream_dr.solve.spectral import (
    EPS,
    LoadingsAndEigenvalues,
    nonzero_indefinite_eigenpairs,
    thin_svd,
    with_fixed_signs,
)

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
    are dropped. Costs O(d³) time and O(d²) memory for d features.

    between_factor: (features, c), factor for c classes. `between_factor` times its transpose is
        the scatter between classes.
    between_weight: weight of the scatter between classes.
    total_scatter: (features, features), total scatter of the rows, divided by the number of rows.
    total_scatter_weight: weight of the total scatter.
    total_scatter_rounding_error: absolute value up to which eigenvalues of `total_scatter` are
        rounding error.
    """
    matrix = between_weight * (between_factor @ between_factor.T) + total_scatter_weight * total_scatter
    # The factor is computed from class means and is exact. Only the total scatter has errors.
    rounding_error = abs(total_scatter_weight) * total_scatter_rounding_error
    values, vectors = nonzero_indefinite_eigenpairs(matrix, rounding_error)
    return LoadingsAndEigenvalues(vectors, values)


def positive_scatter_sum_eigenpairs(
    between_factor: np.ndarray, between_weight: float, total_scatter_diagonal: np.ndarray, total_scatter_weight: float
) -> LoadingsAndEigenvalues:
    """Return positive eigenpairs of a weighted sum of scatter matrices.

    The sum (features, features) is a·B + b·T with b < 0. B = F Fᵀ is the scatter between classes.
    T is the total scatter, of which only the diagonal is known. Its other entries are taken to be
    those of B, as if the scatter within classes, T − B, were diagonal. All scatters have the same
    divisor, for example the number of rows.

    Returns r eigenvectors (features, r) and eigenvalues (r,), largest first. r is at most the
    number c of classes. A step of Lanczos' method costs O(d c) for d features.

    between_factor: (features, c), the matrix F, for c classes.
    between_weight: the number a.
    total_scatter_diagonal: (features,), diagonal of T.
    total_scatter_weight: the number b, below 0.
    """
    # The sum of the scatter matrices is weight · F Fᵀ − diag(within). weight is a + b, and `within`
    # is |b| times the diagonal of T − B. Without classes (c = 0) no eigenvalue is positive.
    between_diagonal = np.einsum("ij,ij->i", between_factor, between_factor)
    within = -total_scatter_weight * np.maximum(total_scatter_diagonal - between_diagonal, 0.0)
    weight = between_weight + total_scatter_weight
    d, c = between_factor.shape
    if c == 0:
        return LoadingsAndEigenvalues(np.zeros((d, 0)), np.zeros(0))

    # Lanczos' method computes c eigenpairs, and needs more features than c.
    # With fewer features, decompose the whole matrix.
    if d <= c + 1:
        between = between_factor @ between_factor.T
        values, vectors = np.linalg.eigh(weight * between - np.diag(within))
    else:

        def multiply(v: np.ndarray) -> np.ndarray:
            between = between_factor @ (between_factor.T @ v)
            return np.asarray(weight * between - within * v)

        # A fixed start vector makes the result repeatable.
        product = LinearOperator((d, d), matvec=multiply, dtype=np.float64)
        start = between_factor @ np.arange(1.0, c + 1.0)
        n_vectors = min(d, max(4 * c, 40))
        values, vectors = eigsh(product, k=c, which="LA", v0=start, ncv=n_vectors, tol=1e-12, **LANCZOS_SEED_ARGUMENT)

    # Sort the eigenpairs by descending eigenvalue. Drop negative eigenvalues and rounding error.
    order = np.argsort(-values, kind="stable")
    largest = float(np.abs(values).max(initial=0.0))
    order = order[values[order] > d * EPS * largest]
    return LoadingsAndEigenvalues(vectors[:, order], values[order])


SparseMatrix: TypeAlias = sp.spmatrix | sp.sparray
"""Any sparse matrix or sparse array of scipy."""

RIDGE = 1e-3
"""Default ridge if there are at most as many rows as features, as a share.

Let X (r, features) be the r centred rows, and B (r, r) the matrix in the denominator of the ratio
that LPP or NPE minimises. The ridge is this share of the mean eigenvalue of Xᵀ B X.
"""


def locality_projection(
    rows: Rows, A: SparseMatrix, B: SparseMatrix, n_components: int, gamma: float, unit_variance: bool = False
) -> Linear:
    """Return the projection to directions that minimise a ratio.

    Let X (r, features) be the r centred rows, A and B two matrices (r, r), and ρ a ridge. The
    ratio of a direction w (features,) is

        wᵀ(Xᵀ A X + ρI)w / wᵀ(Xᵀ B X + ρI)w

    Parameters
    ----------
    rows : (r, features)
        The r rows before centring, dense or CSR.
    A, B : sparse (r, r)
        Matrices of the ratio's numerator and denominator.
    n_components : int
        Maximum number of directions.
    gamma : float
        Ridge ρ in the units of Xᵀ B X. A ridge below the rounding error of Xᵀ B X is raised to the
        rounding error. If gamma is 0 and r ≤ features, the ridge is RIDGE times the mean
        eigenvalue of Xᵀ B X.
    unit_variance : bool
        If true, directions are scaled to variance 1 of the projected rows. If false, directions
        are scaled to wᵀ(Xᵀ B X + ρI)w = 1.
    """
    r, d = rows.shape
    mean = np.asarray(rows.mean(axis=0)).ravel()
    U, s, V = _centred_svd(rows, mean)
    small_a = U.T @ (A @ U)
    small_b = U.T @ (B @ U)
    total = float(s**2 @ np.diag(small_b))
    if total <= 0:
        return projection_without_components(mean)

    # Choose the ridge ρ. `total` is the sum of the eigenvalues of Xᵀ B X.
    # Write directions as w = V diag(1 / scale) v. The numerator of the ratio is then vᵀ left v, and
    # the denominator vᵀ right v. Directions with small singular values lose no precision.
    share = RIDGE / len(s) if r <= d and not gamma else len(s) * EPS
    ridge = max(gamma, share * total)
    scale = np.sqrt(s**2 + ridge)
    f = s / scale
    g = np.diag(ridge / scale**2)

    left = _symmetric_part(f[:, None] * small_a * f) + g
    right = _symmetric_part(f[:, None] * small_b * f) + g
    last = min(n_components, len(s)) - 1
    values, vectors = eigh(left, right, subset_by_index=[0, last])
    if unit_variance:
        # The rows projected onto component j are U @ (f * vectors[:, j]).
        # Scale the vectors such that the projected rows have variance 1.
        vectors = vectors * np.sqrt(r / (f**2 @ vectors**2))
    return Linear(mean, with_fixed_signs(V @ (vectors / scale[:, None])), values, "exact")


def largest_eigenvalue_projection(
    rows: Rows, multiply_by_matrix: Callable[[np.ndarray], np.ndarray], n_components: int, unit_variance: bool = False
) -> Linear:
    """Return the projection to a symmetric matrix's leading eigenvectors.

    The matrix is Xᵀ L X, where X (r, features) are the r centred rows, and L (r, r) is the
    symmetric matrix that the caller multiplies by. The leading eigenvectors have the largest
    eigenvalues by signed value, not by absolute value. Directions in which the rows do not vary
    are dropped.

    Parameters
    ----------
    rows : (r, features)
        The r rows before centring, dense or CSR.
    multiply_by_matrix : function
        Function that returns L @ columns (r, m) for m columns (r, m).
    n_components : int
        Maximum number of directions.
    unit_variance : bool
        If true, projected rows have variance 1 along every component. If false, the components
        are orthonormal.
    """
    # The centred rows are X = U diag(s) Vᵀ. If all rows are equal, X is zero, up to numbers whose
    # squares are too small for a float64.
    mean = np.asarray(rows.mean(axis=0)).ravel()
    U, s, V = _centred_svd(rows, mean)
    if float(s @ s) < np.finfo(float).tiny:
        return projection_without_components(mean)

    # The eigenvectors of Xᵀ L X are V times `vectors`, which are those of diag(s) Uᵀ L U diag(s).
    small = U.T @ multiply_by_matrix(U)
    values, vectors = np.linalg.eigh(_symmetric_part(s[:, None] * small * s))
    values = values[::-1][:n_components]
    vectors = vectors[:, ::-1][:, :n_components]
    if unit_variance:
        # The rows' variance along V v is vᵀ diag(s)² v / r, for each column v of `vectors`.
        vectors = vectors * np.sqrt(rows.shape[0] / (s**2 @ vectors**2))
    return Linear(mean, with_fixed_signs(V @ vectors), values, "exact")


def _centred_svd(rows: Rows, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thin singular value decomposition of the centred rows.

    Returns U (r, k), the k singular values s, and V (features, k). The centred rows are
    U diag(s) Vᵀ. Singular values that are only rounding error are dropped.

    rows: (r, features), r rows before centring, dense or CSR.
    mean: (features,), mean of the rows, which is subtracted.
    """
    # With more features than rows, the inner products of the rows (r, r) are the smaller matrix.
    r, d = rows.shape
    if d > r:
        return _centred_svd_of_wide(rows, mean)

    dense = rows
    if sp.issparse(rows):
        dense = rows.toarray()
    U, s, Vt = thin_svd(dense - mean)

    # Singular values up to `cut` are rounding error of the decomposition and of centring.
    # The error of centring grows with the rows' distance from zero.
    largest_mean = float(np.abs(mean).max(initial=0.0))
    largest_value = float(s.max(initial=0.0))
    cut = EPS * (r * largest_value + float(np.sqrt(r)) * largest_mean)
    nonzero = s > cut
    return U[:, nonzero], s[nonzero], Vt[nonzero].T


def _centred_svd_of_wide(rows: Rows, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decompose centred rows with more features than rows.

    Returns U (r, k), the k singular values s, and V (features, k). The centred rows are
    U diag(s) Vᵀ. The decomposition is computed from the inner products of the rows, so CSR rows
    are never made dense. Singular values that are only rounding error are dropped.

    rows: (r, features), r rows before centring, dense or CSR.
    mean: (features,), mean of the rows, which is subtracted.
    """
    # Dense rows are centred here. CSR rows would become dense, so their products are centred below.
    r = rows.shape[0]
    if not sp.issparse(rows):
        rows = rows - mean
        mean = np.zeros_like(mean)

    # U are the eigenvectors of the matrix (r, r) of the centred rows' inner products.
    # The eigenvalues of this matrix are the squared singular values.
    # Centre the inner products of the uncentred rows to get the matrix.
    product = rows @ rows.T
    if sp.issparse(product):
        product = product.toarray()
    column_means = product.mean(axis=0)
    squares, U = np.linalg.eigh(product - column_means - column_means[:, None] + column_means.mean())
    keep = squares > r * EPS * max(float(np.trace(product)), 0.0)
    U = U[:, keep]
    s = np.sqrt(squares[keep])

    # V is the transposed centred rows times U, with each column divided by its singular value.
    V = np.asarray(rows.T @ U) - np.outer(mean, U.sum(axis=0))
    return U, s, V / s


def _symmetric_part(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part (M + Mᵀ)/2 of a square matrix M."""
    return np.asarray(0.5 * (matrix + matrix.T))


def projection_without_components(mean: np.ndarray) -> Linear:
    """Return a linear projection without components.

    mean: (features,), mean of the rows, which is stored in the projection.
    """
    return Linear(mean, np.zeros((len(mean), 0)), np.zeros(0), "exact")
