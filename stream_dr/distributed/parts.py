"""Partial results: what a task has learned, and how two of them are merged.

A partial result also has an outline of every batch, which is a row or a few with all that the
batch would change in the stream (features, labels, kind of targets). The process that appends the
batches to a log can admit them by their outlines, without their rows.

Memory: a state for each model.

Cost: learning costs what the models cost, a merge takes two passes over the states.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from stream_dr.directory.admit import admit_block
from stream_dr.directory.draft import Reference
from stream_dr.distributed.task_plan import Task
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.models.schema import Limits, Schema, block_for, columns_in_order
from stream_dr.rows.block import Block
from stream_dr.shards.dataset import Shard, open_shard
from stream_dr.statistics.protocol import AdditiveState, State
from stream_dr.targets.targets import all_absent

ProgressCallback = Callable[[Reference], None]
"""Function that receives every batch before it is learned."""


class PartialResult(NamedTuple):
    """Result of learning consecutive batches.

    states: a state for each model, in the plan's order.
    outlines: an outline for each batch.
    refusal: error that names the first batch that cannot be learned, or None. With an error there
        are no states and outlines.
    """

    states: tuple[AdditiveState, ...]
    outlines: tuple[Block, ...]
    refusal: StreamDRError | None = None


class _Learner(NamedTuple):
    """Model as `admit_block` needs it."""

    estimator: Estimator
    # The batch that decides the stream's schema was tried before the plan was made.
    initial_state: None = None


def learn(
    task: Task,
    specs: Sequence[Spec],
    schema: Schema,
    limits: Limits,
    states: Sequence[State | None] = (),
    on_batch: ProgressCallback | None = None,
) -> PartialResult:
    """Learn a task's batches.

    states: states from which the models continue. Empty: from nothing.
    on_batch: receives every batch before it is learned.

    If the stream or a model refuses a batch, the result has the `refusal`. Raises SourceMissing
    and DamagedShard.
    """
    learners = [_Learner(estimator_of(spec)) for spec in specs]
    estimators = [learner.estimator for learner in learners]
    accumulators = [e.accumulator(s) for e, s in zip(estimators, states or [None] * len(specs), strict=True)]
    outlines = []

    for reference in task.references:
        if on_batch is not None:
            on_batch(reference)

        block = _checked_shard(reference.uri, reference.sha256).read(reference.batch)
        try:
            schema = admit_block(block, schema, learners, limits)
            block = columns_in_order(block, schema)
            for estimator, accumulator in zip(estimators, accumulators, strict=True):
                accumulator.add(block_for(estimator, block))
        except StreamDRError as e:
            return PartialResult((), (), type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details))
        outlines.append(outline(block, any(e.most_label_sets(schema.features, block.sparse) for e in estimators)))

    learned = tuple(cast(AdditiveState, accumulator.freeze()) for accumulator in accumulators)
    return PartialResult(learned, tuple(outlines))


def merge(older: PartialResult, newer: PartialResult) -> PartialResult:
    """Return the merged result, with the batches of `newer` after those of `older`."""
    refusal = older.refusal or newer.refusal
    if refusal is not None:
        return PartialResult((), (), refusal)
    states = tuple(a.merge(b) for a, b in zip(older.states, newer.states, strict=True))
    return PartialResult(states, older.outlines + newer.outlines)


def outline(block: Block, every_set: bool) -> Block:
    """Return a few rows of a batch that show its width and all its labels.

    every_set: include a row of each distinct set of labels.
    """
    rows = [0]
    if block.y is not None and not all_absent(block.y):
        present = np.arange(block.rows) if block.y.present is None else np.flatnonzero(block.y.present)
        rows = present[:1].tolist()
        if every_set and block.y.values is None:
            rows = _row_of_each_set(block, present, rows)
    return block.take(np.array(rows))


def _row_of_each_set(block: Block, present: np.ndarray, first: list[int]) -> list[int]:
    """Return the first row of each distinct set of labels, starting with the rows `first`."""
    known_sets = set(block.y.take(np.array(first)).label_sets())
    rows = list(first)
    for row in present[1:].tolist():
        new = block.y.take(np.array([row])).label_sets() - known_sets
        if new:
            known_sets |= new
            rows.append(row)
    return rows


@lru_cache(maxsize=256)
def _checked_shard(uri: str, sha256: str) -> Shard:
    """Return a shard. Its bytes are checked once in each process."""
    return open_shard(uri, sha256)
