"""Index of row ids, in the table `ids` of index.sqlite.

It finds the events that may have rows with an id.

A table row covers the data rows of some events, up to position `last`. For each data row, the
table row has a 32-bit hash of the data row's id, and the position of its event. Many ids have the
same hash. So the event must be read to find whether it has the id, and in which rows.

An append extends the newest table row until this table row has 4,096 hashes. A look-up compares
all hashes.

Ids must disappear with the rows that are erased. So the index has only hashes. An id cannot be
derived from its hash.

Cost: an append writes at most 16 kB and 4 bytes for each new row. A look-up reads 4 bytes for each
row of the log: some milliseconds for 1,000,000 rows.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from stream_dr.log.event import row_digest, xxh64_digest
from stream_dr.log.sqlite_file import damaged_file_error

TABLES = """
CREATE TABLE ids(last INTEGER PRIMARY KEY, hashes BLOB NOT NULL, positions BLOB NOT NULL, digest INTEGER NOT NULL);
"""

FULL = 4_096
"""Number of hashes at which a table row is full, so that the next append starts a new one."""


class IdEntry(NamedTuple):
    """Row of the table `ids`, unpacked.

    last: position of the last event that the table row covers.
    hashes: (data rows,) uint32, hash of each data row's id.
    positions: (data rows,) int64, position of each data row's event.
    """

    last: int
    hashes: np.ndarray
    positions: np.ndarray


def id_hashes(ids: Iterable[str | int]) -> np.ndarray:
    """Return a hash of each id, as uint32 (rows,).

    An int is hashed as its decimal text, so 7 and "7" have the same hash.
    """
    return np.array([xxhash.xxh32_intdigest(str(id).encode()) for id in ids], dtype=np.uint32)


def insert_id_hashes(
    connection: sqlite3.Connection, index_path: Path, id_hashes_by_position: dict[int, np.ndarray]
) -> None:
    """Add hashes of row ids to the index at `index_path`.

    id_hashes_by_position: hashes of the ids (`id_hashes`), by position of the rows' event.
    """
    # Extend the newest table row, if it is not full.
    hashes = np.concatenate([*id_hashes_by_position.values()])
    positions = np.repeat(np.array(list(id_hashes_by_position)), [len(of) for of in id_hashes_by_position.values()])
    for newest in select_id_entries(connection, index_path, "ORDER BY last DESC LIMIT 1"):
        if len(newest.hashes) < FULL:
            connection.execute("DELETE FROM ids WHERE last=?", (newest.last,))
            hashes = np.concatenate([newest.hashes, hashes])
            positions = np.concatenate([newest.positions, positions])

    ends = np.flatnonzero(np.diff(positions, append=-1)) + 1
    # Store positions run-length encoded: each position, and the number of successive rows with it.
    runs = np.array([positions[ends - 1], np.diff(ends, prepend=0)])
    row = (max(id_hashes_by_position), hashes.tobytes(), runs.tobytes())
    connection.execute("INSERT INTO ids VALUES (?,?,?,?)", (*row, _id_entry_digest(*row)))


def positions_with_ids(connection: sqlite3.Connection, index_path: Path, hashes: np.ndarray) -> set[int]:
    """Return positions of events that may have these hashed ids.

    Dropped events may be among them.
    """
    positions = set[int]()
    for entry in select_id_entries(connection, index_path):
        positions.update(entry.positions[np.isin(entry.hashes, hashes)].tolist())
    return positions


def select_id_entries(connection: sqlite3.Connection, index_path: Path, order_and_limit: str = "") -> Iterator[IdEntry]:
    """Yield entries of the index at `index_path`. Raises DamagedFile.

    order_and_limit: SQL that is appended to the query, such as "ORDER BY last DESC LIMIT 1".
    """
    for last, hashes, positions, digest in connection.execute(f"SELECT * FROM ids {order_and_limit}").fetchall():
        are_blobs = isinstance(hashes, bytes) and isinstance(positions, bytes)
        if not are_blobs or _id_entry_digest(last, hashes, positions) != digest:
            raise damaged_file_error(index_path, f"the ids of events up to {last} are not what was written")
        runs = np.frombuffer(positions, np.int64).reshape(2, -1)
        yield IdEntry(last, np.frombuffer(hashes, np.uint32), np.repeat(*runs))


def _id_entry_digest(last: int, hashes: bytes, positions: bytes) -> int:
    """Return the digest of an entry of row ids.

    The long fields are digested by `xxh64_digest` first. This takes less time than to pass them to
    `row_digest`.
    """
    return row_digest(last, xxh64_digest(hashes), xxh64_digest(positions))
