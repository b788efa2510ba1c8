"""Linear projections computed from a graph of rows.

`largest_form` solves GraphWMV, and `locality_projection` solves LPP (locality preserving
projections) and NPE (neighbourhood preserving embedding).
X (r, features) are the centred rows, and w is a direction in their row space. The projection
minimises wᵀ Xᵀ A X w / wᵀ Xᵀ B X w. A and B are (r, r) [mathematics §7]:

* For LPP, A is the graph's Laplacian L, and B is the diagonal matrix D of its degrees.
* For NPE, A is (I − W)ᵀ(I − W), where W are barycentric weights, and B is I.

A ridge ρ is added to numerator and denominator. If only the denominator had the ridge, a direction
in which the rows do not vary would have the ratio 0/ρ, the smallest of all. With the ridge in
numerator and denominator, this direction has the ratio 1, the largest. The problem is then the
same as maximising wᵀ Xᵀ(B − A)X w / wᵀ(Xᵀ B X + ρI)w.

The singular value decomposition X = U s Vᵀ is scaled by 1/√(s² + ρ), so directions of small s lose
no precision. Solving costs O(r features min(r, features)) and a dense eigenproblem of order
min(r, features).
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from stream_dr.projection import Linear
from stream_dr.rows.block import Rows
from stream_dr.solve.singular import thin_svd
from stream_dr.solve.spectral import EPS, with_fixed_signs

SparseMatrix: TypeAlias = sp.spmatrix | sp.sparray

RIDGE = 1e-3
"""Default ridge if there are at most as many rows as features.

The ridge is this share of the mean eigenvalue of Xᵀ B X. X (r, features) are the centred rows, and
B (r, r) is the matrix of the denominator.
"""


def locality_projection(
    rows: Rows, A: SparseMatrix, B: SparseMatrix, n_components: int, gamma: float, unit: bool = False
) -> Linear:
    """Return the projection to the directions of smallest ratio.

    A direction w (features,) has the ratio wᵀ(Xᵀ A X + ρI)w / wᵀ(Xᵀ B X + ρI)w, for the centred
    rows X (r, features) and a ridge ρ.

    Parameters
    ----------
    rows : (r, features)
        Dense or CSR.
    A, B : sparse (r, r)
        Matrices of the numerator and the denominator.
    n_components : int
        Maximum number of directions.
    gamma : float
        Ridge ρ in the units of Xᵀ B X. If gamma is 0, there is no ridge, except that RIDGE is used
        if r ≤ features.
    unit : bool
        If true, projected rows have variance 1 along every component. Otherwise
        wᵀ(Xᵀ B X + ρI)w = 1.
    """
    r, d = rows.shape
    mean = np.asarray(rows.mean(axis=0)).ravel()
    U, s, V = _thin_svd(rows, mean)
    small_a = U.T @ (A @ U)
    small_b = U.T @ (B @ U)
    total = float(s**2 @ np.diag(small_b))
    if total <= 0:
        return Linear(mean, np.zeros((d, 0)), np.zeros(0), "exact")

    share = RIDGE / len(s) if r <= d and not gamma else len(s) * EPS
    ridge = max(gamma, share * total)
    scale = np.sqrt(s**2 + ridge)
    f, g = s / scale, np.diag(ridge / scale**2)

    values, vectors = eigh(
        _symmetric(f[:, None] * small_a * f) + g,
        _symmetric(f[:, None] * small_b * f) + g,
        subset_by_index=[0, min(n_components, len(s)) - 1],
    )
    if unit:
        # The projected rows are U @ (f ∘ vectors). They are scaled to variance 1.
        vectors = vectors * np.sqrt(r / (f**2 @ vectors**2))
    return Linear(mean, with_fixed_signs(V @ (vectors / scale[:, None])), values, "exact")


def largest_form(
    rows: Rows, product: Callable[[np.ndarray], np.ndarray], n_components: int, unit: bool = False
) -> Linear:
    """Return the projection to the eigenvectors of Xᵀ L X of largest algebraic value.

    Directions in which the rows do not vary are left out. Costs O(r features min(r, features)).

    Parameters
    ----------
    rows : (r, features)
        Dense or CSR. X are the centred rows.
    product : function
        Returns L @ columns (r, m) for columns (r, m) and a symmetric matrix L (r, r).
    n_components : int
        Maximum number of directions.
    unit : bool
        If true, projected rows have variance 1 along every component. Otherwise the components are
        orthonormal.
    """
    mean = np.asarray(rows.mean(axis=0)).ravel()
    U, s, V = _thin_svd(rows, mean)
    if float(s @ s) < np.finfo(float).tiny:
        return Linear(mean, np.zeros((rows.shape[1], 0)), np.zeros(0), "exact")

    values, vectors = np.linalg.eigh(_symmetric(s[:, None] * (U.T @ product(U)) * s))
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
    if unit:
        vectors = vectors * np.sqrt(rows.shape[0] / (s**2 @ vectors**2))
    return Linear(mean, with_fixed_signs(V @ vectors), values, "exact")


def _thin_svd(rows: Rows, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thin singular value decomposition U s Vᵀ of the centred rows.

    U is (r, k), s is (k,) and V is (features, k). Directions that are only rounding error are
    dropped.

    mean: (features,), mean of the rows, which is subtracted.
    """
    r, d = rows.shape
    if d <= r:
        dense = rows.toarray() if sp.issparse(rows) else rows
        U, s, Vt = thin_svd(dense - mean)
        nonzero = s > _rounding_cut(s, r, float(np.abs(mean).max(initial=0.0)))
        return U[:, nonzero], s[nonzero], Vt[nonzero].T
    return _thin_svd_of_wide(rows, mean)


def _thin_svd_of_wide(rows: Rows, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the U (r, k), s (k,) and V (features, k) of `_thin_svd` for wide rows.

    They come from the inner products of the rows, so CSR rows are never made dense.
    """
    r = rows.shape[0]
    if not sp.issparse(rows):
        rows, mean = rows - mean, np.zeros_like(mean)
    product = np.asarray((rows @ rows.T).toarray() if sp.issparse(rows) else rows @ rows.T)
    column = product.mean(axis=0)
    squares, U = np.linalg.eigh(product - column - column[:, None] + column.mean())
    keep = squares > r * EPS * max(float(np.trace(product)), 0.0)
    U, s = U[:, keep], np.sqrt(squares[keep])
    V = np.asarray(rows.T @ U) - np.outer(mean, U.sum(axis=0))
    return U, s, V / s


def _rounding_cut(s: np.ndarray, r: int, offset: float) -> float:
    """Return the size up to which a singular value is rounding error.

    This size is the rounding error of the decomposition plus the rounding error of the centring.
    The error of the centring grows with the offset of the rows from zero.

    s: (k,) singular values.
    r: number of rows.
    offset: largest absolute value of the rows' mean.
    """
    return EPS * (r * float(s.max(initial=0.0)) + np.sqrt(r) * offset)


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part (M + Mᵀ)/2 of a square matrix M."""
    return 0.5 * (matrix + matrix.T)
