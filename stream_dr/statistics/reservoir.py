"""reservoir: a uniform sample of the rows so far, at most `capacity` of them, kept as they came (dense or CSR).

Row number i draws u_i, keyed by (seed, first row, i), and has the key −log(u_i) / w_i; the rows with the smallest keys
are kept. With equal weights that is a uniform sample without replacement, with others it is A-Res (Efraimidis and
Spirakis 2006, whose key u^(1/w) is this one turned round); a row of weight 0 is never kept.

Merge: without weights the keys of each side are drawn anew as the smallest order statistics of its N exponentials, keyed by
(seed, N_A, N_B); then the smallest of both are kept, so the number taken from A is hypergeometric in (N_A, N_B). With
weights the keys stay.

Cost a row: O(1), and O(entries) for the few that are kept, about capacity · log(N / capacity) of N; memory 8 · capacity ·
features bytes dense, 12 · capacity · entries sparse. Merges: yes. Unlearns: no, since a row that made room is gone.

Why this way: a smallest-keys sample depends on the set of rows and their numbers only, never on how they were batched. The
first row is in the key because parts that are merged have one seed and both count from 0: with (seed, i) alone they would
keep rows of the same numbers, and such pairs would stay together five times too often. Parts whose first rows are equal
still do that; each row's chance is right even so.
"""

import hashlib
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import at_least, csr, learned, shaped, within, wrong
from stream_dr.errors import CannotMerge, other_width
from stream_dr.feature_maps.draws import uniforms
from stream_dr.rows.block import Block, Rows, check_rows
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import check_label_type, labelled_rows, refuse_kind

ROW_DRAW, MERGE_DRAW = 11, 12
"""Purposes of the draws (see feature_maps/draws.py)."""


class Reservoir(NamedTuple):
    """The sample, ordered by row number.

    rows, rows_skipped, n_features, target_kind, labels: as every state. capacity: most rows kept. seed: of the draws,
    the first row's hash mixed in once there is one. weighted: whether any row had a weight other than 1. numbers:
    (kept,) int64, the rows' numbers in the stream. keys: (kept,) float64. codes: (kept,) int32 into labels, −1 where no
    labels are kept. values: (kept, features) float64, or the CSR values (entries,); then indices and indptr are its
    int32 and int64 arrays, else None.
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
        """Raise DamagedFile unless numbers, keys, codes and rows are of one sample of n_features and labels."""
        learned(self, ("class",))
        n = len(self.numbers)
        within(self, 1, 2**31, "capacity")
        within(self, 0, 2**63, "seed")
        shaped(self, np.int64, numbers=(min(n, self.capacity),))
        shaped(self, np.float64, keys=(n,))
        shaped(self, np.int32, codes=(n,))
        within(self, 0, self.rows, "numbers")
        if (np.diff(self.numbers) <= 0).any():
            raise wrong(self, "numbers", "not ascending", "ascending")
        at_least(self, 0.0, "keys")
        low, high = (0, len(self.labels)) if self.labels else (-1, 0)
        within(self, low, high, "codes")
        narrower = not self.rows and self.indices is None  # no row has told how wide rows are
        csr(self, n, self.values.shape[-1] if narrower else self.n_features)

    @property
    def kept(self) -> Rows:
        """The rows in the sample, (kept, features) ndarray or CSR."""
        if self.indices is None or self.indptr is None:
            return self.values
        return sp.csr_matrix((self.values, self.indices, self.indptr), shape=(len(self.numbers), self.n_features))

    def merge(self, other: "Reservoir") -> "Reservoir":
        """A sample of both streams, `other` coming after self. Raises CannotMerge. O(capacity · features)."""
        if self.capacity != other.capacity:
            raise CannotMerge("reservoirs of different capacity cannot be merged; start both with the same.")
        if not other.rows:
            return self._replace(rows_skipped=self.rows_skipped + other.rows_skipped)
        if not self.rows:
            return other._replace(rows_skipped=self.rows_skipped + other.rows_skipped)
        check_label_type(self.labels, other.labels)
        labels = tuple(dict.fromkeys((*self.labels, *other.labels)))
        mine, theirs = (self.keys, other.keys) if self.weighted or other.weighted else _fresh_keys(self, other)
        keys = np.concatenate([mine, theirs])
        best = np.sort(np.argsort(keys, kind="stable")[: self.capacity])
        kept = _all_kept(self, other)[best]
        codes = np.concatenate([self.codes, _recoded(other.codes, other.labels, labels)])
        numbers = np.concatenate([self.numbers, other.numbers + self.rows])
        return Reservoir(
            self.rows + other.rows,
            self.rows_skipped + other.rows_skipped,
            kept.shape[1],
            self.target_kind or other.target_kind,
            labels,
            self.capacity,
            self.seed,
            self.weighted or other.weighted,
            numbers[best],
            keys[best],
            codes[best],
            *_parts(kept),
        )


class ReservoirAccumulator:
    """The mutable side of Reservoir; one owner.

    capacity: most rows kept. seed: of the draws. keep_labels: whether rows must have one label each (rows without are
    skipped and counted) and the kept rows' labels are remembered; otherwise targets are ignored.
    """

    def __init__(self, capacity: int, seed: int, keep_labels: bool = False, state: Reservoir | None = None) -> None:
        self.capacity, self.keep_labels = capacity, keep_labels
        if state is None:
            numbers, codes = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
            state = Reservoir(0, 0, 0, None, (), capacity, seed, False, numbers, np.zeros(0), codes, np.zeros((0, 0)))
        elif state.capacity != capacity or (keep_labels and state.rows and not state.labels):
            raise CannotMerge(
                f"this sample holds {state.capacity} rows of {len(state.labels)} labels at most, not {capacity} with labels."
            )
        self.seed = state.seed if state.rows else seed
        self.rows, self.rows_skipped, self.n_features = state.rows, state.rows_skipped, state.n_features
        self.target_kind, self.labels, self._weighted = state.target_kind, state.labels, state.weighted
        self._numbers, self._keys, self._codes = state.numbers, state.keys, state.codes
        self._kept = state.kept

    def add(self, block: Block) -> None:
        """Offer the block's rows to the sample. Raises WidthMismatch, TargetKindMismatch, InvalidTargets, InvalidIndex or
        NotFinite."""
        check_rows(block)
        block, skipped = labelled_rows(block) if self.keep_labels else (block, 0)
        self._check(block)
        self.n_features = max(self.n_features, block.features)
        if not self.rows:
            none = np.zeros((0, self.n_features))
            self._kept = sp.csr_matrix(none) if block.sparse else none
        codes = self._learn_labels(block)
        if block.rows:
            self.seed = self.seed if self.rows else _of_stream(self.seed, block.X[:1])
            self._offer(block, codes)
        self.rows += block.rows
        self.rows_skipped += skipped

    def freeze(self) -> Reservoir:
        """The sample so far, ordered by row number; O(capacity · features) to copy."""
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
            *_parts(self._kept[order]),
        )

    def _check(self, block: Block) -> None:
        fixed = self.rows and not (block.sparse and sp.issparse(self._kept))
        wider = block.features > self.n_features if block.sparse else block.features != self.n_features
        if fixed and wider:
            raise other_width(block.features, self.n_features)
        if self.keep_labels and block.y is not None:
            if block.y.kind != "class":
                refuse_kind(block.y.kind, ("class",))
            check_label_type(self.labels, block.y.labels)

    def _learn_labels(self, block: Block) -> np.ndarray:
        """(rows,) codes into self.labels, which the block's new labels join; −1 where labels are not kept."""
        if not self.keep_labels or block.y is None:
            return np.full(block.rows, -1, dtype=np.int32)
        self.target_kind = "class"
        self.labels = tuple(dict.fromkeys((*self.labels, *block.y.labels)))
        return _recoded(block.y.codes, block.y.labels, self.labels)

    def _offer(self, block: Block, codes: np.ndarray) -> None:
        """Keep the smallest keys of those kept and the block's."""
        draws = -np.log(uniforms(self.seed, ROW_DRAW, self.rows, block.rows)[:, 0])
        if block.weights is not None:
            self._weighted = self._weighted or bool(np.any(block.weights != 1.0))
            with np.errstate(divide="ignore", over="ignore"):
                draws = draws / block.weights
        limit = self._keys.max() if len(self._keys) == self.capacity else np.inf
        offered = np.flatnonzero(draws < limit)
        keys = np.concatenate([self._keys, draws[offered]])
        held, best = len(self._keys), np.sort(np.argsort(keys, kind="stable")[: self.capacity])
        new = offered[best[best >= held] - held]
        if len(new):
            self._kept = _under(self._kept[best[best < held]], block.X[new], self.n_features)
        self._keys = keys[best]
        self._numbers = np.concatenate([self._numbers, self.rows + offered])[best]
        self._codes = np.concatenate([self._codes, codes[offered]])[best]


def _of_stream(seed: int, first: Any) -> int:
    """The seed of a stream's draws: 63 bits of a hash of the user's seed and the first row's values (1, features), dense or
    CSR; zeros and the order of the features do not count."""
    values = first.data if sp.issparse(first) else first[0]
    digest = hashlib.sha256(str(seed).encode())
    digest.update(np.sort(values[values != 0]).astype("<f8").tobytes())
    return int.from_bytes(digest.digest()[:8], "little") >> 1


def _fresh_keys(a: Reservoir, b: Reservoir) -> tuple[np.ndarray, np.ndarray]:
    """Keys for both samples, drawn as the smallest order statistics of N_A and of N_B exponentials (Rényi)."""
    drawn = []
    for side, state in enumerate((a, b)):
        n = len(state.numbers)
        u = uniforms(a.seed ^ (a.rows << 20) ^ (b.rows << 1) ^ side, MERGE_DRAW, 0, n, 2)
        ordered = np.cumsum(-np.log(u[:, 0]) / (state.rows - np.arange(n)))
        drawn.append(ordered[np.argsort(u[:, 1])])
    return drawn[0], drawn[1]


def _recoded(codes: np.ndarray, old: tuple[Label, ...], new: tuple[Label, ...]) -> np.ndarray:
    """Codes into `old` as codes into `new`; −1 stays."""
    places = {label: at for at, label in enumerate(new)}
    table = np.asarray([*(places[label] for label in old), -1], dtype=np.int32)
    return table[codes]


def _under(a: Rows, b: Rows, width: int) -> Rows:
    """Rows b under rows a, float64, (both, width): CSR where a is."""
    if sp.issparse(a):
        return sp.vstack([_widened(a, width), _widened(b, width)], format="csr", dtype=np.float64)
    below = np.zeros((b.shape[0], width))
    below[:, : b.shape[1]] = b.toarray() if sp.issparse(b) else b
    return np.vstack([a, below])


def _widened(X: Rows, width: int) -> sp.csr_matrix:
    X = sp.csr_matrix(X)
    return sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


def _all_kept(a: Reservoir, b: Reservoir) -> Rows:
    """Both samples' rows under each other, CSR where either is."""
    if a.indices is None and b.indices is None and a.n_features != b.n_features:
        raise CannotMerge(f"states of {a.n_features} and {b.n_features} features cannot be merged.")
    first = a.kept if b.indices is None else sp.csr_matrix(a.kept)
    return _under(first, b.kept, max(a.n_features, b.n_features))


def _parts(kept: Rows) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """values, indices and indptr of kept rows."""
    if not sp.issparse(kept):
        return kept, None, None
    return kept.data, kept.indices.astype(np.int32), kept.indptr.astype(np.int64)
