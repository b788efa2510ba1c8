"""sqlite_pool: a few connections to one SQLite file, each used by one thread at a time.

Cost: a connection that is there is taken in about 1 µs; a new one costs 0.2 ms. One that is kept holds up to 2 MB of pages
and two or three descriptors, so only files that are in use all the time keep some.

Why this way: it stands for "one connection per thread": threads come and go in a service, and a pool can be closed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stream_dr.log.sqlite_file import connect, translated

_KEPT = 4
"""Idle connections that are kept."""


class Pool:
    """Connections to the file at `path`, whose application_id must be `application`; thread-safe."""

    def __init__(self, path: Path, writable: bool, application: int) -> None:
        self.path, self._writable, self._application = path, writable, application
        self._idle: list[sqlite3.Connection] = []
        self._kept = _KEPT

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own for the time of the with-block; errors about the file are ours."""
        with translated(self.path):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self.path, self._writable, self._application)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
        if len(self._idle) >= self._kept:
            connection.close()
        else:
            self._idle.append(connection)

    def all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Every row of a query."""
        with self.connection() as connection:
            return connection.execute(query, values).fetchall()

    def rest(self) -> None:
        """Close idle connections; the pool stays usable."""
        while self._idle:
            with suppress(IndexError, sqlite3.Error):
                self._idle.pop().close()

    def keep_none(self) -> None:
        """Close idle connections, and from now on each one when it comes back; the pool stays usable."""
        self._kept = 0
        self.rest()
