"""The loops over sparse and over dense rows, for both recurrences: features are touched twice a row, before its step on
inner products and coefficients, and after it.

labels: None for CCIPCA, (rows,) int64 classes for incremental SKM. variance: (1,) CCIPCA's, None for incremental SKM. a:
incremental SKM's parameter of that name, or CCIPCA's amnesic one.

Why this way: what differs between the methods is one row's step. Numba leaves a branch out where an argument that is None
decides it, and only there: hence one such argument for either method, or every loop would be compiled with both steps. A
loop that takes its step as an argument it would compile anew in every process.
"""

import numpy as np

from stream_dr.compiled import compiled
from stream_dr.statistics.recurrences.ccipca_row import average, ccipca_row
from stream_dr.statistics.recurrences.coefficients import GOES_ON, HUGE, LOST, TOO_LONG, WORN, measure, worn
from stream_dr.statistics.recurrences.row_products import (
    BLOCK,
    FAST,
    block_products,
    block_write,
    gather,
    scatter,
    settle,
    shift_rows,
)
from stream_dr.statistics.recurrences.skm_row import skm_row


@compiled(fastmath=FAST)
def learn_sparse(  # type: ignore[no-untyped-def]
    indptr, indices, values, at, before, columns, table, lengths, counts, live, turned, p, unit, a, variance, labels
):
    """Learn sparse rows from `at` on; rows done, components live, and why it stopped."""
    size, c = columns.shape[1], counts.shape[0]
    products, weights = np.empty(size), np.empty(size)
    working, space = np.empty((c + 1, 2 * size)), np.empty((c + 5, c + 1))
    worst, deflated = 1.0, 1.0

    for t in range(at, indptr.shape[0] - 1):
        row = before + t + 1
        squared = gather(indices, values, indptr[t], indptr[t + 1], unit, columns, products)
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
            average(variance, remaining, row, unit, a)
        scatter(indices, values, indptr[t], indptr[t + 1], unit, columns, weights)
        measure(lengths[0], products, weights, squared)
        if worst > LOST or worn(table, lengths[0], counts, p, live, row, turned, 64, deflated):
            return t + 1, live, WORN
    return indptr.shape[0] - 1, live, GOES_ON


@compiled(fastmath=FAST)
def learn_dense(  # type: ignore[no-untyped-def]
    X, shift, at, before, columns, table, lengths, counts, live, turned, p, unit, a, variance, labels
):
    """Learn dense rows from `at` on, a block at a time; rows done, components live, and why it stopped."""
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
            settle(products, inner, weights, t)
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
                average(variance, remaining, row, unit, a)
            measure(lengths[0], x, q, squared)
            growth = 64 if variance is None else 8  # CCIPCA's shift moves to the mean
            if worst > LOST or worn(table, lengths[0], counts, p, live, row, turned, growth, deflated):
                why = WORN
            done += 1

        weights[done:] = 0.0
        block_write(block, columns, weights)
        at += done
        if why != GOES_ON:
            return at, live, why
    return at, live, GOES_ON
