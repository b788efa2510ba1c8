"""Compiled loops over the nonzeros of CSR rows, which touch each nonzero one time.

They add to records (d, 4 + k). The record of a feature holds n, the weight of its nonzeros, c, the
first of them, Σ w (v − c) and Σ w (v − c)² over them, and the k cross sums Σ w v y. Zero values
and rows of weight 0 add nothing.

Each loop takes `total`, the weight of the rows so far, and returns it with the weight of these
rows added one after the other, as a feature's n is. So the n of a feature that no row lacks equals
N, the total, to the last bit. N − n is later multiplied by the squared mean.

Sums about c need no division, where Welford's do and are a quarter slower. c is one of the values,
of weight w, so the sums lose N/w · eps at most. The numbers of a feature lie side by side, so a
nonzero costs one cache miss, and that line is prefetched. Indices are unsigned, so that the
compiler leaves out the check for negative ones.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.prefetch import AHEAD, prefetch

LINE = 8
"""Number of a record's numbers in its first cache line."""


@compiled(inline="always")
def _count(record: np.ndarray, value: float, weight: float) -> None:
    """Add a nonzero value of a weight to its feature's record (4 + k,)."""
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
    """Add rows without targets.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    records: (d, 4 + k).
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
    """Add rows with one label each.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    codes: (rows,).
    records: (d, 4 + k).
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
    """Add rows with a set of labels each.

    Row i has labels codes[label_indptr[i]:label_indptr[i + 1]]. The cross sums of each get
    scale[i] · x.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    label_indptr: (rows + 1,).
    codes: (labels of all rows,).
    scale: (rows,).
    records: (d, 4 + k).
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
    """Add rows with continuous targets, about their reference.

    indptr: (rows + 1,).
    indices, values: (entries,).
    weights: (rows,) float64.
    targets: (rows, k).
    records: (d, 4 + k).
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
