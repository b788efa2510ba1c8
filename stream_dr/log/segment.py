"""segment: one part of the log, consecutive events: a SQLite index and a plain file of bodies.

Both are named by the position of their first event. An append whose bodies are more than 96 KiB together puts them into
the bodies file (bodies.py), syncs that, and then commits the rows that name them; a smaller one is rows alone, bodies
within. So a small append waits for the disk once, a large one twice, and neither is there before its transaction is.

Cost: SQLite writes an event's row twice (WAL, then checkpoint), the bodies file every body once. Bodies of 920 KB were
appended one by one or by the group at 0.8 to 0.9 of the rate of a bare file synced as often; SQLite alone
reached 0.2 to 0.3 (`python benchmarks/log_append.py`; `--small-bytes 1000000000` for SQLite alone). A read opens no
cursor and no file that outlives it.

Why this way: each segment is files of its own, so that retention is the removal of files. Near 96 KiB the second sync
begins to cost less than writing twice in pages: `python benchmarks/log_append.py --small-bytes N --page-bytes N` measures
other bounds. Pages are 8 KiB: small ones read larger rows slower, large ones write small rows slower. WAL,
synchronous=FULL.
"""

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from stream_dr.disk import TEMPORARY, fsync_directory
from stream_dr.errors import DamagedFile
from stream_dr.failpoints import failpoint
from stream_dr.log import erasures
from stream_dr.log.bodies import BEGIN, Bodies, Reader
from stream_dr.log.digest import digest
from stream_dr.log.event import Event
from stream_dr.log.event_row import COLUMNS, TABLE, event_of, insert, row_of
from stream_dr.log.sqlite_file import FORMAT, check_integrity, damaged, one_view, translated
from stream_dr.log.sqlite_pool import Pool

SMALL_BYTES = 96 << 10
"""Bodies of one append that are at most this much together lie within their rows."""

PAGE_BYTES = 8192

SHORT = 32
"""Transactions after which the WAL begins anew where bodies lie in their file. By its length alone (sqlite_file.py) it would
do so hardly once before a segment is full; syncing a file that grows took 0.34 ms, one that is overwritten 0.2."""

_APPLICATION = 0x53445253  # "SDRS", SQLite's application_id
_ABOUT = "CREATE TABLE about(rows_before INTEGER NOT NULL, identity BLOB NOT NULL, digest INTEGER NOT NULL);"
_ALL = 2**63 - 1


class Totals(NamedTuple):
    """Position of the last event (first − 1 if none), events, rows of this and all earlier segments, bytes of bodies."""

    last: int
    events: int
    rows: int
    bytes: int


class Segment:
    """One part of the log; thread-safe, but for `append` and `recover`, of which one runs at a time."""

    def __init__(self, path: Path, writable: bool) -> None:
        self.path = path
        self.journal = path.with_name(path.name + "-wal")
        self.first = int(path.name.split(".")[0])
        self._pool = Pool(path, writable, _APPLICATION)
        self._rewriting, self._telling = threading.Lock(), threading.Lock()
        self._about: tuple[int, Bodies] | None = None
        self._end, self._grown = BEGIN, 0

    @classmethod
    def create(cls, folder: Path, first: int, rows_before: int) -> "Segment":
        """An empty segment for events from position `first` on, durable before it has its name."""
        path = folder / f"{first:020d}.sqlite"
        temporary = path.with_name(path.name + TEMPORARY)
        temporary.unlink(missing_ok=True)
        about = (rows_before, Bodies.create(path).identity)
        with translated(path), closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.executescript(TABLE + erasures.TABLE + _ABOUT)
            connection.execute("INSERT INTO about VALUES (?,?,?)", (*about, _digest(first, *about)))
            connection.execute("PRAGMA journal_mode=WAL")
        with translated(path):
            failpoint("log.roll")
            temporary.rename(path)
            fsync_directory(folder)
        return cls(path, writable=True)

    def append(self, events: Sequence[Event]) -> None:
        """Add events in one transaction, durable on return; all or none. After an error, `recover` before the next."""
        starts, end = self._place(events)
        rows = list(map(row_of, events, starts))
        with self._pool.connection() as connection:
            insert(connection, rows)
            if starts[0] is not None:
                self._keep_short(connection)
        self._end = end

    def recover(self) -> None:
        """Learn from the rows where the bodies end, and cut what an interrupted append left past it."""
        ends = (
            "SELECT MAX(start + size) FROM (SELECT start, size FROM events UNION ALL SELECT start, size FROM erasures)"
        )
        self._end = self._pool.all(ends)[0][0] or BEGIN
        self._bodies().cut(self._end)

    def read(self, after: int, until: int, limit: int, max_bytes: int) -> list[Event]:
        """At most `limit` events with after < position ≤ until; stops once their bodies pass max_bytes."""
        query = f"SELECT {COLUMNS} FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
        return self._events(query, (after, until, limit), max_bytes)

    def read_kind(self, kind: str, before: int) -> list[Event]:
        """All events of a kind with position < before."""
        where = "kind='unlearn'" if kind == "unlearn" else "kind=?"  # a partial index needs the literal
        values = (before,) if kind == "unlearn" else (before, kind)
        return self._events(f"SELECT {COLUMNS} FROM events WHERE position < ? AND {where} ORDER BY position", values)

    def replace(self, position: int, body: bytes, rows: int, checksum: str) -> None:
        """Put another body in an event's place; the old bytes stay on the disk until `erase`."""
        with self._rewriting:
            (event,) = self.read(position - 1, position, 1, 1)
            with self._pool.connection() as connection:
                erasures.replace(connection, event._replace(body=body, rows=rows, checksum=checksum))

    def erase(self) -> bool:
        """Overwrite what rewritten events have left; False if a reader may still need it."""
        with suppress(DamagedFile):
            bodies = self._bodies()
            with self._rewriting, self._pool.connection() as connection:
                return erasures.work_off(connection, bodies)
        return True

    def headers(self, after: int) -> list[tuple[int, str | None, str, int, str | None]]:
        """(position, key, fingerprint, rows, schema) of the events after a position that have a key or change the schema."""
        query = (
            "SELECT position, key, sha256, rows, schema FROM events "
            "WHERE position > ? AND (key IS NOT NULL OR schema IS NOT NULL) ORDER BY position LIMIT 10000"
        )
        return self._pool.all(query, (after,))

    def totals(self) -> Totals:
        """What the segment holds."""
        count, last, rows, size = self._pool.all(
            "SELECT COUNT(*), MAX(position), SUM(CASE WHEN kind='unlearn' THEN 0 ELSE rows END), SUM(size) FROM events"
        )[0]
        return Totals(self.first - 1 if last is None else last, count, self.rows_before() + (rows or 0), size or 0)

    def last(self) -> int:
        """Position of the last event, or first − 1."""
        found = self._pool.all("SELECT MAX(position) FROM events")[0][0]
        return self.first - 1 if found is None else int(found)

    def rows_before(self) -> int:
        """Rows of all events before this segment."""
        return self._told()[0]

    def check(self) -> None:
        """SQLite's own check of the whole index, and whose the bodies are; raises DamagedFile or ForeignFile."""
        with self._pool.connection() as connection:
            check_integrity(connection, self.path)
        self._bodies().check()

    def seal(self) -> bool:
        """Move what the WAL holds into the file and leave WAL mode, once no more is to be appended; False if in use.

        A sealed segment can be read where nothing can be written, a full disk among such places. It keeps no connections: a
        log of a thousand segments would run out of descriptors.
        """
        self._pool.rest()
        with self._pool.connection() as connection:
            connection.execute("PRAGMA busy_timeout=0")
            try:
                sealed = connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete"
            except sqlite3.OperationalError as e:
                if e.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                sealed = False
        if sealed:
            self.keep_none()
        return sealed

    def keep_none(self) -> None:
        """Close connections, those in use when they come back, from now on, and the bodies; the segment stays usable."""
        self._pool.keep_none()
        if self._about is not None:
            self._about[1].rest()

    def _keep_short(self, connection: sqlite3.Connection) -> None:
        """Let the WAL begin anew after SHORT transactions of rows without bodies, while it is a few pages long."""
        self._grown += 1
        if self._grown >= SHORT:
            self._grown = 0
            with suppress(sqlite3.Error):  # what was appended is durable; it is tried again in time
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _place(self, events: Sequence[Event]) -> tuple[Sequence[int | None], int]:
        """Where each event's body lies (None: in its row), and where the bodies file then ends; writes the bodies."""
        bodies = [e.body for e in events]
        if sum(map(len, bodies)) <= SMALL_BYTES:
            return [None] * len(events), self._end
        starts = self._bodies().write(bodies, self._end)
        return starts, starts[-1] + len(bodies[-1])

    def _events(self, query: str, values: tuple[Any, ...], max_bytes: int = _ALL) -> list[Event]:
        events: list[Event] = []
        size = 0
        with (
            Reader(self._bodies()) as bodies,
            self._pool.connection() as connection,
            one_view(connection),
            closing(connection.execute(query, values)) as cursor,
        ):
            for row in cursor:
                events.append(event_of(row, bodies.read, self.path))
                size += len(events[-1].body)
                if size >= max_bytes:
                    break
        return events

    def _bodies(self) -> Bodies:
        return self._told()[1]

    def _told(self) -> tuple[int, Bodies]:
        """Rows before the segment, and its bodies file."""
        if self._about is None:
            query = "SELECT rows_before, identity, digest FROM about"
            rows, identity, stored = (self._pool.all(query) or [(0, b"", None)])[0]
            if _digest(self.first, rows, identity) != stored:
                raise damaged(self.path, "its table `about` is not what was written")
            with self._telling:
                self._about = self._about or (rows, Bodies(self.path, identity))
        return self._about


def _digest(first: int, rows_before: int, identity: bytes) -> int:
    return digest(first, rows_before, identity)
