"""Run a replay or a refine on workers of a Dask cluster.

Dask is installed with the extra [distributed]. If a worker is lost, Dask runs its tasks again on
another worker. If four workers are lost while they run the same task, Dask gives this task up. If
a worker hangs, the run hangs.

Every worker must see the shards under the same paths or URIs. It must also have the client's
versions of Python, numpy and stream_dr, since other versions may give other bits.

A task of a replay learns some batches, and the results of tasks are merged in pairs. Tasks and
merges are Dask futures that depend on each other. The states of models go from worker to worker.
Only the merged state of all tasks goes to the client.

To refine is to solve a model exactly by passes over its rows. Each pass is one map and reduce:

1. Every worker receives the current columns of the projection once.
2. Each task computes sums over its rows.
3. The sums of all tasks are merged in pairs, and the merged sum is sent back to this process.

Workers read the shards that the log refers to. If the rows of an event are in the log and not in a
shard, this process computes their sums. The division into tasks and the order of the merges depend
only on the log. So the result has the same bits with any number of workers.
"""

import platform
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from stream_dr import __version__
from stream_dr.batch.block import Block
from stream_dr.batch.rows import Source
from stream_dr.batch.schema import Schema
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference
from stream_dr.directory.references import find_shard, shard_file_uri
from stream_dr.distributed.parts import (
    BatchCallback,
    Node,
    PartialResult,
    PlanRunner,
    Task,
    TaskPlan,
    divide_into_tasks,
    learn_task,
    merge,
    read_batch,
)
from stream_dr.errors import CannotMerge, CannotRefine, ClusterError, SourceMissing, StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.refining import RowReplay, Sums, strip_feature_map
from stream_dr.models.entry import Spec
from stream_dr.models.limits import Limits, bound_state_bytes
from stream_dr.models.model import FrozenState, Model
from stream_dr.models.saved import estimator_from_spec
from stream_dr.models.versions import Published
from stream_dr.running.refine import PassCallback, refine_model
from stream_dr.statistics.protocol import State

try:
    from distributed import Client, Future, KilledWorker, get_worker
except ImportError as e:
    raise ClusterError("Dask is not installed; install stream-dr[distributed].") from e


# In a merge, a worker has two states of a model and their merged state in memory.
STATES_IN_MEMORY = 3
"""Number of states of each model that a worker must have memory for."""

CONNECT_SECONDS = 10
"""Number of seconds to wait for the Dask scheduler."""

TOPIC = "stream_dr"
"""Prefix of the Dask topics on which workers report, and of the keys of Dask futures."""

_ReportEvent: TypeAlias = tuple[float, tuple[str, str, bool, tuple[Any, ...] | None]]
"""Dask event with a worker's report that a batch is started or a task has ended.

The tuple is (time, (worker, task, counts_as_progress, fields)).

worker: address of the worker.
task: Dask key of the task.
counts_as_progress: True if the client shall add the batch's rows to its progress.
fields: fields of the batch's Reference. None if the task has ended.
"""


def dask_plan_runner(scheduler_address: str) -> PlanRunner:
    """Return a function that runs task plans on Dask.

    The returned function has two arguments: the TaskPlan, and a function to call with each batch
    before the batch is learned. It returns the results of the plan's tasks, and raises
    ClusterError if the cluster cannot be used.

    scheduler_address: address of the Dask scheduler, tcp://host:port.
    """

    def run_on_cluster(plan: TaskPlan, on_batch: BatchCallback) -> Sequence[PartialResult]:
        with connect_to_scheduler(scheduler_address) as client:
            # Each worker needs memory for STATES_IN_MEMORY states of every model. `specs` describe
            # models whose states can be merged, and `recurrences` all other models.
            specs = [*plan.specs, *(recurrence.spec for recurrence in plan.recurrences)]
            state_bytes = sum(bound_state_bytes(estimator_from_spec(spec), plan.schema) for spec in specs)
            check_workers(client, STATES_IN_MEMORY * state_bytes)
            return _ClusterRun(client, plan, on_batch).run_tasks()

    return run_on_cluster


@contextmanager
def connect_to_scheduler(scheduler_address: str) -> Iterator[Client]:
    """Connect to a Dask scheduler during a with-block.

    scheduler_address: address of the scheduler, tcp://host:port.

    Raises ClusterError if no scheduler answers, or if the scheduler is lost in the with-block.
    """
    # The client is the default of Dask's calls in the with-block only (`as_current` below).
    try:
        client = Client(scheduler_address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as e:
        raise ClusterError(
            f"no Dask scheduler answers at {scheduler_address} ({type(e).__name__}). "
            "Start one with `dask scheduler`, or give its address."
        ) from e

    with client, client.as_current():
        try:
            yield client
        # After the loss of the scheduler, Dask's calls raise different errors, such as KeyError.
        # Tasks that were running are cancelled. An error of our own is not a sign of a loss.
        except Exception as e:
            is_disconnected = client.status != "running" and not isinstance(e, StreamDRError)
            if isinstance(e, CancelledError) or is_disconnected:
                raise ClusterError(
                    "the scheduler was lost. Start it and its workers, and give the command again."
                ) from e
            raise


def software_versions() -> dict[str, str]:
    """Return this process's versions of stream_dr, numpy and Python.

    The last bits of a model's state may differ between processes with different versions.
    """
    return {"stream_dr": __version__, "numpy": np.__version__, "Python": platform.python_version()}


def check_workers(client: Client, min_memory_bytes: int = 0) -> None:
    """Raise ClusterError if the workers cannot be used.

    There must be at least one worker. All workers must have this process's software versions and
    enough memory.

    min_memory_bytes: number of bytes of memory that each worker must have.
    """
    # n_workers=-1 asks for all workers, because Dask describes only some of them by default.
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ClusterError("the cluster has no workers; start some with `dask worker`.")

    # `run` calls the function on every worker, and returns the results by the worker's address.
    here = software_versions()
    for address, there in client.run(software_versions, on_error="return").items():
        # For a worker that was just lost, Dask returns an exception and not a dict of versions.
        if isinstance(there, dict):
            _refuse_other_versions(address, there, here)

    for address, info in workers.items():
        # The limit is 0 or None for a worker without a limit.
        limit = info["memory_limit"]
        if limit and limit < min_memory_bytes:
            raise ClusterError(
                f"worker {address} may take {limit} bytes of memory; these models need {min_memory_bytes} (three states). "
                "Give it more, or make the models with fewer targets or features."
            )


def _refuse_other_versions(
    worker_address: str, worker_versions: dict[str, str], client_versions: dict[str, str]
) -> None:
    """Raise ClusterError if worker and client versions differ."""
    other = [f"{name} {version}" for name, version in worker_versions.items() if version != client_versions[name]]
    if other:
        mine = ", ".join(f"{name} {client_versions[name]}" for name in client_versions)
        raise ClusterError(f"worker {worker_address} has {', '.join(other)}; the client has {mine}. Install the same.")


def gather_results(client: Client, futures: Sequence[Future]) -> list[Any]:
    """Wait for Dask futures and return their results.

    Raises the errors of the futures' tasks. Raises ClusterError if Dask gives a task up because
    four workers were lost while they ran the task.
    """
    try:
        return list(client.gather(futures))
    except KilledWorker as e:
        raise ClusterError(
            "four workers were lost one after the other while they ran one task. Look at their logs: is there memory for it?"
        ) from e


def submit_checked(client: Client, function: Callable[..., Any], *arguments: Any, key: str | None = None) -> Future:
    """Start a function call on a worker.

    Returns a Dask future, an object that receives the function's result later. The future raises
    ClusterError if the worker's software versions differ from this process's.

    function: function to call.
    arguments: arguments of the function. Dask replaces a future by the future's result.
    key: Dask key of the future. None means a new key.
    """
    return client.submit(_call_on_worker, software_versions(), function, *arguments, key=key, pure=False)


def _call_on_worker(client_versions: dict[str, str], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in this worker process.

    client_versions: software versions of the client process.
    function: function to call.
    arguments: arguments of the function.

    Raises ClusterError if the worker's versions differ from `client_versions`. If the function
    raises SourceMissing, the worker's address is added to the message.
    """
    # `check_workers` did not see workers that joined the cluster after the start of the run.
    address = get_worker().address
    _refuse_other_versions(address, software_versions(), client_versions)
    # With more threads, BLAS would sum in another order and give other bits.
    threadpool_limits(1)
    try:
        return function(*arguments)
    except SourceMissing as e:
        raise SourceMissing(f"worker {address}: {e} Every worker must see it under that path.") from e


class _RunContext(NamedTuple):
    """Values that all tasks of a run share.

    schema: the stream's schema, which includes the columns of the stream's first batch.
    limits: limits above which a batch is refused.
    topic: Dask topic on which workers report.
    """

    schema: Schema
    limits: Limits
    topic: str


class _ClusterRun:
    """One run of a task plan (tasks and models) on a Dask cluster.

    on_batch: function that receives each batch before the batch is learned.
    """

    def __init__(self, client: Client, plan: TaskPlan, on_batch: BatchCallback) -> None:
        self._client = client
        self._plan = plan
        self._on_batch = on_batch
        # Several runs may use one scheduler, so each run has a topic and keys of its own.
        self._context = _RunContext(plan.schema, plan.limits, f"{TOPIC}-{uuid.uuid4().hex}")
        # The last batch of each running task, by (address of the worker, key of the task).
        self._last_batch: dict[tuple[str, str], Reference] = {}

    def run_tasks(self) -> Sequence[PartialResult]:
        """Run all tasks of the plan and return their results.

        The results are, in this order:

        - one merged result of all tasks, if the plan has models whose states can be merged,
        - one result for each recurrence, which is a model whose states cannot be merged.

        Raises ClusterError if Dask gives a task up because four workers were lost.
        """
        # Workers report each batch on a Dask topic of this run.
        self._client.subscribe_topic(self._context.topic, self._handle_worker_report)
        futures: list[Future] = []
        try:
            if self._plan.specs:
                futures.append(self._submit_subtree(self._plan.root))
            futures += [self._submit_unmergeable_model(number) for number in range(len(self._plan.recurrences))]
            return list(self._client.gather(futures))
        except KilledWorker as e:
            # Name the last batches of the workers that are no longer there. `_last_batch` has the
            # last reported batch of each running task, by (worker, task).
            there = self._client.scheduler_info(n_workers=-1)["workers"]
            last = [reference for (worker, _), reference in self._last_batch.items() if worker not in there]
            batches = {f"{reference.uri}, batch {reference.batch}" for reference in last}
            raise ClusterError(
                "four workers were lost one after the other while they ran one task. Lost workers had begun: "
                f"{'; '.join(sorted(batches)) or 'a merge'}. Look at their logs: is there memory for three states, and are "
                "these shards whole?"
            ) from e
        finally:
            # After an error, tasks that are still running are cancelled.
            for future in futures:
                future.cancel()
            self._client.unsubscribe_topic(self._context.topic)

    def _submit_subtree(self, node: Node) -> Future:
        """Submit a node of the merge tree and its descendants.

        Returns a Dask future of the node's result. A node of level 0 learns the batches of a task.
        Every other node merges the results of its children.
        """
        # The topic is unique to this run, so other runs on the scheduler have other keys.
        plan = self._plan
        level, number = node
        key = f"{self._context.topic}-{level}-{number}"
        if level == 0:
            # The models start without a state, because states that can be merged are merged later.
            task = plan.tasks[number]
            no_states: list[Future] = []
            counts_as_progress = True
            return submit_checked(
                self._client, _learn_reporting, task, plan.specs, self._context, no_states, counts_as_progress, key=key
            )

        # The children of node n are the nodes 2n and 2n + 1 of the level below.
        # If there is no second child, the result of the first child is also this node's result.
        first_child = Node(level - 1, 2 * number)
        older = self._submit_subtree(first_child)
        if plan.is_only_child(first_child):
            return older
        newer = self._submit_subtree(Node(level - 1, 2 * number + 1))
        return submit_checked(self._client, merge, older, newer, key=key)

    def _submit_unmergeable_model(self, recurrence_index: int) -> Future:
        """Submit one task that learns all batches with one model.

        The states of the model, a recurrence, cannot be merged. So its batches cannot be divided
        into tasks. Returns a Dask future of the task's result.

        recurrence_index: index of the model in the plan's `recurrences`.
        """
        plan = self._plan
        spec, state = plan.recurrences[recurrence_index]
        # The task continues from the state of a model that has learned rows.
        states = [] if state is None else [self._client.scatter(state)]
        # Several tasks learn each batch, but its rows count as progress only once. If no task of
        # models with mergeable states counts them, the task of the first recurrence does.
        counts_as_progress = not plan.specs and recurrence_index == 0
        key = f"{self._context.topic}-recurrence-{recurrence_index}"
        return submit_checked(
            self._client, _learn_reporting, plan.whole, (spec,), self._context, states, counts_as_progress, key=key
        )

    def _handle_worker_report(self, event: _ReportEvent) -> None:
        """Handle a worker's report, which Dask passes as an event.

        The report says that a worker starts to learn a batch, or that a task has ended.
        """
        # `event` is a pair of the time and the report. `fields` is None if the task has ended. If
        # not, they are the fields of the Reference of the batch that is started.
        worker, task, counts_as_progress, fields = event[1]
        if fields is None:
            self._last_batch.pop((worker, task), None)
            return

        reference = Reference(*fields)
        self._last_batch[worker, task] = reference
        if counts_as_progress:
            self._on_batch(reference)


def _learn_reporting(
    task: Task, specs: Sequence[Spec], context: _RunContext, initial_states: Sequence[State], counts_as_progress: bool
) -> PartialResult:
    """Learn the batches of a task and report each batch.

    This function runs on a worker. The reports go to the client.

    specs: descriptions of the models that learn the batches.
    context: schema and limits of the stream, and the Dask topic on which to report.
    initial_states: state of each model to continue from. Empty to start without learned rows.
    counts_as_progress: True if the client shall add the rows of these batches to its progress.
        False if another task already counts the rows of these batches.
    """
    worker = get_worker()
    key = worker.get_current_task()

    # `learn_task` calls this function before each batch, with the reference by which the log names
    # the batch (its shard, its number and its rows). Below, it is called with None at the end.
    def report_batch_or_end(reference: Reference | None) -> None:
        # Dask sends the report as plain values.
        fields = None
        if reference is not None:
            fields = tuple(reference)
        worker.log_event(context.topic, (worker.address, key, counts_as_progress, fields))

    try:
        return learn_task(task, specs, context.schema, context.limits, initial_states, report_batch_or_end)
    finally:
        report_batch_or_end(None)


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
    tol: tolerance of the relative residual, at which the passes end.
    max_passes: maximum number of passes over the model's rows.
    on_progress: function that receives the progress of the passes, or None.

    In addition to the errors of `refine_model`, these errors are raised:

    - CannotMerge if the estimator's states cannot be merged.
    - CannotRefine if the estimator has decay or a feature map of tables. With decay or such a map,
      a row's part of the sums depends on earlier rows. So tasks cannot sum at the same time.
    - ClusterError if the cluster cannot be used.
    """
    # `merges` is True if the states of two parts of the rows can be merged. If not, `merges_as` may
    # name a similar estimator whose states can be.
    estimator = model.estimator
    name = type(estimator).__name__
    if not estimator.merges:
        message = f"{name} learns one row after the other, and is not split among workers."
        if estimator.merges_as:
            message += f" {estimator.merges_as} answers the same question and is."
        raise CannotMerge(message)
    # Without decay (1), all rows have the same weight, whatever their order.
    if estimator.decay != 1.0:
        raise CannotRefine(f"{name} with decay is refined in one process, not on a cluster.")

    with connect_to_scheduler(scheduler_address) as client:
        check_workers(client)

        # `refine_model` calls this function once, with the state that it refines.
        def new_dask_pass_sums(frozen: FrozenState) -> _ClusterSums:
            return _ClusterSums(client, directory, model, frozen)

        return refine_model(directory, model, tol, max_passes, on_progress, make_compute_sums=new_dask_pass_sums)


class _TaskContext(NamedTuple):
    """Values that all tasks use that refine a model, each with a part of its rows.

    spec: spec of the model.
    schema: the stream's schema.
    state: the model's state at the start of the refine.
    """

    spec: Spec
    schema: Schema
    state: State


def _locate_batch(directory: Directory, reference: Reference) -> tuple[Reference, float]:
    """Return a reference with the current URI of its shard, and the batch's bytes."""
    # The bytes are estimated by the batch's part of the shard's rows.
    # The shard may have another URI than the log says, if it was moved.
    shard = find_shard(directory.path, reference.uri, reference.sha256)
    return reference._replace(uri=shard_file_uri(shard)), shard.bytes / shard.rows * reference.rows


class _ClusterSums:
    """Callable that multiplies a model's scatter matrix by columns on Dask.

    In each pass of a refine, `refine_model` calls this object. The matrix is the scatter of all
    rows that the model has learned. Workers compute the product for rows in shards, and this
    process computes the product for all other rows.

    The constructor divides the rows into tasks. It raises CannotRefine if the model has a feature
    map of tables, and ClusterError if the workers cannot be used.

    frozen: the model's state at the start of the refine, with its position.
    """

    def __init__(self, client: Client, directory: Directory, model: Model, frozen: FrozenState) -> None:
        if model.accumulator.table is not None:
            raise CannotRefine("a map of tables is refined in one process, not on a cluster.")
        self._client = client
        self._context = _TaskContext(model.spec, directory.schema, frozen.state)

        # Each item of `references` is (position of an event, reference to a batch in a shard).
        # Events after the position before `model.start`, which is the model's first event, are
        # read. Rows that the state has already unlearned are left out.
        references = list(directory.history.references(model.start - 1, frozen.position, frozen.unlearn_horizon))
        # Without a reference, the rows are in the log, which workers cannot read. `__call__` adds
        # them up in this process.
        logged = frozenset(position for position, reference in references if reference is None)
        self._logged = _RowsAtPositions(directory, model.estimator, logged, frozen)

        # Create tasks for the workers, each with some of the batches in shards.
        # Each worker needs memory for STATES_IN_MEMORY states of the model.
        sized = [_locate_batch(directory, reference) for _, reference in references if reference is not None]
        state_bytes = bound_state_bytes(model.estimator, directory.schema)
        check_workers(client, STATES_IN_MEMORY * state_bytes)
        self._tasks = divide_into_tasks(sized, state_bytes)
        self._sent_context = client.scatter(self._context, broadcast=True)

    def __call__(
        self, columns_to_multiply: np.ndarray, is_first_pass: bool, on_rows: Callable[[int], None] | None
    ) -> Sums:
        """Return the Sums of one pass of refine over the model's rows.

        columns_to_multiply: (features, r), columns to multiply the scatter matrix by.
        is_first_pass: True for the first pass, which also computes the moments of the rows again.
        on_rows: function that is called with the number of rows after the pass, or None.
        """
        # Send the columns to all workers once. Each part is a future of the sums of one task.
        client = self._client
        sent_columns = client.scatter(columns_to_multiply, broadcast=True)
        parts = [
            submit_checked(client, _sums_of_task, task, self._sent_context, sent_columns, is_first_pass)
            for task in self._tasks
        ]

        # Merge the sums of neighbouring tasks on the workers until one sum remains.
        # If the number of sums is odd, the last sum waits for the next round.
        while len(parts) > 1:
            neighbours = zip(parts[::2], parts[1::2], strict=False)
            pairs = [submit_checked(client, Sums.merge, a, b) for a, b in neighbours]
            parts = pairs + parts[2 * len(pairs) :]

        # Add up the rows that the log itself holds (the list `here` of one sum, or none), while the
        # workers add up the rows in shards.
        here: list[Sums] = []
        if self._logged.positions:
            here.append(_sums_of_source(self._context, self._logged, columns_to_multiply, is_first_pass))
        total: Sums = reduce(Sums.merge, [*gather_results(client, parts), *here])
        if on_rows is not None:
            on_rows(total.rows)
        return total


@dataclass
class _RowsAtPositions:
    """Source of the events that workers cannot read from shards.

    Workers cannot read an event if its rows are in the log and not in a shard, or if some of its
    rows were unlearned.

    positions: positions in the log of the events.
    frozen: the model's state at the start of the refine, with its position.
    """

    directory: Directory
    estimator: Estimator
    positions: frozenset[int]
    frozen: FrozenState

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield the position and the rows of each event that workers cannot read.

        `after` and `until` belong to the Source protocol and are ignored.
        """
        # Rows that the state has unlearned are left out. Events of the log up to the position
        # `horizon` have unlearned them.
        before_first = min(self.positions) - 1
        last = self.frozen.position
        history, horizon = self.directory.history, self.frozen.unlearn_horizon
        for position, block in history.events(before_first, last, self.positions, horizon):
            yield position, self.estimator.block_to_learn(block)


@dataclass
class _ShardRows:
    """Source that reads the batches of one task from shards.

    A worker uses it for one pass of refine.
    """

    task: Task
    context: _TaskContext

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (index, Block) of every batch.

        The index is the position of the batch in the task, from 0. `after` and `until` belong to
        the Source protocol and are ignored.
        """
        estimator = estimator_from_spec(self.context.spec)
        for number, reference in enumerate(self.task.references):
            block = self.context.schema.conform(read_batch(reference))
            yield number, estimator.block_to_learn(block)


def _sums_of_task(task: Task, context: _TaskContext, columns_to_multiply: np.ndarray, is_first_pass: bool) -> Sums:
    """Return a task's rows' scatter matrix times given columns, and further sums."""
    # columns_to_multiply: (features, r), columns by which the rows' scatter matrix is multiplied.
    # is_first_pass: True for the first pass, in which a new state learns the rows, too.
    return _sums_of_source(context, _ShardRows(task, context), columns_to_multiply, is_first_pass)


def _sums_of_source(
    context: _TaskContext, source: Source, columns_to_multiply: np.ndarray, is_first_pass: bool
) -> Sums:
    """Return the scatter matrix of a source's rows times given columns, and further sums."""
    # columns_to_multiply: (features, r), columns by which the rows' scatter matrix is multiplied.
    # is_first_pass: True for the first pass, in which a new state learns the rows, too.
    # If the estimator has a feature map, the source maps its rows, and the rest is without a map.
    # The first pass also computes the moments of the rows again, which are compared with the state.
    estimator = estimator_from_spec(context.spec)
    moments = estimator.moments(context.state)
    estimator, state, source, names = strip_feature_map(estimator, context.state, source, context.schema.names)
    return RowReplay(estimator, state, moments, names).sum_over_pass(source, columns_to_multiply, is_first_pass)
