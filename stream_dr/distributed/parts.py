"""Partial results, each of which comes from learning some batches.

Two partial results can be merged. A partial result has a state for each model and an outline of
each batch. An outline is a Block with one row of the batch. It has the batch's number of features,
labels and kind of targets. The process that appends a batch to the log needs these to update the
stream's schema. With the outline, this process does not need the batch's rows.

Memory: one state for each model.

Cost: learning costs as much as in one process. A merge takes two passes over the states.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from stream_dr.directory.admit import check_block_and_extend_schema
from stream_dr.directory.draft import Reference
from stream_dr.distributed.task_plan import Task, TaskPlan
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_from_spec
from stream_dr.models.schema import Limits, Schema, drop_unneeded_targets_and_add_hashes, reorder_columns
from stream_dr.rows.block import Block
from stream_dr.shards.dataset import Shard, open_shard
from stream_dr.statistics.protocol import AdditiveState, State

BatchCallback = Callable[[Reference], None]
"""Function that receives every batch before the batch is learned."""


class PartialResult(NamedTuple):
    """Result of learning consecutive batches.

    states: state of each model, in the order of the plan's specs.
    outlines: outline of each batch, which is a Block with one of the batch's rows.
    refusal: error that names the first batch that cannot be learned, or None. If there is an
        error, `states` and `outlines` are empty.
    """

    states: tuple[AdditiveState, ...]
    outlines: tuple[Block, ...]
    refusal: StreamDRError | None = None


PlanRunner = Callable[[TaskPlan, BatchCallback], Sequence[PartialResult]]
"""Function that runs a task plan.

The arguments are the plan, and the function to call with each batch. The results are, in this
order:

- one merged result of all tasks, if the plan has models whose states can be merged,
- one result for each recurrence, which is a model whose states cannot be merged.
"""


class _Learner(NamedTuple):
    """Estimator in the place of a model, for `check_block_and_extend_schema`.

    `check_block_and_extend_schema` checks whether the stream and its models can learn a batch.
    """

    estimator: Estimator
    # Only a stream's first batch needs it, which is checked with the models before tasks start.
    state_if_started_from_saved: None = None
    table: None = None


def learn_task_or_return_refusal(
    task: Task,
    specs: Sequence[Spec],
    schema: Schema,
    limits: Limits,
    initial_states: Sequence[State | None] = (),
    before_batch: BatchCallback | None = None,
) -> PartialResult:
    """Learn the batches of a task, one after the other.

    If the stream or a model cannot learn a batch, the error is returned in the result's field
    `refusal`.

    specs: models that learn the batches.
    schema: the stream's schema, which includes the columns of the stream's first batch.
    limits: limits above which a batch is refused.
    initial_states: state of each model to continue from. Empty to start without learned rows.
    before_batch: function that receives each batch before the batch is learned.

    Raises SourceMissing or DamagedShard if a shard cannot be read.
    """
    learners = [_Learner(estimator_from_spec(spec)) for spec in specs]
    estimators = [learner.estimator for learner in learners]
    accumulators = [e.accumulator(s) for e, s in zip(estimators, initial_states or [None] * len(specs), strict=True)]
    outlines = []

    for reference in task.references:
        if before_batch is not None:
            before_batch(reference)

        # Learn the batch, and add its outline (a Block with one row of the batch) to the result.
        block = read_batch(reference)
        try:
            schema = check_block_and_extend_schema(block, schema, learners, limits)
            block = reorder_columns(block, schema)
            for estimator, accumulator in zip(estimators, accumulators, strict=True):
                accumulator.add(drop_unneeded_targets_and_add_hashes(estimator, block))
        except StreamDRError as e:
            return PartialResult((), (), type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details))
        outlines.append(row_with_target_or_first(block))

    # If a model's states cannot be merged, its state is no AdditiveState. No caller merges it.
    learned = tuple(cast(AdditiveState, accumulator.freeze()) for accumulator in accumulators)
    return PartialResult(learned, tuple(outlines))


def merge(older: PartialResult, newer: PartialResult) -> PartialResult:
    """Merge the results of learning two runs of consecutive batches.

    If one of the results has an error (`refusal`), the merged result has this error. If both
    results have an error, the merged result has the error of `older`.

    older: result of the earlier batches.
    newer: result of the batches that follow.
    """
    refusal = older.refusal or newer.refusal
    if refusal is not None:
        return PartialResult((), (), refusal)
    states = tuple(a.merge(b) for a, b in zip(older.states, newer.states, strict=True))
    return PartialResult(states, older.outlines + newer.outlines)


def row_with_target_or_first(block: Block) -> Block:
    """Return a Block with one row of a batch.

    The Block has the batch's number of features and its list of labels. The row is the first row
    with a target. If no row has a target, the row is the batch's first row.
    """
    y = block.y
    has_targets = y is not None and y.present is not None and y.present.any()
    return block.take(np.flatnonzero(y.present)[:1] if has_targets else np.array([0]))


def read_batch(reference: Reference) -> Block:
    """Read the batch of a shard that a reference names, on a worker."""
    return _cached_shard(reference.uri, reference.sha256).read(reference.batch)


@lru_cache(maxsize=256)
def _cached_shard(uri: str, sha256: str) -> Shard:
    """Return the shard at `uri`, from a cache if possible.

    At its first read, a shard compares the checksum of its bytes with `sha256`. With the cache, a
    process does this once for each shard and not for every task.
    """
    return open_shard(uri, sha256)
