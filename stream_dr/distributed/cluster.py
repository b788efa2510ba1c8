"""cluster: a plan on the workers of a Dask cluster (extra [distributed]).

Tasks and merges are futures of each other, so a state goes from worker to worker, and the root's alone to the client. A
worker that is lost takes nothing along but time: its tasks are run again elsewhere. Dask gives up a task that was running
on four lost workers; it may only have been beside the one that is to blame, so it is sent again when nothing else runs, and
given up for good when that has failed three times. Keys hold what a task computes, never where from.

Every worker must see the shards under the same paths, and have the client's versions of Python, numpy and stream_dr: others
may give other bits.
"""

import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from stream_dr import __version__
from stream_dr.distributed.parts import Part, Run, learn, merge
from stream_dr.distributed.plan import Node, Plan, Task
from stream_dr.engine.draft import Reference
from stream_dr.engine.model import Spec
from stream_dr.engine.schema import Limits, Schema
from stream_dr.errors import ClusterError, SourceMissing
from stream_dr.estimators import make

if TYPE_CHECKING:
    from distributed import Client, Future

ALONE = 3
"""How often a task that took workers with it is tried while nothing else runs."""

STATES_HELD = 3
"""A worker holds two states that it merges, and what comes of them."""

CONNECT_SECONDS = 10

TOPIC = "stream_dr"


def workers_of(address: str) -> Run:
    """What runs plans on the workers of the scheduler at an address (tcp://host:port). Raises ClusterError."""

    def run(plan: Plan, told: Callable[[Reference], None]) -> Sequence[Part]:
        with _connected(address) as client:
            check_workers(client, plan)
            return _Run(client, plan, told).result()

    return run


def _connected(address: str) -> "Client":
    try:
        from distributed import Client
    except ImportError as e:
        raise ClusterError("Dask is not installed; install stream-dr[distributed].") from e
    try:
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as e:
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({type(e).__name__}). Start one with `dask scheduler`, or give its "
            "address."
        ) from e


def versions() -> dict[str, str]:
    """What the bits of a state depend on, here."""
    return {"stream_dr": __version__, "numpy": np.__version__, "Python": platform.python_version()}


def check_workers(client: "Client", plan: Plan) -> None:
    """Raise ClusterError where there is no worker, or one has other versions or less memory than a plan needs."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ClusterError("the cluster has no workers; start some with `dask worker`.")
    here, needed = versions(), STATES_HELD * _state_bytes(plan)
    for address, there in client.run(versions, on_error="return").items():
        if not isinstance(there, dict):  # it was lost meanwhile
            continue
        other = [f"{name} {version}" for name, version in there.items() if version != here[name]]
        if other:
            mine = ", ".join(f"{name} {here[name]}" for name in here)
            raise ClusterError(f"worker {address} has {', '.join(other)}; the client has {mine}. Install the same.")
    for address, facts in workers.items():
        limit = facts["memory_limit"]
        if limit and limit < needed:
            raise ClusterError(
                f"worker {address} may take {limit} bytes of memory; these models need {needed} (three states). Give it "
                "more, or make the models with fewer targets or features."
            )


def _state_bytes(plan: Plan) -> int:
    features, targets = plan.schema.features, max(1, plan.schema.n_targets)
    specs = [*plan.specs, *(recurrence.spec for recurrence in plan.recurrences)]
    return sum(make(spec.estimator, spec.params).state_bytes(features, targets) for spec in specs)


class _Run:
    """One run of a plan."""

    def __init__(self, client: "Client", plan: Plan, told: Callable[[Reference], None]) -> None:
        self._client, self._plan, self._told = client, plan, told
        self._topic = f"{TOPIC}-{plan.key(plan.root)}"
        self._begun: dict[str, Reference] = {}

    def result(self) -> Sequence[Part]:
        """The parts of the root and of the recurrences."""
        self._client.subscribe_topic(self._topic, self._hear)
        try:
            return self._gathered()
        finally:
            self._client.unsubscribe_topic(self._topic)

    def _gathered(self) -> Sequence[Part]:
        from distributed import KilledWorker

        tries: dict[str, int] = {}
        done: dict[str, Future] = {}
        while True:
            futures = self._submitted(done)
            try:
                return [future.result() for future in futures]
            except KilledWorker as e:
                for future in futures:
                    future.cancel()
                key = str(e.task)
                done[key] = self._alone(key, tries)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _submitted(self, done: "dict[str, Future]") -> "list[Future]":
        plan, client, nodes = self._plan, self._client, dict[Node, Any]()
        futures = []
        for node in plan.nodes() if plan.specs else ():
            level, number = node
            key = f"{TOPIC}-{plan.key(node)}"
            if level == 0:
                nodes[node] = done.get(key) or self._submit(plan.tasks[number], plan.specs, [], self._topic, key)
            else:
                older, newer = nodes.pop((level - 1, 2 * number)), nodes.pop((level - 1, 2 * number + 1), None)
                nodes[node] = older if newer is None else client.submit(_merge, older, newer, key=key)
        futures += [nodes[plan.root]] if nodes else []
        for number, recurrence in enumerate(plan.recurrences):
            key = f"{TOPIC}-{plan.key(plan.root)}-{number}"
            state = client.scatter(recurrence.state) if recurrence.state is not None else None
            topic = None if plan.specs or number else self._topic
            futures.append(self._submit(plan.whole, (recurrence.spec,), [state], topic, key))
        return futures

    def _submit(
        self, task: Task, specs: Sequence[Spec], states: Sequence[Any], topic: str | None, key: str, times: int = 0
    ) -> "Future":
        plan, name = self._plan, f"{key}-{times}" if times else key
        given = (task, specs, plan.schema, plan.limits, states, topic, key)
        return self._client.submit(_learn, *given, key=name, pure=False)

    def _alone(self, key: str, tries: dict[str, int]) -> "Future":
        """The future of a task that took workers with it, done while nothing else ran. Raises ClusterError."""
        from distributed import KilledWorker

        begun = self._begun.get(key)
        where = f"{begun.uri}, batch {begun.batch}" if begun is not None else "a merge"
        while tries.setdefault(key, 0) < ALONE:
            tries[key] += 1
            future = self._again(key, tries[key])
            if future is None:
                break
            if not isinstance(future.exception(), KilledWorker):  # waits for it
                return future
        raise ClusterError(
            f"workers are lost whenever they learn {where}, {tries[key]} times while nothing else ran. Look at their logs: "
            "is there memory for three states, and is the shard whole?"
        )

    def _again(self, key: str, times: int) -> "Future | None":
        plan = self._plan
        for number, task in enumerate(plan.tasks):
            if key == f"{TOPIC}-{plan.key((0, number))}":
                return self._client.submit(
                    _learn,
                    task,
                    plan.specs,
                    plan.schema,
                    plan.limits,
                    [],
                    self._topic,
                    key,
                    key=f"{key}-{times}",
                    pure=False,
                )
        return None

    def _hear(self, event: tuple[float, tuple[str, Reference]]) -> None:
        key, reference = event[1]
        reference = Reference(*reference)
        self._begun[key] = reference
        self._told(reference)


def _learn(
    task: Task,
    specs: Sequence[Spec],
    schema: Schema,
    limits: Limits,
    states: Sequence[Any],
    topic: str | None,
    key: str,
) -> Part:
    """A task, on a worker."""
    from distributed import get_worker

    worker = get_worker()
    threadpool_limits(1)  # for good: more threads of BLAS sum in another order

    def told(reference: Reference) -> None:
        if topic is not None:
            worker.log_event(topic, (key, tuple(reference)))

    try:
        return learn(task, specs, schema, limits, states, told)
    except SourceMissing as e:
        raise SourceMissing(f"worker {worker.address}: {e} Every worker must see it under that path.") from e


def _merge(older: Part, newer: Part) -> Part:
    threadpool_limits(1)
    return merge(older, newer)
