"""Row products: the only loops of the recurrences that see all d features.

A row x meets the basis twice. `gather_products` returns its inner products with the basis vectors, and
`scatter_row` adds a multiple of it to each of them. Both touch only the row's own features, so a
sparse row costs O(nonzeros · columns). With the basis stored as D·M (block_basis.py) a sparse row
needs nothing else.

Dense rows go a block of 16 at a time. `shift_rows` computes the block's x − shift in float64,
`block_products` XD and XXᵀ, and `add_block` adds XᵀQ. Dense rows are bound by the traffic of D,
which a block of rows reads once. Columns of D are padded to a multiple of 8, since otherwise the
compiler's vectorised loop leaves most of a short row to its scalar remainder.

While a sparse row is scattered the next one's features are prefetched. This pays if other threads
or processes move much memory (`python benchmarks/recurrences.py beside`). With `parts` the same
benchmark shows where the time goes.

numba's cache of a loop in another file does not notice changes here or in coefficients.py. After
one, remove the `__pycache__` directories or touch loops.py.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.prefetch import prefetch

FAST = {"reassoc", "contract", "nsz"}
"""Flags of the compiler: sums may be reordered, NaN and infinity stay valid."""

TILE = 512
"""Features of a dense block handled at a time."""

BLOCK = 16
"""Dense rows of a block."""

LINE = 8
"""Columns of D in a line of the cache."""


@compiled(fastmath=FAST, inline="always")
def gather_products(indices, values, start, stop, unit, columns, out):  # type: ignore[no-untyped-def]
    """Write Dᵀx to out for a sparse row x, and return |x|².

    x is unit times entries start … stop.

    indices, values: (entries,).
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
def scatter_row(indices, values, start, stop, unit, columns, weights):  # type: ignore[no-untyped-def]
    """Add x qᵀ to D for a sparse row x.

    x is unit times entries start … stop. The next row's features, as many entries after them, are
    prefetched.

    indices, values: (entries,).
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
def shift_rows(X, first, unit, shift, block, raw):  # type: ignore[no-untyped-def]
    """Write (unit · X − s)ᵀ to block in float64, and |x|² to raw.

    X: (all rows, features), read from row `first` on.
    shift: (features,), s.
    block: (features, rows).
    raw: (rows,).
    """
    raw[:] = 0.0
    for j in range(X.shape[1]):
        s = shift[j]
        for t in range(block.shape[1]):
            v = unit * np.float64(X[first + t, j])
            raw[t] += v * v
            block[j, t] = v - s


@compiled(fastmath=FAST, inline="always")
def block_products(block, columns, products, inner):  # type: ignore[no-untyped-def]
    """Write blockᵀD to products and blockᵀblock to inner, a tile of features at a time.

    block: (features, rows).
    columns: (features, k), D.
    products: (rows, k).
    inner: (rows, rows).
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
def add_block(block, columns, weights):  # type: ignore[no-untyped-def]
    """Add block · Q to D for weights Q, a tile of features at a time.

    block: (features, rows).
    columns: (features, k), D.
    weights: (rows, k), Q.
    """
    part = np.empty((TILE, weights.shape[1]))
    for f in range(0, block.shape[0], TILE):
        size = min(TILE, block.shape[0] - f)
        np.dot(block[f : f + size], weights, part[:size])
        for j in range(size):
            for k in range(weights.shape[1]):
                columns[f + j, k] += part[j, k]


@compiled(fastmath=FAST, inline="always")
def settle_products(products, inner, weights, t):  # type: ignore[no-untyped-def]
    """Add Σ_s q_s (x_s · x_t) over rows s before t to products[t].

    products[t] is then Dᵀx_t with these rows added to D.

    products, weights: (rows, k).
    inner: (rows, rows).
    """
    for s in range(t):
        for k in range(products.shape[1]):
            products[t, k] += inner[t, s] * weights[s, k]
