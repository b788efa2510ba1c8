"""Backup: also of a directory that is written to, it opens, is sound, and goes on with the same bits; or it is not there."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.directory.backup import backup
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import unlearn_draft
from stream_dr.directory.inspect import inspect
from stream_dr.directory.records import RECORDS, Records
from stream_dr.directory.verify import verify
from stream_dr.disk import DirectoryLock
from stream_dr.failpoints import FailpointReached, failpoints_armed
from stream_dr.log.log import Log
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.driver import RunSettings
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.running.running import Running
from stream_dr.shards.dataset import open_dataset
from tests.support.batches import SMALL, dense, draft, opened, put, shards

MODELS = {"lda": "lda", "means": "class_means", "pca": "ccipca"}


def states(path: Path) -> dict[str, str]:
    """Every model's state, once it has learned all of the log."""
    with Directory(path, limits=SMALL) as directory:
        for model in directory.models.values():
            backfill(directory, [model], directory.position)
        return {name: state_sha256(model.accumulator.freeze()) for name, model in directory.models.items()}


def sound(path: Path) -> bool:
    return all(finding.error is None for finding in verify(path))


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A directory of rows, references to shards and an unlearning, with snapshots."""
    with opened(tmp_path / "d", **{name: (key, {}) for name, key in MODELS.items()}) as directory:
        put(directory, dense(70), dense(71))
        replay(
            directory, open_dataset(shards(tmp_path / "s", blocks=4)), ReplaySettings(run=RunSettings(snapshot_rows=50))
        )
        directory.append([unlearn_draft({0: [3]})])
    return tmp_path / "d"


def test_a_backup_is_the_same_directory(filled: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    backup(filled, tmp_path / "copies" / "one", lambda done, total: seen.append((done, total)))
    backup(tmp_path / "copies" / "one", tmp_path / "back")
    assert seen
    assert seen[-1][0] == seen[-1][1]
    assert sound(tmp_path / "back")
    assert inspect(tmp_path / "back") == inspect(filled)
    assert Records(tmp_path / "back" / RECORDS).read() == Records(filled / RECORDS).read() != []
    assert states(tmp_path / "back") == states(filled)
    with Directory(tmp_path / "back", limits=SMALL) as directory:
        assert put(directory, dense(72)) == [inspect(filled)["position"] + 1]


def test_a_backup_that_does_not_fit_is_refused_before(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(path.stat().st_size for path in filled.rglob("*") if path.is_file())
    monkeypatch.setattr("stream_dr.disk.free_bytes", lambda path: size - 1)
    with pytest.raises(errors.InsufficientStorage) as refused, failpoints_armed("backup.log=raise"):
        backup(filled, tmp_path / "copy")
    assert refused.value.details == {"free_bytes": size - 1, "needed": size}
    assert not list(tmp_path.glob("copy*"))
    monkeypatch.setattr("stream_dr.disk.free_bytes", lambda path: size)
    backup(filled, tmp_path / "copy")
    assert sound(tmp_path / "copy")


@pytest.mark.test_all
def test_backups_of_what_is_written_to(tmp_path: Path) -> None:
    sent: list[Block] = []
    enough = threading.Event()

    def write(run: Running) -> None:
        while not enough.is_set():
            sent.append(dense(len(sent), 8))
            run.submit(draft(sent[-1], f"key-{len(sent)}")).result(20)

    with Directory(tmp_path / "d", limits=SMALL) as directory:
        run = Running(directory, RunSettings(snapshot_rows=100, retain_rows=200))
        run.start()
        for name, key in MODELS.items():
            run.add_model(name, key, {})
        writer = threading.Thread(target=write, args=(run,))
        writer.start()
        acknowledged = []
        try:
            # On a slow machine five backups end before the log has dropped its first file.
            while len(acknowledged) < 5 or not directory.log.first:
                assert len(acknowledged) < 1_000, "the log dropped none of its files"
                acknowledged.append(directory.position)
                backup(tmp_path / "d", tmp_path / f"copy{len(acknowledged) - 1}")
        finally:
            enough.set()
            writer.join()
            run.stop()
    for number, position in list(enumerate(acknowledged))[-5:]:
        copy = tmp_path / f"copy{number}"
        assert sound(copy)
        found = states(copy)
        with opened(tmp_path / f"again{number}", **{name: (key, {}) for name, key in MODELS.items()}) as again:
            put(again, *sent[: inspect(copy)["position"] + 1])
        assert found == states(again.path)
        assert inspect(copy)["position"] >= position


def test_what_was_unlearned_is_not_in_a_backup(tmp_path: Path) -> None:
    with opened(tmp_path / "d", m=("class_means", {})) as directory:
        put(directory, dense(0, ids=[f"person-{i:02d}" for i in range(20)]), dense(1))
        directory.append([unlearn_draft({0: [5]})])
        for seed in (2, 3):
            put(directory, dense(seed))
            backfill(directory, [directory.model("m")], directory.position)
            write_snapshot_if_needed(directory.model("m"), directory.model("m").freeze(), directory.path)
        with failpoints_armed("log.erased=raise"), pytest.raises(FailpointReached):
            directory.retention.erase_unlearned_rows()  # it is noted, still, that it is to be overwritten
        backup(tmp_path / "d", tmp_path / "copy")
    left = b"".join(file.read_bytes() for file in (tmp_path / "copy" / "log").iterdir())
    assert b"person-04" in left
    assert b"person-05" not in left


def test_a_backup_that_an_erasure_overtakes_is_taken_again(tmp_path: Path) -> None:
    wide = dense(0, rows=200, features=1000)  # more bytes than are copied at a time
    with opened(tmp_path / "d", m=("class_means", {})) as directory:
        put(directory, wide)
        calls = []

        def progress(done: int, total: int) -> None:
            calls.append(done)
            if done == total and directory.position == 0:
                put(directory, wide, wide)
            elif directory.position == 2 and directory.log.read(1)[0].body:
                directory.log.rewrite(2, b"", 0)

        backup(tmp_path / "d", tmp_path / "copy", progress)
        assert len(calls) > 3
    assert sound(tmp_path / "copy")
    with Log(tmp_path / "copy" / "log", writable=False) as log:
        assert [len(event.body) > 0 for event in log.read(-1)] == [True, True, False]


def test_a_backup_is_whole_or_not_there(filled: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(errors.OutputExists):
        backup(filled, there)
    with pytest.raises(errors.DirectoryMissing):
        backup(there, tmp_path / "copy")
    (tmp_path / "copy.tmp" / "log").mkdir(parents=True)  # what an ended process has left
    with DirectoryLock(tmp_path / "copy.tmp"), pytest.raises(errors.DirectoryInUse):
        backup(filled, tmp_path / "copy")
    backup(filled, tmp_path / "copy")
    damaged = tmp_path / "damaged"
    for pattern in ("log/*.bodies", "snapshots/lda.1/*", "log/index.sqlite"):
        shutil.copytree(filled, damaged)
        victim = sorted(damaged.glob(pattern))[0]
        content = bytearray(victim.read_bytes())
        content[content.index(b"class_means") if pattern == "log/index.sqlite" else len(content) // 2] ^= 1
        victim.write_bytes(content)
        with pytest.raises(errors.StreamDRError):
            backup(damaged, tmp_path / "none")
        shutil.rmtree(damaged)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "d", "s", "there"]


def test_shards_are_not_copied_and_not_asked_for(filled: Path, tmp_path: Path) -> None:
    places = {"stream_dr": "places", "format": 1, "shards": {}}
    (filled / "places.json").write_text(json.dumps(places))
    shutil.rmtree(tmp_path / "s")
    backup(filled, tmp_path / "copy")
    assert (tmp_path / "copy" / "places.json").read_text() == json.dumps(places)
    assert not sound(tmp_path / "copy")
