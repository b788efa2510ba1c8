"""Row products: what a recurrence needs of its rows, the only loops that see all d features.

A row x meets the basis twice: `gather` gives its inner products with the basis vectors, `scatter` adds a multiple of it
to each of them. Both touch only the row's own features, so a sparse row costs O(nonzeros · columns). Dense rows go a
small block at a time: `block_products` gives XD, XXᵀ and the rows' raw squared lengths, `block_write` adds XᵀQ, both on
x − shift, feature tile by feature tile, so that neither a float64 copy of the batch nor a shifted one is ever made.

Why this way: with the basis kept as D·M (see block_basis) a sparse row needs nothing but these two touches, which is what
any method needs; a Gram matrix of the rows of a block, as the prototype had it, cost more than it saved. Dense rows are
bound by the traffic of D, which a block of rows reads once. Columns of D are padded to a multiple of 8, or the compiler's
vectorised loop leaves most of a short row to its scalar remainder (0.87 against 0.37 µs a row at 7 and 8 columns).
"""

import numpy as np

from stream_dr.accumulate.compiled import compiled

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered; NaN and infinity keep their meaning."""

TILE = 256
"""Features of a dense block handled at a time."""

BLOCK = 16
"""Dense rows of a block."""


@compiled(fastmath=FAST)
def gather(indices, values, start, stop, columns, out):  # type: ignore[no-untyped-def]
    """out (columns,) ← Dᵀx for the sparse row x = entries start … stop; returns |x|²."""
    width = out.shape[0]
    for k in range(width):
        out[k] = 0.0
    squared = 0.0
    for e in range(start, stop):
        j, v = indices[e], np.float64(values[e])
        squared += v * v
        for k in range(width):
            out[k] += v * columns[j, k]
    return squared


@compiled(fastmath=FAST)
def scatter(indices, values, start, stop, columns, weights):  # type: ignore[no-untyped-def]
    """D ← D + x qᵀ for the sparse row x = entries start … stop and weights q (columns,)."""
    width = weights.shape[0]
    for e in range(start, stop):
        j, v = indices[e], np.float64(values[e])
        for k in range(width):
            columns[j, k] += v * weights[k]


@compiled(fastmath=FAST)
def block_products(X, first, shift, columns, products, inner, raw):  # type: ignore[no-untyped-def]
    """products (rows, columns) ← (X − s)D, inner (rows, rows) ← (X − s)(X − s)ᵀ, raw (rows,) ← |x|², from row `first`
    on."""
    rows, width, features = products.shape[0], products.shape[1], X.shape[1]
    products[:] = 0.0
    inner[:] = 0.0
    raw[:] = 0.0
    tile = np.empty((rows, TILE))
    part, part_inner = np.empty((rows, width)), np.empty((rows, rows))
    for f in range(0, features, TILE):
        size = min(TILE, features - f)
        for t in range(rows):
            total = 0.0
            for j in range(size):
                v = np.float64(X[first + t, f + j])
                total += v * v
                tile[t, j] = v - shift[f + j]
            for j in range(size, TILE):
                tile[t, j] = 0.0
            raw[t] += total
        used = tile if size == TILE else np.ascontiguousarray(tile[:, :size])
        np.dot(used, columns[f : f + size], part)
        np.dot(used, used.T, part_inner)
        for t in range(rows):
            for k in range(width):
                products[t, k] += part[t, k]
            for k in range(rows):
                inner[t, k] += part_inner[t, k]


@compiled(fastmath=FAST)
def block_write(X, first, shift, columns, weights):  # type: ignore[no-untyped-def]
    """D ← D + (X − s)ᵀQ for the rows from `first` on and weights Q (rows, columns)."""
    rows, width, features = weights.shape[0], weights.shape[1], X.shape[1]
    tile = np.empty((TILE, rows))
    part = np.empty((TILE, width))
    for f in range(0, features, TILE):
        size = min(TILE, features - f)
        for t in range(rows):
            for j in range(size):
                tile[j, t] = np.float64(X[first + t, f + j]) - shift[f + j]
        np.dot(tile, weights, part)
        for j in range(size):
            for k in range(width):
                columns[f + j, k] += part[j, k]


@compiled(fastmath=FAST)
def settle(products, inner, weights, t):  # type: ignore[no-untyped-def]
    """products[t] ← Dᵀx_t with the rows before t of the block counted into D: + Σ_s q_s (x_s · x_t)."""
    for s in range(t):
        for k in range(products.shape[1]):
            products[t, k] += inner[t, s] * weights[s, k]
