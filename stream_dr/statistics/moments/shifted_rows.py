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

import numpy as np
import scipy.sparse as sp

from stream_dr.compiled import compiled


def shift_mostly_nonzero_features(
    X: sp.csr_matrix, weights: np.ndarray, total_weight: float, nonzero_counts_to_update: np.ndarray
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return shifted rows, and the shift of each feature.

    To shift a feature means to subtract the mean of its nonzeros from all of its values. A feature
    is shifted if the rows in which it is nonzero have at least half of the total weight. Sums of
    products of the shifted rows then lose no digits. The shift of the other features is 0.

    X: (rows, columns), at most as many columns as features.
    weights: (rows,) float64.
    total_weight: sum of the weights, above 0.
    nonzero_counts_to_update: (features,), changed in place. To the entry of each feature is added
        the number of rows of weight above 0 in which the feature is not 0.
    """
    n_rows, n_features = X.shape[0], len(nonzero_counts_to_update)
    values = X.data.astype(np.float64)
    features = X.indices.astype(np.intp)
    entry_weights = np.repeat(weights, np.diff(X.indptr)) * (values != 0.0)
    nonzero_counts_to_update += np.bincount(features, entry_weights > 0.0, n_features)

    rows = sp.csr_matrix((values, X.indices, X.indptr), shape=(n_rows, n_features))
    shift = np.zeros(n_features)
    weight = np.bincount(features, entry_weights, n_features)
    shifted = np.flatnonzero(weight >= 0.5 * total_weight)
    if not len(shifted):
        return rows, shift

    # The mean is summed about one of the values, so that it is exact for a constant feature.
    counted = entry_weights > 0.0
    point = np.zeros(n_features)
    point[features[counted]] = values[counted]
    sums = np.bincount(features, entry_weights * (values - point[features]), n_features)
    shift[shifted] = point[shifted] + sums[shifted] / weight[shifted]

    indptr = len(shifted) * np.arange(n_rows + 1)
    rows -= sp.csr_matrix((np.tile(shift[shifted], n_rows), np.tile(shifted, n_rows), indptr), shape=rows.shape)
    return rows, shift


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
