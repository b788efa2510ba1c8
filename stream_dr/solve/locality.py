"""locality: linear projections that keep a graph's smooth coordinates; what LPP and NPE share.

Minimises wᵀ Xᵀ A X w / wᵀ Xᵀ B X w over the row space of the centred rows X (r, features), with A, B (r, r): L and D
for LPP, (I − W)ᵀ(I − W) and I for NPE [mathematics §7]. A ridge ρ stands in both quadratic forms.

Cost: O(r features min(r, features)) once, then a dense eigenproblem of that smaller size.

Why this way: with ρ in the denominator alone a direction in which the rows do not vary has the ratio 0/ρ, the
smallest of all; with ρ in both it has 1, the largest (this is maximising wᵀ Xᵀ(B − A)X w / wᵀ(Xᵀ B X + ρ)w). X = U s
Vᵀ is scaled by 1/√(s² + ρ), so small s cost no precision.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from stream_dr.projection import Linear
from stream_dr.solve.singular import singular
from stream_dr.solve.spectral import EPS, signed

RIDGE = 1e-3
"""Ridge where there are no more rows than features and none is asked for, as a share of the mean eigenvalue of Xᵀ B X."""


def locality(rows: Any, A: Any, B: Any, n_components: int, gamma: float, unit: bool = False) -> Linear:
    """The n_components directions of smallest ratio for rows (r, features), dense or CSR; A, B sparse (r, r).

    gamma: ridge ρ in the units of Xᵀ B X, 0 for none; where r ≤ features, 0 takes RIDGE. unit: the rows have variance 1
    along every component; otherwise wᵀ(Xᵀ B X + ρI)w = 1.
    """
    r, d = rows.shape
    mean = np.asarray(rows.mean(axis=0)).ravel()
    U, s, V = _thin(rows, mean)
    small_a, small_b = U.T @ (A @ U), U.T @ (B @ U)
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
        vectors = vectors * np.sqrt(r / (f**2 @ vectors**2))  # rows times loadings are U @ (f ∘ vectors)
    return Linear(mean, signed(V @ (vectors / scale[:, None])), values, "exact")


def _thin(rows: Any, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U (r, k), s (k,), V (features, k) of the centred rows, without the directions that are rounding."""
    r, d = rows.shape
    if d <= r:
        dense = rows.toarray() if sp.issparse(rows) else rows
        U, s, Vt = singular(dense - mean)
        keep = s > _cut(s, r, float(np.abs(mean).max(initial=0.0)))
        return U[:, keep], s[keep], Vt[keep].T
    return _thin_wide(rows, mean)


def _thin_wide(rows: Any, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for wide rows, from their (r, r) inner products; CSR rows are never made dense."""
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


def _cut(s: np.ndarray, r: int, offset: float) -> float:
    """Below this a singular value is rounding, of the decomposition or of the rows' distance from zero."""
    return EPS * (r * float(s.max(initial=0.0)) + np.sqrt(r) * offset)


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return 0.5 * (matrix + matrix.T)
