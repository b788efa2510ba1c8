"""Two-stage solution of a class of eigenproblems [2S, Algorithms 1 and 2; mathematics §3].

The problems are generalised eigenproblems of (Cxx + γI)⁻¹ XH Hᵀ Xᵀ. Cxx (features, features) is
the centred scatter, or only its diagonal, and XH is (features, k). H itself is never formed.

    (Cxx + γI) W1 = XH
    D = W1ᵀ XH = U Σ Uᵀ
    W = W1 U Σ^(−1/2)

Then Wᵀ(Cxx + γI)W = I, and Σ are the eigenvalues.

Let M Mᵀ = (Cxx + γI)⁻¹ on the range of Cxx. Then D = BᵀB for B = Mᵀ XH (r, k), and the left
singular vectors P of B give W = M P. The thin SVD uses the shorter side of B and never squares it.
From D itself, a component at the cut of 1e-10 would lose ten digits.

M comes from a Cholesky factor of the scaled matrix if that is certainly of full rank. Badly scaled
columns then cost no digits. Otherwise M comes from the eigenvectors above the rank cut, for any γ.

With Cxx a solution costs O(d³ + d k min(d, k)) time and O(d²) memory, and with its diagonal
O(d k min(d, k)) time and O(d k) memory.

The square-root form (QR of the centred rows) has an error of eps·cond(X) instead of
eps·cond(Cxx + γI). It needs the rows, which a state does not store. It is better only at γ ≈ 0 on
badly conditioned data, which `condition_number` shows.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpocon

from stream_dr.solve.rounding import Rounding, exact_rounding
from stream_dr.solve.spectral import EPS, left_singular, rank_cut, semidefinite_eigenpairs, with_fixed_signs

_SMALLEST = 1e-10
"""Smallest eigenvalue of a component, as a share of the first [mathematics §3, rule 4]."""

WELL_CONDITIONED = 1e-5
"""Smallest reciprocal condition for the Cholesky factor.

The condition is that of the scaled Cxx + γI. The factor is then good to 1e-10 for any rank of Cxx.
"""


def two_stage(
    scatter: np.ndarray, xh: np.ndarray, gamma: float = 0.0, rounding: Rounding | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return loadings (features, components) and eigenvalues (components,), largest first.

    There are at most min(rank, k) components. Their signs are fixed.

    Parameters
    ----------
    scatter : (features, features) or (features,)
        Centred Cxx, or its diagonal.
    xh : (features, k)
    gamma : float
        Ridge ≥ 0, in the units of scatter.
    rounding : Rounding or None
        Exactness of scatter. None if its rows lay about zero.
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

    scatter: (features, features). Costs O(d³).
    """
    floor = 0.0 if rounding is None else rounding.floor(np.diagonal(scatter))
    values = np.linalg.eigvalsh(scatter)
    nonzero = values[values > rank_cut(values, floor)]
    return float((nonzero[-1] + gamma) / (nonzero[0] + gamma)) if len(nonzero) else 1.0


Apply = Callable[[np.ndarray], np.ndarray]


def _inverse_root_of_diagonal(diagonal: np.ndarray, gamma: float, rounding: Rounding) -> tuple[Apply, Apply]:
    """Return the functions M· and Mᵀ· for M = (diag + γ)^(−1/2).

    M is 0 for columns that do not vary.
    """
    varying = rounding.varying(diagonal)
    root = np.zeros((len(diagonal), 1))
    root[varying, 0] = 1.0 / np.sqrt(diagonal[varying] + gamma)
    return (lambda p: root * p), (lambda b: root * b)


def _inverse_root(scatter: np.ndarray, gamma: float, rounding: Rounding) -> tuple[Apply, Apply]:
    """Return the functions M· and Mᵀ·.

    M Mᵀ = (Cxx + γI)⁻¹ on the range of Cxx.
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
    """Return M· and Mᵀ· from eigenpairs.

    M = V (e + γ)^(−1/2). The values e and vectors V are the eigenpairs of Cxx above the rank cut
    (rule 1).
    """
    values, vectors = semidefinite_eigenpairs(scatter, rounding.floor(np.diagonal(scatter)))
    M = vectors / np.sqrt(values + gamma)
    return (lambda p: M @ p), (lambda b: M.T @ b)


def _inverse_root_by_cholesky(scatter: np.ndarray, gamma: float, rounding: Rounding) -> tuple[Apply, Apply] | None:
    """Return M· and Mᵀ· from a Cholesky factor, or None.

    M = D L⁻ᵀ. L is the Cholesky factor of D (Cxx + γI) D with D = (diag + γ)^(−1/2).

    None if rounding could pass for a direction. It cannot in two cases. Either the correlation
    matrix alone is certainly of full rank (rule 2: badly scaled columns). Or the scaled matrix
    with γ is so well conditioned that what rounding leaves outside Cxx's range stays below 1e-10.
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
    """Return the lower Cholesky factor of Cxx + γI scaled to unit diagonal.

    Returns LAPACK's estimate of the reciprocal condition with it. None and 0 if the factorisation
    breaks down. Costs O(d³/3).
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
