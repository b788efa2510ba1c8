"""head: up to which position events were acknowledged, beside the log, so that a log that lost its end is not taken for a
shorter one.

SQLite takes a WAL with a flipped bit for one that a crash cut short, and opens without a word what comes before. What was
acknowledged is therefore noted after each commit in 16 bytes of a file, which a killed process leaves as it was; after a
power cut it may be older than the log, never newer.

Behind them stands which file the index is, by the numbers that the file system gave it: a copy is another one. Who copies a
directory that is written to takes SQLite's file and its WAL at two moments, and what the two are together SQLite believes.

Cost: one write of 16 bytes a commit, without a sync.

Why this way: an error that names the damage can be answered with a copy; rows that are silently gone cannot.
"""

import os
import struct
from contextlib import suppress
from pathlib import Path

from stream_dr.disk import holder
from stream_dr.errors import DamagedFile, DirectoryInUse, HistoryGone
from stream_dr.log.event import row_digest

HEAD_NAME = "head"
_FORM = struct.Struct("<qq")
_FILE = struct.Struct("<QQq")


class Head:
    """The file in a log's folder; one writer. `found`: whether there was one."""

    def __init__(self, folder: Path, writable: bool) -> None:
        self._path = folder / HEAD_NAME
        self.found = self._path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o666) if writable else -1

    def read(self) -> int:
        """The last position noted; −1 where none is, or not legibly."""
        with suppress(struct.error, OSError):
            position, check = _FORM.unpack_from(self._bytes())
            if row_digest(position) == check:
                return int(position)
        return -1

    def _bytes(self) -> bytes:
        """What is there; nothing of what is no file, as a FIFO is, which would be waited for."""
        return self._path.read_bytes() if self._path.is_file() else b""

    def write(self, position: int) -> None:
        """Note a position; a disk that does not take it leaves the one before."""
        with suppress(OSError):
            os.pwrite(self._file, _FORM.pack(position, row_digest(position)), 0)

    def is_of(self, index: Path) -> bool:
        """Whether that is the file which was noted as the index."""
        with suppress(struct.error, OSError):
            *noted, check = _FILE.unpack_from(self._bytes(), _FORM.size)
            return tuple(noted) == file_numbers(index) and row_digest(*noted) == check
        return False

    def note(self, index: Path) -> None:
        """Note which file the index is."""
        numbers = file_numbers(index)
        with suppress(OSError):
            os.pwrite(self._file, _FILE.pack(*numbers, row_digest(*numbers)), _FORM.size)

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def file_numbers(path: Path) -> tuple[int, int]:
    """What the file system tells a file by, device and inode; zeros where there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def displaced(path: Path, why: str) -> DirectoryInUse:
    """The error that says that this process may no longer write to a log. path: its folder."""
    pid = holder(path.parent)
    return DirectoryInUse(
        f"{path}: {why} since process {os.getpid()} opened it to write; the directory's lock names process {pid}. "
        "This one writes no more to it. Let one process write, and start it again.",
        pid=pid,
    )


def gone(after: int, first: int) -> HistoryGone:
    """The error that says that what comes after a position is no longer there."""
    return HistoryGone(f"events {after + 1} … {first - 1} were dropped; the log begins at {first}.", first=first)


def lost(path: Path, last: int, known: int) -> DamagedFile:
    """The error that says that a log ends too early. path: its index, or its folder."""
    return DamagedFile(
        f"{path} ends at position {last}, and the event at position {known} was acknowledged: the log has lost its end. "
        f"Nothing was changed. Restore it from a copy; or, to go on without those events, move the file {HEAD_NAME} of the "
        "log's folder away, and the snapshots past its end.",
        path=str(path),
        last=last,
        known=known,
    )
