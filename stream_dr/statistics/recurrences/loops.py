"""Loops over sparse or dense rows, for CCIPCA and incremental SKM.

A loop uses the features of each row twice: first for inner products with the basis columns D, and
at the end to add the row to D. The two loops have the following arguments, for p vectors, c means
and k columns of D (p + c, rounded up).

at: number of rows of the batch to skip.
before: number of rows learned before the batch.
columns: (capacity, k), the basis columns D.
table: (k, 2k), the Gram matrix, then the coefficients M (see BlockBasis).
lengths: (2, k), as in BasisState.
counts: (c,) number of rows in each mean.
live: number of vectors so far.
turned: number of the row at which D was last replaced by D·M.
p: largest number of vectors.
unit: power of 2 by which rows are multiplied.
amnesic: parameter of both methods, the additional weight of recent rows.
a: parameter of incremental SKM. The larger it is, the closer together are the projected rows of one
    class. 0 for CCIPCA.
variance: (1,) mean squared length of rows for CCIPCA. None for incremental SKM.
labels: (rows,) int64 classes for incremental SKM. None for CCIPCA.

The two methods call different functions for a row. numba omits a call from a compiled loop if the
condition of the call is that an argument is not None, and the argument is None. So `variance` is
None for incremental SKM, and `labels` is None for CCIPCA. The function for a row is not an
argument, because numba would then compile the loop again in every process.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.ccipca_row import learn_ccipca_row, update_mean_squared_length
from stream_dr.statistics.recurrences.coefficients import (
    GOES_ON,
    HUGE,
    LOST,
    TOO_LONG,
    WORN,
    needs_basis_refresh,
    update_squared_lengths,
)
from stream_dr.statistics.recurrences.row_products import (
    BLOCK,
    FAST,
    add_block_to_basis,
    add_products_of_earlier_rows,
    add_sparse_row_to_basis,
    write_block_products,
    write_shifted_block,
    write_sparse_row_products,
)
from stream_dr.statistics.recurrences.skm_row import learn_skm_row


class LoopEnd(NamedTuple):
    """Row of a batch at which a loop stopped, and the reason.

    Attributes
    ----------
    rows_learned : int
        Number of rows of the batch that are learned or skipped.
    n_vectors : int
        Number of vectors (components) so far.
    stop_reason : int
        Reason why the loop stopped: GOES_ON, WORN or TOO_LONG (coefficients.py).
    """

    rows_learned: int
    n_vectors: int
    stop_reason: int


@compiled(fastmath=FAST)
def learn_sparse_rows(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, at: int, before: int, columns: np.ndarray,
    table: np.ndarray, lengths: np.ndarray, counts: np.ndarray, live: int, turned: int, p: int, unit: float,
    amnesic: float, a: float, variance: np.ndarray | None, labels: np.ndarray | None,
) -> LoopEnd:  # fmt: skip
    """Learn sparse rows of a batch, from row `at` on.

    The loop stops early if digits are lost, or if the next row is too long. The module's docstring
    lists the other parameters.

    indptr: (rows + 1,) int32, start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    """
    size, c = columns.shape[1], counts.shape[0]
    products, weights = np.empty(size), np.empty(size)
    working, space = np.empty((c + 1, 2 * size)), np.empty((c + 5, c + 1))
    worst, deflated = 1.0, 1.0

    for t in range(at, indptr.shape[0] - 1):
        # Compute the inner products of row t with the basis columns.
        row = before + t + 1
        squared = write_sparse_row_products(indices, values, indptr[t], indptr[t + 1], unit, columns, products)
        if squared > HUGE:
            return LoopEnd(t, live, TOO_LONG)

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
        add_sparse_row_to_basis(indices, values, indptr[t], indptr[t + 1], unit, columns, weights)
        update_squared_lengths(lengths[0], products, weights, squared)
        if worst > LOST or needs_basis_refresh(table, lengths[0], counts, p, live, row, turned, 64, deflated):
            return LoopEnd(t + 1, live, WORN)
    return LoopEnd(indptr.shape[0] - 1, live, GOES_ON)


@compiled(fastmath=FAST)
def learn_dense_rows(
    X: np.ndarray, shift: np.ndarray, at: int, before: int, columns: np.ndarray, table: np.ndarray,
    lengths: np.ndarray, counts: np.ndarray, live: int, turned: int, p: int, unit: float,
    amnesic: float, a: float, variance: np.ndarray | None, labels: np.ndarray | None,
) -> LoopEnd:  # fmt: skip
    """Learn dense rows of a batch, from row `at` on.

    The loop stops early if digits are lost, or if the next row is too long. The module's docstring
    lists the other parameters.

    X: (rows, features).
    shift: (features,) row that is subtracted from all rows.
    """
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
            add_products_of_earlier_rows(products, inner, weights, t)
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
            return LoopEnd(at, live, why)
    return LoopEnd(at, live, GOES_ON)
