"""Inspect tells what there is; verify finds what is damaged, and names it."""

import json
import os
import random
import shutil
import sqlite3
import weakref
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_dr import errors
from stream_dr.directory.inspect import inspect
from stream_dr.directory.model_table import ModelTable
from stream_dr.directory.verify import verify, verify_shards_of_log
from stream_dr.log.event import Event, EventDraft, EventKind, xxh64_digest
from stream_dr.log.log import Log
from stream_dr.models.entry import ModelFailure
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset
from tests.support.batches import dense, opened, put, shards


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with opened(tmp_path / "d", lda=("lda", {"n_components": 1}), cm=("class_means", {})) as directory:
        put(directory, dense(70))
        replay(directory, open_dataset(shards(tmp_path / "s", blocks=4)), ReplaySettings())
    return tmp_path


def test_inspect(filled: Path) -> None:
    found = inspect(filled / "d")
    assert json.loads(json.dumps(found)) == found
    assert (found["position"], found["rows"]) == (4, 100)
    model = found["models"]["lda"]
    assert {k: model[k] for k in ("estimator", "params", "rows", "position", "version", "solution", "state")} == {
        "estimator": "lda",
        "params": {"n_components": 1},
        "rows": 100,
        "position": 4,
        "version": 1,
        "solution": "exact",
        "state": "live",
    }
    with opened(filled / "d") as directory:  # also while it is open for writing
        assert inspect(filled / "d") == found
        assert model["state_sha256"] == state_sha256(directory.model("lda").accumulator.freeze())
    with pytest.raises(errors.DirectoryMissing):
        inspect(filled / "none")


def test_events_are_not_held_while_shards_are_read(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Events(list[Event]):
        """A list that a weak reference may name."""

    held: list[weakref.ref[Events]] = []
    read = Log.read_undamaged_events

    def read_undamaged_events(log: Log, kind: EventKind) -> Events:
        events = Events(read(log, kind))
        held.append(weakref.ref(events))
        return events

    monkeypatch.setattr(Log, "read_undamaged_events", read_undamaged_events)
    for _ in verify_shards_of_log(filled / "d"):
        assert [events() for events in held] == [None]


def test_all_is_well(filled: Path) -> None:
    found = list(verify(filled / "d"))
    assert [f.error for f in found] == [None] * len(found)
    assert len([f for f in found if f.what.startswith("shard")]) == 2
    assert len([f for f in found if f.what.startswith("snapshot")]) == 2


@pytest.mark.parametrize(
    ("pattern", "what", "error"),
    [
        ("d/snapshots/lda.1/*", "snapshot", errors.DamagedFile),
        ("s/part-00001.arrow", "shard", errors.DamagedShard),
    ],
)
def test_damage_is_found(filled: Path, pattern: str, what: str, error: type[Exception]) -> None:
    (victim,) = filled.glob(pattern)
    whole = bytearray(victim.read_bytes())
    whole[-len(whole) // 3] ^= 4
    victim.write_bytes(whole)
    bad = [f for f in verify(filled / "d") if f.error is not None]
    assert [f.what.split()[0] for f in bad] == [what]
    assert isinstance(bad[0].error, error)


def test_a_missing_shard_is_found(filled: Path) -> None:
    (filled / "s/part-00000.arrow").unlink()
    bad = [f for f in verify(filled / "d") if f.error is not None]
    assert isinstance(bad[0].error, errors.SourceMissing)


def test_a_damaged_reference_is_named_and_the_rest_still_checked(filled: Path) -> None:
    with closing(sqlite3.connect(filled / "d" / "log" / "index.sqlite")) as log, log:
        assert log.execute("UPDATE events SET body = ? WHERE position = 2", (b"z{}",)).rowcount == 1
    found = list(verify(filled / "d"))
    assert isinstance(found[0].error, errors.DamagedFile)
    assert "event 2" in str(found[0].error)
    assert len(found) > 3
    assert [f.error for f in found[1:]] == [None] * (len(found) - 1)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("rows", b'{"rows": "none"}'),
        ("rows", b"\xff\xff\xff\xff"),
        ("rows", b"x"),
        ("unlearn", b"{}"),
        ("reference", b"{}"),
    ],
)
def test_a_whole_body_that_no_model_could_learn_is_found(filled: Path, kind: EventKind, body: bytes) -> None:
    with Log(filled / "d" / "log") as log:
        log.append([EventDraft(kind, None, xxh64_digest(body), 2, body)])
    found = list(verify(filled / "d"))
    (bad,) = [f for f in found if f.error is not None]
    assert bad.what == "log of 6 events"
    assert isinstance(bad.error, errors.DamagedFile)
    assert "position 5 cannot be decoded" in str(bad.error)


@pytest.mark.every_run
def test_every_flipped_byte_of_the_model_table_is_found_or_changes_nothing(filled: Path) -> None:
    path = filled / "d" / "log" / "index.sqlite"
    table = ModelTable(filled / "d")
    table.set_failure(2, ModelFailure(3, "singular", "why"))
    table.store_unfinished_replay("data", 2)
    reading = ModelTable(filled / "d", writable=False)

    def everything() -> tuple[Any, ...]:
        return reading.entries(), reading.unfinished_target_passes("data"), reading.has_unfinished_replay()

    whole, good, chance, found = everything(), path.read_bytes(), random.Random(1), 0
    for at in chance.sample([i for i, byte in enumerate(good) if byte or i < 100], 400):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :])
        (said,) = [f for f in verify(filled / "d") if f.what == "table of models"]
        if said.error is None:
            assert everything() == whole, at
        else:
            found += 1
            assert "index.sqlite" in str(said.error)
    assert found > 150


@pytest.mark.parametrize(
    "change",
    ["id=9", "name='lad'", "spec='{}'", "start=1", "policy='{}'", "failure='{}'", "version_ceiling=0", "digest=1"],
)
def test_a_changed_field_of_a_model_is_found_and_the_rest_still_checked(filled: Path, change: str) -> None:
    with closing(sqlite3.connect(filled / "d" / "log" / "index.sqlite")) as db, db:
        db.execute(f"UPDATE models SET {change} WHERE name='lda'")
    found = list(verify(filled / "d"))
    (bad,) = [f for f in found if f.error is not None]
    assert (bad.what, type(bad.error)) == ("table of models", errors.DamagedFile)
    assert len([f for f in found if f.what.startswith("snapshot")]) == 2
    with pytest.raises(errors.DamagedFile, match=r"index\.sqlite"):
        opened(filled / "d")


def test_snapshots_of_a_model_that_was_removed_are_no_damage(filled: Path) -> None:
    kept = filled / "d" / "snapshots" / "lda.1"
    with opened(filled / "d") as directory:
        shutil.copytree(kept, filled / "left")
        directory.remove_model("lda")
        shutil.copytree(filled / "left", kept)  # one was being written meanwhile
    assert [f for f in verify(filled / "d") if f.error is not None] == []
    opened(filled / "d").close()
    assert not kept.exists()


def test_rows_without_a_schema_are_named(filled: Path) -> None:
    with closing(sqlite3.connect(filled / "d" / "log" / "index.sqlite")) as db, db:
        db.execute("DELETE FROM schemas")
    with pytest.raises(errors.DamagedFile, match="schema"):
        opened(filled / "d")
    assert [f.what.split()[0] for f in verify(filled / "d") if f.error is not None] == ["log"]


def test_a_log_that_cannot_be_opened_is_a_finding(filled: Path) -> None:
    (filled / "d" / "log" / "index.sqlite").write_bytes(b"this is a letter, not a log")
    found = list(verify(filled / "d"))
    assert (found[0].what, type(found[0].error)) == ("log", errors.ForeignFile)
    assert (found[1].what, type(found[1].error)) == ("table of models", errors.ForeignFile)
    assert [f.error for f in found[2:]] == [None] * 2
    with pytest.raises(errors.DirectoryMissing):
        list(verify(filled / "none"))


@pytest.mark.parametrize("change", ["flipped", "truncated", "missing"])
def test_damage_in_a_file_of_bodies_is_found(filled: Path, change: str) -> None:
    with opened(filled / "d") as directory:
        put(directory, dense(71, rows=5_000))
    (bodies,) = (filled / "d" / "log").glob("*.bodies")
    content = bytearray(bodies.read_bytes())
    content[-1000] ^= 1
    bodies.write_bytes(content if change == "flipped" else content[:-1])
    if change == "missing":
        bodies.unlink()
    found = list(verify(filled / "d"))
    assert isinstance(found[0].error, errors.DamagedFile)
    assert bodies.stem in str(found[0].error)
    assert [f.error for f in found[1:]] == [None] * (len(found) - 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["log/head", "log/*.bodies", "snapshots/*/*.safetensors", "../s/*.arrow"])
def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(filled: Path, place: str) -> None:
    with opened(filled / "d") as directory:
        for model in directory.models.values():
            write_snapshot_if_needed(model, model.freeze(), directory.path)
    for file in list((filled / "d").parent.glob(f"d/{place}" if ".." not in place else place[3:])):
        file.unlink()
        os.mkfifo(file)
    wrong = [finding.what for finding in verify(filled / "d") if finding.error]
    assert bool(wrong) == (place != "log/head")
