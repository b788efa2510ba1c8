"""Clusters of separate processes, a data set of eight tasks, and runs in which workers are killed."""

import json
import os
import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from stream_dr.directory.directory import Directory
from stream_dr.distributed.cluster import dask_plan_runner
from stream_dr.distributed.parts import replay_in_parallel_tasks
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.replay import ReplaySettings
from stream_dr.shards.dataset import ShardWriter, open_dataset
from tests.support.batches import SMALL, dense
from tests.support.waiting import wait_until

MODELS: dict[str, tuple[str, dict[str, Any]]] = {"lda": ("lda", {}), "pca": ("pca", {}), "walk": ("ccipca", {})}


class Cluster:
    """A scheduler and its workers, processes of their own. port: the scheduler's; 0: any that is free."""

    def __init__(self, scratch: Path, port: int = 0) -> None:
        self.scratch, self.workers = scratch, list[subprocess.Popen[bytes]]()
        file = scratch / "scheduler.json"
        file.unlink(missing_ok=True)
        options = ["--port", f"{port}", "--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", str(file)]
        self.scheduler = self.start_process("scheduler", *options)

        def address() -> str | None:
            # The scheduler may not have written the whole file yet.
            with suppress(FileNotFoundError, json.JSONDecodeError):
                return str(json.loads(file.read_text())["address"])
            return None

        self.address = wait_until(address) or ""

    def start(self, count: int = 1, *options: str) -> None:
        """So many workers more, once they are known to the scheduler."""
        given = ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--local-directory", str(self.scratch), *options]
        self.workers += [self.start_process("worker", self.address, *given) for _ in range(count)]
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=60)

    def kill(self, number: int) -> None:
        """End a worker on the spot."""
        worker = self.workers.pop(number)
        worker.kill()
        worker.wait()

    def end(self) -> None:
        """End all that was started."""
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()
        self.workers = []

    def start_process(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def eight_tasks(folder: Path) -> Path:
    """Shards of eight tasks of 50,000 rows."""
    with ShardWriter(folder, rows_per_shard=100_000, rows_per_batch=2_000) as writer:
        for seed in range(200):
            writer.write(dense(seed, rows=2_000, features=20))
    return folder


def run(path: Path, folder: Path, runner: Any) -> dict[str, tuple[int, int, str]]:
    """The position, rows and digest of each model after a replay."""
    with Directory(path, limits=SMALL) as directory:
        for name, (key, params) in MODELS.items():
            directory.add_model(name, key, params)
        report = replay_in_parallel_tasks(runner, directory, open_dataset(folder), ReplaySettings())
        assert report.rows == 400_000
        return {n: (m.position, m.rows, state_sha256(m.accumulator.freeze())) for n, m in directory.models.items()}


def kills(
    cluster: Cluster, folder: Path, scratch: Path, runs: int, seed: int = 17
) -> list[dict[str, tuple[int, int, str]]]:
    """What runs give in which a worker is killed once, each at a random moment and replaced."""
    rng, found = random.Random(seed), []
    for number in range(runs):
        killer = threading.Timer(rng.uniform(0.1, 2.0), cluster.kill, (rng.randrange(2),))
        killer.start()
        found.append(run(scratch / f"{number}", folder, dask_plan_runner(cluster.address)))
        killer.join()
        cluster.start()
    return found
