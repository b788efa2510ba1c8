"""Head: the last acknowledged position, stored next to the log.

SQLite takes a WAL with a flipped bit for one that a crash cut short, and opens the part before it
without an error. So the log could lose its end unnoticed. An error can be answered by restoring a
copy. Rows that are silently gone cannot. Therefore the last acknowledged position is written after
each commit, as 16 bytes of a file. They survive a killed process. After a power cut they may be
older than the log, but never newer.

The file also says which file the index is, by the numbers that the file system gave it, so that a
copied index is noticed. Copying a live directory captures SQLite's file and its WAL at different
moments, and SQLite accepts the inconsistent pair without complaint.

Cost: one write of 16 bytes for each commit, without a sync.
"""

import os
import struct
from contextlib import suppress
from pathlib import Path

from stream_dr.disk import lock_holder
from stream_dr.errors import DamagedFile, DirectoryInUse, HistoryGone
from stream_dr.log.event import row_digest

HEAD_NAME = "head"
_FORM = struct.Struct("<qq")
_FILE = struct.Struct("<QQq")


class HeadFile:
    """The file `head` in a log's folder. Written by one process.

    existed: True if the file was there.
    """

    def __init__(self, folder: Path, writable: bool) -> None:
        self._path = folder / HEAD_NAME
        self.existed = self._path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o666) if writable else -1

    def read_position(self) -> int:
        """Return the last position written, −1 if none is legible."""
        with suppress(struct.error, OSError):
            position, check = _FORM.unpack_from(self._bytes())
            if row_digest(position) == check:
                return int(position)
        return -1

    def _bytes(self) -> bytes:
        """Return the content of the file.

        Empty if it is not a regular file. Reading a FIFO would wait for its other end.
        """
        return self._path.read_bytes() if self._path.is_file() else b""

    def write_position(self, position: int) -> None:
        """Write a position.

        If the disk does not take it, the position before stays.
        """
        with suppress(OSError):
            os.pwrite(self._file, _FORM.pack(position, row_digest(position)), 0)

    def is_index(self, index: Path) -> bool:
        """Return True if `index` is the file that was noted as the index."""
        with suppress(struct.error, OSError):
            *noted, check = _FILE.unpack_from(self._bytes(), _FORM.size)
            return tuple(noted) == file_numbers(index) and row_digest(*noted) == check
        return False

    def note_index(self, index: Path) -> None:
        """Write which file the index is."""
        numbers = file_numbers(index)
        with suppress(OSError):
            os.pwrite(self._file, _FILE.pack(*numbers, row_digest(*numbers)), _FORM.size)

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def file_numbers(path: Path) -> tuple[int, int]:
    """Return a file's device and inode numbers, or zeros if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def displaced_error(path: Path, why: str) -> DirectoryInUse:
    """Return the error that says that this process may no longer write to a log.

    path: path of the log's folder.
    """
    pid = lock_holder(path.parent)
    return DirectoryInUse(
        f"{path}: {why} since process {os.getpid()} opened it to write; the directory's lock names process {pid}. "
        "This one writes no more to it. Let one process write, and start it again.",
        pid=pid,
    )


def history_gone(after: int, first: int) -> HistoryGone:
    """Return the error that says that the events after a position were dropped."""
    return HistoryGone(f"events {after + 1} … {first - 1} were dropped; the log begins at {first}.", first=first)


def truncated_error(path: Path, last: int, known: int) -> DamagedFile:
    """Return the error that says that a log ends too early.

    path: path of its index or its folder.
    """
    return DamagedFile(
        f"{path} ends at position {last}, and the event at position {known} was acknowledged: the log has lost its end. "
        f"Nothing was changed. Restore it from a copy; or, to go on without those events, move the file {HEAD_NAME} of the "
        "log's folder away, and the snapshots past its end.",
        path=str(path),
        last=last,
        known=known,
    )
