"""key_index: idempotency keys and schema changes of the log, found without reading events.

The last 1,000,000 keys by count (not by clock), and every change of the stream's schema, in `index.sqlite` beside the
segments. Derived: a crash loses its tail, which is read again from the events when the log is opened. Before a segment is
dropped, what it says is made durable here.

Cost: a lookup about 10 µs; an entry is kept in memory until 4,096 are there, then all go in one transaction without fsync
(about 5 µs each); about 150 bytes an entry on disk, none in memory.

An append that is in the log has succeeded, so a disk too full for the index is no error of it.

Why this way: a clock would make "is this key known" depend on when a retry comes; a count makes it depend on the stream
alone. The events are the truth, so the append's transaction touches one file only.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from stream_dr.errors import InsufficientStorage
from stream_dr.streams.disk import TEMPORARY, fsync_directory
from stream_dr.streams.sqlite_file import FORMAT, connect, transaction, translated

_APPLICATION = 0x5344524B  # "SDRK"
_FLUSH = 4096
_TABLES = """
CREATE TABLE keys(position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL, rows INTEGER NOT NULL);
CREATE TABLE schemas(position INTEGER PRIMARY KEY, schema TEXT NOT NULL);
CREATE TABLE known(position INTEGER NOT NULL);
INSERT INTO known VALUES (-1);
"""


class Known(NamedTuple):
    """What is known of a key: the event it became, its body's sha256 and its rows."""

    position: int
    sha256: str
    rows: int


class KeyIndex:
    """The index; not thread-safe, its owner locks. A read-only one keeps what it derives in memory."""

    def __init__(self, folder: Path, writable: bool, keys: int = 1_000_000) -> None:
        self.path, self._writable, self._keys = folder / "index.sqlite", writable, keys
        self._pending: dict[str, Known] = {}
        self._schemas: dict[int, str] = {}
        self._flush_at = _FLUSH
        self._connection: sqlite3.Connection | None = None
        if not self.path.exists() and writable:
            self._create()
        if self.path.exists():
            with translated(self.path):
                self._connection = connect(self.path, writable, _APPLICATION)
                self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            self.known = self._stored_position()
        except BaseException:
            self.abandon()
            raise

    def add(self, position: int, key: str | None, sha256: str, rows: int, schema: str | None) -> None:
        """Note one event; a key already there keeps its first event."""
        self.known = position
        if key is not None and self.find(key) is None:
            self._pending[key] = Known(position, sha256, rows)
        if schema is not None:
            self._schemas[position] = schema
        if len(self._pending) + len(self._schemas) >= self._flush_at:
            self.try_flush()

    def find(self, key: str) -> Known | None:
        """What is known of a key, or None."""
        if key in self._pending or self._connection is None:
            return self._pending.get(key)
        with translated(self.path):
            row = self._connection.execute("SELECT position, sha256, rows FROM keys WHERE key=?", (key,)).fetchone()
        return Known(*row) if row else None

    def schemas(self) -> list[str]:
        """Every change of the stream's schema, oldest first."""
        stored: Iterable[tuple[int, str]] = ()
        if self._connection is not None:
            with translated(self.path):
                stored = self._connection.execute("SELECT position, schema FROM schemas").fetchall()
        return [text for _, text in sorted({**dict(stored), **self._schemas}.items())]

    def try_flush(self) -> None:
        """Write what is in memory if the disk has room; if not, keep it and try again 4,096 entries later."""
        try:
            self.flush()
        except InsufficientStorage:
            self._flush_at += _FLUSH

    def flush(self, durable: bool = False) -> None:
        """Write what is in memory; `durable` also waits for the disk."""
        if self._connection is None or not self._writable:
            return
        with translated(self.path):
            self._write(self._connection)
            if durable:
                self._connection.execute("PRAGMA synchronous=FULL")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._connection.execute("PRAGMA synchronous=NORMAL")
        self._pending.clear()
        self._schemas.clear()
        self._flush_at = _FLUSH

    def close(self) -> None:
        """Write what is in memory, if the disk has room, and close."""
        self.try_flush()
        self.abandon()

    def abandon(self) -> None:
        """Close without writing; what was in memory is derived again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, connection: sqlite3.Connection) -> None:
        rows = [(known.position, key, known.sha256, known.rows) for key, known in self._pending.items()]
        with transaction(connection):
            connection.executemany("INSERT OR IGNORE INTO keys VALUES (?,?,?,?)", rows)
            connection.executemany("INSERT OR IGNORE INTO schemas VALUES (?,?)", self._schemas.items())
            connection.execute("UPDATE known SET position=?", (self.known,))
            connection.execute(
                "DELETE FROM keys WHERE position <= "
                "(SELECT position FROM keys ORDER BY position DESC LIMIT 1 OFFSET ?)",
                (self._keys,),
            )

    def _stored_position(self) -> int:
        if self._connection is None:
            return -1
        with translated(self.path):
            return int(self._connection.execute("SELECT position FROM known").fetchone()[0])

    def _create(self) -> None:
        temporary = self.path.with_name(self.path.name + TEMPORARY)
        temporary.unlink(missing_ok=True)
        with translated(self.path), closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.executescript(_TABLES)
            connection.execute("PRAGMA journal_mode=WAL")
        temporary.rename(self.path)
        fsync_directory(self.path.parent)
