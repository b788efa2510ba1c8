"""Files of bodies: append-only files that hold the rows that were appended.

A file begins with 16 bytes that say that it is one of ours and 16 bytes of identity, which the
index has, too. Bodies follow one another without frames. Only the index says where each body lies.
So a body exists once the transaction that names it is committed. Bytes past the last named body
are what a crash left, and are cut when the log is next opened.

A file without frames has no format to recover, so its recovery cannot be wrong. A body can be
overwritten in place. SQLite would write each byte of a body twice, in pages, and move them. The
files are not memory-mapped, because retention removes a file while events read from it live on.

Cost: a write is one fdatasync. A read is one pread for each body. A file is opened for each.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stream_dr.disk import fsync_directory, is_broken, storage_error
from stream_dr.errors import DamagedFile, ForeignFile
from stream_dr.failpoints import failpoint
from stream_dr.log.event import Body
from stream_dr.log.sqlite_file import damaged_file, translate_errors

MAGIC = b"stream_dr bodies"
IDENTITY_BYTES = 16
BEGIN = len(MAGIC) + IDENTITY_BYTES
"""Offset of the first body."""

_ZEROS = 1 << 20


class BodyFile(NamedTuple):
    """File of bodies.

    identity: the 16 bytes that the file and the index hold.

    The methods raise DamagedFile, ForeignFile, InsufficientStorage.
    """

    path: Path
    identity: bytes

    def write(self, bodies: Sequence[Body], end: int) -> list[int]:
        """Write bodies from the offset `end` on, and return their offsets.

        They are durable on return. After an error the file ends at `end` again.
        """
        starts = [end]
        with self.opened(os.O_RDWR) as file:
            try:
                failpoint("log.bodies_write")
                for body in bodies:
                    starts.append(_write(file, body, starts[-1]))
                failpoint("log.bodies_sync")
                os.fdatasync(file)

                # Drop the bytes from the page cache: hardly anything reads them again, and a
                # stream larger than memory would push out what is read. macOS lacks the call.
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file, end, starts[-1] - end, os.POSIX_FADV_DONTNEED)
            except BaseException as e:
                with suppress(OSError):
                    os.ftruncate(file, end)
                if is_broken(e):
                    raise storage_error(self.path, str(e)) from e
                raise
        return starts[:-1]

    def check(self, end: int, cut: bool = False) -> None:
        """Raise an error if the file is not this one or ends before `end`.

        cut: remove the bytes past `end`.
        """
        with self.opened(os.O_RDWR if cut else os.O_RDONLY) as file:
            size = os.fstat(file).st_size
            if size < end:
                raise self.too_short(size, end)
            if cut and size > end:
                os.ftruncate(file, end)

    def erase(self, start: int, size: int) -> None:
        """Overwrite a range with zeros, durable on return."""
        with self.opened(os.O_RDWR) as file:
            for at in range(start, start + size, _ZEROS):
                _write(file, bytes(min(_ZEROS, start + size - at)), at)
            os.fdatasync(file)

    @contextmanager
    def opened(self, flags: int) -> Iterator[int]:
        """Open the file, check that it is this one, and yield its descriptor."""
        with translate_errors(self.path):
            try:
                # Without O_NONBLOCK, opening a FIFO would wait for its other end.
                file = os.open(self.path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
            except (FileNotFoundError, PermissionError) as e:
                raise damaged_file(
                    self.path, "it is missing" if e.errno == errno.ENOENT else "it may not be opened"
                ) from e

            try:
                self._check_header(os.pread(file, BEGIN, 0))
                yield file
            finally:
                os.close(file)

    def _check_header(self, header: bytes) -> None:
        """Raise an error unless the file begins as this one must."""
        if len(header) < BEGIN:
            raise self.too_short(len(header), BEGIN)
        if header[: len(MAGIC)] != MAGIC:
            raise ForeignFile(f"{self.path} was not written by stream_dr; move it away.", path=str(self.path))
        if header[len(MAGIC) :] != self.identity:
            raise ForeignFile(
                f"{self.path} holds the bodies of another log or of other events; put its own back.",
                path=str(self.path),
            )

    def too_short(self, size: int, end: int) -> DamagedFile:
        """Return the error that says that the file ends before `end`."""
        return damaged_file(self.path, f"it ends after {size} bytes; {end} were written")


class Reader:
    """Reader of bodies, for the time of a with-block.

    file_of: returns the file of bodies with a number.
    """

    def __init__(self, file_of: Callable[[int], BodyFile]) -> None:
        self._file_of = file_of
        self._open = ExitStack()
        self._files: dict[int, tuple[BodyFile, int]] = {}

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, first: int, start: int, size: int) -> bytes:
        """Return the `size` bytes at offset `start` of a file.

        first: number of the file.
        """
        if first not in self._files:
            new_file = self._file_of(first)
            self._files[first] = (new_file, self._open.enter_context(new_file.opened(os.O_RDONLY)))

        body_file, descriptor = self._files[first]
        try:
            body = os.pread(descriptor, size, start)
        except OSError as e:
            raise damaged_file(body_file.path, str(e)) from e
        if len(body) < size:
            raise body_file.too_short(start + len(body), start + size)
        return body


def bodies_path(folder: Path, first: int) -> Path:
    """Return the path of the file of bodies that begins at a position."""
    return folder / f"{first:020d}.bodies"


def create_bodies(path: Path) -> BodyFile:
    """Create an empty file with an identity of its own, durable on return."""
    body_file = BodyFile(path, os.urandom(IDENTITY_BYTES))
    with translate_errors(path), open(path, "wb") as file:
        file.write(MAGIC + body_file.identity)
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(path.parent)
    return body_file


def _write(file: int, body: Body, at: int) -> int:
    """Write all of a body at offset `at`, and return the offset of its end."""
    rest = memoryview(body)
    while len(rest):
        written = os.pwrite(file, rest, at)
        rest = rest[written:]
        at += written
    return at
