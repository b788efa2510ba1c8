"""Refine a model on Dask: each pass over the rows is one map and reduce.

To refine is to solve a model exactly by passes over its rows. In each pass, every worker receives
the current columns of the projection once. Each task sums over its rows, the sums are merged in
pairs, and one sum is sent back to this process.

Workers read the shards that the log refers to. Rows that the log itself holds are summed in this
process.

The tasks, and the tree in which their sums are merged, depend only on the log. So any number of
workers gives the same bits.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference
from stream_dr.directory.references import find_shard, uri_of
from stream_dr.distributed.cluster import STATES_HELD, check_workers, connect, gather_results, submit
from stream_dr.distributed.task_plan import Task, tasks_of
from stream_dr.errors import CannotMerge, CannotRefine
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.replayed import RowReplay, Sums, strip_feature_map
from stream_dr.models.entry import Spec
from stream_dr.models.model import FrozenState, Model
from stream_dr.models.saved import estimator_from_spec
from stream_dr.models.schema import Schema, bound_state_bytes, drop_unneeded_targets, reorder_columns
from stream_dr.models.versions import Published
from stream_dr.rows.block import Block
from stream_dr.rows.source import Source
from stream_dr.running.refine import PassCallback, refine_model
from stream_dr.shards.dataset import open_shard
from stream_dr.statistics.protocol import State

if TYPE_CHECKING:
    from distributed import Client


def refine_on(
    address: str,
    directory: Directory,
    model: Model,
    tol: float,
    max_passes: int,
    on_progress: PassCallback | None = None,
) -> Published:
    """Refine a model on the workers of a Dask cluster.

    address: address of the Dask scheduler.
    tol, max_passes, on_progress: as in `refine_model`.

    Raises the errors of `refine_model`, and in addition

    - CannotMerge if the estimator's states cannot be merged,
    - CannotRefine if the estimator has decay or a feature map of tables. With either one, what a
      row adds to the sums depends on the rows before it, so batches cannot be summed in parallel.
    - ClusterError if the cluster cannot be used.
    """
    check_splits(model.estimator)
    with connect(address) as client:
        check_workers(client)

        def new_sums(frozen: FrozenState) -> _ClusterSums:
            return _ClusterSums(client, directory, model, frozen)

        return refine_model(directory, model, tol, max_passes, on_progress, make_compute_sums=new_sums)


def check_splits(estimator: Estimator) -> None:
    """Raise an error if the passes of a refine cannot be divided among workers.

    Raises CannotMerge if the estimator's states cannot be merged, and CannotRefine if the
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
    """Spec, schema and state that all tasks of a refine use."""

    spec: Spec
    schema: Schema
    state: State


class _ClusterSums:
    """Callable that multiplies a model's scatter matrix by columns, on Dask.

    The scatter matrix is a sum over all rows that the model has learned. Workers compute the
    product for rows in shards, and this process for the other rows. `refine_model` calls the
    object in each of its passes. The constructor divides the rows into tasks.
    """

    def __init__(self, client: "Client", directory: Directory, model: Model, frozen: FrozenState) -> None:
        if model.accumulator.table is not None:
            raise CannotRefine("a map of tables is refined in one process, not on a cluster.")
        self._client = client
        self._context = _TaskContext(model.spec, directory.schema, frozen.state)

        # Workers cannot read the log, so this process sums the rows that are not in shards.
        references = list(directory.history.references(model.start - 1, frozen.position, frozen.unlearn_horizon))
        logged = frozenset(position for position, reference in references if reference is None)
        self._logged = _LoggedRows(directory, model.estimator, logged, frozen)

        sized = [_locate(directory, reference) for _, reference in references if reference is not None]
        state_bytes = bound_state_bytes(model.estimator, directory.schema)
        check_workers(client, STATES_HELD * state_bytes)
        self._tasks = tasks_of([r for r, _ in sized], [size for _, size in sized], state_bytes)
        self._sent_context = client.scatter(self._context, broadcast=True)

    def __call__(self, columns: np.ndarray, check: bool, on_rows: Callable[[int], None] | None) -> Sums:
        client = self._client
        sent_columns = client.scatter(columns, broadcast=True)
        parts = [submit(client, _sum_task, task, self._sent_context, sent_columns, check) for task in self._tasks]

        # Merge neighbouring sums on the workers until one sum remains.
        while len(parts) > 1:
            pairs = [submit(client, Sums.merge, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]

        here = [_sum_source(self._context, self._logged, columns, check)] if self._logged.positions else []
        total: Sums = reduce(Sums.merge, [*gather_results(client, parts), *here])
        if on_rows is not None:
            on_rows(total.rows)
        return total


def _locate(directory: Directory, reference: Reference) -> tuple[Reference, float]:
    """Return the reference with the shard's current URI, and a size in bytes.

    The size is the share of the shard's bytes that the reference's rows take.
    """
    shard = find_shard(directory.path, reference.uri, reference.sha256)
    return reference._replace(uri=uri_of(shard)), shard.bytes / shard.rows * reference.rows


class _LoggedRows:
    """Source of the events that workers cannot read from shards.

    Either the log holds the event's rows itself, or some of the event's rows were unlearned.

    positions: positions of these events.
    frozen: the model's state at the start of the refine, with its position.
    """

    def __init__(
        self, directory: Directory, estimator: Estimator, positions: frozenset[int], frozen: FrozenState
    ) -> None:
        self._directory = directory
        self._estimator = estimator
        self.positions = positions
        self._frozen = frozen

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) of every event in `positions`.

        `after` and `until` belong to the Source protocol and are ignored.
        """
        first = min(self.positions) - 1
        last = self._frozen.position
        for position, block in self._directory.history.events(
            first, last, self.positions, self._frozen.unlearn_horizon
        ):
            yield position, drop_unneeded_targets(self._estimator, block)


class _ShardRows:
    """Source of the batches of one task, read from their shards."""

    def __init__(self, task: Task, context: _TaskContext) -> None:
        self._task = task
        self._context = context

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (index of the batch in the task, Block) of every batch.

        `after` and `until` belong to the Source protocol and are ignored.
        """
        estimator = estimator_from_spec(self._context.spec)
        for number, r in enumerate(self._task.references):
            block: Block = open_shard(r.uri, r.sha256).read(r.batch)
            yield number, drop_unneeded_targets(estimator, reorder_columns(block, self._context.schema))


def _sum_task(task: Task, context: _TaskContext, columns: np.ndarray, check: bool) -> Sums:
    return _sum_source(context, _ShardRows(task, context), columns, check)


def _sum_source(context: _TaskContext, source: Source, columns: np.ndarray, check: bool) -> Sums:
    estimator = estimator_from_spec(context.spec)
    moments = estimator.moments(context.state)
    estimator, state, source, names = strip_feature_map(estimator, context.state, source, context.schema.names)
    return RowReplay(estimator, state, moments, names).sums(source, columns, check)
