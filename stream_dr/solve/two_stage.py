"""Two-stage solution of a class of eigenproblems [2S, Algorithms 1 and 2; mathematics §3].

The problems are generalised eigenproblems of (Cxx + γI)⁻¹ XH Hᵀ Xᵀ, where

* X are the centred rows,
* Cxx (features, features) is their scatter, or only its diagonal,
* γ is a ridge,
* H is the method's factor of the targets, which is never formed, and XH is (features, k).

The two stages are a linear system and a small eigenproblem:

    (Cxx + γI) W1 = XH
    D = W1ᵀ XH = U Σ Uᵀ
    W = W1 U Σ^(−1/2)

The loadings W satisfy Wᵀ(Cxx + γI)W = I, and Σ are the eigenvalues.

D itself is not formed here, because its squared values would cost a component near the cut of
1e-10 ten digits. Instead, take M with M Mᵀ = (Cxx + γI)⁻¹ on the range of Cxx, and B = Mᵀ XH (r,
k). Then D = BᵀB. The left singular vectors P of B give W = M P, and the squared singular values
are Σ.

M comes from a Cholesky factor of the matrix scaled to unit diagonal, if that matrix is certainly
of full rank. Badly scaled columns then lose no digits. Otherwise M comes from the eigenvectors of
Cxx above the rank cut, for any γ.

For d features, a solution with Cxx costs O(d³ + d k min(d, k)) time and O(d²) memory. With the
diagonal of Cxx it costs O(d k min(d, k)) time and O(d k) memory.

A square-root form (QR of the centred rows) would have an error of eps·cond(X) instead of
eps·cond(Cxx + γI). But it needs the rows, which a state does not store. It is better only if γ ≈ 0
and the data is badly conditioned, which `condition_number` shows.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpocon

from stream_dr.solve.rounding import Rounding, exact_rounding
from stream_dr.solve.spectral import EPS, left_singular, rank_cut, semidefinite_eigenpairs, with_fixed_signs

_SMALLEST = 1e-10
"""Share of the largest eigenvalue up to which a component is dropped [mathematics §3, rule 4]."""

WELL_CONDITIONED = 1e-5
"""Smallest reciprocal condition number at which the Cholesky factor is always used.

The factored matrix is Cxx + γI (the rows' scatter plus a ridge), scaled to unit diagonal. From
this value on, the factor is accurate to 1e-10 whatever the rank of Cxx.
"""


def two_stage(
    scatter: np.ndarray, xh: np.ndarray, gamma: float = 0.0, rounding: Rounding | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return loadings (features, components) and eigenvalues (components,), largest first.

    There are at most min(rank of scatter, k) components. Their signs are fixed by
    `with_fixed_signs`.

    Parameters
    ----------
    scatter : (features, features) or (features,)
        Scatter Cxx of the centred rows, or its diagonal.
    xh : (features, k)
        Product XH of the centred rows and the method's factor H of the targets.
    gamma : float
        Ridge ≥ 0, in the units of scatter.
    rounding : Rounding or None
        Rounding errors of scatter. None if the rows' mean is about zero.
    """
    rounding = rounding or exact_rounding(len(scatter))
    roots = _inverse_root_of_diagonal if scatter.ndim == 1 else _inverse_root
    root, root_t = roots(scatter, gamma, rounding)

    vectors, values = left_singular(root_t(xh))
    eigenvalues = values**2
    p = int(np.count_nonzero(eigenvalues > _SMALLEST * eigenvalues.max(initial=0.0)))
    return with_fixed_signs(root(vectors[:, :p])), eigenvalues[:p]


def condition_number(scatter: np.ndarray, gamma: float = 0.0, rounding: Rounding | None = None) -> float:
    """Return the condition number of Cxx + γI on the range of Cxx.

    scatter: Cxx (features, features), the scatter of the centred rows.
    gamma: ridge γ.
    rounding: rounding errors of scatter, or None if the rows' mean is about zero.

    Costs O(d³) for d features.
    """
    floor = 0.0 if rounding is None else rounding.floor(np.diagonal(scatter))
    values = np.linalg.eigvalsh(scatter)
    nonzero = values[values > rank_cut(values, floor)]
    return float((nonzero[-1] + gamma) / (nonzero[0] + gamma)) if len(nonzero) else 1.0


Apply = Callable[[np.ndarray], np.ndarray]


def _inverse_root_of_diagonal(diagonal: np.ndarray, gamma: float, rounding: Rounding) -> tuple[Apply, Apply]:
    """Return functions that multiply by M and by Mᵀ, for a diagonal scatter.

    M is the diagonal matrix (diag + γ)^(−1/2), where diag is the diagonal of the scatter and γ is
    `gamma`, a ridge. M is 0 for columns that do not vary.
    """
    varying = rounding.varying(diagonal)
    root = np.zeros((len(diagonal), 1))
    root[varying, 0] = 1.0 / np.sqrt(diagonal[varying] + gamma)
    return (lambda p: root * p), (lambda b: root * b)


def _inverse_root(scatter: np.ndarray, gamma: float, rounding: Rounding) -> tuple[Apply, Apply]:
    """Return functions that multiply by a matrix M and by Mᵀ.

    M Mᵀ = (Cxx + γI)⁻¹ on the range of Cxx. Cxx is `scatter` (features, features), and γ is
    `gamma`, a ridge.
    """
    varying = np.flatnonzero(rounding.varying(np.diagonal(scatter)))
    part = scatter if len(varying) == len(scatter) else scatter[np.ix_(varying, varying)]
    rounding = rounding._replace(shift=rounding.shift[varying])

    root, root_t = _inverse_root_by_cholesky(part, gamma, rounding) or _inverse_root_by_eigenpairs(
        part, gamma, rounding
    )
    if part is scatter:
        return root, root_t

    def widened(p: np.ndarray) -> np.ndarray:
        out = np.zeros((len(scatter), p.shape[1]))
        out[varying] = root(p)
        return out

    return widened, lambda b: root_t(b[varying])


def _inverse_root_by_eigenpairs(scatter: np.ndarray, gamma: float, rounding: Rounding) -> tuple[Apply, Apply]:
    """Return functions that multiply by a matrix M and by Mᵀ, from eigenpairs.

    M = V (e + γ)^(−1/2), where e and V are the eigenvalues and eigenvectors of `scatter` above the
    rank cut [mathematics §3, rule 1]. γ is `gamma`, a ridge.
    """
    values, vectors = semidefinite_eigenpairs(scatter, rounding.floor(np.diagonal(scatter)))
    M = vectors / np.sqrt(values + gamma)
    return (lambda p: M @ p), (lambda b: M.T @ b)


def _inverse_root_by_cholesky(scatter: np.ndarray, gamma: float, rounding: Rounding) -> tuple[Apply, Apply] | None:
    """Return functions that multiply by a matrix M and by Mᵀ, or None.

    M Mᵀ = (Cxx + γI)⁻¹, where Cxx is `scatter` (features, features) and γ is `gamma`, a ridge.
    Here M = D L⁻ᵀ. D is the diagonal matrix (diag + γ)^(−1/2), where diag is the diagonal of Cxx,
    and L is the Cholesky factor of D (Cxx + γI) D.

    M is wrong if Cxx has a direction along which Cxx is only rounding error. So the result is None
    unless M is certainly accurate. M is certainly accurate in two cases:

    * The correlation matrix alone (γ = 0) is of full rank whatever the rounding errors
      [mathematics §3, rule 2]. The columns of Cxx may then be badly scaled.
    * D (Cxx + γI) D is so well conditioned that the rounding error outside the range of Cxx
      contributes less than 1e-10.
    """
    diagonal, d = np.diagonal(scatter), len(scatter)
    if d == 0:
        return None

    factor, reciprocal = _scaled_cholesky(scatter, gamma)
    if factor is None:
        return None

    noise = EPS * float((rounding.shift / np.sqrt(diagonal)).max()) + rounding.lost
    certain = 1e3 * max(d * EPS, noise)
    if (
        reciprocal < WELL_CONDITIONED + certain
        and (reciprocal if gamma == 0 else _scaled_cholesky(scatter, 0.0)[1]) <= certain
    ):
        return None

    scale = 1.0 / np.sqrt(diagonal + gamma)[:, None]
    return (
        lambda p: scale * solve_triangular(factor, p, lower=True, trans="T", check_finite=False),
        lambda b: solve_triangular(factor, scale * b, lower=True, check_finite=False),
    )


def _scaled_cholesky(scatter: np.ndarray, gamma: float) -> tuple[np.ndarray | None, float]:
    """Return the lower Cholesky factor of the scaled Cxx + γI, and a condition number.

    Cxx is `scatter` and γ is `gamma`, a ridge. Cxx + γI is scaled to unit diagonal. The second
    result is LAPACK's estimate of the reciprocal condition number. If the factorisation fails, the
    results are None and 0. Costs O(d³/3) for d features.
    """
    scale = 1.0 / np.sqrt(np.diagonal(scatter) + gamma)
    matrix = scatter * scale[:, None] * scale
    matrix[np.diag_indices_from(matrix)] = 1.0

    norm = float(np.abs(matrix).sum(axis=0).max())
    try:
        factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None, 0.0
    return factor, float(dpocon(factor, norm, uplo="L")[0])
