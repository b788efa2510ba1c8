"""BlockBasis: vectors of CCIPCA or incremental SKM as a product.

Both methods have p vectors v_i and c means of rows. A new row x replaces each vector by a
combination of the vectors, the means and x. Let A (features, p + c) have the vectors and means as
its columns. Then the update is A ← A·L + x rᵀ, with an upper triangular matrix L and coefficients
r (p + c,). This update would change every entry of A.

So A is stored as a product A = D·M of long columns D and a small matrix M. The update is then
`M ← M·L` and `D ← D + x (M⁻ᵀ r)ᵀ`. In D, only the features that are nonzero in x change. So a
sparse row costs about as much as two products of the row with p + c columns.

The basis stores

- D (features, p + c) float64, in which the column of a mean is a sum of rows,
- M transposed and without the means (p, p + c): row i has the coefficients of v_i in the columns
  of D,
- the Gram matrix, which has the inner products of the vectors and means,
- the squared lengths of the columns of D,
- the shift, a row that is subtracted from dense rows.

Rows are learned one after the other. So the result does not depend on the batches: to the last bit
for sparse rows, and within rounding for dense rows.

M and the Gram matrix lose digits over time. So D is sometimes replaced by the product D·M, and M
by the identity, and the Gram matrix is computed again (`BlockBasis.refresh_basis`). This happens
when

- the number of rows has grown 64-fold since the last time (8-fold for dense rows of CCIPCA, whose
  shift is then moved to the mean),
- 262,144 rows have come since the last time,
- a diagonal entry of M falls below 1e-8,
- a vector is 1e4 times shorter than the terms whose sum it is,
- a row among the first 2,048 rows loses more than 999/1000 of its squared length when its parts
  along the vectors are subtracted. The remaining row then has three right digits fewer than the
  vectors.

These conditions depend only on the state and the number of the row, never on batches. A
replacement costs O(d p (p + c)) for d features. A stream has a few replacements, or some dozen if
rows are nearly in the span of the vectors.

A state (`BasisState`) stores D and M, not their product. So a method that continues from a
snapshot gives exactly the same bits as a method that never stopped.

Memory is 8 · d · (p + c) bytes for D, and 8 · (2 p + c) · (p + c) bytes for M and the inner
products of the vectors and means.
"""

from typing import Literal, NamedTuple

import numpy as np

from stream_dr.batch.block import Block, Rows
from stream_dr.batch.table import LARGEST
from stream_dr.checks import check_at_least, check_dtype_and_shapes, check_finite_arrays, check_within, field_error
from stream_dr.compiled import readonly_view
from stream_dr.errors import CannotMerge, InvalidRows, InvalidWeights
from stream_dr.statistics.cache_lines import aligned_zeros
from stream_dr.statistics.protocol import register_nested_state
from stream_dr.statistics.recurrences.loops import learn_dense_rows, learn_sparse_rows
from stream_dr.statistics.recurrences.row_products import BLOCK, TOO_LONG, WORN

SMALLEST_UNIT = 2.0**-300
"""Lower bound of the number `unit` by which rows are multiplied.

`unit` is a power of 2 that prevents overflow for very long rows. It stays above this bound even
for rows with the largest allowed values.
"""


@register_nested_state
class BasisState(NamedTuple):
    """Immutable vectors and means of CCIPCA or IncrementalSKM.

    There are up to p vectors (the components) and c means of rows. The vectors are the columns of
    D Mᵀ, for basis columns D and coefficients M. So vector i is a combination of the columns of D,
    and row i of M holds the coefficients.

    Attributes
    ----------
    columns : (features, p + c) float64
        D. Its last c columns are sums of rows, one for each mean.
    mixing : (p, p + c) float64
        M.
    gram : (p + c, p + c) float64
        Inner products of the p vectors and c means with each other.
    lengths : (2, p) float64
        Row 0 holds the squared lengths of the first p columns of D. The squared length of a vector
        is computed as a sum of terms that may cancel. Row 1 holds the size of these terms, which
        shows how many digits are lost.
    shift : (features,) float64 or None
        Row that is subtracted from dense rows. None for sparse rows, or before any row.
    counts : (c,) float64
        Number of rows in each mean.
    live : int
        Number of vectors so far, at most p. A new vector is added when a row is not in the span of
        the vectors so far.
    turned : int
        Number of rows that had been learned when D was last replaced by the vectors D Mᵀ, and M by
        the identity. This removes rounding errors.
    unit : float
        Power of 2 by which rows are multiplied. 1 unless rows are longer than 1e50.
    """

    columns: np.ndarray
    mixing: np.ndarray
    gram: np.ndarray
    lengths: np.ndarray
    shift: np.ndarray | None
    counts: np.ndarray
    live: int
    turned: int
    unit: float

    def check(self, n_features: int, n_means: int, rows_learned: int) -> None:
        """Raise DamagedFile unless the arrays fit the given sizes.

        n_features: number of features.
        n_means: number of means.
        rows_learned: number of rows learned.
        """
        # The arrays must have the right shapes and finite values.
        p = len(self.mixing)
        k = p + n_means
        check_dtype_and_shapes(
            self, np.float64, columns=(n_features, k), mixing=(p, k), gram=(k, k), lengths=(2, p), counts=(n_means,)
        )
        check_finite_arrays(self, "columns", "mixing", "gram", "lengths", "shift")

        check_at_least(self, 0.0, "counts")
        # A row adds at most one vector, so there are at most as many vectors as rows.
        check_within(self, 0, min(p, rows_learned) + 1, "live")
        check_within(self, 0, rows_learned + 1, "turned")
        if self.shift is not None:
            check_dtype_and_shapes(self, np.float64, shift=(n_features,))
            if (np.abs(self.shift) > 2.0 * LARGEST).any():
                raise field_error(self, "shift", "larger than any row", f"at most {LARGEST} in size, as rows are")

        # The code divides by `unit` and by the diagonal of `mixing`, so these must not be 0.
        if not SMALLEST_UNIT <= self.unit <= 1.0:
            raise field_error(self, "unit", f"{self.unit}", f"from {SMALLEST_UNIT} to 1")
        if not np.diagonal(self.mixing)[: self.live].all():
            raise field_error(self, "mixing", "0 on the diagonal", f"not 0 on the diagonal of {self.live} rows")

    def vectors(self) -> np.ndarray:
        """Return the vectors as the columns of a matrix.

        The matrix is (features, vectors). The vectors are not scaled to unit length. Costs
        O(d p (p + c)) for d features, p vectors and c means.
        """
        vectors: np.ndarray = self.columns @ self.mixing[: self.live].T
        return vectors / self.unit**2

    def means(self) -> np.ndarray:
        """Return the c means as the columns of a matrix.

        The matrix is (features, c). A mean of no rows is zero if rows are sparse. If rows are
        dense, a mean of no rows is `shift`, the row that is subtracted from all rows.
        """
        p = self.mixing.shape[0]
        means: np.ndarray = self.columns[:, p:] / np.maximum(self.counts, 1.0)
        return (means if self.shift is None else means + self.shift[:, None]) / self.unit


def normalise_long_columns(vectors: np.ndarray, min_relative_length: float) -> tuple[np.ndarray, np.ndarray]:
    """Scale vectors to unit length, without very short vectors.

    Returns the scaled vectors as columns, and the lengths that they had before. A vector is
    dropped if its length is at most `min_relative_length` times the length of the longest vector.

    vectors: (features, k), k vectors as columns.
    min_relative_length: smallest relative length.
    """
    size = max(vectors.max(initial=0.0), -vectors.min(initial=0.0)) or 1.0
    scaled = vectors / size
    # Compute the column lengths by einsum, which takes a third of the time of np.linalg.norm.
    lengths = np.sqrt(np.einsum("ij,ij->j", scaled, scaled)) * size
    long_enough = lengths > min_relative_length * lengths.max(initial=0.0)
    return np.ascontiguousarray(vectors[:, long_enough] / lengths[long_enough]), lengths[long_enough]


MOST_COMPONENTS = 2_000
"""Largest number of components.

The time for a row, and the memory of the coefficients, grow with the square of the number of
components.
"""

VALUES_PER_SLICE = 2**15
"""Number of float32 values that are converted to float64 at a time, on average."""


class BlockBasis:
    """Growing vectors and means of CCIPCA or incremental SKM.

    The p vectors are the components. They are stored as the product of long basis columns D and a
    small matrix M of coefficients. The number of means may grow. In the shapes below, `padded` is
    p plus the number of means, rounded up to a multiple of 8. Only one thread may use the object.

    Attributes
    ----------
    columns : (capacity, padded)
        D, with one row for each feature. Its first `features` rows are in use.
    table : (padded, 2 · padded)
        The left half is the Gram matrix (inner products of the vectors and means). The right half
        is M.
    lengths : (2, padded)
        The array `lengths` of a BasisState, followed by zeros.
    counts : (means,)
        Number of rows in each mean.
    shift : (features,) or None
        Row that is subtracted from dense rows. None for sparse rows, or before any row.
    live : int
        Number of vectors so far, at most p.
    turned : int
        Number of rows that had been learned when D was last replaced by the vectors themselves,
        and M by the identity.
    centred : bool
        True if there is a single mean, the mean of all rows. This mean may replace `shift`.
    """

    def __init__(self, components: int, n_means: int, centred: bool = False, state: BasisState | None = None) -> None:
        self.components = components
        self.centred = centred
        self.features = 0
        self.shift: np.ndarray | None = None
        self.live = 0
        self.turned = 0
        self.unit = 1.0
        self.counts: np.ndarray = np.zeros(n_means)
        self.columns: np.ndarray
        self.table: np.ndarray
        self.lengths: np.ndarray
        self._allocate_zero_arrays(0)
        if state is not None:
            self._load_state(state)

    @property
    def n_means(self) -> int:
        """Number of means stored."""
        return len(self.counts)

    @property
    def dense(self) -> bool | None:
        """True if rows are dense. None before the first batch."""
        return self.shift is not None if self.features else None

    def grow(self, min_features: int, min_means: int | None = None) -> None:
        """Make room for more features and means.

        A full array doubles its number of features. New entries are zero.

        min_features: smallest number of features.
        min_means: smallest number of means. None if no means are added.
        """
        if min_means is not None and min_means > self.n_means:
            self._make_room_for_means(min_means)
        if min_features > self.features:
            if min_features > len(self.columns):
                columns = aligned_zeros(max(min_features, 2 * self.features), self.columns.shape[1])
                columns[: self.features] = self.columns[: self.features]
                self.columns = columns
            self.features = min_features

    def refresh_basis(self, rows_learned: int) -> None:
        """Multiply out the vectors' factors to remove rounding errors.

        The vectors are stored as a product of long columns D and a small matrix M. The product
        becomes the new D, and the identity the new M. The inner products of the vectors are
        computed again. If `centred` is True, the mean of the rows replaces `shift`.

        rows_learned: number of rows learned so far.
        """
        p = self.components
        k = self.components + self.n_means
        size = self.columns.shape[1]

        # The shift is the row that is subtracted from dense rows. Move it to the mean of all rows.
        follow = self.centred and self.shift is not None
        if follow:
            self.shift += self.columns[: self.features, p] / max(self.counts[0], 1.0)

        # Copy the coefficients of the k vectors. Vectors past `live` do not exist yet.
        mixing = self.table[:p, size : size + k].copy()
        mixing[self.live :] = 0.0
        scale = np.concatenate([np.ones(p), 1.0 / np.maximum(self.counts, 1.0)])

        # Replace the basis columns by the vectors, 4,096 features at a time to bound the memory.
        # `gram` becomes the inner products of the vectors and means.
        gram = np.zeros((k, k))
        for start in range(0, self.features, 4096):
            part = self.columns[start : min(start + 4096, self.features), :k]
            part[:, :p] = part @ mixing.T
            if follow:
                part[:, p] = 0.0
            vectors = part * scale
            gram += vectors.T @ vectors

        self._set_coefficient_arrays(gram, np.eye(p, k), np.tile(np.diag(gram), (2, 1)))
        self.turned = rows_learned
        self._drop_zero_vectors()

    def check(self, block: Block, estimator_name: Literal["CCIPCA", "IncrementalSKM"]) -> None:
        """Raise an error if the batch cannot be learned.

        The error is InvalidWeights or InvalidRows.

        estimator_name: name of the estimator, for error messages.
        """
        if block.weights is not None:
            raise InvalidWeights(
                f"the batch has weights; {estimator_name} is a recurrence that learns one row after the other and takes "
                "none. Leave them out, or use an additive estimator (PCA, SKM)."
            )
        if self.dense is None or block.features == 0:
            return
        if block.sparse == self.dense:
            form, other = ("sparse", "dense") if block.sparse else ("dense", "sparse")
            raise InvalidRows(f"rows are {form}; this model was started with {other} rows. Pass {other} rows.")

    def start(self, block: Block, subtract_first_row: bool) -> None:
        """Make room for a checked batch.

        The first batch decides whether rows are dense or sparse.

        subtract_first_row: True to subtract the first dense row from all dense rows.
        """
        if self.dense is None and not block.sparse:
            self.shift = block.X[0].astype(np.float64) * self.unit if subtract_first_row else np.zeros(block.features)
        self.grow(block.features)

    def learn(
        self,
        X: Rows,
        rows_learned_before: int,
        amnesic: float,
        a: float,
        mean_squared_length_to_update: np.ndarray | None,
        class_codes: np.ndarray | None,
    ) -> None:
        """Learn the rows X, one after the other.

        X: (rows, features), dense or CSR.
        rows_learned_before: number of rows learned before.
        amnesic: parameter of the method. The larger it is, the more weight recent rows have.
        a: parameter of IncrementalSKM. The larger it is, the closer together are the projected rows
            of one class. 0 for CCIPCA.
        mean_squared_length_to_update: (1,) mean squared length of the centred rows for CCIPCA,
            changed in place. None for IncrementalSKM.
        class_codes: (rows,) classes for IncrementalSKM. None for CCIPCA.
        """
        # Single precision is converted in slices that stay in the processor's cache, so that the
        # compiled loops exist for double precision only.
        step = X.shape[0]
        if X.dtype != np.float64:
            step = max(BLOCK, VALUES_PER_SLICE * step // max(1, X.size) // BLOCK * BLOCK)
        if X.shape[0] > step:
            for start in range(0, X.shape[0], step):
                part = slice(start, start + step)
                codes = None if class_codes is None else class_codes[part]
                self.learn(X[part], rows_learned_before + start, amnesic, a, mean_squared_length_to_update, codes)
            return

        # `rows` are the arrays of X, which are the first arguments of the compiled loop over rows.
        if self.dense:
            loop = learn_dense_rows
            rows: tuple[np.ndarray | None, ...] = (_as_readonly(X, np.float64), self.shift)
        else:
            loop = learn_sparse_rows
            indptr = _as_readonly(X.indptr, np.int32)
            rows = (indptr, _as_readonly(X.indices, np.int32), _as_readonly(X.data, np.float64))
        method = (mean_squared_length_to_update, class_codes)

        # The compiled loop stops early if digits are lost, or if the next row is too long.
        # After an early stop, remove the cause and continue at row `at`.
        at = 0
        while at < X.shape[0]:
            basis = (self.columns, self.table, self.lengths, self.counts)
            settings = (self.components, self.unit, amnesic, a)
            at, self.live, why = loop(*rows, at, rows_learned_before, basis, self.live, self.turned, settings, *method)
            if why == WORN:
                self.refresh_basis(rows_learned_before + at)
            elif why == TOO_LONG:
                self._shrink_unit(float(abs(X[at]).max()) * self.unit)

    def freeze(self) -> BasisState:
        """Return a BasisState with copies of all arrays."""
        p = self.components
        k = self.components + self.n_means
        size = self.columns.shape[1]
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

    def _shrink_unit(self, next_row_largest_times_unit: float) -> None:
        """Shrink `unit`, the power of 2 that multiplies all rows.

        Values of the next row and of `shift` then stay below 2^100. All stored arrays are
        multiplied by powers of 2, so no digit is lost.

        next_row_largest_times_unit: largest absolute value of the next row, multiplied by the old
            unit.
        """
        largest = next_row_largest_times_unit
        if self.shift is not None:
            largest = max(largest, float(abs(self.shift).max(initial=0.0)))
        factor = 2.0 ** (100 - np.ceil(np.log2(largest)))
        p = self.components
        size = self.columns.shape[1]
        power = np.where(np.arange(size) < p, factor**2, factor)
        self.columns *= power
        self.table[:, :size] *= np.outer(power, power)
        self.table[:p, size + p :] *= factor
        self.lengths *= factor**4
        if self.shift is not None:
            self.shift *= factor
        self.unit *= factor

    def _drop_zero_vectors(self) -> None:
        """Remove vectors that are zero.

        The other vectors move up to close the gaps. A vector may be zero after the factors in
        which it was stored are multiplied out.
        """
        nonzero = np.flatnonzero(np.diag(self.table)[: self.live] > 0.0)
        if len(nonzero) == self.live:
            return
        p = self.components
        size = self.columns.shape[1]
        order = np.concatenate([nonzero, np.setdiff1d(np.arange(p), nonzero), np.arange(p, size)])
        self.columns[:] = self.columns[:, order]
        self.table[:, :size] = self.table[:, :size][np.ix_(order, order)]
        self.lengths[:] = self.lengths[:, order]
        self.live = len(nonzero)

    def _load_state(self, state: BasisState) -> None:
        if state.mixing.shape != (self.components, self.components + self.n_means):
            raise CannotMerge(
                f"this state has {len(state.mixing)} components and {len(state.counts)} means, not {self.components} and "
                f"{self.n_means}."
            )
        self.counts = np.array(state.counts)
        self._allocate_zero_arrays(len(state.columns))
        self.features = len(state.columns)
        self.columns[:, : state.columns.shape[1]] = state.columns
        self._set_coefficient_arrays(state.gram, state.mixing, state.lengths)
        self.shift = None if state.shift is None else np.array(state.shift)
        self.live, self.turned, self.unit = int(state.live), int(state.turned), float(state.unit)

    def _allocate_zero_arrays(self, n_features: int) -> None:
        size = _round_up_to_eight(self.components + self.n_means)
        self.columns = aligned_zeros(n_features, size)
        self.table = np.zeros((size, 2 * size))
        self.lengths = np.zeros((2, size))
        for i in range(self.components):
            self.table[i, size + i] = 1.0

    def _set_coefficient_arrays(self, gram: np.ndarray, mixing: np.ndarray, lengths: np.ndarray) -> None:
        p = self.components
        k = len(gram)
        size = self.columns.shape[1]
        self.table[:] = 0.0
        self.table[:k, :k] = gram
        self.table[:p, size : size + k] = mixing
        self.lengths[:] = 0.0
        self.lengths[:, :p] = lengths[:, :p]

    def _make_room_for_means(self, n_means: int) -> None:
        old = self.columns.shape[1]
        k = self.components + self.n_means
        columns = self.columns
        table = self.table
        lengths = self.lengths
        self.counts = np.concatenate([self.counts, np.zeros(n_means - self.n_means)])
        if self.components + n_means <= old:
            return
        self._allocate_zero_arrays(len(columns))
        self.columns[: self.features, :k] = columns[: self.features, :k]
        self._set_coefficient_arrays(table[:k, :k], table[: self.components, old : old + k], lengths)


def basis_bytes(n_features: int, n_vectors: int, n_means: int) -> int:
    """Return the memory of a BlockBasis in bytes.

    n_features: number of features.
    n_vectors: number of vectors.
    n_means: number of means.
    """
    size = _round_up_to_eight(n_vectors + n_means)
    return 8 * size * (n_features + 2 * size)


def _round_up_to_eight(n_columns: int) -> int:
    return -(-n_columns // 8) * 8


def _as_readonly(array: np.ndarray, dtype: type[np.generic]) -> np.ndarray:
    return readonly_view(array.astype(dtype, copy=False))
