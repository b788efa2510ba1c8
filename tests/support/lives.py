"""What a directory goes through, step by step, in a process that may be killed at any of them; and what must hold then."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stream_dr import LDA
from stream_dr.directory.backup import backup
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import unlearn_draft
from stream_dr.directory.verify import verify
from stream_dr.models.release import Release
from stream_dr.models.snapshot import write_snapshot_if_needed
from stream_dr.models.snapshot_file import read_file
from stream_dr.running.advance import backfill
from tests.support.batches import SMALL, dense, opened, put
from tests.support.forked import run_forked

X = np.random.default_rng(0).normal(size=(40, 4))
Y = ["abc"[i % 3] for i in range(40)]

STEPS = ("put", "snapshot", "put", "snapshot", "unlearn", "snapshot", "put", "snapshot", "forget", "drop")
STEPS = (*STEPS, "saved", "snapshot", "backup", "delete", "put")
STEPS = (*STEPS, "release", "release", "go back", "backup", "put", "remove release", "release", "erase releases", "put")
"""Each kind of step, in an order in which each has something to do."""

POINTS = {
    "put": ("log.bodies_write", "log.bodies_sync", "log.before_commit", "log.after_commit"),
    "snapshot": ("snapshot.tmp", "snapshot.rename", "snapshot.dir_fsync", "snapshot.noted"),
    "retention": ("log.rewrite", "log.rewritten", "log.erased", "log.drop", "log.dropped"),
    "saved": ("models.reserved", "models.begun", "models.before_commit", "models.after_commit"),
    "release": ("releases.written", "releases.added", "releases.removed", "releases.erasing"),
    "delete": ("models.removing", "models.removed"),
    "backup": ("backup.log", "backup.copied", "backup.rename", "backup.dir_fsync"),
}
"""Failpoints by what comes to them."""


def step(directory: Directory, what: str, seed: int) -> None:
    """One step; with nothing to do, none."""
    if what == "put":
        put(directory, dense(seed))
    elif what == "snapshot":
        snapshot(directory)
    elif what == "unlearn":
        for event in directory.log.read(directory.log.first - 1, limit=1):
            if event.kind == "rows" and event.rows > 2:
                directory.append([unlearn_draft({event.position: [seed % 20]})])
    elif what == "forget":
        directory.retention.erase_unlearned_rows()
    elif what == "drop":
        directory.retention.drop_unneeded_events(20)
    elif what == "saved":
        directory.add_saved("saved", LDA().fit(X, Y))
    elif what == "delete" and "saved" in directory.models:
        directory.remove_model("saved")
    elif what == "release":
        released(directory)
    elif what == "go back":
        name = released(directory).published.release
        model = directory.models["m"]
        model.publish_release(directory.releases.read(model, name).published, directory.releases.hold(model, name))
        snapshot(directory)
    elif what == "remove release":
        model = directory.models["m"]
        for entry in directory.releases.entries(model):
            if entry.name != model.served_release:
                directory.releases.delete(model, entry.name)
    elif what == "erase releases":
        newest = [e for e in directory.log.read(directory.log.first - 1) if e.kind == "rows" and e.rows > 2][-1:]
        for event in newest:
            directory.append([unlearn_draft({event.position: [seed % 4]}, drop_releases=True)])
            directory.erase_dropped_releases()
    elif what == "backup":
        target = directory.path.with_name("copy")
        shutil.rmtree(target, ignore_errors=True)
        backup(directory.path, target)


def snapshot(directory: Directory) -> None:
    """Let all models learn the log, and snapshot them."""
    models = list(directory.models.values())
    backfill(directory, models, directory.position)
    for model in models:
        write_snapshot_if_needed(model, model.freeze(), directory.path)


def released(directory: Directory) -> Release:
    """A release of what the model publishes, or of its present state."""
    snapshot(directory)
    model = directory.models["m"]
    if model.served_release is None:
        model.publish(model.freeze())
    entry, _ = directory.releases.create(model, f"r{model.published_version}")
    return directory.releases.read(model, entry.name)


def live(path: Path, steps: Sequence[str], seed: int, log: Path) -> None:
    """Go through steps, and append each to the file `log` once it is done."""
    with opened(path, m=("class_means", {})) as directory, log.open("a") as lines:
        for number, what in enumerate(steps):
            step(directory, what, seed + number)
            print(number, directory.position, directory.rows, file=lines, flush=True)


def killed(path: Path, failpoints: str, steps: Sequence[str] = STEPS, seed: int = 0) -> tuple[int, str]:
    """Return the exit status of a process that goes through steps, and the lines it wrote."""
    log = path.with_name("steps.txt")
    log.write_text("")
    status = run_forked(failpoints, live, path, steps, seed, log)
    return status, log.read_text()


def some_steps(seed: int, count: int = 40) -> list[str]:
    """Steps drawn at random."""
    return random.Random(seed).choices(STEPS, k=count)


def check(path: Path, told: str) -> None:
    """Raise AssertionError unless the directory starts, lost nothing that was told, has nothing left over, and goes on."""
    with Directory(path, limits=SMALL) as directory:
        left = sorted(str(file.relative_to(path)) for file in path.rglob("*.tmp*"))
        assert not left, left
        assert {p.name for p in (path / "snapshots").glob("*")} <= {
            f"{m.name}.{m.id}" for m in directory.models.values()
        }
        if told:
            _, position, rows = map(int, told.splitlines()[-1].split())
            assert (directory.position, directory.rows) >= (position, rows)
        check_releases(directory)
        assert directory.retention.erase_unlearned_rows() >= 0
        backfill(directory, list(directory.models.values()), directory.position)
        assert all(model.failure is None for model in directory.models.values())
        put(directory, dense(1))
    assert [finding for finding in verify(path) if finding.error is not None] == []

    copy = path.with_name("copy")
    if copy.exists():
        assert [finding for finding in verify(copy) if finding.error is not None] == []
        shutil.rmtree(copy)
    backup(path, copy)
    assert not copy.with_name("copy.tmp").exists()


def check_releases(directory: Directory) -> None:
    """Raise AssertionError unless all of each release is there, or none."""
    assert directory.releases.files_without_entry() == []
    for model in directory.models.values():
        names = directory.releases.names(model)
        for entry in directory.releases.entries(model):
            assert directory.releases.read(model, entry.name).published.version == entry.version
        assert model.served_release is None or model.served_release in names
        for path in (directory.path / "snapshots").glob(f"{model.name}.{model.id}/*.safetensors"):
            _, metadata = read_file(path)
            release = metadata.get("published", {}).get("release")
            assert release is None or release in names, (path, release)
