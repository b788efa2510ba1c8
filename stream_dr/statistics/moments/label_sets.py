"""LabelSets: sums of rows for each distinct set of labels.

A label set is a distinct combination of labels that some row has. The estimator HSL (hypergraph
spectral learning) multiplies each row by a factor that is known only at the end of the stream
[mathematics §3]. The factor depends only on the row's label set. So it is enough to store two sums
for each label set: the total weight of its rows, and the sum of its rows times their weights. The
factors are applied at the end (`LabelSets.weighted_row_sums`). The result is exact
after one pass.

Each batch yields a matrix of sums. These matrices are stored in a list, the stack. If a new matrix
is at least half as large as the last matrix of the stack, the two are added and stored as one
matrix. So the stack has O(log sets) matrices.

For dense rows, the first row of the stream (`shift`) is subtracted from every row before summing.
Without this shift, digits would be lost if the mean of the rows is far from 0.

A row costs its nonzeros times O(log sets). Memory for d features is 8·d bytes for each set of
dense rows, and 12 bytes for each pair of a set and a feature of sparse rows. There may be at most
20,000 sets.
"""

from functools import reduce
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from stream_dr.batch.block import Rows
from stream_dr.batch.sparse import pad_with_zero_columns, rows_from_fields, stored_row_fields
from stream_dr.checks import (
    ROW_COUNT_LIMIT,
    check_dtype_and_shapes,
    check_finite_arrays,
    check_stored_rows,
    check_strictly_ascending,
    check_within,
    field_error,
)
from stream_dr.errors import LimitExceeded
from stream_dr.statistics.moments.centred_part import pad_to_shape
from stream_dr.statistics.moments.encoding import EncodedTargets, RowSets
from stream_dr.statistics.protocol import register_nested_state

MOST_SETS = 20_000
"""Maximum number of distinct sets of labels for which sums are stored."""


@register_nested_state
class SetSums(NamedTuple):
    """Sums of rows for each label set, as a matrix.

    A label set is a distinct combination of labels. Row i of the matrix (m, width) is the weighted
    sum of all rows with the same label set. `width` is the number of features. The matrix is CSR
    if the summed rows were sparse.

    Attributes
    ----------
    numbers : (m,) int64
        Index of the label set of each row of the matrix, ascending.
    values : (m, width) float64, or (entries,)
        The matrix, or its values in CSR form.
    indices, indptr : int32 and int64 arrays, or None
        CSR arrays of the matrix. None if it is dense.
    """

    numbers: np.ndarray
    values: np.ndarray
    indices: np.ndarray | None = None
    indptr: np.ndarray | None = None

    @classmethod
    def of(cls, ascending_set_numbers: np.ndarray, sums: Rows) -> Self:
        """Create a SetSums from one row of sums for each label set.

        A label set is a distinct combination of labels.

        ascending_set_numbers: (m,) indices of m label sets, in ascending order.
        sums: (m, features), dense or CSR. Row i has the sums of label set i of these.
        """
        if sp.issparse(sums):
            sums.sort_indices()
        return cls(ascending_set_numbers, *stored_row_fields(sums))

    def sums(self, n_features: int) -> Rows:
        """Return the sums (sets, n_features) as a matrix, dense or CSR."""
        rows = rows_from_fields(self.values, self.indices, self.indptr, n_features)
        return pad_with_zero_columns(rows, n_features)

    def dense(self, n_features: int) -> np.ndarray:
        """Return the sums (sets, n_features) as an ndarray."""
        sums = self.sums(n_features)
        dense: np.ndarray = sums.toarray() if sp.issparse(sums) else sums
        return dense

    def merge_set_sums(self, newer: "SetSums", n_features: int) -> "SetSums":
        """Return the sums of all rows of `self` and `newer`.

        A label set is a distinct combination of labels. The result has the label sets of `self`
        and of `newer`. If a label set has sums in both, the sums are added.

        n_features: number of features.
        """
        numbers, at = np.unique(np.concatenate([self.numbers, newer.numbers]), return_inverse=True)
        adder = sp.csr_matrix((np.ones(len(at)), (at, np.arange(len(at)))), shape=(len(numbers), len(at)))
        if self.indices is None or newer.indices is None:
            return SetSums.of(numbers, adder @ np.concatenate([self.dense(n_features), newer.dense(n_features)]))
        return SetSums.of(numbers, adder @ sp.vstack([self.sums(n_features), newer.sums(n_features)], format="csr"))


@register_nested_state
class LabelSets(NamedTuple):
    """Sums of rows for each distinct combination of labels.

    Such a combination is called a label set. Below, x are the rows that have the same label set,
    and w are their weights. Under decay, all sums are stored divided by a common number, the
    `scale` of the MomentState.

    Attributes
    ----------
    sets : tuple
        The label sets. Each is a tuple of ascending indices of labels.
    weights : (sets,)
        Weight Σ w of each label set.
    rows : (sets,) int64
        Number of rows of each label set.
    shift : (features,)
        Row that is subtracted from every row x before summing. Empty if no row is subtracted.
    stack : tuple of SetSums
        Matrices with a row for each label set. The total of these matrices has the sum
        Σ w (x − shift) of each label set.
    """

    sets: tuple[tuple[int, ...], ...]
    weights: np.ndarray
    rows: np.ndarray
    shift: np.ndarray
    stack: tuple[SetSums, ...]

    @classmethod
    def empty(cls) -> Self:
        """Return a LabelSets without any label set."""
        return cls((), np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0), ())

    def check(self, n_features: int, n_labels: int) -> None:
        """Raise DamagedFile unless the label sets and sums are valid.

        n_features: number of features.
        n_labels: number of labels. Label sets may have indices below this number.
        """
        # Label sets must be distinct and not empty, with ascending indices of labels.
        count = len(self.sets)
        ascending = all(s == tuple(sorted(set(s))) and s[0] >= 0 and s[-1] < n_labels for s in self.sets if s)
        if not ascending or () in self.sets or len(set(self.sets)) != count:
            needed = f"distinct, of ascending codes below {n_labels}"
            raise field_error(self, "sets", "not distinct sets of codes", needed)

        check_dtype_and_shapes(self, np.float64, weights=(count,), shift=(min(len(self.shift), n_features),))
        check_dtype_and_shapes(self, np.int64, rows=(count,))
        check_finite_arrays(self, "weights", "shift")
        check_within(self, 0, ROW_COUNT_LIMIT, "rows")

        # Each matrix in the stack has a row for some label sets, given by valid indices.
        for part in self.stack:
            m = len(part.numbers)
            check_dtype_and_shapes(part, np.int64, numbers=(m,))
            check_within(part, 0, count, "numbers")
            check_strictly_ascending(part, "numbers")
            width = n_features if part.indices is not None else min(part.values.shape[-1], n_features)
            check_stored_rows(part, m, width)

    def weighted_row_sums(self, set_factors: Rows, mean: np.ndarray, mean_low: np.ndarray) -> np.ndarray:
        """Return centred row sums, multiplied by factors of label sets.

        A label set is a distinct combination of labels. For each label set, the rows that have it
        are centred on the mean x̄ of all rows, multiplied by their weights and summed. The result
        (features, m) is the matrix (features, sets) of these sums times `set_factors`.

        set_factors: (sets, m), m factors of each label set, dense or sparse.
        mean: (features,), the mean x̄ rounded to float64.
        mean_low: (features,), the part of x̄ that is lost by rounding, so x̄ = mean + mean_low.
        """
        set_factors = set_factors.toarray() if sp.issparse(set_factors) else np.asarray(set_factors, dtype=np.float64)
        shifted_mean = (mean - pad_to_shape(self.shift, mean.shape)) + mean_low
        total = -np.outer(shifted_mean, self.weights @ set_factors)
        for part in self.stack:
            total += part.sums(len(mean)).T @ set_factors[part.numbers]
        return total

    def with_renumbered_labels(self, new_label_indices: np.ndarray) -> Self:
        """Return the sums with renumbered labels.

        new_label_indices: (labels,) new index of each label.
        """
        return self._replace(sets=tuple(tuple(sorted(int(new_label_indices[c]) for c in s)) for s in self.sets))

    def with_renumbered_sets(self, ordered_sets: tuple[tuple[int, ...], ...], n_features: int) -> "LabelSets":
        """Return the sums with label sets in another order.

        A label set is a distinct combination of labels.

        ordered_sets: label sets of the result, in their new order. Those without rows get zeros.
        n_features: number of features.
        """
        if ordered_sets == self.sets:
            return self
        sums = LabelSetSums(LabelSets.empty())
        sums.make_room_for_sets({one: number for number, one in enumerate(ordered_sets)})
        sums.join(self, n_features, 1.0)
        return sums.freeze()

    def renumbered(self, new_feature_indices: np.ndarray, n_features: int) -> Self:
        """Return the sums with renumbered features.

        new_feature_indices: (features,) new index of each feature.
        n_features: number of features of the result.
        """
        old = len(new_feature_indices)
        mover = sp.csr_matrix((np.ones(old), (np.arange(old), new_feature_indices)), shape=(old, n_features))
        stack = tuple(SetSums.of(part.numbers, part.sums(old) @ mover) for part in self.stack)
        shift = pad_to_shape(self.shift, (old,)) @ mover if len(self.shift) else self.shift
        return self._replace(stack=stack, shift=shift)

    def scaled(self, factor: float) -> Self:
        """Return a copy with weights and sums multiplied by factor."""
        stack = tuple(part._replace(values=part.values * factor) for part in self.stack)
        return self._replace(weights=self.weights * factor, stack=stack)

    def join(self, other: "LabelSets", n_features: int, sign: float) -> "LabelSets":
        """Add or remove the rows of `other`.

        Returns the sums for each label set (distinct combination of labels). An index must mean
        the same label in `self` and in `other`. A label set without rows after a removal gets sums
        of exactly zero.

        n_features: number of features.
        sign: 1 to add the rows of other, −1 to remove them. With −1, `self` must have all label
            sets of other.
        """
        sums = LabelSetSums(self)
        sums.join(other, n_features, sign)
        return sums.freeze()


class LabelSetSums:
    """Growing sums of rows for each distinct set of labels.

    `add` adds rows. `freeze` returns the sums as a LabelSets. Arrays are never changed in place,
    so a frozen LabelSets needs no copies.

    state: sums to continue from.
    """

    def __init__(self, state: LabelSets) -> None:
        self._numbers = {s: i for i, s in enumerate(state.sets)}
        self._weights = state.weights
        self._rows = state.rows
        self._shift = state.shift
        self._stack = list(state.stack)

    def freeze(self) -> LabelSets:
        """Return the sums so far as a LabelSets."""
        return LabelSets(tuple(self._numbers), self._weights, self._rows, self._shift, tuple(self._stack))

    def number_sets(self, encoded: EncodedTargets, n_rows: int) -> RowSets:
        """Find the index of each row's label set.

        A label set is a distinct combination of labels. Returns the index for each row, and the
        label sets that no earlier batch had, with their new indices. Nothing is changed. Raises
        LimitExceeded if there would be more than 20,000 label sets.

        encoded: targets of the rows.
        n_rows: number of rows.
        """
        # `new` holds the combinations of labels that are new in this batch, with their indices.
        # `numbers` gets the index of each row's combination, or −1 for a row without labels.
        new: dict[tuple[int, ...], int] = {}
        known = len(self._numbers)
        numbers = np.empty(n_rows, dtype=np.int64)
        codes = encoded.codes.tolist()
        at = range(n_rows + 1) if encoded.indptr is None else encoded.indptr.tolist()
        for i in range(n_rows):
            own = tuple(sorted(codes[at[i] : at[i + 1]]))
            number = self._numbers.get(own) if own else -1
            numbers[i] = new.setdefault(own, known + len(new)) if number is None else number

        if known + len(new) > MOST_SETS:
            raise LimitExceeded(
                f"{known + len(new)} distinct label sets; clique and star keep sums for at most {MOST_SETS} of them. Use "
                'laplacian="zhou", which needs none.'
            )
        return RowSets(numbers, new)

    def make_room_for_sets(self, new_set_numbers: dict[tuple[int, ...], int]) -> None:
        """Make room for new label sets without rows.

        new_set_numbers: index of each new label set. The keys are the label sets, as tuples of
            label indices.
        """
        self._numbers.update(new_set_numbers)
        self._weights = pad_to_shape(self._weights, (len(self._numbers),))
        self._rows = pad_to_shape(self._rows, (len(self._numbers),))

    def add(self, X: Rows, weights: np.ndarray, set_numbers: np.ndarray, n_features: int) -> None:
        """Add rows to the sums of their label sets.

        A label set is a distinct combination of labels.

        X: (rows, at most n_features), dense or CSR.
        weights: (rows,) weights. Under decay they are divided by the same number as the stored
            sums.
        set_numbers: (rows,) index of each row's label set, −1 for rows without labels.
        n_features: number of features.
        """
        # If the stream begins with dense rows, subtract its first row from all rows.
        # Sums of rows far from 0 would lose digits.
        if not sp.issparse(X) and not self._stack and not len(self._shift):
            self._shift = X[0].astype(np.float64)
        if len(self._shift):
            X = (X.toarray() if sp.issparse(X) else X) - self._shift[: X.shape[1]]

        # For each label set (combination of labels), add the weights and number of new rows.
        # Also add the weighted sum of the new rows of each label set.
        labelled = np.flatnonzero(set_numbers >= 0)
        own = set_numbers[labelled]
        w = weights[labelled]
        count = len(self._numbers)
        self._weights = self._weights + np.bincount(own, w, count)
        self._rows = self._rows + np.bincount(own, minlength=count)
        if len(labelled):
            distinct, at = np.unique(own, return_inverse=True)
            adder = sp.csr_matrix((w, (at, labelled)), shape=(len(distinct), X.shape[0]))
            self._append_matrix_merging_smaller(SetSums.of(distinct, adder @ X), n_features)

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor."""
        scaled = self.freeze().scaled(factor)
        self._weights, self._stack = scaled.weights, list(scaled.stack)

    def join(self, other: LabelSets, n_features: int, sign: float) -> None:
        """Add or remove the rows of `other` in place.

        n_features: number of features.
        sign: 1 to add the rows of other, −1 to remove them.
        """
        # Combinations of labels that only `other` has get the next free indices.
        new = [s for s in other.sets if s not in self._numbers]
        self.make_room_for_sets({s: len(self._numbers) + i for i, s in enumerate(new)})
        at = np.array([self._numbers[s] for s in other.sets], dtype=np.int64)

        # Convert the sums of `other` to the shift of `self`, and add them.
        # `_shift` is the row that is subtracted from every row before summing.
        if not self._stack:
            self._shift = other.shift
        for part in _sums_with_shift(other, pad_to_shape(self._shift, (n_features,)), n_features):
            order = np.argsort(at[part.numbers])
            self._append_matrix_merging_smaller(
                SetSums.of(at[part.numbers][order], sign * part.sums(n_features)[order]), n_features
            )

        # Change copies of the weights and row counts, because a LabelSets may share the arrays.
        self._weights = self._weights.copy()
        self._rows = self._rows.copy()
        self._weights[at] += sign * other.weights
        self._rows[at] += other.rows if sign > 0 else -other.rows

        # Set the sums of label sets without rows to exactly zero.
        empty = self._rows <= 0
        if sign < 0 and empty.any():
            self._weights[empty] = 0.0
            if self._stack:
                total = reduce(lambda older, newer: older.merge_set_sums(newer, n_features), self._stack)
                keep = np.flatnonzero(~empty[total.numbers])
                self._stack = [SetSums.of(total.numbers[keep], total.sums(n_features)[keep])] if len(keep) else []

    def _append_matrix_merging_smaller(self, sums: SetSums, n_features: int) -> None:
        """Append a matrix of sums to the list of matrices.

        The sums of a label set are the total of its sums in all matrices of the list. To keep the
        list short, matrices are merged. While the last matrix is at most twice as large as the new
        matrix, it is removed from the list and added to the new matrix.

        n_features: number of features.
        """
        while self._stack and self._stack[-1].values.size <= 2 * sums.values.size:
            sums = self._stack.pop().merge_set_sums(sums, n_features)
        self._stack.append(sums)


def _sums_with_shift(state: LabelSets, new_shift: np.ndarray, n_features: int) -> tuple[SetSums, ...]:
    """Convert the sums of a state to another shift.

    The shift is the row that is subtracted from every row before summing. Over rows x of weight w,
    `state.stack` holds the sums Σ w (x − state.shift) for each label set. The result has the same
    form, with the sums Σ w (x − new_shift).

    new_shift: (n_features,) row to subtract instead of `state.shift`.
    n_features: number of features.
    """
    step = pad_to_shape(state.shift, (n_features,)) - new_shift
    if not state.stack or not step.any():
        return state.stack
    total = reduce(lambda older, newer: older.merge_set_sums(newer, n_features), state.stack)
    return (SetSums.of(total.numbers, total.dense(n_features) + np.outer(state.weights[total.numbers], step)),)
