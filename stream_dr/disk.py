"""Disk: atomic files, one writer for each directory, free space.

`write_atomically` costs two fsyncs, a rename, and writing the file's bytes.

Why this way: a file is moved to its final name only after an fsync, so a reader sees either the
old file or the whole new file. The fsync of the directory makes the rename survive a power cut.

The lock of a directory is a lock of the kernel (flock). The kernel releases the lock when the
process ends for any reason, so no stale lock file has to be removed. The process id in the lock
file is only for messages.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeGuard

from stream_dr.aliases import FileName
from stream_dr.errors import DirectoryInUse, DirectoryMissing, InsufficientStorage, SourceMissing
from stream_dr.failpoints import failpoint

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".tmp"
"""Suffix of files that are being written. Such a file may remain after a crash."""


PRIVATE_FILE = 0o600
"""Mode of the files of a directory. Only the user who runs the service may read the rows."""

sync_data = getattr(os, "fdatasync", os.fsync)
"""Function that makes a file's data durable. macOS and Windows lack `fdatasync`."""


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents for this user alone."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)


def open_private(path: str, flags: int) -> int:
    """Open a file, and let only this user read it if it is new.

    The function is for the parameter `opener` of `open`.
    """
    return os.open(path, flags, PRIVATE_FILE)


def write_atomically(
    path: FileName,
    write_contents: Callable[[BinaryIO], object],
    failpoint_prefix: str = "write",
    mode: int = 0o666,
) -> None:
    """Create or replace a file, whole or not at all.

    A temporary file in the same folder is filled, synced and renamed. After any error the old file
    is unchanged and the temporary file is removed.

    Parameters
    ----------
    path : path
        File to create or replace.
    write_contents : callable
        Function that writes the contents. Its argument is the open binary file.
    failpoint_prefix : str
        Prefix P of three failpoints, at which tests can simulate a crash (failpoints.py): `P.tmp`,
        `P.rename` and `P.dir_fsync`.
    mode : int
        Mode of a new file, of which the process's umask is taken away.

    Raises InsufficientStorage if the disk is full or refuses to write. Other errors of
    `write_contents` are raised unchanged.
    """
    path = Path(path)
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        temporary.touch(mode)
        with open(temporary, "wb") as handle:
            write_contents(handle)
            handle.flush()
            failpoint(f"{failpoint_prefix}.tmp")
            os.fsync(handle.fileno())

        # The contents are durable. Give the file its final name, and then make the name durable.
        failpoint(f"{failpoint_prefix}.rename")
        os.replace(temporary, path)
        failpoint(f"{failpoint_prefix}.dir_fsync")
        fsync_directory(path.parent)

    except BaseException as e:
        temporary.unlink(missing_ok=True)
        if is_disk_unwritable(e) or is_device_error(e):
            raise cannot_write_error(path, str(e)) from e
        raise


def remove_unfinished_files(directory: FileName) -> None:
    """Remove a directory's files that an ended process left unfinished.

    The caller holds the directory's lock.
    """
    for folder in (".", "snapshots/*", "sources/*"):
        for leftover in Path(directory).glob(f"{folder}/*{TEMPORARY}"):
            if leftover.is_file():
                leftover.unlink()
    # Users choose the names of the folders in `sources`, and may choose any suffix.
    # The name of an unfinished folder also begins with a dot, to differ from users' names.
    for leftover in Path(directory).glob(f"sources/.*{TEMPORARY}"):
        shutil.rmtree(leftover, ignore_errors=True)


def fsync_directory(path: FileName) -> None:
    """Make the directory's entries (creations, renames, removals) durable.

    Does nothing on Windows, which cannot open a directory.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return

    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_parent_folder_exists(path: Path) -> None:
    """Raise SourceMissing if a file's folder does not exist.

    path: path of the file, which is to be written.
    """
    if not path.parent.is_dir():
        raise SourceMissing(f"there is no folder {path.parent} to write {path.name} into; make it first.")


def free_bytes(path: FileName) -> int:
    """Return how many bytes this user can still write.

    path: path on the file system in question. Raises DirectoryMissing if it does not exist.
    """
    try:
        return shutil.disk_usage(path).free
    except FileNotFoundError as e:
        raise DirectoryMissing(f"{path} does not exist. Put it back, or restore it from a copy.") from e


def check_free_space(path: FileName, n_bytes: int, min_free_bytes: int = 0) -> None:
    """Raise InsufficientStorage if `n_bytes` do not fit on the disk.

    path: an existing path on the disk.
    n_bytes: number of bytes to write.
    min_free_bytes: number of bytes that must stay free on the disk.
    """
    free = free_bytes(path)
    n_bytes = n_bytes + min_free_bytes
    if free < n_bytes:
        reserved = f", of which {min_free_bytes} must stay free (min_free_bytes)" if min_free_bytes else ""
        raise InsufficientStorage(
            f"{free} bytes are free on the disk of {path}; {n_bytes} are needed{reserved}. Nothing was written; "
            "make room.",
            free_bytes=free,
            needed=n_bytes,
        )


def is_disk_unwritable(error: BaseException) -> TypeGuard[OSError]:
    """Return True if `error` says that the disk is unwritable.

    There are four such errors: the disk is full, a quota is reached, a file is too large, or the
    file system has become read-only.
    """
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def is_device_error(error: BaseException) -> TypeGuard[OSError]:
    """Return True if an error is the system's "input/output error".

    The system raises this error if a device fails to write or to read.
    """
    return isinstance(error, OSError) and error.errno == errno.EIO


def cannot_write_error(path: FileName, reason: str) -> InsufficientStorage:
    """Return the error for a file that cannot be written.

    The reason is that the disk is full or refuses to write.

    reason: message of the system or of SQLite.
    """
    return InsufficientStorage(
        f"{path} could not be written ({reason}): the disk is full, over its quota, or refuses to write. Nothing was "
        "changed; make room on it, or mend it, and try again.",
        path=str(path),
    )


RESERVED_BYTES = 1 << 19
"""Number of bytes that a directory reserves for its next start."""


class ReservedSpace:
    """Context manager to open a directory on a full disk.

    The reserved space is a file of RESERVED_BYTES bytes, `directory/reserve`. The directory is
    opened in the with-block. If fewer than RESERVED_BYTES bytes are free on the disk, the file is
    deleted at the start of the with-block. At the end the file is created again, as large as the
    disk allows.
    """

    def __init__(self, directory: FileName) -> None:
        self.path = Path(directory) / "reserve"

    def __enter__(self) -> None:
        if free_bytes(self.path.parent) < RESERVED_BYTES:
            self.path.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        current_size = self.path.stat().st_size if self.path.exists() else 0
        size = min(RESERVED_BYTES, current_size + free_bytes(self.path.parent))
        if size == current_size:
            return

        try:
            with open(self.path, "ab", opener=open_private) as file:
                os.posix_fallocate(file.fileno(), 0, size)
        # The disk is full again, or the system does not have the function `posix_fallocate`.
        except (OSError, AttributeError):
            self.path.unlink(missing_ok=True)


def read_lock_holder_pid(directory: FileName) -> str:
    """Return the process id in a lock file, or "unknown".

    The lock file is the file `lock` of a directory.
    """
    try:
        return (Path(directory) / "lock").read_text("ascii", "replace")[:32].strip() or "unknown"
    except OSError:
        return "unknown"


def check_directories_work() -> None:
    """Raise OSError on Windows, where no directory can be opened."""
    if fcntl is None:
        raise OSError("this system lacks the file locks that a directory needs. Use Linux or macOS for directories.")


class DirectoryLock:
    """Exclusive right to write to a directory. Context manager.

    One process at a time has this right, until `release` or the end of the process. The directory
    itself and the file `directory/lock` are both locked, so a second process is refused even if
    the file was removed. The file contains the id of the process that has the lock. Costs two
    flocks.

    directory: path of the directory, which must exist.

    Raises DirectoryInUse, with the id of the process that has the lock, or "unknown".
    Raises OSError on Windows.
    """

    def __init__(self, directory: FileName) -> None:
        check_directories_work()
        self.path = Path(directory) / "lock"

        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            for descriptor in (folder, file):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(folder)
            os.close(file)
            pid = read_lock_holder_pid(directory)
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
