"""Functions that the loops of CCIPCA and incremental SKM share.

The vectors of both methods are stored as a product of basis columns D (features, k) and small
coefficients (block_basis.py). Each sparse row x is used twice. `write_sparse_row_products`
computes the inner products of x with the columns of D, and `add_row_to_basis` adds
multiples of x to the columns. The two functions use only the nonzeros of x, so a sparse row costs
O(nonzeros · k).

Dense rows are handled in blocks of 16. `write_shifted_block` subtracts the shift from the rows.
`write_block_products` computes the inner products of the rows with D and with each other, and
`add_block_to_basis` adds multiples of the rows to D. The time for dense rows is the time to read D
from memory, and a block reads D only once for all of its rows. D has a multiple of 8 columns,
because the compiler's vectorised loops would be slow for other numbers.

While a sparse row is added to D, the rows of D that the next sparse row needs are prefetched. This
is faster if other threads or processes use the memory a lot
(`python benchmarks/recurrences.py beside`). The command `python benchmarks/recurrences.py parts`
measures the time of each function.

The other functions use inner products and the coefficients M, and never touch features. They add
new vectors, make the Gram matrix symmetric, and decide when to remove rounding errors. The left
half of the array `gram_and_mixing` (k, 2k) is the Gram matrix (inner products of the vectors), and
its right half is M. A function costs O(k) or O(p k) for each row, with p vectors.

numba does not notice if this file changes after loops.py was compiled. After a change, remove the
`__pycache__` directories or touch loops.py.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.cache_lines import prefetch

FAST = {"reassoc", "contract", "nsz"}
"""Compiler flags for floating-point arithmetic.

Sums may be reordered. NaN and infinity are still handled correctly.
"""

TILE = 512
"""Number of features that are handled at a time for a block of dense rows."""

BLOCK = 16
"""Number of dense rows in a block."""

LINE = 8
"""Number of float64 values in a cache line."""


@compiled(fastmath=FAST, forceinline=True)
def write_sparse_row_products(
    indices: np.ndarray,
    values: np.ndarray,
    first_entry: int,
    end_entry: int,
    row_scale: float,
    basis_columns: np.ndarray,
    basis_products: np.ndarray,
) -> float:
    """Write a sparse row's inner products with basis columns.

    Returns the squared length of the row. The row x is `row_scale` times the entries `first_entry`
    to `end_entry` − 1 of a CSR matrix.

    indices, values: (entries,), feature and value of each entry of all CSR rows.
    basis_columns: (features, k), k columns.
    basis_products: (k,), the output, the inner products of x with the k columns.
    """
    width = basis_products.shape[0]
    for k in range(width):
        basis_products[k] = 0.0
    squared = 0.0
    for e in range(first_entry, end_entry):
        j, v = indices[e], row_scale * values[e]
        squared += v * v
        for k in range(width):
            basis_products[k] += v * basis_columns[j, k]
    return squared


@compiled(fastmath=FAST, forceinline=True)
def add_row_to_basis(
    indices: np.ndarray,
    values: np.ndarray,
    first_entry: int,
    end_entry: int,
    row_scale: float,
    basis_columns: np.ndarray,
    update_coefficients: np.ndarray,
) -> None:
    """Add multiples of a sparse row to the basis columns.

    The row x is `row_scale` times the entries `first_entry` to `end_entry` − 1 of a CSR matrix.
    The next entries of the CSR matrix probably belong to the next row, so the memory that they
    will need is prefetched.

    indices, values: (entries,), feature and value of each entry of all CSR rows.
    basis_columns: (features, k), k columns, changed in place. Column j is increased by x times
        update_coefficients[j].
    update_coefficients: (k,).
    """
    width, ahead, last = update_coefficients.shape[0], end_entry - first_entry, indices.shape[0] - 1
    for e in range(first_entry, end_entry):
        further = np.uint64(indices[min(e + ahead, last)])
        for k in range(0, width, LINE):
            prefetch(basis_columns, further, np.uint64(k))
        j, v = indices[e], row_scale * values[e]
        for k in range(width):
            basis_columns[j, k] += v * update_coefficients[k]


@compiled(fastmath=FAST, forceinline=True)
def write_shifted_block(
    X: np.ndarray,
    first_row: int,
    row_scale: float,
    shift: np.ndarray,
    transposed_block: np.ndarray,
    unshifted_squared_norms: np.ndarray,
) -> None:
    """Write shifted rows, transposed, and their squared lengths.

    X: (all rows, features).
    first_row: index of the block's first row in X.
    row_scale: power of 2 by which rows are multiplied.
    shift: (features,) row that is subtracted.
    transposed_block: (features, rows of the block) float64, an output. Each column is
        row_scale · x − shift for a row x.
    unshifted_squared_norms: (rows of the block,), an output: squared lengths of row_scale · x,
        before the shift is subtracted.
    """
    unshifted_squared_norms[:] = 0.0
    for j in range(X.shape[1]):
        s = shift[j]
        for t in range(transposed_block.shape[1]):
            v = row_scale * X[first_row + t, j]
            unshifted_squared_norms[t] += v * v
            transposed_block[j, t] = v - s


@compiled(fastmath=FAST, forceinline=True)
def write_block_products(
    transposed_block: np.ndarray, basis_columns: np.ndarray, basis_products: np.ndarray, row_gram: np.ndarray
) -> None:
    """Write inner products of rows with basis columns and each other.

    All arrays are float64. The features are processed in tiles that fit into the processor's
    cache.

    transposed_block: (features, rows), the transposed rows of a block of dense rows.
    basis_columns: (features, k), k columns.
    basis_products: (rows, k), an output: inner products of the rows and the k columns.
    row_gram: (rows, rows), an output: inner products of the rows.
    """
    basis_products[:] = 0.0
    row_gram[:] = 0.0
    part, part_inner = np.empty(basis_products.shape), np.empty(row_gram.shape)
    for f in range(0, transposed_block.shape[0], TILE):
        tile = transposed_block[f : f + TILE]
        np.dot(tile.T, basis_columns[f : f + tile.shape[0]], part)
        np.dot(tile.T, tile, part_inner)
        for t in range(transposed_block.shape[1]):
            for k in range(basis_columns.shape[1]):
                basis_products[t, k] += part[t, k]
            for s in range(transposed_block.shape[1]):
                row_gram[t, s] += part_inner[t, s]


@compiled(fastmath=FAST, forceinline=True)
def add_block_to_basis(
    transposed_block: np.ndarray, basis_columns: np.ndarray, update_coefficients: np.ndarray
) -> None:
    """Add multiples of a block's rows to the basis columns.

    transposed_block: (features, rows), the transposed rows of a block of dense rows.
    basis_columns: (features, k), k columns, changed in place. Column j is increased by the sum of
        update_coefficients[t, j] times row t over all rows t of the block.
    update_coefficients: (rows, k).
    """
    part = np.empty((TILE, update_coefficients.shape[1]))
    for f in range(0, transposed_block.shape[0], TILE):
        size = min(TILE, transposed_block.shape[0] - f)
        np.dot(transposed_block[f : f + size], update_coefficients, part[:size])
        for j in range(size):
            for k in range(update_coefficients.shape[1]):
                basis_columns[f + j, k] += part[j, k]


@compiled(fastmath=FAST, forceinline=True)
def correct_products(
    basis_products: np.ndarray, row_gram: np.ndarray, update_coefficients: np.ndarray, row_in_block: int
) -> None:
    """Correct a row's inner products for earlier rows of its block.

    The k basis columns change with every row x_s of the block: column j is increased by x_s times
    update_coefficients[s, j]. But `basis_products` was computed with the columns as they were
    before the block. So the inner products of row t are corrected for the rows s before it.

    basis_products: (rows, k) inner products of the rows with the basis columns. Row t is changed.
    row_gram: (rows, rows) inner products of the rows of the block.
    update_coefficients: (rows, k).
    row_in_block: index t of the row in its block.
    """
    for s in range(row_in_block):
        for k in range(basis_products.shape[1]):
            basis_products[row_in_block, k] += row_gram[row_in_block, s] * update_coefficients[s, k]


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
def write_row_products(
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
