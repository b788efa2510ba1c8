"""Compiled loop that moves the mean of each row's label set."""

import numpy as np

from stream_dr.compiled import compiled


@compiled()
def add_set_means(
    X: np.ndarray, weights: np.ndarray, ids: np.ndarray, totals: np.ndarray, mean: np.ndarray, low: np.ndarray
) -> None:
    """Add rows to the means of their label sets, one after the other.

    A row of weight w and set s adds w to totals[s]. mean[s] + low[s] moves by w / totals[s] of the
    row's distance, as a two-sum. Sets below 0 are skipped.

    X: (rows, d).
    weights: (rows,).
    ids: (rows,), the set of each row.
    totals: (sets,).
    mean, low: (sets, d).
    """
    for i in range(len(ids)):
        s, w = ids[i], weights[i]
        if s < 0 or not w > 0.0:
            continue
        totals[s] += w
        share = w / totals[s]
        for j in range(X.shape[1]):
            high = mean[s, j]
            step = share * ((np.float64(X[i, j]) - high) - low[s, j])
            total = high + step
            added = total - high
            rest = low[s, j] + ((high - (total - added)) + (step - added))
            mean[s, j] = total + rest
            low[s, j] = rest - (mean[s, j] - total)
