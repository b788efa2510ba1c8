"""sparse_kernels: the compiled loops over the nonzeros of CSR rows, each touching a nonzero once.

All take indptr (rows + 1,), indices and values of the rows, the rows' weights (rows,) float64, and write into records
(d, 4 + k): weight, mean, spread and count of a feature's nonzeros, and its k cross sums. Values that are zero, and rows
that weigh nothing, leave no trace.

Why this way: weight, mean and spread follow Welford one nonzero at a time, so they do not depend on how rows are batched;
a feature's numbers lie side by side, so a nonzero costs one cache miss. Indices are unsigned to the compiler, which then
leaves out the check for negative ones.
"""

import numpy as np

from stream_dr.accumulate.compiled import compiled


@compiled(inline="always")
def _count(record: np.ndarray, value: float, weight: float) -> None:
    total = record[0] + weight
    step = value - record[1]
    move = step * (weight / total)
    record[0] = total
    record[1] += move
    record[2] += weight * step * (step - move)
    record[3] += 1.0


@compiled()
def add_features(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, records: np.ndarray
) -> None:
    """Rows without targets."""
    for i in range(len(weights)):
        w = weights[i]
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                v = np.float64(values[e])
                if v != 0.0:
                    _count(records[np.uint64(indices[e])], v, w)


@compiled()
def add_one_label(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    codes: np.ndarray,
    records: np.ndarray,
) -> None:
    """Rows with one label each, codes (rows,)."""
    for i in range(len(weights)):
        w, column = weights[i], np.uint64(4 + codes[i])
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                v = np.float64(values[e])
                if v != 0.0:
                    record = records[np.uint64(indices[e])]
                    _count(record, v, w)
                    record[column] += w * v


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
) -> None:
    """Rows with a set of labels each, codes[label_indptr[i]:label_indptr[i + 1]]; a label's sum gets scale[i] · x."""
    for i in range(len(weights)):
        w, s = weights[i], scale[i]
        first, last = np.uint64(label_indptr[i]), np.uint64(label_indptr[i + 1])
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                v = np.float64(values[e])
                if v != 0.0:
                    record = records[np.uint64(indices[e])]
                    _count(record, v, w)
                    part = s * v
                    for t in range(first, last):
                        record[np.uint64(4 + codes[t])] += part


@compiled()
def add_values(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    records: np.ndarray,
) -> None:
    """Rows with continuous targets (rows, k), about their reference."""
    k = targets.shape[1]
    for i in range(len(weights)):
        w = weights[i]
        if w > 0.0:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                v = np.float64(values[e])
                if v != 0.0:
                    record = records[np.uint64(indices[e])]
                    _count(record, v, w)
                    part = w * v
                    for t in range(k):
                        record[4 + t] += part * targets[i, t]
