"""Decompositions of matrices, and bounds on their rounding errors.

All arrays are float64. The functions share three conventions:

* Order: the largest values come first.
* Signs: `with_fixed_signs` makes the entry of largest absolute value in each column positive.
* Rank: for a matrix of order m, an eigenvalue up to m · eps times the largest eigenvalue is
  treated as zero. Such an eigenvalue is only a rounding error of the sums from which the matrix
  was computed.

numpy's linear algebra functions release the GIL, and return the same bits for the same input.

LAPACK's singular value decomposition runs forever for some matrices that contain an infinity. Sums
of very large numbers may overflow to infinity, so every matrix is checked first.

Thin QR is for matrices with many more rows than columns. The method is CholeskyQR2 (Fukaya,
Nakatsukasa, Yanagisawa, Yamamoto 2014). For a matrix M (m, n), the Cholesky factor R of the Gram
matrix MᵀM gives Q = M R⁻¹. A second round, with Q instead of M, makes Q orthonormal to eps if the
condition number of M is below 1e8. The matrix products of CholeskyQR2 take a fraction of the time
of Householder's reflections. Householder's method is used only if the columns are (nearly)
dependent.

Conjugate gradient orthonormalises two tall matrices in each step. With Householder's method, the
orthonormalisation took longer than reading the rows of a stream of 20,000 rows. The matrices are
nearly always well conditioned.

`Rounding` bounds the rounding errors of centred sums. A centred sum is a sum over rows from which
the mean was subtracted. The farther the rows are from zero, the larger is the rounding error of
this subtraction (`Rounding.shift`). Unlearning rows subtracts large sums, which causes a further
error (`Rounding.lost`).

A number that is smaller than its rounding error is treated as zero, so that no component is
computed from rounding errors [mathematics §3, rules 1 and 3]. Three kinds of numbers are compared
with their rounding errors:

* the scatter of a column (the column counts as constant if its scatter is only rounding error),
* an eigenvalue of the scatter,
* a cross sum (the sum over the rows of a feature times a target).
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, qr, solve_triangular

from stream_dr.errors import NotFinite

EPS = float(np.finfo(np.float64).eps)
"""Distance from 1 to the next float64."""

SUM_ERROR = 1e-12
"""Relative rounding error of sums over very many rows."""


class Eigenpairs(NamedTuple):
    """Eigenvalues and eigenvectors of a symmetric matrix.

    The matrix is (m, m), the eigenvalues are (r,), largest first, and the eigenvectors (m, r).
    Column i is the eigenvector of eigenvalue i. r may be smaller than m, because eigenvalues of
    about zero are left out.
    """

    values: np.ndarray
    vectors: np.ndarray


class LeftSingularPairs(NamedTuple):
    """Left singular vectors and singular values of a matrix.

    The matrix is (m, k), the vectors are (m, r) and the values (r,). r may be smaller than m and
    k, because values that are only rounding error are left out.
    """

    vectors: np.ndarray
    values: np.ndarray


class LoadingsAndEigenvalues(NamedTuple):
    """Loadings (features, p) and eigenvalues (p,) of p components.

    Column i of the loadings is component i. The largest eigenvalue comes first.
    """

    loadings: np.ndarray
    eigenvalues: np.ndarray


def nonzero_semidefinite_eigenpairs(matrix: np.ndarray, rounding_floor: float = 0.0) -> Eigenpairs:
    """Return the nonzero eigenpairs of a positive semidefinite matrix.

    Returns r eigenvalues (r,), largest first, and their eigenvectors (m, r). Costs O(m³).

    matrix: (m, m).
    rounding_floor: size up to which eigenvalues are dropped as rounding errors. Eigenvalues up to
        m · eps times the largest eigenvalue are always dropped.
    """
    values, vectors = np.linalg.eigh(matrix)
    values = values[::-1]
    vectors = vectors[:, ::-1]
    r = int(np.count_nonzero(values > eigenvalue_rounding_limit(values, rounding_floor)))
    return Eigenpairs(values[:r], vectors[:, :r])


def eigenvalue_rounding_limit(eigenvalues: np.ndarray, smallest_limit: float = 0.0) -> float:
    """Return the size up to which eigenvalues are rounding error.

    For m eigenvalues, the size is m · 2.2e-16 times the largest eigenvalue, or `smallest_limit` if
    that is larger.

    eigenvalues: all m eigenvalues of a positive semidefinite matrix (m, m).
    smallest_limit: smallest size to return.
    """
    return max(smallest_limit, len(eigenvalues) * EPS * max(float(eigenvalues.max(initial=0.0)), 0.0))


def left_singular_pairs(matrix: np.ndarray) -> LeftSingularPairs:
    """Return left singular vectors and singular values of a matrix.

    For a matrix (m, k), the r vectors are (m, r), and the values (r,). The largest singular value
    comes first. Singular values that are only rounding error are dropped, so r ≤ min(m, k). Costs
    O(m k min(m, k)).

    matrix: (m, k).
    """
    m, k = matrix.shape
    if min(m, k) == 0:
        return LeftSingularPairs(np.zeros((m, 0)), np.zeros(0))

    # If a large matrix has many more rows than columns, first try its columns' inner products.
    # The method with inner products is faster, but returns None if it is not accurate enough.
    # For smaller matrices, the time of both methods is short.
    pairs = None
    if m > 8 * k and m * k * k > 10_000_000:
        pairs = _singular_pairs_by_gram(matrix)
    vectors, values = pairs or thin_svd(matrix)[:2]

    # Drop the singular values that are only rounding error.
    smallest = max(m, k) * EPS * values[0]
    r = int(np.count_nonzero(values > smallest))
    return LeftSingularPairs(vectors[:, :r], values[:r])


def _singular_pairs_by_gram(matrix: np.ndarray) -> LeftSingularPairs | None:
    """Return left singular vectors and singular values, or None.

    For r nonzero singular values of the matrix (m, k), the vectors are (m, r) and the values (r,).
    They are computed from the inner products (k, k) of the columns, whose eigenvalues are the
    squares of the singular values. So small singular values lose digits. The result is None in two
    cases:

    * A singular value is between 3e-7 and 1e-5 of the largest, so it has lost too many digits.
      Smaller singular values count as zero and are dropped.
    * All singular values are zero.
    """
    # `values` are squared singular values, so their limits are squares: 1e-10 = (1e-5)², and
    # 1e-13 = (3e-7)². The result is None if a value is between the limits.
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    nonzero = np.flatnonzero(values > 1e-10 * values[-1])[::-1]
    if not len(nonzero) or np.count_nonzero(values > 1e-13 * values[-1]) > len(nonzero):
        return None

    # If the singular values (`roots`) are of similar size, they have lost hardly any digits.
    roots = np.sqrt(values[nonzero])
    left = matrix @ (vectors[:, nonzero] / roots)
    if roots[-1] > 0.1 * roots[0]:
        return LeftSingularPairs(left, roots)

    return _correct_left_pairs(left, roots)


def _correct_left_pairs(left: np.ndarray, roots: np.ndarray) -> LeftSingularPairs:
    """Return the singular pairs of left diag(roots) Vᵀ, for orthogonal V.

    left: (m, r), nearly orthogonal columns of length about 1. Overwritten.
    roots: (r,) estimates of the singular values.
    """
    # The inner products of `left` are L Lᵀ (`lower`), so left L⁻ᵀ is orthogonal.
    # The matrix is (left L⁻ᵀ) (Lᵀ diag(roots)) Vᵀ. The middle factor is u diag(s) vᵀ, so the
    # left singular vectors are left L⁻ᵀ u.
    lower = np.linalg.cholesky(left.T @ left)
    u, s, _ = thin_svd(lower.T * roots)
    correction = solve_triangular(lower, u, lower=True, trans="T", check_finite=False)
    # Multiply in place, 4,096 rows at a time, because the array may be large.
    for start in range(0, len(left), 4096):
        part = left[start : start + 4096]
        part[:] = part @ correction
    return LeftSingularPairs(left, s)


def nonzero_indefinite_eigenpairs(matrix: np.ndarray, rounding_floor: float = 0.0) -> Eigenpairs:
    """Return the nonzero eigenpairs of a symmetric indefinite matrix.

    Returns r eigenvalues (r,) and their eigenvectors (m, r). The largest eigenvalue comes first,
    and negative eigenvalues come last. Costs O(m³).

    matrix: (m, m).
    rounding_floor: absolute value up to which eigenvalues are dropped. Eigenvalues within rounding
        of zero are always dropped.
    """
    values, vectors = np.linalg.eigh(matrix)
    values = values[::-1]
    vectors = vectors[:, ::-1]
    keep = np.abs(values) > eigenvalue_rounding_limit(np.abs(values), rounding_floor)
    return Eigenpairs(values[keep], vectors[:, keep])


def rotate_equal_components(loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Rotate the loadings of equal eigenvalues to a unique basis.

    loadings: (features, components).
    eigenvalues: (components,).

    If several components have equal eigenvalues, any rotation of them is a solution, and rounding
    errors would decide which one a solver returns. For example, all eigenvalues of LDA are 1 if
    the classes are perfectly separated.

    For each group of components with equal eigenvalues, a QR decomposition with pivoting chooses
    some features. On the first of these features, only the first component of the group has a
    nonzero loading. On the second feature, only the first two components have nonzero loadings,
    and so on. These zeros determine the rotation.

    Two eigenvalues count as equal if their relative difference is at most 1e-9, or if their
    difference is at most the rounding error of the largest eigenvalue.
    """
    # `equal` is True for each eigenvalue that equals the next eigenvalue. The largest eigenvalue is
    # `sizes[:1].sum()`, which is 0 if there are none.
    gap = np.abs(np.diff(eigenvalues))
    sizes = np.abs(eigenvalues)
    equal = gap <= np.maximum(1e-9 * sizes[:-1], 100 * EPS * sizes[:1].sum())
    if not equal.any():
        return loadings

    # Rotate each group of components with equal eigenvalues. A group ends before each bound.
    # The QR factorisation of a group's transposed loadings gives the rotation: loadings times
    # rotation is a transposed triangular matrix, up to the order of the features.
    out = loadings.copy()
    bounds = [0, *(np.flatnonzero(~equal) + 1).tolist(), len(eigenvalues)]
    for start, stop in pairwise(bounds):
        if stop - start > 1:
            rotation, _, _ = qr(loadings[:, start:stop].T, mode="economic", pivoting=True)
            out[:, start:stop] = loadings[:, start:stop] @ rotation
    return out


def with_fixed_signs(loadings: np.ndarray) -> np.ndarray:
    """Make each column's entry of largest absolute value positive.

    loadings: (features, components), which may be overwritten. The result is C-ordered.
    """
    loadings = np.ascontiguousarray(loadings)
    loadings *= np.where(largest_signed_entries(loadings) < 0, -1.0, 1.0)
    return loadings


def largest_signed_entries(loadings: np.ndarray) -> np.ndarray:
    """Return each column's entry of largest absolute value, signed.

    The result is (p,) for p columns. If several entries of a column have the largest absolute
    value, the first of them is returned. If there are no rows, 0 is returned for each column.

    loadings: (features, p), p columns.
    """
    if len(loadings) == 0:
        return np.zeros(loadings.shape[1])

    # The entry of largest absolute value is the minimum or the maximum of its column.
    # If both are equally far from zero, search for the first entry of this absolute value.
    low = _column_extremes(np.minimum, loadings)
    high = _column_extremes(np.maximum, loadings)
    largest = np.where(high > -low, high, low)
    for j in np.flatnonzero(high == -low):
        largest[j] = loadings[np.abs(loadings[:, j]).argmax(), j]
    return largest


def _column_extremes(extreme: np.ufunc, array: np.ndarray) -> np.ndarray:
    """Return the minimum or maximum (columns,) of each column.

    extreme: np.minimum or np.maximum.
    array: (rows, columns), with one row or more.
    """
    rows, columns = array.shape
    if not array.flags.c_contiguous or not columns:
        return np.asarray(extreme.reduce(array, axis=0))

    # numpy reduces short rows slowly, so several rows are joined into one of about 256 entries.
    # For example, 7 rows of 2 columns, joined by 3, are 2 long rows (2, 6) and 1 row left over.
    # The extremes (6,) of the long rows are 3 rows (3, 2), which are compared with this row.
    joined = min(rows, max(1, 256 // columns))
    in_long_rows = rows // joined * joined
    long_rows = array[:in_long_rows].reshape(-1, joined * columns)
    long_extremes = extreme.reduce(long_rows, axis=0)
    candidates = np.concatenate([long_extremes.reshape(joined, columns), array[in_long_rows:]])
    return np.asarray(extreme.reduce(candidates, axis=0))


def thin_svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the thin singular value decomposition of a matrix.

    The matrix is (m, k). Returns the left singular vectors (m, r), the singular values (r,) and
    the right singular vectors (r, k), for r = min(m, k). The largest singular value comes first.

    Raises NotFinite if a value of the matrix is not finite.
    """
    _check_finite(matrix)
    return np.linalg.svd(matrix, full_matrices=False)


def singular_values(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix's singular values, largest first.

    The matrix is (m, k). Raises NotFinite if a value of the matrix is not finite.
    """
    _check_finite(matrix)
    return np.linalg.svd(matrix, compute_uv=False)


def _check_finite(matrix: np.ndarray) -> None:
    """Raise NotFinite if a value of the matrix is not finite."""
    if not np.isfinite(matrix).all():
        raise NotFinite("sums of the rows are so large that they overflow: there is no solution. Scale the rows.")


SMALLEST_SAFE_DIAGONAL = 1e-6
"""Smallest diagonal entry of a Cholesky factor with which CholeskyQR2 is used.

The columns are scaled to length 1 before the Cholesky factor is computed. If a diagonal entry is
smaller than this number, the columns are nearly dependent, and Householder's method is used.
"""

ONE_ROUND_DIAGONAL = 0.3
"""Smallest diagonal entry of a Cholesky factor with which one factorisation is enough.

The columns are scaled to length 1 first. If all diagonal entries are larger than this number, Q is
orthonormal to about 1e-14 after the first factorisation, and the second is skipped.
"""


def tall_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the thin QR factorisation of a tall matrix.

    Returns Q (m, n) with orthonormal columns and an upper triangular R (n, n), with Q R = matrix.

    matrix: (m, n), m ≥ n.
    """
    # `smallest` is from 0 (dependent columns) to 1 (orthogonal columns). It is the smallest
    # diagonal entry of R, if columns are first scaled to length 1. Far from 0, one factorisation is
    # enough.
    first = _cholesky_qr(matrix)
    if first is None:
        return np.linalg.qr(matrix)
    Q, R, smallest = first
    if smallest > ONE_ROUND_DIAGONAL:
        return Q, R

    # Factorise Q again, because it is not orthonormal enough: matrix = Q R = (Q2 R2) R.
    second = _cholesky_qr(Q)
    if second is None:
        return np.linalg.qr(matrix)
    return second[0], second[1] @ R


def _cholesky_qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return a QR factorisation from one Cholesky factorisation, or None.

    Returns Q (m, n), R (n, n) and a number from 0 to 1. The number is small if the columns are
    nearly dependent. If they are too nearly dependent to be accurate, the result is None.

    The columns are scaled to length 1. Their inner products (n, n) have an upper triangular
    Cholesky factor. The number is its smallest diagonal entry. R is the factor times the columns'
    lengths.

    matrix: (m, n), m ≥ n.
    """
    # Without columns, or with a column of zeros, there is no R to divide by.
    gram = matrix.T @ matrix
    lengths = np.sqrt(np.diagonal(gram))
    if gram.size == 0 or not np.all(lengths > 0):
        return None

    # Divide the columns' inner products by their lengths, which gives those of columns of length 1.
    try:
        factor = cholesky(gram / lengths / lengths[:, None], check_finite=False)
    except np.linalg.LinAlgError:
        return None
    smallest = float(np.diagonal(factor).min())
    if smallest < SMALLEST_SAFE_DIAGONAL:
        return None

    # R is `factor` with its columns multiplied by the lengths, and Q is the matrix times R⁻¹.
    inverse = solve_triangular(factor, np.eye(len(factor)), check_finite=False) / lengths[:, None]
    return matrix @ inverse, factor * lengths, smallest


class Rounding(NamedTuple):
    """Sizes of rounding errors in sums over N centred rows.

    Centred rows are rows from which the mean was subtracted.

    Attributes
    ----------
    shift : (features,) float64
        √N·|x̄|, where x̄ (features,) is the mean of the N rows. It measures how far the rows are
        from zero.
    lost : float
        Relative error of the scatter caused by unlearning rows. 0 if no row was unlearned.
    cancelled : float
        Factor by which unlearning rows increased the error of the cross sums of features and
        targets. The factor is √(number of rows before unlearning / number of rows now).
    """

    shift: np.ndarray
    lost: float = 0.0
    cancelled: float = 1.0

    def varying_columns(self, diagonal: np.ndarray) -> np.ndarray:
        """Return a mask (features,), True for features that vary.

        A feature does not vary if its scatter is only rounding error.

        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # Centring causes an error of EPS · shift in √scatter. The factor 8 is a safety margin.
        return np.asarray(diagonal > (8 * EPS * self.shift) ** 2)

    def eigenvalue_floor(self, diagonal: np.ndarray) -> float:
        """Return the size up to which eigenvalues are rounding error.

        The eigenvalues are those of the scatter (features, features), the matrix of summed
        products of the centred features. The size is large if rows were unlearned, or if the rows'
        distance from zero is large compared with their standard deviation.

        diagonal: (features,), diagonal of the scatter.
        """
        # The result is the sum of the error of centring the rows and the error of unlearning rows.
        total = float(diagonal.sum())
        shift = float(np.linalg.norm(self.shift))
        return EPS * shift * float(np.sqrt(total)) + self.lost * total

    def cross_sum_floor(self, target_norm: float, diagonal: np.ndarray) -> float:
        """Return the norm below which cross sums are rounding error.

        Cross sums are products of centred features and targets, summed over the rows. If all rows
        are of one class, for example, they are nothing but rounding error.

        target_norm: Frobenius norm of the targets before centring.
        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # `spread` is the features' deviation from their means. `offset` is √N · |mean| of the N
        # rows, their distance from zero. SUM_ERROR is the relative error of long sums, 8 a safety
        # margin.
        spread = float(np.sqrt(diagonal.sum()))
        offset = float(np.abs(self.shift).max(initial=0.0))
        # `lost` is the share of the scatter that is rounding error of unlearned rows. So the
        # scatter was lost / EPS times as large with these rows, and the spread √(lost / EPS) times.
        # EPS of the former spread is an error that remains.
        relative_error = SUM_ERROR + 8 * np.sqrt(EPS * self.lost)
        scale = relative_error * spread + 8 * EPS * offset
        # With the unlearned rows, the norm of the targets was `cancelled` (≥ 1) times as large.
        return float(scale * self.cancelled * target_norm)

    def relative_cross_noise(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the rounding error (features,) of each feature's cross sums.

        A cross sum is the sum over all rows of a feature times a target. The errors are for
        targets of Frobenius norm 1. For other targets, the caller multiplies them by the targets'
        norm.

        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # A feature's own error grows with its deviations from its mean, as if all the features that
        # vary had the same deviations. It also grows with its distance from zero, `shift` =
        # √N·|mean| of N rows. SUM_ERROR is the relative error of long sums, 8 a safety margin.
        varying = np.count_nonzero(self.varying_columns(diagonal))
        own = SUM_ERROR * np.sqrt(varying * diagonal) + 8 * EPS * np.abs(self.shift)
        # All features share the error of unlearned rows. `lost` is the share of the scatter that is
        # rounding error, so the scatter was lost / EPS times as large with these rows. The error is
        # EPS times the root of the former scatter.
        shared = 8 * np.sqrt(EPS * self.lost * float(diagonal.sum()))
        # With the unlearned rows, the norm of the targets was `cancelled` (≥ 1) times as large.
        return np.asarray(self.cancelled * (own + shared))

    def clear_noisy_features(self, cross_sums: np.ndarray, target_norm: float, diagonal: np.ndarray) -> np.ndarray:
        """Set cross sums that are only rounding error to zero.

        Returns the changed cross sums.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets.
        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # Compare the cross sums of each feature with the feature's own rounding error.
        # One error for all features could exceed the true sums of a feature with small values.
        # `shows` is True for a feature whose cross sums are more than rounding error.
        shows = np.linalg.norm(cross_sums, axis=1) > self.relative_cross_noise(diagonal) * target_norm
        if shows.all():
            return cross_sums
        return np.where(shows[:, None], cross_sums, 0.0)

    def significant_cross_sum_combinations(
        self, cross_sums: np.ndarray, target_norm: float, diagonal: np.ndarray
    ) -> np.ndarray:
        """Return cross sums without target combinations of only rounding error.

        The k targets are replaced by k orthogonal linear combinations of them. A combination is
        dropped if its cross sums with all features are only rounding error. The result (features,
        r) has the cross sums of the features and the r combinations that are left. If nothing is
        dropped, `cross_sums` is returned unchanged.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets.
        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # Divide the cross sums of each feature by the feature's rounding error.
        # Without this division, features of large values would hide features of small values.
        varying_columns = self.varying_columns(diagonal)
        cross_sum_noise = self.relative_cross_noise(diagonal)[varying_columns]
        _, values, combinations = thin_svd(cross_sums[varying_columns] / cross_sum_noise[:, None])

        # Row i of `combinations` (r, k) is combination i of the targets, and value i its size. The
        # noise is that of targets of norm 1, so a combination of only rounding error has at most
        # the size `target_norm`. The second limit is the error of the decomposition itself.
        svd_error = EPS * max(cross_sums.shape) * float(values.max(initial=0.0))
        real = values > max(target_norm, svd_error)
        if real.sum() == cross_sums.shape[1]:
            return cross_sums
        return np.asarray(cross_sums @ combinations[real].T)


def zero_rounding(n_features: int) -> Rounding:
    """Return a Rounding without errors.

    Rows whose mean is zero have such a Rounding. Subtracting a mean of zero from the rows causes
    no rounding error.

    n_features: number of features.
    """
    return Rounding(np.zeros(n_features))
