"""Partial results: what a task has learned, and how two of them are merged.

A partial result also has an outline of every batch, which is one row with all that the
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
        outlines.append(outline(block))

    learned = tuple(cast(AdditiveState, accumulator.freeze()) for accumulator in accumulators)
    return PartialResult(learned, tuple(outlines))


def merge(older: PartialResult, newer: PartialResult) -> PartialResult:
    """Return the merged result, with the batches of `newer` after those of `older`."""
    refusal = older.refusal or newer.refusal
    if refusal is not None:
        return PartialResult((), (), refusal)
    states = tuple(a.merge(b) for a, b in zip(older.states, newer.states, strict=True))
    return PartialResult(states, older.outlines + newer.outlines)


def outline(block: Block) -> Block:
    """Return one row of a batch, which shows the batch's width and all its labels.

    It is the first row with a target, if there is one.
    """
    y = block.y
    has_targets = y is not None and y.present is not None and y.present.any()
    return block.take(np.flatnonzero(y.present)[:1] if has_targets else np.array([0]))


@lru_cache(maxsize=256)
def _checked_shard(uri: str, sha256: str) -> Shard:
    """Return a shard. Its bytes are checked once in each process."""
    return open_shard(uri, sha256)
