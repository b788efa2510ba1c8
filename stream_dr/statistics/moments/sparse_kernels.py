"""sparse_kernels: the compiled loops over the nonzeros of CSR rows, each touching a nonzero once.

All take indptr (rows + 1,), indices and values of the rows, the rows' weights (rows,) float64, and write into records
(d, 4 + k). A feature's record: n, the weight of its nonzeros; c, the first of them; Σ w (v − c) and Σ w (v − c)² over
them; and its k cross sums Σ w v y. Values that are zero, and rows that weigh nothing, leave no trace.

All take `total`, the weight of the rows so far, and return it with that of these added, one after the other as a feature's
n is: so the n of a feature that no row lacks is N to the last bit, and N − n is multiplied by the mean squared.

Why this way: sums about c need no division (Welford's do: a quarter slower), and c being one of the values of weight w
they lose N/w · eps at most. A feature's numbers lie side by side, so a nonzero costs one cache miss, and that one is asked
for ahead. Indices are unsigned to the compiler, which then leaves out the check for negative ones.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.prefetch import AHEAD, prefetch

LINE = 8
"""Numbers of a record in its first cache line."""


@compiled(inline="always")
def _count(record: np.ndarray, value: float, weight: float) -> None:
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
    """Rows without targets."""
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
    """Rows with one label each, codes (rows,)."""
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
    """Rows with a set of labels each, codes[label_indptr[i]:label_indptr[i + 1]]; a label's sum gets scale[i] · x."""
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
    """Rows with continuous targets (rows, k), about their reference."""
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
