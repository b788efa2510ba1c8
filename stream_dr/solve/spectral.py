"""Symmetric eigenproblems and thin singular value decompositions, with one rank cut and one convention for signs.

Everything is float64, largest first. An eigenvalue is kept when it is above `order · eps` of the largest: below that it
is the rounding of the sums it was computed from.

Why this way: numpy's drivers release the GIL and give the same bits for the same input; what differs between libraries
(order, sign, what counts as zero) is fixed here once, so no solver decides it again.
"""

from itertools import pairwise

import numpy as np
from scipy.linalg import qr, solve_triangular

from stream_dr.solve.orientation import largest_entries
from stream_dr.solve.singular import singular

EPS = float(np.finfo(np.float64).eps)


def symmetric(matrix: np.ndarray, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of a positive semidefinite matrix (m, m) above the rank cut: values (r,), vectors (m, r). O(m³).

    floor: eigenvalues at or below it are rounding too, whatever the largest is.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    r = int(np.count_nonzero(values > rank_cut(values, floor)))
    return values[:r], vectors[:, :r]


def rank_cut(values: np.ndarray, floor: float = 0.0) -> float:
    """Where eigenvalues (m,) of a positive semidefinite (m, m) matrix are rounding and no more [mathematics §3, rule 1]."""
    return max(floor, len(values) * EPS * max(float(values.max(initial=0.0)), 0.0))


def left_singular(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left singular vectors (m, r) and singular values (r,) of (m, k), r ≤ min(m, k), above the rank cut.

    O(m k min(m, k)). A large tall matrix goes through its Gram matrix (k, k), which is faster than a QR, where its rank
    is plain to see there; otherwise LAPACK's factorisation, which squares neither side.
    """
    m, k = matrix.shape
    if min(m, k) == 0:
        return np.zeros((m, 0)), np.zeros(0)
    found = _by_gram(matrix) if m > 8 * k and m * k * k > 10_000_000 else None
    if found is None:
        vectors, values, _ = singular(matrix)
        found = vectors, values
    vectors, values = found
    r = int(np.count_nonzero(values > max(m, k) * EPS * values[:1].sum()))
    return vectors[:, :r], values[:r]


def _by_gram(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The same as U = Q u, M = Q R by two Gram steps (CholeskyQR2: orthogonal to 1e-15), R = u s vᵀ. O(4 m k²).

    None where a singular value lies below 1e-5 of the largest and is not rounding of zero: squared, it would lose digits.
    """
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    kept = values > 1e-10 * values[-1]
    if not kept.any() or (~kept & (values > 1e-13 * values[-1])).any():
        return None
    roots = np.sqrt(values[kept])
    first = matrix @ (vectors[:, kept] / roots)
    lower = np.linalg.cholesky(first.T @ first)
    u, s, _ = singular(lower.T * roots)
    return first @ solve_triangular(lower, u, lower=True, trans="T", check_finite=False), s


def algebraic(matrix: np.ndarray, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of a symmetric indefinite matrix (m, m), by algebraic value, without those that are rounding. O(m³).

    floor: eigenvalues of at most this size are rounding too.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = np.abs(values) > rank_cut(np.abs(values), floor)
    return values[keep], vectors[:, keep]


def canonical(loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Loadings (features, components) with every set of equal eigenvalues (components,) turned to a basis of its own.

    In an eigenspace of several dimensions any basis is as good, and which one comes out is decided by rounding (LDA of
    perfectly separated classes has only eigenvalues 1). Here the first vector of such a set is the one that carries all of
    the space's largest row, the next all that is left of the next largest, and so on: a pivoted QR, O(d m²) for m equal
    eigenvalues. Equal: closer than 1e-9 of themselves, or than rounding of the largest.
    """
    gap = np.abs(np.diff(eigenvalues))
    equal = gap <= np.maximum(1e-9 * np.abs(eigenvalues[:-1]), 100 * EPS * np.abs(eigenvalues[:1]).sum())
    if not equal.any():
        return loadings
    out, bounds = loadings.copy(), [0, *(np.flatnonzero(~equal) + 1).tolist(), len(eigenvalues)]
    for start, stop in pairwise(bounds):
        if stop - start > 1:
            rotation, _, _ = qr(loadings[:, start:stop].T, mode="economic", pivoting=True)
            out[:, start:stop] = loadings[:, start:stop] @ rotation
    return out


def signed(loadings: np.ndarray) -> np.ndarray:
    """Loadings (features, components), C-ordered, each column's entry of largest size made positive."""
    if loadings.size == 0:
        return np.ascontiguousarray(loadings)
    return np.ascontiguousarray(loadings * np.where(largest_entries(loadings) < 0, -1.0, 1.0))
