"""upgrade: a log of format 2 becomes one of format 3, or stays as it was.

Format 2 had segments: `NUMBER.sqlite` with the events of one part of the log, beside it `NUMBER.bodies`, and `index.sqlite`
with what was derived from them, keys and schema changes. The files of bodies stay and grow: rows that lay in a segment are
put behind their end, which format 2 takes for what a crash left. The new index is written beside the old one, synced, and
renamed into its place: before that the log is of format 2, after it of format 3; what is left of the segments is removed
when the log is next opened for writing.

Cost: one read of the segments and a write of what lies in their rows; no file of bodies is read.
"""

import sqlite3
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from stream_dr.errors import DirectoryMissing, Overloaded
from stream_dr.failpoints import failpoint
from stream_dr.log import index
from stream_dr.log.bodies import BEGIN, BodyFile, bodies_path
from stream_dr.log.event import row_digest
from stream_dr.log.head import HEAD_NAME as HEAD
from stream_dr.log.head import lost
from stream_dr.log.index import APPLICATION, INDEX_NAME, LOG_FORMAT, Current, Known
from stream_dr.log.sqlite_file import connect, damaged_file, transaction, translated, unknown_format

_OLD = 2
_SEGMENT = 0x53445253  # "SDRS"
_EVENTS = (
    "SELECT position, kind, key, sha256, rows, schema, checksum, start, size, digest, body FROM events "
    "WHERE position >= ? ORDER BY position LIMIT 256"
)
_END = "SELECT MAX(start + size) FROM (SELECT start, size FROM events UNION ALL SELECT start, size FROM erasures)"


def upgrade(folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> bool:
    """Bring the log in `folder` over; False where it has been before. The caller holds the directory's lock.

    progress: called with the number of segments done and of all. Raises DirectoryMissing, UnknownFormat (neither format),
    DamagedFile or ForeignFile (something is not what was written), InsufficientStorage, Overloaded (somebody reads it); the
    log is then as it was.
    """
    segments = sorted(path for path in folder.glob("*.sqlite") if path.stem.isdigit())
    path = folder / INDEX_NAME
    if not path.exists() and not segments:
        raise DirectoryMissing(f"{folder} holds no log; give a directory that replay or serve has written.")
    if path.exists() and (found := _format(path)) != _OLD:
        if found == LOG_FORMAT:
            return False
        raise unknown_format(path, found, LOG_FORMAT)
    index.create_index(folder, lambda new: _fill(new, folder, segments, progress))
    failpoint("log.upgraded")
    return True


def _format(path: Path) -> int:
    with translated(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _fill(new: sqlite3.Connection, folder: Path, segments: list[Path], progress: Callable[[int, int], None]) -> None:
    """Write what the old log says into the new index."""
    keys, changes, reached = _derived(folder / INDEX_NAME)
    if segments and reached + 1 < int(segments[0].stem):
        raise damaged_file(folder / INDEX_NAME, f"it ends at {reached}; events after that were dropped")
    last = -1
    with transaction(new):
        for number, path in enumerate(segments):
            if number and int(path.stem) != last + 1:
                raise damaged_file(path, f"position {last + 1} is missing")
            with translated(path), closing(connect(path, True, _SEGMENT, _OLD)) as old:
                last = _segment(new, old, path, keys, changes)
            progress(number + 1, len(segments))
        if last < (acknowledged := _acknowledged(folder)):
            raise lost(folder, last, acknowledged)
        known = ((key, known) for key, known in keys.items() if known.position <= last)
        index.remember(new, sorted(known, key=lambda item: item[1].position), index.KEYS)
        index.note_schemas(new, ((position, text) for position, text in changes.items() if position <= last))
        failpoint("log.upgrading")


def _segment(
    new: sqlite3.Connection, old: sqlite3.Connection, path: Path, keys: dict[str, Known], changes: dict[int, str]
) -> int:
    """Bring the events of a segment over, and what they add to the keys and the schema; the last one's position."""
    first = int(path.stem)
    ((total, identity, stored),) = old.execute("SELECT rows_before, identity, digest FROM about").fetchall()
    _check(path, (first, total, identity), stored)
    current = Current(
        first, BodyFile(bodies_path(path.parent, first), identity), old.execute(_END).fetchone()[0] or BEGIN
    )
    current.file.check(current.end)
    position = first
    while found := old.execute(_EVENTS, (position,)).fetchall():
        events, moved, end = list[Any](), list[bytes](), current.end
        for *row, stored, body in found:
            _check(path, row, stored)
            at, kind, key, fingerprint, rows, schema, checksum, start, size = row
            if at != position or (start is None and (type(body) is not bytes or len(body) != size)):
                raise damaged_file(path, f"position {position} is missing, or its body")
            if start is None and kind == "rows" and size:
                start, end = end, end + size
                moved.append(body)
            total, file = total + rows * (kind != "unlearn"), None if start is None else first
            header = (at, kind, key, fingerprint, rows, schema, checksum, total, file, start, size)
            events.append((*header, row_digest(*header), body if start is None else None))
            if key is not None:
                keys.setdefault(key, Known(at, fingerprint, rows))
            if schema is not None:
                changes[at] = schema
            position += 1
        if moved:
            current.file.write(moved, current.end)
            current = current._replace(end=end)
        index.insert(new, events)
    for start, size in old.execute("SELECT start, size FROM erasures WHERE start IS NOT NULL").fetchall():
        index.note_erasure(new, first, start, size)
    index.note_file(new, current)
    return position - 1


def _derived(path: Path) -> tuple[dict[str, Known], dict[int, str], int]:
    """The keys and schema changes of the old index, and the position up to which it has them. It is written to nowhere, but
    what its WAL holds is moved into it: that file must not lie beside the new one."""
    if not path.exists():
        return {}, {}, -1
    with translated(path), closing(connect(path, True, APPLICATION, _OLD)) as old:
        found = {}
        for table in ("keys", "schemas", "known"):
            found[table] = old.execute(f"SELECT * FROM {table}").fetchall()
            for *row, stored in found[table]:
                _check(path, row, stored)
    if path.with_name(f"{INDEX_NAME}-wal").exists():
        raise Overloaded(f"{path} is being read; try again when nobody does.", retry_after=5)
    keys = {key: Known(position, fingerprint, rows) for position, key, fingerprint, rows, _ in found["keys"]}
    return keys, {position: text for position, text, _ in found["schemas"]}, found["known"][0][0]


def _acknowledged(folder: Path) -> int:
    """The position that format 2 noted in `head`, −1 where it is not legible."""
    with suppress(struct.error, OSError):
        position, stored = struct.unpack("<qq", (folder / HEAD).read_bytes())
        if _crc((position,)) == stored:
            return int(position)
    return -1


def _check(path: Path, fields: Sequence[Any], stored: Any) -> None:
    if _crc(fields) != stored:
        raise damaged_file(path, f"the entry of {fields[0]!r} is not what was written")


def _crc(fields: Sequence[Any]) -> int:
    """The checksum of format 2."""
    return zlib.crc32("\x1f".join(map(str, fields)).encode("utf-8", "surrogatepass"))
