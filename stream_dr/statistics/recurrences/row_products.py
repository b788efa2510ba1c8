"""Row products: the only loops of the recurrences that touch all d features.

The vectors of a recurrence are stored as a product of D, the basis columns (features, k), and
small coefficients (block_basis.py). Each row x is used twice. `gather_products` returns its inner
products with D's columns, and `scatter_row` adds a multiple of x to each column of D. Both touch
only the row's own features, so a sparse row costs O(nonzeros · columns) and needs nothing else.

Dense rows are handled in blocks of 16. `shift_rows` computes the block's x − shift in float64,
`block_products` computes XD and XXᵀ, and `add_block` adds XᵀQ. The time for dense rows is the time
to read D from memory, and a block of rows reads D one time only. Columns of D are padded to a
multiple of 8. Otherwise the compiler's vectorised loop would leave most of a short row to its
scalar remainder.

While a sparse row is added to D, the features of the next row are prefetched. This pays if other
threads or processes move much memory (`python benchmarks/recurrences.py beside`). With `parts` the
same benchmark shows where the time goes.

numba's cache of a loop in another file does not notice changes here or in coefficients.py. After a
change, remove the `__pycache__` directories or touch loops.py.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.prefetch import prefetch

FAST = {"reassoc", "contract", "nsz"}
"""Flags of the compiler for floating-point arithmetic.

Sums may be reordered. NaN and infinity stay valid.
"""

TILE = 512
"""Number of features of a dense block handled at a time."""

BLOCK = 16
"""Number of dense rows in a block."""

LINE = 8
"""Number of basis columns whose values for one feature fill a cache line."""


@compiled(fastmath=FAST, inline="always")
def gather_products(
    indices: np.ndarray, values: np.ndarray, start: int, stop: int, unit: float, columns: np.ndarray, out: np.ndarray
) -> float:
    """Write Dᵀx to out for a sparse row x, and return |x|².

    Dᵀx are the inner products of x with the basis columns D. x is `unit` times the entries start …
    stop of a CSR matrix.

    indices, values: (entries,) of all rows.
    columns: (features, k), D.
    out: (k,).
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
    """Add x qᵀ to the basis columns D for a sparse row x.

    x is `unit` times the entries start … stop of a CSR matrix. The entries that follow, probably
    those of the next row, are prefetched in the same number.

    indices, values: (entries,) of all rows.
    columns: (features, k), D.
    weights: (k,), q.
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
    """Write a block of shifted rows, transposed, and their squared lengths.

    X: (all rows, features). The block begins at row `first`.
    unit: power of 2 that rows are multiplied by.
    shift: (features,), row s that is subtracted.
    block: (features, rows of the block) float64, an output. Column i is unit · x − s for row x
        number i of the block.
    raw: (rows of the block,), an output: squared lengths of unit · x before the shift.
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
    """Write the inner products of a block's rows with D and each other.

    D are the basis columns. The products are blockᵀD and blockᵀblock, computed for a tile of
    features at a time.

    block: (features, rows), the transposed rows.
    columns: (features, k), D.
    products: (rows, k), an output.
    inner: (rows, rows), an output.
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
    """Add block · Q to the basis columns D, a tile of features at a time.

    block: (features, rows), the transposed rows of a block.
    columns: (features, k), D.
    weights: (rows, k), Q. For row t of the block, x, and row t of Q, q, x qᵀ is added to D.
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
    """Correct products[t] for the earlier rows of its block.

    products[t] holds Dᵀx_t for row x_t and the basis columns D as they were before the block. Each
    earlier row x_s of the block adds x_s q_sᵀ to D. So Σ_s q_s (x_s · x_t) is added to
    products[t].

    products: (rows, k).
    inner: (rows, rows) inner products of the rows.
    weights: (rows, k), whose row s is q_s.
    t: number of the row in its block.
    """
    for s in range(t):
        for k in range(products.shape[1]):
            products[t, k] += inner[t, s] * weights[s, k]
