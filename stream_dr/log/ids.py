"""Index of row ids, in a table of index.sqlite.

The index finds the events that may have rows with an id.

An entry of the table `ids` covers the rows of some events, up to position `last`. The entry has a
hash of 32 bits of each row's id, and the position of its event. Only reading the event shows
whether it really has the id, and in which rows.

Entries of the newest rows hold all hashes (bucket −1). Two of them are merged when they have
equally many. From some thousand rows on, there is one entry for each value of the hashes' first 6
bits (`bucket`). Indexing each hash by itself in a B-tree would write a page for nearly every row.

Ids must disappear with the rows that are erased. So the index never holds an id. An id cannot be
derived from its 32 bits, which many ids share.

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
"""Bucket number of entries that hold hashes of all buckets."""

# A hash has 32 bits. Its first 6 bits are the number of its bucket.
_SHIFT = 26

# An entry of this number of hashes is split into one entry for each bucket.
_SPLIT = 1 << 14


class IdEntry(NamedTuple):
    """Row of the table `ids`, unpacked.

    hashes: (rows,) uint32, hashes of the rows' ids.
    positions: (rows,) int64, position of the event of each row.
    """

    bucket: int
    last: int
    hashes: np.ndarray
    positions: np.ndarray


def id_hashes(ids: Iterable[str | int]) -> np.ndarray:
    """Return a hash of each id, as uint32 (rows,).

    A number is hashed as its decimal text.
    """
    return np.array([xxhash.xxh32_intdigest(str(id).encode()) for id in ids], dtype=np.uint32)


def note_ids(connection: sqlite3.Connection, path: Path, ids: dict[int, np.ndarray]) -> None:
    """Add hashes of ids to the table `ids`.

    The newest entries that are not larger are merged with the new hashes.

    ids: hashes of ids by position of their event.
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
    """Return entries of the table `ids` in the index at `path`.

    Raises DamagedFile.

    where: SQL condition, with `values` for its placeholders.
    """
    checked = []
    for bucket, last, hashes, positions, digest in connection.execute(f"SELECT * FROM ids WHERE {where}", values):
        are_blobs = isinstance(hashes, bytes) and isinstance(positions, bytes)
        if not are_blobs or _digest(bucket, last, hashes, positions) != digest:
            raise damaged_file(path, f"the ids of events up to {last} are not what was written")
        runs = np.frombuffer(positions, np.int64).reshape(2, -1)
        checked.append(IdEntry(bucket, last, np.frombuffer(hashes, np.uint32), np.repeat(*runs)))
    return checked


def _insert_entry(connection: sqlite3.Connection, entry: IdEntry) -> None:
    """Insert an entry into the table `ids`."""
    ends = np.flatnonzero(np.diff(entry.positions, append=-1)) + 1
    # Positions are run-length encoded: each position, and how many rows in sequence have it.
    runs = np.array([entry.positions[ends - 1], np.diff(ends, prepend=0)])
    row = (entry.bucket, entry.last, entry.hashes.tobytes(), runs.tobytes())
    connection.execute("INSERT INTO ids VALUES (?,?,?,?,?)", (*row, _digest(*row)))


def _digest(bucket: int, last: int, hashes: bytes, positions: bytes) -> int:
    """Return the digest of an entry of the table `ids`.

    The digest of the long fields is computed first, and the digest of all fields from it. This is
    faster than `row_digest` of all fields.
    """
    return row_digest(bucket, last, quick_digest(hashes), quick_digest(positions))
