"""MomentAccumulator: learns rows in one pass, as sums [mathematics §1].

The sums are additive. They are returned as a MomentState.

Rows are dense or sparse. Every check of a batch happens before the first write. So
a batch that raises an error changes nothing.

If the encoding reads targets, rows without a target are skipped and counted. (The encoding
"partial" learns them, with zeros as targets.) A row with an empty set of labels is learned, but it
adds nothing to the cross sums of features and targets.

A dense row of d features and k target columns costs d k multiplications, plus d² / 2 with exact
scatter or d without. A sparse row without exact scatter costs nonzeros · (labels + 1). Memory is
the memory of the state plus 8 MB. The arrays of a batch are read in place, not copied.
"""

import warnings

import numpy as np

from stream_dr.batch.block import Block, Rows, weights_or_ones
from stream_dr.batch.targets import drop_rows_without_target, targets_without_labels
from stream_dr.checks import MAX_EXACT_WIDTH
from stream_dr.errors import InvalidParameter, InvalidTargets, OnlyDiagonal, TooManyFeatures, WidthMismatch
from stream_dr.statistics.moments import clock
from stream_dr.statistics.moments.batch_plan import PlannedBatch, with_new_labels_appended
from stream_dr.statistics.moments.centred_part import CentredPart, empty_centred_part
from stream_dr.statistics.moments.centred_sums import CHUNK_VALUES, CentredSums, TargetRows
from stream_dr.statistics.moments.class_scatter import ClassScatter, ClassScatterSums
from stream_dr.statistics.moments.encoding import Encoding, check_encoding, encode_as_columns, slice_encoded_rows
from stream_dr.statistics.moments.label_sets import LabelSets, LabelSetSums
from stream_dr.statistics.moments.sparse_sums import SparsePart, SparseSums
from stream_dr.statistics.moments.state import MomentState, centred_features, check_same_parameters, empty_state
from stream_dr.statistics.moments.target_sums import TargetSums, empty_targets, target_mean
from stream_dr.statistics.moments.unlearn import subtract_state
from stream_dr.statistics.protocol import Absent, AccumulatorBase

SCATTERS = ("auto", "exact", "diagonal", "none")


class MomentAccumulator(AccumulatorBase):
    """Accumulator that learns rows and targets as sums.

    `freeze` returns the sums as a MomentState. Raises InvalidParameter for an unknown encoding or
    scatter. Raises CannotMerge for a state that was learned with other parameters.

    Parameters
    ----------
    encoding : Encoding
        How targets become numeric columns: "none" (targets are not read), "indicator", "partial",
        "zhou" or a Fourier object (encoding.py).
    scatter : str
        Part of the scatter matrix to store: "exact" (all pairs of features, of at most 4,096
        features if rows are sparse), "diagonal", "none" or "auto". "auto" becomes "exact" if the first batch declares
        at most 4,096 features, else "diagonal".
    decay : float in (0, 1]
        Factor by which the weight of a row shrinks with every later row.
    state : MomentState or None
        State to continue from. Its arrays are copied.
    label_sets : bool
        True to store sums for each distinct set of labels that rows have.
    class_scatter : bool
        True to store a scatter matrix for each class. It is stored only if the scatter matrix of
        all rows is exact.
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
            check_same_parameters(fresh, state)
        self._load_state(fresh if state is None else state)

    def add(self, block: Block) -> None:
        """Learn one batch.

        The rows of the batch are dense or CSR. After an error nothing has changed.

        Rows, targets and weights were checked where they came in. Raises WidthMismatch,
        TooManyFeatures or InvalidTargets if they do not fit into the arrays of sums. Raises
        LimitExceeded if there would be too many distinct sets of labels.
        """
        batch = self.check_and_plan_batch(block)
        rows = batch.weights.size
        if rows:
            self.make_room_for_batch(batch)
            step = rows
            if self.decay < 1.0:
                step = clock.max_rows_per_step(self.decay)
            for start in range(0, rows, step):
                self.learn(batch, start, min(start + step, rows))
        self.rows_skipped += batch.skipped

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before [mathematics §1, unlearn].

        The batch must have the weights with which it was learned. After an error nothing has
        changed. Costs O(d k) for d features and k target columns, with exact scatter O(d²) more.

        Raises CannotUnlearn if decay < 1, or if the batch has more rows or weight than were
        learned. Raises PrecisionLost, a kind of CannotUnlearn, if fewer than six digits of the
        remaining sums would be right. Also raises the errors of `add`.
        """
        clock.check_can_unlearn(self.decay)

        # Compute the sums of this batch alone.
        batch = self.check_and_plan_batch(block)
        sets = self._sets is not None
        classes = self._classes is not None
        part = MomentAccumulator(self.encoding, batch.scatter, label_sets=sets, class_scatter=classes)
        batch = part.with_label_set_numbers(batch)
        if batch.rows:
            part.make_room_for_batch(batch)
            part.learn(batch, 0, batch.rows)
        part.rows_skipped = batch.skipped

        # Subtract the sums of the batch from all sums. If this raises an error, nothing changes.
        state = subtract_state(self.freeze(), part.freeze())
        self._load_state(state._replace(clock=state.rows))

    def freeze(self) -> MomentState:
        """Return the sums so far as a MomentState.

        The arrays are copied.
        """
        return MomentState(
            self.encoding,
            self.scatter,
            self.decay,
            self.rows,
            self.rows_skipped,
            self._clock,
            self.n_features,
            self.dense,
            self.target_kind,
            self.target_width,
            self.labels,
            self._scale,
            self._weight,
            Absent() if self._features is None else self._features.freeze(),
            self._targets.freeze(),
            Absent() if self._classes is None else self._classes.freeze(),
            Absent() if self._sets is None else self._sets.freeze(),
            self._largest,
        )

    @property
    def n_target_columns(self) -> int:
        """Number of target columns."""
        targets = self._targets
        return targets.total.size if targets.labelled else targets.values.mean.size

    @property
    def label_rows(self) -> np.ndarray:
        """Array (labels,) int64, the number of rows with each label.

        It must not be changed.
        """
        return self._targets.label_rows

    @property
    def requires_one_label(self) -> bool:
        """True if every row must have exactly one label."""
        return self._classes is not None

    def _load_state(self, state: MomentState) -> None:
        self.encoding = state.encoding
        self.scatter = state.scatter
        self.decay = state.decay
        self.rows = state.rows
        self.rows_skipped = state.rows_skipped
        self._clock = state.clock
        self.n_features = state.n_features
        self.dense = state.dense
        self.target_kind = state.target_kind
        self.target_width = state.target_width
        self.labels = state.labels
        self._codes = {label: j for j, label in enumerate(state.labels)}
        self._scale = state.scale
        self._weight = state.weight
        # Largest value of each sum before rows were unlearned. `add` does not change them.
        self._largest = state.largest
        f = state.features
        classes = state.class_scatter
        sets = state.label_sets
        self._features: SparseSums | CentredSums | None = None
        if isinstance(f, SparsePart | CentredPart):
            self._features = SparseSums.continue_from_part(f) if isinstance(f, SparsePart) else CentredSums(f)
        self._targets = TargetSums(state.targets)
        self._classes = ClassScatterSums(classes) if isinstance(classes, ClassScatter) else None
        self._sets = LabelSetSums(sets) if isinstance(sets, LabelSets) else None

    def check_and_plan_batch(self, block: Block) -> PlannedBatch:
        """Return the plan for learning a batch.

        Nothing is changed. Raises WidthMismatch, TooManyFeatures, InvalidTargets or LimitExceeded if
        the batch does not fit into the arrays of sums.
        """
        rows, features = block.X.shape
        sparse = not isinstance(block.X, np.ndarray)
        if sparse:
            self._check_sparse_width(features)

        # Drop rows without a target, unless the encoding of targets allows them.
        skipped = 0
        if self.encoding == "none":
            y = None
        elif self.encoding == "partial":
            y = block.y or targets_without_labels(rows)
        else:
            block, skipped = drop_rows_without_target(block)
            y = block.y
            rows -= skipped
        weights = weights_or_ones(block.weights, rows)

        # The first batch decides whether the whole scatter matrix is stored.
        scatter = self.scatter
        width = max(self.n_features, features)
        if scatter == "auto" and rows:
            stated = not sparse or block.width_stated
            scatter = "exact" if stated and features <= MAX_EXACT_WIDTH else "diagonal"
            if scatter == "diagonal" and not sparse:
                _warn_only_diagonal(features)

        # Encode the targets. New labels come after the earlier labels.
        kind, labels, target_width, encoded = self.target_kind, self.labels, self.target_width, None
        if y is None:
            k = self.n_target_columns
        else:
            kind = y.kind
            target_width = 0 if y.values is None else y.values.shape[1]
            if self.target_kind == kind and target_width != self.target_width:
                raise InvalidTargets(
                    f"targets have {target_width} columns; this model was started with {self.target_width}. "
                    "Pass those columns or start a new model."
                )
            labels, column = with_new_labels_appended(self._codes, labels, y)
            encoded = encode_as_columns(y, self.encoding, column)
            k = len(labels) if encoded.values is None else encoded.values.shape[1]

        dense = self.dense or not sparse
        batch = PlannedBatch(
            block.X, weights, encoded, skipped, scatter, width, k, dense, kind, target_width, labels, block.hashes
        )
        return batch if self._sets is None else self.with_label_set_numbers(batch)

    def _check_sparse_width(self, n_features: int) -> None:
        if self.dense and n_features > self.n_features:
            raise WidthMismatch(
                f"sparse batch has {n_features} features; dense rows have fixed them at {self.n_features}. "
                "Send at most those or start a new model."
            )

        if self.scatter == "exact" and n_features > MAX_EXACT_WIDTH:
            diagonal = 'Start a model with scatter="diagonal"'
            advice = "Use MMC, which has a diagonal form" if self.requires_one_label else diagonal
            raise TooManyFeatures(
                f"batch has {n_features} features; exact scatter of sparse rows is stored for up to {MAX_EXACT_WIDTH}. "
                f"{advice}."
            )

    def with_label_set_numbers(self, batch: PlannedBatch) -> PlannedBatch:
        """Return the batch with each row's label set index.

        A label set is a distinct combination of labels. If the accumulator stores no sums for
        label sets, or the batch has no labels, the batch is returned unchanged. Raises
        LimitExceeded if there would be more than 20,000 label sets.
        """
        if self._sets is None or batch.encoded is None or batch.encoded.values is not None:
            return batch
        sets = self._sets.number_sets(batch.encoded, batch.rows)
        return batch._replace(encoded=batch.encoded._replace(sets=sets))

    def make_room_for_batch(self, batch: PlannedBatch) -> None:
        """Prepare the accumulator for a checked batch.

        Sets the kind of targets, the labels and the number of features, and makes room for them in
        the arrays of sums.
        """
        # Set the kind of targets, the number of features and the labels.
        if self.target_kind is None and batch.target_kind is not None:
            self._targets = TargetSums(empty_targets(batch.target_kind, 0 if batch.labels else batch.n_target_columns))
        self.scatter = batch.scatter
        self.n_features = batch.width
        self.dense = batch.dense
        self.target_kind = batch.target_kind
        self.target_width = batch.target_width
        if len(batch.labels) > len(self.labels):
            self._codes.update((label, j) for j, label in enumerate(batch.labels) if j >= len(self.labels))
            self.labels = batch.labels

        # Make room for the new features and labels, in the sums of the targets first.
        if batch.target_kind != "continuous":
            self._targets.grow(len(self.labels), batch.target_kind == "multilabel")
        self._prepare_feature_sums(batch)
        if self._classes is not None and self.scatter == "exact":
            self._classes.grow(self.n_features, batch.n_target_columns)
        if self._sets is not None and batch.encoded is not None and batch.encoded.sets is not None:
            self._sets.make_room_for_sets(batch.encoded.sets.new)

    def _prepare_feature_sums(self, batch: PlannedBatch) -> None:
        """Create the features' sums, or make room for more.

        Sums over sparse rows are not stored about the mean of the rows. When the first dense rows
        come, they are converted to sums about the mean (centred sums).
        """
        exact = self.scatter == "exact"
        if self._features is None and batch.sparse and not exact:
            self._features = SparseSums(self.n_features, np.zeros(batch.n_target_columns))
        elif self._features is None:
            self._features = CentredSums(empty_centred_part(self.n_features, batch.n_target_columns, exact))
        self._features.grow(self.n_features, batch.n_target_columns)
        if not isinstance(self._features, SparseSums):
            return
        if self._weight == 0.0 and batch.encoded is not None and batch.encoded.values is not None:
            # Continuous targets are summed about the mean of the first batch.
            total = float(batch.weights.sum())
            if total > 0.0:
                self._features.reference = batch.weights / total @ batch.encoded.values
        if not batch.sparse:
            self._features = CentredSums(centred_features(self.freeze()))

    def rescale(self, factor: float) -> None:
        """Multiply all stored sums by a factor."""
        for sums in (self._features, self._targets, self._classes, self._sets):
            if sums is not None:
                sums.rescale(factor)
        self._weight *= factor
        self._largest = self._largest.scaled(factor)

    def learn(self, batch: PlannedBatch, start: int, stop: int) -> None:
        """Learn rows start:stop of a batch.

        `make_room_for_batch` must have been called with this batch. There must be at most
        `max_rows_per_step(decay)` rows (clock.py).
        """
        weights = batch.weights[start:stop]
        if self.decay < 1.0:
            # All rows lose weight: make the factor from stored sums to true sums smaller.
            self._scale = clock.advance_scale_and_rescale(self._scale, self.decay, stop - start, self.rescale)
            weights = clock.weights_for_stored_sums(weights, self.decay, self._scale)

        # Rows are learned in chunks if they must be centred, which needs temporary memory.
        size = stop - start
        if not isinstance(self._features, SparseSums):
            size = max(16, CHUNK_VALUES // max(1, self.n_features))
        for at in range(start, stop, size):
            end = min(at + size, stop)
            X = batch.X if end - at == len(batch.weights) else batch.X[at:end]
            w = weights[at - start : end - start]
            self._learn_part(X, w, batch, at, end)
            if self._sets is not None and batch.encoded is not None and batch.encoded.sets is not None:
                self._sets.add(X, w, batch.encoded.sets.numbers[at:end], self.n_features)
        self._clock += stop - start
        self.rows += stop - start

    def _learn_part(self, part_rows: Rows, row_weights: np.ndarray, batch: PlannedBatch, start: int, stop: int) -> None:
        """Learn rows start:stop of a batch.

        part_rows: (rows, ≤ n_features), rows start:stop of the batch.
        row_weights: (rows,) weights of these rows. Under decay they are divided by the same number
            as the stored sums.
        """
        # Add the targets of the rows to their sums. Centred sums need the mean of the earlier
        # targets.
        encoded = batch.encoded
        if encoded is not None and stop - start < len(batch.weights):
            encoded = slice_encoded_rows(encoded, start, stop)
        if not isinstance(self._features, SparseSums):
            before = target_mean(self._targets, self._weight)
        values = None if encoded is None else self._targets.add_targets(encoded, row_weights)

        # Add the features of the rows, and the products of features and targets.
        if isinstance(self._features, SparseSums):
            self._weight = self._features.add_total_weight(part_rows, row_weights, encoded, self._weight)
            # A fixed point is subtracted from continuous targets. Keep it near their mean.
            self._features.move_target_reference(self._targets)
        elif self._features is not None:
            total = float(np.add.reduce(row_weights))
            rows = None if encoded is None else TargetRows(encoded, batch.n_target_columns, before, values)
            self._features.add_rows(part_rows, row_weights, total, rows)
            if self._classes is not None and encoded is not None and self.scatter == "exact":
                # Only rows with a label belong to a class.
                # Without `indptr`, every row has one label.
                labelled = slice(None) if encoded.indptr is None else np.flatnonzero(np.diff(encoded.indptr))
                self._classes.add(part_rows[labelled], row_weights[labelled], encoded.codes)
            self._weight += total


def _warn_only_diagonal(n_features: int) -> None:
    gigabytes = 8 * n_features**2 / 1e9
    warnings.warn(
        f"only the diagonal of the scatter of {n_features} features is stored, as if they were uncorrelated. "
        f'scatter="exact" stores all of it ({gigabytes:.1f} GB, for each class where a method needs that), and '
        "refine(rows) solves exactly without it.",
        OnlyDiagonal,
        stacklevel=2,
    )
