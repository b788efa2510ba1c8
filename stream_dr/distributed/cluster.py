"""cluster: a plan on the workers of a Dask cluster (extra [distributed]).

Tasks and merges are futures of each other, so a state goes from worker to worker, and the root's alone to the client. A
worker that is lost takes nothing along but time: its tasks are run again elsewhere. Dask gives up a task that was running
on four lost workers; it may only have been beside the one that is to blame, so it is sent again when nothing else runs, and
given up for good when that has failed three times. A worker that is at one task for too long ends the run by its name. Keys
hold what a task computes, never where from.

Every worker must see the shards under the same paths or URIs, and have the client's versions of Python, numpy and
stream_dr: others may give other bits.
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
from stream_dr.distributed.kept import Kept, Run, once
from stream_dr.distributed.parts import Part, Told, learn, merge
from stream_dr.distributed.plan import LEAST_ROWS, Node, Plan, Task
from stream_dr.errors import ClusterError, SourceMissing, StreamDRError
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.models.schema import Limits, Schema, bytes_needed

if TYPE_CHECKING:
    from distributed import Client, Future

ALONE = 3
"""How often a task that took workers with it is tried while nothing else runs."""

STATES_HELD = 3
"""A worker holds two states that it merges, and what comes of them."""

CONNECT_SECONDS = 10

TASK_SECONDS = 600.0
"""What a task of LEAST_ROWS rows may take, unless told otherwise."""

ENDED = -1

TOPIC = "stream_dr"


def workers_of(address: str, seconds: float = TASK_SECONDS) -> Run:
    """What runs plans on the workers of the scheduler at an address (tcp://host:port). seconds: as in Pace. Raises
    ClusterError."""

    def run(plan: Plan, told: Told, kept: Kept | None = None) -> Sequence[Part]:
        with connected(address) as client:
            check_workers(client, STATES_HELD * _state_bytes(plan))
            return _Run(client, plan, told, kept, seconds).result()

    return run


@contextmanager
def connected(address: str) -> Iterator["Client"]:
    """A client of the scheduler at an address. Raises ClusterError where none answers, or where it is lost meanwhile."""
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
        except Exception as e:  # by what it was asked at that moment: a KeyError, an AttributeError …
            if isinstance(e, CancelledError) or (client.status != "running" and not isinstance(e, StreamDRError)):
                raise ClusterError(
                    "the scheduler was lost. Start it and its workers, and give the command again."
                ) from e
            raise


def versions() -> dict[str, str]:
    """What the bits of a state depend on, here."""
    return {"stream_dr": __version__, "numpy": np.__version__, "Python": platform.python_version()}


def check_workers(client: "Client", needed: int = 0) -> None:
    """Raise ClusterError where there is no worker, or one has other versions, or less memory than so many bytes."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ClusterError("the cluster has no workers; start some with `dask worker`.")
    here = versions()
    for address, there in client.run(versions, on_error="return").items():
        if not isinstance(there, dict):  # it was lost meanwhile
            continue
        _check_versions(address, there, here)
    for address, facts in workers.items():
        limit = facts["memory_limit"]
        if limit and limit < needed:
            raise ClusterError(
                f"worker {address} may take {limit} bytes of memory; these models need {needed} (three states). Give it "
                "more, or make the models with fewer targets or features."
            )


def _check_versions(address: str, there: dict[str, str], here: dict[str, str]) -> None:
    """Raise ClusterError where a worker's versions are not the client's."""
    other = [f"{name} {version}" for name, version in there.items() if version != here[name]]
    if other:
        mine = ", ".join(f"{name} {here[name]}" for name in here)
        raise ClusterError(f"worker {address} has {', '.join(other)}; the client has {mine}. Install the same.")


def _state_bytes(plan: Plan) -> int:
    specs = [*plan.specs, *(recurrence.spec for recurrence in plan.recurrences)]
    return sum(bytes_needed(estimator_of(spec), plan.schema) for spec in specs)


def gathered(client: "Client", futures: "Sequence[Future]") -> list[Any]:
    """What futures give. Raises what their tasks raise, and ClusterError where worker after worker is lost."""
    from distributed import KilledWorker

    try:
        return list(client.gather(futures))
    except KilledWorker as e:
        raise ClusterError(
            "four workers were lost one after the other while they ran one task. Look at their logs: is there memory for it?"
        ) from e


def submit(client: "Client", act: Callable[..., Any], *arguments: Any, key: str | None = None) -> "Future":
    """What a function gives of these arguments, on a worker; ClusterError where that has other versions than the client."""
    return client.submit(_on_worker, versions(), act, *arguments, key=key, pure=False)


def _on_worker(wanted: dict[str, str], act: Callable[..., Any], *arguments: Any) -> Any:
    """Workers that join during a run are checked here, and what one cannot see is told with its address."""
    from distributed import get_worker

    address = get_worker().address
    _check_versions(address, versions(), wanted)
    threadpool_limits(1)  # for good: more threads of BLAS sum in another order
    try:
        return act(*arguments)
    except SourceMissing as e:
        raise SourceMissing(f"worker {address}: {e} Every worker must see it under that path.") from e


class _Given(NamedTuple):
    """What every task of a run is given: the stream's schema and limits, the topic of what is told, where parts are kept."""

    schema: Schema
    limits: Limits
    topic: str
    kept: Kept | None


class _Run:
    """One run of a plan."""

    def __init__(self, client: "Client", plan: Plan, told: Told, kept: Kept | None, seconds: float) -> None:
        self._client, self._plan, self._told, self._seconds = client, plan, told, seconds
        self._there = frozenset[str]() if kept is None else kept.keys()
        self._given = _Given(plan.schema, plan.limits, f"{TOPIC}-{plan.key(plan.root)}", kept)
        self._tasks = {plan.key((0, n)): task for n, task in enumerate(plan.tasks)} if plan.specs else {}
        self._alone = {plan.recurrence_key(n): recurrence for n, recurrence in enumerate(plan.recurrences)}
        self._counted = self._tasks or dict.fromkeys(list(self._alone)[:1])  # what is told of: every batch once
        self._pace = Pace(seconds)

    def result(self) -> Sequence[Part]:
        """The parts of the root and of the recurrences."""
        self._client.subscribe_topic(self._given.topic, self._hear)
        try:
            return self._gathered()
        finally:
            self._client.unsubscribe_topic(self._given.topic)

    def _gathered(self) -> Sequence[Part]:
        from distributed import KilledWorker

        tries: dict[str, int] = {}
        done: dict[str, Future] = {}
        while True:
            futures = self._submitted(done)
            try:
                return self._results(futures)
            except KilledWorker as e:
                for future in futures:
                    future.cancel()
                key = str(e.task).removeprefix(f"{TOPIC}-")
                done[key] = self._on_its_own(key, tries)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _results(self, futures: "list[Future]") -> list[Part]:
        """What the futures give. Raises ClusterError when a worker is at one task too long."""
        from distributed import wait

        waiting = futures
        while waiting:
            with suppress(TimeoutError):
                wait(waiting, timeout=1, return_when="FIRST_COMPLETED")
            self._pace.check()
            for future in futures:
                if future.status == "error":
                    future.result()  # raises it
            waiting = [future for future in waiting if future.status == "pending"]
        return [future.result() for future in futures]

    def _submitted(self, done: "dict[str, Future]") -> "list[Future]":
        futures = [self._node(self._plan.root, done)] if self._tasks else []
        return futures + [done.get(key) or self._submit(key) for key in self._alone]

    def _node(self, node: Node, done: "dict[str, Future]") -> "Future":
        plan, client, key = self._plan, self._client, self._plan.key(node)
        if key in self._there:
            for reference in plan.references(node):
                self._told(reference)
            return submit(client, _read, self._given, key, plan.specs, key=f"{TOPIC}-kept-{key}")
        level, number = node
        if level == 0:
            return done.get(key) or self._submit(key)
        older = self._node((level - 1, 2 * number), done)
        if plan.alone((level - 1, 2 * number)):
            return older
        newer = self._node((level - 1, 2 * number + 1), done)
        return submit(client, _merge, older, newer, self._given, key, plan.specs, key=f"{TOPIC}-{key}")

    def _submit(self, key: str, times: int = 0) -> "Future":
        """A task, or a recurrence, by its key. times: how often it was sent on its own."""
        plan, client, states = self._plan, self._client, list[Any]()
        task, specs = (self._tasks[key], plan.specs) if key in self._tasks else (plan.whole, (self._alone[key].spec,))
        if key in self._alone and self._alone[key].state is not None:
            states = [client.scatter(self._alone[key].state)]
        name = f"{TOPIC}-{key}-{times}" if times else f"{TOPIC}-{key}"
        return submit(client, _learn, task, specs, self._given, states, key, key=name)

    def _on_its_own(self, key: str, tries: dict[str, int]) -> "Future":
        """The future of a task that took workers with it, done while nothing else ran. Raises ClusterError."""
        from distributed import KilledWorker

        while (key in self._tasks or key in self._alone) and tries.setdefault(key, 0) < ALONE:
            tries[key] += 1
            future = self._submit(key, tries[key])
            if not isinstance(future.exception(), KilledWorker):  # waits for it
                return future
        raise ClusterError(
            f"workers are lost whenever they learn {self._pace.where(key)}, {tries.get(key, 0)} times while nothing else "
            "ran. Look at their logs: is there memory for three states, and is the shard whole?"
        )

    def _hear(self, event: tuple[float, tuple[str, str, int, Reference | None]]) -> None:
        """A worker has begun a batch, or a merge of so many rows (0), or has ended (no rows)."""
        key, worker, rows, told = event[1]
        reference = None if told is None else Reference(*told)
        self._pace.hear(key, worker, rows, reference)
        if reference is not None and key in self._counted:
            self._told(reference)


class Pace:
    """Which worker is at which task since when. seconds: what a task of LEAST_ROWS rows, or a merge, may take; a larger task
    may take longer in proportion."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[str, tuple[str, float, float]] = {}
        self._at: dict[str, Reference] = {}
        self._lock = threading.Lock()

    def hear(self, key: str, worker: str, rows: int, reference: Reference | None) -> None:
        """A worker is at a task of so many rows; ENDED: it no longer is. reference: the batch that it begins."""
        with self._lock:
            if reference is not None:
                self._at[key] = reference
            if rows == ENDED:
                self._running.pop(key, None)
            elif self._running.get(key, ("",))[0] != worker:
                limit = self._seconds * max(1.0, rows / LEAST_ROWS)
                self._running[key] = (worker, time.monotonic(), limit)

    def where(self, key: str) -> str:
        """The last batch that was begun of a task."""
        at = self._at.get(key)
        return "a merge" if at is None else f"{at.uri}, batch {at.batch}"

    def check(self) -> None:
        """Raise ClusterError naming a worker that is at one task for too long."""
        with self._lock:
            running = dict(self._running)
        for key, (worker, since, limit) in running.items():
            if time.monotonic() - since > limit:
                raise ClusterError(
                    f"worker {worker} has not ended its task, last at {self.where(key)}, within {limit:.0f} s. Look at its "
                    "log, end it, and give the command again, with more seconds a task if it needs them."
                )


def _learn(task: Task, specs: Sequence[Spec], given: _Given, states: Sequence[Any], key: str) -> Part:
    """A task, on a worker."""
    with _said(given, key, task.rows) as say:
        return once(given.kept, key, specs, lambda: learn(task, specs, given.schema, given.limits, states, say))


def _merge(older: Part, newer: Part, given: _Given, key: str, specs: Sequence[Spec]) -> Part:
    with _said(given, key, 0):
        return once(given.kept, key, specs, lambda: merge(older, newer))


def _read(given: _Given, key: str, specs: Sequence[Spec]) -> Part:
    assert given.kept is not None
    return given.kept.expected(key, specs)


@contextmanager
def _said(given: _Given, key: str, rows: int) -> Iterator[Told]:
    """What tells the client of each batch; it is told of begin and end as well."""
    from distributed import get_worker

    worker = get_worker()

    def say(reference: Reference | None, rows: int = rows) -> None:
        worker.log_event(given.topic, (key, worker.address, rows, None if reference is None else tuple(reference)))

    say(None)
    try:
        yield say
    finally:
        say(None, ENDED)
