"""A replay in parts on 1 and 2 threads and on 1 and 2 warm Dask workers: what `benchmarks/scale.py --distributed` prints.

    python -m benchmarks.scale --distributed [--rows 804414]

One model (OPLS, γ = 1) learns rows shaped like RCV1 with 103 topics. A line a way of running it:

- rows/s of wall time and of processor time (this process's and the workers'), from the first task to the model's state;
- bytes that workers fetched from each other, and the root's state, which the client does;
- merging: its share of the processor time. zeroing: the share of writing zeros over a state once a task, measured apart.

`bound` is what the one thread's own times allow two of them: the slower of reading and learning halved, or all processor
time halved, whichever is longer. Asked for: two threads within 0.9 of the bound, two workers at 0.7 or more of two threads,
and the same bits everywhere. On a machine whose cores others use too, wall times say little.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stream_dr.datasets.generate import write_rcv1_like_shards
from stream_dr.directory.directory import Directory
from stream_dr.distributed import cluster as on_cluster
from stream_dr.distributed import parts
from stream_dr.distributed.cluster import dask_plan_runner
from stream_dr.distributed.parts import (
    BatchCallback,
    PartialResult,
    PlanRunner,
    TaskPlan,
    replay_in_parallel_tasks,
    thread_plan_runner,
)
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.replay import ReplaySettings
from stream_dr.shards.dataset import Shard, open_dataset
from stream_dr.statistics.protocol import pack

SPENT: dict[str, float] = {"merging": 0.0, "reading": 0.0}
"""Processor seconds of this process, by what they went to."""


class Line(NamedTuple):
    """One way of running the plan. wall, cpu, merging, reading: seconds. moved: bytes. tasks, state: of the plan, bytes."""

    name: str
    rows: int
    wall: float
    cpu: float
    merging: float
    reading: float
    moved: int
    tasks: int
    state: int
    digest: str


def timed(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its processor time added to SPENT."""

    def run(*given: Any, **more: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*given, **more)
        finally:
            SPENT[kind] += time.thread_time() - began

    return run


def watch_this_process() -> None:
    """Time merges and reads here; on a worker it is sent there."""
    if getattr(Shard.read, "__name__", "") != "run":
        merge = timed("merging", parts.merge)
        parts.merge = on_cluster.merge = merge  # type: ignore[assignment]
        Shard.read = timed("reading", Shard.read)  # type: ignore[method-assign]


def spent() -> dict[str, float]:
    """All processor seconds of this process so far, and what of it went where."""
    return {**SPENT, "cpu": time.process_time()}


def measured(name: str, folder: Path, scratch: Path, run: PlanRunner, counters: Callable[[], dict[str, float]]) -> Line:
    """One replay into a new directory. counters: `spent` and `moved` of all processes, summed."""
    seen: dict[str, Any] = {}

    def timed_run(plan: TaskPlan, told: BatchCallback) -> Any:
        before, began = counters(), time.perf_counter()
        found: PartialResult = run(plan, told)[0]
        seen["wall"] = time.perf_counter() - began
        seen.update({kind: value - before[kind] for kind, value in counters().items()})
        seen["state"] = sum(array.nbytes for array in pack(found.states[0])[0].values())
        seen["digest"], seen["tasks"] = state_sha256(found.states[0]), len(plan.tasks)
        return [found]

    dataset = open_dataset(folder)
    with Directory(scratch / name.replace(" ", "-"), n_features=dataset.n_features) as directory:
        directory.add_model("opls", "opls", {"gamma": 1.0})
        rows = replay_in_parallel_tasks(timed_run, directory, dataset, ReplaySettings()).rows
    moved = int(seen.pop("moved") + seen["state"]) if "moved" in seen else 0
    return Line(name, rows, moved=moved, **seen)


@contextmanager
def cluster(scratch: Path, workers: int) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Start workers, processes of their own, and yield the cluster's address and its counters.

    The scheduler runs in this process.
    """
    from distributed import Client, LocalCluster

    options = {
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "local_directory": str(scratch),
    }
    with LocalCluster(workers, **options) as started, Client(started, set_as_default=False) as client:
        client.run(_watch_and_moved)
        yield started.scheduler_address, lambda: _added([spent(), *client.run(_watch_and_moved).values()])


def _watch_and_moved(dask_worker: Any) -> dict[str, float]:
    from benchmarks.scale_distributed import spent, watch_this_process

    watch_this_process()
    return {**spent(), "moved": sum(fetched["total"] for fetched in dask_worker.transfer_incoming_log)}


def _added(counted: list[dict[str, float]]) -> dict[str, float]:
    return {kind: sum(one.get(kind, 0.0) for one in counted) for kind in (*SPENT, "cpu", "moved")}


def table(rows: int, scratch: Path, say: Callable[[str], object] = print) -> list[str]:
    """Measure, say a line a way, and give what was asked for and missed."""
    watch_this_process()
    write_rcv1_like_shards(scratch / "shards", rows, "topics")
    write_rcv1_like_shards(scratch / "few", 2_000, "topics")
    lines = []
    for count in (1, 2):
        measured(f"warm {count}", scratch / "few", scratch, thread_plan_runner(count), spent)
        lines.append(measured(f"{count} threads", scratch / "shards", scratch, thread_plan_runner(count), spent))
    for count in (1, 2):
        (scratch / f"cluster{count}").mkdir()
        with cluster(scratch / f"cluster{count}", count) as (address, counters):
            for turn in range(2 * count):  # a small plan is one task: both workers get some
                measured(
                    f"warm {count} {turn}",
                    scratch / "few",
                    scratch / f"cluster{count}",
                    dask_plan_runner(address),
                    counters,
                )
            lines.append(measured(f"{count} workers", scratch / "shards", scratch, dask_plan_runner(address), counters))
    zeroing = _zeroing(lines[0].state)
    for line in lines:
        merging, zeros = (100 * seconds / line.cpu for seconds in (line.merging, line.tasks * zeroing))
        say(
            f"{line.name:<10} {line.rows:>9} rows {line.wall:7.2f} s {line.rows / line.wall:>9,.0f} rows/s, of processor "
            f"time {line.rows / line.cpu:>9,.0f}; {line.moved / 1e6:8.1f} MB moved; merging {merging:4.1f} %, zeroing "
            f"{zeros:4.1f} % ({line.tasks} tasks, state {line.state / 1e6:.1f} MB)"
        )
    return _missed(lines, say)


def _zeroing(size: int) -> float:
    """Processor seconds of writing zeros over so many bytes that were just allocated."""
    began = time.process_time()
    np.empty(size // 8).fill(0.0)
    return time.process_time() - began


def _missed(lines: list[Line], say: Callable[[str], object]) -> list[str]:
    one, two, _, workers = lines
    bound = max(max(one.reading, one.cpu - one.reading) / 2, one.cpu / 2)
    threads_reach, workers_reach = bound / two.wall, two.wall / workers.wall
    say(f"bound {bound:.2f} s; two threads {threads_reach:.2f} of it; two workers {workers_reach:.2f} of two threads")
    missed = [] if threads_reach >= 0.9 else [f"two threads: {threads_reach:.2f} of the bound"]
    missed += [] if workers_reach >= 0.7 else [f"two workers: {workers_reach:.2f} of two threads"]
    return missed + ([] if len({line.digest for line in lines}) == 1 else ["the bits are not the same everywhere"])


def main(rows: int, where: str | None) -> list[str]:
    """The table, in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=where) as folder:
        return table(rows, Path(folder))
