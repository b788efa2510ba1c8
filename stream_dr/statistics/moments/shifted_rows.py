"""shifted_rows: sparse rows made ready for an exact scatter without being densified.

A feature that is nonzero in half of a batch's weight or more is shifted by the mean of its nonzeros, which makes its
zeros entries; the others are left about zero. Either way |mean|/std of every column is then at most about 1, so sums
about zero of what results lose nothing, and it has at most twice the nonzeros.

Cost: O(nonzeros + d) to shift; nonzeros² / 2 additions a row to add its products.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.compiled import compiled


class Shifted(NamedTuple):
    """CSR (indptr, indices, values) of √w (x − shift); shift (d,), and the mean (d,) of x − shift."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    shift: np.ndarray
    rest: np.ndarray


def shifted_rows(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, total: float, nonzero: np.ndarray
) -> Shifted:
    """Rows in CSR of weights (rows,) summing to total > 0; adds to nonzero (d,) the rows of weight that are not 0 there."""
    shift, rest = np.zeros((2, len(nonzero)))
    columns = _shifts(indptr, indices, values, weights, total, shift, nonzero)
    room = len(values) + len(weights) * len(columns)
    out = (np.empty(len(weights) + 1, dtype=np.int64), np.empty(room, dtype=np.int32), np.empty(room))
    used = _shift(indptr, indices, values, weights, total, columns, shift, rest, *out)
    return Shifted(out[0], out[1][:used], out[2][:used], shift, rest)


@compiled()
def _shifts(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    total: float,
    shift: np.ndarray,
    nonzero: np.ndarray,
) -> np.ndarray:
    """Fills shift (d,), adds to nonzero (d,); the features that shift is nonzero for."""
    there = np.zeros(len(shift))
    for i in range(len(weights)):
        if weights[i] > 0.0:
            for e in range(indptr[i], indptr[i + 1]):
                v = np.float64(values[e])
                if v != 0.0:
                    j = indices[e]
                    nonzero[j] += 1.0
                    there[j] += weights[i]
                    shift[j] += (v - shift[j]) * (weights[i] / there[j])

    # Features nonzero in half of the weight or more keep their shift.
    columns = np.empty(len(shift), dtype=np.int64)
    used = 0
    for j in range(len(shift)):
        if there[j] >= 0.5 * total and shift[j] != 0.0:
            columns[used] = j
            used += 1
        else:
            shift[j] = 0.0
    return columns[:used].copy()


@compiled()
def _shift(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    total: float,
    columns: np.ndarray,
    shift: np.ndarray,
    rest: np.ndarray,
    out_indptr: np.ndarray,
    out_indices: np.ndarray,
    out_values: np.ndarray,
) -> int:
    """Writes the shifted rows and rest (d,); the number of entries. Shifted features come first in a row."""
    place = np.full(len(shift), -1)
    for t in range(len(columns)):
        place[columns[t]] = t
    used = 0
    out_indptr[0] = 0
    for i in range(len(weights)):
        if weights[i] > 0.0:
            first, root = used, np.sqrt(weights[i])
            for t in range(len(columns)):
                out_indices[used] = columns[t]
                out_values[used] = -shift[columns[t]]
                used += 1
            for e in range(indptr[i], indptr[i + 1]):
                v, j = np.float64(values[e]), indices[e]
                if place[j] >= 0:
                    out_values[first + place[j]] = v - shift[j]
                elif v != 0.0:
                    out_indices[used] = j
                    out_values[used] = v
                    used += 1

            # Weigh the row's entries and add them to the mean of what is left.
            for e in range(first, used):
                rest[out_indices[e]] += weights[i] * out_values[e]
                out_values[e] *= root
        out_indptr[i + 1] = used
    rest /= total
    return used


@compiled()
def add_products(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, scatter: np.ndarray) -> None:
    """Lower triangle of scatter (d, d) += Σ z zᵀ over CSR rows z."""
    for i in range(len(indptr) - 1):
        for s in range(indptr[i], indptr[i + 1]):
            a, v = indices[s], values[s]
            for t in range(indptr[i], indptr[i + 1]):
                if indices[t] <= a:
                    scatter[a, indices[t]] += v * values[t]
