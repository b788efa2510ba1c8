"""Crash: kills the serving process again and again while client processes post and retry; then looks at what is left.

`run` does it, `check` proves the exactly-once effect: positions have no gap, no key is there twice, whatever was
acknowledged is at the position it was acknowledged with, and every model's state equals, bit for bit, that of a run of the
same batches in the same order that nothing interrupted.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from stream_dr import Directory, Limits, Running, rows_draft
from stream_dr.engine.snapshot import state_sha256
from tests.service.serving import ROOT, SMALL

POINTS = ("log.after_commit", "log.before_commit", "snapshot.tmp", "snapshot.rename", "snapshot.dir_fsync")
MODELS = {"lda": "lda", "means": "class_means", "pca": "ccipca", "skm": "iskm"}
SMALLEST = Limits(min_free_bytes=0)


class Left(NamedTuple):
    """What a run left: its directory, what clients had acknowledged, and how many kills were at a failpoint."""

    directory: Path
    acknowledged: dict[str, int]
    at_failpoints: int


class Launcher:
    """forking.py as a process of its own."""

    def __init__(self, settings: dict[str, Any], answer_first: bool) -> None:
        self._told = {"settings": settings, "answer_first": answer_first}
        command = [sys.executable, "-m", "tests.service.forking", *MODELS.values()]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DR_")}
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=clean)
        assert self._line() == "ready"

    def launch(self, failpoints: str = "") -> int:
        """Start the service; its pid."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(self._told | {"failpoints": failpoints}) + "\n")
        self.popen.stdin.flush()
        return int(self._line())

    def ended(self) -> int:
        """Wait for the service's end; its exit status."""
        return int(self._line())

    def close(self) -> None:
        """End it."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.close()
        self.popen.wait(30)
        self.popen.stdout.close()

    def _line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


def run(folder: Path, kills: int, seed: int, clients: Sequence[str] = ("one",), answer_first: bool = False) -> Left:
    """Kill the service `kills` times at moments drawn from `seed`, every other one at a failpoint; then let it end."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    settings = SMALL | {
        "dir": str(folder / "D"),
        "port": _free_port(),
        "snapshot_rows": 100,
        "snapshot_seconds": 0.1,
        "drain_timeout": 60,
    }
    url = f"http://127.0.0.1:{settings['port']}"
    launcher = Launcher(settings, answer_first)
    posters: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(kills):
            at = f"{draw.choice(POINTS)}=kill@{draw.randint(1, 12)}" if number % 2 or answer_first else ""
            pid = launcher.launch("log.before_commit=kill@5" if answer_first else at)
            _until_it_answers(url, pid)
            if number == 0:
                posters = _start(url, clients, folder)
            patience = 30.0 if answer_first else 2.0  # the first surely comes to its failpoint, once clients are there
            _kill(pid, launcher, draw.uniform(0.02, 0.5) if not at else patience)
        pid = launcher.launch()
        _until_it_answers(url, pid)
        (folder / "enough").touch()
        statuses = [poster.wait(90) for poster in posters]
        os.kill(pid, signal.SIGTERM)
        assert (launcher.ended(), statuses) == (0, [0] * len(clients))
    finally:
        for poster in posters:
            poster.kill()
            poster.wait()
        launcher.close()
    told = [json.loads((folder / f"{name}.json").read_text()) for name in clients]
    return Left(folder / "D", {key: position for part in told for key, position in part}, kills // 2)


def check(left: Left, reference: Path) -> int:
    """Raise AssertionError unless every batch acknowledged had its effect exactly once; the number of batches."""
    with Directory(left.directory, writable=False) as directory:
        events = _events(directory)
        states = {name: state_sha256(m.accumulator.freeze()) for name, m in directory.models.items()}
        reached = {name: m.position for name, m in directory.models.items()}
    at = {event.key: event.position for event in events}
    assert [event.position for event in events] == list(range(len(events))), "positions have a gap"
    assert len(at) == len(events), "a key is there twice"
    lost = [key for key, position in left.acknowledged.items() if at.get(key) != position]
    assert not lost, f"{len(lost)} acknowledged batches are not where they were acknowledged: {lost[:3]}"
    assert set(at) == set(left.acknowledged)
    assert set(reached.values()) == {len(events) - 1}, "a model has not applied the whole log"
    expected = uninterrupted(events, reference)
    differing = [name for name in states if states[name] != expected[name]]
    assert not differing, f"the states of {differing} differ from an uninterrupted run's"
    return len(events)


def uninterrupted(events: Sequence[Any], path: Path) -> dict[str, str]:
    """The states of the models after the same batches in the same order, with nothing in between."""
    with Directory(path, limits=SMALLEST) as directory:
        running = Running(directory)
        running.start()
        for name, key in MODELS.items():
            running.add_model(name, key, {})
        for event in events:
            running.submit(rows_draft(event.body, "arrow", event.key)).result(30)
        running.stop()
        return {name: state_sha256(m.accumulator.freeze()) for name, m in directory.models.items()}


def _events(directory: Directory) -> list[Any]:
    events: list[Any] = []
    while found := directory.log.read(len(events) - 1):
        events += found
    return events


def _free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return int(some.getsockname()[1])


def _until_it_answers(url: str, pid: int) -> None:
    """Return once it answers, or has been killed before it could."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _gone(pid):
        try:
            httpx.get(f"{url}/readyz", timeout=5)
        except httpx.TransportError:
            time.sleep(0.01)
        else:
            return
    if not _gone(pid):
        raise TimeoutError(f"{url} does not answer")


def _start(url: str, clients: Sequence[str], folder: Path) -> "list[subprocess.Popen[bytes]]":
    for name, key in MODELS.items():
        httpx.put(f"{url}/models/{name}", json={"estimator": key}).raise_for_status()
    command = [sys.executable, "-m", "tests.service.posting", url]
    return [subprocess.Popen([*command, name, str(folder)], cwd=ROOT) for name in clients]


def _kill(pid: int, launcher: Launcher, seconds: float) -> None:
    """kill -9 after so long, unless a failpoint has done it by then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and os.path.exists(f"/proc/{pid}") and not _gone(pid):
        time.sleep(0.005)
    if not _gone(pid):
        os.kill(pid, signal.SIGKILL)
    assert launcher.ended() == -signal.SIGKILL


def _gone(pid: int) -> bool:
    """Whether the child has ended (a zombie, or waited for)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
