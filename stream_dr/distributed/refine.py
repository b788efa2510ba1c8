"""Refine on Dask: a pass is one map and reduce. The columns go out once, one product comes back.

Workers read the shards that the log refers to; rows that the log itself holds are summed here. Tasks and the tree in which
their sums are merged are made from the log alone, so any number of workers gives the same bits.
"""

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference
from stream_dr.directory.references import find_shard, uri_of
from stream_dr.distributed.cluster import STATES_HELD, check_workers, connected, gathered, submit
from stream_dr.distributed.plan import Task, tasks_of
from stream_dr.errors import CannotMerge, CannotRefine
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.replayed import Replayed, Sums, unmapped
from stream_dr.models.entry import Spec
from stream_dr.models.model import Frozen, Model
from stream_dr.models.saved import estimator_of
from stream_dr.models.schema import Schema, block_for, bytes_needed, columns_in_order
from stream_dr.models.versions import Published
from stream_dr.rows.block import Block
from stream_dr.running.refine import Tell, refine_model
from stream_dr.shards.dataset import open_shard

if TYPE_CHECKING:
    from distributed import Client


def refine_on(
    address: str, directory: Directory, model: Model, tol: float, max_passes: int, tell: Tell | None = None
) -> Published:
    """As `refine_model`, its passes on the workers of the scheduler at an address. Raises CannotMerge (a recurrence),
    CannotRefine (decay, or a map of tables: what a row counts for depends on those before it), ClusterError, and what
    `refine_model` raises."""
    check_splits(model.estimator)
    with connected(address) as client:
        check_workers(client)
        return refine_model(
            directory, model, tol, max_passes, tell, elsewhere=lambda frozen: _Passes(client, directory, model, frozen)
        )


def check_splits(estimator: Estimator) -> None:
    """Raise CannotMerge or CannotRefine where passes cannot be split."""
    name = type(estimator).__name__
    if not estimator.merges:
        raise CannotMerge(
            f"{name} learns one row after the other, and is not split among workers."
            + (f" {estimator.merges_as} answers the same question and is." if estimator.merges_as else "")
        )
    if float(getattr(estimator, "decay", 1.0)) != 1.0:
        raise CannotRefine(f"{name} with decay is refined in one process, not on a cluster.")


class _Given(NamedTuple):
    """What every task of a refine is given."""

    spec: Spec
    schema: Schema
    state: Any


class _Passes:
    """What a model has learned, split into tasks; called once a pass."""

    def __init__(self, client: "Client", directory: Directory, model: Model, frozen: Frozen) -> None:
        if getattr(frozen.state, "table", None) is not None:
            raise CannotRefine("a map of tables is refined in one process, not on a cluster.")
        self._client, self._given = client, _Given(model.spec, directory.schema, frozen.state)
        found = list(directory.history.references(model.start - 1, frozen.position, frozen.unlearn_horizon))
        own = frozenset(position for position, reference in found if reference is None)
        self._own = _Own(directory, model.estimator, own, frozen)
        placed = [_placed(directory, reference) for _, reference in found if reference is not None]
        size = bytes_needed(model.estimator, directory.schema)
        check_workers(client, STATES_HELD * size)
        self._tasks = tasks_of([r for r, _ in placed], [b for _, b in placed], size)
        self._sent = client.scatter(self._given, broadcast=True)

    def __call__(self, columns: np.ndarray, check: bool, told: Callable[[int], None] | None) -> Sums:
        client = self._client
        sent = client.scatter(columns, broadcast=True)
        parts = [submit(client, _sums, task, self._sent, sent, check) for task in self._tasks]
        while len(parts) > 1:
            pairs = [submit(client, Sums.merge, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]
        own = [_summed(self._given, self._own, columns, check)] if self._own.positions else []
        total: Sums = reduce(Sums.merge, [*gathered(client, parts), *own])
        if told is not None:
            told(total.rows)
        return total


def _placed(directory: Directory, reference: Reference) -> tuple[Reference, float]:
    """The reference to where its shard is now, and the bytes of its rows."""
    shard = find_shard(directory.path, reference.uri, reference.sha256)
    return reference._replace(uri=uri_of(shard)), shard.bytes / shard.rows * reference.rows


class _Own:
    """The events whose rows are in the log, or are not all left, as a Source."""

    def __init__(self, directory: Directory, estimator: Estimator, positions: frozenset[int], frozen: Frozen) -> None:
        self._directory, self._estimator, self.positions, self._frozen = directory, estimator, positions, frozen

    def events(self, after: int = -1, until: int | None = None) -> Any:
        """(position, Block) of all of them."""
        first, last, unlearn_horizon = min(self.positions) - 1, self._frozen.position, self._frozen.unlearn_horizon
        for position, block in self._directory.history.events(first, last, self.positions, unlearn_horizon):
            yield position, block_for(self._estimator, block)


class _Shards:
    """A task's batches as a Source."""

    def __init__(self, task: Task, given: _Given) -> None:
        self._task, self._given = task, given

    def events(self, after: int = -1, until: int | None = None) -> Any:
        """(number, Block) of all of them."""
        estimator = estimator_of(self._given.spec)
        for number, r in enumerate(self._task.references):
            block: Block = open_shard(r.uri, r.sha256).read(r.batch)
            yield number, block_for(estimator, columns_in_order(block, self._given.schema))


def _sums(task: Task, given: _Given, columns: np.ndarray, check: bool) -> Sums:
    return _summed(given, _Shards(task, given), columns, check)


def _summed(given: _Given, source: Any, columns: np.ndarray, check: bool) -> Sums:
    estimator = estimator_of(given.spec)
    moments = estimator.moments(given.state)
    estimator, state, source, names = unmapped(estimator, given.state, source, given.schema.names)
    replayed = Replayed(estimator, state, moments, names)
    return replayed.sums(source, columns, check)
