"""Two-stage solution of generalised eigenproblems.

The method is from [2S, Algorithms 1 and 2; mathematics §3]. LDA, CCA, OPLS and similar methods are
generalised eigenproblems. Symbols:

* Cxx (features, features) is the scatter of the centred rows, or a diagonal matrix.
* γ is a ridge.
* XH (features, k) is the product of the centred rows and a matrix H (rows, k), by which the method
  describes the targets. H itself is not needed.

The loadings W (features, components) are eigenvectors of (Cxx + γI)⁻¹ XH (XH)ᵀ, scaled such that
Wᵀ(Cxx + γI)W = I. The published method has two stages, a linear system and a small eigenproblem:

    (Cxx + γI) W1 = XH
    W1ᵀ XH = U Σ Uᵀ
    W = W1 U Σ^(−1/2)

This module computes the same W with a smaller rounding error. It takes a matrix M with M Mᵀ =
(Cxx + γI)⁻¹ on the range of Cxx. Let P be the left singular vectors of Mᵀ XH. Then W = M P, and
the eigenvalues Σ are the squared singular values.

M is computed from a Cholesky factor if Cxx + γI is certainly well conditioned. If not, M is
computed from the eigenvectors of Cxx whose eigenvalues are more than rounding errors.

For d features, a solution with the whole Cxx costs O(d³ + d k min(d, k)) time and O(d²) memory. A
solution with the diagonal of Cxx costs O(d k min(d, k)) time and O(d k) memory.

The rounding error is about eps times the condition number of Cxx + γI, which `condition_number`
returns. If γ ≈ 0 and the condition number is large, a QR factorisation of the centred rows would
have a smaller error, but it would need all rows.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpocon

from stream_dr.solve import spectral
from stream_dr.solve.spectral import EPS, LoadingsAndEigenvalues, Rounding, zero_rounding

_SMALLEST = 1e-10
"""Relative eigenvalue up to which a component is dropped as rounding error.

The relative eigenvalue is the component's eigenvalue divided by the largest eigenvalue.
"""

WELL_CONDITIONED = 1e-5
"""Smallest reciprocal condition number with which a Cholesky factor is always used.

The Cholesky factor is that of the scatter of the centred rows plus a ridge, scaled to unit
diagonal. If the reciprocal condition number of this matrix is at least this large, the factor is
accurate to 1e-10 even if the scatter alone is singular.
"""


def two_stage(
    scatter: np.ndarray, cross_sums: np.ndarray, gamma: float = 0.0, rounding: Rounding | None = None
) -> LoadingsAndEigenvalues:
    """Return loadings and eigenvalues of a two-stage method.

    Such methods are LDA, CCA and OPLS. The loadings are (features, components), and the
    eigenvalues (components,), largest first. There are at most min(rank of scatter, k) components.
    In each component, the loading of largest absolute value is positive.

    Parameters
    ----------
    scatter : (features, features) or (features,)
        Scatter Cxx of the centred rows, or its diagonal.
    cross_sums : (features, k)
        Product of the centred rows and a matrix (rows, k), by whose k columns the method describes
        the targets of the rows. It may be overwritten.
    gamma : float
        Ridge ≥ 0, which is added to the diagonal of `scatter`.
    rounding : Rounding or None
        Rounding errors of `scatter`. None if the mean of the rows is about zero.
    """
    # Let M be a matrix for which M Mᵀ is the inverse of `scatter` plus the ridge. The two functions
    # `multiply` and `multiply_transposed` return M @ columns and Mᵀ @ columns.
    rounding = rounding or zero_rounding(len(scatter))
    inverse_root = _inverse_root_of_diagonal if scatter.ndim == 1 else _inverse_root
    multiply, multiply_transposed = inverse_root(scatter, gamma, rounding)

    # The loadings are M times the left singular vectors of Mᵀ `cross_sums`, and the eigenvalues are
    # its squared singular values. Drop components whose eigenvalue is only rounding error.
    vectors, values = spectral.left_singular_pairs(multiply_transposed(cross_sums))
    eigenvalues = values**2
    p = int(np.count_nonzero(eigenvalues > _SMALLEST * eigenvalues.max(initial=0.0)))
    return LoadingsAndEigenvalues(spectral.with_fixed_signs(multiply(vectors[:, :p])), eigenvalues[:p])


def condition_number(scatter: np.ndarray, gamma: float = 0.0, rounding: Rounding | None = None) -> float:
    """Return the condition number of `scatter` plus a ridge.

    The condition number is the largest eigenvalue of the sum divided by the smallest. Eigenvalues
    of `scatter` that are only rounding errors are left out. Costs O(d³) for d features.

    scatter: (features, features), scatter of the centred rows.
    gamma: ridge, which is added to each eigenvalue.
    rounding: rounding errors of `scatter`, which come from subtracting the rows' mean. None if the
        mean is about zero, because subtracting it causes no error.
    """
    # `eigenvalue_floor` is the size up to which an eigenvalue is an error of subtracting the mean.
    eigenvalue_floor = 0.0
    if rounding is not None:
        eigenvalue_floor = rounding.eigenvalue_floor(np.diagonal(scatter))
    # The eigenvalues are in ascending order. A tiny share of the largest is rounding error, too.
    values = np.linalg.eigvalsh(scatter)
    nonzero = values[values > spectral.eigenvalue_rounding_limit(values, eigenvalue_floor)]
    if len(nonzero):
        return float((nonzero[-1] + gamma) / (nonzero[0] + gamma))
    # Without a nonzero eigenvalue, only the ridge is left, whose eigenvalues are all equal.
    return 1.0


MultiplyColumns = Callable[[np.ndarray], np.ndarray]
"""Function that multiplies a matrix by an array of columns, and returns the product.

The columns may be overwritten.
"""


class InverseRoot(NamedTuple):
    """Inverse root M of a scatter plus a ridge.

    M Mᵀ is the inverse of the scatter plus the ridge, or the pseudo-inverse if the sum is singular.
    M then has fewer columns than rows. M is given by two functions, not as an array.

    Attributes
    ----------
    multiply : function
        Returns M @ columns.
    multiply_transposed : function
        Returns Mᵀ @ columns.
    """

    multiply: MultiplyColumns
    multiply_transposed: MultiplyColumns


def _inverse_root_of_diagonal(diagonal: np.ndarray, gamma: float, rounding: Rounding) -> InverseRoot:
    """Return an inverse root M of a diagonal scatter plus a ridge.

    M is the diagonal matrix (diagonal + gamma)^(−1/2), with zeros for features that do not vary.

    diagonal: (features,), diagonal of the scatter of the centred rows.
    gamma: ridge.
    rounding: rounding errors of `diagonal`. They decide which features do not vary.
    """
    varying_columns = rounding.varying_columns(diagonal)
    root = np.zeros((len(diagonal), 1))
    root[varying_columns, 0] = 1.0 / np.sqrt(diagonal[varying_columns] + gamma)

    def multiply_in_place(columns: np.ndarray) -> np.ndarray:
        """Multiply columns (features, m) by M in place, and return them.

        M is the inverse root of the diagonal scatter plus the ridge. It is diagonal, so M = Mᵀ.
        """
        columns *= root
        return columns

    return InverseRoot(multiply_in_place, multiply_in_place)


def _inverse_root(scatter: np.ndarray, gamma: float, rounding: Rounding) -> InverseRoot:
    """Return an inverse root M of a scatter plus a ridge.

    M Mᵀ is the inverse of `scatter` plus the ridge `gamma`, on the range of `scatter`.

    scatter: (features, features), scatter of the centred rows.
    gamma: ridge.
    rounding: rounding errors of `scatter`. They decide which features do not vary.
    """
    # `part` is the scatter of the features that vary. It is `scatter` itself if all features vary.
    varying_columns, part, rounding = scatter_of_varying_features(scatter, rounding)
    # The Cholesky factor is faster. It is not used (None) if rounding errors could spoil it.
    root = _inverse_root_by_cholesky(part, gamma, rounding) or _inverse_root_by_eigenpairs(part, gamma, rounding)
    if part is scatter:
        return root

    # `root` multiplies by a matrix with rows only for the features that vary.
    # The function below also returns rows of zeros for the features that do not vary.
    def multiply_by_root(columns: np.ndarray) -> np.ndarray:
        """Return M @ columns for the inverse root M of the scatter.

        M Mᵀ is the inverse of the scatter plus the ridge. M @ columns (features, m) has rows of
        zeros for features that do not vary.
        """
        out = np.zeros((len(scatter), columns.shape[1]))
        out[varying_columns] = root.multiply(columns)
        return out

    return InverseRoot(multiply_by_root, lambda b: root.multiply_transposed(b[varying_columns]))


def scatter_of_varying_features(scatter: np.ndarray, rounding: Rounding) -> tuple[np.ndarray, np.ndarray, Rounding]:
    """Return the scatter of the features that vary.

    Returns three values:

    - Indices (v,) of the v features that vary.
    - Scatter (v, v) of these features.
    - Rounding errors of this scatter.

    A feature does not vary if its scatter is only rounding error. If all features vary, the result
    has `scatter` itself and not a copy.

    scatter: (features, features), scatter of the centred rows.
    rounding: rounding errors of `scatter`.
    """
    varying_columns = np.flatnonzero(rounding.varying_columns(np.diagonal(scatter)))
    if len(varying_columns) == len(scatter):
        part = scatter
    else:
        part = scatter[np.ix_(varying_columns, varying_columns)]
    return varying_columns, part, rounding._replace(shift=rounding.shift[varying_columns])


def _inverse_root_by_eigenpairs(scatter: np.ndarray, gamma: float, rounding: Rounding) -> InverseRoot:
    """Return an InverseRoot M from the scatter's eigenpairs.

    Let V (features, r) be the eigenvectors of `scatter`, and e (r,) their eigenvalues, without
    those that are only rounding error. Then M (features, r) is V with column i divided by
    √(e_i + gamma). So M Mᵀ is the inverse of `scatter` plus the ridge `gamma` on the span of V.

    scatter: (features, features), scatter of the centred rows.
    gamma: ridge.
    rounding: rounding errors of `scatter`.
    """
    floor = rounding.eigenvalue_floor(np.diagonal(scatter))
    values, vectors = spectral.nonzero_semidefinite_eigenpairs(scatter, floor)
    M = vectors / np.sqrt(values + gamma)
    return InverseRoot(lambda p: M @ p, lambda b: M.T @ b)


def _inverse_root_by_cholesky(scatter: np.ndarray, gamma: float, rounding: Rounding) -> InverseRoot | None:
    """Return an InverseRoot M from a Cholesky factor, or None.

    Let A be `scatter` plus the ridge `gamma` on the diagonal, D the diagonal matrix that scales A
    to unit diagonal, and L the Cholesky factor of D A D. Then M = D L⁻ᵀ, and M Mᵀ is the inverse
    of A.

    M is wrong if the scatter is only rounding error in some direction. So the result is None
    unless one of these conditions holds:

    * The correlation matrix of the features certainly has full rank.
    * D A D is so well conditioned that rounding errors of the scatter contribute less than 1e-10.

    scatter: (features, features), scatter of the centred rows.
    gamma: ridge.
    rounding: rounding errors of `scatter`.
    """
    # Without features, there is no matrix to factorise.
    diagonal = np.diagonal(scatter)
    d = len(scatter)
    if d == 0:
        return None

    # `factor` is L, and `reciprocal` is the reciprocal condition number of D A D.
    factor, reciprocal = _scaled_cholesky(scatter, gamma)
    if factor is None:
        return None

    # `noise` is the relative rounding error of the correlation matrix (scaled scatter, no ridge).
    # It comes from rows far from zero (`shift` is √N times their mean) and from unlearning
    # (`lost`). A reciprocal condition number above `certain` means full rank in spite of rounding
    # errors. The factor 1,000 is a safety margin.
    noise = EPS * float((rounding.shift / np.sqrt(diagonal)).max()) + rounding.lost
    certain = 1e3 * max(d * EPS, noise)
    is_well_conditioned = reciprocal >= WELL_CONDITIONED + certain
    if not is_well_conditioned:
        # Test the rank of the correlation matrix itself, which has no ridge.
        if gamma:
            _, reciprocal = _scaled_cholesky(scatter, 0.0)
        has_full_rank = reciprocal > certain
        if not has_full_rank:
            return None

    # `scale` is the diagonal of D. `solve` multiplies by L⁻¹, and by L⁻ᵀ with trans="T".
    scale = 1.0 / np.sqrt(diagonal + gamma)[:, None]
    solve = partial(solve_triangular, factor, lower=True, check_finite=False)
    return InverseRoot(lambda p: scale * solve(p, trans="T"), lambda b: solve(scale * b))


def _scaled_cholesky(scatter: np.ndarray, gamma: float) -> tuple[np.ndarray | None, float]:
    """Return the Cholesky factor and condition of a scaled scatter.

    The matrix `scatter` plus the ridge `gamma` on the diagonal is scaled to unit diagonal. Returns
    the lower triangular Cholesky factor (features, features) of the scaled matrix, and its
    reciprocal condition number as estimated by LAPACK. If the factorisation fails, the results are
    None and 0.

    scatter: (features, features), scatter of the centred rows.
    gamma: ridge.
    """
    # Multiply by `scale` on both sides. The ridge is only on the diagonal, where it is not added:
    # (scatter_ii + gamma) · scale_i² is 1, so the diagonal is set to 1.
    scale = 1.0 / np.sqrt(np.diagonal(scatter) + gamma)
    matrix = scatter * scale[:, None] * scale
    matrix[np.diag_indices_from(matrix)] = 1.0

    # Compute the norm first, because the Cholesky factorisation overwrites the matrix.
    norm = float(np.abs(matrix).sum(axis=0).max())
    try:
        factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None, 0.0
    return factor, float(dpocon(factor, norm, uplo="L")[0])
