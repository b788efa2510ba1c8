"""One row of CCIPCA on inner products and coefficients, never on features.

Every vector on the way is a combination of the basis and x. So the residual is stored as its
products with all current vectors (`residual`, first half), its coefficients in D's columns (second
half) and its coefficient in x (`share`).

With the Gram matrix of the current vectors, every quantity of the recurrence is a few scalars a
component. Nothing has the length of a block or of the features. The formulas are in
ccipca_state.py.

The functions have these arguments:

products: (k,), Dᵀx.
squared: |x − s|² for the shift s.
raw: |x|².
row: the row's number n.
table: (k, 2k), [Gram | M] of BlockBasis, changed in place.
counts: (1,) rows in the mean if centred, else (0,).
live: number of vectors started, of `p`.
unit: power of 2 that rows are multiplied by.
amnesic: ℓ of the formulas.
residual: (2k,), scratch.
weights: (k,), filled with q, by which D ← D + x qᵀ.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.coefficients import (
    RESOLVED,
    TINY,
    mirror_gram_row,
    multiply_mixing,
    start_component,
)
from stream_dr.statistics.recurrences.row_products import FAST


@compiled(fastmath=FAST, inline="always")
def ccipca_row(products, squared, raw, row, table, counts, live, p, unit, amnesic, residual, weights):  # type: ignore[no-untyped-def]
    """Learn one row on inner products and coefficients.

    Returns the number of live components, the factor by which |u|² fell on its way, and |u_1|².
    """
    size = products.shape[0]
    weights[:] = 0.0
    multiply_mixing(table, products, live, residual)
    remaining, noise = squared, RESOLVED * squared
    centred = counts.shape[0] > 0
    if centred:
        noise += RESOLVED * table[p, p]
        remaining = learn_mean(products, squared, row, table, counts, live, p, residual)
    first, share, smallest, ended = remaining, 1.0, remaining, False
    ell = amnesic if row > amnesic + 1.0 else 0.0
    old, new = (row - 1.0 - ell) / row, (1.0 + ell) / row
    for i in range(live):
        length, along = table[i, i], residual[i]
        ended = ended or not length > 0.0
        smallest = min(smallest, remaining)
        keep, s, c = 1.0, 0.0, 0.0
        if not ended:
            keep, s = old, new * along / np.sqrt(length)
            length = old * old * length + s * (2.0 * old * along + s * remaining)
            along = old * along + s * remaining
            ended = not length > 0.0
            c = 0.0 if ended else along / length

        # Row i of the table, and the residual without its part along v_i.
        in_x = s * share - keep * (table[i, size + p] if centred else 0.0)
        in_x_of_basis = 0.0
        for j in range(size):
            moved = keep * table[i, j] + s * residual[j]
            table[i, j] = moved
            residual[j] -= c * moved
        # M is lower triangular except in the mean's column, so the rest is zero.
        for j in range(size, size + i + 1):
            moved = keep * table[i, j] + s * residual[j]
            table[i, j] = moved
            residual[j] -= c * moved
            in_x_of_basis += weights[j - size] * moved
        for j in range(size + p, 2 * size):
            moved = keep * table[i, j] + s * residual[j]
            table[i, j] = moved
            residual[j] -= c * moved
            in_x_of_basis += weights[j - size] * moved
        table[i, i], residual[i] = length, 0.0
        mirror_gram_row(table, i, live, p, centred)
        weights[i] = (in_x - in_x_of_basis) / table[i, size + i]
        remaining = max(remaining - c * along, 0.0)
        share -= c * in_x

    if live < p and not ended and remaining > 1e-10 * first and first > TINY * raw and remaining > noise:
        smallest = min(smallest, remaining)
        start_component(table, residual, weights, live, remaining, share, unit)
        mirror_gram_row(table, live, live, p, centred)
        live += 1
    if centred:
        weights[p] = 1.0
    return live, first / max(smallest, 1e-16 * first) if first > 0.0 else 1.0, first


@compiled(fastmath=FAST, inline="always")
def average_variance(variance, remaining, row, unit, amnesic):  # type: ignore[no-untyped-def]
    """Add |u_1|² of a row to the mean in variance[0].

    It has the amnesic weights that the components have.

    remaining: |u_1|² in the basis's unit.
    row: the row's number n.
    """
    ell = amnesic if row > amnesic + 1.0 else 0.0
    variance[0] = (row - 1.0 - ell) / row * variance[0] + (1.0 + ell) / row * remaining / (unit * unit)


@compiled(fastmath=FAST, inline="always")
def learn_mean(products, squared, row, table, counts, live, p, residual):  # type: ignore[no-untyped-def]
    """Learn the row's mean, and return |x − x̄(n)|².

    residual: the row's products. They become those of x − x̄(n).
    """
    size = products.shape[0]
    keep, part = (row - 1.0) / row, 1.0 / row
    on_mean, mean = products[p] / max(counts[0], 1.0), table[p, p]
    for j in range(live):
        old = table[p, j]
        table[p, j] = table[j, p] = keep * old + part * residual[j]
        residual[j] = keep * (residual[j] - old)
    table[p, p] = keep * keep * mean + part * (2.0 * keep * on_mean + part * squared)

    residual[p] = keep * (keep * (on_mean - mean) + part * (squared - on_mean))
    residual[size + p] = -part
    counts[0] = row
    return keep * keep * max(squared - 2.0 * on_mean + mean, 0.0)
