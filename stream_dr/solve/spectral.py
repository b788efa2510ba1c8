"""Symmetric eigenproblems and thin singular value decompositions, with one rank cut and one convention for signs.

Everything is float64, largest first. An eigenvalue is kept when it is above `order · eps` of the largest: below that it
is the rounding of the sums it was computed from.

Why this way: numpy's drivers release the GIL and give the same bits for the same input; what differs between libraries
(order, sign, what counts as zero) is fixed here once, so no solver decides it again.
"""

import numpy as np

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
    """Where eigenvalues (m,) of a positive semidefinite (m, m) matrix stop being more than rounding [MATH §3, rule 1]."""
    return max(floor, len(values) * EPS * max(float(values.max(initial=0.0)), 0.0))


def left_singular(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left singular vectors (m, r) and singular values (r,) of (m, k), r ≤ min(m, k), above the rank cut.

    O(m k min(m, k)): the factorisation starts from a QR of the longer side, so neither (m, m) nor (k, k) is squared.
    """
    if min(matrix.shape) == 0:
        return np.zeros((matrix.shape[0], 0)), np.zeros(0)
    vectors, values, _ = np.linalg.svd(matrix, full_matrices=False)
    r = int(np.count_nonzero(values > max(matrix.shape) * EPS * values[0]))
    return vectors[:, :r], values[:r]


def algebraic(matrix: np.ndarray, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Eigenpairs of a symmetric indefinite matrix (m, m), by algebraic value, without those that are rounding. O(m³).

    floor: eigenvalues of at most this size are rounding too.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = np.abs(values) > rank_cut(np.abs(values), floor)
    return values[keep], vectors[:, keep]


def signed(loadings: np.ndarray) -> np.ndarray:
    """Loadings (features, components), C-ordered, each column's entry of largest size made positive."""
    if loadings.size == 0:
        return np.ascontiguousarray(loadings)
    largest = loadings[np.abs(loadings).argmax(axis=0), np.arange(loadings.shape[1])]
    return np.ascontiguousarray(loadings * np.where(largest < 0, -1.0, 1.0))
