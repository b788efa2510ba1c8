"""dense_kernels: the compiled loops over dense rows and over the lower triangle of a scatter.

Why this way: columns are taken in strips that stay in the cache, so that centring reads the rows from memory once; inner
loops run over slices, which the compiler turns into vector instructions (five times faster here); only the lower triangle
of a scatter is kept up to date, as the product of a matrix with its own transpose gives it.
"""

import numpy as np

from stream_dr.compiled import compiled

STRIP = 256
"""Columns centred at once."""

TILE = 64
"""Rows and columns of a scatter mirrored at once."""


@compiled()
def centre_rows(
    X: np.ndarray,
    weights: np.ndarray,
    total: float,
    rows: np.ndarray,
    high: np.ndarray,
    low: np.ndarray,
    nonzero: np.ndarray,
) -> None:
    """rows (b, d) = √w (X − mean), and the weighted mean of X (b, d) as high + low (d,); total: Σ w > 0. Adds to nonzero
    (d,) the rows of weight that are not 0 there.

    Twice, distances from a point are averaged and the point moved by them; so the mean is right to 1e-16 of the rows'
    spread, not of their size.
    """
    b, d = X.shape
    first = 0
    while weights[first] == 0.0:
        first += 1
    root = np.sqrt(weights)
    sums = np.empty(STRIP)
    for start in range(0, d, STRIP):
        n = min(STRIP, d - start)
        h, lo, step = high[start : start + n], low[start : start + n], sums[:n]
        h[:] = X[first, start : start + n]
        lo[:] = 0.0
        for _ in range(2):
            step[:] = 0.0
            for i in range(b):
                w, x = weights[i], X[i, start : start + n]
                for j in range(n):
                    step[j] += w * ((x[j] - h[j]) - lo[j])
            for j in range(n):
                move = step[j] / total
                moved = h[j] + move
                kept = moved - h[j]
                rest = lo[j] + ((h[j] - (moved - kept)) + (move - kept))
                h[j] = moved + rest
                lo[j] = rest - (h[j] - moved)
        for i in range(b):
            r, x, out = root[i], X[i, start : start + n], rows[i, start : start + n]
            for j in range(n):
                out[j] = r * ((x[j] - h[j]) - lo[j])
            if r > 0.0:
                count = nonzero[start : start + n]
                for j in range(n):
                    count[j] += 1.0 if x[j] != 0.0 else 0.0


@compiled()
def add_outer(scatter: np.ndarray, step: np.ndarray, factor: float) -> None:
    """Lower triangle of scatter (d, d) += factor · step stepᵀ."""
    for i in range(len(step)):
        own = factor * step[i]
        if own != 0.0:
            row = scatter[i, : i + 1]
            for j in range(i + 1):
                row[j] += own * step[j]


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
