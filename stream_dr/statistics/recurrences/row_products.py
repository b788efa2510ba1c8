"""Loops of CCIPCA and incremental SKM that run over the features of rows.

The vectors of both methods are stored as a product of basis columns D (features, k) and small
coefficients (block_basis.py). Each sparse row x is used twice. `gather_products` computes the
inner products of x with the columns of D, and `scatter_row` adds multiples of x to the columns.
The two functions use only the nonzeros of x, so a sparse row costs O(nonzeros · k).

Dense rows are handled in blocks of 16. `shift_rows` subtracts the shift from the rows.
`block_products` computes the inner products of the rows with D and with each other, and
`add_block` adds multiples of the rows to D. The time for dense rows is the time to read D from
memory, and a block reads D only once for all of its rows. D has a multiple of 8 columns, because
the compiler's vectorised loops would be slow for other numbers.

While a sparse row is added to D, the rows of D that the next sparse row needs are prefetched. This
is faster if other threads or processes use the memory a lot (`python benchmarks/recurrences.py
beside`). The command `python benchmarks/recurrences.py parts` measures the time of each function.

numba does not notice if this file or coefficients.py changes after loops.py was compiled. After a
change, remove the `__pycache__` directories or touch loops.py.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.prefetch import prefetch

FAST = {"reassoc", "contract", "nsz"}
"""Compiler flags for floating-point arithmetic.

Sums may be reordered. NaN and infinity are still handled correctly.
"""

TILE = 512
"""Number of features that are handled at a time for a block of dense rows."""

BLOCK = 16
"""Number of dense rows in a block."""

LINE = 8
"""Number of float64 values in a cache line."""


@compiled(fastmath=FAST, inline="always")
def gather_products(
    indices: np.ndarray, values: np.ndarray, start: int, stop: int, unit: float, columns: np.ndarray, out: np.ndarray
) -> float:
    """Write the inner products of a sparse row with D.

    Returns the squared length of the row. D are the basis columns. The row x is `unit` times the
    entries `start` to `stop` − 1 of a CSR matrix.

    indices, values: (entries,) of all CSR rows.
    columns: (features, k), D.
    out: (k,), the output: inner products of x with the columns of D.
    """
    width = out.shape[0]
    for k in range(width):
        out[k] = 0.0
    squared = 0.0
    for e in range(start, stop):
        j, v = indices[e], unit * np.float64(values[e])
        squared += v * v
        for k in range(width):
            out[k] += v * columns[j, k]
    return squared


@compiled(fastmath=FAST, inline="always")
def scatter_row(
    indices: np.ndarray,
    values: np.ndarray,
    start: int,
    stop: int,
    unit: float,
    columns: np.ndarray,
    weights: np.ndarray,
) -> None:
    """Add x qᵀ to the basis columns for a sparse row x.

    x is `unit` times the entries `start` to `stop` − 1 of a CSR matrix. The same number of entries
    after `stop` probably belong to the next row. The basis columns are prefetched for them.

    indices, values: (entries,) of all CSR rows.
    columns: (features, k), D, changed in place.
    weights: (k,) coefficients q.
    """
    width, ahead, last = weights.shape[0], stop - start, indices.shape[0] - 1
    for e in range(start, stop):
        further = np.uint64(indices[min(e + ahead, last)])
        for k in range(0, width, LINE):
            prefetch(columns, further, np.uint64(k))
        j, v = indices[e], unit * np.float64(values[e])
        for k in range(width):
            columns[j, k] += v * weights[k]


@compiled(fastmath=FAST, inline="always")
def shift_rows(X: np.ndarray, first: int, unit: float, shift: np.ndarray, block: np.ndarray, raw: np.ndarray) -> None:
    """Write shifted rows, transposed, and their squared lengths.

    X: (all rows, features).
    first: index of the block's first row in X.
    unit: power of 2 by which rows are multiplied.
    shift: (features,) row that is subtracted.
    block: (features, rows of the block) float64, an output. Each column is unit · x − shift for a
        row x.
    raw: (rows of the block,), an output: squared lengths of unit · x, before the shift.
    """
    raw[:] = 0.0
    for j in range(X.shape[1]):
        s = shift[j]
        for t in range(block.shape[1]):
            v = unit * np.float64(X[first + t, j])
            raw[t] += v * v
            block[j, t] = v - s


@compiled(fastmath=FAST, inline="always")
def block_products(block: np.ndarray, columns: np.ndarray, products: np.ndarray, inner: np.ndarray) -> None:
    """Write the inner products of rows with D and with each other.

    D are the basis columns. TILE features are handled at a time.

    block: (features, rows), the transposed rows of the block.
    columns: (features, k), D.
    products: (rows, k), an output: inner products of rows and columns of D.
    inner: (rows, rows), an output: inner products of the rows.
    """
    products[:] = 0.0
    inner[:] = 0.0
    part, part_inner = np.empty(products.shape), np.empty(inner.shape)
    for f in range(0, block.shape[0], TILE):
        tile = block[f : f + TILE]
        np.dot(tile.T, columns[f : f + tile.shape[0]], part)
        np.dot(tile.T, tile, part_inner)
        for t in range(block.shape[1]):
            for k in range(columns.shape[1]):
                products[t, k] += part[t, k]
            for s in range(block.shape[1]):
                inner[t, s] += part_inner[t, s]


@compiled(fastmath=FAST, inline="always")
def add_block(block: np.ndarray, columns: np.ndarray, weights: np.ndarray) -> None:
    """Add x qᵀ to the basis columns for each row x of a block.

    TILE features are handled at a time.

    block: (features, rows), the transposed rows x of the block.
    columns: (features, k), D, changed in place.
    weights: (rows, k), whose row t is the coefficients q of row number t.
    """
    part = np.empty((TILE, weights.shape[1]))
    for f in range(0, block.shape[0], TILE):
        size = min(TILE, block.shape[0] - f)
        np.dot(block[f : f + size], weights, part[:size])
        for j in range(size):
            for k in range(weights.shape[1]):
                columns[f + j, k] += part[j, k]


@compiled(fastmath=FAST, inline="always")
def settle_products(products: np.ndarray, inner: np.ndarray, weights: np.ndarray, t: int) -> None:
    """Correct a row's inner products for earlier rows of its block.

    products[t] holds the inner products of row x_t with the basis columns D, as D was before the
    block. Each earlier row x_s of the block adds x_s q_sᵀ to D. So Σ_s q_s (x_s · x_t) is added to
    products[t].

    products: (rows, k), of which row t is changed.
    inner: (rows, rows) inner products of the rows.
    weights: (rows, k), whose row s is q_s.
    t: number of the row in its block.
    """
    for s in range(t):
        for k in range(products.shape[1]):
            products[t, k] += inner[t, s] * weights[s, k]
