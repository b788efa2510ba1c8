"""Head: the last acknowledged position, stored next to the log.

If a bit of SQLite's write-ahead log (WAL) is flipped, SQLite assumes that a crash cut the WAL
short. SQLite then opens the part before the flipped bit without an error, so the end of the log
would be lost unnoticed. Therefore the last acknowledged position is written to a file after each
commit, as 16 bytes. If the log ends before this position, an error is raised, and the user can
restore a backup. The 16 bytes survive a killed process. After a power cut the position may be
older than the log, but never newer.

The file also stores the device and inode numbers of the log's index, so that a copied index is
detected. Copying a live directory captures SQLite's file and its WAL at different moments, and
SQLite accepts the inconsistent pair without complaint.

Cost: one write of 16 bytes for each commit, without a sync.
"""

import os
import struct
from contextlib import suppress
from pathlib import Path

from stream_dr.disk import PRIVATE_FILE, read_lock_holder_pid
from stream_dr.errors import DamagedFile, DirectoryInUse, DirectoryMissing, HistoryGone
from stream_dr.log.event import row_digest

HEAD_NAME = "head"

_FORM = struct.Struct("<qq")
"""First part of the file: position and its digest."""

_FILE = struct.Struct("<QQq")
"""Second part of the file: device number and inode number of the index, and their digest."""


class HeadFile:
    """File `head` of a log's folder, with the last acknowledged position.

    One process at a time writes this file.
    """

    def __init__(self, folder: Path, writable: bool) -> None:
        self._path = folder / HEAD_NAME
        flags = os.O_RDWR | os.O_CREAT
        self._file = os.open(self._path, flags, PRIVATE_FILE) if writable else -1

    def read_acknowledged_position(self) -> int:
        """Return the last acknowledged position.

        −1 if the file is missing or damaged.
        """
        with suppress(struct.error, OSError):
            position, check = _FORM.unpack_from(self._content_if_regular_file())
            if row_digest(position) == check:
                return int(position)
        return -1

    def _content_if_regular_file(self) -> bytes:
        """Return the content of the file.

        The content is empty if the file is not a regular file. Reading a FIFO would block.
        """
        return self._path.read_bytes() if self._path.is_file() else b""

    def try_write_acknowledged(self, position: int) -> None:
        """Write the last acknowledged position.

        If the write fails, the file still has the previous position and no error is raised.
        """
        with suppress(OSError):
            os.pwrite(self._file, _FORM.pack(position, row_digest(position)), 0)

    def stores_inode_of(self, index: Path) -> bool:
        """Return True if `index` has the stored device and inode numbers.

        `try_store_inode` stores the numbers of the log's index. A copy of the index has other
        numbers.
        """
        with suppress(struct.error, OSError):
            *noted, check = _FILE.unpack_from(self._content_if_regular_file(), _FORM.size)
            return tuple(noted) == device_and_inode(index) and row_digest(*noted) == check
        return False

    def try_store_inode(self, index: Path) -> None:
        """Store the device and inode numbers of the log's index file."""
        numbers = device_and_inode(index)
        with suppress(OSError):
            os.pwrite(self._file, _FILE.pack(*numbers, row_digest(*numbers)), _FORM.size)

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def device_and_inode(path: Path) -> tuple[int, int]:
    """Return a file's device and inode numbers. Zeros without a file."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def moved_log_error(log_folder: Path) -> DirectoryInUse | DirectoryMissing:
    """Return the error for a moved, removed or replaced log folder.

    This process may no longer write to the log.

    log_folder: path of the log's folder.
    """
    if not log_folder.exists():
        return DirectoryMissing(
            f"{log_folder} was moved or removed since this process opened it to write, which writes no more to it. "
            "Put it back, or restore it from a copy, and start again."
        )
    pid = read_lock_holder_pid(log_folder.parent)
    return DirectoryInUse(
        f"{log_folder} was moved or replaced since process {os.getpid()} opened it to write; the directory's lock names "
        f"process {pid}. This one writes no more to it. Let one process write, and start it again.",
        pid=pid,
    )


def history_gone_error(after: int, first: int) -> HistoryGone:
    """Return the error for events that were dropped.

    after: position before the first requested event.
    first: position of the oldest event that the log still has.
    """
    return HistoryGone(f"events {after + 1} … {first - 1} were dropped; the log begins at {first}.", first=first)


def truncated_log_error(path: Path, last_position: int, acknowledged_position: int) -> DamagedFile:
    """Return the error for a log without its last events.

    path: path of the log's index or folder.
    last_position: position of the last event in the log.
    acknowledged_position: last acknowledged position.
    """
    return DamagedFile(
        f"{path} ends at position {last_position}, and the event at position {acknowledged_position} was acknowledged: the "
        "log has lost its end. "
        f"Nothing was changed. Restore it from a copy; or, to go on without those events, move the file {HEAD_NAME} of the "
        "log's folder away, and the snapshots past its end.",
        path=str(path),
        last=last_position,
        known=acknowledged_position,
    )
