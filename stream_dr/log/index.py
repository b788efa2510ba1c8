"""Index of the log, in one SQLite file.

The index has the events, keys, schema changes, payload files and erasures.

Each append is one transaction. A table row has the fields of one item and a digest of these fields
(`event.row_digest`). Each read checks this digest, because SQLite detects a broken page but not a
flipped bit inside a value. The digest of an event's body (payload) is a field of the event.
`verify` checks the bodies.

These are the tables:

* events: the events without the bodies of kind "rows", which are in files of bodies. `file` is the
  number in the file's name, and `start` is the body's offset. Other bodies are in the table row.
  `total` is the number of rows of all events up to this event, as appended. `total` does not
  change when events are dropped or rewritten.
* keys: the newest idempotency keys, up to a fixed number, and all keys of references to shards.
  `number` counts the keys in order. It is NULL for references, whose keys are never removed.
* schemas: changes of the stream's schema, by the position of their event.
* files: the files of bodies, and the end of the last body in each file.
* erasures: ranges of bytes in files of bodies that are still to be overwritten.
* ids: hashes of row ids (ids.py).

Why this way:

* Data rows may have to be erased. SQLite leaves copies of data that it moves from page to page,
  even with secure_delete. So data rows are never stored in SQLite.
* A repeated replay looks up the key of each reference, so these keys are never forgotten.
* The number of keys is limited and not their age. So whether a key is still known depends only on
  the stream, and not on the time of a retry.

Cost: looking up a key is one or two searches of a B-tree.
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
from stream_dr.log.bodies import BEGIN, BodyFile, body_file_path, create_body_file
from stream_dr.log.event import Event, row_digest
from stream_dr.log.sqlite_file import Database, check_integrity, create_sqlite_file, damaged_file_error

INDEX_NAME = "index.sqlite"

# These bytes are the characters "SDRK".
APPLICATION = 0x5344524B
LOG_FORMAT = 7

LASTING = "reference:"
"""Prefix of idempotency keys that are never forgotten, because they belong to references."""

KEYS = 1_000_000
"""Number of idempotency keys to store, not counting keys that are never forgotten.

When the limit is reached, each further key replaces the oldest key.
"""

ENTRIES_A_STEP = 64
"""Maximum number of events, or of pages, that one transaction of retention removes."""

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
# A damaged number may be text, which SQLite sorts behind all numbers. The bound excludes it.
_LAST_NUMBER = "SELECT MAX(number) FROM keys WHERE number < 1 << 62"
_WITHOUT_SCHEMA = """
SELECT position FROM events WHERE schema IS NOT NULL AND position NOT IN (SELECT schemas.position FROM schemas) LIMIT 1
"""

Row = tuple[Any, ...]
"""Row of a SQL table."""

Hashes = dict[int, np.ndarray]
"""Hashes of row ids, uint32 (rows,), by position of their event."""


class KnownEvent(NamedTuple):
    """Entry of an event in the table of idempotency keys.

    position: position of the event.
    fingerprint: digest of the request's content.
    rows: number of rows of the event.
    """

    position: int
    fingerprint: str
    rows: int


class Place(NamedTuple):
    """Place where the body (payload) of an event is stored.

    file: number of the file of bodies, None if the body is in the event's table row.
    start: offset in the file.
    """

    file: int | None = None
    start: int | None = None


class LogBounds(NamedTuple):
    """Bounds of the log.

    first: position of the first event, 0 if there is none.
    last: position of the last event, −1 if there is none.
    rows: number of rows of all events ever appended.
    """

    first: int
    last: int
    rows: int


class BodyFileEntry(NamedTuple):
    """File of bodies (event payloads) and its last body's end.

    first: position of the first event in the file, which is part of the file's name.
    end: offset of the end of the last body.
    """

    first: int
    file: BodyFile
    end: int = BEGIN


def open_existing_index_database(folder: Path, writable: bool) -> Database:
    """Return the Database (SQLite file) of a log folder's index."""
    return Database(folder / INDEX_NAME, writable, APPLICATION, LOG_FORMAT)


def create_index(folder: Path, more_tables: str) -> None:
    """Create the log's index (a SQLite file) in a folder.

    A temporary file is filled and then moved to its final name.

    more_tables: SQL that creates further tables in the index.
    """
    with create_sqlite_file(folder / INDEX_NAME, APPLICATION, LOG_FORMAT, "auto_vacuum=INCREMENTAL") as connection:
        connection.executescript(_TABLES + ids.TABLES + more_tables)
        connection.execute("PRAGMA journal_mode=WAL")


def has_body_in_file(event: Event) -> bool:
    """Return True if a file must hold an event's body.

    Bodies of other events are stored in the index.
    """
    return event.kind == "rows" and len(event.body) > 0


def place_events(
    folder: Path, events: Sequence[Event], current_file: BodyFileEntry | None, max_file_bytes: int, next_position: int
) -> tuple[list[Place], BodyFileEntry | None]:
    """Write event bodies to a file. Return each event's place.

    Also returns the file that was written, or None if no body belongs in a file.

    current_file: file to append to, or None to start a new file.
    max_file_bytes: size at which a new file is started.
    next_position: next position of the log. A new file gets this number in its name.
    """
    bodies = [e.body for e in events if has_body_in_file(e)]
    if not bodies:
        return [Place()] * len(events), None

    if current_file is None or (current_file.end >= max_file_bytes and current_file.first < next_position):
        current_file = BodyFileEntry(next_position, create_body_file(body_file_path(folder, next_position)))
    starts = current_file.file.write_and_return_offsets(bodies, current_file.end)
    remaining = iter(starts)
    places = [Place(current_file.first, next(remaining)) if has_body_in_file(e) else Place() for e in events]
    return places, current_file._replace(end=starts[-1] + len(bodies[-1]))


def event_table_row(event: Event, total_rows: int, place: Place) -> Row:
    """Return the table row of an event.

    total_rows: number of rows of all events up to this event.
    place: place where the event's body is stored.
    """
    e = event
    header = (e.position, e.kind, e.key, e.fingerprint, e.rows, e.schema, e.checksum, total_rows, *place, len(e.body))
    return (*header, row_digest(*header), e.body if place.file is None else None)


def add_events_to_index(
    connection: sqlite3.Connection,
    folder: Path,
    events: Sequence[Event],
    event_rows: Iterable[Row],
    written_file: BodyFileEntry | None,
    max_keys: int,
    id_hashes_by_position: Hashes,
) -> None:
    """Add events, keys, schema changes and row ids to the index.

    Call this function within a transaction.

    event_rows: the events' table rows.
    written_file: file of bodies (event payloads) that was written, or None.
    max_keys: number of idempotency keys to store.
    id_hashes_by_position: hashes of the rows' ids.
    """
    insert_events(connection, event_rows)
    insert_newest_keys(connection, events, max_keys)
    changes = [_with_digest(e.position, e.schema) for e in events if e.schema is not None]
    connection.executemany("INSERT OR IGNORE INTO schemas VALUES (?,?,?)", changes)
    if id_hashes_by_position:
        ids.insert_id_hashes(connection, folder / INDEX_NAME, id_hashes_by_position)
    if written_file is not None:
        store_body_end(connection, written_file)
    failpoint("log.before_commit")


def insert_events(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Insert table rows of events."""
    connection.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)


def insert_newest_keys(connection: sqlite3.Connection, events: Iterable[Event], max_keys: int) -> None:
    """Add idempotency keys, and remove the oldest beyond `max_keys`.

    A key that is in the index already does not change. Keys of references are not counted and not
    removed.
    """
    last = connection.execute(_LAST_NUMBER).fetchone()[0] or 0
    number = last
    for e in events:
        if e.key is None:
            continue
        lasting = e.key.startswith(LASTING)
        row = _with_digest(e.key, e.position, e.fingerprint, e.rows, None if lasting else number + 1)
        number += connection.execute("INSERT OR IGNORE INTO keys VALUES (?,?,?,?,?,?)", row).rowcount and not lasting
    if number > max(last, max_keys):
        connection.execute("DELETE FROM keys WHERE number <= ?", (number - max_keys,))


def store_body_end(connection: sqlite3.Connection, current: BodyFileEntry) -> None:
    """Store the end of the last body in a payload file."""
    row = _with_digest(current.first, current.file.identity, current.end)
    connection.execute("INSERT OR REPLACE INTO files VALUES (?,?,?,?)", row)


def replace_event(
    connection: sqlite3.Connection, folder: Path, event: Event, new_place: Place, written_file: BodyFileEntry | None
) -> None:
    """Replace an event, and list its old body for erasure.

    The event at the position of `event` is replaced. Call this function within a transaction.

    new_place: place where the new body is stored.
    written_file: file of bodies (event payloads) that was written, or None.
    """
    *_, total, file, start, size = Index(folder, connection).event_row_without_body(event.position)
    if file is not None:
        id = connection.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM erasures").fetchone()[0]
        connection.execute("INSERT INTO erasures VALUES (?,?,?,?,?)", _with_digest(id, file, start, size))
    connection.execute("DELETE FROM events WHERE position=?", (event.position,))
    insert_events(connection, [event_table_row(event, total, new_place)])
    if written_file is not None:
        store_body_end(connection, written_file)
    failpoint("log.rewrite")


def drop_oldest_events(connection: sqlite3.Connection, first_to_keep: int) -> tuple[int, list[int]]:
    """Remove the oldest events before a position, at most ENTRIES_A_STEP.

    Call this function within a transaction. Returns the number of events removed, and the numbers
    of the files of bodies (payloads) that only these events used.

    first_to_keep: position of the first event that must not be removed.
    """
    first = connection.execute("SELECT MIN(position) FROM events").fetchone()[0] or 0
    first = max(first, min(first_to_keep, first + ENTRIES_A_STEP))
    dropped = connection.execute("DELETE FROM events WHERE position < ?", (first,)).rowcount
    connection.execute("DELETE FROM ids WHERE last < ?", (first,))

    # A file of bodies is not used any more if a later file begins at or before the first event.
    later = "EXISTS (SELECT 1 FROM files later WHERE later.first > files.first AND later.first <= ?)"
    files = [file for (file,) in connection.execute(f"SELECT first FROM files WHERE {later}", (first,)).fetchall()]
    for file in files:
        connection.execute("DELETE FROM files WHERE first=?", (file,))
        connection.execute("DELETE FROM erasures WHERE file=?", (file,))
    failpoint("log.drop")
    return dropped, files


def release_freed_space_step(connection: sqlite3.Connection, folder: Path, dropped_file_numbers: Iterable[int]) -> bool:
    """Delete payload files and release unused pages of the index.

    dropped_file_numbers: position of the first event of each payload file to delete.

    At most ENTRIES_A_STEP pages are released to the file system. Returns True if pages were
    released and there are more to release.
    """
    for file in dropped_file_numbers:
        body_file_path(folder, file).unlink(missing_ok=True)
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    # `execute` stops this pragma after its first step. `executescript` runs it to its end.
    connection.executescript(f"PRAGMA incremental_vacuum({ENTRIES_A_STEP})")
    return 0 < int(connection.execute("PRAGMA freelist_count").fetchone()[0]) < free


class Index:
    """Reader of the log's index in `folder`, through one connection.

    Raises DamagedFile if a table row does not have the digest with which it was written.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder = folder
        self._path = folder / INDEX_NAME
        self._connection = connection

    def bounds_and_total_rows(self) -> LogBounds:
        """Return the log's first position, last position and number of rows."""
        query = "SELECT (SELECT MIN(position) FROM events), (SELECT MAX(position) FROM events)"
        first, last = self._connection.execute(query).fetchone()
        return LogBounds(0, -1, 0) if last is None else LogBounds(first, last, self.rows_appended_up_to(last))

    def rows_appended_up_to(self, position: int) -> int:
        """Return the number of rows appended up to a position.

        Rows that were later unlearned or dropped are counted.
        """
        return int(self.event_row_without_body(position)[7])

    def event_row_without_body(self, position: int) -> Row:
        """Return an event's table row without its body."""
        for row in self._rows(f"{_EVENT} FROM events WHERE position=?", (position,)):
            return row
        raise damaged_file_error(self._path, f"position {position} is missing")

    def damaged_body_error(self, position: int) -> DamagedFile:
        """Return the error for an event with a damaged body (payload)."""
        file = self.event_row_without_body(position)[8]
        path = self._path if file is None else body_file_path(self._folder, file)
        return damaged_file_error(path, f"the body of event {position} is not what was written")

    def events(self, condition: str, values: Row, read_body: Callable[[int, int, int], bytes]) -> Iterator[Event]:
        """Yield the events that meet a SQL condition.

        condition: SQL condition and order, with `values` for its placeholders.
        read_body: function that reads a body from a file of bodies. Its arguments are the number
            of the file, the offset and the number of bytes.
        """
        query = f"{_EVENT}, body FROM events WHERE {condition}"
        with closing(self._connection.execute(query, values)) as cursor:
            for *row, body in cursor:
                position, kind, key, fingerprint, rows, schema, checksum, _, file, start, size = (
                    self._fields_with_valid_digest(row)
                )
                if file is not None:
                    body = read_body(file, start, size)
                elif type(body) is not bytes or len(body) != size:
                    raise damaged_file_error(
                        self._path, f"the body of event {position} is not the {size} bytes that were written"
                    )
                yield Event(position, kind, key, fingerprint, rows, body, schema, checksum)

    def find_key(self, key: str) -> KnownEvent | None:
        """Return the event with an idempotency key, or None."""
        # If the stored key is damaged, SQLite does not find `key`.
        # The search may then end next to the damaged entry. So read the entry on each side.
        # `_rows` raises an error if one of the two entries is damaged.
        for query in ("key >= ? ORDER BY key", "key <= ? ORDER BY key DESC"):
            for nearest, *known, _ in self._rows(f"SELECT * FROM keys WHERE {query} LIMIT 1", (key,)):
                if nearest == key:
                    return KnownEvent(*known)
        return None

    def positions_with_ids(self, id_hashes: np.ndarray) -> list[int]:
        """Return ascending positions of events that may have these ids.

        id_hashes: hashes of the row ids.

        Dropped events may be among them.
        """
        return sorted(ids.positions_with_ids(self._connection, self._path, id_hashes))

    def schema_changes(self) -> list[str]:
        """Return all changes of the schema as JSON, oldest first."""
        return [text for _, text in self._rows("SELECT * FROM schemas ORDER BY position")]

    def files(self) -> list[BodyFileEntry]:
        """Return the files of bodies (event payloads), oldest first."""
        return [self._file(*row) for row in self._rows("SELECT * FROM files ORDER BY first")]

    def file(self, file_number: int) -> BodyFile:
        """Return the file of bodies (event payloads) with this number."""
        for row in self._rows("SELECT * FROM files WHERE first=?", (file_number,)):
            return self._file(*row).file
        raise damaged_file_error(self._path, f"the file of bodies {file_number} is not listed")

    def pending_erasures(self) -> list[Row]:
        """Return (id, file number, offset, size) of bytes to overwrite."""
        return self._rows("SELECT * FROM erasures")

    def body_offsets_and_sizes(self, file_number: int) -> list[tuple[int, int]]:
        """Return (offset, size) of a payload file's bodies, in order.

        file_number: number of the file.
        """
        query = "SELECT start, size FROM events WHERE file=? ORDER BY start"
        return self._connection.execute(query, (file_number,)).fetchall()

    def copy_to(self, folder: Path) -> None:
        """Copy the index to a folder, as this connection sees it."""
        with create_sqlite_file(folder / INDEX_NAME, APPLICATION, LOG_FORMAT) as copy:
            self._connection.backup(copy)
            copy.execute("PRAGMA journal_mode=WAL")

    def check(self, max_keys: int = KEYS) -> None:
        """Check the whole index. Raises DamagedFile.

        These checks are made:

        * SQLite's own check of the file
        * the digest of each table row
        * no position is missing
        * the key and the schema change of each event are in their tables
        * none of the newest `max_keys` idempotency keys is missing

        Keys of references to shards are always stored and are not counted in `max_keys`.
        """
        check_integrity(self._connection, self._path)

        # Read all events, whose positions must follow one another.
        expected = self.bounds_and_total_rows().first
        with closing(self._connection.execute(f"{_EVENT} FROM events ORDER BY position")) as cursor:
            for position, *_ in map(self._fields_with_valid_digest, cursor):
                if position != expected:
                    raise damaged_file_error(self._path, f"position {expected} is missing")
                expected += 1

        # Read all keys, and check that each event's key is among them.
        with closing(self._connection.execute("SELECT * FROM keys")) as cursor:
            for row in cursor:
                self._fields_with_valid_digest(row)
        for (key,) in self._connection.execute(_WITHOUT_KEY).fetchall():
            raise damaged_file_error(self._path, f"the key {key!r} of an event is missing")

        # All keys that are not keys of references have consecutive numbers.
        ((known, first, last),) = self._connection.execute(_NUMBERS).fetchall()
        first = 1 if known < max_keys else first
        if known != last - first + 1:
            raise damaged_file_error(self._path, f"{last - first + 1 - known} keys are missing")

        # Reading the other tables checks their digests.
        for (position,) in self._connection.execute(_WITHOUT_SCHEMA).fetchall():
            raise damaged_file_error(self._path, f"the change of the schema by event {position} is missing")
        self.schema_changes()
        self.pending_erasures()
        for _ in ids.select_id_entries(self._connection, self._path):
            pass

    def _file(self, first: int, identity: bytes, end: int) -> BodyFileEntry:
        """Return the file of event bodies that a table row describes."""
        return BodyFileEntry(first, BodyFile(body_file_path(self._folder, first), identity), end)

    def _rows(self, query: str, values: Row = ()) -> list[Row]:
        """Return the table rows of a query, without their digests.

        The last field of each table row is its digest, which is checked.
        """
        return [self._fields_with_valid_digest(row) for row in self._connection.execute(query, values).fetchall()]

    def _fields_with_valid_digest(self, row: Sequence[Any]) -> Row:
        """Return a table row without its digest.

        Raises DamagedFile if the digest is wrong.
        """
        *fields, digest = row
        if row_digest(*fields) != digest:
            raise damaged_file_error(self._path, f"the entry of {fields[0]!r} is not what was written")
        return tuple(fields)


def _with_digest(*fields: Any) -> Row:
    """Return the fields followed by their digest."""
    return (*fields, row_digest(*fields))
