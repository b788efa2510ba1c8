"""Reservoir: a uniform random sample of the rows so far.

The sample has at most `capacity` rows, dense or CSR. Each row gets a random key −log(u) / w. w is
the weight of the row. u is a uniform random number that depends on a seed, the first row and the
number of the row. The rows with the smallest keys are the sample.

With equal weights the sample is uniform, without replacement. With other weights the method is
A-Res (Efraimidis and Spirakis 2006, who take the rows with the largest u^(1/w)). A row of weight 0
is never sampled. The sample does not depend on how the rows were batched.

Two samples of unweighted streams are merged as follows. Each sampled row gets a new key. If a
sample was drawn from N rows, its new keys are the smallest of N exponential random numbers. The
rows with the smallest new keys are the merged sample. So the number of rows from each stream has
a hypergeometric distribution, as in a sample of the two streams together. If any row had a weight
other than 1, the old keys are compared instead of new keys.

A row costs O(1). A row that enters the sample costs O(nonzeros). Of N rows, about capacity · log(N
/ capacity) enter the sample at some time. Memory is 8 · capacity · features bytes for dense rows,
and 12 · capacity · nonzeros for sparse rows.

Samples can be merged, but rows cannot be unlearned. An unlearned row may have replaced another row
in the sample, and this row cannot be restored.
"""

import hashlib
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.batch.block import Block, Rows
from stream_dr.batch.sparse import rows_from_fields, stack_rows, stored_row_fields
from stream_dr.batch.targets import Label, check_label_type, drop_rows_without_target
from stream_dr.checks import (
    check_at_least,
    check_common_state_fields,
    check_dtype_and_shapes,
    check_stored_rows,
    check_strictly_ascending,
    check_within,
)
from stream_dr.errors import CannotMerge, width_mismatch
from stream_dr.feature_maps.feature_map import draw_uniforms
from stream_dr.statistics.protocol import AccumulatorBase

ROW_DRAW = 11
MERGE_DRAW = 12
"""Numbers that distinguish two sequences of random numbers with the same seed.

Each row gets a random key, which decides whether it is sampled. ROW_DRAW is the number for the
keys of rows. MERGE_DRAW is the number for the new keys that sampled rows get when samples are
merged.
"""


KeepLabels = Literal["no", "all", "some"]
"""Which labels a sample stores.

- "no": no labels. Targets are ignored.
- "all": the label of every sampled row. Rows without a label are not sampled.
- "some": the labels that rows have. Rows without a label are sampled, too.
"""


class Reservoir(NamedTuple):
    """Random sample of a stream's rows, in stream order.

    Attributes
    ----------
    rows, rows_skipped, n_features, target_kind, labels
        Numbers of rows and features, kind of targets and labels, as in every state (protocol.py).
    capacity : int
        Largest number of rows in the sample.
    seed : int
        Seed of the random numbers. When the first row is learned, the seed is combined with a hash
        of this row.
    weighted : bool
        True if any row had a weight other than 1.
    numbers : (sampled,) int64
        Position of each sampled row in the stream, from 0.
    keys : (sampled,) float64
        Random key of each sampled row. The rows with the smallest keys are the sample.
    codes : (sampled,) int32
        Label of each sampled row as an index into `labels`. −1 if the row has no label, or if
        labels are not stored.
    values : (sampled, features) float64, or (entries,)
        The sampled rows. For sparse rows, their CSR values.
    indices, indptr : int32 and int64 arrays, or None
        CSR arrays of sparse rows. None for dense rows.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    capacity: int
    seed: int
    weighted: bool
    numbers: np.ndarray
    keys: np.ndarray
    codes: np.ndarray
    values: np.ndarray
    indices: np.ndarray | None = None
    indptr: np.ndarray | None = None

    def check(self) -> None:
        """Raise DamagedFile unless arrays have one entry per sampled row."""
        check_common_state_fields(self, ("class",))
        n = len(self.numbers)
        check_within(self, 1, 2**31, "capacity")
        check_within(self, 0, 2**63, "seed")
        check_dtype_and_shapes(self, np.int64, numbers=(min(n, self.capacity),))
        check_dtype_and_shapes(self, np.float64, keys=(n,))
        check_dtype_and_shapes(self, np.int32, codes=(n,))
        check_within(self, 0, self.rows, "numbers")
        check_strictly_ascending(self, "numbers")
        check_at_least(self, 0.0, "keys")

        check_within(self, -1, len(self.labels), "codes")
        # Before the first row, the empty array `values` may have fewer columns than `n_features`.
        narrower = not self.rows and self.indices is None
        check_stored_rows(self, n, self.values.shape[-1] if narrower else self.n_features)

    @property
    def kept(self) -> Rows:
        """Rows of the sample (sampled, features), as ndarray or CSR."""
        return rows_from_fields(self.values, self.indices, self.indptr, self.n_features)

    def merge(self, later: "Reservoir") -> "Reservoir":
        """Return a sample of two streams together.

        `self` and `later` are samples of the two streams.

        In the result, the rows of `later` come after the rows of `self`. Raises CannotMerge, or
        InvalidTargets if the labels differ in type. Costs O(capacity · features).
        """
        if self.capacity != later.capacity:
            raise CannotMerge("reservoirs of different capacity cannot be merged; start both with the same.")
        if not later.rows:
            return self._replace(rows_skipped=self.rows_skipped + later.rows_skipped)
        if not self.rows:
            return later._replace(rows_skipped=self.rows_skipped + later.rows_skipped)
        check_label_type(self.labels, later.labels)

        # Use the random keys of both samples if rows have weights, else draw new keys.
        # The two samples' keys of weighted rows can be compared as they are.
        labels = tuple(dict.fromkeys((*self.labels, *later.labels)))
        mine, theirs = (self.keys, later.keys) if self.weighted or later.weighted else _draw_merge_keys(self, later)

        # Take the rows with the smallest random keys. Rows of `self` come before rows of `later`.
        keys = np.concatenate([mine, theirs])
        best = np.sort(np.argsort(keys, kind="stable")[: self.capacity])
        if self.indices is None and later.indices is None and self.n_features != later.n_features:
            raise CannotMerge(f"states of {self.n_features} and {later.n_features} features cannot be merged.")
        earlier = self.kept if later.indices is None else sp.csr_matrix(self.kept)
        rows = stack_rows(earlier, later.kept, max(self.n_features, later.n_features))[best]
        codes = np.concatenate([self.codes, _recode_labels(later.codes, later.labels, labels)])
        numbers = np.concatenate([self.numbers, later.numbers + self.rows])
        return Reservoir(
            self.rows + later.rows,
            self.rows_skipped + later.rows_skipped,
            rows.shape[1],
            self.target_kind or later.target_kind,
            labels,
            self.capacity,
            self.seed,
            self.weighted or later.weighted,
            numbers[best],
            keys[best],
            codes[best],
            *stored_row_fields(rows),
        )


class ReservoirAccumulator(AccumulatorBase):
    """Accumulator that draws a random sample of rows.

    Only one thread may change the accumulator. `freeze` returns the sample as a Reservoir.

    Parameters
    ----------
    capacity : int
        Largest number of rows in the sample.
    seed : int
        Seed of the random numbers.
    keep_labels : {"no", "all", "some"}
        With "no", targets are ignored. With "all" and "some", the labels of the sampled rows are
        stored, at most one label for each row. With "all", rows without a label are skipped and
        counted. With "some", rows without a label are sampled like other rows.
    state : Reservoir or None
        State to continue from.
    """

    def __init__(
        self, capacity: int, seed: int, keep_labels: KeepLabels = "no", state: Reservoir | None = None
    ) -> None:
        self.capacity = capacity
        self.keep_labels = keep_labels
        if state is None:
            numbers = np.zeros(0, dtype=np.int64)
            codes = np.zeros(0, dtype=np.int32)
            state = Reservoir(0, 0, 0, None, (), capacity, seed, False, numbers, np.zeros(0), codes, np.zeros((0, 0)))
        elif state.capacity != capacity or (keep_labels == "all" and state.rows and not state.labels):
            raise CannotMerge(
                f"this sample holds {state.capacity} rows of {len(state.labels)} labels at most, not {capacity} with labels."
            )
        self.seed = state.seed if state.rows else seed
        self.rows = state.rows
        self.rows_skipped = state.rows_skipped
        self.n_features = state.n_features
        self.target_kind = state.target_kind
        self.labels = state.labels
        self._weighted = state.weighted
        self._numbers = state.numbers
        self._keys = state.keys
        self._codes = state.codes
        self._rows = state.kept

    def add(self, block: Block) -> None:
        """Learn a batch, whose rows may enter the sample.

        Rows with small random keys enter. Raises WidthMismatch.
        """
        block, skipped = drop_rows_without_target(block) if self.keep_labels == "all" else (block, 0)
        if block.sparse and self.rows and not sp.issparse(self._rows) and block.features > self.n_features:
            raise width_mismatch(block.features, self.n_features)

        self.n_features = max(self.n_features, block.features)
        if not self.rows:
            none = np.zeros((0, self.n_features))
            self._rows = sp.csr_matrix(none) if block.sparse else none
        codes = self._add_labels_and_encode(block)
        if block.rows:
            self.seed = self.seed if self.rows else _stream_seed(self.seed, block.X[:1])
            self._put_rows_into_sample(block, codes)
        self.rows += block.rows
        self.rows_skipped += skipped

    def freeze(self) -> Reservoir:
        """Return a copy of the sample as a Reservoir.

        The rows are in the order of the stream.

        Costs O(capacity · features).
        """
        order = np.argsort(self._numbers, kind="stable")
        return Reservoir(
            self.rows,
            self.rows_skipped,
            self.n_features,
            self.target_kind,
            self.labels,
            self.capacity,
            self.seed,
            self._weighted,
            self._numbers[order],
            self._keys[order],
            self._codes[order],
            *stored_row_fields(self._rows[order]),
        )

    def _add_labels_and_encode(self, block: Block) -> np.ndarray:
        """Add new labels to self.labels, and return the rows' labels.

        The result (rows,) has the index of each row's label in self.labels. All indices are −1 if
        labels are not stored.
        """
        if self.keep_labels == "no" or block.y is None:
            return np.full(block.rows, -1, dtype=np.int32)
        self.target_kind = "class"
        self.labels = tuple(dict.fromkeys((*self.labels, *block.y.labels)))
        return _recode_labels(block.y.codes, block.y.labels, self.labels)

    def _put_rows_into_sample(self, block: Block, label_codes: np.ndarray) -> None:
        """Put rows with the smallest random keys into the sample.

        Rows of the batch with smaller keys replace sampled rows with larger keys.

        label_codes: (rows,) label of each row of the batch, as an index into self.labels.
        """
        # Draw a random key for each row of the batch. The rows with the smallest keys are sampled.
        draws = -np.log(draw_uniforms(self.seed, ROW_DRAW, self.rows, block.rows)[:, 0])
        if block.weights is not None:
            self._weighted = self._weighted or bool(np.any(block.weights != 1.0))
            with np.errstate(divide="ignore", over="ignore"):
                draws = draws / block.weights

        # Only rows whose random key is below `limit` can enter the sample.
        # If the sample is full, `limit` is the largest key in the sample.
        limit = self._keys.max() if len(self._keys) == self.capacity else np.inf
        offered = np.flatnonzero(draws < limit)
        keys = np.concatenate([self._keys, draws[offered]])
        sampled = len(self._keys)
        best = np.sort(np.argsort(keys, kind="stable")[: self.capacity])

        # Copy rows of the batch only if they enter the sample.
        new = offered[best[best >= sampled] - sampled]
        if len(new):
            self._rows = stack_rows(self._rows[best[best < sampled]], block.X[new], self.n_features)
        self._keys = keys[best]
        self._numbers = np.concatenate([self._numbers, self.rows + offered])[best]
        self._codes = np.concatenate([self._codes, label_codes[offered]])[best]


def _stream_seed(user_seed: int, first_row: Rows) -> int:
    """Return the seed of a stream's random numbers.

    The seed is a hash of the user's seed and of the nonzero values of the first row. The values
    are sorted, so the order of the features does not matter.

    first_row: (1, features), dense or CSR.
    """
    values = first_row.data if sp.issparse(first_row) else first_row[0]
    digest = hashlib.sha256(str(user_seed).encode())
    digest.update(np.sort(values[values != 0]).astype("<f8").tobytes())
    return int.from_bytes(digest.digest()[:8], "little") >> 1


def _draw_merge_keys(a: Reservoir, b: Reservoir) -> tuple[np.ndarray, np.ndarray]:
    """Return new random keys for the rows of two samples.

    When the samples are merged, the rows with the smallest keys are taken. If a sample of n rows
    was drawn from N rows, its new keys are the n smallest of N exponential random numbers, in
    random order. They are computed without drawing all N numbers (by Rényi's formula).

    a, b: the two samples. The first result has the keys of a, the second the keys of b.
    """
    drawn = []
    for side, state in enumerate((a, b)):
        n = len(state.numbers)
        u = draw_uniforms(a.seed ^ (a.rows << 20) ^ (b.rows << 1) ^ side, MERGE_DRAW, 0, n, 2)
        ordered = np.cumsum(-np.log(u[:, 0]) / (state.rows - np.arange(n)))
        drawn.append(ordered[np.argsort(u[:, 1])])
    return drawn[0], drawn[1]


def _recode_labels(codes: np.ndarray, old_labels: tuple[Label, ...], new_labels: tuple[Label, ...]) -> np.ndarray:
    """Return label indices that point into `new_labels` instead of `old_labels`.

    The index −1 (no label) does not change.

    codes: indices into `old_labels`.
    old_labels: labels before.
    new_labels: labels that include all labels of `old_labels`.
    """
    places = {label: at for at, label in enumerate(new_labels)}
    table = np.asarray([*(places[label] for label in old_labels), -1], dtype=np.int32)
    return table.take(codes)
