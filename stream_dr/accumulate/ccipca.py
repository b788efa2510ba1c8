"""CCIPCA, remembered: p vectors whose lengths are the eigenvalues, and the running mean [CCIPCA, section 2; MATH.md
section 6].

Row n, with u_1 = x − x̄(n) (x itself without centring), for each live component in order: `v_i ← (n−1−ℓ)/n v_i +
(1+ℓ)/n u_i (u_iᵀ v_i)/‖v_i‖`, then `u_{i+1} = u_i − (u_iᵀ v_i) v_i/‖v_i‖²`; ℓ counts as 0 while n ≤ ℓ + 1. The first
component not yet live takes the residual u as it is, if |u|² > 1e-10 |u_1|² and |u_1| > 64 eps |x|, and the row ends
there. The start v = u is not scale-free (v has the unit of x² afterwards); it is the paper's.

Every vector met on the way is a combination of the basis and x, so `learn_row` works on inner products and coefficients
alone: the residual carries its products with all current vectors (`residual`, first half), its coefficients in D's
columns (second half) and in x (`share`). Cost a row: O(nonzeros · (p + 1) + p (p + 1)). Memory 8 · d · (p + 1) bytes.

Why this way: see block_basis. A residual shorter than 1e-6 of the terms it is formed from is rounding in this form and
starts nothing, where the row-by-row form would still see 1e-14; dense rows are shifted first, so that it makes no
difference.
"""

from typing import Any, NamedTuple

import numpy as np

from stream_dr.accumulate.block_basis import BasisState, BlockBasis, Loops
from stream_dr.accumulate.coefficients import RESOLVED, TINY, measure, mirror, multiply, start, worn
from stream_dr.accumulate.compiled import compiled
from stream_dr.accumulate.row_products import (
    BLOCK,
    FAST,
    block_products,
    block_write,
    gather,
    scatter,
    settle,
    shift_rows,
)
from stream_dr.block import Block


class CCIPCAState(NamedTuple):
    """What CCIPCA remembers. `basis`: its vectors and, when centred, the sum of rows; the rest as every State has it."""

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Any, ...]
    basis: BasisState


class CCIPCAAccumulator:
    """The mutable side of CCIPCAState: one owner, rows in order, `add` checks everything before it writes."""

    rows_skipped = 0
    target_kind = None
    labels: tuple[Any, ...] = ()

    def __init__(self, components: int, amnesic: float, center: bool, state: CCIPCAState | None = None) -> None:
        self._amnesic = float(amnesic)
        self.rows = 0 if state is None else int(state.rows)
        self._basis = BlockBasis(components, int(center), bool(center), None if state is None else state.basis)

    @property
    def n_features(self) -> int:
        """Width so far."""
        return self._basis.features

    def add(self, block: Block) -> None:
        """Learn a batch of rows; targets are ignored. Raises InvalidWeights, WidthMismatch, InvalidRows."""
        self._basis.check(block, "CCIPCA")
        if block.rows:
            self._basis.start(block, shift=self._basis.centred)
            self._basis.learn(block.X, LOOPS, self.rows, self._amnesic)
            self.rows += block.rows

    def freeze(self) -> CCIPCAState:
        """The State so far; later adds do not change it. O(d p)."""
        return CCIPCAState(self.rows, 0, self.n_features, None, (), self._basis.freeze())


@compiled(fastmath=FAST)
def learn_row(products, squared, raw, row, table, counts, live, p, amnesic, residual, weights):  # type: ignore[no-untyped-def]
    """One row of the recurrence on inner products and coefficients.

    products (k,): Dᵀx. squared: |x − s|². raw: |x|². row: its number n. table: [Gram | M] of BlockBasis, changed in
    place. residual (2k,): scratch. weights (k,): filled with q, by which D ← D + x qᵀ. Returns the number of live
    components.
    """
    size = products.shape[0]
    weights[:] = 0.0
    multiply(table, products, live, residual)
    left, noise = squared, RESOLVED * squared
    centred = counts.shape[0] > 0
    if centred:
        noise += RESOLVED * table[p, p]
        left = centre(products, squared, row, table, counts, live, p, residual)
    first, share = left, 1.0
    ell = amnesic if row > amnesic + 1.0 else 0.0
    old, new = (row - 1.0 - ell) / row, (1.0 + ell) / row
    ended = False
    for i in range(live):
        length, along = table[i, i], residual[i]
        ended = ended or not length > 0.0
        keep, s, c = 1.0, 0.0, 0.0
        if not ended:
            keep, s = old, new * along / np.sqrt(length)
            length = old * old * length + s * (2.0 * old * along + s * left)
            along = old * along + s * left
            ended = not length > 0.0
            c = 0.0 if ended else along / length
        in_x = s * share - keep * (table[i, size + p] if centred else 0.0)
        in_x_of_basis = 0.0
        for j in range(2 * size):
            moved = keep * table[i, j] + s * residual[j]
            table[i, j] = moved
            residual[j] -= c * moved
        for j in range(size):
            in_x_of_basis += weights[j] * table[i, size + j]
        table[i, i], residual[i] = length, 0.0
        mirror(table, i, live, p, centred)
        weights[i] = (in_x - in_x_of_basis) / table[i, size + i]
        left = max(left - c * along, 0.0)
        share -= c * in_x
    if live < p and not ended and left > 1e-10 * first and first > TINY * raw and left > noise:
        start(table, residual, weights, live, left, share)
        mirror(table, live, live, p, centred)
        live += 1
    if centred:
        weights[p] = 1.0
    return live


@compiled(fastmath=FAST)
def centre(products, squared, row, table, counts, live, p, residual):  # type: ignore[no-untyped-def]
    """Learn the row's mean and turn `residual`, the row's products, into those of x − x̄(n); returns |x − x̄(n)|²."""
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
    return keep * keep * max(squared - 2.0 * on_mean + mean, 0.0)


@compiled(fastmath=FAST)
def learn_sparse(indptr, indices, values, at, before, columns, table, lengths, counts, live, turned, p, amnesic):  # type: ignore[no-untyped-def]
    """Learn sparse rows from `at` on; stops after a row that leaves M worn. See Loops."""
    size = columns.shape[1]
    products, weights, residual = np.empty(size), np.empty(size), np.empty(2 * size)
    for t in range(at, indptr.shape[0] - 1):
        row = before + t + 1
        squared = gather(indices, values, indptr[t], indptr[t + 1], columns, products)
        live = learn_row(products, squared, squared, row, table, counts, live, p, amnesic, residual, weights)
        scatter(indices, values, indptr[t], indptr[t + 1], columns, weights)
        measure(lengths[0], products, weights, squared)
        if worn(table, lengths[0], counts, p, live, row, turned, 64):
            return t + 1, live, True
    return indptr.shape[0] - 1, live, False


@compiled(fastmath=FAST)
def learn_dense(X, shift, at, before, columns, table, lengths, counts, live, turned, p, amnesic):  # type: ignore[no-untyped-def]
    """Learn dense rows from `at` on, a block at a time; stops after a row that leaves M worn. See Loops."""
    size = columns.shape[1]
    residual = np.empty(2 * size)
    whole = np.empty((X.shape[1], min(BLOCK, X.shape[0])))
    while at < X.shape[0]:
        rows = min(BLOCK, X.shape[0] - at)
        products, inner, raw = np.empty((rows, size)), np.empty((rows, rows)), np.empty(rows)
        weights, due, done = np.empty((rows, size)), False, 0
        block = whole if rows == BLOCK else np.empty((X.shape[1], rows))
        shift_rows(X, at, shift, block, raw)
        block_products(block, columns, products, inner)
        while done < rows and not due:
            row, t = before + at + done + 1, done
            settle(products, inner, weights, t)
            live = learn_row(
                products[t], inner[t, t], raw[t], row, table, counts, live, p, amnesic, residual, weights[t]
            )
            measure(lengths[0], products[t], weights[t], inner[t, t])
            due = worn(table, lengths[0], counts, p, live, row, turned, 8)
            done += 1
        weights[done:] = 0.0
        block_write(block, columns, weights)
        at += done
        if due:
            return at, live, True
    return at, live, False


LOOPS = Loops(learn_sparse, learn_dense)
