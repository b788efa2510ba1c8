"""set_kernels: the compiled loop that moves the mean of each row's label set."""

import numpy as np

from stream_dr.compiled import compiled


@compiled()
def add_set_means(
    X: np.ndarray, weights: np.ndarray, ids: np.ndarray, totals: np.ndarray, mean: np.ndarray, low: np.ndarray
) -> None:
    """Row by row: totals[s] += w, and mean[s] + low[s] moves by w / totals[s] of the row's distance (two-sum)."""
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
