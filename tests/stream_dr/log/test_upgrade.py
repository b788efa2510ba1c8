"""A directory of format 2 becomes one of format 3 with everything in it, or stays what it was, whatever happens.

format2.tar.xz was written by the last release that wrote format 2 and holds what a kill left of it: `d`, a directory of
three segments (a fourth was dropped) with rows in rows and in files, rows rewritten after an unlearning, references, a
pending unlearning and a model with two snapshots; `told.json`, what that release said of it.
"""

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_dr import errors
from stream_dr.cli import main
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Receipt
from stream_dr.disk import DirectoryLock
from stream_dr.failpoints import armed
from stream_dr.log.log import Log
from stream_dr.log.upgrade import upgrade
from stream_dr.running.advance import backfill
from tests.stream_dr.directory.batches import SMALL, dense, draft, put

FIXTURE = Path(__file__).with_name("format2.tar.xz")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of format 2."""
    with tarfile.open(FIXTURE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        archive.extractall(tmp_path)
    return tmp_path / "d"


@pytest.fixture
def told(old: Path) -> Any:
    return json.loads((old.parent / "told.json").read_text())


def check(folder: Path, told: Any) -> None:
    """Everything that was in the log is there, and goes on."""
    with Log(folder) as log:
        events = log.read(log.first - 1)
        found = [
            [
                e.position,
                e.kind,
                e.key,
                e.fingerprint,
                e.rows,
                e.schema,
                hashlib.sha256(e.body).hexdigest(),
                len(e.body),
            ]
            for e in events
        ]
        assert found == told["events"]
        assert (log.first, log.last, log.rows) == (told["first"], told["last"], told["rows"])
        assert {key: list(log.find_key(key) or ()) for key in told["keys"]} == told["keys"]
        assert log.schema_changes() == told["schemas"]
        assert log.verify().events == len(events)
    assert not [path for path in folder.glob("*.sqlite*") if path.name[0] == "0"]


def contents(folder: Path) -> dict[str, Any]:
    """What format 2 says: the rows of its tables, and its bodies up to where they end."""
    found: dict[str, Any] = {"head": (folder / "head").read_bytes()}
    for path in sorted(folder.glob("*.sqlite")):
        with closing(sqlite3.connect(path)) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            found[path.name] = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
        for start, size in [row[7:9] for row in found[path.name].get("events", []) if row[7] is not None]:
            body = path.with_suffix(".bodies").read_bytes()[start : start + size]
            found[f"{path.stem} {start}"] = hashlib.sha256(body).hexdigest()
    return found


def test_a_log_of_format_2_says_what_to_do(old: Path) -> None:
    before = {path.name: path.read_bytes() for path in (old / "log").iterdir()}
    for writable in (True, False):
        with pytest.raises(errors.UnknownFormat, match="stream-dr upgrade D"):
            Log(old / "log", writable)
        with pytest.raises(errors.UnknownFormat, match="stream-dr upgrade D"):
            Directory(old, writable)
    assert {path.name: path.read_bytes() for path in (old / "log").iterdir() if path.name in before} == before


def test_everything_comes_over(old: Path, told: Any) -> None:
    seen: list[tuple[int, int]] = []
    assert upgrade(old / "log", lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    check(old / "log", told)
    assert not upgrade(old / "log")
    check(old / "log", told)


def test_a_directory_goes_on_learning(old: Path, told: Any) -> None:
    upgrade(old / "log")
    with Directory(old, limits=SMALL) as directory:
        model = directory.model("m")
        assert model.position == 20
        backfill(directory, [model], directory.position)
        assert (model.rows, model.position, model.failure) == (told["model_rows"], told["model_position"], None)
        assert directory.append([draft(dense(0), "key-0")]) == [Receipt(0, 20, True)]
        assert isinstance(directory.append([draft(dense(1), "key-0")])[0], errors.KeyConflict)
        assert put(directory, dense(77)) == [24]


@pytest.mark.test_all
@pytest.mark.parametrize(
    "place", ["log.bodies_write=kill", "log.bodies_sync=kill@2", "log.upgrading=kill", "log.upgraded=kill"]
)
def test_killed_at_any_moment_it_is_the_old_or_the_new(old: Path, told: Any, place: str) -> None:
    before = contents(old / "log")
    run = [sys.executable, "-m", "stream_dr.cli", "upgrade", str(old)]
    assert subprocess.run(run, env={**os.environ, "STREAM_DR_FAILPOINTS": place}, check=False).returncode == -9
    if place != "log.upgraded=kill":
        with pytest.raises(errors.UnknownFormat):
            Log(old / "log")
        assert contents(old / "log") == before
        subprocess.run(run, check=True)
    check(old / "log", told)


@pytest.mark.parametrize("place", ["log.bodies_write=enospc", "log.upgrading=enospc"])
def test_a_full_disk_leaves_it_as_it_was(old: Path, told: Any, place: str) -> None:
    before = contents(old / "log")
    with armed(place), pytest.raises(errors.InsufficientStorage):
        upgrade(old / "log")
    assert contents(old / "log") == before
    assert upgrade(old / "log")
    check(old / "log", told)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("6.sqlite", "UPDATE events SET rows=rows+1 WHERE position=7"),
        ("6.sqlite", "DELETE FROM events WHERE position=11"),
        ("12.sqlite", "UPDATE about SET rows_before=0"),
        ("18.sqlite", "DELETE FROM events WHERE position=23"),
        ("index.sqlite", "UPDATE keys SET position=99 WHERE position=3"),
        ("index.sqlite", "UPDATE schemas SET schema='{}'"),
        ("12.sqlite", None),
        ("index.sqlite", None),
        ("6.bodies", None),
    ],
)
def test_what_is_damaged_is_refused_and_left_as_it_was(old: Path, file: str, change: str | None) -> None:
    name = file if file[0] == "i" else f"{int(file.split('.')[0]):020d}.{file.split('.')[1]}"
    path = old / "log" / name
    if change is None:
        path.unlink()
        path.with_name(f"{name}-wal").unlink(missing_ok=True)
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            assert connection.execute(change).rowcount > 0
    present = sorted(p.name for p in (old / "log").iterdir() if p.suffix in (".sqlite", ".bodies"))
    with pytest.raises(errors.DamagedFile):
        upgrade(old / "log")
    assert sorted(p.name for p in (old / "log").iterdir() if p.suffix in (".sqlite", ".bodies")) == present
    with pytest.raises((errors.UnknownFormat, errors.DamagedFile)):
        Log(old / "log")


def test_one_that_somebody_reads_is_refused(old: Path, told: Any) -> None:
    with closing(sqlite3.connect(old / "log" / "index.sqlite")) as reader:
        reader.execute("SELECT * FROM keys").fetchone()
        with pytest.raises(errors.Overloaded):
            upgrade(old / "log")
    assert upgrade(old / "log")
    check(old / "log", told)


def test_the_command(old: Path, told: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def status(path: Path) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["upgrade", str(path)])
        return int(str(ended.value.code)), capsys.readouterr().err

    with DirectoryLock(old):
        assert "directory_in_use" in status(old)[1]
    code, words = status(old)
    assert (code, "format 3 now" in words) == (0, True)
    check(old / "log", told)
    code, words = status(old)
    assert (code, "already" in words) == (0, True)
    code, words = status(tmp_path / "none")
    assert (code, "directory_missing" in words) == (1, True)
    with pytest.raises(SystemExit) as ended:
        main(["upgrade"])
    assert ended.value.code == 2
