"""Loops over sparse or dense rows, for CCIPCA and incremental SKM.

A loop uses the features of each row twice: first for inner products with the basis columns D, and
at the end to add the row to D. The two loops have the following arguments.

at: number of rows of the batch to skip.
before: number of rows learned before the batch.
basis: the arrays `columns`, `table`, `lengths` and `counts` of the BlockBasis, changed in place.
live: number of vectors so far.
turned: number of the row at which D was last replaced by D·M.
settings: largest number of vectors, power of 2 by which rows are multiplied, and the parameters
    `amnesic` and `a` of BlockBasis.learn.
variance: (1,) mean squared length of rows for CCIPCA. None for incremental SKM.
labels: (rows,) int64 classes for incremental SKM. None for CCIPCA.

A loop stops early if digits are lost, or if the next row is too long. It returns the number of
rows of the batch that are learned or skipped, the number of vectors so far, and the reason why it
stopped: GOES_ON, WORN or TOO_LONG.

`basis` and `settings` are plain tuples, because numba needs 1 µs more for a named tuple.

The two methods call different functions for a row. numba omits a call from a compiled loop if the
condition of the call is that an argument is not None, and the argument is None. So `variance` is
None for incremental SKM, and `labels` is None for CCIPCA. The function for a row is not an
argument, because numba would then compile the loop again in every process.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.ccipca_row import learn_ccipca_row, update_mean_squared_length
from stream_dr.statistics.recurrences.row_products import (
    BLOCK,
    FAST,
    GOES_ON,
    HUGE,
    LOST,
    TOO_LONG,
    WORN,
    add_block_to_basis,
    add_row_to_basis,
    correct_products,
    needs_basis_refresh,
    update_squared_lengths,
    write_block_products,
    write_shifted_block,
    write_sparse_row_products,
)
from stream_dr.statistics.recurrences.skm_row import learn_skm_row

Arrays = tuple[np.ndarray, ...]
Settings = tuple[int, float, float, float]


@compiled(fastmath=FAST)
def learn_sparse_rows(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, at: int, before: int, basis: Arrays,
    live: int, turned: int, settings: Settings, variance: np.ndarray | None, labels: np.ndarray | None,
) -> tuple[int, int, int]:  # fmt: skip
    """Learn sparse rows of a batch, from row `at` on.

    The module's docstring lists the other parameters.

    indptr: (rows + 1,) int32, start of each CSR row in `indices` and `values`.
    indices, values: (entries,) int32 and float64, feature and value of each entry of the CSR rows.
    """
    columns, table, lengths, counts = basis
    p, unit, amnesic, a = settings
    size, c = columns.shape[1], counts.shape[0]
    products, weights = np.empty(size), np.empty(size)
    working, space = np.empty((c + 1, 2 * size)), np.empty((c + 5, c + 1))
    worst, deflated = 1.0, 1.0

    for t in range(at, indptr.shape[0] - 1):
        # Compute the inner products of row t with the basis columns.
        row = before + t + 1
        squared = write_sparse_row_products(indices, values, indptr[t], indptr[t + 1], unit, columns, products)
        if squared > HUGE:
            return t, live, TOO_LONG

        # Update the vectors of the method (the components) from these inner products alone.
        if variance is None:
            if labels is not None:
                live, worst, deflated = learn_skm_row(
                    products, squared, row, labels[t], table, lengths[1], counts, live, p, unit, a, amnesic, working,
                    space, weights,
                )  # fmt: skip
        else:
            live, deflated, remaining = learn_ccipca_row(
                products, squared, squared, row, table, counts, live, p, unit, amnesic, working[0], weights
            )
            update_mean_squared_length(variance, remaining, row, unit, amnesic)

        # Add multiples of row t, given by `weights`, to the basis columns.
        add_row_to_basis(indices, values, indptr[t], indptr[t + 1], unit, columns, weights)
        update_squared_lengths(lengths[0], products, weights, squared)
        if worst > LOST or needs_basis_refresh(table, lengths[0], counts, p, live, row, turned, 64, deflated):
            return t + 1, live, WORN
    return indptr.shape[0] - 1, live, GOES_ON


@compiled(fastmath=FAST)
def learn_dense_rows(
    X: np.ndarray, shift: np.ndarray, at: int, before: int, basis: Arrays,
    live: int, turned: int, settings: Settings, variance: np.ndarray | None, labels: np.ndarray | None,
) -> tuple[int, int, int]:  # fmt: skip
    """Learn dense rows of a batch, from row `at` on.

    The module's docstring lists the other parameters.

    X: (rows, features) float64.
    shift: (features,) row that is subtracted from all rows.
    """
    columns, table, lengths, counts = basis
    p, unit, amnesic, a = settings
    size, c = columns.shape[1], counts.shape[0]
    working, space = np.empty((c + 1, 2 * size)), np.empty((c + 5, c + 1))
    whole = np.empty((X.shape[1], min(BLOCK, X.shape[0])))
    worst, deflated = 1.0, 1.0
    while at < X.shape[0]:
        # Compute the inner products of a block of rows with the basis columns and with each other.
        rows = min(BLOCK, X.shape[0] - at)
        products, inner, raw = np.empty((rows, size)), np.empty((rows, rows)), np.empty(rows)
        weights, why, done = np.empty((rows, size)), GOES_ON, 0
        block = whole if rows == BLOCK else np.empty((X.shape[1], rows))
        write_shifted_block(X, at, unit, shift, block, raw)
        write_block_products(block, columns, products, inner)

        # Learn the rows of the block one after the other, from their inner products alone.
        while done < rows and why == GOES_ON:
            row, t = before + at + done + 1, done
            if inner[t, t] > HUGE:
                why = TOO_LONG
                break
            correct_products(products, inner, weights, t)
            x, q, squared = products[t], weights[t], inner[t, t]
            if variance is None:
                if labels is not None:
                    live, worst, deflated = learn_skm_row(
                        x, squared, row, labels[at + t], table, lengths[1], counts, live, p, unit, a, amnesic, working,
                        space, q,
                    )  # fmt: skip
            else:
                live, deflated, remaining = learn_ccipca_row(
                    x, squared, raw[t], row, table, counts, live, p, unit, amnesic, working[0], q
                )
                update_mean_squared_length(variance, remaining, row, unit, amnesic)
            update_squared_lengths(lengths[0], x, q, squared)
            # Rounding errors are removed once the number of rows has grown by the factor `growth`.
            # CCIPCA has a smaller factor, because its rows are also centred on a newer mean then.
            growth = 64 if variance is None else 8
            if worst > LOST or needs_basis_refresh(table, lengths[0], counts, p, live, row, turned, growth, deflated):
                why = WORN
            done += 1

        # Add multiples of the learned rows, given by `weights`, to the basis columns.
        weights[done:] = 0.0
        add_block_to_basis(block, columns, weights)
        at += done
        if why != GOES_ON:
            return at, live, why
    return at, live, GOES_ON
