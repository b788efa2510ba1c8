"""Partial results: the result of learning some batches, and the merge of two such results.

A partial result has a state for each model. It also has an outline for each batch, which is a
small Block with one row and the batch's number of features, labels and kind of targets. The
process that appends a batch to the log must know these to update the stream's schema. With the
outline, it does not need the rows.

Memory: one state for each model.

Cost: learning costs as much as the models' own learning. A merge takes two passes over the states.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from stream_dr.directory.admit import admit_block
from stream_dr.directory.draft import Reference
from stream_dr.distributed.task_plan import Task, TaskPlan
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_from_spec
from stream_dr.models.schema import Limits, Schema, drop_unneeded_targets, reorder_columns
from stream_dr.rows.block import Block
from stream_dr.shards.dataset import Shard, open_shard
from stream_dr.statistics.protocol import AdditiveState, State

BatchCallback = Callable[[Reference], None]
"""Function that receives every batch before it is learned."""


class PartialResult(NamedTuple):
    """Result of learning consecutive batches.

    states: state of each model, in the order of the plan's specs.
    outlines: outline of each batch (a Block with one of the batch's rows).
    refusal: error that names the first batch that cannot be learned, or None. With an error,
        `states` and `outlines` are empty.
    """

    states: tuple[AdditiveState, ...]
    outlines: tuple[Block, ...]
    refusal: StreamDRError | None = None


PlanRunner = Callable[[TaskPlan, BatchCallback], Sequence[PartialResult]]
"""Function that runs a task plan.

It receives the plan and the function to call with each batch. It returns the merged result of the
tasks, if the plan has models whose states merge, and then one result for each recurrence (a model
whose states cannot be merged).
"""


class _Learner(NamedTuple):
    """Estimator with the attributes of a model that `admit_block` reads.

    `admit_block` checks whether the stream and its models can learn a batch.
    """

    estimator: Estimator
    # `admit_block` reads the state only for a stream's first batch, which was checked earlier.
    initial_state: None = None


def learn(
    task: Task,
    specs: Sequence[Spec],
    schema: Schema,
    limits: Limits,
    states: Sequence[State | None] = (),
    on_batch: BatchCallback | None = None,
) -> PartialResult:
    """Learn the batches of a task, one after the other.

    specs: models that learn the batches.
    schema: the stream's schema, which includes its first batch.
    limits: limits above which a batch is refused.
    states: state of each model to continue from. Empty to start without learned rows.
    on_batch: function that receives each batch before the batch is learned.

    If the stream or a model cannot learn a batch, the error is returned in the field `refusal`.
    Raises SourceMissing or DamagedShard if a shard cannot be read.
    """
    learners = [_Learner(estimator_from_spec(spec)) for spec in specs]
    estimators = [learner.estimator for learner in learners]
    accumulators = [e.accumulator(s) for e, s in zip(estimators, states or [None] * len(specs), strict=True)]
    outlines = []

    for reference in task.references:
        if on_batch is not None:
            on_batch(reference)

        block = _checked_shard(reference.uri, reference.sha256).read(reference.batch)
        try:
            schema = admit_block(block, schema, learners, limits)
            block = reorder_columns(block, schema)
            for estimator, accumulator in zip(estimators, accumulators, strict=True):
                accumulator.add(drop_unneeded_targets(estimator, block))
        except StreamDRError as e:
            return PartialResult((), (), type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details))
        outlines.append(one_row_of(block))

    learned = tuple(cast(AdditiveState, accumulator.freeze()) for accumulator in accumulators)
    return PartialResult(learned, tuple(outlines))


def merge(older: PartialResult, newer: PartialResult) -> PartialResult:
    """Return the result of learning first `older`'s and then `newer`'s batches.

    If one of the two has an error (`refusal`), the result has this error.
    """
    refusal = older.refusal or newer.refusal
    if refusal is not None:
        return PartialResult((), (), refusal)
    states = tuple(a.merge(b) for a, b in zip(older.states, newer.states, strict=True))
    return PartialResult(states, older.outlines + newer.outlines)


def one_row_of(block: Block) -> Block:
    """Return a Block with one row of a batch.

    The Block has the batch's width and list of labels. Its row is the batch's first row with a
    target, or the batch's first row if no row has a target.
    """
    y = block.y
    has_targets = y is not None and y.present is not None and y.present.any()
    return block.take(np.flatnonzero(y.present)[:1] if has_targets else np.array([0]))


@lru_cache(maxsize=256)
def _checked_shard(uri: str, sha256: str) -> Shard:
    """Return the shard at `uri`, from a cache if possible.

    A shard checks its bytes against `sha256` at its first read. With the cache, a process checks
    each shard once and not for every task.
    """
    return open_shard(uri, sha256)
