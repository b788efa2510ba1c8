"""Compiled loop over the labels of rows with several labels."""

import numpy as np

from stream_dr.compiled import compiled


@compiled()
def add_multilabel_targets(
    indptr: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    label_values: np.ndarray,
    label_weights: np.ndarray,
    label_rows: np.ndarray,
    label_sums: np.ndarray,
    gram: np.ndarray,
) -> None:
    """Add rows with several labels to the labels' sums.

    Row i has the labels codes[indptr[i]:indptr[i + 1]] and the weight w = weights[i]. All labels
    of the row have the value y = label_values[i].

    * For each label of the row, w is added to label_weights, and w y to label_sums.
    * For each label of the row, 1 is added to label_rows if w > 0.
    * For each pair of labels of the row, w y² is added to gram.

    indptr: (rows + 1,) int64, position in `codes` of the first label of each row.
    codes: (labels of all rows,) index of each label of each row, row after row.
    weights, label_values: (rows,) w and y of each row.
    label_weights, label_rows, label_sums: (k,) for k labels, changed in place.
    gram: (k, k), changed in place.
    """
    for i in range(len(weights)):
        w, y = weights[i], label_values[i]
        for s in range(indptr[i], indptr[i + 1]):
            a = codes[s]
            label_weights[a] += w
            label_rows[a] += w > 0.0
            label_sums[a] += w * y
            for t in range(indptr[i], indptr[i + 1]):
                gram[a, codes[t]] += w * y * y
