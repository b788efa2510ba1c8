"""MomentAccumulator: one pass over rows, dense or sparse, into the additive MomentState [MATH §1].

It checks everything first and writes afterwards, so a refused batch leaves no trace. Rows without targets are skipped and
counted where targets are needed; a row with an empty set of labels counts in N, mean and scatter but in no cross sum.

Cost a row: d² / 2 (exact) or d, plus d k multiplications dense; nonzeros · (labels + 1) sparse without exact scatter.

Why this way: preparing a state per batch and merging it would touch all O(d k) sums at every batch (0.31 of one product
X.T @ Y was measured); adding in place touches those of the batch.
"""

from typing import Any

import numpy as np

from stream_dr.accumulate.centred_sums import CHUNK_VALUES, CentredPart, CentredSums, empty_part
from stream_dr.accumulate.class_scatter import ClassScatter, ClassScatterSums
from stream_dr.accumulate.clock import aged, clock_weights, span, tick
from stream_dr.accumulate.encoding import (
    Encoded,
    Encoding,
    check_encoding,
    check_kind,
    dense_columns,
    encode,
    encoded_width,
)
from stream_dr.accumulate.label_sets import LabelSets
from stream_dr.accumulate.moment_merge import PrecisionWarning, without
from stream_dr.accumulate.moment_state import Centred, MomentState, empty_state
from stream_dr.accumulate.protocol import Absent
from stream_dr.accumulate.sparse_sums import SparsePart, SparseSums, empty_sparse
from stream_dr.accumulate.target_sums import TargetSums, empty_targets
from stream_dr.block import Block, as_weights, check_finite
from stream_dr.errors import (
    CannotMerge,
    EmptyInput,
    InvalidParameter,
    InvalidTargets,
    TargetKindMismatch,
    TooManyFeatures,
    WidthMismatch,
)
from stream_dr.targets import check_label_type, labelled_rows

EXACT_WIDTH = 4096
"""Widest rows whose whole scatter is kept."""

SCATTERS = ("auto", "exact", "diagonal", "none")

__all__ = ["EXACT_WIDTH", "Centred", "MomentAccumulator", "MomentState", "PrecisionWarning", "empty_state"]


class MomentAccumulator:
    """The mutable side of MomentState.

    encoding: "none" (unsupervised), "indicator", "zhou" or a Fourier. scatter: "exact" (d ≤ 4,096), "diagonal", "none",
    or "auto": exact where the first batch states a width ≤ 4,096, else diagonal. decay in (0, 1]: row i of the stream
    weighs decay^(rows after it). state: go on from it; its arrays are copied. label_sets: keep sums per label set.
    class_scatter: keep each class's scatter. Raises InvalidParameter, or CannotMerge for a state of another spec.
    """

    def __init__(
        self,
        encoding: Encoding,
        scatter: str = "auto",
        decay: float = 1.0,
        state: MomentState | None = None,
        label_sets: bool = False,
        class_scatter: bool = False,
    ) -> None:
        check_encoding(encoding)
        if scatter not in SCATTERS:
            raise InvalidParameter(f"scatter={scatter!r}; it must be one of {', '.join(SCATTERS)}.")
        if not 0.0 < decay <= 1.0:
            raise InvalidParameter(f"decay={decay!r}; it must be in (0, 1].")
        fresh = empty_state(encoding, scatter, decay, label_sets, class_scatter)
        if state is not None:
            _check_spec(fresh, state)
        self._load(fresh if state is None else state)

    def add(self, block: Block) -> None:
        """Learn one batch, X (rows, features) dense or CSR. On error nothing has changed.

        Raises NotFinite, WidthMismatch, TooManyFeatures, TargetKindMismatch, InvalidTargets or InvalidWeights.
        """
        batch, skipped = self._checked(block)
        if batch.rows:
            self._begin(batch)
            weights = np.ones(batch.rows) if batch.weights is None else batch.weights
            encoded = self._encode(batch)
            step = span(self.decay)
            for start in range(0, batch.rows, step):
                self._learn(batch.X, weights, encoded, start, min(start + step, batch.rows))
        self.rows += batch.rows
        self.rows_skipped += skipped

    def remove(self, block: Block, age: int = 0) -> None:
        """Take out a batch learned before, given with the weights it was learned with [MATH §1, unlearn].

        age: rows learned since the batch's last row; it matters under decay only, where the batch's rows are taken to
        have been consecutive and weigh w · decay^age(row) now. Raises CannotUnlearn when more would go than was
        learned, and what `add` raises. Warns PrecisionWarning. O(d k + d²).
        """
        batch, skipped = self._checked(block)
        weights = np.ones(batch.rows) if batch.weights is None else batch.weights
        batch = batch._replace(weights=aged(weights, self.decay, age))
        part = MomentAccumulator(
            self.encoding, self.scatter, label_sets=self._sets is not None, class_scatter=self._classes is not None
        )
        part.add(batch)
        part.rows_skipped = skipped
        self._load(without(self.freeze(), part.freeze()))

    def freeze(self) -> MomentState:
        """The state so far, copied: O(d k), with exact scatter O(d²)."""
        return MomentState(
            self.encoding,
            self.scatter,
            self.decay,
            self.rows,
            self.rows_skipped,
            self._clock,
            self.n_features,
            self._dense,
            self.target_kind,
            self.labels,
            self._scale,
            self._weight,
            self._largest_trace,
            Absent() if self._features is None else self._features.freeze(),
            self._targets.freeze(),
            Absent() if self._classes is None else self._classes.freeze(),
            Absent() if self._sets is None else self._sets,
        )

    def _load(self, state: MomentState) -> None:
        self.encoding, self.scatter, self.decay = state.encoding, state.scatter, state.decay
        self.rows, self.rows_skipped, self._clock = state.rows, state.rows_skipped, state.clock
        self.n_features, self._dense = state.n_features, state.dense
        self.target_kind, self.labels = state.target_kind, state.labels
        self._codes = {label: j for j, label in enumerate(state.labels)}
        self._scale, self._weight, self._largest_trace = state.scale, state.weight, state.largest_trace
        self._features: SparseSums | CentredSums | None = None
        if isinstance(state.features, SparsePart):
            self._features = SparseSums(state.features)
        elif isinstance(state.features, CentredPart):
            self._features = CentredSums(state.features)
        self._targets = TargetSums(state.targets)
        self._classes = ClassScatterSums(state.class_scatter) if isinstance(state.class_scatter, ClassScatter) else None
        self._sets = state.label_sets if isinstance(state.label_sets, LabelSets) else None

    def _checked(self, block: Block) -> tuple[Block, int]:
        """The rows to learn and the number skipped, after every check."""
        X = block.X
        if self.rows and not block.sparse and X.shape[1] != self.n_features:
            raise WidthMismatch(
                f"batch has {X.shape[1]} features; this model was started with {self.n_features}. "
                "Send those columns or start a new model."
            )
        if self.rows and self._dense and X.shape[1] > self.n_features:
            raise WidthMismatch(f"sparse batch has {X.shape[1]} features; dense rows fixed {self.n_features}.")
        if self.scatter == "exact" and X.shape[1] > EXACT_WIDTH:
            raise TooManyFeatures(
                f"batch has {X.shape[1]} features; exact scatter is kept up to {EXACT_WIDTH}. "
                'Start a model with scatter="diagonal".'
            )
        if not block.sparse and X.shape[0] and not X.shape[1]:
            raise EmptyInput("batch has 0 features; dense rows need at least one.")
        check_finite(X)
        block = block._replace(weights=as_weights(block.weights, block.rows))
        if self.encoding == "none":
            return block._replace(y=None), 0
        self._check_targets(block)
        return labelled_rows(block)

    def _check_targets(self, block: Block) -> None:
        y = block.y
        if y is None:
            return
        if y.rows != block.rows:
            raise InvalidTargets(f"batch has {block.rows} rows but {y.rows} targets; pass one target a row.")
        if self.target_kind is not None and y.kind != self.target_kind:
            raise TargetKindMismatch(
                f"targets are of kind {y.kind}; this model was started with {self.target_kind}. "
                f"Pass {self.target_kind} targets or start a new model."
            )
        check_kind(self.encoding, y.kind)
        if self._classes is not None and y.kind != "class":
            raise TargetKindMismatch("several labels a row were given; class scatter needs one. Use OPLS, CCA or HSL.")
        check_label_type(self.labels, y.labels)
        if self.target_kind == "continuous" and encoded_width(self.encoding, y.values.shape[1]) != self._columns:
            raise InvalidTargets(
                f"targets have {y.values.shape[1]} columns; this model was started with another number. "
                "Pass those columns or start a new model."
            )

    @property
    def _columns(self) -> int:
        return len(self._targets.total) if self._targets.labelled else len(self._targets.values.mean)

    def _begin(self, batch: Block) -> None:
        """Decide what the first batch decides, and make room for new features and labels."""
        if self.scatter == "auto":
            stated = (not batch.sparse) or batch.width_stated
            self.scatter = "exact" if stated and batch.features <= EXACT_WIDTH else "diagonal"
        self.n_features = max(self.n_features, batch.features)
        self._dense = self._dense or not batch.sparse
        if batch.y is not None and self.target_kind is None:
            self.target_kind = batch.y.kind
            width = 0 if batch.y.values is None else encoded_width(self.encoding, batch.y.values.shape[1])
            self._targets = TargetSums(empty_targets(self.target_kind, width))
        if batch.y is not None and batch.y.labels:
            for label in batch.y.labels:
                self._codes.setdefault(label, len(self._codes))
            self.labels = tuple(self._codes) if len(self._codes) > len(self.labels) else self.labels
            self._targets.grow(len(self.labels), self.target_kind == "multilabel")
        self._grow(batch)

    def _grow(self, batch: Block) -> None:
        k = self._columns
        if self._features is None:
            if batch.sparse and self.scatter != "exact":
                reference = np.zeros(k)
                if batch.y is not None and batch.y.values is not None:
                    reference = self._encode(batch).values.mean(axis=0)
                self._features = SparseSums(empty_sparse(self.n_features, reference))
            else:
                self._features = CentredSums(empty_part(self.n_features, k, self.scatter == "exact"))
        elif isinstance(self._features, SparseSums) and not batch.sparse:
            from stream_dr.accumulate.moment_state import centred_features

            self._features = CentredSums(centred_features(self.freeze()))
        self._features.grow(self.n_features, k)
        if self._classes is not None:
            self._classes.grow(self.n_features, k)

    def _encode(self, batch: Block) -> Encoded | None:
        if batch.y is None:
            return None
        columns = np.array([self._codes[label] for label in batch.y.labels], dtype=np.int32)
        return encode(batch.y, self.encoding, columns)

    def _renormalise(self, factor: float) -> None:
        for sums in (self._features, self._targets, self._classes):
            if sums is not None:
                sums.scaled(factor)
        self._weight *= factor

    def _learn(self, X: Any, weights: np.ndarray, encoded: Encoded | None, start: int, stop: int) -> None:
        """Learn rows start:stop, at most span(decay) of them."""
        rows = slice(start, stop)
        self._scale = tick(self._scale, self.decay, stop - start, self._renormalise)
        w = clock_weights(weights[rows], self.decay, self._scale)
        if isinstance(self._features, SparseSums):
            part = _rows_of(encoded, start, stop)
            self._features.add(X if stop - start == X.shape[0] else X[rows], w, part)
            if part is not None:
                self._targets.add(part, w)
            self._weight += float(w.sum())
            self._follow()
        else:
            self._learn_centred(X, w, encoded, start, stop)
        self._clock += stop - start

    def _follow(self) -> None:
        """Take ȳ as the reference of continuous targets where it has left it by several standard deviations."""
        values = self._targets.values
        if not self._targets.labelled and self._weight > 0.0:
            far = (values.mean - self._features.reference) ** 2 * self._weight > 64.0 * np.diagonal(values.scatter)
            if far.any() and not np.array_equal(values.mean, self._features.reference):
                self._features.refer(values.mean)

    def _learn_centred(self, X: Any, w: np.ndarray, encoded: Encoded | None, start: int, stop: int) -> None:
        """Dense rows, and sparse ones a bounded chunk at a time, centred on their own mean."""
        size = max(16, CHUNK_VALUES // max(1, self.n_features))
        for at in range(start, stop, size):
            end = min(at + size, stop)
            chunk, own = X[at:end], w[at - start : end - start]
            if hasattr(chunk, "toarray"):
                chunk = _widened(chunk, self.n_features).toarray()
            self._learn_chunk(chunk, own, _rows_of(encoded, at, end))

    def _learn_chunk(self, X: np.ndarray, w: np.ndarray, encoded: Encoded | None) -> None:
        n = float(w.sum())
        before = self._targets.freeze() if encoded is not None else None
        if encoded is not None:
            self._targets.add(encoded, w)
        if not n > 0.0:
            return
        centring = self._features.centre(X, w)
        targets = None
        if encoded is not None:
            columns = dense_columns(encoded, 0, len(X), self._columns)
            batch = TargetSums(empty_targets(self.target_kind, self._columns))
            batch.add(encoded, w)
            part = batch.freeze()
            targets = np.empty((len(X) + 1, self._columns))
            targets[:-1] = np.sqrt(w)[:, None] * (columns - part.mean(n))
            targets[-1] = centring.root * part.step_from(before, n, self._weight)
        self._features.join(centring, targets)
        self._weight += n
        if self._classes is not None and encoded is not None:
            self._classes.add(X, w, encoded.codes)


def _check_spec(fresh: MomentState, state: MomentState) -> None:
    for name in ("encoding", "decay"):
        if getattr(fresh, name) != getattr(state, name):
            raise CannotMerge(f"the state has {name} {getattr(state, name)!r}; {getattr(fresh, name)!r} was asked for.")
    if fresh.scatter not in ("auto", state.scatter) and state.scatter != "auto":
        raise CannotMerge(f"the state has scatter {state.scatter!r}; {fresh.scatter!r} was asked for.")


def _rows_of(encoded: Encoded | None, start: int, stop: int) -> Encoded | None:
    """Rows start:stop of encoded targets."""
    if encoded is None:
        return None
    values = None if encoded.values is None else encoded.values[start:stop]
    row_values = None if encoded.row_values is None else encoded.row_values[start:stop]
    if encoded.indptr is None:
        codes = encoded.codes[start:stop] if values is None else encoded.codes
        return Encoded(codes, None, row_values, values)
    indptr = encoded.indptr[start : stop + 1]
    return Encoded(encoded.codes[indptr[0] : indptr[-1]], indptr - indptr[0], row_values, values)


def _widened(X: Any, width: int) -> Any:
    if X.shape[1] != width:
        X = type(X)((X.data, X.indices, X.indptr), shape=(X.shape[0], width))
    return X
