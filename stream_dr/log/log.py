"""Log: the durable, ordered record of a directory's events.

The log is a write-ahead log. Models learn the events in the order of the log. Events have
positions 0, 1, 2 … without gap. When `append` returns, the events are on the disk.

Recovery: after kill -9 at any moment, the log holds the first transactions without gap, and at
least all acknowledged transactions. SQLite does the recovery, because SQLite is well tested. A
hand-written log once read a zero-filled tail as 42 records. If a log ends before the last
acknowledged event (head.py), opening the log raises an error. If a position is missing, reading
the log raises an error.

Cost: an append of a group of events is one fdatasync of the events' bodies (payloads) and one
transaction. `python -m benchmarks.perf log_append` prints appends/s and MB/s by size of body and
group.
"""

import os
import sqlite3
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stream_dr.errors import (
    DamagedFile,
    DirectoryInUse,
    DirectoryMissing,
    HistoryGone,
    StreamDRError,
    remove_stack_frames,
)
from stream_dr.failpoints import failpoint
from stream_dr.log import index as tables
from stream_dr.log.bodies import BodyReader
from stream_dr.log.event import Event, EventDraft, EventKind, event_of_draft, xxh64_digest
from stream_dr.log.folder import create_or_check_log
from stream_dr.log.head import (
    HeadFile,
    device_and_inode,
    history_gone_error,
    moved_log_error,
    truncated_log_error,
)
from stream_dr.log.index import BodyFileEntry, Index, KnownEvent, LogBounds, event_table_row
from stream_dr.log.sqlite_file import commit_or_rollback, damaged_file_error, read_transaction

# No position and no number of bytes reaches this limit.
_ALL = 2**63 - 1


AlsoInTransaction = Callable[[sqlite3.Connection, Sequence[Event]], None]
"""Function that changes tables in the transaction that appends these events."""


class Verified(NamedTuple):
    """Numbers of items that `verify` has read.

    events: number of events.
    rows: number of rows of all events ever appended.
    bytes: number of bytes of event payloads.
    """

    events: int
    rows: int
    bytes: int


class LogReader:
    """The reading half of a log. Thread-safe.

    A reader sees the log as one consistent snapshot of its index. Readers and the writer never
    wait for each other. So the body (payload) of an event may be overwritten or removed after a
    reader has read the body's place from the index. The reader then reads the place again.

    When a method returns, it holds no lock, no cursor and no file. Each event and each table row
    is checked when it is read. `verify` checks all events and table rows.

    path: path of the log's folder.
    writable: True if this process is the writer. The writer knows where the log begins and ends.
    max_keys: number of idempotency keys that the log stores.
    """

    def __init__(self, path: Path, writable: bool, max_keys: int = tables.KEYS) -> None:
        self.path = path
        self.writable = writable
        self._keys = max_keys
        self._database = tables.open_existing_index_database(path, writable)
        self._head = HeadFile(path, writable)
        self._ends = LogBounds(0, -1, 0)

    @property
    def last(self) -> int:
        """Position of the last event, −1 if there is none."""
        return self._bounds().last

    @property
    def first(self) -> int:
        """Position of the first stored event. 0 if there is none."""
        return self._bounds().first

    @property
    def rows_appended(self) -> int:
        """Number of rows of all events ever appended.

        Dropped events count. Unlearn events have no rows.
        """
        return self._bounds().rows

    def read(self, after: int, until: int | None = None, limit: int = 100, max_bytes: int = 64 << 20) -> list[Event]:
        """Return events with after < position ≤ until, in order.

        At most `limit` events are returned. The list ends earlier if the bodies (payloads) of the
        events exceed max_bytes bytes. An empty list means that there are no such events yet.

        Raises HistoryGone if the event at position after + 1 was dropped. Raises DamagedFile if a
        position is missing.
        """
        ends = self._bounds()
        end = min(ends.last, _ALL if until is None else until)
        if after + 1 < ends.first:
            raise history_gone_error(after, ends.first)
        if after >= end:
            return []

        try:
            condition = "position > ? AND position <= ? ORDER BY position LIMIT ?"
            events = self._select_events(condition, (after, end, limit), max_bytes)
            positions = [event.position for event in events] or [end + 1]
            for expected, position in enumerate(positions, after + 1):
                if position != expected:
                    raise damaged_file_error(self._database.path, f"position {expected} is missing")
        except DamagedFile:
            # The events may have been dropped while they were read.
            if after + 1 < self.first:
                raise history_gone_error(after, self.first) from None
            raise
        return events

    def read_events_of_kind(self, kind: EventKind, before: int, after: int = -1) -> list[Event]:
        """Return events of a kind, with after < position < before.

        Use this method for kinds with few events. For unlearn events the query is fast, because
        they have a SQL index of their own.
        """
        # SQLite uses a partial index only if the query contains the value itself.
        where = "kind='unlearn'" if kind == "unlearn" else "kind=?"
        first = max(self.first, after + 1)
        values = (first, before) if kind == "unlearn" else (first, before, kind)
        try:
            return self._select_events(f"position >= ? AND position < ? AND {where} ORDER BY position", values)
        except DamagedFile:
            # The events may have been dropped while they were read.
            if first < self.first:
                return self.read_events_of_kind(kind, before, after)
            raise

    def read_undamaged_events(self, kind: EventKind) -> list[Event]:
        """Return a kind's stored events that are not damaged.

        `verify` names the damaged events.
        """
        ends = self._bounds()
        with suppress(StreamDRError):
            return self.read_events_of_kind(kind, ends.last + 1)

        events = list[Event]()
        for position in range(ends.first, ends.last + 1):
            with suppress(StreamDRError):
                events += self.read(position - 1, position)
        return [e for e in events if e.kind == kind]

    def position_before_newest(self, n_rows: int) -> int:
        """Return the largest position from which on events have `n_rows` rows.

        The events from this position on may have more rows. If all events together have fewer rows,
        the position of the first event is returned.
        """
        with self._index_view() as index:
            ends = self._bounds()
            return ends.first + bisect_right(
                range(ends.first, ends.last + 1), ends.rows - n_rows, key=index.rows_appended_up_to
            )

    def positions_with_ids(self, id_hashes: np.ndarray) -> list[int]:
        """Return positions of stored events that may have these ids.

        The positions ascend. Different ids may have the same hash, so read the events to find out.

        id_hashes: hashes of the ids (`ids.id_hashes`).
        """
        with self._index_view() as index:
            return [position for position in index.positions_with_ids(id_hashes) if position >= self.first]

    def schema_changes(self) -> list[str]:
        """Return all changes of the schema as JSON, oldest first.

        Changes by events that were dropped are included.
        """
        with self._index_view() as index:
            return index.schema_changes()

    def missing_files(self) -> list[Path]:
        """Return the paths of listed payload files that do not exist."""
        with self._index_view() as index:
            paths = [listed.file.path for listed in index.files()]
        return [path for path in paths if not path.exists()]

    def verify(self, check_event: Callable[[Event], object] = lambda event: None) -> Verified:
        """Read the whole log and check it.

        check_event: function that receives each event whose digest is right, and raises an error
            if the event is bad in another way.

        These checks are made:

        * SQLite's own check of the index
        * no position is missing
        * the digest of each table row and of each body (payload)
        * the log does not end before the last acknowledged event

        Memory: about 1 MB, or one event. Raises DamagedFile, which names file and position.
        """
        known = self._head.read_acknowledged_position()
        ends = self._bounds()
        with self._index_view() as index:
            index.check(self._keys)

        for listed in self._files():
            try:
                listed.file.check(listed.end)
            except StreamDRError:
                # An error does not matter if retention has removed the file since it was listed.
                if listed.first in (now.first for now in self._files()):
                    raise

        count = 0
        size = 0
        after = ends.first - 1
        while after < ends.last:
            try:
                events = self.read(after, limit=64, max_bytes=1 << 20)
            except HistoryGone:
                after = self.first - 1
                continue

            for event in events:
                if not event.intact:
                    with self._index_view() as index:
                        raise index.damaged_body_error(event.position)
                check_event(event)
            count += len(events)
            size += sum(len(e.body) for e in events)
            after = events[-1].position

        if ends.last < known:
            raise truncated_log_error(self._database.path, ends.last, known)
        return Verified(count, ends.rows, size)

    @contextmanager
    def _index_view(self) -> Iterator[Index]:
        """Open a read transaction on the index.

        Within the with-block, the index is one consistent snapshot.
        """
        with self._database.connection() as connection, read_transaction(connection):
            yield Index(self.path, connection)

    def _bounds(self) -> LogBounds:
        """Return the log's first position, last position and number of rows.

        A read-only log reads the bounds each time, because another process may have appended.
        """
        if self.writable:
            return self._ends
        with self._index_view() as index:
            return index.bounds_and_total_rows()

    def _files(self) -> list[BodyFileEntry]:
        """Return the files of bodies (event payloads), oldest first."""
        with self._index_view() as index:
            return index.files()

    def _select_events(self, condition: str, values: tuple[object, ...], max_bytes: int = _ALL) -> list[Event]:
        """Return events in order, with about max_bytes of bodies (payloads).

        The last event is the one with which the total reaches or exceeds max_bytes.

        condition: SQL condition and order, with `values` for its placeholders.
        """
        events = list[Event]()
        size = 0
        with self._index_view() as index, BodyReader(index.file) as bodies:
            for event in index.events(condition, values, bodies.read):
                size += len(event.body)
                if not event.intact:
                    # A rewrite stores the new body elsewhere, and does not wait for readers before
                    # it overwrites the old bytes. Read the event as the index has it now.
                    with self._index_view() as now, BodyReader(now.file) as new_bodies:
                        event = next(now.events("position = ?", (event.position,), new_bodies.read), event)
                events.append(event)
                if size >= max_bytes:
                    break
        return events


class Log(LogReader, AbstractContextManager["Log"]):
    """The log in a folder. Thread-safe.

    The caller holds the directory's lock if the log is writable.

    When a writable log is opened, each file of bodies (event payloads) is checked: the file must
    exist, belong to this log, and not be shorter than the index says. If the index was copied, the
    whole index is also checked, in O(events + keys).

    Parameters
    ----------
    path : str or PathLike
        Path of the log's own folder. Created if `writable`.
    writable : bool
        True to append events, False to read only.
    max_file_bytes : int
        Size of a file of bodies at which a new file is started.
    max_keys : int
        Number of idempotency keys to store.
    least_position : int
        Position that the log must have reached, as the caller knows from other files.
    more_tables : str
        SQL that creates further tables in the SQLite file of a new log.

    Attributes
    ----------
    displaced : DirectoryMissing, DirectoryInUse or None
        Reason why nothing is written any more.

    Raises
    ------
    DirectoryMissing, ForeignFile, UnknownFormat, DamagedFile
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        writable: bool = True,
        max_file_bytes: int = 64 << 20,
        max_keys: int = tables.KEYS,
        least_position: int = -1,
        more_tables: str = "",
    ) -> None:
        create_or_check_log(Path(path), writable, least_position, more_tables)
        super().__init__(Path(path), writable, max_keys)
        self._file_bytes = max_file_bytes
        self._lock = threading.RLock()

        self._index_numbers = device_and_inode(self._database.path)
        self._current: BodyFileEntry | None = None

        # True if the last write may or may not be committed, because it raised an error.
        # A writable log begins with True, because an earlier process may have crashed in a write.
        self._commit_uncertain = writable
        self.displaced: DirectoryMissing | DirectoryInUse | None = None
        self._closed = False

        try:
            if writable:
                if not self._head.stores_inode_of(self._database.path):
                    with self._index_view() as index:
                        index.check(self._keys)
                self._recover_if_uncertain(check_all_files=True)
                self._head.try_write_acknowledged(self._ends.last)
                self._head.try_store_inode(self._database.path)
                self._overwrite_rewritten_events()
            else:
                # Raise now if the index cannot be read.
                self._bounds()
        except BaseException:
            self.close()
            raise

    def append(self, drafts: Sequence[EventDraft], also: AlsoInTransaction | None = None) -> list[int]:
        """Append events in one transaction, and return their positions.

        Either all events are appended or none. On return the events are durable.

        also: function that changes other tables of the index in the same transaction.

        Raises InsufficientStorage if the disk is full. The log is then unchanged, and events can
        be appended when there is room. Raises DirectoryInUse if the log's folder was moved or
        replaced. Each later write then raises DirectoryInUse, too.
        """
        with self._lock:
            if not drafts:
                return []

            # Give each draft its position, and the number of rows of all events up to it.
            self._recover_if_uncertain()
            events = [event_of_draft(position, d) for position, d in enumerate(drafts, self._ends.last + 1)]
            counts = (0 if e.kind == "unlearn" else e.rows for e in events)
            totals = list(accumulate(counts, initial=self._ends.rows))[1:]

            # Write the bodies to a file first, and then commit their places and all other fields.
            with self._write_transaction() as connection:
                places, current = tables.place_events(
                    self.path, events, self._current, self._file_bytes, self._ends.last + 1
                )
                ids = {e.position: d.ids for e, d in zip(events, drafts, strict=True) if d.ids is not None}
                rows = map(event_table_row, events, totals, places)
                if also is not None:
                    also(connection, events)
                tables.add_events_to_index(connection, self.path, events, rows, current, self._keys, ids)

            # The events are committed. Only now they become visible to readers of this process.
            self._ends = LogBounds(self._ends.first, events[-1].position, totals[-1])
            self._current = current or self._current
            self._head.try_write_acknowledged(self._ends.last)
            failpoint("log.after_commit")
        return [e.position for e in events]

    def find_key(self, key: str) -> KnownEvent | None:
        """Return the entry of the event with an idempotency key, or None."""
        # After an uncertain commit, only recovery shows whether an event with the key was written.
        with self._lock:
            self._recover_if_uncertain()
        with self._index_view() as index:
            return index.find_key(key)

    def rewrite(self, position: int, body: bytes, n_remaining_rows: int) -> None:
        """Replace an event's body (payload) and number of rows after an unlearning.

        The old bytes on the disk are overwritten after the commit. If the process dies in between,
        the bytes are overwritten when the log is next opened. The event's key and fingerprint do
        not change, and `rows_appended` still counts the unlearned rows.
        """
        with self._lock:
            (event,) = self._select_events("position = ?", (position,))
            event = event._replace(body=body, rows=n_remaining_rows, checksum=xxh64_digest(body))
            with self._write_transaction() as connection:
                (place,), current = tables.place_events(
                    self.path, [event], self._current, self._file_bytes, self._ends.last + 1
                )
                tables.replace_event(connection, self.path, event, place, current)
            self._current = current or self._current
            failpoint("log.rewritten")
            self._overwrite_rewritten_events()

    def hide_events_before(self, position: int) -> int:
        """Make events before a position unreadable, except the last event.

        Returns the position of the first event that can be read now.
        """
        with self._lock:
            self._recover_if_uncertain()
            self._ends = self._ends._replace(first=max(self._ends.first, min(position, self._ends.last)))
            return self._ends.first

    def drop_events_before(self, position: int) -> int:
        """Remove events before a position, but never the last event.

        Returns the number of events removed. The space of the events is released to the file
        system.
        """
        # Remove the events in short transactions, so that other threads can append in between.
        # After each transaction, pause as long as it took, so that other threads can use the disk.
        first = self.hide_events_before(position)
        dropped = 0
        more = True
        while more:
            started = time.monotonic()
            with self._lock:
                if self._closed:
                    break
                with self._write_transaction() as connection:
                    removed, files = tables.drop_oldest_events(connection, first)
                failpoint("log.dropped")
                with self._database.connection() as connection:
                    more = tables.release_freed_space_step(connection, self.path, files) or removed > 0

            dropped += removed
            time.sleep(time.monotonic() - started)
        return dropped

    def check_folder_not_replaced(self) -> None:
        """Raise an error if the log's folder was moved, removed or replaced.

        The directory's lock belongs to the folder that was opened. Another process may hold the
        lock of the folder that now has the same path.

        Raises DirectoryMissing if no folder has the path, and DirectoryInUse otherwise.
        """
        if self.displaced is None and device_and_inode(self._database.path) != self._index_numbers:
            self.displaced = moved_log_error(self.path)
        if self.displaced is not None:
            raise remove_stack_frames(self.displaced)

    def close(self) -> None:
        """Close all connections. Reads in progress finish."""
        with self._lock:
            self._closed = True
            self._head.close()
            self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction on the index for the with-block.

        After an error in the with-block, it is unknown whether the transaction was committed. The
        next write then begins with a recovery (`_recover_if_uncertain`).

        Raises DirectoryMissing or DirectoryInUse if the log's folder was moved, removed or replaced.
        """
        self._recover_if_uncertain()
        self.check_folder_not_replaced()
        try:
            with self._database.connection() as connection, commit_or_rollback(connection):
                yield connection
        except BaseException:
            self._commit_uncertain = True
            raise

    def _recover_if_uncertain(self, check_all_files: bool = False) -> None:
        """Recover the log if the last write's commit is uncertain.

        SQLite has recovered the index already.

        The end of the log is read from the index. Bytes of event payloads after the end are
        removed.

        check_all_files: True to check all files of event payloads. False to check only the newest
            file.
        """
        if not self._commit_uncertain:
            return

        # No process can commit during this transaction, so bytes past the end belong to no event.
        self.check_folder_not_replaced()
        with self._database.connection() as connection, commit_or_rollback(connection):
            index = Index(self.path, connection)
            ends = index.bounds_and_total_rows()
            files = index.files()

            self._ends = ends._replace(first=max(ends.first, self._ends.first))
            self._current = files[-1] if files else None
            for listed in files if check_all_files else files[-1:]:
                listed.file.check(listed.end, cut_past_end=listed is self._current)

            # Remove payload files that the index does not list, and an unfinished index.
            named = {listed.file.path for listed in files}
            for path in (*self.path.glob("*.bodies"), *self.path.glob(f"{tables.INDEX_NAME}.tmp*")):
                if path not in named:
                    path.unlink()

        self._commit_uncertain = False

    def _overwrite_rewritten_events(self) -> None:
        """Overwrite the old bytes of rewritten events.

        The index lists the byte ranges, also of events that were rewritten before a crash. If the
        disk refuses a write, the ranges stay in the index. They are then overwritten at the next
        rewrite or at the next opening of the log.
        """
        with self._index_view() as index:
            erasures = index.pending_erasures()
            files = {listed.first: listed.file for listed in index.files()} if erasures else {}
        if not erasures:
            return

        for _, file, start, size in erasures:
            files[file].overwrite_with_zeros(start, size)
        failpoint("log.erased")

        with self._write_transaction() as connection:
            connection.execute("DELETE FROM erasures")
