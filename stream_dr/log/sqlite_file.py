"""sqlite_file: opening the SQLite files that are ours, and saying what is wrong with one in our own errors.

Cost: opening about 0.2 ms.

Why this way: SQLite tells its own files by `application_id` and leaves `user_version` to us, so a stranger's file, another
release's file and a damaged file are three things, told apart before anything is read. SQLite's error codes are turned into
ours in one place, each naming the file. No such file is opened but by SQLite: the system drops a process's locks on a file
when it closes any descriptor of it, and another process that then closes the database deletes the WAL under the writer.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from stream_dr.disk import is_full, no_room
from stream_dr.errors import DamagedFile, ForeignFile, HistoryGone, Overloaded, StreamDRError, UnknownFormat

FORMAT = 2
"""Format version of a directory's SQLite files (their user_version). 1 had every body in SQLite, and no digests."""

CHECKPOINT_PAGES = 256
"""Once this long the WAL begins anew, and is overwritten: syncing a file that does not grow costs less."""

CACHE_KIB = 2048
"""Pages a connection keeps in memory. 16 MiB were filled slowly, so that a service's memory crept, and appended no faster
(`python benchmarks/log_append.py`)."""

JOURNAL_BYTES = 64 << 20

_NOT_WRITTEN = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_DELETE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_BEGIN_ATOMIC,
    sqlite3.SQLITE_IOERR_COMMIT_ATOMIC,
    sqlite3.SQLITE_IOERR_ROLLBACK_ATOMIC,
)
"""What SQLite says of a write that the disk refused: what is in the file is as it was."""

_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_TOOBIG,
)
"""What SQLite says of a file that is not as it was written; too big is a length, of which we write none."""

_BROKEN = ("no such table", "no such column", "Could not decode to UTF-8", "unsupported file format")


def connect(path: Path, writable: bool, application: int) -> sqlite3.Connection:
    """A connection to one of our SQLite files; raises ForeignFile, UnknownFormat, DamagedFile or HistoryGone (no such
    file)."""
    _check_size(path)
    uri = f"file:{quote(str(path.absolute()))}?mode={'rw' if writable else 'ro'}"
    try:
        connection = _open(uri, path, writable)
        _check_owner(connection, path, application)
    except sqlite3.DatabaseError as e:
        if e.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            _check_header(path)
        raise
    return connection


def _unfinished(path: Path) -> DamagedFile:
    return DamagedFile(
        f"a write to {path} was interrupted and is undone when its directory is next opened for writing (by serve or "
        "replay); until then it cannot be read.",
        path=str(path),
    )


def _check_owner(connection: sqlite3.Connection, path: Path, application: int) -> None:
    """Raise ForeignFile or UnknownFormat, or make the connection ready."""
    try:
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != application:
            raise ForeignFile(f"{path} is a SQLite file that stream_dr did not write; move it away.", path=str(path))
        if version != FORMAT:
            raise UnknownFormat(
                f"{path} has format version {version}; this release reads {FORMAT}. Use the release that wrote it.",
                path=str(path),
            )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit={JOURNAL_BYTES}")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    except BaseException:
        connection.close()
        raise


def _open(uri: str, path: Path, writable: bool) -> sqlite3.Connection:
    """Open; a read-only file in a directory that may not be written to has no room for its WAL's index."""
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30)
    if writable:
        return connection
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        if path.with_name(path.name + "-journal").exists():
            raise _unfinished(path) from None
        connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    return connection


def _check_size(path: Path) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError as e:
        raise _gone(path) from e
    if size < 16:
        raise damaged(path, f"it ends after {size} bytes")


def _gone(path: Path) -> HistoryGone:
    return HistoryGone(f"{path.name} is not there any more: the events in it were dropped.", path=str(path))


def _check_header(path: Path) -> None:
    """Raise ForeignFile where a file that SQLite does not take was never a database; nobody holds a lock on it."""
    with open(path, "rb") as file:
        start = file.read(16)
    if start != b"SQLite format 3\0":
        raise ForeignFile(f"{path} was not written by stream_dr (not a SQLite file); move it away.", path=str(path))


def damaged(path: Path, why: str) -> DamagedFile:
    """The error that says a file's content is not what was written."""
    return DamagedFile(
        f"{path} is damaged ({why}). Restore it from a copy; models keep serving from their snapshots.", path=str(path)
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors about a file into ours."""
    try:
        yield
    except sqlite3.DatabaseError as e:
        raise _named(e, path) from e
    except UnicodeDecodeError as e:  # of a broken schema's text, also where SQLite names it in a message
        raise damaged(path, str(e)) from e
    except OSError as e:
        if is_full(e):
            raise no_room(path, str(e)) from e
        raise


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what the with-block writes, or none of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def one_view(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all reads of the with-block see the same commits; a checkpoint that would remove those waits."""
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


def check_integrity(connection: sqlite3.Connection, path: Path) -> None:
    """SQLite's own check of a whole file; raises DamagedFile. Reads all of it."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if found != [("ok",)]:
        raise damaged(path, str(found[0][0]))


def _named(error: sqlite3.DatabaseError, path: Path) -> StreamDRError | sqlite3.DatabaseError:
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN and not path.exists():
        return _gone(path)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Overloaded(
            f"{path} is locked by another program ({error}); try again when that has ended.", retry_after=5
        )
    if extended in _NOT_WRITTEN:
        return no_room(path, f"{error}, {getattr(error, 'sqlite_errorname', extended)}")
    if code in _DAMAGE or any(words in str(error) for words in _BROKEN):
        return damaged(path, str(error))
    return error
