"""index: the one SQLite file that says what is in the log: events, keys, schema changes, files of bodies, erasures.

An append is one transaction that says all there is to say. A row has the fields of what it stands for and a digest of them
(`event.row_digest`), which every read checks; the digest of a body is a field of its event, which `verify` checks. `total`:
the rows of all events up to this one as they were appended, so that it outlives what is dropped and what is rewritten. The
bodies of rows lie in files of bodies, where `file` (its name's number) and `start` are given; others in their row. An
erasure notes where bytes lie that are still to be overwritten.

Ids: ids.py.

Keys: the last ones by count (not by clock), and those of references to shards however old: a replay given again asks for
each. `number` counts the ones that may be forgotten. Cost: a lookup is one or two searches of a B-tree.

Why this way: a clock would make "is this key known" depend on when a retry comes; a count makes it depend on the stream
alone. SQLite finds a broken page, not a flipped bit inside a value. A key that is damaged is not found where it belongs; the
row in its place is, so a key that is not found counts as new only where the rows beside its place are sound. Rows that
somebody sent may have to be erased, and SQLite leaves copies of what it moved from page to page, also with secure_delete;
so they are never in it.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stream_dr.errors import DamagedFile
from stream_dr.failpoints import failpoint
from stream_dr.log import ids
from stream_dr.log.bodies import BEGIN, BodyFile, bodies_path, create_bodies
from stream_dr.log.event import Event, row_digest
from stream_dr.log.sqlite_file import Database, check_integrity, created, damaged_file, transaction

INDEX_NAME = "index.sqlite"
APPLICATION = 0x5344524B  # "SDRK"
LOG_FORMAT = 3

LASTING = "reference:"
"""Keys that begin so are never forgotten."""

KEYS = 1_000_000
"""How many other keys are remembered; once one is forgotten, exactly as many are there."""

_AT_ONCE = 64  # events, and pages, that one transaction of retention gives up
_TABLES = """
CREATE TABLE events(
  position INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT, fingerprint TEXT NOT NULL, rows INTEGER NOT NULL, schema TEXT,
  checksum TEXT, total INTEGER NOT NULL, file INTEGER, start INTEGER, size INTEGER NOT NULL,
  digest INTEGER NOT NULL, body BLOB);
CREATE INDEX unlearned ON events(position) WHERE kind='unlearn';
CREATE TABLE keys(key TEXT PRIMARY KEY, position INTEGER NOT NULL, fingerprint TEXT NOT NULL, rows INTEGER NOT NULL,
  number INTEGER, digest INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX numbered ON keys(number);
CREATE TABLE schemas(position INTEGER PRIMARY KEY, schema TEXT NOT NULL, digest INTEGER NOT NULL);
CREATE TABLE files(first INTEGER PRIMARY KEY, identity BLOB NOT NULL, end INTEGER NOT NULL, digest INTEGER NOT NULL);
CREATE TABLE erasures(id INTEGER PRIMARY KEY, file INTEGER NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
  digest INTEGER NOT NULL);
"""
_EVENT = "SELECT position, kind, key, fingerprint, rows, schema, checksum, total, file, start, size, digest"
_WITHOUT_KEY = """
SELECT key FROM events WHERE key IS NOT NULL AND key NOT IN (SELECT keys.key FROM keys)
  AND position >= COALESCE((SELECT position FROM keys WHERE number IS NOT NULL ORDER BY number LIMIT 1), 0) LIMIT 1
"""
_NUMBERS = "SELECT COUNT(number), COALESCE(MIN(number), 1), COALESCE(MAX(number), 0) FROM keys"
_LAST_NUMBER = "SELECT MAX(number) FROM keys WHERE number < 1 << 62"  # a damaged one may be text, which sorts behind
_WITHOUT_SCHEMA = """
SELECT position FROM events WHERE schema IS NOT NULL AND position NOT IN (SELECT schemas.position FROM schemas) LIMIT 1
"""

Row = tuple[Any, ...]

Hashes = dict[int, np.ndarray]
"""Hashes of ids by position of their event: (rows,) uint32."""


class Known(NamedTuple):
    """What is known of a key: the event it became, its fingerprint and its rows."""

    position: int
    fingerprint: str
    rows: int


class Place(NamedTuple):
    """Where a body lies: the number of its file and the offset there; None: in its row."""

    file: int | None = None
    start: int | None = None


class Ends(NamedTuple):
    """Positions of the first and the last event (0 and −1 where there are none), and rows of all ever appended."""

    first: int
    last: int
    rows: int


class Current(NamedTuple):
    """The file that bodies are appended to: the position it is named by, the file, and where its bodies end."""

    first: int
    file: BodyFile
    end: int = BEGIN


def database(folder: Path, writable: bool) -> Database:
    """The index in a log's folder."""
    return Database(folder / INDEX_NAME, writable, APPLICATION, LOG_FORMAT)


def create_index(folder: Path, fill: Callable[[sqlite3.Connection], object] = lambda connection: None) -> None:
    """Make the index, and fill it before it is there."""
    with created(folder / INDEX_NAME, APPLICATION, LOG_FORMAT, "auto_vacuum=INCREMENTAL") as connection:
        connection.executescript(_TABLES + ids.TABLES)
        fill(connection)
        connection.execute("PRAGMA journal_mode=WAL")


def beside(event: Event) -> bool:
    """Whether an event's body lies in a file of bodies."""
    return event.kind == "rows" and len(event.body) > 0


def put(
    folder: Path, events: Sequence[Event], current: Current | None, file_bytes: int, following: int
) -> tuple[list[Place], Current | None]:
    """Where each event's body lies, and the file of bodies, written, where one of them lies there. file_bytes: past this a
    file is begun, named by `following`, the log's next position."""
    bodies = [e.body for e in events if beside(e)]
    if not bodies:
        return [Place()] * len(events), None
    if current is None or (current.end >= file_bytes and current.first < following):
        current = Current(following, create_bodies(bodies_path(folder, following)))
    starts = current.file.write(bodies, current.end)
    left = iter(starts)
    places = [Place(current.first, next(left)) if beside(e) else Place() for e in events]
    return places, current._replace(end=starts[-1] + len(bodies[-1]))


def row_of(event: Event, total: int, place: Place) -> Row:
    """The row of an event."""
    e = event
    header = (e.position, e.kind, e.key, e.fingerprint, e.rows, e.schema, e.checksum, total, *place, len(e.body))
    return (*header, row_digest(*header), e.body if place.file is None else None)


def append(
    connection: sqlite3.Connection,
    folder: Path,
    events: Sequence[Event],
    rows: Iterable[Row],
    current: Current | None,
    keys: int,
    hashes: Hashes,
) -> None:
    """Add events whose rows these are; keys: how many are remembered; hashes: of ids. Within a transaction."""
    insert(connection, rows)
    remember(connection, ((e.key, Known(e.position, e.fingerprint, e.rows)) for e in events if e.key is not None), keys)
    note_schemas(connection, ((e.position, e.schema) for e in events if e.schema is not None))
    if hashes:
        ids.note_ids(connection, folder / INDEX_NAME, hashes)
    if current is not None:
        note_file(connection, current)
    failpoint("log.before_commit")


def insert(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Add rows of events."""
    connection.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)


def remember(connection: sqlite3.Connection, found: Iterable[tuple[str, Known]], keys: int) -> None:
    """Note keys, and forget the oldest above `keys`; one that is there keeps its first event."""
    last = connection.execute(_LAST_NUMBER).fetchone()[0] or 0
    number = last
    for key, known in found:
        lasting = key.startswith(LASTING)
        row = _with_digest(key, *known, None if lasting else number + 1)
        number += connection.execute("INSERT OR IGNORE INTO keys VALUES (?,?,?,?,?,?)", row).rowcount and not lasting
    if number > max(last, keys):
        connection.execute("DELETE FROM keys WHERE number <= ?", (number - keys,))


def note_schemas(connection: sqlite3.Connection, changes: Iterable[tuple[int, str]]) -> None:
    """Note changes of the stream's schema."""
    connection.executemany(
        "INSERT OR IGNORE INTO schemas VALUES (?,?,?)", [_with_digest(*change) for change in changes]
    )


def note_file(connection: sqlite3.Connection, current: Current) -> None:
    """Note up to where a file of bodies is written."""
    row = _with_digest(current.first, current.file.identity, current.end)
    connection.execute("INSERT OR REPLACE INTO files VALUES (?,?,?,?)", row)


def add_ids(connection: sqlite3.Connection) -> None:
    """Add the tables of ids where an earlier release made the index; its events are not indexed yet."""
    if _has_ids(connection):
        return
    with transaction(connection):
        for statement in ids.TABLES.split(";")[:-1]:
            connection.execute(statement)
        last = connection.execute("SELECT MAX(position) FROM events").fetchone()[0]
        if last is not None:
            _note_unindexed(connection, 0, last)


def index_ids(
    connection: sqlite3.Connection, folder: Path, last: int, until: int, hashes: Hashes, unread: Sequence[int]
) -> None:
    """As `Log.index_ids`. Within a transaction."""
    connection.execute("DELETE FROM unindexed WHERE last=?", (last,))
    for first, end in [*((p, p) for p in unread), (until + 1, last)]:
        if first <= end:
            _note_unindexed(connection, first, end)
    if hashes:
        ids.note_ids(connection, folder / INDEX_NAME, hashes)


def _has_ids(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'unindexed'").fetchone() is not None


def _note_unindexed(connection: sqlite3.Connection, first: int, last: int) -> None:
    connection.execute("INSERT INTO unindexed VALUES (?,?,?)", _with_digest(first, last))


def note_erasure(connection: sqlite3.Connection, file: int, start: int, size: int) -> None:
    """Note bytes of a file that are to be overwritten."""
    id = connection.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM erasures").fetchone()[0]
    connection.execute("INSERT INTO erasures VALUES (?,?,?,?,?)", _with_digest(id, file, start, size))


def replace(connection: sqlite3.Connection, folder: Path, event: Event, place: Place, current: Current | None) -> None:
    """Put `event` in the place of the one at its position, and note where the old body lies. Within a transaction."""
    *_, total, file, start, size = Index(folder, connection).header(event.position)
    if file is not None:
        note_erasure(connection, file, start, size)
    connection.execute("DELETE FROM events WHERE position=?", (event.position,))
    insert(connection, [row_of(event, total, place)])
    if current is not None:
        note_file(connection, current)
    failpoint("log.rewrite")


def emptied(connection: sqlite3.Connection, patience_ms: int) -> bool:
    """Whether the write-ahead log is empty now, and every reader sees the last transaction; waits that long for it."""
    usual = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout={patience_ms}").fetchall()
    try:
        return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.execute(f"PRAGMA busy_timeout={usual}").fetchall()


def drop_some(connection: sqlite3.Connection, before: int) -> tuple[int, list[int]]:
    """Remove a few of the events before a position; how many, and the files that only they named. Within a transaction."""
    first = connection.execute("SELECT MIN(position) FROM events").fetchone()[0] or 0
    first = max(first, min(before, first + _AT_ONCE))
    gone = connection.execute("DELETE FROM events WHERE position < ?", (first,)).rowcount
    connection.execute("DELETE FROM ids WHERE last < ?", (first,))
    later = "EXISTS (SELECT 1 FROM files later WHERE later.first > files.first AND later.first <= ?)"
    files = [file for (file,) in connection.execute(f"SELECT first FROM files WHERE {later}", (first,)).fetchall()]
    for file in files:
        connection.execute("DELETE FROM files WHERE first=?", (file,))
        connection.execute("DELETE FROM erasures WHERE file=?", (file,))
    failpoint("log.drop")
    return gone, files


def give_back(connection: sqlite3.Connection, folder: Path, files: Iterable[int]) -> bool:
    """Remove files of bodies, by number, and give a few free pages back to the file system; whether there is more to do."""
    for file in files:
        bodies_path(folder, file).unlink(missing_ok=True)
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    connection.executescript(f"PRAGMA incremental_vacuum({_AT_ONCE})")  # which alone steps to its end
    return 0 < int(connection.execute("PRAGMA freelist_count").fetchone()[0]) < free


class Index:
    """Reads from one connection to the index in `folder`; raises DamagedFile where a row is not what was written."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder, self._path, self._connection = folder, folder / INDEX_NAME, connection

    def ends(self) -> Ends:
        """Where the log begins and ends."""
        query = "SELECT (SELECT MIN(position) FROM events), (SELECT MAX(position) FROM events)"
        first, last = self._connection.execute(query).fetchone()
        return Ends(0, -1, 0) if last is None else Ends(first, last, self.total(last))

    def total(self, position: int) -> int:
        """Rows of all events up to that position, as they were appended."""
        return int(self.header(position)[7])

    def header(self, position: int) -> Row:
        """An event's row, without its body."""
        for row in self._checked(f"{_EVENT} FROM events WHERE position=?", (position,)):
            return row
        raise damaged_file(self._path, f"position {position} is missing")

    def spoilt(self, position: int) -> DamagedFile:
        """The error that says that an event's body is damaged."""
        file = self.header(position)[8]
        path = self._path if file is None else bodies_path(self._folder, file)
        return damaged_file(path, f"the body of event {position} is not what was written")

    def events(self, where: str, values: Row, body_at: Callable[[int, int, int], bytes]) -> Iterator[Event]:
        """Events, in order; `body_at(file, start, size)` reads the files of bodies."""
        query = f"{_EVENT}, body FROM events WHERE {where}"
        with closing(self._connection.execute(query, values)) as cursor:
            for *row, body in cursor:
                position, kind, key, fingerprint, rows, schema, checksum, _, file, start, size = self._sound(row)
                if file is not None:
                    body = body_at(file, start, size)
                elif type(body) is not bytes or len(body) != size:
                    raise damaged_file(
                        self._path, f"the body of event {position} is not the {size} bytes that were written"
                    )
                yield Event(position, kind, key, fingerprint, rows, body, schema, checksum)

    def find_key(self, key: str) -> Known | None:
        """What is known of a key, or None."""
        for query in ("key >= ? ORDER BY key", "key <= ? ORDER BY key DESC"):
            for found, *known, _ in self._checked(f"SELECT * FROM keys WHERE {query} LIMIT 1", (key,)):
                if found == key:
                    return Known(*known)
        return None

    def with_ids(self, hashes: np.ndarray) -> list[int]:
        """Positions of the events that may have rows with ids of these hashes, in order; dropped ones among them."""
        found = ids.with_ids(self._connection, self._path, hashes)
        return sorted(found.union(*(range(first, last + 1) for first, last in self.not_indexed())))

    def not_indexed(self) -> list[Row]:
        """(first, last) position of events that may have any id."""
        return self._checked("SELECT * FROM unindexed")

    def schemas(self) -> list[str]:
        """Every change of the stream's schema, oldest first."""
        return [text for _, text in self._checked("SELECT * FROM schemas ORDER BY position")]

    def files(self) -> list[Current]:
        """The files of bodies, oldest first."""
        return [self._file(*row) for row in self._checked("SELECT * FROM files ORDER BY first")]

    def current(self) -> Current | None:
        """The newest file of bodies."""
        newest = self._checked("SELECT * FROM files ORDER BY first DESC LIMIT 1")
        return self._file(*newest[0]) if newest else None

    def file(self, first: int) -> BodyFile:
        """The file of bodies of that number."""
        for row in self._checked("SELECT * FROM files WHERE first=?", (first,)):
            return self._file(*row).file
        raise damaged_file(self._path, f"the file of bodies {first} is not listed")

    def erasures(self) -> list[Row]:
        """What is to be overwritten: (id, file, start, size)."""
        return self._checked("SELECT * FROM erasures")

    def places(self, file: int) -> list[tuple[int, int]]:
        """Where the bodies of events lie in a file: (start, size), in order."""
        query = "SELECT start, size FROM events WHERE file=? ORDER BY start"
        return self._connection.execute(query, (file,)).fetchall()

    def copy_to(self, folder: Path) -> None:
        """Make the same index in another folder, as this connection sees it."""
        with created(folder / INDEX_NAME, APPLICATION, LOG_FORMAT) as copy:
            self._connection.backup(copy)
            copy.execute("PRAGMA journal_mode=WAL")

    def check(self, keys: int = KEYS) -> None:
        """SQLite's own check of the whole file, every row, no position missing, each event's key and schema change there,
        and no key missing that is not older than the last `keys`."""
        check_integrity(self._connection, self._path)
        expected = self.ends().first
        with closing(self._connection.execute(f"{_EVENT} FROM events ORDER BY position")) as cursor:
            for position, *_ in map(self._sound, cursor):
                if position != expected:
                    raise damaged_file(self._path, f"position {expected} is missing")
                expected += 1
        with closing(self._connection.execute("SELECT * FROM keys")) as cursor:
            for row in cursor:
                self._sound(row)
        for (key,) in self._connection.execute(_WITHOUT_KEY).fetchall():
            raise damaged_file(self._path, f"the key {key!r} of an event is missing")
        ((known, first, last),) = self._connection.execute(_NUMBERS).fetchall()
        first = 1 if known < keys else first
        if known != last - first + 1:
            raise damaged_file(self._path, f"{last - first + 1 - known} keys are missing")
        for (position,) in self._connection.execute(_WITHOUT_SCHEMA).fetchall():
            raise damaged_file(self._path, f"the change of the schema by event {position} is missing")
        self.schemas()
        self.erasures()
        if _has_ids(self._connection):  # a reader may come before the writer that adds them
            self.not_indexed()
            for (bucket,) in self._connection.execute("SELECT DISTINCT bucket FROM ids").fetchall():
                ids.entries(self._connection, self._path, "bucket=?", (bucket,))

    def _file(self, first: int, identity: bytes, end: int) -> Current:
        return Current(first, BodyFile(bodies_path(self._folder, first), identity), end)

    def _checked(self, query: str, values: Row = ()) -> list[Row]:
        """Rows whose last field is the digest of the others; without it."""
        return [self._sound(row) for row in self._connection.execute(query, values).fetchall()]

    def _sound(self, row: Sequence[Any]) -> Row:
        *fields, stored = row
        if row_digest(*fields) != stored:
            raise damaged_file(self._path, f"the entry of {fields[0]!r} is not what was written")
        return tuple(fields)


def _with_digest(*fields: Any) -> Row:
    return (*fields, row_digest(*fields))
