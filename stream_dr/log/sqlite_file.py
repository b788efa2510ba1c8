"""sqlite_file: opening the SQLite files that are ours, and saying what is wrong with one in our own errors.

Cost: a connection that is there is taken again, without opening the file, and keeps up to 2 MB of pages.

Why this way: SQLite tells its own files by `application_id` and leaves `user_version` to us, so a stranger's file, another
release's file and a damaged file are three things, told apart before anything is read. SQLite's error codes are turned into
ours in one place, each naming the file. No such file is opened but by SQLite: the system drops a process's locks on a file
when it closes any descriptor of it, and another process that then closes the database deletes the WAL under the writer.
"""

import errno
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from stream_dr.disk import TEMPORARY, fsync_directory, is_full, no_room
from stream_dr.errors import DamagedFile, ForeignFile, Overloaded, StreamDRError, UnknownFormat

JOURNAL_BYTES = 16 << 20
"""A WAL that a reader made grow past this is cut to it once it begins anew."""

_SETTINGS = (
    "synchronous=FULL",
    "cell_size_check=ON",
    "wal_autocheckpoint=256",
    "cache_size=-2048",
    f"journal_size_limit={JOURNAL_BYTES}",
)

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


class Database:
    """The SQLite file at `path`: of that application_id, and that user_version. Thread-safe.

    It keeps idle connections, each used by one thread at a time: threads come and go in a service, and these can be closed.
    """

    def __init__(self, path: Path, writable: bool, application: int, version: int) -> None:
        self.path, self.writable, self._owner = path, writable, (application, version)
        self._idle: list[sqlite3.Connection] = []
        self._kept = True

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own for the time of the with-block; errors about the file are ours.

        Raises ForeignFile, UnknownFormat, DamagedFile, InsufficientStorage, Overloaded.
        """
        with translated(self.path):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self.path, self.writable, *self._owner)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
        self._idle.append(connection)
        if not self._kept:
            self.close()

    def close(self) -> None:
        """Close idle connections, and from now on each one when it comes back."""
        self._kept = False
        while self._idle:
            with suppress(IndexError, sqlite3.Error):
                self._idle.pop().close()


@contextmanager
def created(path: Path, application: int, version: int, *settings: str) -> Iterator[sqlite3.Connection]:
    """A new file, filled by the with-block, durable and in its place after it; an error there leaves what was before.

    settings: pragmas that come before all others.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    for left in path.parent.glob(f"{temporary.name}*"):
        left.unlink()
    with translated(path), closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
        for setting in (*settings, "synchronous=FULL", f"application_id={application}", f"user_version={version}"):
            connection.execute(f"PRAGMA {setting}")
        yield connection
    for left in path.parent.glob(f"{path.name}-*"):  # a WAL without its file would be taken for this one's
        left.unlink()
    temporary.rename(path)
    fsync_directory(path.parent)


def connect(path: Path, writable: bool, application: int, version: int) -> sqlite3.Connection:
    """A connection to one of our SQLite files; raises ForeignFile, UnknownFormat or DamagedFile."""
    try:
        size = path.stat().st_size
    except FileNotFoundError as e:
        raise damaged_file(path, "it is missing") from e
    if size < 16:
        raise damaged_file(path, f"it ends after {size} bytes")
    uri = f"file:{quote(str(path.absolute()))}?mode={'rw' if writable else 'ro'}"
    try:
        connection = _open(uri, path, writable)
        try:
            _check_owner(connection, path, application, version)
            for setting in _SETTINGS:
                connection.execute(f"PRAGMA {setting}").fetchall()
        except BaseException:
            connection.close()
            raise
    except sqlite3.DatabaseError as e:
        if e.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            _check_header(path)
        raise
    return connection


def _check_owner(connection: sqlite3.Connection, path: Path, application: int, version: int) -> None:
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    if found != application:
        raise ForeignFile(f"{path} is a SQLite file that stream_dr did not write; move it away.", path=str(path))
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != version:
        raise unknown_format(path, found, version)


def unknown_format(path: Path, found: int, version: int) -> UnknownFormat:
    """The error that says that a file is of another format."""
    return UnknownFormat(
        f"{path} has format version {found}; this release reads {version} and upgrades no other. Use the version that wrote "
        "it, or learn the rows again in a new directory.",
        path=str(path),
    )


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
            raise damaged_file(
                path, "a write was interrupted, and is undone when it is next opened by serve or replay"
            ) from None
        connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    return connection


def _check_header(path: Path) -> None:
    """Raise ForeignFile where a file that SQLite does not take was never a database; nobody holds a lock on it."""
    with open(path, "rb") as file:
        start = file.read(16)
    if start != b"SQLite format 3\0":
        raise ForeignFile(f"{path} was not written by stream_dr (not a SQLite file); move it away.", path=str(path))


def damaged_file(path: Path, why: str) -> DamagedFile:
    """The error that says a file's content is not what was written."""
    return DamagedFile(
        f"{path} is damaged ({why}). Restore it from a copy; models keep serving from their snapshots.", path=str(path)
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors about a file into ours; one that has no name of ours stays what it is."""
    try:
        yield
    except sqlite3.DatabaseError as e:
        named = _named(e, path)
        if named is None:
            raise
        raise named from e
    except UnicodeDecodeError as e:  # of a broken schema's text, also where SQLite names it in a message
        raise damaged_file(path, str(e)) from e
    except OSError as e:
        found = _of_system(e, path)
        if found is None:
            raise
        raise found from e


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
        raise damaged_file(path, str(found[0][0]))


def _named(error: sqlite3.DatabaseError, path: Path) -> StreamDRError | None:
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        for beside in (path.with_name(f"{path.name}-{kept}") for kept in ("wal", "shm", "journal")):
            if beside.is_dir():
                return damaged_file(path, f"{beside.name} is no file")
    if code == sqlite3.SQLITE_CANTOPEN:
        return _not_opened(path)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Overloaded(
            f"{path} is locked by another program ({error}); try again when that has ended.", retry_after=5
        )
    if extended in _NOT_WRITTEN or code == sqlite3.SQLITE_READONLY:
        return no_room(path, f"{error}, {getattr(error, 'sqlite_errorname', extended)}")
    if code in _DAMAGE or any(words in str(error) for words in _BROKEN):
        return damaged_file(path, str(error))
    return None


def _not_opened(path: Path) -> StreamDRError | None:
    """Why SQLite could not open a file or the journal beside it, which it does not say."""
    if not path.is_file():
        return damaged_file(path, "it is no file" if path.exists() else "it is missing")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as e:
        return _of_system(e, path)
    return None


def _of_system(error: OSError, path: Path) -> StreamDRError | None:
    """The operating system's error about a file as ours."""
    if is_full(error):
        return no_room(path, str(error))
    if error.errno in (errno.EISDIR, errno.ENOTDIR):
        return damaged_file(path, str(error.strerror))
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Overloaded(f"{path} could not be opened: {error.strerror}. Try again shortly.", retry_after=1)
    return None
