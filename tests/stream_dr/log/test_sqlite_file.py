"""A file that is not ours, of another format, damaged or gone: four errors, each naming the file."""

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress

import pytest

from stream_dr import errors
from stream_dr.log.log import Log
from stream_dr.log.sqlite_file import open_existing_connection, translate_errors
from tests.support.logs import draft


@pytest.fixture
def filled(folder):
    with Log(folder) as log:
        log.append([draft("rows", b"x", 1, key="k")])
    return folder


@pytest.mark.parametrize("writable", [True, False])
def test_foreign_files_and_other_formats_are_told_apart(filled, writable):
    path = filled / "index.sqlite"
    good = path.read_bytes()
    for pragma, error in (("user_version=99", errors.UnknownFormat), ("application_id=7", errors.ForeignFile)):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA {pragma}")
        connection.close()
        with pytest.raises(error, match=path.name):
            Log(filled, writable)
        path.write_bytes(good)
    path.write_bytes(b"this is a letter, not a log")
    with pytest.raises(errors.ForeignFile, match=path.name):
        Log(filled, writable)


def test_a_file_that_is_gone_is_damage(tmp_path):
    with pytest.raises(errors.DamagedFile, match="missing"):
        open_existing_connection(tmp_path / "gone.sqlite", True, 0, 3)


def test_a_log_whose_index_is_gone_is_no_new_log(filled):
    (filled / "index.sqlite").unlink()
    for writable in (True, False):
        with pytest.raises(errors.DamagedFile, match="has lost its end"):
            Log(filled, writable)
    (filled / "head").unlink()
    with pytest.raises(errors.DamagedFile, match="is missing"):
        Log(filled)
    (filled / f"{0:020d}.bodies").unlink()
    with pytest.raises(errors.DirectoryMissing):
        Log(filled, writable=False)
    assert Log(filled).last == -1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (sqlite3.SQLITE_FULL, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_WRITE, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_FSYNC, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_TRUNCATE, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_SHMSIZE, errors.InsufficientStorage),
        (sqlite3.SQLITE_READONLY, errors.InsufficientStorage),
        (sqlite3.SQLITE_READONLY_DBMOVED, errors.InsufficientStorage),
        (sqlite3.SQLITE_IOERR_READ, errors.DamagedFile),
        (sqlite3.SQLITE_IOERR_SHORT_READ, errors.DamagedFile),
        (sqlite3.SQLITE_IOERR_CORRUPTFS, errors.DamagedFile),
        (sqlite3.SQLITE_CORRUPT, errors.DamagedFile),
        (sqlite3.SQLITE_NOTADB, errors.DamagedFile),
        (sqlite3.SQLITE_IOERR, errors.DamagedFile),
        (sqlite3.SQLITE_BUSY, errors.Overloaded),
        (sqlite3.SQLITE_CANTOPEN, errors.DamagedFile),
        (sqlite3.SQLITE_MISUSE, sqlite3.OperationalError),
    ],
)
def test_sqlites_errors_become_ours(tmp_path, code, error):
    raised = sqlite3.OperationalError("said by SQLite")
    raised.sqlite_errorcode = code
    with pytest.raises(error) as caught, translate_errors(tmp_path / "some.sqlite"):
        raise raised
    assert caught.value.__cause__ is not caught.value


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, errors.InsufficientStorage),
        (errno.EROFS, errors.InsufficientStorage),
        (errno.EMFILE, errors.Overloaded),
        (errno.ENFILE, errors.Overloaded),
        (errno.EPIPE, OSError),
    ],
)
def test_the_systems_errors_become_ours(tmp_path, number, error):
    with pytest.raises(error, match=os.strerror(number)), translate_errors(tmp_path / "some.sqlite"):
        raise OSError(number, os.strerror(number))


def test_too_many_open_files_are_told_as_what_will_pass(filled):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = []
    with Log(filled) as log:
        log.close()  # no connection is left
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            with suppress(OSError):
                while True:
                    opened.append(os.open(filled, os.O_RDONLY))
            with pytest.raises(errors.Overloaded, match="Too many open files"):
                log.find_key("k")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for file in opened:
                os.close(file)
        assert log.find_key("k").position == 0


def test_a_write_that_is_refused_is_told_in_sqlites_words(tmp_path):
    raised = sqlite3.OperationalError("disk I/O error")
    raised.sqlite_errorcode, raised.sqlite_errorname = sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"
    words = (
        r"some\.sqlite could not be written \(disk I/O error, SQLITE_IOERR_WRITE\): the disk is full, over its quota"
    )
    with pytest.raises(errors.InsufficientStorage, match=words), translate_errors(tmp_path / "some.sqlite"):
        raise raised


def test_who_looks_at_the_log_does_not_take_its_wal_away(tmp_path):
    with Log(tmp_path / "log") as log:
        log.append([draft("rows", b"first", 1, key="k0")])
        assert (log.find_key("k0").position, len(log.read(-1))) == (0, 1)
        look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM events'); c.close()"
        subprocess.run([sys.executable, "-c", look, str(log.path / "index.sqlite")], check=True)
        assert (log.path / "index.sqlite-wal").exists()
        log.append([draft("rows", b"second", 1, key="k1")])
        copy = shutil.copytree(tmp_path / "log", tmp_path / "as a kill leaves it")
        with Log(copy) as left:
            assert [event.body for event in left.read(-1)] == [b"first", b"second"]
