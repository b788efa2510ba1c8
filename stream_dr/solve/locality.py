"""Linear projections that preserve smooth coordinates of a graph.

LPP and NPE share them. They minimise wᵀ Xᵀ A X w / wᵀ Xᵀ B X w over the row space of the centred
rows X (r, features). A and B are (r, r). For LPP they are L and D, the graph's Laplacian and
degrees. For NPE they are (I − W)ᵀ(I − W) and I, where W are barycentric weights [mathematics §7].
A ridge ρ is added to both quadratic forms.

It costs O(r features min(r, features)), then a dense eigenproblem of order min(r, features).

With ρ in the denominator alone, a direction in which the rows do not vary would have the ratio
0/ρ, the smallest of all. With ρ in both it has 1, the largest. That is the same as maximising
wᵀ Xᵀ(B − A)X w / wᵀ(Xᵀ B X + ρ)w. X = U s Vᵀ is scaled by 1/√(s² + ρ), so small s cost no
precision.
"""

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
"""Default ridge if there are no more rows than features.

A share of the mean eigenvalue of Xᵀ B X.
"""


def locality_projection(
    rows: Rows, A: SparseMatrix, B: SparseMatrix, n_components: int, gamma: float, unit: bool = False
) -> Linear:
    """Return the projection to the `n_components` directions of smallest ratio.

    Parameters
    ----------
    rows : (r, features)
        Dense or CSR.
    A, B : sparse (r, r)
        Matrices of the numerator and the denominator.
    gamma : float
        Ridge ρ in the units of Xᵀ B X, 0 for none. If r ≤ features, 0 means RIDGE.
    unit : bool
        If true, rows have variance 1 along every component. Otherwise wᵀ(Xᵀ B X + ρI)w = 1.
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
        # Rows times loadings are U @ (f ∘ vectors).
        vectors = vectors * np.sqrt(r / (f**2 @ vectors**2))
    return Linear(mean, with_fixed_signs(V @ (vectors / scale[:, None])), values, "exact")


def _thin_svd(rows: Rows, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thin singular value decomposition of the centred rows.

    Returns U (r, k), s (k,) and V (features, k). Directions that are rounding are dropped.
    """
    r, d = rows.shape
    if d <= r:
        dense = rows.toarray() if sp.issparse(rows) else rows
        U, s, Vt = thin_svd(dense - mean)
        nonzero = s > _rounding_cut(s, r, float(np.abs(mean).max(initial=0.0)))
        return U[:, nonzero], s[nonzero], Vt[nonzero].T
    return _thin_svd_of_wide(rows, mean)


def _thin_svd_of_wide(rows: Rows, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decompose wide rows in the same way, from their inner products.

    CSR rows are never made dense.
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
    """Return the size up to which a singular value is rounding.

    It is the rounding of the decomposition, or of the rows' distance from zero.
    """
    return EPS * (r * float(s.max(initial=0.0)) + np.sqrt(r) * offset)


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part of a square matrix."""
    return 0.5 * (matrix + matrix.T)
