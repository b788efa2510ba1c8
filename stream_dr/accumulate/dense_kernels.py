"""dense_kernels: the compiled loops over dense rows and over the lower triangle of a scatter.

Why this way: columns are taken in strips that stay in the cache, so that centring reads the rows from memory once; only
the lower triangle of a scatter is kept up to date, as the product of a matrix with its own transpose gives it.
"""

import numpy as np

from stream_dr.accumulate.compiled import compiled

STRIP = 32
"""Columns centred at once."""

TILE = 64
"""Rows and columns of a scatter mirrored at once."""


@compiled(fastmath={"contract"})
def centre_rows(
    X: np.ndarray, weights: np.ndarray, total: float, rows: np.ndarray, high: np.ndarray, low: np.ndarray
) -> None:
    """rows (b, d) = √w (X − mean), and the weighted mean of X (b, d) as high + low (d,); total: Σ w > 0.

    Twice, distances from a point are averaged and the point moved by them; so the mean is right to 1e-16 of the rows'
    spread, not of their size.
    """
    b, d = X.shape
    first = 0
    while weights[first] == 0.0:
        first += 1
    root = np.sqrt(weights)
    for start in range(0, d, STRIP):
        stop = min(start + STRIP, d)
        for j in range(start, stop):
            high[j] = X[first, j]
            low[j] = 0.0
        for _ in range(2):
            step = np.zeros(STRIP)
            for i in range(b):
                w = weights[i]
                for j in range(start, stop):
                    step[j - start] += w * ((X[i, j] - high[j]) - low[j])
            for j in range(start, stop):
                move = step[j - start] / total
                moved = high[j] + move
                kept = moved - high[j]
                rest = low[j] + ((high[j] - (moved - kept)) + (move - kept))
                high[j] = moved + rest
                low[j] = rest - (high[j] - moved)
        for i in range(b):
            r = root[i]
            for j in range(start, stop):
                rows[i, j] = r * ((X[i, j] - high[j]) - low[j])


@compiled()
def add_outer(scatter: np.ndarray, step: np.ndarray, factor: float) -> None:
    """Lower triangle of scatter (d, d) += factor · step stepᵀ."""
    for i in range(len(step)):
        own = factor * step[i]
        if own != 0.0:
            for j in range(i + 1):
                scatter[i, j] += own * step[j]


@compiled()
def mirrored(scatter: np.ndarray) -> np.ndarray:
    """The symmetric (d, d) matrix of which scatter holds the lower triangle."""
    d = len(scatter)
    out = np.empty((d, d))
    for top in range(0, d, TILE):
        for left in range(0, top + TILE, TILE):
            for i in range(top, min(top + TILE, d)):
                for j in range(left, min(left + TILE, i + 1)):
                    out[i, j] = scatter[i, j]
                    out[j, i] = scatter[i, j]
    return out
