"""LabelSets: sums of rows per distinct set of labels.

The estimator HSL with the clique or star Laplacian needs these sums. The two Laplacians weigh a
row by totals that are known only at the end of the stream, and that depend on the row through its
set of labels alone. So for each distinct set s, the weight w_s and the sum t_s = Σ w x of its rows
are stored [mathematics §3]. `cross` returns Σ_s (t_s − w_s x̄) c_sᵀ for any coefficients c,
exactly, after one pass. (Running totals would depend on the order of rows, up to 55° off.)

For dense rows, the mean of the set's rows is stored as two numbers, and t_s − w_s x̄ = w_s (mean −
x̄). For sparse rows, t_s is stored in a hash table of the (set, feature) pairs that occurred.

A dense row of d features costs O(d), a sparse row O(nonzeros). Memory is 16·d bytes a set for
dense rows, and about 32 bytes a pair for sparse rows. There are at most 20,000 sets.
"""

from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import MOST_ROWS, check_array_shapes, check_equal, check_finite_arrays, check_within, field_error
from stream_dr.errors import LimitExceeded
from stream_dr.rows.block import Rows
from stream_dr.statistics.moments.centred_part import dd_add
from stream_dr.statistics.moments.encoding import Encoded
from stream_dr.statistics.moments.pair_table import FULL, PairTable
from stream_dr.statistics.moments.set_kernels import add_set_means
from stream_dr.statistics.protocol import nested_state

MOST_SETS = 20_000
"""Largest number of distinct label sets."""

MOST_VALUES = 1 << 27
"""Largest number of float64 values stored for sets of dense rows (1 GiB).

A set of rows with d features has 2 d values.
"""

SHIFT = 32
"""Number of low bits of a pair's key that hold the feature.

The key of a (set, feature) pair is (set << SHIFT) | feature.
"""


def most_sets(width: int, dense: bool) -> int:
    """Return the largest number of distinct label sets.

    width: number of features.
    dense: True if rows are dense.
    """
    return min(MOST_SETS, MOST_VALUES // (2 * max(width, 1))) if dense else MOST_SETS


@nested_state
class LabelSets(NamedTuple):
    """Frozen sums of rows per distinct set of labels.

    Sums are in stored units: true sum = scale of the state · stored sum. Dense rows have `mean`
    and `low`, sparse rows `keys` and `sums`. The other two arrays are empty.

    Attributes
    ----------
    sets : tuple
        The label sets, each a tuple of ascending codes into the state's labels.
    weights : (sets,)
        Weight w_s of each set's rows.
    rows : (sets,) int64
        Number of rows of each set.
    dense : bool
        True if means are stored, False if the table of pairs is.
    mean, low : (sets, d), or (0, 0)
        Mean of each set's rows = mean + low. `low` holds the digits that do not fit into `mean`.
    keys : (slots,) int64, or (0,)
        Key (set << SHIFT) | feature of each slot of the hash table, −1 if the slot is free.
    sums : (slots,), or (0,)
        Sum Σ w x of each slot's set and feature.
    """

    sets: tuple[tuple[int, ...], ...]
    weights: np.ndarray
    rows: np.ndarray
    dense: bool
    mean: np.ndarray
    low: np.ndarray
    keys: np.ndarray
    sums: np.ndarray

    @classmethod
    def empty(cls, dense: bool = False) -> Self:
        """Return the sums of no sets.

        dense: True for sums of dense rows.
        """
        none, counts = np.zeros(0), np.zeros(0, dtype=np.int64)
        return cls((), none, counts, dense, np.zeros((0, 0)), np.zeros((0, 0)), counts.copy(), none.copy())

    def check(self, width: int, labels: int, dense: bool) -> None:
        """Raise DamagedFile unless sets and sums fit the stated sizes.

        width: number of features.
        labels: number of labels.
        dense: True if the sums must be those of dense rows.
        """
        check_equal(self, "dense", dense)
        count, slots = len(self.sets), len(self.keys)
        ascending = all(s == tuple(sorted(set(s))) and s[0] >= 0 and s[-1] < labels for s in self.sets if s)
        if not ascending or () in self.sets or len(set(self.sets)) != count:
            raise field_error(
                self, "sets", "not distinct sets of codes", f"distinct, of ascending codes below {labels}"
            )

        wide = min(self.mean.shape[-1], width) if dense else 0
        check_array_shapes(
            self, np.float64, weights=(count,), mean=(count if dense else 0, wide), low=(count if dense else 0, wide)
        )
        check_array_shapes(self, np.float64, sums=(slots,))
        check_array_shapes(self, np.int64, rows=(count,), keys=(0,) if dense else (slots,))
        check_finite_arrays(self, "weights", "mean", "low", "sums")
        check_within(self, 0, MOST_ROWS, "rows")

        used = self.keys[self.keys >= 0]
        if (slots & (slots - 1)) or len(used) > FULL * slots or (self.keys < -1).any():
            raise field_error(
                self, "keys", f"{len(used)} of {slots} slots", "a power of two of slots, some of them free"
            )
        if ((used >> SHIFT) >= count).any() or ((used & ((1 << SHIFT) - 1)) >= width).any():
            raise field_error(
                self, "keys", "of sets or features that are not there", f"of {count} sets and {width} features"
            )

    def membership(self, labels: int) -> sp.csr_matrix:
        """Return a CSR matrix (sets, labels), 1 where the set has the label.

        labels: number of labels.
        """
        indptr = np.concatenate(([0], np.cumsum([len(s) for s in self.sets]))).astype(np.int64)
        indices = np.array([code for s in self.sets for code in s], dtype=np.int64)
        return sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape=(len(self.sets), labels))

    def cross(self, columns: Rows, mean: np.ndarray, low: np.ndarray) -> np.ndarray:
        """Return Σ_s (t_s − w_s x̄) columns[s], an array (d, m).

        t_s (d,) is the sum Σ w x over the rows of label set s, and w_s is their weight. The mean
        of all rows is x̄ = mean + low.

        columns: (sets, m), dense or sparse.
        mean, low: (d,).
        """
        columns = columns.toarray() if sp.issparse(columns) else np.asarray(columns, dtype=np.float64)
        if self.dense:
            deviation = (_pad_columns(self.mean, len(mean)) - mean) + (_pad_columns(self.low, len(low)) - low)
            return deviation.T @ (self.weights[:, None] * columns)
        return np.asarray(self.pairs(len(mean)).T @ columns) - np.outer(mean + low, self.weights @ columns)

    def pairs(self, width: int) -> sp.csr_matrix:
        """Return the sum Σ w x of each label set as a CSR matrix.

        The matrix is (sets, width). For sums of sparse rows only.
        """
        there = np.flatnonzero(self.keys >= 0)
        there = there[np.argsort(self.keys[there])]
        rows, columns = self.keys[there] >> SHIFT, self.keys[there] & ((1 << SHIFT) - 1)
        return sp.csr_matrix((self.sums[there], (rows, columns)), shape=(len(self.sets), width))

    def recoded(self, codes: np.ndarray) -> Self:
        """Return the sums with label code j replaced by codes[j]."""
        return self._replace(sets=tuple(tuple(sorted(int(codes[c]) for c in s)) for s in self.sets))

    def renumbered(self, new_index: np.ndarray, width: int) -> Self:
        """Return the sums with feature i renumbered to new_index[i].

        width: number of features of the result.
        """
        if self.dense:
            mean, low = np.zeros((2, len(self.mean), width))
            mean[:, new_index[: self.mean.shape[1]]], low[:, new_index[: self.low.shape[1]]] = self.mean, self.low
            return self._replace(mean=mean, low=low)
        there = np.flatnonzero(self.keys >= 0)
        keys = self.keys[there]
        table = PairTable(np.zeros(0, dtype=np.int64), np.zeros(0))
        table.add((keys >> SHIFT << SHIFT) | new_index[keys & ((1 << SHIFT) - 1)], self.sums[there])
        keys, sums = table.copies()
        return self._replace(keys=keys, sums=sums)

    def scaled(self, factor: float) -> Self:
        """Return the sums multiplied by factor. The means stay as they are."""
        return self._replace(weights=self.weights * factor, sums=self.sums * factor)

    def densified(self, width: int) -> Self:
        """Return the sums in the form for dense rows.

        Each set then has a mean instead of slots in the hash table.

        width: number of features.
        """
        if self.dense:
            return self._replace(mean=_pad_columns(self.mean, width), low=_pad_columns(self.low, width))
        safe = np.where(self.weights > 0.0, self.weights, 1.0)
        mean = self.pairs(width).toarray() / safe[:, None]
        empty = type(self).empty(True)
        return empty._replace(sets=self.sets, weights=self.weights, rows=self.rows, mean=mean, low=np.zeros_like(mean))

    def join(self, other: "LabelSets", width: int, sign: float = 1.0) -> "LabelSets":
        """Return the sums of this value's rows and of other's rows.

        With sign −1, return the sums of this value's rows without other's rows. Then every set of
        other must be here, and a set without a remaining row gets zeros. Both values use the same
        label codes.

        width: number of features of the result.
        """
        sums = LabelSetSums(self)
        sums.join(other, width, sign)
        return sums.freeze()


def _pad_columns(array: np.ndarray, width: int) -> np.ndarray:
    """Return an array (rows, ≤ width) with zero columns added up to width."""
    if array.shape[1] == width:
        return array
    out = np.zeros((len(array), width))
    out[:, : array.shape[1]] = array
    return out


class LabelSetSums:
    """Sums of rows per distinct set of labels, to which rows are added.

    `freeze` returns them as a LabelSets.
    """

    def __init__(self, part: LabelSets) -> None:
        """Continue from `part`, whose arrays are copied."""
        self._load(part)

    def _load(self, part: LabelSets) -> None:
        self._ids = {s: i for i, s in enumerate(part.sets)}
        self._weights, self._rows = part.weights.copy(), part.rows.copy()
        self._dense = part.dense
        self._mean, self._low = part.mean.copy(), part.low.copy()
        self._table = PairTable(part.keys.copy(), part.sums.copy())

    @property
    def count(self) -> int:
        """Number of distinct label sets seen so far."""
        return len(self._ids)

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The label sets as tuples of ascending codes, in order of first appearance."""
        return tuple(self._ids)

    def freeze(self) -> LabelSets:
        """Return a copy of the sums so far."""
        n = len(self._ids)
        weights, rows, mean, low = (a[:n].copy() for a in (self._weights, self._rows, self._mean, self._low))
        return LabelSets(tuple(self._ids), weights, rows, self._dense, mean, low, *self._table.copies())

    def plan(
        self, encoded: Encoded, rows: int, width: int, dense: bool
    ) -> tuple[np.ndarray, dict[tuple[int, ...], int]]:
        """Return the number of each row's label set, and the new sets.

        The numbers are (rows,) int64, −1 for rows without labels. The new sets are those that no
        earlier row had, with their numbers. Nothing is written. Raises LimitExceeded beyond 20,000
        sets or 1 GiB of sums.

        rows: number of rows.
        width: number of features.
        dense: True if the rows are dense.
        """
        new: dict[tuple[int, ...], int] = {}
        known = len(self._ids)
        ids = np.empty(rows, dtype=np.int64)
        codes = encoded.codes.tolist()
        at = range(rows + 1) if encoded.indptr is None else encoded.indptr.tolist()
        for i in range(rows):
            own = tuple(sorted(codes[at[i] : at[i + 1]]))
            known_id = self._ids.get(own) if own else -1
            ids[i] = new.setdefault(own, known + len(new)) if known_id is None else known_id

        total = known + len(new)
        most = most_sets(width, dense or self._dense)
        if total > most:
            raise LimitExceeded(
                f"{total} distinct label sets over {width} features; clique and star keep sums for at most {most} of them "
                '(20,000, and 1 GiB). Use laplacian="zhou", which needs none.'
            )
        return ids, new

    def begin(self, new: dict[tuple[int, ...], int], width: int, dense: bool) -> None:
        """Make room for new label sets.

        new: sets of label codes that no earlier row had, with their numbers.
        width: number of features.
        dense: True to change to the form for dense rows.
        """
        if dense and not self._dense:
            self._load(self.freeze().densified(width))
        self._ids.update(new)
        self._make_room(len(self._ids), width)

    def add(self, X: Rows, weights: np.ndarray, ids: np.ndarray) -> None:
        """Add rows X (rows, d), dense or CSR, each to its label set.

        weights: (rows,) weights divided by the state's scale, as the sums are.
        ids: (rows,) number of each row's label set, −1 for rows without labels.
        """
        labelled = ids >= 0
        self._rows += np.bincount(ids[labelled], minlength=len(self._rows))
        if self._dense:
            X = X.toarray() if sp.issparse(X) else X
            add_set_means(X, weights, ids, self._weights, self._mean, self._low)
            return
        self._weights += np.bincount(ids[labelled], weights[labelled], minlength=len(self._rows))
        number = np.diff(X.indptr)
        keys = (np.repeat(ids, number) << SHIFT) | X.indices
        keep = np.repeat(labelled, number)
        self._table.add(keys[keep], (np.repeat(weights, number) * X.data)[keep])

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor. The means stay as they are."""
        self._weights *= factor
        self._table.rescale(factor)

    def join(self, other: LabelSets, width: int, sign: float) -> None:
        """Add the sums of other's rows, or subtract them with sign −1.

        width: number of features.
        """
        new: dict[tuple[int, ...], int] = {}
        for s in other.sets:
            if s not in self._ids:
                new[s] = len(self._ids) + len(new)
        self.begin(new, width, self._dense or other.dense)

        other = other.densified(width) if self._dense else other
        at = np.array([self._ids[s] for s in other.sets], dtype=np.int64)
        if self._dense:
            self._join_means(other, at, sign)
        else:
            self._table.join(other.keys, other.sums * sign, at, SHIFT)

        self._weights[at] += sign * other.weights
        self._rows[at] += other.rows if sign > 0 else -other.rows
        if sign < 0:
            self._clear(np.flatnonzero(self._rows[: len(self._ids)] <= 0))

    def _join_means(self, other: LabelSets, at: np.ndarray, sign: float) -> None:
        remaining = self._weights[at] + sign * other.weights
        share = np.divide(sign * other.weights, remaining, out=np.zeros_like(remaining), where=remaining > 0.0)[:, None]
        step = (other.mean - self._mean[at]) + (other.low - self._low[at])
        new = self._weights[at, None] == 0.0
        mean, low = dd_add(self._mean[at], self._low[at], share * step)
        self._mean[at], self._low[at] = np.where(new, other.mean, mean), np.where(new, other.low, low)

    def _clear(self, gone: np.ndarray) -> None:
        self._weights[gone] = 0.0
        if self._dense:
            self._mean[gone], self._low[gone] = 0.0, 0.0
        else:
            self._table.clear(gone, SHIFT)

    def _make_room(self, sets: int, width: int) -> None:
        room = len(self._weights)
        if sets > room:
            room = max(sets, 2 * room)
            self._weights = np.concatenate([self._weights, np.zeros(room - len(self._weights))])
            self._rows = np.concatenate([self._rows, np.zeros(room - len(self._rows), dtype=np.int64)])
        if self._dense and self._mean.shape != (room, width):
            wider = (np.zeros((room, width)), np.zeros((room, width)))
            for old, out in zip((self._mean, self._low), wider, strict=True):
                out[: old.shape[0], : old.shape[1]] = old
            self._mean, self._low = wider
