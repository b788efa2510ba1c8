"""segment: one file of the log, a SQLite database of consecutive events.

Named by the position of its first event. WAL, synchronous=FULL: an append is one transaction and one fsync of the WAL.
Pages are 16 KiB: an event of 1 MB takes 64 of them, an event of 1 KB does not rewrite much (`python
benchmarks/log_append.py --page-bytes N` measures another size).

Cost: an append writes each byte twice (WAL, then checkpoint); a read opens no cursor that outlives it.

Why this way: each segment is a database of its own, so that retention is the removal of a file. A small pool of
connections, each used by one thread at a time, stands for "one connection per thread": threads come and go in a
service, and a pool can be closed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from stream_dr.streams.disk import TEMPORARY, fsync_directory
from stream_dr.streams.event import Event
from stream_dr.streams.failpoints import failpoint
from stream_dr.streams.sqlite_file import FORMAT, connect, damaged, translated

PAGE_BYTES = 16384

_APPLICATION = 0x53445253  # "SDRS", SQLite's application_id
_COLUMNS = "position, kind, key, sha256, rows, body, schema, checksum"
_TABLES = """
CREATE TABLE events(
  position INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT, sha256 TEXT NOT NULL, rows INTEGER NOT NULL,
  schema TEXT, checksum TEXT, body BLOB NOT NULL);
CREATE INDEX unlearned ON events(position) WHERE kind='unlearn';
CREATE TABLE before(rows INTEGER NOT NULL);
"""


class Segment:
    """One file of consecutive events; thread-safe."""

    def __init__(self, path: Path, writable: bool) -> None:
        self.path, self.writable = path, writable
        self.journal = path.with_name(path.name + "-wal")
        self.first = int(path.name.split(".")[0])
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    @classmethod
    def create(cls, folder: Path, first: int, rows_before: int) -> "Segment":
        """An empty segment for events from position `first` on, durable before it has its name."""
        path = folder / f"{first:020d}.sqlite"
        temporary = path.with_name(path.name + TEMPORARY)
        temporary.unlink(missing_ok=True)
        with translated(path), closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.executescript(_TABLES)
            connection.execute("INSERT INTO before VALUES (?)", (rows_before,))
            connection.execute("PRAGMA journal_mode=WAL")
        failpoint("log.roll")
        temporary.rename(path)
        fsync_directory(folder)
        return cls(path, writable=True)

    def append(self, events: Sequence[Event]) -> None:
        """Add events in one transaction, durable on return; all or none."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(f"INSERT INTO events({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?)", events)
                failpoint("log.before_commit")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def read(self, after: int, until: int, limit: int, max_bytes: int) -> list[Event]:
        """At most `limit` events with after < position ≤ until; stops once their bodies pass max_bytes."""
        events: list[Event] = []
        size = 0
        query = f"SELECT {_COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
        with self._connection() as connection, closing(connection.execute(query, (after, until, limit))) as cursor:
            for row in cursor:
                events.append(Event._make(row))
                size += len(events[-1].body)
                if size >= max_bytes:
                    break
        return events

    def read_kind(self, kind: str, before: int) -> list[Event]:
        """All events of a kind with position < before."""
        where = "kind='unlearn'" if kind == "unlearn" else "kind=?"  # a partial index needs the literal
        values = (before,) if kind == "unlearn" else (before, kind)
        query = f"SELECT {_COLUMNS} FROM events WHERE position < ? AND {where} ORDER BY position"
        return [Event._make(row) for row in self._all(query, values)]

    def replace(self, position: int, body: bytes, rows: int, checksum: str) -> None:
        """Put another body in an event's place; the old bytes are overwritten in the file."""
        with self._connection() as connection:
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute(
                "UPDATE events SET body=?, rows=?, checksum=? WHERE position=?", (body, rows, checksum, position)
            )
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def headers(self, after: int) -> list[tuple[int, str | None, str, int, str | None]]:
        """(position, key, sha256, rows, schema) of the events after a position that have a key or change the schema."""
        query = (
            "SELECT position, key, sha256, rows, schema FROM events "
            "WHERE position > ? AND (key IS NOT NULL OR schema IS NOT NULL) ORDER BY position LIMIT 10000"
        )
        return self._all(query, (after,))

    def totals(self) -> tuple[int, int, int, int]:
        """(last position or first − 1, events, rows including those of earlier segments, bytes of bodies)."""
        count, last, rows, size = self._all(
            "SELECT COUNT(*), MAX(position), SUM(CASE WHEN kind='unlearn' THEN 0 ELSE rows END), SUM(LENGTH(body)) "
            "FROM events"
        )[0]
        before = self.rows_before()
        return (self.first - 1 if last is None else last), count, before + (rows or 0), size or 0

    def last(self) -> int:
        """Position of the last event, or first − 1."""
        found = self._all("SELECT MAX(position) FROM events")[0][0]
        return self.first - 1 if found is None else int(found)

    def rows_before(self) -> int:
        """Rows of all events before this segment."""
        return int(self._all("SELECT rows FROM before")[0][0])

    def check(self) -> None:
        """SQLite's own check of the whole file; raises DamagedFile."""
        found = self._all("PRAGMA integrity_check(1)")
        if found != [("ok",)]:
            raise damaged(self.path, str(found[0][0]))

    def seal(self) -> bool:
        """Move what the WAL holds into the file and leave WAL mode, once no more is to be appended; False if in use.

        A sealed segment is one file, which can be read where nothing can be written, a full disk among such places.
        """
        self.rest()
        with self._connection() as connection:
            connection.execute("PRAGMA busy_timeout=0")
            try:
                sealed = connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete"
            except sqlite3.OperationalError as e:
                if e.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                sealed = False
        self.rest()
        return sealed

    def rest(self) -> None:
        """Close idle connections; the segment stays usable."""
        while self._idle:
            with suppress(IndexError, sqlite3.Error):
                self._idle.pop().close()

    def close(self) -> None:
        """Close; connections in use close when they come back."""
        self._closed = True
        self.rest()

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._connection() as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own for the time of the with-block."""
        with translated(self.path):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self.path, self.writable, _APPLICATION)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
        if self._closed or len(self._idle) >= 4:
            connection.close()
        else:
            self._idle.append(connection)
