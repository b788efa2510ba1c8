"""Functions that the loops of CCIPCA and incremental SKM share.

The vectors of both methods are stored as a product of basis columns D (features, k) and
coefficients M (block_basis.py). The functions use inner products and coefficients, and never touch
features. The left half of the array `gram_and_mixing` (k, 2k) is the Gram matrix (inner products
of the vectors), and its right half is M. A function costs O(k) or O(p k) for each row, with p
vectors.

The two methods differ only in what a row adds to a vector. The functions here do the work that the
methods have in common: they add new vectors, make the Gram matrix symmetric, and decide when to
remove rounding errors.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.row_products import FAST

MAX_ROWS_BETWEEN_REFRESHES = 262_144
"""Largest number of rows between two computations of the Gram matrix.

The Gram matrix has the inner products of the components (the vectors of CCIPCA or incremental
SKM). It is updated with each row and collects rounding errors. So after this number of rows it is
computed from the vectors again.
"""

SMALLEST = 1e-8
"""Smallest allowed absolute value on the diagonal of the coefficients.

The vectors are stored as a product of long columns and a square matrix of coefficients. If a
diagonal entry of this matrix becomes smaller, digits are lost. Then the product is multiplied out,
and the identity becomes the matrix of coefficients (`BlockBasis.refresh_basis`).
"""

CANCELLED = 1e4
"""Loss of digits above which the vectors are computed again.

A vector is stored as a sum of terms that may cancel. The loss is the total length of the terms
divided by the length of the vector. `BlockBasis.refresh_basis` computes the vectors again.
"""

LOST = 1e4
"""Loss of digits above which inner products are computed again.

The squared length of a vector is computed as a sum of terms that may cancel. The loss is the total
of the absolute terms divided by the squared length. `BlockBasis.refresh_basis` computes the inner
products again.
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
digits of the inner products are lost. `BlockBasis.refresh_basis` computes the inner products
again.
"""

EARLY = 2048
"""Number of rows at the start of a stream that may cause a refresh at once.

If such a row is nearly a combination of the vectors, digits of the inner products are lost, and
`BlockBasis.refresh_basis` computes them again. Later rows have too little weight to matter.
"""

HUGE = 1e100
"""Squared length of a row above which fourth powers would overflow.

Rows are multiplied by a power of 2. Before a longer row is learned, this power is made smaller.
"""

GOES_ON, WORN, TOO_LONG = 0, 1, 2
"""Reasons why a loop over rows stopped.

- GOES_ON: all rows are learned.
- WORN: digits are lost, and `BlockBasis.refresh_basis` must restore them before the next row.
- TOO_LONG: the squared length of the next row exceeds HUGE.
"""

LEAST_SQUARE = 1e-300
"""Smallest divisor of a squared length. Squares of rows below 1e-150 have no digits left."""

TINY = (64 * 2.0**-52) ** 2
"""Squared relative length up to which a centred row counts as zero.

If the row minus the mean is at most 64 eps times as long as the row, the row adds no new vector.
"""


@compiled(fastmath=FAST, forceinline=True)
def old_and_new_weight(row: int, amnesic: float) -> tuple[float, float]:
    """Return the weights of a vector so far and of a row's change.

    The weights are (n − 1 − ℓ)/n and (1 + ℓ)/n [mathematics §6].

    row: number n of the row.
    amnesic: parameter ℓ of the method, which counts as 0 while n ≤ ℓ + 1.
    """
    ell = amnesic if row > amnesic + 1.0 else 0.0
    return (row - 1.0 - ell) / row, (1.0 + ell) / row


@compiled(fastmath=FAST, forceinline=True)
def write_products_of_row_and_vectors(
    gram_and_mixing: np.ndarray, basis_products: np.ndarray, n_vectors: int, vector_products: np.ndarray
) -> None:
    """Write the inner products of a row with the vectors.

    The vectors are the components. They are combinations of k stored columns, the basis columns.
    Row i of the matrix M (k, k) has the coefficients of vector i.

    gram_and_mixing: (k, 2k), the Gram matrix of the vectors, then M.
    basis_products: (k,) inner products of the row with the k basis columns.
    n_vectors: number of vectors so far, at most k.
    vector_products: (2k,), the output. Entries after the first `n_vectors` entries become zero.
    """
    size = basis_products.shape[0]
    vector_products[:] = 0.0
    for i in range(n_vectors):
        total = 0.0
        for j in range(size):
            total += gram_and_mixing[i, size + j] * basis_products[j]
        vector_products[i] = total


@compiled(fastmath=FAST, forceinline=True)
def mirror_gram_row(
    gram_and_mixing: np.ndarray, row_index: int, n_vectors: int, max_vectors: int, n_means: int
) -> None:
    """Copy a row of the Gram matrix to a column.

    The Gram matrix (k, k) has the inner products of vectors and means with each other. The row is
    copied to the column of the same index, so that the matrix is symmetric again. Entries of
    vectors that do not exist yet are not copied.

    gram_and_mixing: (k, 2k), of which the left half is the Gram matrix.
    row_index: index of the row and of the column.
    n_vectors: number of vectors so far. Vectors have the first indices.
    max_vectors: maximum number of vectors, which is the index of the first mean.
    n_means: number of means.
    """
    for j in range(n_vectors):
        gram_and_mixing[j, row_index] = gram_and_mixing[row_index, j]
    for j in range(max_vectors, max_vectors + n_means):
        gram_and_mixing[j, row_index] = gram_and_mixing[row_index, j]


@compiled(fastmath=FAST, forceinline=True)
def add_vector_from_residual(
    gram_and_mixing: np.ndarray,
    residual: np.ndarray,
    update_coefficients: np.ndarray,
    vector_index: int,
    squared_length: float,
    row_share: float,
    row_scale: float,
) -> None:
    """Start a new component with the residual of a row.

    The residual is the row x minus its parts along the earlier components. The components (called
    vectors) are the columns of D Mᵀ. D (features, k) holds the long basis columns, and row j of
    the small matrix M (k, k) holds the coefficients of vector j. Let i be `vector_index`, the
    index of the new component. Column i of D is still zero.

    gram_and_mixing: (k, 2k). Its left half holds the inner products of the vectors, and its right
        half is M. Row i is written.
    residual: (2k,), inner products of the residual with all vectors, then its coefficients in the
        basis columns.
    update_coefficients: (k,) coefficients q, of which entry i is written. The caller then adds
        x qᵀ to D.
    squared_length: squared length of the residual.
    row_share: coefficient of x in the residual.
    row_scale: power of 2 by which rows are multiplied. Stored vectors are multiplied by the square
        of this power.
    """
    size = update_coefficients.shape[0]
    in_x = row_share
    for j in range(size):
        in_x -= update_coefficients[j] * residual[size + j]
    for j in range(2 * size):
        gram_and_mixing[vector_index, j] = row_scale * residual[j]
    gram_and_mixing[vector_index, vector_index], gram_and_mixing[vector_index, size + vector_index] = (
        row_scale * row_scale * squared_length,
        1.0,
    )
    update_coefficients[vector_index] = row_scale * in_x


@compiled(fastmath=FAST, forceinline=True)
def update_squared_lengths(
    squared_lengths: np.ndarray, basis_products: np.ndarray, update_coefficients: np.ndarray, squared_norm: float
) -> None:
    """Update the basis columns' squared lengths for one row.

    The basis columns are the k columns of a matrix D (features, k). A row x with k coefficients q
    changes D to D + x qᵀ.

    squared_lengths: (k,) squared lengths, changed in place.
    basis_products: (k,) inner products Dᵀx before the change.
    update_coefficients: (k,) coefficients q.
    squared_norm: squared length |x|² of the row.
    """
    for k in range(squared_lengths.shape[0]):
        squared_lengths[k] += update_coefficients[k] * (2.0 * basis_products[k] + update_coefficients[k] * squared_norm)


@compiled(fastmath=FAST, forceinline=True)
def needs_basis_refresh(
    gram_and_mixing: np.ndarray,
    squared_lengths: np.ndarray,
    mean_counts: np.ndarray,
    max_vectors: int,
    n_vectors: int,
    row_number: int,
    refreshed_at_row: int,
    max_growth: float,
    deflation_ratio: float,
) -> bool:
    """Return True if rounding errors must be removed now.

    The vectors (the components) are stored as a product of k long columns D and coefficients M (k,
    k), which lose digits over time. If the result is True, the caller replaces D by the vectors
    themselves, and M by the identity. The module block_basis.py lists the conditions.

    gram_and_mixing: (k, 2k), the inner products of the vectors and means, then M.
    squared_lengths: (k,) squared lengths of the columns of D.
    mean_counts: (c,) number of rows in each of c means.
    max_vectors: largest number of vectors.
    n_vectors: number of vectors so far.
    row_number: number of the row.
    refreshed_at_row: number of the row at which D was last replaced.
    max_growth: factor by which the number of rows may grow between two replacements.
    deflation_ratio: squared length of the row, divided by its squared length after the parts along
        the vectors are subtracted.
    """
    # First check conditions that need little time. `size` is the number of basis columns.
    size = squared_lengths.shape[0]
    if row_number >= min(max_growth * max(refreshed_at_row, 1), refreshed_at_row + MAX_ROWS_BETWEEN_REFRESHES):
        return True
    if deflation_ratio > DEFLATED and row_number < EARLY and row_number - refreshed_at_row > row_number // 16:
        return True
    for i in range(n_vectors):
        if abs(gram_and_mixing[i, size + i]) < SMALLEST:
            return True

    # Return early for most rows, because the check below needs more time than the checks above.
    if row_number % 32 != 0 or row_number - refreshed_at_row < max(32, row_number // 16):
        return False

    # Return True if a vector is much shorter than the terms whose sum it is: digits were lost.
    for i in range(n_vectors):
        terms = 0.0
        for j in range(n_vectors):
            terms += abs(gram_and_mixing[i, size + j]) * np.sqrt(max(squared_lengths[j], 0.0))
        for k in range(mean_counts.shape[0]):
            terms += (
                abs(gram_and_mixing[i, size + max_vectors + k])
                * mean_counts[k]
                * np.sqrt(max(gram_and_mixing[max_vectors + k, max_vectors + k], 0.0))
            )
        if terms * terms > CANCELLED * CANCELLED * max(gram_and_mixing[i, i], 0.0):
            return True
    return False
