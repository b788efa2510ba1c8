"""Refine a model on Dask.

To refine is to solve a model exactly by passes over its rows. Each pass is one map and reduce:

1. Every worker receives the current columns of the projection once.
2. Each task computes sums over its rows.
3. The sums of all tasks are merged in pairs, and the merged sum is sent back to this process.

Workers read the shards that the log refers to. If the rows of an event are in the log and not in a
shard, this process computes their sums.

The division into tasks and the order of the merges depend only on the log. So the result has the
same bits with any number of workers.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference
from stream_dr.directory.references import find_shard, shard_file_uri
from stream_dr.distributed.cluster import (
    STATES_IN_MEMORY,
    check_workers,
    connect_to_scheduler,
    gather_results,
    submit_checked,
)
from stream_dr.distributed.parts import read_batch
from stream_dr.distributed.task_plan import Task, divide_into_tasks_of_minimum_size
from stream_dr.errors import CannotMerge, CannotRefine
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.refining import RowReplay, Sums, strip_feature_map
from stream_dr.models.entry import Spec
from stream_dr.models.model import FrozenState, Model
from stream_dr.models.saved import estimator_from_spec
from stream_dr.models.schema import Schema, bound_state_bytes, drop_unneeded_targets_and_add_hashes, reorder_columns
from stream_dr.models.versions import Published
from stream_dr.rows.block import Block
from stream_dr.rows.source import Source
from stream_dr.running.refine import PassCallback, refine_model
from stream_dr.statistics.protocol import State

if TYPE_CHECKING:
    from distributed import Client


def refine_on_cluster(
    scheduler_address: str,
    directory: Directory,
    model: Model,
    tol: float,
    max_passes: int,
    on_progress: PassCallback | None = None,
) -> Published:
    """Refine a model on the workers of a Dask cluster.

    Returns the published version of the model.

    scheduler_address: address of the Dask scheduler, tcp://host:port.
    directory: directory of the model.
    tol, max_passes, on_progress: as in `refine_model`.

    In addition to the errors of `refine_model`, these errors are raised:

    - CannotMerge if the estimator's states cannot be merged.
    - CannotRefine if the estimator has decay or a feature map of tables. With decay or such a map,
      a row's part of the sums depends on earlier rows. So tasks cannot sum at the same time.
    - ClusterError if the cluster cannot be used.
    """
    check_can_split_refine(model.estimator)
    with connect_to_scheduler(scheduler_address) as client:
        check_workers(client)

        def new_dask_pass_sums(frozen: FrozenState) -> _ClusterSums:
            return _ClusterSums(client, directory, model, frozen)

        return refine_model(directory, model, tol, max_passes, on_progress, make_compute_sums=new_dask_pass_sums)


def check_can_split_refine(estimator: Estimator) -> None:
    """Raise an error if workers cannot refine an estimator together.

    Raises CannotMerge if the estimator's states cannot be merged. Raises CannotRefine if the
    estimator has decay.
    """
    name = type(estimator).__name__
    if not estimator.merges:
        raise CannotMerge(
            f"{name} learns one row after the other, and is not split among workers."
            + (f" {estimator.merges_as} answers the same question and is." if estimator.merges_as else "")
        )
    if estimator.decay != 1.0:
        raise CannotRefine(f"{name} with decay is refined in one process, not on a cluster.")


class _TaskContext(NamedTuple):
    """Values that all tasks of a refine use.

    spec: spec of the model.
    schema: the stream's schema.
    state: the model's state at the start of the refine.
    """

    spec: Spec
    schema: Schema
    state: State


class _ClusterSums:
    """Callable that computes the sums of passes on Dask.

    In each pass, `refine_model` calls this object. The object multiplies the scatter matrix of all
    rows that the model has learned by given columns. Workers compute the product for rows in
    shards, and this process computes the product for all other rows.

    The constructor divides the rows into tasks. It raises CannotRefine if the model has a feature
    map of tables, and ClusterError if the workers cannot be used.

    frozen: the model's state at the start of the refine, with its position.
    """

    def __init__(self, client: "Client", directory: Directory, model: Model, frozen: FrozenState) -> None:
        if model.accumulator.table is not None:
            raise CannotRefine("a map of tables is refined in one process, not on a cluster.")
        self._client = client
        self._context = _TaskContext(model.spec, directory.schema, frozen.state)

        # Let this process sum the rows outside shards, because workers cannot read the log.
        references = list(directory.history.references(model.start - 1, frozen.position, frozen.unlearn_horizon))
        logged = frozenset(position for position, reference in references if reference is None)
        self._logged = _RowsAtPositions(directory, model.estimator, logged, frozen)

        # Create tasks for the workers. Each task has some of the batches that shards contain.
        sized = [_current_reference_and_batch_bytes(directory, r) for _, r in references if r is not None]
        state_bytes = bound_state_bytes(model.estimator, directory.schema)
        check_workers(client, STATES_IN_MEMORY * state_bytes)
        self._tasks = divide_into_tasks_of_minimum_size(sized, state_bytes)
        self._sent_context = client.scatter(self._context, broadcast=True)

    def __call__(
        self, columns_to_multiply: np.ndarray, is_first_pass: bool, on_rows: Callable[[int], None] | None
    ) -> Sums:
        """Return the sums of one pass of refine over the model's rows.

        columns_to_multiply: (features, r), columns to multiply the scatter matrix by.
        is_first_pass: True for the first pass, which also computes the moments of the rows again.
        on_rows: function that is called with the number of rows after the pass, or None.
        """
        client = self._client
        sent_columns = client.scatter(columns_to_multiply, broadcast=True)
        parts = [
            submit_checked(client, _sums_of_task, task, self._sent_context, sent_columns, is_first_pass)
            for task in self._tasks
        ]

        # Merge the sums of neighbouring tasks on the workers until one sum remains.
        while len(parts) > 1:
            pairs = [submit_checked(client, Sums.merge, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]

        # Add up the rows that the log itself holds, while the workers add up the rows in shards.
        here: list[Sums] = []
        if self._logged.positions:
            here.append(_sums_of_source(self._context, self._logged, columns_to_multiply, is_first_pass))
        total: Sums = reduce(Sums.merge, [*gather_results(client, parts), *here])
        if on_rows is not None:
            on_rows(total.rows)
        return total


def _current_reference_and_batch_bytes(directory: Directory, reference: Reference) -> tuple[Reference, float]:
    """Return a reference with its shard's current place, and bytes.

    The number of bytes is estimated: the size of the shard's file times the part of the shard's
    rows that are in the batch.

    The URI of the returned reference is the current place of the shard.

    reference: reference to the batch, as the log has it.
    """
    shard = find_shard(directory.path, reference.uri, reference.sha256)
    return reference._replace(uri=shard_file_uri(shard)), shard.bytes / shard.rows * reference.rows


class _RowsAtPositions:
    """Source of the events that workers cannot read from shards.

    Workers cannot read an event if its rows are in the log and not in a shard, or if some of its
    rows were unlearned.

    positions: positions in the log of the events.
    frozen: the model's state at the start of the refine, with its position.
    """

    def __init__(
        self, directory: Directory, estimator: Estimator, event_positions: frozenset[int], frozen: FrozenState
    ) -> None:
        self._directory = directory
        self._estimator = estimator
        self.positions = event_positions
        self._frozen = frozen

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) of every event in `positions`.

        `after` and `until` belong to the Source protocol and are ignored.
        """
        first = min(self.positions) - 1
        last = self._frozen.position
        history, horizon = self._directory.history, self._frozen.unlearn_horizon
        for position, block in history.events(first, last, self.positions, horizon):
            yield position, drop_unneeded_targets_and_add_hashes(self._estimator, block)


class _ShardRows:
    """Source that reads the batches of one task from shards."""

    def __init__(self, task: Task, context: _TaskContext) -> None:
        self._task = task
        self._context = context

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (index, Block) of every batch.

        The index is the position of the batch in the task, from 0. `after` and `until` belong to
        the Source protocol and are ignored.
        """
        estimator = estimator_from_spec(self._context.spec)
        for number, reference in enumerate(self._task.references):
            block = reorder_columns(read_batch(reference), self._context.schema)
            yield number, drop_unneeded_targets_and_add_hashes(estimator, block)


def _sums_of_task(task: Task, context: _TaskContext, columns_to_multiply: np.ndarray, is_first_pass: bool) -> Sums:
    """Return the sums of one pass of refine over a task's batches.

    columns_to_multiply: (features, r), columns to multiply the scatter matrix by.
    is_first_pass: True for the first pass, which also computes the moments of the rows again.
    """
    return _sums_of_source(context, _ShardRows(task, context), columns_to_multiply, is_first_pass)


def _sums_of_source(
    context: _TaskContext, source: Source, columns_to_multiply: np.ndarray, is_first_pass: bool
) -> Sums:
    """Return the sums of one pass of refine over a source's rows.

    columns_to_multiply: (features, r), columns to multiply the scatter matrix by.
    is_first_pass: True for the first pass, which also computes the moments of the rows again.
    """
    estimator = estimator_from_spec(context.spec)
    moments = estimator.moments(context.state)
    estimator, state, source, names = strip_feature_map(estimator, context.state, source, context.schema.names)
    return RowReplay(estimator, state, moments, names).sum_over_pass(source, columns_to_multiply, is_first_pass)
