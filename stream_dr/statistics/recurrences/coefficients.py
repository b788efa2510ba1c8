"""Coefficients: steps that the loops of both recurrences share.

They see inner products and coefficients, never features. `table` is BlockBasis's. Row i holds the
Gram row of vector i, then its coefficients in D's columns. With k = p + c columns, padded, a step
costs O(k) or O(p k) a row.

CCIPCA and incremental SKM differ only in what a component adds to itself. They start a component,
keep the Gram matrix symmetric and find that D must be re-multiplied in the same way.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.row_products import FAST

LONGEST_UNTURNED = 262_144
"""Maximum number of rows between two re-multiplications of D.

It bounds the drift of the Gram matrix.
"""
SMALLEST = 1e-8
CANCELLED = 1e4
LOST = 1e4
"""Loss by cancellation from which the Gram matrix is rebuilt.

It is the size of the terms of a squared length over that length.
"""
RESOLVED = 1e-12
"""Share of its terms below which a length is rounding.

It is a share of squares, in Gram form. No component starts from such a residual.
"""
DEFLATED = 1e3
"""Fall of a squared residual that wears the Gram matrix.

Beyond this factor the Gram matrix has lost three digits.
"""
EARLY = 2048
"""Number of first rows in which losses are repaired immediately.

Later a row weighs too little for the loss to matter.
"""
HUGE = 1e100
"""Squared row length past which fourth powers would overflow.

The unit of the basis is changed before such a row is learned.
"""
GOES_ON, WORN, TOO_LONG = 0, 1, 2
"""Reasons why a loop stopped.

GOES_ON: at the end of its rows.
WORN: after a row that left M worn.
TOO_LONG: before a row past HUGE.
"""
TINY = (64 * 2.0**-52) ** 2
"""Share of a squared row that is no residual.

A row whose first residual is at most 64 eps of the row starts no component.
"""


@compiled(fastmath=FAST, inline="always")
def multiply_mixing(table, products, live, residual):  # type: ignore[no-untyped-def]
    """Write M·Dᵀx for the live vectors to `residual`.

    These are the row's inner products with the vectors. The other entries become zero.

    table: (k, 2k).
    products: (k,), Dᵀx.
    live: number of vectors started.
    residual: (2k,).
    """
    size = products.shape[0]
    residual[:] = 0.0
    for i in range(live):
        total = 0.0
        for j in range(size):
            total += table[i, size + j] * products[j]
        residual[i] = total


@compiled(fastmath=FAST, inline="always")
def mirror_gram_row(table, i, live, p, means):  # type: ignore[no-untyped-def]
    """Copy Gram row i into Gram column i.

    Only entries of live vectors and of means are copied.

    table: (k, 2k).
    live: number of vectors started.
    p: number of vectors, after which the means begin.
    means: number of means.
    """
    for j in range(live):
        table[j, i] = table[i, j]
    for j in range(p, p + means):
        table[j, i] = table[i, j]


@compiled(fastmath=FAST, inline="always")
def start_component(table, residual, weights, i, length, share, unit):  # type: ignore[no-untyped-def]
    """Start component i from the residual.

    The component is not live yet, so its column of D is empty.

    table: (k, 2k), of which row i is written.
    residual: (2k,), its products with all vectors, then its coefficients in D's columns.
    weights: (k,), q, of which entry i is written.
    length: squared length of the residual.
    share: coefficient of the residual in x.
    unit: power of 2 that rows are multiplied by. The component has the rows' own unit.
    """
    size = weights.shape[0]
    in_x = share
    for j in range(size):
        in_x -= weights[j] * residual[size + j]
    for j in range(2 * size):
        table[i, j] = unit * residual[j]
    table[i, i], table[i, size + i] = unit * unit * length, 1.0
    weights[i] = unit * in_x


@compiled(fastmath=FAST, inline="always")
def update_lengths(lengths, products, weights, squared):  # type: ignore[no-untyped-def]
    """Update the squared lengths of D's columns.

    They become those of D + x qᵀ.

    lengths: (k,).
    products: (k,), Dᵀx.
    weights: (k,), q.
    squared: |x|².
    """
    for k in range(lengths.shape[0]):
        lengths[k] += weights[k] * (2.0 * products[k] + weights[k] * squared)


@compiled(fastmath=FAST, inline="always")
def needs_turn(table, lengths, counts, p, live, row, turned, growth, deflated):  # type: ignore[no-untyped-def]
    """Return True if D must be re-multiplied after this row.

    block_basis.py states the rule. Its costly part runs every 32 rows at most.

    table: (k, 2k).
    lengths: (k,), squared lengths of D's columns.
    counts: (c,), rows in each mean.
    p: number of vectors, of which the first `live` are started.
    row: number of the row.
    turned: row number of the last re-multiplication.
    growth: factor by which the stream may grow until the next one.
    deflated: |u_1|² over the smallest |u_i|² of the row.
    """
    size = lengths.shape[0]
    if row >= min(growth * max(turned, 1), turned + LONGEST_UNTURNED):
        return True
    if deflated > DEFLATED and row < EARLY and row - turned > row // 16:
        return True
    for i in range(live):
        if abs(table[i, size + i]) < SMALLEST:
            return True

    if row % 32 != 0 or row - turned < max(32, row // 16):
        return False
    for i in range(live):
        terms = 0.0
        for j in range(live):
            terms += abs(table[i, size + j]) * np.sqrt(max(lengths[j], 0.0))
        for k in range(counts.shape[0]):
            terms += abs(table[i, size + p + k]) * counts[k] * np.sqrt(max(table[p + k, p + k], 0.0))
        if terms * terms > CANCELLED * CANCELLED * max(table[i, i], 0.0):
            return True
    return False
