"""On a Dask cluster of separate processes: the bits of threads, with workers killed; and what a cluster is refused for."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import unlearn_draft
from stream_dr.distributed import cluster as on_cluster
from stream_dr.distributed.cluster import dask_plan_runner, refine_on_cluster
from stream_dr.distributed.parts import replay_in_parallel_tasks, thread_plan_runner
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.refine import refine_model
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset
from tests.support.batches import SMALL, dense, put
from tests.support.processes import Cluster, eight_tasks, kills, run
from tests.support.waiting import wait_until

dask = pytest.importorskip("dask")
pytest.importorskip("distributed", reason="needs the extra [distributed]")
pytestmark = [pytest.mark.test_all, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    made.start(2)
    yield made
    made.end()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return eight_tasks(tmp_path_factory.mktemp("shards") / "s")


@pytest.fixture(scope="module")
def wanted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int, str]]:
    return run(tmp_path_factory.mktemp("threads") / "d", folder, thread_plan_runner(2))


def test_the_bits_of_threads(cluster: Cluster, folder: Path, wanted: Any, tmp_path: Path) -> None:
    assert run(tmp_path / "d", folder, dask_plan_runner(cluster.address)) == wanted


def test_the_same_bits_with_workers_killed(cluster: Cluster, folder: Path, wanted: Any, tmp_path: Path) -> None:
    assert kills(cluster, folder, tmp_path, runs=2) == [wanted] * 2


def test_a_batch_that_ends_its_workers_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "end.py").write_text(END)
    made = Cluster(tmp_path)
    made.start(2, "--preload", str(tmp_path / "end.py"))
    again = threading.Thread(target=_keep_two, args=(made,), daemon=True)
    again.start()
    try:
        with pytest.raises(errors.ClusterError, match=r"begun: .*part-00001\.arrow, batch 10\b"):
            run(tmp_path / "d", folder, dask_plan_runner(made.address))
    finally:
        made.scheduler.kill()
        again.join()
        made.end()
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        assert (directory.position, directory.model("lda").rows) == (-1, 0)


def test_a_shard_that_workers_cannot_see(cluster: Cluster, folder: Path, tmp_path: Path) -> None:
    hidden = folder.rename(folder.with_name("hidden"))
    try:
        dataset = open_dataset(hidden)
        with Directory(tmp_path / "d", limits=SMALL) as directory:
            directory.add_model("lda", "lda", {})

            def run_elsewhere(plan: Any, on_batch: Any) -> Any:
                hidden.rename(folder)
                try:
                    return dask_plan_runner(cluster.address)(plan, on_batch)
                finally:
                    folder.rename(hidden)

            with pytest.raises(errors.SourceMissing, match=r"worker tcp://.* Every worker"):
                replay_in_parallel_tasks(run_elsewhere, directory, dataset, ReplaySettings())
    finally:
        hidden.rename(folder)


def test_no_scheduler_is_told_within_ten_seconds(folder: Path, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(errors.ClusterError, match=r"127\.0\.0\.1:9"):
        run(tmp_path / "d", folder, dask_plan_runner("tcp://127.0.0.1:9"))
    assert time.monotonic() - begun < 15


def test_other_versions_are_refused(
    cluster: Cluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_cluster, "__version__", "0.0.9")
    with pytest.raises(errors.ClusterError, match=r"worker tcp://.* has stream_dr 0.*the client has stream_dr 0\.0\.9"):
        run(tmp_path / "d", folder, dask_plan_runner(cluster.address))


def test_a_worker_with_too_little_memory_is_told_before_the_first_task(folder: Path, tmp_path: Path) -> None:
    made = Cluster(tmp_path)
    made.start(1, "--memory-limit", "2000")
    try:
        with pytest.raises(errors.ClusterError, match=r"2000 bytes of memory"):
            run(tmp_path / "d", folder, dask_plan_runner(made.address))
    finally:
        made.end()


def test_the_command(cluster: Cluster, folder: Path, wanted: Any, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "stream_dr",
        "replay",
        str(folder),
        "--dir",
        str(tmp_path / "d"),
        "--model",
        "lda=lda",
    ]
    subprocess.run([*command, "--scheduler", cluster.address], check=True, timeout=120)
    with Directory(tmp_path / "d", writable=False) as directory:
        assert state_sha256(directory.model("lda").accumulator.freeze()) == wanted["lda"][2]


def test_a_refine_is_that_of_one_process(cluster: Cluster, folder: Path, tmp_path: Path) -> None:
    given = {"n_components": 3, "scatter": "diagonal"}
    shown = []
    for way in ("here", "there"):
        with Directory(tmp_path / way, limits=SMALL) as directory:
            directory.add_model("pca", "pca", given)
            directory.add_model("walk", "ccipca", {})
            directory.add_model("fading", "opls", {"decay": 0.999})
            put(directory, dense(500, features=20), dense(501, features=20))
            replay(directory, open_dataset(folder), ReplaySettings())
            directory.append([unlearn_draft({1: [0, 3], 7: [5], 8: None})])
            model = directory.model("pca")
            if way == "here":
                refine_model(directory, model, 1e-9, 20)
            else:
                told: list[dict[str, Any]] = []
                refine_on_cluster(cluster.address, directory, model, 1e-9, 20, told.append)
                assert told[0]["rows"] == model.rows == 400_040 - 2003
                with pytest.raises(errors.CannotMerge, match="PCA answers the same question"):
                    refine_on_cluster(cluster.address, directory, directory.model("walk"), 1e-9, 20)
                with pytest.raises(errors.CannotRefine, match="decay"):
                    refine_on_cluster(cluster.address, directory, directory.model("fading"), 1e-9, 20)
            assert model.published is not None
            assert model.published.projection.solution == "refined"
            shown.append(model.published.projection.apply(dense(9, features=20).X))
    np.testing.assert_allclose(shown[1], shown[0], atol=1e-7 * np.abs(shown[0]).max())


def test_the_rows_of_the_log_are_added_up_before_workers_are_waited_for(
    cluster: Cluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("_sums_of_source", "gather_results"):
        monkeypatch.setattr(on_cluster, name, _noting(steps, name, getattr(on_cluster, name)))
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        model, _ = directory.add_model("pca", "pca", {"n_components": 3, "scatter": "diagonal"})
        put(directory, dense(500, features=20))
        replay(directory, open_dataset(folder), ReplaySettings())
        refine_on_cluster(cluster.address, directory, model, 1e-9, 2)
    assert steps[:2] == ["_sums_of_source", "gather_results"]


def _noting(steps: list[str], name: str, function: Any) -> Any:
    """A function that first adds its name to `steps`."""
    return lambda *given: steps.append(name) or function(*given)


@pytest.mark.parametrize("command", ["replay", "refine"])
def test_a_command_whose_scheduler_is_killed_midway_goes_on_when_given_again(
    cluster: Cluster, folder: Path, tmp_path: Path, command: str
) -> None:
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        directory.add_model(
            "pca", "pca", {"n_components": 3, "scatter": "diagonal" if command == "refine" else "exact"}
        )
        if command != "replay":
            replay(directory, open_dataset(folder), ReplaySettings())
    shutil.copytree(tmp_path / "d", tmp_path / "wanted")
    arguments = {
        "replay": lambda d: ["replay", folder, "--dir", d],
        "refine": lambda d: ["refine", d, "--model", "pca"],
    }[command]
    assert _run(*arguments(tmp_path / "wanted"), "--scheduler", cluster.address).returncode == 0
    before = _left_by(tmp_path / "d")

    made = Cluster(tmp_path)
    watch = threading.Thread(target=_kill_once_begun, args=(made,), daemon=True)
    try:
        (tmp_path / "slow.py").write_text(SLOW.replace("BEGUN", str(tmp_path / "begun")))
        made.start(2, "--preload", str(tmp_path / "slow.py"))
        watch.start()
        again = [*arguments(tmp_path / "d"), "--scheduler", made.address]
        lost = _run(*again)
        assert (lost.returncode, "scheduler was lost" in lost.stderr) == (1, True), lost.stderr
        assert _left_by(tmp_path / "d") == before
    finally:
        watch.join()
        made.end()

    made = Cluster(tmp_path, int(made.address.rpartition(":")[2]))
    try:
        made.start(2)
        assert _run(*again).returncode == 0
        assert _left_by(tmp_path / "d") == _left_by(tmp_path / "wanted") != before
    finally:
        made.end()


def _run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """A command, whose client waits 3 seconds for a scheduler that is lost."""
    command = [sys.executable, "-m", "stream_dr", *map(str, arguments)]
    environment = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def _kill_once_begun(made: Cluster) -> None:
    wait_until(lambda: (made.scratch / "begun").exists())
    made.scheduler.kill()


def _left_by(path: Path) -> Any:
    """Return the position, state and projection of a directory's model."""
    with Directory(path, writable=False) as directory:
        model = directory.model("pca")
        columns = (
            None if model.published is None else model.published.projection.apply(dense(9, features=20).X).tobytes()
        )
        return directory.position, state_sha256(model.accumulator.freeze()), columns


def test_a_worker_of_another_version_that_joins_in_a_run_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.replace("BEGUN", str(tmp_path / "begun")))
    (tmp_path / "other.py").write_text("import stream_dr\nstream_dr.__version__ = '0.0.9'\n")
    made = Cluster(tmp_path)

    def join() -> None:
        wait_until(lambda: (tmp_path / "begun").exists())
        made.start(1, "--preload", str(tmp_path / "other.py"))

    joining = threading.Thread(target=join, daemon=True)
    joining.start()
    try:
        made.start(1, "--preload", str(tmp_path / "slow.py"))
        with pytest.raises(errors.ClusterError, match=r"worker tcp://.* has stream_dr 0\.0\.9; the client has"):
            run(tmp_path / "d", folder, dask_plan_runner(made.address))
    finally:
        joining.join()
        made.end()
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        assert (directory.position, directory.model("lda").rows) == (-1, 0)


def _keep_two(made: Cluster) -> None:
    """Start a worker for each that has ended, as long as there is a scheduler."""
    preload = str(made.scratch / "end.py")
    while made.scheduler.poll() is None:
        for worker in [w for w in made.workers if w.poll() is not None]:
            made.workers.remove(worker)
            given = ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--preload", preload]
            made.workers.append(made.start_process("worker", made.address, *given))
        with suppress(subprocess.TimeoutExpired):
            made.scheduler.wait(0.1)


END = """
import os, signal, time
from stream_dr.shards.dataset import Shard

read = getattr(Shard, "first_read", Shard.read)
Shard.first_read = read  # a preload runs more than once

def read_or_end(shard, number):
    if shard.path.name == "part-00001.arrow" and number == 10:
        time.sleep(0.3)  # that this batch was begun has been sent
        os.kill(os.getpid(), signal.SIGKILL)
    return read(shard, number)

Shard.read = read_or_end
"""

SLOW = """
import pathlib, time
from stream_dr.shards.dataset import Shard

read = getattr(Shard, "first_read", Shard.read)
Shard.first_read = read  # a preload runs more than once

def read_slowly(shard, number):
    if shard.path.name == "part-00001.arrow":
        pathlib.Path("BEGUN").touch()
    time.sleep(0.05)
    return read(shard, number)

Shard.read = read_slowly
"""
