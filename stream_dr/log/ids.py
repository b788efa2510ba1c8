"""ids: by which the events are found that may have rows of an id, in two tables of the index.

An entry is of the rows of some events, up to position `last`: a hash of 32 bits of each row's id, and its event's position.
Which rows of an event have the id, and whether any has it, is read there. Entries of the newest rows are of all hashes, and
merged as they become as many; of some thousand rows there is one for each value of the hashes' first bits (`bucket`).
`unindexed` has the events of a release that noted no ids, and of them what could not be read since: they may have any id.

Cost: an append writes 4 bytes a row and 16 an event, and again at each doubling of an entry; a lookup reads a 64th of the
hashes.

Why this way: a tree of single hashes would have a page written for nearly every row. Rows are erased where they are
unlearned, and their ids with them: an id is never in the index, nor to be had from 32 bits, which many ids share.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from stream_dr.log.event import quick_digest, row_digest
from stream_dr.log.sqlite_file import damaged_file

TABLES = """
CREATE TABLE ids(bucket INTEGER NOT NULL, last INTEGER NOT NULL, hashes BLOB NOT NULL, positions BLOB NOT NULL,
  digest INTEGER NOT NULL, PRIMARY KEY(bucket, last));
CREATE INDEX ids_last ON ids(last);
CREATE TABLE unindexed(first INTEGER NOT NULL, last INTEGER NOT NULL, digest INTEGER NOT NULL);
"""

_NEWEST = -1
"""The bucket of entries of all hashes."""

_SHIFT = 26  # of a hash: its first 6 bits are its bucket
_SPLIT = 1 << 14  # hashes from which on an entry is split into buckets


class Entry(NamedTuple):
    """hashes: (rows,) uint32. positions: (rows,) int64, of the event of each."""

    bucket: int
    last: int
    hashes: np.ndarray
    positions: np.ndarray


def id_hashes(ids: Iterable[str | int]) -> np.ndarray:
    """(rows,) uint32: a hash of each id, of a number as it is written."""
    return np.array([xxhash.xxh32_intdigest(str(id).encode()) for id in ids], dtype=np.uint32)


def note_ids(connection: sqlite3.Connection, path: Path, ids: dict[int, np.ndarray]) -> None:
    """Note hashes of ids by position; the newest entries that have no more of them become one with these."""
    sizes = connection.execute("SELECT length(hashes) FROM ids WHERE bucket=? ORDER BY last DESC", (_NEWEST,))
    count, merged = sum(map(len, ids.values())), 0
    for (size,) in sizes.fetchall():
        if size > 4 * count:
            break
        count, merged = count + size // 4, merged + 1

    found = entries(connection, path, "bucket=? ORDER BY last DESC LIMIT ?", (_NEWEST, merged))
    connection.executemany("DELETE FROM ids WHERE bucket=? AND last=?", [entry[:2] for entry in found])
    last = max(*ids, *(entry.last for entry in found), -1)
    found.reverse()
    hashes = np.concatenate([*(entry.hashes for entry in found), *ids.values()])
    new = np.repeat(np.array(list(ids)), [len(of) for of in ids.values()])
    positions = np.concatenate([*(entry.positions for entry in found), new])

    if count < _SPLIT:
        _put(connection, Entry(_NEWEST, last, hashes, positions))
        return
    buckets = hashes >> _SHIFT
    for bucket in np.unique(buckets).tolist():
        of = buckets == bucket
        _put(connection, Entry(bucket, last, hashes[of], positions[of]))


def with_ids(connection: sqlite3.Connection, path: Path, hashes: np.ndarray) -> set[int]:
    """Positions of the events that may have rows with ids of these hashes, by the entries; dropped ones among them."""
    positions = set[int]()
    for bucket in (_NEWEST, *np.unique(hashes >> _SHIFT).tolist()):
        if found := entries(connection, path, "bucket=?", (bucket,)):
            same = np.isin(np.concatenate([entry.hashes for entry in found]), hashes)
            positions.update(np.concatenate([entry.positions for entry in found])[same].tolist())
    return positions


def entries(connection: sqlite3.Connection, path: Path, where: str, values: tuple[int, ...]) -> list[Entry]:
    """Entries of the index at `path`. Raises DamagedFile where one is not what was written."""
    found = []
    for bucket, last, hashes, positions, digest in connection.execute(f"SELECT * FROM ids WHERE {where}", values):
        blobs = isinstance(hashes, bytes) and isinstance(positions, bytes)
        if not blobs or _digest(bucket, last, hashes, positions) != digest:
            raise damaged_file(path, f"the ids of events up to {last} are not what was written")
        runs = np.frombuffer(positions, np.int64).reshape(2, -1)
        found.append(Entry(bucket, last, np.frombuffer(hashes, np.uint32), np.repeat(*runs)))
    return found


def _put(connection: sqlite3.Connection, entry: Entry) -> None:
    ends = np.flatnonzero(np.diff(entry.positions, append=-1)) + 1
    runs = np.array(
        [entry.positions[ends - 1], np.diff(ends, prepend=0)]
    )  # a position, and how often it follows itself
    row = (entry.bucket, entry.last, entry.hashes.tobytes(), runs.tobytes())
    connection.execute("INSERT INTO ids VALUES (?,?,?,?,?)", (*row, _digest(*row)))


def _digest(bucket: int, last: int, hashes: bytes, positions: bytes) -> int:
    """The digest of an entry; quicker than of its fields."""
    return row_digest(bucket, last, quick_digest(hashes), quick_digest(positions))
