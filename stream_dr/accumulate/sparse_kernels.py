"""sparse_kernels: the compiled loops over the nonzeros of CSR rows, each touching a nonzero once.

All take indptr (rows + 1,), indices and values of the rows, the rows' weights (rows,) float64, and write into features
(d, 4) [weight, mean, spread, count of the nonzeros] and cross (d, k). Values that are zero, and rows that weigh nothing,
leave no trace.

Why this way: weight, mean and spread follow Welford one nonzero at a time, so they do not depend on how rows are batched,
and one feature's four numbers share a cache line.
"""

import numpy as np

from stream_dr.accumulate.compiled import compiled


@compiled(inline="always")
def _count(features: np.ndarray, j: int, value: float, weight: float) -> None:
    total = features[j, 0] + weight
    step = value - features[j, 1]
    move = step * (weight / total)
    features[j, 0] = total
    features[j, 1] += move
    features[j, 2] += weight * step * (step - move)
    features[j, 3] += 1.0


@compiled()
def add_features(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, features: np.ndarray
) -> None:
    """Rows without targets."""
    for i in range(len(weights)):
        w = weights[i]
        if w > 0.0:
            for e in range(indptr[i], indptr[i + 1]):
                v = np.float64(values[e])
                if v != 0.0:
                    _count(features, indices[e], v, w)


@compiled()
def add_one_label(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    codes: np.ndarray,
    features: np.ndarray,
    cross: np.ndarray,
) -> None:
    """Rows with one label each, codes (rows,)."""
    for i in range(len(weights)):
        w, c = weights[i], codes[i]
        if w > 0.0:
            for e in range(indptr[i], indptr[i + 1]):
                v = np.float64(values[e])
                if v != 0.0:
                    j = indices[e]
                    _count(features, j, v, w)
                    cross[j, c] += w * v


@compiled()
def add_label_sets(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    label_indptr: np.ndarray,
    codes: np.ndarray,
    row_values: np.ndarray,
    features: np.ndarray,
    cross: np.ndarray,
) -> None:
    """Rows with a set of labels each: row i's are codes[label_indptr[i]:label_indptr[i + 1]], of value row_values[i]."""
    for i in range(len(weights)):
        w = weights[i]
        first, last = label_indptr[i], label_indptr[i + 1]
        if w > 0.0:
            r = w * row_values[i]
            for e in range(indptr[i], indptr[i + 1]):
                v = np.float64(values[e])
                if v != 0.0:
                    j = indices[e]
                    _count(features, j, v, w)
                    for t in range(first, last):
                        cross[j, codes[t]] += r * v


@compiled()
def add_values(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    features: np.ndarray,
    cross: np.ndarray,
) -> None:
    """Rows with continuous targets (rows, k)."""
    k = targets.shape[1]
    for i in range(len(weights)):
        w = weights[i]
        if w > 0.0:
            for e in range(indptr[i], indptr[i + 1]):
                v = np.float64(values[e])
                if v != 0.0:
                    j = indices[e]
                    _count(features, j, v, w)
                    for t in range(k):
                        cross[j, t] += w * v * targets[i, t]
