"""Compiled loop that adds rows to the mean of their label set."""

import numpy as np

from stream_dr.compiled import compiled


@compiled()
def add_set_means(
    X: np.ndarray, weights: np.ndarray, ids: np.ndarray, totals: np.ndarray, mean: np.ndarray, low: np.ndarray
) -> None:
    """Add rows to the means of their label sets, one after the other.

    A row of weight w and set s adds w to totals[s]. The mean of set s then moves by w / totals[s]
    of its distance from the row. The mean is the sum of mean[s] and low[s] and is updated without
    losing digits (two-sum).

    X: (rows, d).
    weights: (rows,).
    ids: (rows,) number of each row's set. Rows with a negative number are skipped.
    totals: (sets,) weight of each set's rows.
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
