"""log_check: is the log what was written? Positions, bodies, files.

Cost: `verify` reads every byte once (SHA-256: 1-2 GB/s) and holds about 1 MB of events at a time.

Why this way: SQLite finds a broken page but not a flipped bit inside a value; the digests that each event carries do. That
of its fields is checked by every read (event_row.py), that of its body here.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stream_dr.errors import StreamDRError
from stream_dr.log.event import Event
from stream_dr.log.head import lost
from stream_dr.log.segment import Segment
from stream_dr.log.sqlite_file import damaged


class Verified(NamedTuple):
    """What `verify` read: segment files, events, rows and bytes of bodies."""

    segments: int
    events: int
    rows: int
    bytes: int


def verify(known: int, segments: Sequence[Segment], rows: int) -> Verified:
    """Check each file as SQLite does, that no position is missing up to the end and to `known`, which was acknowledged
    before they were listed, and every body's digest; raises DamagedFile."""
    events, size, after = 0, 0, -1
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        segment.check()
        after = segment.first - 1
        while found := segment.read(after, after + 64, 64, 1 << 20):
            check_order(segment, after, found)
            for event in found:
                _check_body(segment, event)
            events, size, after = events + len(found), size + sum(len(e.body) for e in found), found[-1].position
        if after < (segment.last() if following is None else following.first - 1):
            raise damaged(segment.path, f"position {after + 1} is missing")
    if after < known:
        raise lost(segments[-1].path if segments else Path("the log"), after, known)
    return Verified(len(segments), events, rows, size)


def _check_body(segment: Segment, event: Event) -> None:
    if not event.intact:
        raise damaged(segment.path, f"the body of event {event.position} is not what was written")


def check_order(segment: Segment, after: int, events: Sequence[Event]) -> None:
    """Positions must follow one another."""
    for expected, event in enumerate(events, after + 1):
        if event.position != expected:
            raise damaged(segment.path, f"position {expected} is missing")


def readable(segments: Sequence[Segment], kind: str) -> list[Event]:
    """The events of a kind that can be read; the others are for `verify` to name."""
    events: list[Event] = []
    for segment in segments:
        try:
            events += segment.read_kind(kind, segment.last() + 1)
        except StreamDRError:
            events += _one_by_one(segment, kind)
    return events


def _one_by_one(segment: Segment, kind: str) -> list[Event]:
    events: list[Event] = []
    with suppress(StreamDRError):
        for position in range(segment.first, segment.last() + 1):
            with suppress(StreamDRError):
                events += segment.read(position - 1, position, 1, 1)
    return [e for e in events if e.kind == kind]
