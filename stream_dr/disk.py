"""Disk: atomic files, one writer for each directory, free space.

`write_atomically` costs two fsyncs, a rename, and writing the file's bytes.

Why this way: a file that is renamed into place after an fsync is either the old one or the whole
new one. The fsync of the directory makes the rename survive a power cut. The lock is the kernel's
(flock). It ends with the process, however that ended, so no stale lock file has to be removed. The
process id in the file is only for messages.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeGuard

from stream_dr.aliases import FileName
from stream_dr.errors import DirectoryInUse, InsufficientStorage, SourceMissing
from stream_dr.failpoints import failpoint

TEMPORARY = ".tmp"
"""Suffix of files being written. A crash may leave one behind."""


def write_atomically(path: FileName, write: Callable[[BinaryIO], object], point: str = "write") -> None:
    """Create or replace a file: `write(handle)` fills a temporary file beside it, which is synced and renamed.

    point names the failpoints (`point.tmp`, `point.rename`, `point.dir_fsync`). On any error the old file is untouched
    and the temporary one removed. Raises InsufficientStorage when the disk takes no more, else what `write` raises.
    """
    path = Path(path)
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with open(temporary, "wb") as handle:
            write(handle)
            handle.flush()
            failpoint(f"{point}.tmp")
            os.fsync(handle.fileno())
        failpoint(f"{point}.rename")
        os.replace(temporary, path)
        failpoint(f"{point}.dir_fsync")
        fsync_directory(path.parent)
    except BaseException as e:
        temporary.unlink(missing_ok=True)
        if is_full(e) or is_broken(e):
            raise no_room(path, str(e)) from e
        raise


def remove_begun(directory: FileName) -> None:
    """Remove files that an ended process was writing to a stream's directory.

    The caller holds the directory's lock. Files of sources have names of the user's own, which may
    end in any way, so those being written begin with a dot.
    """
    for folder in (".", "snapshots/*", "sources/*"):
        for leftover in Path(directory).glob(f"{folder}/*{TEMPORARY}"):
            if leftover.is_file():
                leftover.unlink()
    for leftover in Path(directory).glob(f"sources/.*{TEMPORARY}"):
        shutil.rmtree(leftover, ignore_errors=True)


def fsync_directory(path: FileName) -> None:
    """Make the directory's entries (creations, renames, removals) durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_folder(path: Path) -> None:
    """Raise SourceMissing where there is no folder to write a file into."""
    if not path.parent.is_dir():
        raise SourceMissing(f"there is no folder {path.parent} to write {path.name} into; make it first.")


def free_bytes(path: FileName) -> int:
    """Bytes this user may still write to the file system that holds `path`."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def check_room(path: FileName, needed: int, min_free_bytes: int = 0) -> None:
    """Raise InsufficientStorage if `needed` bytes do not fit.

    path: an existing path on the disk that is to be written to. min_free_bytes: bytes that must stay free on it.
    """
    free, needed = free_bytes(path), needed + min_free_bytes
    if free < needed:
        reserved = f", of which {min_free_bytes} must stay free (min_free_bytes)" if min_free_bytes else ""
        raise InsufficientStorage(
            f"{free} bytes are free on the disk of {path}; {needed} are needed{reserved}. Nothing was written; make room.",
            free_bytes=free,
            needed=needed,
        )


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Return True if an error says that the disk takes no more.

    There is no space left, a quota is reached, a file is too large, or the file system has become
    read-only.
    """
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def is_broken(error: BaseException) -> TypeGuard[OSError]:
    """Return True if an error is the system's "input/output error".

    Reading may cause it, too.
    """
    return isinstance(error, OSError) and error.errno == errno.EIO


def no_room(path: FileName, said: str) -> InsufficientStorage:
    """Return the error that says that the disk holding `path` is full.

    said: message of the system or of SQLite.
    """
    return InsufficientStorage(
        f"{path} could not be written ({said}): the disk is full, over its quota, or refuses to write. Nothing was changed; "
        "make room on it, or mend it, and try again.",
        path=str(path),
    )


RESERVE = 1 << 19
"""Bytes that a directory keeps for its next start."""


class Reserve:
    """Space reserved for a start on a full disk. Context manager.

    A file of RESERVE bytes at `directory/reserve`. If less than that is free, it is deleted while
    the directory is opened and created again afterwards, as far as there is space.
    """

    def __init__(self, directory: FileName) -> None:
        self.path = Path(directory) / "reserve"

    def __enter__(self) -> None:
        if free_bytes(self.path.parent) < RESERVE:
            self.path.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        there = self.path.stat().st_size if self.path.exists() else 0
        size = min(RESERVE, there + free_bytes(self.path.parent))
        if size == there:
            return
        try:
            with open(self.path, "ab") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        except (OSError, AttributeError):  # full again, or a system that has no such call
            self.path.unlink(missing_ok=True)


def holder(directory: FileName) -> str:
    """The pid in a directory's lock file, or "unknown"."""
    try:
        return (Path(directory) / "lock").read_text("ascii", "replace")[:32].strip() or "unknown"
    except OSError:
        return "unknown"


class DirectoryLock:
    """Exclusive right to write to a directory. Context manager.

    One process at a time holds it, until `release` or the end of the process. It locks both the
    directory itself and `directory/lock`, so a second process is refused even if the file was
    removed. The directory must exist. The file says which process holds the lock. Costs two
    flocks.

    Raises DirectoryInUse with the holder's process id, if it is known.
    """

    def __init__(self, directory: FileName) -> None:
        self.path = Path(directory) / "lock"
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            for descriptor in (folder, file):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(folder)
            os.close(file)
            pid = holder(directory)
            raise DirectoryInUse(
                f"{directory} is being written to by process {pid}; stop it, or use another directory.", pid=pid
            ) from e
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode("ascii"), 0)
        self._descriptors = [folder, file]

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> "DirectoryLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
