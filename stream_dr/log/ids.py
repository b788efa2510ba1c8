"""Index of row ids, in a table of index.sqlite.

It finds the events that may have rows with an id.

An entry of the table `ids` covers the rows of some events, up to position `last`. It has a hash of
32 bits of each row's id, and the position of its event. Whether an event really has the id, and in
which rows, is found by reading the event.

Entries of the newest rows hold all hashes (bucket −1), and are merged when they have equally many.
From some thousand rows on, there is one entry for each value of the hashes' first 6 bits
(`bucket`). Indexing each hash by itself in a B-tree would write a page for nearly every row.

Ids must disappear with the rows that are erased. So the index never holds an id, and none can be
derived from 32 bits, which many ids share.

Cost: an append writes 4 bytes for each row and 16 for each event, and again each time an entry
doubles. A look-up reads a 64th of the hashes.
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
"""

_NEWEST = -1
"""Bucket of entries that hold all hashes."""

# The first 6 of a hash's 32 bits are its bucket.
_SHIFT = 26

# Number of hashes at which an entry is split into buckets.
_SPLIT = 1 << 14


class IdEntry(NamedTuple):
    """Row of the table `ids`, unpacked.

    hashes: (rows,) uint32.
    positions: (rows,) int64, position of the event of each row.
    """

    bucket: int
    last: int
    hashes: np.ndarray
    positions: np.ndarray


def id_hashes(ids: Iterable[str | int]) -> np.ndarray:
    """Return a hash of each id, as uint32 (rows,).

    A number is hashed as it is written.
    """
    return np.array([xxhash.xxh32_intdigest(str(id).encode()) for id in ids], dtype=np.uint32)


def note_ids(connection: sqlite3.Connection, path: Path, ids: dict[int, np.ndarray]) -> None:
    """Add hashes of ids, by position of their event.

    The newest entries that are not larger are merged with them.
    """
    sizes = connection.execute("SELECT length(hashes) FROM ids WHERE bucket=? ORDER BY last DESC", (_NEWEST,))
    count = sum(map(len, ids.values()))
    merged = 0
    for (size,) in sizes.fetchall():
        if size > 4 * count:
            break
        count += size // 4
        merged += 1

    older = select_entries(connection, path, "bucket=? ORDER BY last DESC LIMIT ?", (_NEWEST, merged))
    connection.executemany("DELETE FROM ids WHERE bucket=? AND last=?", [entry[:2] for entry in older])
    last = max(*ids, *(entry.last for entry in older), -1)
    older.reverse()
    hashes = np.concatenate([*(entry.hashes for entry in older), *ids.values()])
    new = np.repeat(np.array(list(ids)), [len(of) for of in ids.values()])
    positions = np.concatenate([*(entry.positions for entry in older), new])

    if count < _SPLIT:
        _insert_entry(connection, IdEntry(_NEWEST, last, hashes, positions))
        return
    buckets = hashes >> _SHIFT
    for bucket in np.unique(buckets).tolist():
        of = buckets == bucket
        _insert_entry(connection, IdEntry(bucket, last, hashes[of], positions[of]))


def with_ids(connection: sqlite3.Connection, path: Path, hashes: np.ndarray) -> set[int]:
    """Return positions of the events that may have rows with ids of these hashes.

    Dropped events may be among them.
    """
    positions = set[int]()
    for bucket in (_NEWEST, *np.unique(hashes >> _SHIFT).tolist()):
        if bucket_entries := select_entries(connection, path, "bucket=?", (bucket,)):
            matches = np.isin(np.concatenate([entry.hashes for entry in bucket_entries]), hashes)
            positions.update(np.concatenate([entry.positions for entry in bucket_entries])[matches].tolist())
    return positions


def select_entries(connection: sqlite3.Connection, path: Path, where: str, values: tuple[int, ...]) -> list[IdEntry]:
    """Return entries of the index at `path`. Raises DamagedFile."""
    checked = []
    for bucket, last, hashes, positions, digest in connection.execute(f"SELECT * FROM ids WHERE {where}", values):
        are_blobs = isinstance(hashes, bytes) and isinstance(positions, bytes)
        if not are_blobs or _digest(bucket, last, hashes, positions) != digest:
            raise damaged_file(path, f"the ids of events up to {last} are not what was written")
        runs = np.frombuffer(positions, np.int64).reshape(2, -1)
        checked.append(IdEntry(bucket, last, np.frombuffer(hashes, np.uint32), np.repeat(*runs)))
    return checked


def _insert_entry(connection: sqlite3.Connection, entry: IdEntry) -> None:
    """Insert an entry."""
    ends = np.flatnonzero(np.diff(entry.positions, append=-1)) + 1
    # Run-length encoding: each position, and how many rows in sequence have it.
    runs = np.array([entry.positions[ends - 1], np.diff(ends, prepend=0)])
    row = (entry.bucket, entry.last, entry.hashes.tobytes(), runs.tobytes())
    connection.execute("INSERT INTO ids VALUES (?,?,?,?,?)", (*row, _digest(*row)))


def _digest(bucket: int, last: int, hashes: bytes, positions: bytes) -> int:
    """Return the digest of an entry.

    The long fields are digested first, which is quicker than `row_digest` of the fields.
    """
    return row_digest(bucket, last, quick_digest(hashes), quick_digest(positions))
