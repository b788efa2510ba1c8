"""Compiled loops over the nonzeros of CSR rows, which touch each nonzero one time.

They add to an array `records` (d, 4 + k) for d features and k target columns. The row of a
feature, its record, holds

- n, the weight of the feature's nonzeros,
- c, the first nonzero,
- Σ w (v − c) and Σ w (v − c)² over the nonzeros v of weight w,
- the k cross sums Σ w v y with the targets y.

Zero values and rows of weight 0 add nothing.

Each loop takes `total`, the weight of the rows so far. It adds the weights of its rows to `total`
one after the other, as they are added to a feature's n, and returns the sum. So the n of a feature
that is nonzero in all rows equals the total weight N to the last bit. This matters because N − n
is later multiplied by the squared mean.

Sums about c need no division. Welford's recurrence needs one and is a quarter slower. c is one of
the values, of weight w, so the sums lose at most N/w · eps. The numbers of a feature lie side by
side in memory. So a nonzero costs one cache miss, and that cache line is prefetched. Indices are
unsigned, so that the compiler leaves out the check for negative ones.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.prefetch import AHEAD, prefetch

LINE = 8
"""Number of float64 values in a cache line."""


@compiled(inline="always")
def _count(record: np.ndarray, value: float, weight: float) -> None:
    """Add one nonzero value of a feature to the feature's first four sums.

    Let v be the feature's nonzero values so far, w the weights of their rows, and c the first of
    them. The four numbers are Σ w, c, Σ w (v − c) and Σ w (v − c)².

    record: (4 + k,), the four numbers, then k sums with targets that are not changed.
    value: the nonzero value to add.
    weight: weight of the value's row.
    """
    if record[0] == 0.0:
        record[1] = value
    step = value - record[1]
    part = weight * step
    record[0] += weight
    record[2] += part
    record[3] += part * step


@compiled()
def add_features(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    records: np.ndarray,
    total: float,
) -> float:
    """Add CSR rows without targets to the sums of their features.

    Returns the weight of all rows so far.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    records: (features, 4 + k), a row of sums for each feature.
    total: weight of earlier rows.
    """
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w = weights[i]
        total += w
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                prefetch(records, np.uint64(indices[min(e + AHEAD, last)]), np.uint64(0))
                v = np.float64(values[e])
                if v != 0.0:
                    _count(records[np.uint64(indices[e])], v, w)
    return total


@compiled()
def add_one_label(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    codes: np.ndarray,
    records: np.ndarray,
    total: float,
) -> float:
    """Add CSR rows with one label each to the sums of their features.

    Returns the weight of all rows so far.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    codes: (rows,) label of each row.
    records: (features, 4 + k), a row of sums for each feature, for k labels. The first four
        columns do not depend on labels. Column 4 + j has the weighted sums of the rows with label
        j.
    total: weight of earlier rows.
    """
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w, column = weights[i], np.uint64(4 + codes[i])
        total += w
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                further = np.uint64(indices[min(e + AHEAD, last)])
                prefetch(records, further, np.uint64(0))
                if column >= np.uint64(LINE):
                    prefetch(records, further, column)

                v = np.float64(values[e])
                if v != 0.0:
                    record = records[np.uint64(indices[e])]
                    _count(record, v, w)
                    record[column] += w * v
    return total


@compiled()
def add_label_sets(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    label_indptr: np.ndarray,
    codes: np.ndarray,
    scale: np.ndarray,
    records: np.ndarray,
    total: float,
) -> float:
    """Add CSR rows with a set of labels each to the sums of their features.

    Row i has the labels codes[label_indptr[i]:label_indptr[i + 1]]. To the sums of each of these
    labels, scale[i] times the weighted row is added. Returns the weight of all rows so far.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    label_indptr: (rows + 1,).
    codes: (labels of all rows,).
    scale: (rows,).
    records: (features, 4 + k), a row of sums for each feature, for k labels. The first four
        columns do not depend on labels. Column 4 + j has the sums of label j.
    total: weight of earlier rows.
    """
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w, s = weights[i], scale[i]
        total += w
        begin, end = np.uint64(label_indptr[i]), np.uint64(label_indptr[i + 1])
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                further = np.uint64(indices[min(e + AHEAD, last)])
                prefetch(records, further, np.uint64(0))
                for t in range(begin, end):
                    if codes[t] >= LINE - 4:
                        prefetch(records, further, np.uint64(4 + codes[t]))

                v = np.float64(values[e])
                if v != 0.0:
                    record = records[np.uint64(indices[e])]
                    _count(record, v, w)
                    part = s * v
                    for t in range(begin, end):
                        record[np.uint64(4 + codes[t])] += part
    return total


@compiled()
def add_values(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    records: np.ndarray,
    total: float,
) -> float:
    """Add CSR rows with continuous targets to the sums of their features.

    Returns the weight of all rows so far.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    targets: (rows, k) targets y − r, with r a fixed point near their mean.
    records: (features, 4 + k), a row of sums for each feature. The first four columns do not
        depend on targets. The last k columns have the sums of rows times targets.
    total: weight of earlier rows.
    """
    k = targets.shape[1]
    last = np.uint64(len(indices) - 1)
    for i in range(len(weights)):
        w = weights[i]
        total += w
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                prefetch(records, np.uint64(indices[min(e + AHEAD, last)]), np.uint64(0))

                v = np.float64(values[e])
                if v != 0.0:
                    record = records[np.uint64(indices[e])]
                    _count(record, v, w)
                    part = w * v
                    for t in range(k):
                        record[4 + t] += part * targets[i, t]
    return total
