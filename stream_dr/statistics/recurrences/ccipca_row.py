"""One row of CCIPCA, computed from inner products.

CCIPCA subtracts from the row x its parts along the vectors v_1, v_2, …, one after the other. The
residual u_i is x without its parts along the vectors before v_i. (The formulas are in
ccipca_state.py.)

The vectors are stored as a product of basis columns D (features, k) and coefficients M
(block_basis.py). Every vector and every residual is a combination of x and the columns of D. So a
residual is represented by

- its inner products with all vectors (first half of `residual`),
- its coefficients of the columns of D (second half of `residual`),
- its coefficient of x (`share`).

With these numbers and the Gram matrix (inner products of the vectors), each vector needs only a
few scalars. No array has the length of the features.

The functions have these arguments:

products: (k,) inner products Dᵀx of the row with the basis columns.
squared: squared length of the row, for dense rows after the shift is subtracted.
raw: squared length of the row before the shift is subtracted.
row: number n of the row, from 1.
table: (k, 2k), the Gram matrix, then M, changed in place.
counts: (1,) number of rows in the mean if rows are centred, else (0,).
live: number of vectors so far.
p: largest number of vectors.
unit: power of 2 by which rows are multiplied.
amnesic: parameter ℓ of the formulas.
residual: (2k,), scratch memory.
weights: (k,), the output q. The caller then adds x qᵀ to D.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.row_products import (
    FAST,
    LEAST_SQUARE,
    RESOLVED,
    TINY,
    add_vector_from_residual,
    mirror_gram_row,
    old_and_new_weight,
    write_row_products,
)


@compiled(fastmath=FAST, forceinline=True)
def learn_ccipca_row(
    products: np.ndarray, squared: float, raw: float, row: int, table: np.ndarray, counts: np.ndarray, live: int,
    p: int, unit: float, amnesic: float, residual: np.ndarray, weights: np.ndarray,
) -> tuple[int, float, float]:  # fmt: skip
    """Learn one row of CCIPCA from its inner products.

    Returns the number of vectors so far, a ratio, and the squared length of the centred row. The
    ratio is this length divided by the smallest one left when parts along vectors are removed.
    """
    # The residual, of squared length `remaining`, is the row itself, or the row minus the mean.
    size, centred = products.shape[0], counts.shape[0] > 0
    weights[:] = 0.0
    write_row_products(table, products, live, residual)
    remaining, noise = squared, RESOLVED * squared
    if centred:
        noise += RESOLVED * table[p, p]
        remaining = centre_row_products(products, squared, row, table, counts, live, p, residual)
    first, share, smallest, ended = remaining, 1.0, remaining, False
    old, new = old_and_new_weight(row, amnesic)
    for i in range(live):
        # New vector i: keep · vector i + s · residual. New residual: residual − c · new vector i.
        length, along, keep, s, c = table[i, i], residual[i], 1.0, 0.0, 0.0
        ended = ended or not length > 0.0
        smallest = min(smallest, remaining)
        if not ended:
            keep, s = old, new * along / np.sqrt(length)
            length = old * old * length + s * (2.0 * old * along + s * remaining)
            along = old * along + s * remaining
            ended = not length > 0.0
            c = 0.0 if ended else along / length
        # Update vector i (row i of `table`), and subtract from the residual its part along it.
        in_x, in_x_of_basis = s * share - keep * (table[i, size + p] if centred else 0.0), 0.0
        for j in range(size):
            table[i, j] = moved = keep * table[i, j] + s * residual[j]
            residual[j] -= c * moved
        # Skip zeros: the right half of `table` is lower triangular, but for the mean's column.
        for j in range(size, size + i + 1):
            table[i, j] = moved = keep * table[i, j] + s * residual[j]
            residual[j] -= c * moved
            in_x_of_basis += weights[j - size] * moved
        for j in range(size + p, 2 * size):
            table[i, j] = moved = keep * table[i, j] + s * residual[j]
            residual[j] -= c * moved
            in_x_of_basis += weights[j - size] * moved
        table[i, i], residual[i] = length, 0.0
        mirror_gram_row(table, i, live, p, centred)
        weights[i] = (in_x - in_x_of_basis) / table[i, size + i]
        remaining = max(remaining - c * along, 0.0)
        share -= c * in_x

    # The row without its parts along all vectors becomes a new vector, if it is long enough.
    if live < p and not ended and remaining > 1e-10 * first and first > TINY * raw and remaining > noise:
        smallest = min(smallest, remaining)
        add_vector_from_residual(table, residual, weights, live, remaining, share, unit)
        mirror_gram_row(table, live, live, p, centred)
        live += 1
    if centred:
        weights[p] = 1.0
    return live, first / max(smallest, 1e-16 * first, LEAST_SQUARE), first


@compiled(fastmath=FAST, forceinline=True)
def update_mean_squared_length(variance: np.ndarray, remaining: float, row: int, unit: float, amnesic: float) -> None:
    """Add a row's squared length to a running mean.

    Row n enters the mean with the weight (1 + amnesic)/n, or 1/n for n ≤ amnesic + 1. A row
    changes CCIPCA's vectors with the same weight.

    variance: (1,), the mean, changed in place.
    remaining: squared length of the centred row, multiplied by unit².
    row: number n of the row.
    unit: power of 2 by which rows are multiplied.
    amnesic: parameter of CCIPCA. The larger it is, the more weight recent rows have.
    """
    old, new = old_and_new_weight(row, amnesic)
    variance[0] = old * variance[0] + new * remaining / (unit * unit)


@compiled(fastmath=FAST, forceinline=True)
def centre_row_products(
    products: np.ndarray,
    squared: float,
    row: int,
    table: np.ndarray,
    counts: np.ndarray,
    live: int,
    p: int,
    residual: np.ndarray,
) -> float:
    """Add a row to the mean, and return |x − x̄|².

    x is the row, and x̄ the running mean of all rows up to x. The inner products of the vectors
    (the components) with the mean and with x are updated, too.

    products: (k,) inner products of x with the k columns of a matrix D. The vectors are stored as
        combinations of these columns.
    squared: squared length of x. For dense rows, the shift is already subtracted from x.
    row: number of the row.
    table: (k, 2k), inner products of the vectors and the mean, then their coefficients in the
        columns of D. Changed in place.
    counts: (1,) number of rows in the mean.
    live: number of vectors so far.
    p: largest number of vectors.
    residual: (2k,), the inner products of x with the vectors. They are replaced by the inner
        products of x − x̄.
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
    squared_residual: float = keep * keep * max(squared - 2.0 * on_mean + mean, 0.0)
    return squared_residual
