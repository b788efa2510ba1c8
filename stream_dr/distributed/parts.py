"""Part: what a task has learned; how one is learned, and how two are merged into a third.

A part also has an outline of every batch: a row or a few that say what the batch would change in the stream (features,
labels, kind of targets), so that who appends the batches to a log can admit them without their rows.

Memory: a state a model. Cost: of learning, what the models cost; of a merge, two passes over the states.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from stream_dr.directory.admit import admit_block
from stream_dr.directory.draft import Reference
from stream_dr.distributed.plan import Task
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.models.schema import Limits, Schema, block_for, columns_in_order
from stream_dr.rows.block import Block
from stream_dr.shards.dataset import Shard, open_shard
from stream_dr.statistics.protocol import State
from stream_dr.targets.targets import all_absent

Told = Callable[[Reference], None]
"""Called with every batch before it is learned."""


class Part(NamedTuple):
    """What was learned of consecutive batches. states: one a model, in the plan's order. outlines: one a batch. refused: the
    error that names the first batch that cannot be learned; then there is nothing else."""

    states: tuple[State, ...]
    outlines: tuple[Block, ...]
    refused: StreamDRError | None = None


class _Learner(NamedTuple):
    """What admit asks of a model. The batch that decides what the stream is was tried before there was a plan."""

    estimator: Estimator
    initial_state: None = None


def learn(
    task: Task,
    specs: Sequence[Spec],
    schema: Schema,
    limits: Limits,
    states: Sequence[Any] = (),
    told: Told | None = None,
) -> Part:
    """Learn a task's batches. states: what the models go on from; none: from nothing. Raises SourceMissing and
    DamagedShard; a batch that the stream or a model refuses is told in `refused`."""
    learners = [_Learner(estimator_of(spec)) for spec in specs]
    estimators = [learner.estimator for learner in learners]
    accumulators = [e.accumulator(s) for e, s in zip(estimators, states or [None] * len(specs), strict=True)]
    outlines = []
    for reference in task.references:
        if told is not None:
            told(reference)
        block = _shard(reference.uri, reference.sha256).read(reference.batch)
        try:
            schema = admit_block(block, schema, learners, limits)
            block = columns_in_order(block, schema)
            for estimator, accumulator in zip(estimators, accumulators, strict=True):
                accumulator.add(block_for(estimator, block))
        except StreamDRError as e:
            return Part((), (), type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details))
        outlines.append(outline(block, any(e.most_label_sets(schema.features, block.sparse) for e in estimators)))
    states = tuple(accumulator.freeze() for accumulator in accumulators)
    return Part(states, tuple(outlines))


def merge(older: Part, newer: Part) -> Part:
    """Both parts as one, `newer`'s batches after `older`'s; neither is changed."""
    refused = older.refused or newer.refused
    if refused is not None:
        return Part((), (), refused)
    states = tuple(a.merge(b) for a, b in zip(older.states, newer.states, strict=True))
    return Part(states, older.outlines + newer.outlines)


def outline(block: Block, every_set: bool) -> Block:
    """A few rows of a batch that have its width and all its labels. every_set: a row of each distinct set of labels."""
    rows = [0]
    if block.y is not None and not all_absent(block.y):
        present = np.arange(block.rows) if block.y.present is None else np.flatnonzero(block.y.present)
        rows = present[:1].tolist()
        if every_set and block.y.values is None:
            rows = _row_of_each_set(block, present, rows)
    return block.take(np.array(rows))


def _row_of_each_set(block: Block, present: np.ndarray, first: list[int]) -> list[int]:
    met, rows = set(block.y.take(np.array(first)).label_sets()), list(first)
    for row in present[1:].tolist():
        new = block.y.take(np.array([row])).label_sets() - met
        if new:
            met |= new
            rows.append(row)
    return rows


@lru_cache(maxsize=256)
def _shard(uri: str, sha256: str) -> Shard:
    """A shard, whose bytes are checked once a process."""
    return open_shard(uri, sha256)
