"""Sums of rows in K folds [mathematics §13].

Each fold is a MomentState. A row is learned in one fold, whose number is the row's hash modulo K
(row_hashes.py). So the folds do not depend on how the rows were batched, in which order they came,
or which of two merged states learned them. The merge of all folds is the state of all rows.

From the folds, errors on held-out rows and the uncertainty of components can be computed without
reading any row again.

Decay is computed for all folds together (clock.py), so the state of a fold has decay 1. A row
enters its fold with a weight that depends on the number of rows learned in all folds.
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np

from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label
from stream_dr.checks import ROW_COUNT_LIMIT, check_within, field_error
from stream_dr.errors import CannotMerge
from stream_dr.statistics.moments import clock
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.batch_plan import PlannedBatch
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.state import MomentState, align_states_together, scale_state
from stream_dr.statistics.moments.unlearn import subtract_row_count, subtract_state
from stream_dr.statistics.protocol import AccumulatorBase, register_nested_state
from stream_dr.statistics.row_hashes import row_and_target_hashes


class FoldedState(NamedTuple):
    """Sums of rows that are divided into K folds.

    Each row belongs to one fold, which depends on the hash of the row. True sums are `scale` times
    the stored sums.

    Attributes
    ----------
    decay : float
        Factor by which the weight of a row shrinks with every later row of any fold.
    scale : float
        Factor from the stored sums of every fold to true sums.
    clock : int
        Number of learned rows whose decay is included in the sums.
    rows_skipped : int
        Number of rows that were not learned because they had no target.
    parts : tuple of MomentState
        State of each fold, with decay 1 and scale 1. All folds have the same features and labels.
    """

    decay: float
    scale: float
    clock: int
    rows_skipped: int
    parts: tuple[MomentState, ...]

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        return sum(part.rows for part in self.parts)

    @property
    def n_features(self) -> int:
        """Number of features so far, 0 before the first batch."""
        return self.parts[0].n_features

    @property
    def target_kind(self) -> str | None:
        """Kind of targets. None before the first target."""
        return self.parts[0].target_kind

    @property
    def labels(self) -> tuple[Label, ...]:
        """Distinct labels in order of first appearance."""
        return self.parts[0].labels

    @property
    def label_rows(self) -> np.ndarray:
        """Array (labels,) int64, the number of rows with each label."""
        label_rows: np.ndarray = np.sum([part.label_rows for part in self.parts], axis=0)
        return label_rows

    def check(self) -> None:
        """Raise DamagedFile unless all folds have equal features and labels.

        There must be at least two folds. The parameters must be in their ranges.
        """
        check_within(self, 0, ROW_COUNT_LIMIT, "clock", "rows_skipped")
        if len(self.parts) < 2 or not (0.0 < self.decay <= 1.0 and 0.0 < self.scale < np.inf):
            raise field_error(self, "parts", f"{len(self.parts)} of scale {self.scale}", "at least 2 of scale above 0")
        shared = _fields_equal_in_folds(self.parts[0])
        for part in self.parts:
            part.check()
            if (part.decay, part.scale) != (1.0, 1.0) or _fields_equal_in_folds(part) != shared:
                raise field_error(self, "parts", "of different features or labels", "of the same")

    def merge(self, other: "FoldedState") -> "FoldedState":
        """Return the state of all rows of `self` and `other`.

        With decay < 1, the rows of `other` must have come after the rows of `self`. Raises
        CannotMerge, for example if the numbers of folds or the decays differ.
        """
        if len(self.parts) != len(other.parts) or self.decay != other.decay:
            raise CannotMerge(
                f"states of {len(self.parts)} folds and decay {self.decay} cannot be merged with states of "
                f"{len(other.parts)} folds and decay {other.decay}: learn both with the same parameters."
            )
        skipped = self.rows_skipped + other.rows_skipped
        if not (self.rows and other.rows):
            return (self if self.rows else other)._replace(rows_skipped=skipped)
        aged = self.scale * self.decay**other.clock / other.scale
        merged = [scale_state(a, aged).merge(b) for a, b in zip(self.parts, other.parts, strict=True)]
        return FoldedState(self.decay, other.scale, self.clock + other.clock, skipped, align_folds(merged))

    def merge_folds(self) -> MomentState:
        """Return the state of the rows of all folds together.

        Costs K − 1 merges for K folds.
        """
        merged = reduce(MomentState.merge, self.parts)
        return merged._replace(decay=self.decay, scale=self.scale, clock=self.clock, rows_skipped=self.rows_skipped)


register_nested_state(FoldedState)


def align_folds(parts: list[MomentState]) -> tuple[MomentState, ...]:
    """Give all folds' states the same features and labels.

    After a merge, the folds may have labels in different orders, and some folds may lack labels.
    The folds also get the same list of label sets. A label set is a distinct combination of
    labels.

    parts: state of each fold.
    """
    dense = any(part.dense for part in parts)
    aligned = [part._replace(dense=dense) for part in align_states_together(*parts)]

    # All parts store sums of label sets, or none of them.
    stored = [part.label_sets for part in aligned if isinstance(part.label_sets, LabelSets)]
    if not stored:
        return tuple(aligned)
    sets = tuple(dict.fromkeys(own for state in stored for own in state.sets))
    renumbered = [state.with_renumbered_sets(sets, aligned[0].n_features) for state in stored]
    return tuple(part._replace(label_sets=state) for part, state in zip(aligned, renumbered, strict=True))


def _fields_equal_in_folds(part: MomentState) -> tuple[object, ...]:
    return part.n_features, part.labels, part.target_kind, part.target_width, part.dense, part.scatter


class FoldedAccumulator(AccumulatorBase):
    """Accumulator that stores separate sums for each of K folds.

    Each row is learned in one fold, which depends on the hash of the row. `freeze` returns a
    FoldedState.

    Parameters
    ----------
    folds : int
        Number of folds K ≥ 2.
    build_accumulator : function
        Returns a MomentAccumulator of decay 1. Its argument is a MomentState to continue from, or
        None for an empty accumulator.
    decay : float in (0, 1]
        Factor by which the weight of a row shrinks with every later row.
    state : FoldedState or None
        State to continue from.
    """

    def __init__(
        self,
        folds: int,
        build_accumulator: Callable[[MomentState | None], MomentAccumulator],
        decay: float = 1.0,
        state: FoldedState | None = None,
    ) -> None:
        self.folds = folds
        self.decay = decay
        self._build = build_accumulator
        if state is not None and state.decay != decay:
            raise CannotMerge(f"a state of decay {state.decay} cannot be continued with decay {decay}: set it back.")
        self._load_state(state or FoldedState(decay, 1.0, 0, 0, (build_accumulator(None).freeze(),) * folds))

    def _load_state(self, state: FoldedState) -> None:
        self._parts = [self._build(part) for part in state.parts]
        self._scale = state.scale
        self._clock = state.clock
        self.rows_skipped = state.rows_skipped

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        return sum(part.rows for part in self._parts)

    @property
    def n_features(self) -> int:
        """Number of features so far, 0 before the first batch."""
        return self._parts[0].n_features

    @property
    def target_kind(self) -> str | None:
        """Kind of targets. None before the first target."""
        return self._parts[0].target_kind

    @property
    def label_rows(self) -> np.ndarray:
        """Array (labels,) int64, the number of rows with each label."""
        counts = [part.label_rows for part in self._parts]
        # If another thread learns a batch now, only some folds may have the batch's new labels.
        known = min(map(len, counts))
        return np.asarray(np.sum([count[:known] for count in counts], axis=0))

    @property
    def labels(self) -> tuple[Label, ...]:  # type: ignore[override]
        """Distinct labels in order of first appearance."""
        return self._parts[0].labels

    @property
    def scatter(self) -> str:  # type: ignore[override]
        """Stored part of the scatter matrix of the features."""
        return self._parts[0].scatter

    def add(self, block: Block) -> None:
        """Learn one batch, each row in its fold.

        Raises the errors of MomentAccumulator.add. After an error nothing has changed.
        """
        batch = self._plan_with_hashes(block)
        if batch.rows:
            # All folds get the features and labels of the batch, even folds without new rows.
            for part in self._parts:
                part.make_room_for_batch(batch)

            # Under decay, learn few rows at a time, so that the scale never becomes too small.
            step = clock.max_rows_per_step(self.decay)
            for start in range(0, batch.rows, step):
                stop = min(start + step, batch.rows)
                rows = stop - start
                self._scale = clock.advance_scale_and_rescale(self._scale, self.decay, rows, self._rescale_folds)
                weights = clock.weights_for_stored_sums(batch.weights[start:stop], self.decay, self._scale)
                chunk = batch if rows == batch.rows else batch.take(np.arange(start, stop))
                self._learn_weighted_rows(chunk._replace(weights=weights))
            self._clock += batch.rows
        self.rows_skipped += batch.skipped

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        Each row is removed from its fold. Raises the errors of MomentAccumulator.remove, if they
        apply to any fold. After an error nothing has changed.
        """
        clock.check_can_unlearn(self.decay)

        # Learn only this batch, in a new accumulator with empty folds.
        # The new accumulator numbers label sets (distinct combinations of labels) from 0 on.
        batch = self._plan_with_hashes(block)
        removed = FoldedAccumulator(self.folds, self._build)
        batch = removed._parts[0].with_label_set_numbers(batch)
        for fold in removed._parts:
            fold.make_room_for_batch(batch)
        removed._learn_weighted_rows(batch)

        # Subtract the batch's sums from the sums of each fold. An error here changes nothing.
        skipped = subtract_row_count(self.rows_skipped, batch.skipped, "rows without target")
        pairs = zip(self.freeze().parts, removed.freeze().parts, strict=True)
        remaining = [subtract_state(mine, theirs) for mine, theirs in pairs]

        # A fold without remaining rows gets the features and labels of the other folds.
        rows = sum(part.rows for part in remaining)
        empty = self._build(None)
        if rows:
            empty.make_room_for_batch(batch)
        remaining = [part if part.rows else empty.freeze() for part in remaining]
        self._load_state(FoldedState(self.decay, 1.0, rows, skipped, align_folds(remaining)))

    def freeze(self) -> FoldedState:
        """Return the sums so far as a FoldedState.

        The arrays are copied.
        """
        parts = tuple(part.freeze() for part in self._parts)
        return FoldedState(self.decay, self._scale, self._clock, self.rows_skipped, parts)

    def _plan_with_hashes(self, block: Block) -> PlannedBatch:
        """Check a batch, and return the plan for learning it.

        The first fold checks the batch, because all folds have the same features and labels.
        """
        if block.hashes is None and not block.table:
            block = block._replace(hashes=row_and_target_hashes(block))
        return self._parts[0].check_and_plan_batch(block)

    def _learn_weighted_rows(self, batch: PlannedBatch) -> None:
        """Learn each row of a checked batch in its fold.

        batch: the rows. Their weights are divided by the factor from stored sums to true sums.
        """
        assert batch.hashes is not None
        fold = (batch.hashes % np.uint64(self.folds)).astype(np.int64)
        counts = np.bincount(fold, minlength=self.folds)
        batch = batch.take(np.argsort(fold, kind="stable"))
        start = 0
        for part, rows in zip(self._parts, counts.tolist(), strict=True):
            if rows:
                part.learn(batch, start, start + rows)
            start += rows

    def _rescale_folds(self, factor: float) -> None:
        for part in self._parts:
            part.rescale(factor)
