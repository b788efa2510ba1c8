"""log: the durable, ordered record of everything a directory was given; the queue between appending and learning.

Events have positions 0, 1, 2 … without gap. `append` returns when they are on the disk. They lie in segments
(segment.py: a SQLite index, and a plain file for the larger bodies), so that retention removes whole files; idempotency
keys are columns of their event and are found through an index derived from the events (key_index.py).

Cost: an append of a group is one transaction, one fsync when its bodies are small and two when they are large; `python
benchmarks/log_append.py` prints appends/s and MB/s by size of body and group. A read of n events holds no lock, no cursor
and no file on return.

Why this way: kill -9 at any moment leaves a prefix of the transactions, the acknowledged ones among them, because SQLite's
recovery is somebody else's well-tested code: a hand-written log was 1.7 times faster and took a zero-filled tail for 42
records. One transaction touches one SQLite file: commits over several are not atomic in WAL mode. A log that ends before
what was acknowledged (head.py), and a reader that finds a position missing, say so instead of going on.
"""

import os
import sqlite3
import threading
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from stream_dr.errors import HistoryGone, StreamDRError
from stream_dr.failpoints import failpoint
from stream_dr.log.check import Verified, check_order, readable, verify
from stream_dr.log.event import Event, EventDraft, draft, event_at, sha256_of
from stream_dr.log.folder import prepare, remove_segment, segment_files, tidy
from stream_dr.log.head import Head
from stream_dr.log.key_index import KeyIndex, Known
from stream_dr.log.segment import Segment, Totals
from stream_dr.log.sqlite_file import damaged

__all__ = ["Event", "EventDraft", "Known", "Log", "Verified", "draft"]

_END = 2**63 - 1


class Log(AbstractContextManager["Log"]):
    """A folder of segments and the index of its keys.

    path: the log's own folder, made if `writable`. segment_bytes, segment_events: a new file is begun past either. keys:
    how many idempotency keys are remembered. at_least: a position the log has reached, as others know. The caller holds
    the directory's lock when writable. Thread-safe. Raises DirectoryMissing, ForeignFile, UnknownFormat, DamagedFile.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        writable: bool = True,
        segment_bytes: int = 256 << 20,
        segment_events: int = 100_000,
        keys: int = 1_000_000,
        at_least: int = -1,
    ) -> None:
        self.path, self.writable = Path(path), writable
        self._limits = (segment_bytes, segment_events)
        self._lock = threading.RLock()
        self._last, self._events, self._rows, self._bytes = -1, 0, 0, 0
        self._unsure = False
        self._segments, self._noted = list[Segment](), set[Segment]()
        prepare(self.path, writable)
        self._index = KeyIndex(self.path, writable, keys)
        self._head = Head(self.path, writable)
        try:
            if writable:
                tidy(self.path, max(at_least, self._index.known if self._head.found else -1, self._head.read()))
            self._segments = [Segment(p, writable) for p in segment_files(self.path)]
            if writable:
                self._noted = set(self._segments)
                self.erase()
                self._seal()
            self._hold(self._segments)
            self._look_again()
        except BaseException:
            self._index.abandon()
            self._close_files()
            raise

    @property
    def last(self) -> int:
        """Position of the last event, −1 if there is none."""
        if self.writable:
            return self._last
        segments = self._current()
        return segments[-1].last() if segments else -1

    @property
    def first(self) -> int:
        """Position of the first event still held (last + 1 if none is)."""
        segments = self._current()
        return segments[0].first if segments else 0

    @property
    def rows(self) -> int:
        """Rows of all events ever appended, dropped ones included; unlearn events count none."""
        if not self.writable:
            self._current()
            return self._totals().rows
        return self._rows

    def append(self, drafts: Sequence[EventDraft]) -> list[int]:
        """Append in order, in one transaction; the positions, durable on return. All or none.

        Raises InsufficientStorage when the disk is full; the log is as before and can be appended to when there is room.
        """
        with self._lock:
            if not drafts:
                return []
            self._sure()
            if self._bytes >= self._limits[0] or self._events >= self._limits[1]:
                self._roll()
            start = self._last + 1
            events = [event_at(start + i, d) for i, d in enumerate(drafts)]
            try:
                self._segments[-1].append(events)
            except BaseException:
                self._unsure = True
                raise
            self._note(events)
            failpoint("log.after_commit")
            return list(range(start, start + len(events)))

    def read(self, after: int, until: int | None = None, limit: int = 100, max_bytes: int = 64 << 20) -> list[Event]:
        """At most `limit` events with after < position ≤ until, in order; fewer once their bodies pass max_bytes.

        An empty list means that there are none (yet). Raises HistoryGone when after + 1 was dropped, DamagedFile when a
        position is missing."""
        end = min(_END if until is None else until, self._last if self.writable else _END)
        segments = self._current()
        first = segments[0].first if segments else 0
        if after + 1 < first:
            raise HistoryGone(f"events {after + 1} … {first - 1} were dropped; the log begins at {first}.", first=first)
        if after >= end:
            return []
        at = max(bisect_right(segments, after + 1, key=lambda s: s.first) - 1, 0)
        events: list[Event] = []
        for segment, following in zip(segments[at:], [*segments[at + 1 :], None], strict=True):
            reached = after + len(events)
            found = segment.read(reached, end, limit - len(events), max_bytes)
            check_order(segment, reached, found)
            events, max_bytes = events + found, max_bytes - sum(len(e.body) for e in found)
            reached += len(found)
            if following is None or reached >= end or len(events) >= limit or max_bytes <= 0:
                break
            if reached + 1 != following.first:
                raise damaged(segment.path, f"position {reached + 1} is missing")
        return events

    def read_kind(self, kind: str, before: int) -> list[Event]:
        """The retained events of a kind whose position is below `before`; for kinds that are few ("unlearn": indexed)."""
        return [e for s in self._current() if s.first < before for e in self._of_kind(s, kind, before)]

    def read_readable(self, kind: str) -> list[Event]:
        """The retained events of a kind, but for those that are damaged."""
        return readable(self._current(), kind)

    def holding(self, rows: int) -> int:
        """First position of the newest segment from which on the log holds at least `rows` rows; `first` where none does."""
        total = self.rows
        held = [s.first for s in self._current() if total - s.rows_before() >= rows]
        return held[-1] if held else self.first

    def find_key(self, key: str) -> Known | None:
        """(position, fingerprint, rows) of the event an idempotency key became, or None."""
        with self._lock:
            return self._sure().find(key)

    def schema_changes(self) -> list[str]:
        """The JSON texts by which events changed the stream's schema, oldest first; dropped events' included."""
        with self._lock:
            return self._sure().schemas()

    def rewrite(self, position: int, body: bytes, rows: int, erase: bool = True) -> None:
        """Replace an event's body and row count (rows taken out by unlearn); its key and fingerprint stay.

        The old bytes are then overwritten on the disk, or (erase=False, for several events) by `erase`. The log's `rows`
        goes on counting what was once appended until it is opened anew.
        """
        segment = self._segments[max(bisect_right(self._segments, position, key=lambda s: s.first) - 1, 0)]
        segment.replace(position, body, rows, sha256_of(body))
        self._noted.add(segment)
        if erase:
            self.erase()

    def erase(self) -> None:
        """Overwrite what rewritten events have left, also before a crash; what a reader may still need, at the next call.
        Damage of a segment is said when that is read."""
        self._noted = {s for s in self._noted if s in self._segments and not s.erase()}

    def drop_before(self, position: int) -> int:
        """Remove the segments whose events all come before a position; the number removed. Never the last segment."""
        with self._lock:
            count = sum(1 for s in self._segments[1:] if s.first <= position)
            if count:
                self._index.flush(durable=True)
            for _ in range(count):
                failpoint("log.drop")
                segment, self._segments = self._segments[0], self._segments[1:]
                segment.keep_none()
                remove_segment(segment.path)
            return count

    def verify(self) -> Verified:
        """Read everything: SQLite's check of each file, no position missing, every event's and key's digest, every body's.

        Raises DamagedFile naming file and position. Cost: one read of the log; memory: about 1 MB, or one event."""
        found = verify(self._head.read(), self._current(), self.rows)
        with self._lock:
            self._index.check()
        return found

    def close(self) -> None:
        """Close every connection; reads in progress finish."""
        with self._lock:
            self._index.close()
            self._close_files()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hold(self, segments: list[Segment]) -> None:
        """These are the segments now; those that are sealed keep no connections, nor do a reader's: it would keep the
        writer from sealing."""
        for segment in segments[:-1]:
            if not self.writable or not segment.journal.exists():
                segment.keep_none()
        self._segments = segments

    def _close_files(self) -> None:
        self._head.close()
        for segment in self._segments:
            segment.keep_none()

    def _totals(self) -> Totals:
        return self._segments[-1].totals() if self._segments else Totals(-1, 0, 0, 0)

    def _note(self, events: Sequence[Event]) -> None:
        """Bring what is held in memory up to date with events just committed."""
        self._last = events[-1].position
        self._head.write(self._last)
        self._events += len(events)
        self._rows += sum(e.rows for e in events if e.kind != "unlearn")
        self._bytes += sum(len(e.body) for e in events)
        try:
            for e in events:
                self._index.add(e.position, e.key, e.fingerprint, e.rows, e.schema)
        except (StreamDRError, sqlite3.Error):  # the events are in the log: their append has succeeded
            self._unsure = True

    def _roll(self) -> None:
        """Begin a new segment."""
        self._hold([*self._segments, Segment.create(self.path, self._last + 1, self._rows)])
        self._events = self._bytes = 0
        self._index.try_flush()
        self._seal()

    def _of_kind(self, segment: Segment, kind: str, before: int) -> list[Event]:
        """A segment's events of a kind; none of one that is dropped meanwhile."""
        try:
            return segment.read_kind(kind, before)
        except HistoryGone:
            if segment in self._current():
                raise
            return []

    def _seal(self) -> None:
        """Seal the segments before the last that are not; one that is being read is sealed later."""
        for segment in self._segments[:-1]:
            if segment.journal.exists():
                segment.seal()

    def _sure(self) -> KeyIndex:
        """The index, after a look at the files where an append raised: it may be in the log all the same."""
        if self._unsure:
            self._look_again()
        return self._index

    def _look_again(self) -> None:
        """Learn from the files where the log ends, cut what is past it, and bring the index up to there."""
        if self.writable:
            self._segments[-1].recover()
        self._last, self._events, self._rows, self._bytes = self._totals()
        if self._segments and self._index.known + 1 < self._segments[0].first:
            raise damaged(self._index.path, f"it ends at {self._index.known}; events after that were dropped")
        self._index.follow(self._segments, self._last)
        self._unsure = False

    def _current(self) -> list[Segment]:
        """The segments there are; a read-only log looks again, because another process may have appended."""
        if not self.writable:
            with self._lock:
                known = {s.path: s for s in self._segments}
                files = segment_files(self.path)
                if files != list(known):
                    self._hold([known.pop(p) if p in known else Segment(p, writable=False) for p in files])
                    for gone in known.values():
                        gone.keep_none()
        return self._segments
