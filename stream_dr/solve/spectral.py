"""Symmetric eigenproblems and thin singular value decompositions.

All arrays are float64. The functions share three conventions:

* Order: the largest values come first.
* Signs: `with_fixed_signs` makes the entry of largest absolute value in each column positive.
* Rank: for a matrix of order m, an eigenvalue up to m · eps times the largest eigenvalue is
  treated as zero. Such an eigenvalue is only a rounding error of the sums from which the matrix
  was computed.

numpy's linear algebra functions release the GIL, and return the same bits for the same input.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr, solve_triangular

from stream_dr.solve.singular import thin_svd

EPS = float(np.finfo(np.float64).eps)
"""Distance from 1 to the next float64."""


class Eigenpairs(NamedTuple):
    """Eigenvalues and eigenvectors of a symmetric matrix.

    The matrix is (m, m), the eigenvalues are (r,) and the eigenvectors (m, r). r may be smaller
    than m, because eigenvalues of about zero are left out.
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
    """Loadings (features, p) and eigenvalues (p,) of p components."""

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
    values, vectors = values[::-1], vectors[:, ::-1]
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
    pairs = _left_singular_pairs_by_gram(matrix) if m > 8 * k and m * k * k > 10_000_000 else None
    vectors, values = pairs or thin_svd(matrix)[:2]

    # Drop the singular values that are only rounding error.
    r = int(np.count_nonzero(values > max(m, k) * EPS * values[:1].sum()))
    return LeftSingularPairs(vectors[:, :r], values[:r])


def _left_singular_pairs_by_gram(matrix: np.ndarray) -> LeftSingularPairs | None:
    """Return left singular vectors and singular values, or None.

    For r nonzero singular values of the matrix (m, k), the vectors are (m, r) and the values (r,).
    They are computed from the inner products (k, k) of the columns, whose eigenvalues are the
    squares of the singular values. So small singular values lose digits. The result is None in two
    cases:

    * A singular value is between 3e-7 and 1e-5 of the largest, so it has lost too many digits.
      Smaller singular values count as zero and are dropped.
    * All singular values are zero.
    """
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    nonzero = np.flatnonzero(values > 1e-10 * values[-1])[::-1]
    if not len(nonzero) or np.count_nonzero(values > 1e-13 * values[-1]) > len(nonzero):
        return None

    roots = np.sqrt(values[nonzero])
    left = matrix @ (vectors[:, nonzero] / roots)
    if roots[-1] > 0.1 * roots[0]:
        return LeftSingularPairs(left, roots)

    # Small singular values have lost digits, so the vectors are only nearly orthogonal.
    # Correct them by their own inner products, in place because the array may be large.
    lower = np.linalg.cholesky(left.T @ left)
    u, s, _ = thin_svd(lower.T * roots)
    correction = solve_triangular(lower, u, lower=True, trans="T", check_finite=False)
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
    values, vectors = values[::-1], vectors[:, ::-1]
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
    # `equal` is True for each eigenvalue that equals the next eigenvalue.
    gap = np.abs(np.diff(eigenvalues))
    equal = gap <= np.maximum(1e-9 * np.abs(eigenvalues[:-1]), 100 * EPS * np.abs(eigenvalues[:1]).sum())
    if not equal.any():
        return loadings

    # Rotate each group of components with equal eigenvalues.
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

    # numpy reduces short rows slowly, so several rows are first joined into one long row.
    together = min(rows, max(1, 256 // columns))
    whole = rows // together * together
    long = extreme.reduce(array[:whole].reshape(-1, together * columns), axis=0).reshape(together, columns)
    return np.asarray(extreme.reduce(np.concatenate([long, array[whole:]]), axis=0))
