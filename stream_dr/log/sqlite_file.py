"""SQLite files of this library: opening them, and their errors.

A SQLite file has two numbers in its header: `application_id` identifies the program that owns the
file, and `user_version` is a version that the owner chooses. So a foreign file, a file of another
release and a damaged file can be distinguished before any table is read. SQLite's error codes are
translated to errors of this library in one place, and each error names the file.

Only SQLite may open such a file. When a process closes any descriptor of a file, the system drops
all locks of the process on this file. Another process that then closes the database deletes the
write-ahead log while the writer still uses it.

Cost: an idle connection is used again, so the file need not be opened again. An idle connection
holds up to 2 MB of pages.
"""

import errno
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from stream_dr.disk import PRIVATE_FILE, TEMPORARY, cannot_write_error, fsync_directory, is_disk_unwritable
from stream_dr.errors import DamagedFile, ForeignFile, Overloaded, StreamDRError, UnknownFormat

JOURNAL_BYTES = 16 << 20
"""Number of bytes to which SQLite cuts the file of the write-ahead log.

SQLite cuts the file when it writes from the start of the file again. The file grows larger while a
slow reader still uses old pages.
"""

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
"""SQLite's error codes of a write that the disk refused.

The file's content has not changed.
"""

_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_TOOBIG,
)
"""SQLite's error codes of a damaged file.

SQLITE_TOOBIG is included, because this library never writes a length that is too big.
"""

_BROKEN = ("no such table", "no such column", "Could not decode to UTF-8", "unsupported file format")
"""Parts of SQLite's messages about a damaged file whose error code is unspecific."""


class Database:
    """SQLite file and its idle connections. Thread-safe.

    Idle connections are stored and used again, each by one thread at a time.

    path: path of the file.
    writable: True if the connections may write.
    application_id: the file's application_id.
    user_version: the file's user_version, which is the version of the format.
    """

    def __init__(self, path: Path, writable: bool, application_id: int, user_version: int) -> None:
        self.path = path
        self.writable = writable
        self._owner = (application_id, user_version)

        # Connections are not bound to threads, because threads of a service start and end.
        self._idle: list[sqlite3.Connection] = []
        self._keeps_idle = True

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for the time of the with-block.

        After the with-block, the connection is idle. After an error in the with-block, the
        connection is closed.

        SQLite's errors about the file are replaced by ForeignFile, UnknownFormat, DamagedFile,
        InsufficientStorage or Overloaded.
        """
        with translate_errors(self.path):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = open_existing_connection(self.path, self.writable, *self._owner)

            try:
                yield connection
            except BaseException:
                connection.close()
                raise

        self._idle.append(connection)
        if not self._keeps_idle:
            self.close()

    def close(self) -> None:
        """Close the idle connections.

        Connections in use are closed when they are returned.
        """
        self._keeps_idle = False
        while self._idle:
            with suppress(IndexError, sqlite3.Error):
                self._idle.pop().close()


@contextmanager
def create_sqlite_file(
    path: Path, application_id: int, user_version: int, *first_pragmas: str
) -> Iterator[sqlite3.Connection]:
    """Create a SQLite file that the with-block fills.

    The file has a temporary name during the with-block, and is then moved to `path`. It is durable
    after the with-block. After an error in the with-block, an older file at `path` is unchanged.

    application_id: the file's application_id.
    user_version: the file's user_version.
    first_pragmas: pragmas that must come before all other pragmas.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    for leftover in path.parent.glob(f"{temporary.name}*"):
        leftover.unlink()

    owner = (f"application_id={application_id}", f"user_version={user_version}")
    settings = (*first_pragmas, "synchronous=FULL", *owner)
    with translate_errors(path):
        temporary.touch(PRIVATE_FILE)
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            for setting in settings:
                connection.execute(f"PRAGMA {setting}")
            yield connection

    # Remove the write-ahead log of an older file. SQLite would read it as the new file's log.
    for leftover in path.parent.glob(f"{path.name}-*"):
        leftover.unlink()
    temporary.rename(path)
    fsync_directory(path.parent)


def open_existing_connection(path: Path, writable: bool, application_id: int, user_version: int) -> sqlite3.Connection:
    """Return a connection to a SQLite file of this library.

    Raises ForeignFile, UnknownFormat or DamagedFile.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError as e:
        raise damaged_file_error(path, "it is missing") from e
    if size < 16:
        raise damaged_file_error(path, f"it ends after {size} bytes")

    # Check the owner and the version before anything else is read.
    uri = f"file:{quote(str(path.absolute()))}?mode={'rw' if writable else 'ro'}"
    try:
        connection = _open_maybe_immutable(uri, path, writable)
        try:
            _check_owner(connection, path, application_id, user_version)
            for setting in _SETTINGS:
                connection.execute(f"PRAGMA {setting}").fetchall()
        except BaseException:
            connection.close()
            raise
    except sqlite3.DatabaseError as e:
        if e.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            # Opening the file outside of SQLite is safe here, because nobody holds a lock on it.
            with open(path, "rb") as file:
                start = file.read(16)
            if start != b"SQLite format 3\0":
                raise ForeignFile(
                    f"{path} was not written by stream_dr (not a SQLite file); move it away.", path=str(path)
                ) from e
        raise
    return connection


def _check_owner(connection: sqlite3.Connection, path: Path, application_id: int, user_version: int) -> None:
    """Check the owner and version of a SQLite file.

    Raises ForeignFile or UnknownFormat.
    """
    file_application = connection.execute("PRAGMA application_id").fetchone()[0]
    if file_application != application_id:
        raise ForeignFile(f"{path} is a SQLite file that stream_dr did not write; move it away.", path=str(path))
    file_version = connection.execute("PRAGMA user_version").fetchone()[0]
    if file_version != user_version:
        raise UnknownFormat(
            f"{path} has format version {file_version}; this release reads {user_version} and upgrades no other. Use the "
            "version that wrote it, or learn the rows again in a new directory.",
            path=str(path),
        )


def _open_maybe_immutable(uri_with_mode: str, path: Path, uri_is_writable: bool) -> sqlite3.Connection:
    """Open a file and return the connection.

    uri_with_mode: URI of the file, whose query says whether the connection may write.
    path: path of the file.
    uri_is_writable: True if the connection may write.
    """
    connection = sqlite3.connect(uri_with_mode, uri=True, isolation_level=None, check_same_thread=False, timeout=30)
    if uri_is_writable:
        return connection

    # A reader that may not write to the folder cannot create the write-ahead log's index file.
    # If there is no write-ahead log, the reader opens the SQLite file as immutable.
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        if path.with_name(path.name + "-journal").exists():
            raise damaged_file_error(
                path, "a write was interrupted, and is undone when it is next opened by serve or replay"
            ) from None
        immutable = f"{uri_with_mode}&immutable=1"
        connection = sqlite3.connect(immutable, uri=True, isolation_level=None, check_same_thread=False)
    return connection


def damaged_file_error(path: Path, reason: str) -> DamagedFile:
    """Return the error for a damaged file.

    The content is not what was written, or the file is missing.

    reason: reason in words, such as "it is missing".
    """
    return DamagedFile(
        f"{path} is damaged ({reason}). Restore it from a copy; models keep serving from their snapshots.",
        path=str(path),
    )


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Replace errors about a file by errors of this library.

    Errors of SQLite and of the operating system are replaced. If no error of this library fits,
    the error is raised unchanged.
    """
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as e:
        ours = _translate_system_error(e, path) if isinstance(e, OSError) else _translate_sqlite_error(e, path)
        if ours is None:
            raise
        raise ours from e
    except UnicodeDecodeError as e:
        # SQLite's message may quote a damaged schema. Python cannot decode it if it is not UTF-8.
        raise damaged_file_error(path, str(e)) from e


@contextmanager
def commit_or_rollback(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the with-block's changes, or none after an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        # With synchronous=FULL, this waits for the disk.
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Make all reads in the with-block see one consistent snapshot.

    Commits of other connections during the with-block are not visible in the with-block. Meanwhile
    SQLite cannot shorten the write-ahead log.
    """
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


def check_integrity(connection: sqlite3.Connection, path: Path) -> None:
    """Raise DamagedFile unless SQLite's own check of a file succeeds.

    The check reads the whole file.
    """
    problems = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if problems != [("ok",)]:
        raise damaged_file_error(path, str(problems[0][0]))


def _translate_sqlite_error(error: sqlite3.DatabaseError, path: Path) -> StreamDRError | None:
    """Return the library's error for an error of SQLite.

    Returns None if no error of this library fits.
    """
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        for beside in (path.with_name(f"{path.name}-{suffix}") for suffix in ("wal", "shm", "journal")):
            if beside.is_dir():
                return damaged_file_error(path, f"{beside.name} is no file")

    if code == sqlite3.SQLITE_CANTOPEN:
        # SQLite's own message does not contain the reason.
        if not path.is_file():
            return damaged_file_error(path, "it is no file" if path.exists() else "it is missing")
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as e:
            return _translate_system_error(e, path)
        return None
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Overloaded(
            f"{path} is locked by another program ({error}); try again when that has ended.", retry_after=5
        )
    if extended in _NOT_WRITTEN or code == sqlite3.SQLITE_READONLY:
        return cannot_write_error(path, f"{error}, {getattr(error, 'sqlite_errorname', extended)}")
    if code in _DAMAGE or any(words in str(error) for words in _BROKEN):
        return damaged_file_error(path, str(error))
    return None


def _translate_system_error(error: OSError, path: Path) -> StreamDRError | None:
    """Return the library's error for an error of the system.

    Returns None if no error of this library fits.
    """
    if is_disk_unwritable(error):
        return cannot_write_error(path, str(error))
    if error.errno in (errno.EISDIR, errno.ENOTDIR):
        return damaged_file_error(path, str(error.strerror))
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Overloaded(f"{path} could not be opened: {error.strerror}. Try again shortly.", retry_after=1)
    return None
