"""Loops of CCIPCA and incremental SKM over rows' features.

The vectors of both methods are stored as a product of basis columns D (features, k) and small
coefficients (block_basis.py). Each sparse row x is used twice. `write_sparse_row_products`
computes the inner products of x with the columns of D, and `add_sparse_row_to_basis` adds
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

numba does not notice if this file or coefficients.py changes after loops.py was compiled. After a
change, remove the `__pycache__` directories or touch loops.py.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.prefetch import prefetch

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
def add_sparse_row_to_basis(
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
def add_products_of_earlier_rows(
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
