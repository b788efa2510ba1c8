"""kill -9 of a replay at random moments and at every failpoint: the same command goes on and ends with the same bits."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from stream_dr.directory.directory import Directory
from stream_dr.directory.inspect import inspect
from stream_dr.directory.verify import verify
from tests.support.batches import shards
from tests.support.waiting import wait_until

MODELS = [
    "--model",
    "lda=lda",
    "--model",
    "chosen=lda:gamma=cv",
    "--model",
    "pca=ccipca",
    "--model",
    "skm=iskm",
    "--model",
    "cm=class_means",
]
POINTS = ["log.before_commit", "log.after_commit", "snapshot.tmp", "snapshot.rename", "snapshot.dir_fsync"]


def command(folder: Path, directory: Path) -> list[str]:
    options = ["--dir", str(directory), *MODELS, "--snapshot-rows", "500", "--loops", "2", "--shuffle-shards", "1"]
    return [sys.executable, "-m", "stream_dr.cli", "replay", str(folder), *options]


def killed(arguments: list[str], seconds: float, failpoints: str = "") -> bool:
    """Run, killed after so many seconds or at a failpoint; whether it was."""
    environment = os.environ | {"STREAM_DR_FAILPOINTS": failpoints}
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True)
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode != 0


def states(directory: Path) -> dict[str, tuple[int, int, str]]:
    told = inspect(directory)["models"]
    return {name: (m["position"], m["rows"], m["state_sha256"]) for name, m in told.items()}


def check(directory: Path, uninterrupted: Path) -> None:
    """No event missing or doubled; states bit-equal; every byte as written."""
    assert states(directory) == states(uninterrupted)
    with Directory(directory, writable=False) as found, Directory(uninterrupted, writable=False) as wanted:
        assert [e.body for e in found.log.read(-1, limit=10_000)] == [e.body for e in wanted.log.read(-1, limit=10_000)]
    assert [f for f in verify(directory) if f.error is not None] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards(tmp_path_factory.mktemp("shards") / "s", blocks=300, rows=20)


@pytest.fixture(scope="module")
def uninterrupted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    directory = tmp_path_factory.mktemp("whole") / "d"
    assert not killed(command(folder, directory), 120)  # compiles what is not compiled yet
    begun = time.monotonic()
    assert not killed(command(folder, directory.parent / "again"), 120)
    return directory, time.monotonic() - begun


@pytest.mark.test_all
def test_kills_at_random_moments(folder: Path, uninterrupted: tuple[Path, float], tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    whole, seconds = uninterrupted
    kills = 0
    for _ in range(5):
        kills += killed(command(folder, tmp_path / "d"), rng.uniform(0.35, 1.0) * seconds)
    assert not killed(command(folder, tmp_path / "d"), 120)
    check(tmp_path / "d", whole)
    assert kills


@pytest.mark.test_all
@pytest.mark.parametrize("point", POINTS)
def test_kills_at_every_write(folder: Path, uninterrupted: tuple[Path, float], tmp_path: Path, point: str) -> None:
    assert killed(command(folder, tmp_path / "d"), 120, f"{point}=kill@2")
    assert not killed(command(folder, tmp_path / "d"), 120)
    check(tmp_path / "d", uninterrupted[0])


@pytest.mark.test_all
def test_interrupted_from_the_keyboard(folder: Path, uninterrupted: tuple[Path, float], tmp_path: Path) -> None:
    whole, seconds = uninterrupted
    process = subprocess.Popen(
        command(folder, tmp_path / "d"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: (tmp_path / "d" / "log").exists() or process.poll() is not None)
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.1 * seconds)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode and errors:  # without a word: it had finished
        assert process.returncode == 130, errors
        assert errors.startswith("error (interrupted)"), errors
    assert not killed(command(folder, tmp_path / "d"), 120)
    check(tmp_path / "d", whole)
