"""Shifts of sparse rows that keep digits in product sums.

Sums of products lose digits for a feature whose mean is large compared with its standard
deviation. A sparse feature can have a large mean only if it is nonzero in many rows. So a feature
is shifted if the rows in which it is nonzero have at least half of the batch's weight. To shift a
feature means to subtract the mean of its nonzeros from all of its values. Its zeros then become
stored entries.

After the shift, |mean|/std of every column is at most about 1, and sums of products lose no
digits. The shifted rows have at most twice as many stored entries. A shift costs O(nonzeros + d)
for d features. Adding the products of a row costs nonzeros² / 2 additions.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.compiled import compiled


class Shifted(NamedTuple):
    """Weighted rows from which a vector, the shift, was subtracted.

    The rows are stored in CSR form. With x a row before the shift and w its weight, the stored row
    is √w (x − shift).

    Attributes
    ----------
    indptr : (rows + 1,) int64
        Row i has the entries indptr[i] to indptr[i + 1] − 1.
    indices : (entries,) int32
        Feature of each entry.
    values : (entries,) float64
        Value of each entry.
    shift : (features,) float64
        Number that was subtracted from each feature, often 0.
    rest : (features,) float64
        Weighted mean of x − shift over all rows x.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    shift: np.ndarray
    rest: np.ndarray


def shift_mostly_nonzero_features(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    total_weight: float,
    nonzero_counts_to_update: np.ndarray,
) -> Shifted:
    """Shift the features that are nonzero in most rows.

    To shift a feature means to subtract the mean of its nonzeros from all of its values. A feature
    is shifted if the rows in which it is nonzero have at least half of the total weight. Sums of
    products of the shifted rows then lose no digits. The shifted rows are multiplied by the square
    roots of their weights.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    weights: (rows,) float64.
    total_weight: sum of the weights, above 0.
    nonzero_counts_to_update: (features,), changed in place. To the entry of each feature is added
        the number of rows of weight above 0 in which the feature is not 0.
    """
    shift, rest = np.zeros((2, len(nonzero_counts_to_update)))
    columns = _write_shifts_and_return_shifted_features(
        indptr, indices, values, weights, total_weight, shift, nonzero_counts_to_update
    )
    room = len(values) + len(weights) * len(columns)
    out = (np.empty(len(weights) + 1, dtype=np.int64), np.empty(room, dtype=np.int32), np.empty(room))
    used = _write_shifted_rows(indptr, indices, values, weights, total_weight, columns, shift, rest, *out)
    return Shifted(out[0], out[1][:used], out[2][:used], shift, rest)


@compiled()
def _write_shifts_and_return_shifted_features(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    total_weight: float,
    shift: np.ndarray,
    nonzero_counts_to_update: np.ndarray,
) -> np.ndarray:
    """Write the shift of each feature.

    Returns the indices of the features whose shift is not 0. The shift of a feature is the number
    to subtract from its values. If the rows in which the feature is nonzero have at least half of
    the total weight, the shift is the mean of the feature's nonzeros. Otherwise it is 0.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    weights: (rows,) float64.
    total_weight: sum of the weights.
    shift: (features,), the output, zero before the call.
    nonzero_counts_to_update: (features,), changed in place. To the entry of each feature is added
        the number of rows of weight above 0 in which the feature is not 0.
    """
    # For each feature, compute the mean of its nonzeros (in `shift`).
    # Also compute the total weight of the rows in which the feature is not 0 (in `there`).
    there = np.zeros(len(shift))
    for i in range(len(weights)):
        if weights[i] > 0.0:
            for e in range(indptr[i], indptr[i + 1]):
                v = np.float64(values[e])
                if v != 0.0:
                    j = indices[e]
                    nonzero_counts_to_update[j] += 1.0
                    there[j] += weights[i]
                    shift[j] += (v - shift[j]) * (weights[i] / there[j])

    # Shift a feature only if the rows in which it is not 0 have at least half of all weight.
    columns = np.empty(len(shift), dtype=np.int64)
    used = 0
    for j in range(len(shift)):
        if there[j] >= 0.5 * total_weight and shift[j] != 0.0:
            columns[used] = j
            used += 1
        else:
            shift[j] = 0.0
    return columns[:used].copy()


@compiled()
def _write_shifted_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    total_weight: float,
    shifted_features: np.ndarray,
    shift: np.ndarray,
    out_remaining_mean: np.ndarray,
    out_indptr: np.ndarray,
    out_indices: np.ndarray,
    out_values: np.ndarray,
) -> int:
    """Write shifted CSR rows, times the roots of their weights.

    For each row x of weight w, √w (x − shift) is written. In each row of the output, the features
    with a nonzero shift come first. Returns the number of entries written.

    indptr: (rows + 1,), start of each CSR row x in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the rows x.
    weights: (rows,) float64 weights w.
    total_weight: sum of the weights.
    shifted_features: (shifted features,), indices of the features to shift.
    shift: (features,), number to subtract from each feature.
    out_remaining_mean: (features,), the weighted mean of x − shift. Zero before the call.
    out_indptr: (rows + 1,), an output.
    out_indices, out_values: outputs with room for all entries.
    """
    # place[j] is the position of feature j in `shifted_features`, or −1 if it is not among them.
    place = np.full(len(shift), -1)
    for t in range(len(shifted_features)):
        place[shifted_features[t]] = t

    used = 0
    out_indptr[0] = 0
    for i in range(len(weights)):
        if weights[i] > 0.0:
            # First write −shift, the shifted value of a zero, for each shifted feature.
            # Then replace the values that are not 0, and append the other features' nonzeros.
            first, root = used, np.sqrt(weights[i])
            for t in range(len(shifted_features)):
                out_indices[used] = shifted_features[t]
                out_values[used] = -shift[shifted_features[t]]
                used += 1
            for e in range(indptr[i], indptr[i + 1]):
                v, j = np.float64(values[e]), indices[e]
                if place[j] >= 0:
                    out_values[first + place[j]] = v - shift[j]
                elif v != 0.0:
                    out_indices[used] = j
                    out_values[used] = v
                    used += 1

            # Add the weighted shifted row to `out_remaining_mean`. Then multiply it by √weight.
            for e in range(first, used):
                out_remaining_mean[out_indices[e]] += weights[i] * out_values[e]
                out_values[e] *= root
        out_indptr[i + 1] = used
    out_remaining_mean /= total_weight
    return used


@compiled()
def add_sparse_products(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, lower_scatter: np.ndarray) -> None:
    """Add each CSR row's outer product to a matrix.

    Only the lower triangle of the matrix is changed.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    lower_scatter: (features, features), the matrix, changed in place.
    """
    for i in range(len(indptr) - 1):
        for s in range(indptr[i], indptr[i + 1]):
            a, v = indices[s], values[s]
            for t in range(indptr[i], indptr[i + 1]):
                if indices[t] <= a:
                    lower_scatter[a, indices[t]] += v * values[t]
