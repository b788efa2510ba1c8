"""log: the durable, ordered record of everything a directory was given; the queue between appending and learning.

Events have positions 0, 1, 2 … without gap. `append` returns when they are on the disk.

Cost: an append of a group is one fdatasync of its rows' bodies and one transaction; `python
benchmarks/log_append.py` prints appends/s and MB/s by size of body and group. A read of n events holds no lock, no cursor
and no file on return.

Why this way: kill -9 at any moment leaves a prefix of the transactions with all acknowledged ones. SQLite does the recovery
because it is well tested: a hand-written log read a zero-filled tail as 42 records. A log that ends before what was
acknowledged (head.py), and a reader that finds a position missing, raise instead of going on. Locks may fail (a file system
without them, a directory copied into place), so a write looks, within its transaction, whether the log ends as it knows.
"""

import os
import sqlite3
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from stream_dr.errors import DamagedFile, DirectoryInUse, HistoryGone, StreamDRError, without_frames
from stream_dr.failpoints import failpoint
from stream_dr.log import index as tables
from stream_dr.log.bodies import Reader
from stream_dr.log.event import Event, EventDraft, draft, event_at, sha256_of
from stream_dr.log.folder import prepare, tidy
from stream_dr.log.head import Head, displaced, file_numbers, gone, lost
from stream_dr.log.index import Current, Ends, Hashes, Index, Known, row_of
from stream_dr.log.sqlite_file import damaged_file, one_view, transaction

__all__ = ["Event", "EventDraft", "Known", "Log", "Verified", "draft"]

_ALL = 2**63 - 1

PATIENCE_MS = 200
"""Milliseconds for which an erasure waits for readers, and appends wait with it."""


class Verified(NamedTuple):
    """What `verify` read: events, rows of all ever appended, and bytes of bodies."""

    events: int
    rows: int
    bytes: int


class Log(AbstractContextManager["Log"]):
    """The log in a folder.

    path: the log's own folder, made if `writable`. file_bytes: a new file of bodies is begun past this. keys: how many
    idempotency keys are remembered. at_least: a position the log has reached, as others know. The caller holds the
    directory's lock when writable. displaced: why nothing is written any more, else None. Thread-safe. Raises
    DirectoryMissing, ForeignFile, UnknownFormat, DamagedFile.

    To write, every file of bodies must be there, its own and as long as it was written, and an index that was copied is
    checked as a whole, once: O(events + keys). Each event, key and body is checked when it is read, and all of them by
    `verify`: that reads everything.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        writable: bool = True,
        file_bytes: int = 64 << 20,
        keys: int = tables.KEYS,
        at_least: int = -1,
    ) -> None:
        self.path, self.writable = Path(path), writable
        self._file_bytes, self._keys = file_bytes, keys
        self._lock, self._erasing = threading.RLock(), threading.Lock()
        self._ends = Ends(0, -1, 0)
        self._current: Current | None = None
        self._perhaps = self._ends  # where it ends, should a write that raised be in it all the same
        self._unsure = self._noted = writable
        self.displaced: DirectoryInUse | None = None
        self._closed = False
        prepare(self.path, writable, at_least)
        self._database = tables.database(self.path, writable)
        self._index = file_numbers(self._database.path)
        self._head = Head(self.path, writable)
        try:
            if writable:
                with self._database.connection() as connection:
                    tables.add_ids(connection)
                if not self._head.is_of(self._database.path):
                    with self._view() as index:
                        index.check(self._keys)
                self._sure(opening=True)
                self._head.write(self._ends.last)
                self._head.note(self._database.path)
                self.erase()
            else:
                self._ends = self._look()
        except BaseException:
            self.close()
            raise

    @property
    def last(self) -> int:
        """Position of the last event, −1 if there is none."""
        return self._look().last

    @property
    def first(self) -> int:
        """Position of the first event still held (0 if there is none)."""
        return self._look().first

    @property
    def rows(self) -> int:
        """Rows of all events ever appended, dropped ones included; unlearn events count none."""
        return self._look().rows

    def append(self, drafts: Sequence[EventDraft]) -> list[int]:
        """Append in order, in one transaction; the positions, durable on return. All or none.

        Raises InsufficientStorage when the disk is full; the log is as before and can be appended to when there is room.
        Raises DirectoryInUse, as every later write does, where another process has written to the log, or it was moved.
        """
        with self._lock:
            if not drafts:
                return []
            self._sure()
            events = [event_at(position, d) for position, d in enumerate(drafts, self._ends.last + 1)]
            counts = (0 if e.kind == "unlearn" else e.rows for e in events)
            totals = list(accumulate(counts, initial=self._ends.rows))[1:]
            self._perhaps = Ends(self._ends.first, events[-1].position, totals[-1])
            with self._write() as connection:
                places, current = tables.put(self.path, events, self._current, self._file_bytes, self._ends.last + 1)
                ids = {e.position: d.ids for e, d in zip(events, drafts, strict=True) if d.ids is not None}
                rows = map(row_of, events, totals, places)
                tables.append(connection, self.path, events, rows, current, self._keys, ids)
            self._ends, self._current = self._perhaps, current or self._current
            self._head.write(self._ends.last)
            failpoint("log.after_commit")
        if self._noted:
            with suppress(StreamDRError, sqlite3.Error, OSError):  # the append has succeeded
                self.erase(patience_ms=0)
        return [e.position for e in events]

    def read(self, after: int, until: int | None = None, limit: int = 100, max_bytes: int = 64 << 20) -> list[Event]:
        """At most `limit` events with after < position ≤ until, in order; fewer once their bodies pass max_bytes.

        An empty list means that there are none (yet). Raises HistoryGone when after + 1 was dropped, DamagedFile when a
        position is missing."""
        ends = self._look()
        end = min(ends.last, _ALL if until is None else until)
        if after + 1 < ends.first:
            raise gone(after, ends.first)
        if after >= end:
            return []
        try:
            events = self._events(
                "position > ? AND position <= ? ORDER BY position LIMIT ?", (after, end, limit), max_bytes
            )
            found = [event.position for event in events] or [end + 1]
            for expected, position in enumerate(found, after + 1):
                if position != expected:
                    raise damaged_file(self._database.path, f"position {expected} is missing")
        except DamagedFile:
            if after + 1 < self.first:  # dropped meanwhile
                raise gone(after, self.first) from None
            raise
        return events

    def read_kind(self, kind: str, before: int, after: int = -1) -> list[Event]:
        """The retained events of a kind with after < position < before; for kinds that are few ("unlearn": indexed)."""
        where = "kind='unlearn'" if kind == "unlearn" else "kind=?"  # a partial index needs the literal
        first = max(self.first, after + 1)
        values = (first, before) if kind == "unlearn" else (first, before, kind)
        try:
            return self._events(f"position >= ? AND position < ? AND {where} ORDER BY position", values)
        except DamagedFile:
            if first < self.first:  # dropped meanwhile
                return self.read_kind(kind, before, after)
            raise

    def read_readable(self, kind: str) -> list[Event]:
        """The retained events of a kind, but for those that are damaged, which are for `verify` to name."""
        ends, events = self._look(), list[Event]()
        with suppress(StreamDRError):
            return self.read_kind(kind, ends.last + 1)
        for position in range(ends.first, ends.last + 1):
            with suppress(StreamDRError):
                events += self.read(position - 1, position)
        return [e for e in events if e.kind == kind]

    def holding(self, rows: int) -> int:
        """The last position from which on the log holds at least `rows` rows; `first` where none does."""
        with self._view() as index:
            ends = self._look()
            return ends.first + bisect_right(range(ends.first, ends.last + 1), ends.rows - rows, key=index.total)

    def find_key(self, key: str) -> Known | None:
        """(position, fingerprint, rows) of the event an idempotency key became, or None."""
        with self._lock:
            self._sure()
        with self._view() as index:
            return index.find_key(key)

    def with_ids(self, hashes: np.ndarray) -> list[int]:
        """Positions of the retained events that may have rows with ids of these hashes (`ids.id_hashes`), in order."""
        with self._view() as index:
            return [position for position in index.with_ids(hashes) if position >= self.first]

    def not_indexed(self) -> list[tuple[int, int]]:
        """(first, last) position of events that were appended before ids were noted, or could not be read since."""
        with self._view() as index:
            return index.not_indexed()

    def index_ids(self, last: int, until: int, hashes: Hashes, unread: Sequence[int]) -> None:
        """Note hashes of ids by position: of the events that were not indexed up to `last`, those up to `until` are now, but
        for the unread ones."""
        with self._lock, self._write() as connection:
            tables.index_ids(connection, self.path, last, until, hashes, unread)

    def schema_changes(self) -> list[str]:
        """The JSON texts by which events changed the stream's schema, oldest first; dropped events' included."""
        with self._view() as index:
            return index.schemas()

    def rewrite(self, position: int, body: bytes, rows: int, erase: bool = True) -> None:
        """Replace an event's body and row count (rows taken out by unlearn); its key and fingerprint stay, and the log's
        `rows` goes on counting what was once appended.

        The old bytes are then overwritten on the disk, or (erase=False, for several events) by `erase`.
        """
        with self._lock:
            (event,) = self._events("position = ?", (position,))
            event = event._replace(body=body, rows=rows, checksum=sha256_of(body))
            with self._write() as connection:
                self._noted = True
                (place,), current = tables.put(self.path, [event], self._current, self._file_bytes, self._ends.last + 1)
                tables.replace(connection, self.path, event, place, current)
            self._current = current or self._current
            failpoint("log.rewritten")
        if erase:
            self.erase()

    def erase(self, patience_ms: int = PATIENCE_MS) -> bool:
        """Overwrite what rewritten events have left, also before a crash: whether no byte of it is on the disk now.

        What a reader may still need stays, noted in the index, until the next call, append or opening. Damage of a file is
        said when that is read.
        """
        if not self._erasing.acquire(blocking=False):
            return False
        try:
            with self._lock:
                if self._closed or not self._noted:
                    return not self._noted
                with self._database.connection() as connection:
                    noted = Index(self.path, connection).erasures()
                    if noted and not tables.emptied(connection, patience_ms):
                        return False
                self._noted = bool(noted)
            return not noted or self._overwrite(noted)
        finally:
            self._erasing.release()

    def begin_at(self, position: int) -> int:
        """Let nothing before a position be read any more, but for the last event; the position of what is now the first."""
        with self._lock:
            self._sure()
            self._ends = self._ends._replace(first=max(self._ends.first, min(position, self._ends.last)))
            return self._ends.first

    def drop_before(self, position: int) -> int:
        """Remove the events before a position, never the last one, and give their space back; the number removed.

        Done in short transactions, between which others append: it takes at most half of the disk's time.
        """
        first, dropped, more = self.begin_at(position), 0, True
        while more:
            begun = time.monotonic()
            with self._lock:
                if self._closed:
                    break
                with self._write() as connection:
                    some, files = tables.drop_some(connection, first)
                failpoint("log.dropped")
                with self._database.connection() as connection:
                    more = tables.give_back(connection, self.path, files) or some > 0
            dropped += some
            time.sleep(time.monotonic() - begun)
        return dropped

    def verify(self) -> Verified:
        """Read everything: SQLite's check of the index, no position missing, every row's digest, every body's.

        Raises DamagedFile naming file and position. Cost: one read of the log; memory: about 1 MB, or one event."""
        known, ends, count, size = self._head.read(), self._look(), 0, 0
        with self._view() as index:
            index.check(self._keys)
        for listed in self._files():
            try:
                listed.file.check(listed.end)
            except StreamDRError:
                if listed.first in (now.first for now in self._files()):  # not dropped meanwhile
                    raise
        after = ends.first - 1
        while after < ends.last:
            try:
                events = self.read(after, limit=64, max_bytes=1 << 20)
            except HistoryGone:
                after = self.first - 1
                continue
            for event in events:
                if not event.intact:
                    with self._view() as index:
                        raise index.spoilt(event.position)
            count, size, after = count + len(events), size + sum(len(e.body) for e in events), events[-1].position
        if ends.last < known:
            raise lost(self._database.path, ends.last, known)
        return Verified(count, ends.rows, size)

    def check_writer(self) -> None:
        """Raise DirectoryInUse where another process has written to the log, or it was moved."""
        with self._lock, self._write():
            pass

    def close(self) -> None:
        """Close every connection; reads in progress finish."""
        with self._lock:
            self._closed = True
            self._head.close()
            self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _view(self) -> Iterator[Index]:
        """The index as it is now, for the time of the with-block."""
        with self._database.connection() as connection, one_view(connection):
            yield Index(self.path, connection)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """A transaction in a log that ends where this writer knows it to; an error there leaves it open whether it is in the
        log all the same. Raises DirectoryInUse."""
        self._sure()
        try:
            with self._transaction() as (connection, index):
                if (index.ends()[1:], index.current()) != (self._ends[1:], self._current):
                    self._stop("another process has written to it")
                yield connection
        except BaseException:
            self._unsure = True
            raise

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, Index]]:
        """A transaction, during which no other process writes, unless this one is no longer to."""
        if self.displaced is not None:
            raise without_frames(self.displaced)
        if file_numbers(self._database.path) != self._index:
            self._stop("it was moved or replaced")
        with self._database.connection() as connection, transaction(connection):
            yield connection, Index(self.path, connection)

    def _stop(self, why: str) -> NoReturn:
        self.displaced = displaced(self.path, why)
        raise self.displaced

    def _look(self) -> Ends:
        """Where the log begins and ends; a read-only log looks again, because another process may have appended."""
        if self.writable:
            return self._ends
        with self._view() as index:
            return index.ends()

    def _files(self) -> list[Current]:
        with self._view() as index:
            return index.files()

    def _sure(self, opening: bool = False) -> None:
        """Learn from the files where the log ends, at first and where a write raised, and remove what is past it."""
        if not self._unsure:
            return
        with self._transaction() as (_, index):  # what another process is about to commit is not past it
            ends, files = index.ends(), index.files()
            if not opening and ends[1:] not in (self._ends[1:], self._perhaps[1:]):
                self._stop("another process has written to it")
            self._ends = self._perhaps = ends._replace(first=max(ends.first, self._ends.first))
            self._current = files[-1] if files else None
            for listed in files if opening else files[-1:]:
                listed.file.check(listed.end, cut=listed is self._current)
            tidy(self.path, files)
        self._unsure = False

    def _events(self, where: str, values: tuple[object, ...], max_bytes: int = _ALL) -> list[Event]:
        """Events, in order; no more once their bodies pass max_bytes."""
        events, size = list[Event](), 0
        with self._view() as index, Reader(index.file) as bodies:
            for event in index.events(where, values, bodies.read):
                events.append(event)
                size += len(event.body)
                if size >= max_bytes:
                    break
        return events

    def _overwrite(self, noted: list[tuple[int, int, int, int]]) -> bool:
        """Overwrite what nobody can read any more, and what noted it; whether nothing has been noted since."""
        files = {listed.first: listed.file for listed in self._files()}
        for _, file, start, size in noted:
            if file in files:  # not dropped
                with suppress(DamagedFile):
                    files[file].erase(start, size)
        failpoint("log.erased")
        with self._lock, self._write() as connection:
            connection.executemany("DELETE FROM erasures WHERE id=?", [(id,) for id, *_ in noted])
            self._noted = bool(Index(self.path, connection).erasures())
            return not self._noted
