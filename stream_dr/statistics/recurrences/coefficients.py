"""Coefficients: what the recurrences' loops share where they see inner products and coefficients, never features.

`table` is BlockBasis's: row i holds the Gram row of vector i, then its coefficients in D's columns. Cost of each: O(k) or
O(p k) a row, k = p + c padded.

Why this way: CCIPCA and incremental SKM differ in what a component adds to itself; starting one, keeping the Gram matrix
symmetric and knowing when D must be re-multiplied is the same.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.row_products import FAST

LONGEST_UNTURNED = 262_144
"""Rows after which D is re-multiplied at the latest: bounds the drift of the Gram matrix."""
SMALLEST = 1e-8
CANCELLED = 1e4
LOST = 1e4
"""A squared length this many times smaller than its terms: the Gram matrix is formed anew from the vectors."""
RESOLVED = 1e-12
"""Squared lengths below this part of their terms are rounding in the Gram form; no component starts from one."""
DEFLATED = 1e3
"""A row whose residual's squared length falls by more than this on its way down has cost the Gram matrix three digits."""
EARLY = 2048
"""Rows in which such a loss is made good at once; afterwards a row weighs too little for it to matter."""
HUGE = 1e100
"""A squared row length past which fourth powers would overflow: the unit of the basis is changed before it is learned."""
GOES_ON, WORN, TOO_LONG = 0, 1, 2
"""Why a loop stopped: at the end of its rows, after a row that left M worn, before a row past HUGE."""
TINY = (64 * 2.0**-52) ** 2
"""A row whose first residual is not longer than 64 eps of the row starts no component (squared)."""


@compiled(fastmath=FAST, inline="always")
def multiply(table, products, live, residual):  # type: ignore[no-untyped-def]
    """residual ← the row's products M·Dᵀx with the live vectors, zeros elsewhere."""
    size = products.shape[0]
    residual[:] = 0.0
    for i in range(live):
        total = 0.0
        for j in range(size):
            total += table[i, size + j] * products[j]
        residual[i] = total


@compiled(fastmath=FAST, inline="always")
def mirror(table, i, live, p, means):  # type: ignore[no-untyped-def]
    """Copy Gram row i into Gram column i, for live vectors and means."""
    for j in range(live):
        table[j, i] = table[i, j]
    for j in range(p, p + means):
        table[j, i] = table[i, j]


@compiled(fastmath=FAST, inline="always")
def start_component(table, residual, weights, i, length, share, unit):  # type: ignore[no-untyped-def]
    """Component i, not live yet and so with an empty column of D, takes the residual as it is (in the rows' own unit)."""
    size = weights.shape[0]
    in_x = share
    for j in range(size):
        in_x -= weights[j] * residual[size + j]
    for j in range(2 * size):
        table[i, j] = unit * residual[j]
    table[i, i], table[i, size + i] = unit * unit * length, 1.0
    weights[i] = unit * in_x


@compiled(fastmath=FAST, inline="always")
def measure(lengths, products, weights, squared):  # type: ignore[no-untyped-def]
    """lengths ← the squared lengths of D's columns after D ← D + x qᵀ, from products Dᵀx, weights q and |x|²."""
    for k in range(lengths.shape[0]):
        lengths[k] += weights[k] * (2.0 * products[k] + weights[k] * squared)


@compiled(fastmath=FAST, inline="always")
def worn(table, lengths, counts, p, live, row, turned, growth, deflated):  # type: ignore[no-untyped-def]
    """Whether D must be re-multiplied after this row (see block_basis); the costly part every 32 rows at most.

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
