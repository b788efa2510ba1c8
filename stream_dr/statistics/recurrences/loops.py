"""Loops over sparse and over dense rows, for both recurrences.

They touch features twice a row, before its step on inner products and coefficients, and after it.
Both loops have these arguments, where k = p + c columns are padded:

at: number of rows of the batch to skip.
before: number of rows learned before the batch.
columns: (capacity, k), D.
table: (k, 2k), [Gram | M].
lengths: (2, k), squared lengths of D's columns, and the terms of the Gram diagonal.
counts: (c,), rows in each mean.
live: number of vectors started, of `p`.
turned: row number of the last re-multiplication.
unit: power of 2 that rows are multiplied by.
a: parameter `a` of incremental SKM, or `amnesic` of CCIPCA.
variance: (1,) of CCIPCA. None for incremental SKM.
labels: (rows,) int64, classes of incremental SKM. None for CCIPCA.

The methods differ in one row's step. numba leaves out a branch only if an argument that is None
decides it. So each method has such an argument, since otherwise every loop would be compiled with
both steps. A loop that took its step as an argument would be compiled anew in every process.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.ccipca_row import average_variance, ccipca_row
from stream_dr.statistics.recurrences.coefficients import (
    GOES_ON,
    HUGE,
    LOST,
    TOO_LONG,
    WORN,
    needs_turn,
    update_lengths,
)
from stream_dr.statistics.recurrences.row_products import (
    BLOCK,
    FAST,
    add_block,
    block_products,
    gather_products,
    scatter_row,
    settle_products,
    shift_rows,
)
from stream_dr.statistics.recurrences.skm_row import skm_row


@compiled(fastmath=FAST)
def learn_sparse(  # type: ignore[no-untyped-def]
    indptr, indices, values, at, before, columns, table, lengths, counts, live, turned, p, unit, a, variance, labels
):
    """Learn sparse rows from row `at` on.

    Returns the number of rows learned, of live components, and the reason why it stopped.

    indptr: (rows + 1,) int32.
    indices, values: (entries,).
    """
    size, c = columns.shape[1], counts.shape[0]
    products, weights = np.empty(size), np.empty(size)
    working, space = np.empty((c + 1, 2 * size)), np.empty((c + 5, c + 1))
    worst, deflated = 1.0, 1.0

    for t in range(at, indptr.shape[0] - 1):
        row = before + t + 1
        squared = gather_products(indices, values, indptr[t], indptr[t + 1], unit, columns, products)
        if squared > HUGE:
            return t, live, TOO_LONG
        if variance is None:
            if labels is not None:
                live, worst, deflated = skm_row(
                    products, squared, row, labels[t], table, lengths[1], counts, live, p, unit, a, working, space,
                    weights,
                )  # fmt: skip
        else:
            live, deflated, remaining = ccipca_row(
                products, squared, squared, row, table, counts, live, p, unit, a, working[0], weights
            )
            average_variance(variance, remaining, row, unit, a)
        scatter_row(indices, values, indptr[t], indptr[t + 1], unit, columns, weights)
        update_lengths(lengths[0], products, weights, squared)
        if worst > LOST or needs_turn(table, lengths[0], counts, p, live, row, turned, 64, deflated):
            return t + 1, live, WORN
    return indptr.shape[0] - 1, live, GOES_ON


@compiled(fastmath=FAST)
def learn_dense(  # type: ignore[no-untyped-def]
    X, shift, at, before, columns, table, lengths, counts, live, turned, p, unit, a, variance, labels
):
    """Learn dense rows from row `at` on, in blocks.

    Returns the number of rows learned, of live components, and the reason why it stopped.

    X: (rows, features).
    shift: (features,), subtracted from the rows.
    """
    size, c = columns.shape[1], counts.shape[0]
    working, space = np.empty((c + 1, 2 * size)), np.empty((c + 5, c + 1))
    whole = np.empty((X.shape[1], min(BLOCK, X.shape[0])))
    worst, deflated = 1.0, 1.0
    while at < X.shape[0]:
        rows = min(BLOCK, X.shape[0] - at)
        products, inner, raw = np.empty((rows, size)), np.empty((rows, rows)), np.empty(rows)
        weights, why, done = np.empty((rows, size)), GOES_ON, 0
        block = whole if rows == BLOCK else np.empty((X.shape[1], rows))
        shift_rows(X, at, unit, shift, block, raw)
        block_products(block, columns, products, inner)

        while done < rows and why == GOES_ON:
            row, t = before + at + done + 1, done
            if inner[t, t] > HUGE:
                why = TOO_LONG
                break
            settle_products(products, inner, weights, t)
            x, q, squared = products[t], weights[t], inner[t, t]
            if variance is None:
                if labels is not None:
                    live, worst, deflated = skm_row(
                        x, squared, row, labels[at + t], table, lengths[1], counts, live, p, unit, a, working, space, q
                    )
            else:
                live, deflated, remaining = ccipca_row(
                    x, squared, raw[t], row, table, counts, live, p, unit, a, working[0], q
                )
                average_variance(variance, remaining, row, unit, a)
            update_lengths(lengths[0], x, q, squared)
            growth = 64 if variance is None else 8  # CCIPCA's shift moves to the mean
            if worst > LOST or needs_turn(table, lengths[0], counts, p, live, row, turned, growth, deflated):
                why = WORN
            done += 1

        weights[done:] = 0.0
        add_block(block, columns, weights)
        at += done
        if why != GOES_ON:
            return at, live, why
    return at, live, GOES_ON
