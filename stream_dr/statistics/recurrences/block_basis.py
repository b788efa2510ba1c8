"""BlockBasis: the few long vectors of a recurrence, stored as A = D·M.

CCIPCA and incremental SKM move p vectors v_i and c means by combinations of each other and of the
newest row x, A ← A·L + x rᵀ with L upper triangular. On D and M this is `M ← M·L` and
`D ← D + x (M⁻ᵀ r)ᵀ`. The part of length d touches only the row's features, and the rest has the
size of p + c. So a sparse row costs what the two products X·V and Xᵀ·C cost.

The basis stores

- D (d, p + c) float64, whose columns of means are plain sums of rows,
- M (p, p + c), whose row i has the coefficients of v_i,
- the Gram matrix of the current vectors, so that Dᵀx is the only inner product ever computed,
- the squared lengths of D's columns,
- the shift of dense rows.

Rows are learned one after the other. The result is therefore the same for any batches, to the bit
if rows are sparse, and within rounding if they are dense.

D is re-multiplied (D ← D·M, M ← I, a new Gram matrix) once M is worn. This is so if

- the stream has grown 64-fold, or 8-fold for dense rows, whose shift then moves to the mean,
- 262,144 rows have come since the last time,
- a diagonal entry of M falls below 1e-8,
- a vector is 1e4 times shorter than the terms it is summed from,
- in the first 2,048 rows, a residual's squared length has fallen 1e3-fold on its way down. Its
  inner products then have three digits less than the vectors, and without a new Gram matrix the
  loss would stay.

The rule depends on the state and the row number alone, never on batches. Re-multiplying costs
O(d p (p + c)), a few times a stream, and some dozen times if residuals are short.

A state holds D and M as they are, so continuing from a snapshot is bit-equal to never having
stopped.
"""

import numpy as np

from stream_dr.compiled import readonly
from stream_dr.errors import CannotMerge, InvalidRows, InvalidWeights, width_mismatch
from stream_dr.rows.block import Block, Rows, check_rows
from stream_dr.statistics.aligned import aligned_zeros
from stream_dr.statistics.recurrences.basis_state import BasisState
from stream_dr.statistics.recurrences.coefficients import TOO_LONG, WORN
from stream_dr.statistics.recurrences.loops import learn_dense, learn_sparse

MOST_COMPONENTS = 2_000
"""Maximum number of components of a recurrence.

A row costs their square, and so does the table.
"""


class BlockBasis:
    """The mutable basis of p components and a growing number of means.

    It has one owner. Kernels write into its arrays.

    Attributes
    ----------
    columns : (capacity, padded)
        D.
    table : (padded, 2 · padded)
        Row i is [Gram row i | M row i].
    lengths : (2, padded)
    counts : (means,)
    shift : (features,) or None
    live, turned : int
        As in BasisState.
    centred : bool
        True if the one mean is that of all rows, so that the shift of dense rows may follow it.
    """

    def __init__(self, components: int, means: int, centred: bool = False, state: BasisState | None = None) -> None:
        self.components = components
        self.centred = centred
        self.features = 0
        self.shift: np.ndarray | None = None
        self.live = 0
        self.turned = 0
        self.unit = 1.0
        self.counts: np.ndarray = np.zeros(means)
        self.columns: np.ndarray
        self.table: np.ndarray
        self.lengths: np.ndarray
        self._allocate(0)
        if state is not None:
            self._restore(state)

    @property
    def means(self) -> int:
        """Number of means stored."""
        return len(self.counts)

    @property
    def dense(self) -> bool | None:
        """True if rows are dense. None before the first batch."""
        return self.shift is not None if self.features else None

    def grow(self, features: int, means: int | None = None) -> None:
        """Make room for at least `features` features and `means` means.

        Capacity doubles. New entries are zero.
        """
        if means is not None and means > self.means:
            self._add_means(means)
        if features > self.features:
            if features > len(self.columns):
                columns = aligned_zeros(max(features, 2 * self.features), self.columns.shape[1])
                columns[: self.features] = self.columns[: self.features]
                self.columns = columns
            self.features = features

    def turn(self, row: int) -> None:
        """Re-multiply: D ← D·M, M ← I, with a new Gram matrix and lengths.

        A shift that follows the mean moves to it.
        """
        p, k, size = self.components, self.components + self.means, self.columns.shape[1]
        follow = self.centred and self.shift is not None
        if follow:
            self.shift += self.columns[: self.features, p] / max(self.counts[0], 1.0)
        mixing = self.table[:p, size : size + k].copy()
        mixing[self.live :] = 0.0
        scale = np.concatenate([np.ones(p), 1.0 / np.maximum(self.counts, 1.0)])

        # Some thousand features at a time, to bound the temporary memory.
        gram = np.zeros((k, k))
        for start in range(0, self.features, 4096):
            part = self.columns[start : min(start + 4096, self.features), :k]
            part[:, :p] = part @ mixing.T
            if follow:
                part[:, p] = 0.0
            vectors = part * scale
            gram += vectors.T @ vectors

        self._set_small(gram, np.eye(p, k), np.tile(np.diag(gram), (2, 1)))
        self.turned = row
        self._drop_zeros()

    def check(self, block: Block, method: str) -> None:
        """Raise an error if the recurrence cannot learn this batch.

        InvalidWeights, InvalidRows, InvalidIndex, NotFinite or WidthMismatch.
        """
        check_rows(block)
        if block.weights is not None:
            raise InvalidWeights(
                f"the batch has weights; {method} is a recurrence that learns one row after the other and takes none. "
                "Leave them out, or use an additive estimator (PCA, SKM)."
            )
        if self.dense is None or block.features == 0:
            return
        if block.sparse == self.dense:
            form, other = ("sparse", "dense") if block.sparse else ("dense", "sparse")
            raise InvalidRows(f"rows are {form}; this model was started with {other} rows. Pass {other} rows.")
        if self.dense and block.features != self.features:
            raise width_mismatch(block.features, self.features)

    def start(self, block: Block, shift: bool) -> None:
        """Make room for a checked batch.

        The first batch decides the form of rows. With `shift` the first dense row becomes the
        shift.
        """
        if self.dense is None and not block.sparse:
            self.shift = block.X[0].astype(np.float64) * self.unit if shift else np.zeros(block.features)
        self.grow(block.features)

    def learn(self, X: Rows, row: int, a: float, variance: np.ndarray | None, labels: np.ndarray | None) -> None:
        """Learn rows X, which follow `row` rows learned before.

        Re-multiplies when the loop stops for that. a, variance, labels (rows,): see loops.
        """
        if self.dense:
            rows: tuple[np.ndarray | None, ...] = (readonly(X), self.shift)
        else:
            rows = tuple(readonly(part) for part in (_as_int32(X.indptr), _as_int32(X.indices), X.data))
        loop, at = learn_dense if self.dense else learn_sparse, 0
        while at < X.shape[0]:
            small = (self.columns, self.table, self.lengths, self.counts)
            settings = (self.live, self.turned, self.components, self.unit)
            at, self.live, why = loop(*rows, at, row, *small, *settings, a, variance, labels)
            if why == WORN:
                self.turn(row + at)
            elif why == TOO_LONG:
                self._change_unit(float(abs(X[at]).max()) * self.unit)

    def freeze(self) -> BasisState:
        """Return the state so far, copied. Later rows do not change it."""
        p, k, size = self.components, self.components + self.means, self.columns.shape[1]
        return BasisState(
            columns=self.columns[: self.features, :k].copy(),
            mixing=self.table[:p, size : size + k].copy(),
            gram=self.table[:k, :k].copy(),
            lengths=self.lengths[:, :p].copy(),
            shift=None if self.shift is None else self.shift.copy(),
            counts=self.counts.copy(),
            live=self.live,
            turned=self.turned,
            unit=self.unit,
        )

    def _change_unit(self, largest: float) -> None:
        """Shrink the unit to keep entries at most 2^100.

        Entries are those of the row and the shift.

        largest: the row's largest entry, in the old unit. This is exact, since all factors are
        powers of 2.
        """
        largest = largest if self.shift is None else max(largest, float(abs(self.shift).max(initial=0.0)))
        factor = 2.0 ** (100 - np.ceil(np.log2(largest)))
        p, size = self.components, self.columns.shape[1]
        power = np.where(np.arange(size) < p, factor**2, factor)
        self.columns *= power
        self.table[:, :size] *= np.outer(power, power)
        self.table[:p, size + p :] *= factor
        self.lengths *= factor**4
        if self.shift is not None:
            self.shift *= factor
        self.unit *= factor

    def _drop_zeros(self) -> None:
        """Drop vectors that a re-multiplication has made zero.

        Those after them move up.
        """
        nonzero = np.flatnonzero(np.diag(self.table)[: self.live] > 0.0)
        if len(nonzero) == self.live:
            return
        p, size = self.components, self.columns.shape[1]
        order = np.concatenate([nonzero, np.setdiff1d(np.arange(p), nonzero), np.arange(p, size)])
        self.columns[:] = self.columns[:, order]
        self.table[:, :size] = self.table[:, :size][np.ix_(order, order)]
        self.lengths[:] = self.lengths[:, order]
        self.live = len(nonzero)

    def _restore(self, state: BasisState) -> None:
        if state.mixing.shape != (self.components, self.components + self.means):
            raise CannotMerge(
                f"this state has {len(state.mixing)} components and {len(state.counts)} means, not {self.components} and "
                f"{self.means}."
            )
        self.counts = np.array(state.counts)
        self._allocate(len(state.columns))
        self.features = len(state.columns)
        self.columns[:, : state.columns.shape[1]] = state.columns
        self._set_small(state.gram, state.mixing, state.lengths)
        self.shift = None if state.shift is None else np.array(state.shift)
        self.live, self.turned, self.unit = int(state.live), int(state.turned), float(state.unit)

    def _allocate(self, capacity: int) -> None:
        size = _padded(self.components + self.means)
        self.columns = aligned_zeros(capacity, size)
        self.table = np.zeros((size, 2 * size))
        self.lengths = np.zeros((2, size))
        for i in range(self.components):
            self.table[i, size + i] = 1.0

    def _set_small(self, gram: np.ndarray, mixing: np.ndarray, lengths: np.ndarray) -> None:
        p, k, size = self.components, len(gram), self.columns.shape[1]
        self.table[:] = 0.0
        self.table[:k, :k] = gram
        self.table[:p, size : size + k] = mixing
        self.lengths[:] = 0.0
        self.lengths[:, :p] = lengths[:, :p]

    def _add_means(self, means: int) -> None:
        old, k = self.columns.shape[1], self.components + self.means
        columns, table, lengths = self.columns, self.table, self.lengths
        self.counts = np.concatenate([self.counts, np.zeros(means - self.means)])
        if self.components + means <= old:
            return
        self._allocate(len(columns))
        self.columns[: self.features, :k] = columns[: self.features, :k]
        self._set_small(table[:k, :k], table[: self.components, old : old + k], lengths)


def basis_bytes(features: int, components: int, means: int) -> int:
    """Return the bytes a basis takes: D, and a table of two squares."""
    size = _padded(components + means)
    return 8 * size * (features + 2 * size)


def _padded(columns: int) -> int:
    return -(-columns // 8) * 8


def _as_int32(indices: np.ndarray) -> np.ndarray:
    return indices.astype(np.int32, copy=False)
