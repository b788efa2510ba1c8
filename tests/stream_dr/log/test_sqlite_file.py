"""A file that is not ours, of another format, damaged or gone: four errors, each naming the file."""

import shutil
import sqlite3
import subprocess
import sys

import pytest

from stream_dr import errors
from stream_dr.log.log import Log, draft
from stream_dr.log.sqlite_file import connect, translated


@pytest.fixture
def folder(tmp_path):
    with Log(tmp_path / "log") as log:
        log.append([draft("rows", b"x", 1, key="k")])
    return tmp_path / "log"


@pytest.mark.parametrize("name", ["segment", "index"])
def test_foreign_files_and_other_formats_are_told_apart(folder, name):
    path = folder / f"{0:020d}.sqlite" if name == "segment" else folder / "index.sqlite"
    good = path.read_bytes()
    for pragma, error in (("user_version=99", errors.UnknownFormat), ("application_id=7", errors.ForeignFile)):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA {pragma}")
        connection.close()
        with pytest.raises(error, match=path.name):
            Log(folder)
        path.write_bytes(good)
    path.write_bytes(b"this is a letter, not a log")
    with pytest.raises(errors.ForeignFile, match=path.name):
        Log(folder)


def test_a_file_that_is_gone_is_history(tmp_path):
    with pytest.raises(errors.HistoryGone, match="gone"):
        connect(tmp_path / "gone.sqlite", True, 0)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (sqlite3.SQLITE_FULL, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_WRITE, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_FSYNC, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_TRUNCATE, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_SHMSIZE, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_READ, errors.DamagedFile),
        (sqlite3.SQLITE_IOERR_SHORT_READ, errors.DamagedFile),
        (sqlite3.SQLITE_IOERR_CORRUPTFS, errors.DamagedFile),
        (sqlite3.SQLITE_CORRUPT, errors.DamagedFile),
        (sqlite3.SQLITE_NOTADB, errors.DamagedFile),
        (sqlite3.SQLITE_IOERR, errors.DamagedFile),
        (sqlite3.SQLITE_BUSY, errors.Overloaded),
        (sqlite3.SQLITE_CANTOPEN, errors.HistoryGone),
        (sqlite3.SQLITE_MISUSE, sqlite3.OperationalError),
    ],
)
def test_sqlites_errors_become_ours(tmp_path, code, error):
    raised = sqlite3.OperationalError("said by SQLite")
    raised.sqlite_errorcode = code
    with pytest.raises(error), translated(tmp_path / "some.sqlite"):
        raise raised


def test_a_write_that_is_refused_is_told_in_sqlites_words(tmp_path):
    raised = sqlite3.OperationalError("disk I/O error")
    raised.sqlite_errorcode, raised.sqlite_errorname = sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"
    words = (
        r"some\.sqlite could not be written \(disk I/O error, SQLITE_IOERR_WRITE\): the disk is full, over its quota"
    )
    with pytest.raises(errors.InsufficientStorage, match=words), translated(tmp_path / "some.sqlite"):
        raise raised


def test_who_looks_at_the_log_does_not_take_its_wal_away(tmp_path):
    with Log(tmp_path / "log") as log:
        log.append([draft("rows", b"first", 1, key="k0")])
        segment = log._segments[-1]
        with segment._pool.connection() as one, segment._pool.connection() as other:  # at least one of them is new
            assert one.execute("SELECT COUNT(*) FROM events").fetchone() == other.execute("SELECT 1").fetchone()
        look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM events'); c.close()"
        subprocess.run([sys.executable, "-c", look, str(segment.path)], check=True)
        assert segment.journal.exists()
        log.append([draft("rows", b"second", 1, key="k1")])
        copy = shutil.copytree(tmp_path / "log", tmp_path / "as a kill leaves it")
        with Log(copy) as left:
            assert [event.body for event in left.read(-1)] == [b"first", b"second"]
