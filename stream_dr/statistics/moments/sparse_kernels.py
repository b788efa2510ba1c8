"""Compiled loops that add rows to sums per feature and per label.

The sums of CSR rows are the rows of the array `feature_sums` (d, 4 + k) for d features and k target
columns. Row j of `feature_sums` belongs to feature j. Let v be the nonzeros of the feature, w the weights
of their rows, and c the first of the nonzeros. The row holds

- n = Σ w,
- c,
- Σ w (v − c),
- Σ w (v − c)²,
- for each of k target columns y, the cross sum Σ w v y.

Zero values and rows of weight 0 add nothing.

Each loop also returns the total weight of all rows. For a feature that is nonzero in all rows, n
must equal this total to the last bit, because their difference is later multiplied by a squared
mean. So the loops add the weights to the total in the same order in which they are added to n.

A sum about a fixed point c needs no division. Welford's recurrence needs a division, and is a
quarter slower. c is one of the values. If c has the weight w, and all values the weight N, the
relative error of the sums is at most N/w · eps.

The numbers of a feature lie next to each other in memory. So a nonzero needs one cache line, which
is prefetched. Indices are unsigned, so the compiler omits the check for negative indices.

`add_multilabel_targets` adds the labels of rows with several labels to sums per label.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.cache_lines import AHEAD, prefetch

LINE = 8
"""Number of float64 values in a cache line."""


@compiled(forceinline=True)
def _add_nonzero_value(feature_sums: np.ndarray, nonzero_value: float, weight: float) -> None:
    """Add a nonzero value to the sums of its feature.

    Let v be the nonzero values of the feature so far, w the weights of their rows, and c the first
    of the values. The first four numbers of `feature_sums` are Σ w, c, Σ w (v − c) and
    Σ w (v − c)². Only these change.

    feature_sums: sums of one feature, at least these four numbers.
    nonzero_value: the nonzero value to add.
    weight: weight of the value's row.
    """
    if feature_sums[0] == 0.0:
        feature_sums[1] = nonzero_value
    step = nonzero_value - feature_sums[1]
    part = weight * step
    feature_sums[0] += weight
    feature_sums[2] += part
    feature_sums[3] += part * step


@compiled()
def add_sparse_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    feature_sums: np.ndarray,
    total_weight_before: float,
) -> float:
    """Add CSR rows without targets to sums of features.

    Returns the total weight of all rows so far.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    weights: (rows,) float64.
    feature_sums: (features, at least 4), the sums of each feature, changed in place. Let v be the
        feature's nonzero values, w the weights of their rows, and c the first of the values.
        Columns 0 to 3 are Σ w, c, Σ w (v − c) and Σ w (v − c)². Other columns are not used.
    total_weight_before: total weight of all earlier rows.
    """
    total_weight = total_weight_before
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w = weights[i]
        total_weight += w
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                prefetch(feature_sums, np.uint64(indices[min(e + AHEAD, last)]), np.uint64(0))
                v = np.float64(values[e])
                if v != 0.0:
                    _add_nonzero_value(feature_sums[np.uint64(indices[e])], v, w)
    return total_weight


@compiled()
def add_rows_one_label(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    label_codes: np.ndarray,
    feature_sums: np.ndarray,
    total_weight_before: float,
) -> float:
    """Add CSR rows with one label each to feature sums.

    Returns the total weight of all rows so far.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    weights: (rows,) float64.
    label_codes: (rows,) index of each row's label.
    feature_sums: (features, at least 4 + k) for k labels, the sums of each feature, changed in
        place. Let v be the feature's nonzero values, w the weights of their rows, and c the first
        of the values. Columns 0 to 3 are Σ w, c, Σ w (v − c) and Σ w (v − c)². Column 4 + j is
        Σ w v over the rows with label j.
    total_weight_before: total weight of all earlier rows.
    """
    total_weight = total_weight_before
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w, column = weights[i], np.uint64(4 + label_codes[i])
        total_weight += w
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                # Prefetch the cache line with the first sums of a later nonzero's feature.
                # Also prefetch the line with the feature's sum for the label of row i.
                further = np.uint64(indices[min(e + AHEAD, last)])
                prefetch(feature_sums, further, np.uint64(0))
                if column >= np.uint64(LINE):
                    prefetch(feature_sums, further, column)

                v = np.float64(values[e])
                if v != 0.0:
                    record = feature_sums[np.uint64(indices[e])]
                    _add_nonzero_value(record, v, w)
                    record[column] += w * v
    return total_weight


@compiled()
def add_rows_many_labels(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    label_indptr: np.ndarray,
    label_codes: np.ndarray,
    label_weights: np.ndarray,
    feature_sums: np.ndarray,
    total_weight_before: float,
) -> float:
    """Add CSR rows with several labels each to feature sums.

    Returns the total weight of all rows so far.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    weights: (rows,) float64.
    label_indptr: (rows + 1,). Row i has the labels
        label_codes[label_indptr[i]:label_indptr[i + 1]].
    label_codes: (labels of all rows,) index of each label, row after row.
    label_weights: (rows,) factor u of each row in the sums of its labels. It includes the weight.
    feature_sums: (features, at least 4 + k) for k labels, the sums of each feature, changed in
        place. Let v be the feature's nonzero values, w the weights of their rows, and c the first
        of the values. Columns 0 to 3 are Σ w, c, Σ w (v − c) and Σ w (v − c)². Column 4 + j is
        Σ u v over the rows with label j.
    total_weight_before: total weight of all earlier rows.
    """
    total_weight = total_weight_before
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w, s = weights[i], label_weights[i]
        total_weight += w
        if w > 0.0:
            begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
            for e in range(begin, end):
                prefetch(feature_sums, np.uint64(indices[min(e + AHEAD, last)]), np.uint64(0))
                v = np.float64(values[e])
                if v != 0.0:
                    _add_nonzero_value(feature_sums[np.uint64(indices[e])], v, w)

            # A loop over the labels inside the loop over the nonzeros would take much longer.
            for t in range(label_indptr[i], label_indptr[i + 1]):
                column = np.uint64(4 + label_codes[t])
                for e in range(begin, end):
                    if column >= np.uint64(LINE):
                        prefetch(feature_sums, np.uint64(indices[min(e + AHEAD, last)]), column)
                    feature_sums[np.uint64(indices[e]), column] += s * np.float64(values[e])
    return total_weight


@compiled()
def add_rows_continuous_targets(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    feature_sums: np.ndarray,
    total_weight_before: float,
) -> float:
    """Add CSR rows with continuous targets to sums of features.

    Returns the total weight of all rows so far.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    weights: (rows,) float64.
    targets: (rows, k) targets minus a fixed point near their mean.
    feature_sums: (features, at least 4 + k), the sums of each feature, changed in place. Let v be
        the feature's nonzero values, w the weights of their rows, and c the first of the values.
        Columns 0 to 3 are Σ w, c, Σ w (v − c) and Σ w (v − c)². Column 4 + j is Σ w v y, where y
        are the values in column j of `targets`.
    total_weight_before: total weight of all earlier rows.
    """
    total_weight = total_weight_before
    k = targets.shape[1]
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w = weights[i]
        total_weight += w
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                prefetch(feature_sums, np.uint64(indices[min(e + AHEAD, last)]), np.uint64(0))

                v = np.float64(values[e])
                if v != 0.0:
                    record = feature_sums[np.uint64(indices[e])]
                    _add_nonzero_value(record, v, w)
                    part = w * v
                    for t in range(k):
                        record[4 + t] += part * targets[i, t]
    return total_weight


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
