"""Incremental SKM, remembered: p vectors whose lengths are the eigenvalues, and sum and count of rows per class [SKM,
eq. 22, 23; MATH.md section 6].

Row n of class l, after the count and the mean of l, with u_1 = x and m_1j the class means, for each live component in
order: `v_i ← (n−1)/n v_i + 1/n Σ_j q_j (u_i − m_ij)(u_i − m_ij)ᵀ v_i/‖v_i‖`, q_j = n_j/n − a·[j = l]; then u and every
m_j lose their part along v_i. (Eq. 23 deflates the sample alone; u − m_j would then not be the deflated difference,
hence both.) Components start as in CCIPCA: the first one not yet live takes the residual u, if |u|² > 1e-10 |u_1|², and
the row ends there. Dense rows are shifted by the first row learned, which changes no difference and keeps a far-off
origin out of the start; sparse rows are not.

`learn_row` works on inner products and coefficients: row 0 of `working` is u, row j + 1 the mean of class j, each with
its products with all current vectors, its coefficients in D's columns and its share of x; `inner` holds their products
with each other. Cost a row: O(nonzeros · (p + c) + p (c + 1)(p + c)). Memory 8 · d · (p + c) bytes.

Why this way: see block_basis. A class that comes late gets a column of its own in mid-stream; one without rows has no
weight.
"""

from typing import Any, NamedTuple

import numpy as np

from stream_dr.accumulate.block_basis import BasisState, BlockBasis, Loops
from stream_dr.accumulate.coefficients import LOST, RESOLVED, measure, mirror, multiply, start, worn
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
from stream_dr.targets import Targets, check_label_type, labelled_rows, refuse_kind


class SKMState(NamedTuple):
    """What incremental SKM remembers. `basis`: its vectors and the sums and counts of rows by class, in `labels`'
    order."""

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Any, ...]
    basis: BasisState


class SKMAccumulator:
    """The mutable side of SKMState: one owner, rows in order, `add` checks everything before it writes."""

    def __init__(self, components: int, a: float, state: SKMState | None = None) -> None:
        self._a = float(a)
        self.rows = 0 if state is None else int(state.rows)
        self.rows_skipped = 0 if state is None else int(state.rows_skipped)
        self.target_kind = None if state is None else state.target_kind
        self.labels: tuple[Any, ...] = () if state is None else tuple(state.labels)
        self._basis = BlockBasis(components, len(self.labels), state=None if state is None else state.basis)

    @property
    def n_features(self) -> int:
        """Width so far."""
        return self._basis.features

    def add(self, block: Block) -> None:
        """Learn a batch; rows without a target are skipped and counted.

        Raises InvalidWeights, WidthMismatch, InvalidRows, TargetKindMismatch or InvalidTargets.
        """
        self._basis.check(block, "IncrementalSKM")
        if block.y is not None:
            self._check_targets(block.y)
        known, skipped = labelled_rows(block)
        if known.rows:
            self.target_kind = "class"
            codes = self._codes(known.y)
            self._basis.start(known, shift=True)
            self._basis.grow(known.features, len(self.labels))
            self._basis.learn(known.X, LOOPS, self.rows, self._a, codes)
            self.rows += known.rows
        self.rows_skipped += skipped

    def freeze(self) -> SKMState:
        """The State so far; later adds do not change it. O(d (p + c))."""
        return SKMState(
            self.rows, self.rows_skipped, self.n_features, self.target_kind, self.labels, self._basis.freeze()
        )

    def _check_targets(self, targets: Targets) -> None:
        if targets.kind != "class":
            refuse_kind(targets.kind, ("class",))
        check_label_type(self.labels, targets.labels)

    def _codes(self, targets: Targets) -> np.ndarray:
        """The rows' classes (rows,) as columns of this state; labels not met before are added in order of appearance."""
        place = {label: i for i, label in enumerate(self.labels)}
        if any(label not in place for label in targets.labels):
            used, first = np.unique(targets.codes, return_index=True)
            for code in used[np.argsort(first)]:
                place.setdefault(targets.labels[code], len(place))
            self.labels = tuple(place)
        table = np.array([place.get(label, -1) for label in targets.labels], dtype=np.int64)
        return table[targets.codes]


@compiled(fastmath=FAST)
def learn_row(  # type: ignore[no-untyped-def]
    products, squared, row, label, table, formed, counts, live, p, a, working, shares, inner, scratch, weights
):
    """One row of the recurrence on inner products and coefficients.

    products (k,): Dᵀx. squared: |x − s|². row: its number n. label: its class. table: [Gram | M] of BlockBasis and
    formed (k,), the size of the terms its diagonal was summed from: changed in place. working (c + 1, 2k),
    shares (c + 1,), inner (c + 1, c + 1), scratch (3, c + 1): scratch. weights (k,): filled with q, by which
    D ← D + x qᵀ. Returns the number of live components and the largest loss by cancellation.
    """
    size, c = products.shape[0], counts.shape[0]
    part, pull, turned = scratch[0], scratch[1], scratch[2]
    weights[:] = 0.0
    meet(products, squared, label, table, counts, live, p, working, shares, inner)
    first, worst, ended = inner[0, 0], 1.0, False
    for i in range(live):
        length, keep = table[i, i], 1.0
        ended = ended or not length > 0.0
        part[:] = turned[:] = 0.0
        if not ended:
            keep = (row - 1.0) / row
            scale = 1.0 / (np.sqrt(length) * row)
            for k in range(c):
                if counts[k] > 0.0:
                    q = counts[k] / row - (a if k == label else 0.0)
                    part[k + 1] = -q * (working[0, i] - working[k + 1, i]) * scale
                    part[0] -= part[k + 1]
            length, terms = stretch(working, inner, i, keep, length, part, pull)
            formed[i] = max(keep * keep * formed[i], terms)
            ended = not length > 0.0
            worst = max(worst, np.inf if ended else formed[i] / length)
            for k in range(c + 1):
                turned[k] = 0.0 if ended else pull[k] / length
        in_x = -keep * table[i, size + p + label]
        for j in range(2 * size):
            table[i, j] *= keep
        for k in range(c + 1):
            in_x += part[k] * shares[k]
            for j in range(2 * size):
                table[i, j] += part[k] * working[k, j]
        table[i, i] = length
        for k in range(c + 1):
            for j in range(2 * size):
                working[k, j] -= turned[k] * table[i, j]
            for j in range(c + 1):
                inner[k, j] -= turned[k] * pull[j]
            shares[k] -= turned[k] * in_x
            working[k, i] = 0.0
        mirror(table, i, live, p, c)
        for j in range(size):
            in_x -= weights[j] * table[i, size + j]
        weights[i] = in_x / table[i, size + i]
    left = inner[0, 0]
    if live < p and not ended and left > 1e-10 * first and left > RESOLVED * squared * worst:
        start(table, working[0], weights, live, left, shares[0])
        mirror(table, live, live, p, c)
        live += 1
    weights[p + label] = 1.0
    return live, worst


@compiled(fastmath=FAST)
def stretch(working, inner, i, keep, length, part, pull):  # type: ignore[no-untyped-def]
    """|v|² of v = keep · v_i + Σ part · working, and the size of the terms it is summed from; pull ← v · working."""
    squared = terms = along = 0.0
    for k in range(part.shape[0]):
        total = 0.0
        for j in range(part.shape[0]):
            total += inner[k, j] * part[j]
        pull[k] = keep * working[k, i] + total
        squared += total * part[k]
        terms += abs(total * part[k]) + 2.0 * abs(keep * part[k] * working[k, i])
        along += part[k] * working[k, i]
    return keep * keep * length + 2.0 * keep * along + squared, keep * keep * length + terms


@compiled(fastmath=FAST)
def meet(products, squared, label, table, counts, live, p, working, shares, inner):  # type: ignore[no-untyped-def]
    """Learn the row's class mean, and set up the working vectors u = x and m_j before any deflation."""
    size, c = products.shape[0], counts.shape[0]
    u, mean = working[0], p + label
    multiply(table, products, live, u)
    for k in range(c):
        u[p + k] = products[p + k] / max(counts[k], 1.0)
    counts[label] += 1.0
    new = 1.0 / counts[label]
    keep = 1.0 - new
    length = keep * keep * table[mean, mean] + new * (2.0 * keep * u[mean] + new * squared)
    for j in range(size):
        table[mean, j] = keep * table[mean, j] + new * u[j]
    table[mean, mean] = length
    u[mean] = keep * u[mean] + new * squared
    mirror(table, mean, live, p, c)
    inner[0, 0], shares[:] = squared, 0.0
    shares[0] = 1.0
    for k in range(c):
        working[k + 1] = 0.0
        if counts[k] > 0.0:
            working[k + 1, :size] = table[p + k, :size]
            working[k + 1, size + p + k] = 1.0 / counts[k]
        inner[0, k + 1] = inner[k + 1, 0] = u[p + k]
        for j in range(c):
            inner[k + 1, j + 1] = table[p + k, p + j]


@compiled(fastmath=FAST)
def learn_sparse(indptr, indices, values, at, before, columns, table, lengths, counts, live, turned, p, a, labels):  # type: ignore[no-untyped-def]
    """Learn sparse rows from `at` on; stops after a row that leaves M worn. See Loops."""
    size, c = columns.shape[1], counts.shape[0]
    products, weights, shares = np.empty(size), np.empty(size), np.empty(c + 1)
    working, inner, scratch = np.empty((c + 1, 2 * size)), np.empty((c + 1, c + 1)), np.empty((3, c + 1))
    for t in range(at, indptr.shape[0] - 1):
        row = before + t + 1
        squared = gather(indices, values, indptr[t], indptr[t + 1], columns, products)
        live, worst = learn_row(
            products,
            squared,
            row,
            labels[t],
            table,
            lengths[1],
            counts,
            live,
            p,
            a,
            working,
            shares,
            inner,
            scratch,
            weights,
        )
        scatter(indices, values, indptr[t], indptr[t + 1], columns, weights)
        measure(lengths[0], products, weights, squared)
        if worst > LOST or worn(table, lengths[0], counts, p, live, row, turned, 64):
            return t + 1, live, True
    return indptr.shape[0] - 1, live, False


@compiled(fastmath=FAST)
def learn_dense(X, shift, at, before, columns, table, lengths, counts, live, turned, p, a, labels):  # type: ignore[no-untyped-def]
    """Learn dense rows from `at` on, a block at a time; stops after a row that leaves M worn. See Loops."""
    size, c = columns.shape[1], counts.shape[0]
    shares = np.empty(c + 1)
    working, tied, scratch = np.empty((c + 1, 2 * size)), np.empty((c + 1, c + 1)), np.empty((3, c + 1))
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
            live, worst = learn_row(
                products[t], inner[t, t], row, labels[at + t], table, lengths[1], counts, live, p, a,
                working, shares, tied, scratch, weights[t],
            )  # fmt: skip
            measure(lengths[0], products[t], weights[t], inner[t, t])
            due = worst > LOST or worn(table, lengths[0], counts, p, live, row, turned, 64)
            done += 1
        weights[done:] = 0.0
        block_write(block, columns, weights)
        at += done
        if due:
            return at, live, True
    return at, live, False


LOOPS = Loops(learn_sparse, learn_dense)
