"""event_row: an event as a row of a segment's index, and back.

A row has the event's fields, where its body lies, and a digest of all of these but the body. The body lies in the bodies
file at `start`, or in the row itself when `start` is NULL. The column of the fingerprint is called sha256, which it was at
first.

Cost: about 2 µs a row each way; the digest, checked on every read, 1 µs of them.

Why this way: a flipped start or row count would be learned from, so the read checks what costs 1 µs. The body has a digest
of its own, which costs 0.1 ms a megabyte (0.5 where it is a SHA-256) and would slow reading down: `verify` checks that.
"""

import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from stream_dr.failpoints import failpoint
from stream_dr.log.digest import digest
from stream_dr.log.event import Event
from stream_dr.log.sqlite_file import damaged, transaction

TABLE = """
CREATE TABLE events(
  position INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT, sha256 TEXT NOT NULL, rows INTEGER NOT NULL,
  schema TEXT, checksum TEXT, start INTEGER, size INTEGER NOT NULL, digest INTEGER NOT NULL, body BLOB);
CREATE INDEX unlearned ON events(position) WHERE kind='unlearn';
"""
COLUMNS = "position, kind, key, sha256, rows, schema, checksum, start, size, digest, body"
_VALUES = "(?,?,?,?,?,?,?,?,?,?,?)"
INSERT = f"INSERT INTO events({COLUMNS}) VALUES {_VALUES}"

AT_ONCE = 16
"""Rows that are inserted by one statement."""


def row_of(event: Event, start: int | None) -> tuple[Any, ...]:
    """The row of an event whose body lies at `start` of the bodies file, or in the row when None."""
    e = event
    header = (e.position, e.kind, e.key, e.fingerprint, e.rows, e.schema, e.checksum, start, len(e.body))
    return (*header, digest(*header), e.body if start is None else None)


def insert(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows in one transaction; all or none.

    Cost: a few rows are one statement, which is its own transaction. sqlite3 lets go of the interpreter at each step of each
    statement, and beside other threads has to wait for it then: BEGIN, a row at a time and COMMIT took 1.4 ms there.
    """
    if len(rows) <= AT_ONCE:
        failpoint("log.before_commit")
        connection.execute(INSERT + f",{_VALUES}" * (len(rows) - 1), list(chain.from_iterable(rows)))
        return
    with transaction(connection):
        connection.executemany(INSERT, rows)
        failpoint("log.before_commit")


def event_of(row: tuple[Any, ...], body_at: Callable[[int, int], bytes], path: Path) -> Event:
    """The event of a row; `body_at(start, size)` reads the bodies file. Raises DamagedFile naming `path`."""
    *header, stored, body = row
    position, kind, key, fingerprint, rows, schema, checksum, start, size = header
    if digest(*header) != stored:
        raise damaged(path, f"the header of event {position} is not what was written")
    if start is not None:
        body = body_at(start, size)
    elif type(body) is not bytes or len(body) != size:
        raise damaged(path, f"the body of event {position} is not the {size} bytes that were written")
    return Event(position, kind, key, fingerprint, rows, body, schema, checksum)
