"""cluster: runs a plan on the workers of a Dask cluster (extra [distributed]).

Tasks and merges are futures that depend on each other. States go from worker to worker, and only
the root's goes to the client. If a worker is lost, its tasks run again elsewhere.

Dask gives up a task that was running on four lost workers. Another task may have been to blame, so
it is sent again while nothing else runs, and given up for good after three such failures. A worker
that runs one task for too long ends the run with its name.

Every worker must see the shards under the same paths or URIs. It must also have the client's
versions of Python, numpy and stream_dr, since others may give other bits.
"""

import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from stream_dr import __version__
from stream_dr.directory.draft import Reference
from stream_dr.distributed.part_store import PartStore, PlanRunner, load_or_compute
from stream_dr.distributed.parts import PartialResult, ProgressCallback, learn, merge
from stream_dr.distributed.task_plan import LEAST_ROWS, Node, Task, TaskPlan
from stream_dr.errors import ClusterError, SourceMissing, StreamDRError
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.models.schema import Limits, Schema, bytes_needed
from stream_dr.statistics.protocol import State

if TYPE_CHECKING:
    from distributed import Client, Future

SOLO_ATTEMPTS = 3
"""Number of times a task that lost its workers is tried while nothing else runs."""

# Two states that are merged, and the result.
STATES_HELD = 3
"""Number of states that a worker holds in memory."""

CONNECT_SECONDS = 10

TASK_SECONDS = 600.0
"""Default limit for the time of a task of LEAST_ROWS rows."""

ENDED = -1
"""Number of rows that a worker reports when a task has ended."""

TOPIC = "stream_dr"
"""Prefix of the topics on which workers report, and of the keys of futures."""


def cluster_runner(address: str, seconds: float = TASK_SECONDS) -> PlanRunner:
    """Return a function that runs plans on the workers of a scheduler.

    address: tcp://host:port.
    seconds: as in TaskWatchdog.

    The function raises ClusterError.
    """

    def run(plan: TaskPlan, on_batch: ProgressCallback, store: PartStore | None = None) -> Sequence[PartialResult]:
        with connect(address) as client:
            check_workers(client, STATES_HELD * _state_bytes(plan))
            return _ClusterRun(client, plan, on_batch, store, seconds).result()

    return run


@contextmanager
def connect(address: str) -> Iterator["Client"]:
    """Connect to the scheduler at an address.

    Raises ClusterError if there is none, or if it is lost meanwhile.
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
        # A lost scheduler raises a KeyError, an AttributeError … depending on the call.
        except Exception as e:
            if isinstance(e, CancelledError) or (client.status != "running" and not isinstance(e, StreamDRError)):
                raise ClusterError(
                    "the scheduler was lost. Start it and its workers, and give the command again."
                ) from e
            raise


def versions() -> dict[str, str]:
    """Return the versions in this process on which the bits of a state depend."""
    return {"stream_dr": __version__, "numpy": np.__version__, "Python": platform.python_version()}


def check_workers(client: "Client", needed: int = 0) -> None:
    """Raise ClusterError if the workers cannot be used.

    There must be one, and all must have the client's versions and `needed` bytes of memory.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ClusterError("the cluster has no workers; start some with `dask worker`.")

    here = versions()
    for address, there in client.run(versions, on_error="return").items():
        # A worker that was lost meanwhile gives an error.
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
    """Raise ClusterError if a worker's versions are not the client's."""
    other = [f"{name} {version}" for name, version in there.items() if version != here[name]]
    if other:
        mine = ", ".join(f"{name} {here[name]}" for name in here)
        raise ClusterError(f"worker {address} has {', '.join(other)}; the client has {mine}. Install the same.")


def _state_bytes(plan: TaskPlan) -> int:
    """Return the bytes of one state of every model."""
    specs = [*plan.specs, *(recurrence.spec for recurrence in plan.recurrences)]
    return sum(bytes_needed(estimator_of(spec), plan.schema) for spec in specs)


def gather_results(client: "Client", futures: "Sequence[Future]") -> list[Any]:
    """Return the results of futures.

    Raises what their tasks raise, and ClusterError if one worker after the other is lost.
    """
    from distributed import KilledWorker

    try:
        return list(client.gather(futures))
    except KilledWorker as e:
        raise ClusterError(
            "four workers were lost one after the other while they ran one task. Look at their logs: is there memory for it?"
        ) from e


def submit(client: "Client", act: Callable[..., Any], *arguments: Any, key: str | None = None) -> "Future":
    """Call a function on a worker.

    The future raises ClusterError if its versions differ.
    """
    return client.submit(_on_worker, versions(), act, *arguments, key=key, pure=False)


def _on_worker(client_versions: dict[str, str], act: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a worker. A SourceMissing error names the worker."""
    from distributed import get_worker

    # Workers that joined during the run were not checked before.
    address = get_worker().address
    _check_versions(address, versions(), client_versions)
    # For the life of the process, since more threads of BLAS sum in another order.
    threadpool_limits(1)
    try:
        return act(*arguments)
    except SourceMissing as e:
        raise SourceMissing(f"worker {address}: {e} Every worker must see it under that path.") from e


class _RunContext(NamedTuple):
    """Values that all tasks of a run share.

    topic: topic on which workers report. store: where results are stored, or None.
    """

    schema: Schema
    limits: Limits
    topic: str
    store: PartStore | None


class _ClusterRun:
    """One run of a plan."""

    def __init__(
        self,
        client: "Client",
        plan: TaskPlan,
        on_batch: ProgressCallback,
        store: PartStore | None,
        seconds: float,
    ) -> None:
        self._client = client
        self._plan = plan
        self._on_batch = on_batch
        self._stored = frozenset[str]() if store is None else store.keys()
        self._context = _RunContext(plan.schema, plan.limits, f"{TOPIC}-{plan.key(plan.root)}", store)
        self._tasks = {plan.key((0, n)): task for n, task in enumerate(plan.tasks)} if plan.specs else {}
        self._recurrences = {plan.recurrence_key(n): recurrence for n, recurrence in enumerate(plan.recurrences)}
        # Each batch is reported once, by the tasks or else by the first recurrence.
        self._reporting = self._tasks or dict.fromkeys(list(self._recurrences)[:1])
        self._watchdog = TaskWatchdog(seconds)

    def result(self) -> Sequence[PartialResult]:
        """Return the results of the root and of the recurrences."""
        self._client.subscribe_topic(self._context.topic, self._on_report)
        try:
            return self._run()
        finally:
            self._client.unsubscribe_topic(self._context.topic)

    def _run(self) -> Sequence[PartialResult]:
        """Submit all tasks, again after a task has lost its workers, and return the results."""
        from distributed import KilledWorker

        tries: dict[str, int] = {}
        done: dict[str, Future] = {}
        while True:
            futures = self._submit_all(done)
            try:
                return self._results(futures)
            except KilledWorker as e:
                for future in futures:
                    future.cancel()
                key = str(e.task).removeprefix(f"{TOPIC}-")
                done[key] = self._run_alone(key, tries)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _results(self, futures: "list[Future]") -> list[PartialResult]:
        """Return the results of futures.

        Raises ClusterError if a task takes too long.
        """
        from distributed import wait

        waiting = futures
        while waiting:
            with suppress(TimeoutError):
                wait(waiting, timeout=1, return_when="FIRST_COMPLETED")
            self._watchdog.check()
            for future in futures:
                # The result of a failed task raises its error.
                if future.status == "error":
                    future.result()
            waiting = [future for future in waiting if future.status == "pending"]
        return [future.result() for future in futures]

    def _submit_all(self, done: "dict[str, Future]") -> "list[Future]":
        """Submit the root and the recurrences. done: futures that replace tasks."""
        futures = [self._submit_node(self._plan.root, done)] if self._tasks else []
        return futures + [done.get(key) or self._submit(key) for key in self._recurrences]

    def _submit_node(self, node: Node, done: "dict[str, Future]") -> "Future":
        """Submit a node and all nodes under it, as far as they are not stored."""
        plan = self._plan
        client = self._client
        key = plan.key(node)
        if key in self._stored:
            for reference in plan.references(node):
                self._on_batch(reference)
            return submit(client, _read, self._context, key, plan.specs, key=f"{TOPIC}-kept-{key}")

        level, number = node
        if level == 0:
            return done.get(key) or self._submit(key)

        older = self._submit_node((level - 1, 2 * number), done)
        if plan.has_no_neighbour((level - 1, 2 * number)):
            return older
        newer = self._submit_node((level - 1, 2 * number + 1), done)
        return submit(client, _merge, older, newer, self._context, key, plan.specs, key=f"{TOPIC}-{key}")

    def _submit(self, key: str, times: int = 0) -> "Future":
        """Submit a task or a recurrence by its key.

        times: number of the attempt to run it alone, or 0.
        """
        states: list[Future] = []
        if key in self._tasks:
            task = self._tasks[key]
            specs = self._plan.specs
        else:
            recurrence = self._recurrences[key]
            task = self._plan.whole
            specs = (recurrence.spec,)
            if recurrence.state is not None:
                states = [self._client.scatter(recurrence.state)]
        name = f"{TOPIC}-{key}-{times}" if times else f"{TOPIC}-{key}"
        return submit(self._client, _learn, task, specs, self._context, states, key, key=name)

    def _run_alone(self, key: str, tries: dict[str, int]) -> "Future":
        """Run a task that lost its workers while nothing else runs.

        Raises ClusterError.
        """
        from distributed import KilledWorker

        while (key in self._tasks or key in self._recurrences) and tries.setdefault(key, 0) < SOLO_ATTEMPTS:
            tries[key] += 1
            future = self._submit(key, tries[key])
            # This waits for the task.
            if not isinstance(future.exception(), KilledWorker):
                return future
        raise ClusterError(
            f"workers are lost whenever they learn {self._watchdog.location(key)}, {tries.get(key, 0)} times while nothing "
            "else ran. Look at their logs: is there memory for three states, and is the shard whole?"
        )

    def _on_report(self, event: tuple[float, tuple[str, str, int, Reference | None]]) -> None:
        """Handle a worker's report: key, worker, rows, and the batch that it begins or None."""
        key, worker, rows, fields = event[1]
        reference = None if fields is None else Reference(*fields)
        self._watchdog.record(key, worker, rows, reference)
        if reference is not None and key in self._reporting:
            self._on_batch(reference)


class TaskWatchdog:
    """Tracks which worker runs which task, and raises an error if one takes too long.

    seconds: limit of a merge, and of a task of LEAST_ROWS rows. Larger tasks have more time in
        proportion.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # By key: worker, start by time.monotonic, and limit in seconds.
        self._running: dict[str, tuple[str, float, float]] = {}
        self._last_batch: dict[str, Reference] = {}
        self._lock = threading.Lock()

    def record(self, key: str, worker: str, rows: int, reference: Reference | None) -> None:
        """Record a worker's report on a task.

        rows: number of rows of the task, or ENDED.
        reference: batch that the worker begins, or None.
        """
        with self._lock:
            if reference is not None:
                self._last_batch[key] = reference
            if rows == ENDED:
                self._running.pop(key, None)
            elif self._running.get(key, ("",))[0] != worker:
                limit = self._seconds * max(1.0, rows / LEAST_ROWS)
                self._running[key] = (worker, time.monotonic(), limit)

    def location(self, key: str) -> str:
        """Return the last batch of a task that was begun, as text."""
        reference = self._last_batch.get(key)
        return "a merge" if reference is None else f"{reference.uri}, batch {reference.batch}"

    def check(self) -> None:
        """Raise ClusterError with the name of a worker whose task takes too long."""
        with self._lock:
            running = dict(self._running)
        for key, (worker, since, limit) in running.items():
            if time.monotonic() - since > limit:
                raise ClusterError(
                    f"worker {worker} has not ended its task, last at {self.location(key)}, within {limit:.0f} s. Look at "
                    "its log, end it, and give the command again, with more seconds a task if it needs them."
                )


def _learn(task: Task, specs: Sequence[Spec], context: _RunContext, states: Sequence[State], key: str) -> PartialResult:
    """Learn a task on a worker."""
    with _reporting(context, key, task.rows) as on_batch:
        return load_or_compute(
            context.store, key, specs, lambda: learn(task, specs, context.schema, context.limits, states, on_batch)
        )


def _merge(
    older: PartialResult, newer: PartialResult, context: _RunContext, key: str, specs: Sequence[Spec]
) -> PartialResult:
    """Merge two results on a worker."""
    with _reporting(context, key, 0):
        return load_or_compute(context.store, key, specs, lambda: merge(older, newer))


def _read(context: _RunContext, key: str, specs: Sequence[Spec]) -> PartialResult:
    """Read a stored result on a worker."""
    assert context.store is not None
    return context.store.require(key, specs)


@contextmanager
def _reporting(context: _RunContext, key: str, rows: int) -> Iterator[ProgressCallback]:
    """Report begin and end of a task to the client.

    Give a function that reports its batches.
    """
    from distributed import get_worker

    worker = get_worker()

    def report(reference: Reference | None, rows: int = rows) -> None:
        fields = None if reference is None else tuple(reference)
        worker.log_event(context.topic, (key, worker.address, rows, fields))

    report(None)
    try:
        yield report
    finally:
        report(None, ENDED)
