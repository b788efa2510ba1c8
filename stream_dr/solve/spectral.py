"""Symmetric eigenproblems and thin singular value decompositions.

All share one rank cut and one convention for signs. Everything is float64, largest first. An
eigenvalue counts if it is above m · eps of the largest, for a matrix of order m. Below that it is
the rounding of the sums it was computed from.

numpy's drivers release the GIL and give the same bits for the same input. Order, sign and what
counts as zero differ between libraries, so they are fixed here and no solver decides them again.
"""

from itertools import pairwise

import numpy as np
from scipy.linalg import qr, solve_triangular

from stream_dr.solve.singular import thin_svd

EPS = float(np.finfo(np.float64).eps)
"""Distance from 1 to the next float64."""


def semidefinite_eigenpairs(matrix: np.ndarray, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs of a positive semidefinite matrix (m, m).

    Returns those above the rank cut: values (r,), largest first, and vectors (m, r). Eigenvalues
    at or below `floor` count as rounding too. Costs O(m³).
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    r = int(np.count_nonzero(values > rank_cut(values, floor)))
    return values[:r], vectors[:, :r]


def rank_cut(values: np.ndarray, floor: float = 0.0) -> float:
    """Return the size up to which eigenvalues are only rounding.

    values: all eigenvalues (m,) of a positive semidefinite matrix (m, m) [mathematics §3, rule
    1].
    """
    return max(floor, len(values) * EPS * max(float(values.max(initial=0.0)), 0.0))


def left_singular(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return left singular vectors (m, r) and singular values (r,).

    matrix: (m, k). Only values above the rank cut are returned, so r ≤ min(m, k). Costs O(m k
    min(m, k)).
    """
    m, k = matrix.shape
    if min(m, k) == 0:
        return np.zeros((m, 0)), np.zeros(0)

    # The Gram matrix (k, k) of a large tall matrix is faster than a QR, and good enough if its
    # rank is plain. LAPACK's factorisation of the matrix itself squares nothing.
    pairs = _left_singular_by_gram(matrix) if m > 8 * k and m * k * k > 10_000_000 else None
    if pairs is None:
        vectors, values, _ = thin_svd(matrix)
    else:
        vectors, values = pairs

    r = int(np.count_nonzero(values > max(m, k) * EPS * values[:1].sum()))
    return vectors[:, :r], values[:r]


def _left_singular_by_gram(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return left singular vectors and values from the Gram matrix.

    The matrix M is factorised as Q R by two Gram steps (CholeskyQR2), which leaves Q orthogonal
    to 1e-15. With R = u s vᵀ the vectors are Q u. Costs O(4 m k²).

    None if a singular value lies below 1e-5 of the largest and is not the rounding of zero.
    Squared, it would lose digits.
    """
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    nonzero = values > 1e-10 * values[-1]
    if not nonzero.any() or (~nonzero & (values > 1e-13 * values[-1])).any():
        return None

    roots = np.sqrt(values[nonzero])
    first = matrix @ (vectors[:, nonzero] / roots)
    lower = np.linalg.cholesky(first.T @ first)
    u, s, _ = thin_svd(lower.T * roots)
    return first @ solve_triangular(lower, u, lower=True, trans="T", check_finite=False), s


def indefinite_eigenpairs(matrix: np.ndarray, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs of a symmetric indefinite matrix (m, m).

    Returns values (r,), in descending algebraic order, and vectors (m, r). Eigenvalues within
    rounding of zero, and those of at most size `floor`, are dropped. Costs O(m³).
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = np.abs(values) > rank_cut(np.abs(values), floor)
    return values[keep], vectors[:, keep]


def canonical_basis(loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Turn the loadings of equal eigenvalues to a unique basis.

    loadings: (features, components). eigenvalues: (components,). In an eigenspace of several
    dimensions every basis is as good, and rounding decides which one a solver returns. LDA of
    perfectly separated classes, for example, has only eigenvalues 1.

    The basis is that of a pivoted QR. Its first vector carries all of the largest row of the
    space, the next one all that remains of the next largest, and so on. Costs O(d m²) for d
    features and m equal eigenvalues. Eigenvalues are equal if they differ by less than 1e-9 of
    themselves, or by less than the rounding of the largest.
    """
    gap = np.abs(np.diff(eigenvalues))
    equal = gap <= np.maximum(1e-9 * np.abs(eigenvalues[:-1]), 100 * EPS * np.abs(eigenvalues[:1]).sum())
    if not equal.any():
        return loadings

    out = loadings.copy()
    bounds = [0, *(np.flatnonzero(~equal) + 1).tolist(), len(eigenvalues)]
    for start, stop in pairwise(bounds):
        if stop - start > 1:
            rotation, _, _ = qr(loadings[:, start:stop].T, mode="economic", pivoting=True)
            out[:, start:stop] = loadings[:, start:stop] @ rotation
    return out


def with_fixed_signs(loadings: np.ndarray) -> np.ndarray:
    """Make the largest entry of each column of loadings positive.

    loadings: (features, components). The largest entry is the one of largest size. The result is
    C-ordered.
    """
    if loadings.size == 0:
        return np.ascontiguousarray(loadings)
    return np.ascontiguousarray(loadings * np.where(largest_entries(loadings) < 0, -1.0, 1.0))


def largest_entries(loadings: np.ndarray) -> np.ndarray:
    """Return the entry of largest size (p,) of each column of loadings (d, p).

    The first of several of the same size is taken. It is 0 if there are no rows. Costs two passes
    and no copy.
    """
    if len(loadings) == 0:
        return np.zeros(loadings.shape[1])
    low = _column_extremes(np.minimum, loadings)
    high = _column_extremes(np.maximum, loadings)
    largest = np.where(high > -low, high, low)
    for j in np.flatnonzero(high == -low):
        largest[j] = loadings[np.abs(loadings[:, j]).argmax(), j]
    return largest


def _column_extremes(extreme: np.ufunc, array: np.ndarray) -> np.ndarray:
    """Return the extreme (columns,) of each column of an array of one row or more."""
    rows, columns = array.shape
    if not array.flags.c_contiguous or not columns:
        return np.asarray(extreme.reduce(array, axis=0))

    # Several rows are first taken as one long row. numpy reduces row by row, and with few columns
    # it would spend nearly all of its time on starting rows.
    together = min(rows, max(1, 256 // columns))
    whole = rows // together * together
    long = extreme.reduce(array[:whole].reshape(-1, together * columns), axis=0).reshape(together, columns)
    return np.asarray(extreme.reduce(np.concatenate([long, array[whole:]]), axis=0))
