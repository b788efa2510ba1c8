"""Compiled loop over the labels of rows that have several."""

import numpy as np

from stream_dr.compiled import compiled


@compiled()
def add_target_sets(
    indptr: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    values: np.ndarray,
    label_weights: np.ndarray,
    label_rows: np.ndarray,
    total: np.ndarray,
    gram: np.ndarray,
) -> None:
    """Add to the sums of each row's labels.

    Row i has labels codes[indptr[i]:indptr[i + 1]] of value y = values[i]. It adds w, w y and, by
    pairs, w y². It counts as 1 row if w > 0.

    indptr: (rows + 1,).
    codes: (labels of all rows,).
    weights, values: (rows,).
    label_weights, label_rows, total: (k,).
    gram: (k, k).
    """
    for i in range(len(weights)):
        w, y = weights[i], values[i]
        for s in range(indptr[i], indptr[i + 1]):
            a = codes[s]
            label_weights[a] += w
            label_rows[a] += w > 0.0
            total[a] += w * y
            for t in range(indptr[i], indptr[i + 1]):
                gram[a, codes[t]] += w * y * y
