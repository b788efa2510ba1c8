"""key_index: idempotency keys and schema changes of the log, found without reading events.

The last 1,000,000 keys by count (not by clock), those of references to shards however old (a replay given again asks for
each), and every change of the stream's schema, in `index.sqlite` beside the segments. Derived: a crash loses its tail, which
is read again from the events when the log is opened. Before a segment is dropped, what it says is made durable here.

Cost: a lookup about 10 µs; an entry is kept in memory until 4,096 are there, then all go in one transaction without fsync
(about 5 µs each); about 160 bytes an entry on disk, none in memory. Every entry has a digest, checked when found (1 µs).

An append that is in the log has succeeded, so a disk too full for the index is no error of it.

Why this way: a clock would make "is this key known" depend on when a retry comes; a count makes it depend on the stream
alone. The events are the truth, so the append's transaction touches one file only.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from stream_dr.disk import TEMPORARY, fsync_directory
from stream_dr.errors import InsufficientStorage
from stream_dr.log.digest import digest
from stream_dr.log.sqlite_file import FORMAT, check_integrity, connect, damaged, transaction, translated

_APPLICATION = 0x5344524B  # "SDRK"
_FLUSH = 4096
LASTING = "reference:"
"""Keys that begin so are never forgotten."""

_TABLES = """
CREATE TABLE keys(position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL, rows INTEGER NOT NULL,
  digest INTEGER NOT NULL);
CREATE TABLE schemas(position INTEGER PRIMARY KEY, schema TEXT NOT NULL, digest INTEGER NOT NULL);
CREATE TABLE known(position INTEGER NOT NULL, digest INTEGER NOT NULL);
"""
_KEYS = "SELECT position, key, sha256, rows, digest FROM keys"
_SCHEMAS = "SELECT position, schema, digest FROM schemas"
_KNOWN = "SELECT position, digest FROM known"


class Known(NamedTuple):
    """What is known of a key: the event it became, its fingerprint and its rows."""

    position: int
    fingerprint: str
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
        try:
            self.known = self._stored_position()
        except BaseException:
            self.abandon()
            raise

    def add(self, position: int, key: str | None, fingerprint: str, rows: int, schema: str | None) -> None:
        """Note one event; a key already there keeps its first event."""
        if key is not None and self.find(key) is None:
            self._pending[key] = Known(position, fingerprint, rows)
        self.known = position
        if schema is not None:
            self._schemas[position] = schema
        if len(self._pending) + len(self._schemas) >= self._flush_at:
            self.try_flush()

    def follow(self, segments: Sequence[Any], last: int) -> None:
        """Read the keys and schema changes of segments, oldest first, that are not known; the log ends at `last`. What is
        known past it is forgotten: the log goes on without."""
        if self.known > last and self._writable and self._connection is not None:
            self._cut(self._connection, last)
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is not None and following.first <= self.known + 1:
                continue
            after = self.known
            while found := segment.headers(after):
                for header in found:
                    self.add(*header)
                after = found[-1][0]
        self.known = last

    def find(self, key: str) -> Known | None:
        """What is known of a key, or None."""
        if key in self._pending or self._connection is None:
            return self._pending.get(key)
        with translated(self.path):
            row = self._connection.execute(f"{_KEYS} WHERE key=?", (key,)).fetchone()
        if row is None:
            return None
        position, _, fingerprint, rows = self._sound(row)
        return Known(position, fingerprint, rows)

    def schemas(self) -> list[str]:
        """Every change of the stream's schema, oldest first."""
        stored: dict[int, str] = {}
        if self._connection is not None:
            with translated(self.path):
                rows = self._connection.execute(_SCHEMAS).fetchall()
            stored = dict(map(self._sound, rows))
        return [text for _, text in sorted({**stored, **self._schemas}.items())]

    def check(self) -> None:
        """SQLite's own check of the file, and every entry's digest; raises DamagedFile."""
        if self._connection is None:
            return
        with translated(self.path):
            check_integrity(self._connection, self.path)
            for query in (_KEYS, _SCHEMAS, _KNOWN):
                for row in self._connection.execute(query):
                    self._sound(row)

    def try_flush(self) -> None:
        """Write what is in memory if the disk has room; if not, keep it and try again 4,096 entries later."""
        try:
            self.flush()
        except InsufficientStorage:
            self._flush_at += _FLUSH

    def flush(self, durable: bool = False) -> None:
        """Write what is in memory; `durable` also waits for the disk, for what was written before as well."""
        if self._connection is None or not self._writable:
            return
        with translated(self.path):
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._write(self._connection)
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

    def _cut(self, connection: sqlite3.Connection, last: int) -> None:
        with translated(self.path), transaction(connection):
            connection.execute("DELETE FROM keys WHERE position > ?", (last,))
            connection.execute("DELETE FROM schemas WHERE position > ?", (last,))
            connection.execute("UPDATE known SET position=?, digest=?", _with_digest(last))
        self.known = last

    def _write(self, connection: sqlite3.Connection) -> None:
        keys = [
            _with_digest(known.position, key, known.fingerprint, known.rows) for key, known in self._pending.items()
        ]
        with transaction(connection):
            connection.executemany("INSERT OR IGNORE INTO keys VALUES (?,?,?,?,?)", keys)
            schemas = [_with_digest(*change) for change in self._schemas.items()]
            connection.executemany("INSERT OR IGNORE INTO schemas VALUES (?,?,?)", schemas)
            connection.execute("UPDATE known SET position=?, digest=?", _with_digest(self.known))
            connection.execute(
                "DELETE FROM keys WHERE position <= "
                "(SELECT position FROM keys ORDER BY position DESC LIMIT 1 OFFSET ?) AND key NOT GLOB ?",
                (self._keys, f"{LASTING}*"),
            )

    def _stored_position(self) -> int:
        if self._connection is None:
            return -1
        with translated(self.path):
            row = self._connection.execute(_KNOWN).fetchone()
        return int(self._sound(row or (None, None))[0])

    def _sound(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row without its digest; raises DamagedFile when that is another's."""
        if digest(*row[:-1]) != row[-1]:
            raise damaged(self.path, f"the entry of position {row[0]} is not what was written")
        return row[:-1]

    def _create(self) -> None:
        temporary = self.path.with_name(self.path.name + TEMPORARY)
        temporary.unlink(missing_ok=True)
        with translated(self.path), closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.executescript(_TABLES)
            connection.execute("INSERT INTO known VALUES (?,?)", _with_digest(-1))
            connection.execute("PRAGMA journal_mode=WAL")
        temporary.rename(self.path)
        fsync_directory(self.path.parent)


def _with_digest(*fields: Any) -> tuple[Any, ...]:
    return (*fields, digest(*fields))
