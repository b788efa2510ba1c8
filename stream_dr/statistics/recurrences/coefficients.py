"""Functions that the loops of CCIPCA and incremental SKM share.

The vectors of both methods are stored as a product of basis columns D (features, k) and
coefficients M (block_basis.py). The functions use inner products and coefficients, and never touch
features. The left half of the array `table` (k, 2k) is the Gram matrix (inner products of the
vectors), and its right half is M. A function costs O(k) or O(p k) for each row, with p vectors.

The two methods differ only in what a row adds to a vector. The functions here do the work that the
methods have in common: they add new vectors, make the Gram matrix symmetric, and decide when to
remove rounding errors.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.row_products import FAST

LONGEST_UNTURNED = 262_144
"""Largest number of rows between two computations of the Gram matrix.

The Gram matrix has the inner products of the vectors. It is updated with each row and collects
rounding errors. So after this number of rows it is computed from the vectors again
(`BlockBasis.turn`).
"""

SMALLEST = 1e-8
"""Smallest allowed absolute value on the diagonal of M.

M has the coefficients of the vectors. If a diagonal entry becomes smaller, digits are lost. Then
the vectors are computed from M and the basis columns D (`BlockBasis.turn`).
"""

CANCELLED = 1e4
"""Loss of digits above which the vectors are computed again.

A vector is a sum of terms that may cancel. The loss is the length of the terms divided by the
length of the vector. `BlockBasis.turn` computes the vectors again.
"""

LOST = 1e4
"""Loss of digits above which inner products are computed again.

The squared length of a vector is a sum of terms that may cancel. The loss is the size of the terms
divided by the squared length. `BlockBasis.turn` computes the inner products again.
"""

RESOLVED = 1e-12
"""Relative squared length up to which a residual is rounding error.

The residual is a row minus its parts along the vectors. Its squared length is compared with the
size of the terms that the length is computed from. A residual of rounding errors does not become a
new vector.
"""

DEFLATED = 1e3
"""Ratio of squared lengths above which inner products are computed again.

The parts of a row along the vectors are subtracted from the row. The ratio is the squared length
of the row before the subtraction, divided by its squared length afterwards. At this ratio, three
digits of the inner products are lost. `BlockBasis.turn` computes the inner products again.
"""

EARLY = 2048
"""Number of rows at the start of a stream whose lost digits are restored at once.

Later rows have so little weight that their lost digits do not matter.
"""

HUGE = 1e100
"""Squared length of a row above which fourth powers would overflow.

Rows are multiplied by a power of 2. Before a longer row is learned, this power is made smaller.
"""

GOES_ON, WORN, TOO_LONG = 0, 1, 2
"""Reasons why a loop over rows stopped.

- GOES_ON: all rows are learned.
- WORN: digits are lost, and `BlockBasis.turn` must restore them before the next row.
- TOO_LONG: the squared length of the next row exceeds HUGE.
"""

TINY = (64 * 2.0**-52) ** 2
"""Squared relative length up to which a centred row counts as zero.

If the row minus the mean is at most 64 eps times as long as the row, the row adds no new vector.
"""


@compiled(fastmath=FAST, inline="always")
def multiply_mixing(table: np.ndarray, products: np.ndarray, live: int, residual: np.ndarray) -> None:
    """Write the inner products of a row with the vectors.

    The vectors are the components. They are stored as combinations of basis columns. Row i of the
    matrix M (k, k) has the coefficients of vector i.

    table: (k, 2k), the Gram matrix of the vectors, then M.
    products: (k,) inner products of the row with the basis columns.
    live: number of vectors so far, at most k.
    residual: (2k,), the output. Entries after the first `live` entries become zero.
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
    """Copy row i of the Gram matrix to column i.

    Only the entries of the vectors so far and of the means are copied.

    table: (k, 2k), whose left half is the Gram matrix.
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
    """Start component i with the residual of a row.

    The residual is the row x minus its parts along the earlier components. The components (called
    vectors) are the columns of D Mᵀ. D (features, k) holds the long basis columns, and row j of
    the small matrix M (k, k) holds the coefficients of vector j. Column i of D is still zero.

    table: (k, 2k), the Gram matrix of the vectors, then M. Row i of the Gram matrix and of M is
        written.
    residual: (2k,), inner products of the residual with all vectors, then its coefficients in the
        basis columns.
    weights: (k,), of which entry i is written. The caller then adds x · weightsᵀ to D.
    length: squared length of the residual.
    share: coefficient of x in the residual.
    unit: power of 2 by which rows are multiplied. Stored vectors are multiplied by unit².
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
    """Update the squared lengths of the basis columns.

    A row x changes the basis columns D (features, k) to D + x qᵀ.

    lengths: (k,) squared lengths, changed in place.
    products: (k,) inner products Dᵀx before the change.
    weights: (k,) coefficients q.
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
    """Return True if rounding errors must be removed now.

    The vectors are a product of basis columns D and coefficients M, which lose digits over time.
    If the result is True, `BlockBasis.turn` replaces D by D·M, and M by the identity. The module
    block_basis.py lists the conditions. The costly conditions are checked at most every 32 rows.

    table: (k, 2k), the Gram matrix of the vectors, then M.
    lengths: (k,) squared lengths of the columns of D.
    counts: (c,) number of rows in each mean.
    p: largest number of vectors.
    live: number of vectors so far.
    row: number of the row.
    turned: number of the row at which D was last replaced.
    growth: factor by which the number of rows may grow between two replacements.
    deflated: squared length of the row, divided by its squared length after the parts along the
        vectors are subtracted.
    """
    # Conditions that are quick to check.
    size = lengths.shape[0]
    if row >= min(growth * max(turned, 1), turned + LONGEST_UNTURNED):
        return True
    if deflated > DEFLATED and row < EARLY and row - turned > row // 16:
        return True
    for i in range(live):
        if abs(table[i, size + i]) < SMALLEST:
            return True

    # The costly condition: some vector is much shorter than the terms whose sum it is.
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
