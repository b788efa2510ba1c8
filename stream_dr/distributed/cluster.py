"""cluster: runs a task plan on the workers of a Dask cluster (extra [distributed]).

A task learns some batches of a replay, and the results of tasks are merged in pairs. Tasks and
merges are Dask futures that depend on each other. States go from worker to worker, and only the
state of the whole plan goes to the client. If a worker is lost, Dask runs its tasks again on
another worker. If four workers are lost while they run the same task, Dask gives this task up. A
worker that hangs makes the run hang.

Every worker must see the shards under the same paths or URIs. It must also have the client's
versions of Python, numpy and stream_dr, since other versions may give other bits.
"""

import platform
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from stream_dr import __version__
from stream_dr.directory.draft import Reference
from stream_dr.distributed.parts import BatchCallback, PartialResult, PlanRunner, learn, merge
from stream_dr.distributed.task_plan import Node, Task, TaskPlan
from stream_dr.errors import ClusterError, SourceMissing, StreamDRError
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_from_spec
from stream_dr.models.schema import Limits, Schema, bound_state_bytes
from stream_dr.statistics.protocol import State

if TYPE_CHECKING:
    from distributed import Client, Future

# A worker holds the two states that it merges, and the merged state.
STATES_HELD = 3
"""Number of states of each model that a worker must have memory for."""

CONNECT_SECONDS = 10

TOPIC = "stream_dr"
"""Prefix of the topics on which workers report, and of the keys of Dask futures."""


def cluster_runner(address: str) -> PlanRunner:
    """Return a function that runs task plans on the workers of a Dask cluster.

    address: address of the Dask scheduler, tcp://host:port.

    The function raises ClusterError.
    """

    def run(plan: TaskPlan, on_batch: BatchCallback) -> Sequence[PartialResult]:
        with connect(address) as client:
            check_workers(client, STATES_HELD * _state_bytes(plan))
            return _ClusterRun(client, plan, on_batch).result()

    return run


@contextmanager
def connect(address: str) -> Iterator["Client"]:
    """Connect to the Dask scheduler at an address, for the time of the with-block.

    Raises ClusterError if there is no scheduler, or if it is lost in the with-block.
    """
    try:
        from distributed import Client
    except ImportError as e:
        raise ClusterError("Dask is not installed; install stream-dr[distributed].") from e

    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as e:
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({type(e).__name__}). Start one with `dask scheduler`, or give its "
            "address."
        ) from e

    with client, client.as_current():
        try:
            yield client
        # A lost scheduler raises different errors, such as KeyError, in different calls.
        except Exception as e:
            if isinstance(e, CancelledError) or (client.status != "running" and not isinstance(e, StreamDRError)):
                raise ClusterError(
                    "the scheduler was lost. Start it and its workers, and give the command again."
                ) from e
            raise


def versions() -> dict[str, str]:
    """Return the software versions on which exact results depend.

    The last bits of a model's state may differ between processes with different versions.
    """
    return {"stream_dr": __version__, "numpy": np.__version__, "Python": platform.python_version()}


def check_workers(client: "Client", needed: int = 0) -> None:
    """Raise ClusterError if the workers cannot be used.

    There must be at least one worker. All workers must have the client's software versions, and at
    least `needed` bytes of memory.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ClusterError("the cluster has no workers; start some with `dask worker`.")

    here = versions()
    for address, there in client.run(versions, on_error="return").items():
        # The response of a worker that was lost in the meantime is an error.
        if not isinstance(there, dict):
            continue
        _check_versions(address, there, here)

    for address, info in workers.items():
        limit = info["memory_limit"]
        if limit and limit < needed:
            raise ClusterError(
                f"worker {address} may take {limit} bytes of memory; these models need {needed} (three states). Give it "
                "more, or make the models with fewer targets or features."
            )


def _check_versions(address: str, there: dict[str, str], here: dict[str, str]) -> None:
    """Raise ClusterError if a worker's versions differ from the client's.

    there: versions of the worker.
    here: versions of the client.
    """
    other = [f"{name} {version}" for name, version in there.items() if version != here[name]]
    if other:
        mine = ", ".join(f"{name} {here[name]}" for name in here)
        raise ClusterError(f"worker {address} has {', '.join(other)}; the client has {mine}. Install the same.")


def _state_bytes(plan: TaskPlan) -> int:
    """Return the number of bytes of one state of each model in the plan."""
    specs = [*plan.specs, *(recurrence.spec for recurrence in plan.recurrences)]
    return sum(bound_state_bytes(estimator_from_spec(spec), plan.schema) for spec in specs)


def gather_results(client: "Client", futures: "Sequence[Future]") -> list[Any]:
    """Return the results of Dask futures.

    Raises the errors of their tasks. Raises ClusterError if Dask gives a task up because one
    worker after the other is lost.
    """
    from distributed import KilledWorker

    try:
        return list(client.gather(futures))
    except KilledWorker as e:
        raise ClusterError(
            "four workers were lost one after the other while they ran one task. Look at their logs: is there memory for it?"
        ) from e


def submit(client: "Client", act: Callable[..., Any], *arguments: Any, key: str | None = None) -> "Future":
    """Call a function on a worker, and return a Dask future of its result.

    The future raises ClusterError if the worker's versions differ from the client's.
    """
    return client.submit(_on_worker, versions(), act, *arguments, key=key, pure=False)


def _on_worker(client_versions: dict[str, str], act: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a worker. A SourceMissing error names the worker.

    act, arguments: the function and its arguments.
    """
    from distributed import get_worker

    # A worker that joined the cluster after the start of the run was not checked yet.
    address = get_worker().address
    _check_versions(address, versions(), client_versions)
    # With more threads, BLAS would sum in another order and give other bits.
    threadpool_limits(1)
    try:
        return act(*arguments)
    except SourceMissing as e:
        raise SourceMissing(f"worker {address}: {e} Every worker must see it under that path.") from e


class _RunContext(NamedTuple):
    """Values that all tasks of a run share.

    topic: topic on which workers report.
    """

    schema: Schema
    limits: Limits
    topic: str


class _ClusterRun:
    """One run of a task plan on a Dask cluster."""

    def __init__(self, client: "Client", plan: TaskPlan, on_batch: BatchCallback) -> None:
        self._client = client
        self._plan = plan
        self._on_batch = on_batch
        # Several runs may use one scheduler, so each run has a topic and keys of its own.
        self._context = _RunContext(plan.schema, plan.limits, f"{TOPIC}-{uuid.uuid4().hex}")
        # The last batch of each running task, by (worker, name of the task).
        self._last_batch: dict[tuple[str, str], Reference] = {}

    def result(self) -> Sequence[PartialResult]:
        """Return the merged result of all tasks, then the results of the recurrences.

        A recurrence is a model whose states cannot be merged. Raises ClusterError if Dask gives a
        task up.
        """
        from distributed import KilledWorker

        self._client.subscribe_topic(self._context.topic, self._on_report)
        futures: list[Future] = []
        try:
            if self._plan.specs:
                futures.append(self._submit_node(self._plan.root))
            futures += [self._submit_recurrence(number) for number in range(len(self._plan.recurrences))]
            return list(self._client.gather(futures))
        except KilledWorker as e:
            raise self._lost_workers_error() from e
        finally:
            # After an error, tasks that are still running are cancelled.
            for future in futures:
                future.cancel()
            self._client.unsubscribe_topic(self._context.topic)

    def _submit_node(self, node: Node) -> "Future":
        """Submit a node of the merge tree and all nodes under it.

        A node at the bottom of the tree learns batches. Every other node merges the results of two
        nodes.
        """
        plan = self._plan
        level, number = node
        name = f"{self._context.topic}-{level}-{number}"
        if level == 0:
            return submit(self._client, _learn, plan.tasks[number], plan.specs, self._context, [], True, key=name)

        older = self._submit_node((level - 1, 2 * number))
        if plan.has_no_neighbour((level - 1, 2 * number)):
            return older
        return submit(self._client, merge, older, self._submit_node((level - 1, 2 * number + 1)), key=name)

    def _submit_recurrence(self, number: int) -> "Future":
        """Submit the task that learns all batches with one recurrence.

        A recurrence is a model whose states cannot be merged.

        number: index of the model in the plan's `recurrences`.
        """
        plan = self._plan
        spec, state = plan.recurrences[number]
        states = [] if state is None else [self._client.scatter(state)]
        # Each batch is reported by one task. The tasks of the merge tree report all batches. If
        # there is no merge tree, the first recurrence reports them.
        counts = not plan.specs and number == 0
        name = f"{self._context.topic}-recurrence-{number}"
        return submit(self._client, _learn, plan.whole, (spec,), self._context, states, counts, key=name)

    def _on_report(self, event: tuple[float, tuple[str, str, bool, tuple[Any, ...] | None]]) -> None:
        """Handle a worker's report that it starts a batch, or that its task has ended."""
        worker, name, counts, fields = event[1]
        if fields is None:
            self._last_batch.pop((worker, name), None)
            return
        reference = Reference(*fields)
        self._last_batch[worker, name] = reference
        if counts:
            self._on_batch(reference)

    def _lost_workers_error(self) -> ClusterError:
        """Return the error for a task that Dask gave up.

        The error names the last batch of each task of a lost worker.
        """
        there = self._client.scheduler_info(n_workers=-1)["workers"]
        batches = {f"{r.uri}, batch {r.batch}" for (worker, _), r in self._last_batch.items() if worker not in there}
        return ClusterError(
            "four workers were lost one after the other while they ran one task. Lost workers had begun: "
            f"{'; '.join(sorted(batches)) or 'a merge'}. Look at their logs: is there memory for three states, and are "
            "these shards whole?"
        )


def _learn(
    task: Task, specs: Sequence[Spec], context: _RunContext, states: Sequence[State], counts: bool
) -> PartialResult:
    """Learn the batches of a task on a worker, and report each batch to the client.

    counts: True if the client shall add the rows of these batches to its progress. False if
        another task reports the same rows.
    """
    from distributed import get_worker

    worker = get_worker()
    name = worker.get_current_task()

    def report(reference: Reference | None) -> None:
        fields = None if reference is None else tuple(reference)
        worker.log_event(context.topic, (worker.address, name, counts, fields))

    try:
        return learn(task, specs, context.schema, context.limits, states, report)
    finally:
        report(None)
