"""BlockBasis: the few long vectors of a recurrence, stored as a product of two factors.

CCIPCA and incremental SKM have p vectors v_i and c means. A new row x replaces each of them by a
combination of all of them and x. With all of them as the columns of a matrix A, this is A ← A·L +
x rᵀ. L is an upper triangular matrix, and r a vector of coefficients. With the factors A = D·M,
the same update is `M ← M·L` and `D ← D + x (M⁻ᵀ r)ᵀ`. So in the long columns of D only the row's
own features change. Everything else has the size p + c. A sparse row therefore costs what two
products of the row with p + c columns cost.

The basis stores

- D (d, p + c) float64 for d features, whose columns of means are plain sums of rows,
- M (p, p + c), whose row i has the coefficients of v_i in D's columns,
- the Gram matrix (inner products) of the current vectors, so that Dᵀx is the only inner product
  over features,
- the squared lengths of D's columns,
- the shift, a row that is subtracted from dense rows.

Rows are learned one after the other. So the result does not depend on the batches: to the last bit
for sparse rows, and within rounding for dense rows.

From time to time D is multiplied out (D ← D·M, M ← I, a new Gram matrix), because M and the Gram
matrix lose digits. This happens when

- the stream has grown 64-fold since the last time, or 8-fold for dense rows of CCIPCA, whose shift
  then moves to the mean,
- 262,144 rows have come since the last time,
- a diagonal entry of M falls below 1e-8,
- a vector is 1e4 times shorter than the terms whose sum it is,
- a row among the first 2,048 lost all but 1/1000 of its squared length when the parts along the
  vectors were taken off. Inner products of the remainder then have three digits less than the
  vectors, and would stay so without a new Gram matrix.

The rule depends on the state and the row number alone, never on batches. Multiplying out costs O(d
p (p + c)). It happens a few times in a stream, and some dozen times if remainders are short.

A state holds D and M themselves. So a recurrence that continues from a snapshot is bit-equal to
one that never stopped.
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
"""Largest number of components of a recurrence.

The time for a row, and the memory of the coefficients, grow with the square of this number.
"""


class BlockBasis:
    """Mutable basis of p vectors and a growing number of means.

    The vectors are the components of a recurrence over rows. They are stored as the product of
    long columns D and a small matrix M of coefficients. The basis has one owner. Compiled loops
    write into its arrays. `padded` is p plus the number of means, rounded up to a multiple of 8.

    Attributes
    ----------
    columns : (capacity, padded)
        D, of which the first `features` rows are in use.
    table : (padded, 2 · padded)
        Row i is row i of the Gram matrix (inner products of the vectors and means), then row i of
        M.
    lengths : (2, padded)
        As in BasisState, then zeros.
    counts : (means,)
        Number of rows in each mean.
    shift : (features,) or None
        Row that is subtracted from dense rows.
    live : int
        Number of vectors so far.
    turned : int
        Number of the row at which D was last replaced by the vectors, and M by the identity.
    centred : bool
        True if the single mean is the mean of all rows. `shift` may then be replaced by this mean.
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

        The capacity for features doubles. New entries are zero.
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
        """Replace the factors of the basis by their product and the identity.

        The vectors are stored as the product of D (columns of the basis) and M (coefficients). D
        becomes D·M and M becomes the identity, which removes rounding errors. The Gram matrix and
        the lengths are computed again. If the basis is `centred`, `shift` is replaced by the mean
        of the rows.

        row: number of rows learned so far.
        """
        p, k, size = self.components, self.components + self.means, self.columns.shape[1]
        follow = self.centred and self.shift is not None
        if follow:
            self.shift += self.columns[: self.features, p] / max(self.counts[0], 1.0)
        mixing = self.table[:p, size : size + k].copy()
        mixing[self.live :] = 0.0
        scale = np.concatenate([np.ones(p), 1.0 / np.maximum(self.counts, 1.0)])

        # Only some thousand features at a time are used, to bound the temporary memory.
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

        The error is InvalidWeights, InvalidRows, InvalidIndex, NotFinite or WidthMismatch.

        method: name of the recurrence in messages.
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

        The first batch decides whether rows are dense or sparse.

        shift: if true, the first dense row is stored and subtracted from all dense rows.
        """
        if self.dense is None and not block.sparse:
            self.shift = block.X[0].astype(np.float64) * self.unit if shift else np.zeros(block.features)
        self.grow(block.features)

    def learn(self, X: Rows, row: int, a: float, variance: np.ndarray | None, labels: np.ndarray | None) -> None:
        """Learn the rows X, one after the other.

        The compiled loop stops when D must be replaced by D·M (see `turn`) or when rows must be
        multiplied by a smaller power of 2. This method does either and calls the loop again.

        X: (rows, features), dense or CSR.
        row: number of rows learned before.
        a: parameter `a` of incremental SKM, or `amnesic` of CCIPCA.
        variance: (1,) mean squared length of rows in CCIPCA. None for incremental SKM.
        labels: (rows,) classes for incremental SKM. None for CCIPCA.
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
        """Return a copy of the state so far, which later rows do not change."""
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
        """Shrink `unit`, the power of 2 that rows are multiplied by.

        Entries of the next row, and of the row that is subtracted from dense rows, then stay below
        2^100. All stored arrays are multiplied by powers of 2, so no digit is lost.

        largest: largest entry of the next row, multiplied by the old unit.
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
        """Drop vectors that are zero, and move the vectors after them up.

        A vector may become zero when its value is computed as D·M from the stored factors.
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
    """Return the number of bytes of the arrays of a BlockBasis.

    components: number of vectors.
    means: number of means.
    """
    size = _padded(components + means)
    return 8 * size * (features + 2 * size)


def _padded(columns: int) -> int:
    return -(-columns // 8) * 8


def _as_int32(indices: np.ndarray) -> np.ndarray:
    return indices.astype(np.int32, copy=False)
