"""Crash: kills the serving process again and again while client processes post and retry; then looks at what is left.

`run` does it, `check` proves the exactly-once effect: positions have no gap, no key is there twice, whatever was
acknowledged is at the position it was acknowledged with, and every model's state equals, bit for bit, that of a run of the
same batches in the same order that nothing interrupted. A `Turn` says what there is beside plain batches.
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
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from stream_dr import Directory, Limits, Running, rows_draft
from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.directory.verify import verify
from stream_dr.models.snapshot import state_sha256
from tests.support.posting import batch
from tests.support.serving import ROOT, SMALL
from tests.support.waiting import wait_until

POINTS = ("log.after_commit", "log.before_commit", "snapshot.tmp", "snapshot.rename", "snapshot.dir_fsync")
DROPPING = ("log.drop",)
FORGETTING = ("log.rewrite", "log.rewritten", "log.erased")
SMALLEST = Limits(min_free_bytes=0)
Specs = dict[str, tuple[str, dict[str, Any]]]


class Turn(NamedTuple):
    """What a run has: models, failpoints, rows kept in the log (None: all), how many batches a client posts between two
    that it has taken out (0: none), bytes of a file of bodies, and whether the disk refuses to write by turns."""

    models: Specs = {"lda": ("lda", {}), "means": ("class_means", {}), "pca": ("ccipca", {}), "skm": ("iskm", {})}
    points: tuple[str, ...] = POINTS
    retain_rows: int | None = None
    every: int = 0
    file_bytes: int = 64 << 20
    full: bool = False


SUMS: Specs = {"lda": ("lda", {}), "means": ("class_means", {}), "pca": ("pca", {}), "skm": ("skm", {})}
MANY: Specs = {
    f"{key}{number}": (key, params)
    for key, params in (
        ("lda", {"gamma": 0.1}),
        ("pca", {"standardize": True}),
        ("ccipca", {"amnesic": 1.0}),
        ("mmc", {}),
    )
    for number in range(8)
}
TURNS = {
    "plain": Turn(),
    "retention and unlearning": Turn(SUMS, (*POINTS, *DROPPING, *FORGETTING), 400, 20, 1 << 14),
    "rebuilding": Turn(points=(*POINTS, *FORGETTING), every=50, file_bytes=1 << 16),
    "many models": Turn(MANY, (*POINTS, *DROPPING), 1_000, 0, 1 << 14),
    "disk full": Turn(SUMS, (*POINTS, *DROPPING, *FORGETTING), 1_000, 30, 1 << 15, True),
}


class Acknowledged(NamedTuple):
    """What a client was told: the position of a batch, or of the taking out of the batch at `gone`."""

    position: int
    gone: int | None = None


class Left(NamedTuple):
    """What a run left: its directory, what clients had acknowledged, by key, how many kills were at a failpoint, and what
    there was."""

    directory: Path
    acknowledged: dict[str, Acknowledged]
    at_failpoints: int
    turn: Turn


class Launcher:
    """forking.py as a process of its own; said: where its messages go."""

    def __init__(self, settings: dict[str, Any], turn: Turn, answer_first: bool, said: Path) -> None:
        self.pid: int | None = None
        self._told = {"settings": settings, "answer_first": answer_first, "file_bytes": turn.file_bytes}
        keys = {key for key, _ in turn.models.values()}
        command = [sys.executable, "-m", "tests.support.forking", *sorted(keys)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DR_")}
        pipe = subprocess.PIPE
        with said.open("w", encoding="utf8") as file:
            self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=file, text=True, cwd=ROOT, env=clean)
        assert self._line() == "ready"

    def launch(self, failpoints: str = "", room: int | None = None) -> int:
        """Start the service; its pid. room: bytes by which its files may grow."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(self._told | {"failpoints": failpoints, "room": room}) + "\n")
        self.popen.stdin.flush()
        self.pid = int(self._line())
        return self.pid

    def ended(self) -> int:
        """Wait for the service's end; its exit status."""
        status = int(self._line())
        self.pid = None
        return status

    def close(self) -> None:
        """End it, and a service that still runs."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.close()
        self.popen.wait(30)
        self.popen.stdout.close()

    def _line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


def run(
    folder: Path,
    kills: int,
    seed: int,
    clients: Sequence[str] = ("one",),
    answer_first: bool = False,
    turn: Turn = TURNS["plain"],
) -> Left:
    """Kill the service `kills` times at moments drawn from `seed`, every other one at a failpoint; then let it end."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    settings = SMALL | {
        "dir": str(folder / "D"),
        "port": _free_port(),
        "snapshot_rows": 100,
        "snapshot_seconds": 0.1,
        "drain_timeout": 60,
        "retain_rows": turn.retain_rows,
    }
    url = f"http://127.0.0.1:{settings['port']}"
    launcher = Launcher(settings, turn, answer_first, folder / "said")
    posters: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(kills):
            at = f"{draw.choice(turn.points)}=kill@{draw.randint(1, 12)}" if number % 2 or answer_first else ""
            room = draw.randrange(1 << 16) if turn.full and draw.random() < 0.5 else None
            pid = launcher.launch("log.before_commit=kill@5" if answer_first else at, room)
            _until_it_answers(url, pid)
            if number == 0:
                posters = _start(url, clients, folder, turn)
            patience = 30.0 if answer_first else 1.0  # the first surely comes to its failpoint, once clients are there
            _kill(pid, launcher, draw.uniform(0.02, 0.5) if not at else patience)
        pid = launcher.launch()
        _until_it_answers(url, pid)
        (folder / "enough").touch()
        statuses = [poster.wait(90) for poster in posters]
        if not answer_first:  # what it answered for is not there to be learned
            _until_learned(url)
        os.kill(pid, signal.SIGTERM)
        assert (launcher.ended(), statuses) == (0, [0] * len(clients))
    finally:
        for poster in posters:
            poster.kill()
            poster.wait()
        launcher.close()
    told = [json.loads((folder / f"{name}.json").read_text()) for name in clients]
    return Left(folder / "D", {key: Acknowledged(*rest) for part in told for key, *rest in part}, kills // 2, turn)


def check(left: Left, reference: Path) -> int:
    """Raise AssertionError unless every batch acknowledged had its effect exactly once; the number of batches."""
    with Directory(left.directory, writable=False) as directory:
        events, last = _events(directory), directory.position
        first, known = directory.log.first, {key: directory.log.find_key(key) for key in left.acknowledged}
        states = {name: state_sha256(m.accumulator.freeze()) for name, m in directory.models.items()}
        reached = {name: (m.position, m.failure) for name, m in directory.models.items()}
    at = {event.key: event.position for event in events}
    assert [event.position for event in events] == list(range(first, last + 1)), "positions have a gap"
    assert len(at) == len(events), "a key is there twice"
    lost = [key for key, told in left.acknowledged.items() if getattr(known[key], "position", -1) != told.position]
    assert not lost, f"{len(lost)} acknowledged batches are not where they were acknowledged: {lost[:3]}"
    by_position = {told.position: key for key, told in left.acknowledged.items()}
    assert sorted(by_position) == list(range(last + 1)), "the log holds what nobody was acknowledged"
    assert all(by_position[position] == key for key, position in at.items())
    assert set(reached.values()) == {(last, None)}, "a model has not applied the whole log"
    damage = [finding for finding in verify(left.directory) if finding.error]
    assert not damage, damage
    expected = uninterrupted(
        [(key, left.acknowledged[key].gone) for _, key in sorted(by_position.items())], left, reference
    )
    differing = [name for name in left.turn.models if states[name] != expected[name]]
    assert not differing, f"the states of {differing} differ from an uninterrupted run's"
    return last + 1


def uninterrupted(sent: Sequence[tuple[str, int | None]], left: Left, path: Path) -> dict[str, str]:
    """The states of the models after the same in the same order, with nothing in between: (key, position taken out)."""
    with Directory(path, limits=SMALLEST) as directory:
        running = Running(directory)
        running.start()
        for name, (key, params) in left.turn.models.items():
            running.add_model(name, key, params)
        for key, gone in sent:
            if gone is None:
                running.submit(_draft(key)).result(30)
            else:
                running.unlearn([gone], key=key).result(30)
        wait_until(lambda: not any(model.position < directory.position for model in directory.models.values()))
        running.stop()
        return {name: state_sha256(m.accumulator.freeze()) for name, m in directory.models.items()}


def _draft(key: str) -> Any:
    """A client's batch by its key."""
    name, _, number = key.rpartition("-")
    X, y = batch(name, int(number))
    return rows_draft(bytes(write_arrow([arrow_from_block(Block(X, class_targets(y)))])), "arrow", key)


def _events(directory: Directory) -> list[Any]:
    events: list[Any] = []
    after = directory.log.first - 1
    while found := directory.log.read(after):
        events += found
        after = found[-1].position
    return events


def _free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return int(some.getsockname()[1])


def _until_it_answers(url: str, pid: int) -> None:
    """Return once it answers, or has been killed before it could."""

    def answers_or_gone() -> bool:
        with suppress(httpx.TransportError):
            httpx.get(f"{url}/readyz", timeout=5)
            return True
        return _gone(pid)

    wait_until(answers_or_gone, 60)


def _models(url: str) -> list[dict[str, Any]]:
    return list(httpx.get(f"{url}/models", timeout=30).json()["models"].values())


def _until_learned(url: str) -> None:
    """Return once every model has come to the end of the log: one may be rebuilding when the last batch is there."""
    wait_until(lambda: not any(model["lag"] for model in _models(url)), 240)


def _start(url: str, clients: Sequence[str], folder: Path, turn: Turn) -> "list[subprocess.Popen[bytes]]":
    for name, (key, params) in turn.models.items():
        httpx.put(f"{url}/models/{name}", json={"estimator": key, "params": params}).raise_for_status()
    command = [sys.executable, "-m", "tests.support.posting", url]
    return [subprocess.Popen([*command, name, str(folder), str(turn.every)], cwd=ROOT) for name in clients]


def _kill(pid: int, launcher: Launcher, seconds: float) -> None:
    """kill -9 after so long, unless a failpoint has done it by then."""
    deadline = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= deadline or not os.path.exists(f"/proc/{pid}") or _gone(pid), seconds + 10)
    if not _gone(pid):
        os.kill(pid, signal.SIGKILL)
    assert launcher.ended() == -signal.SIGKILL


def _gone(pid: int) -> bool:
    """Return True if the child has ended (a zombie, or waited for)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second if it ends between open and read
        return True
