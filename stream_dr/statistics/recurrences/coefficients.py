"""Coefficients: steps that the loops of both recurrences share.

The vectors of a recurrence are stored as a product of D, the basis columns (features, k), and M,
the coefficients of the vectors in these columns (block_basis.py). The steps work on inner products
and coefficients, never on features. Row i of `table` is row i of the Gram matrix (inner products
of the vectors), then row i of M. With p vectors, c means and k = p + c basis columns (rounded up),
a step costs O(k) or O(p k) a row.

CCIPCA and incremental SKM differ only in what a row adds to a vector. They start a vector, keep
the Gram matrix symmetric and decide that the basis must be multiplied out (D ← D·M, M ← I) in the
same way.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.row_products import FAST

LONGEST_UNTURNED = 262_144
"""Largest number of rows until D is replaced by D·M again.

D and M are the factors whose product are the vectors of a recurrence (block_basis.py). The Gram
matrix (inner products of the vectors) is then computed again. So this number bounds the rounding
error that the Gram matrix collects.
"""

SMALLEST = 1e-8
"""Size of a diagonal entry of M below which D is replaced by D·M, and M by the identity.

M holds the coefficients of the vectors in the basis columns D.
"""

CANCELLED = 1e4
"""Loss of digits in a vector from which D is replaced by D·M (block_basis.py).

The vector is a sum of terms that may cancel. The loss is the length of the terms divided by the
length of the vector.
"""

LOST = 1e4
"""Loss of digits in a squared length from which the Gram matrix is computed again.

The squared length is a sum of terms that may cancel. The loss is the size of the terms divided by
the squared length.
"""

RESOLVED = 1e-12
"""Relative squared length up to which the rest of a row is only rounding error.

The rest is what remains of a row after its parts along the vectors are subtracted. Its squared
length is compared with the size of the terms whose sum it is. A rest of rounding errors does not
become a new vector.
"""

DEFLATED = 1e3
"""Ratio of squared lengths from which the Gram matrix is computed again.

A row gets shorter when its parts along the vectors are subtracted. The ratio is the squared length
before divided by the squared length after. Beyond this value the Gram matrix (inner products of
the vectors) has lost three digits.
"""

EARLY = 2048
"""Number of first rows after which lost digits are restored immediately.

Later a single row weighs too little for its lost digits to matter.
"""

HUGE = 1e100
"""Squared length of a row beyond which fourth powers would overflow.

Before such a row is learned, the unit that multiplies rows is made smaller.
"""

GOES_ON, WORN, TOO_LONG = 0, 1, 2
"""Reasons why a loop over rows stopped.

GOES_ON: all rows are learned.
WORN: the basis columns D must be replaced by D·M (block_basis.py) after the last row learned.
TOO_LONG: the next row's squared length exceeds HUGE.
"""

TINY = (64 * 2.0**-52) ** 2
"""Squared share of a row's length up to which the centred row counts as zero.

If the row minus the mean is at most 64 eps as long as the row, the row adds no new vector.
"""


@compiled(fastmath=FAST, inline="always")
def multiply_mixing(table: np.ndarray, products: np.ndarray, live: int, residual: np.ndarray) -> None:
    """Write the row's inner products with the vectors so far to `residual`.

    These are M·Dᵀx for the row x. The other entries of residual become zero.

    table: (k, 2k), the Gram matrix of the vectors, then M, their coefficients in D's columns.
    products: (k,), Dᵀx, the row's inner products with the basis columns D.
    live: number of vectors so far.
    residual: (2k,), the output.
    """
    size = products.shape[0]
    residual[:] = 0.0
    for i in range(live):
        total = 0.0
        for j in range(size):
            total += table[i, size + j] * products[j]
        residual[i] = total


@compiled(fastmath=FAST, inline="always")
def mirror_gram_row(table: np.ndarray, i: int, live: int, p: int, means: int) -> None:
    """Copy row i of the Gram matrix to its column i.

    Only the entries of vectors so far, and of means, are copied.

    table: (k, 2k), whose first half is the Gram matrix.
    live: number of vectors so far.
    p: largest number of vectors. The means have the indices from p on.
    means: number of means.
    """
    for j in range(live):
        table[j, i] = table[i, j]
    for j in range(p, p + means):
        table[j, i] = table[i, j]


@compiled(fastmath=FAST, inline="always")
def start_component(
    table: np.ndarray, residual: np.ndarray, weights: np.ndarray, i: int, length: float, share: float, unit: float
) -> None:
    """Make what remains of a row x the new vector number i.

    The remaining row is x minus its parts along the vectors before i. The vectors are stored as a
    product of long basis columns D (features, k) and small coefficients. Column i of D is still
    empty.

    table: (k, 2k), the Gram matrix of the vectors, then their coefficients in the basis columns.
        Row i is written.
    residual: (2k,), the remaining row: its inner products with all vectors, then its coefficients
        in the basis columns.
    weights: (k,), of which entry i is written. The caller then adds x · weightsᵀ to D.
    length: squared length of the remaining row.
    share: coefficient of x in the remaining row.
    unit: power of 2 that rows are multiplied by. Stored vectors are multiplied by unit².
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
def update_lengths(lengths: np.ndarray, products: np.ndarray, weights: np.ndarray, squared: float) -> None:
    """Update the squared lengths of the basis columns after a row.

    The row x changes the basis columns D (features, k) to D + x qᵀ.

    lengths: (k,) squared lengths, changed in place.
    products: (k,), Dᵀx, before the change.
    weights: (k,), q.
    squared: |x|².
    """
    for k in range(lengths.shape[0]):
        lengths[k] += weights[k] * (2.0 * products[k] + weights[k] * squared)


@compiled(fastmath=FAST, inline="always")
def needs_turn(
    table: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    p: int,
    live: int,
    row: int,
    turned: int,
    growth: float,
    deflated: float,
) -> bool:
    """Return True if D must be replaced by D·M after this row.

    The vectors are the product of the basis columns D and the coefficients M. D·M replaces D, and
    the identity replaces M, when digits are lost. block_basis.py states the rule. Its costly part
    runs at most every 32 rows.

    table: (k, 2k), the Gram matrix of the vectors, then M.
    lengths: (k,) squared lengths of D's columns.
    counts: (c,) number of rows in each mean.
    p: largest number of vectors.
    live: number of vectors so far.
    row: number of the row.
    turned: number of the row at which D was last replaced.
    growth: factor by which the number of rows may grow until D is replaced again.
    deflated: squared length of the row divided by the squared length that remains after its parts
        along the vectors are subtracted.
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
