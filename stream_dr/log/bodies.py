"""bodies: the plain append-only files that hold the rows that were appended.

A file begins with 16 bytes that say what it is and 16 that say which one; the index has these, too. Bodies follow one
another without frames: where each one lies stands only in the index's rows. So a body is there once the transaction that
names it is, and bytes that no row names mean nothing; what a crash left past the last named one is cut when the log is next
opened.

Cost: a write is one fdatasync; a read, one pread a body. A file is opened for each. What was written leaves the system's
cache: hardly anything reads it again, and a stream larger than memory would push out what is read.

Why this way: a file without frames has no format to recover, so its recovery cannot be wrong. What lies at one place of one
file can be overwritten there. SQLite writes every byte of a body twice, in pages, and moves them. Not memory-mapped:
retention removes the file while events read from it live on.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stream_dr.disk import fsync_directory, is_broken, no_room
from stream_dr.errors import DamagedFile, ForeignFile
from stream_dr.failpoints import failpoint
from stream_dr.log.event import Body
from stream_dr.log.sqlite_file import damaged_file, translated

MAGIC = b"stream_dr bodies"
IDENTITY_BYTES = 16
BEGIN = len(MAGIC) + IDENTITY_BYTES
"""Offset of the first body."""

_ZEROS = 1 << 20


class BodyFile(NamedTuple):
    """A file of bodies; identity: the 16 bytes that both it and the index hold.

    Its methods raise DamagedFile, ForeignFile, InsufficientStorage.
    """

    path: Path
    identity: bytes

    def write(self, bodies: Sequence[Body], end: int) -> list[int]:
        """Put bodies behind the offset `end`, durable on return; the offsets at which they begin.

        On an error the file ends at `end` again.
        """
        starts = [end]
        with self.opened(os.O_RDWR) as file:
            try:
                failpoint("log.bodies_write")
                for body in bodies:
                    starts.append(_write(file, body, starts[-1]))
                failpoint("log.bodies_sync")
                os.fdatasync(file)
                if hasattr(os, "posix_fadvise"):  # not on macOS
                    os.posix_fadvise(file, end, starts[-1] - end, os.POSIX_FADV_DONTNEED)
            except BaseException as e:
                with suppress(OSError):
                    os.ftruncate(file, end)
                if is_broken(e):
                    raise no_room(self.path, str(e)) from e
                raise
        return starts[:-1]

    def check(self, end: int, cut: bool = False) -> None:
        """Raise where the file is not this one, or ends before `end`; cut: cut what lies past it."""
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
        """A descriptor for the time of the with-block, of a file that is this one."""
        with translated(self.path):
            try:
                file = os.open(self.path, flags | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its other end
            except (FileNotFoundError, PermissionError) as e:
                raise damaged_file(
                    self.path, "it is missing" if e.errno == errno.ENOENT else "it may not be opened"
                ) from e
            try:
                self._recognise(os.pread(file, BEGIN, 0))
                yield file
            finally:
                os.close(file)

    def _recognise(self, header: bytes) -> None:
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
        """The error that says that the file ends before `end`."""
        return damaged_file(self.path, f"it ends after {size} bytes; {end} were written")


class Reader:
    """Reads bodies for the time of a with-block; file_of: the file whose first position is that number."""

    def __init__(self, file_of: Callable[[int], BodyFile]) -> None:
        self._file_of, self._open = file_of, ExitStack()
        self._files: dict[int, tuple[BodyFile, int]] = {}

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, first: int, start: int, size: int) -> bytes:
        """The `size` bytes at `start` of a file."""
        if first not in self._files:
            found = self._file_of(first)
            self._files[first] = (found, self._open.enter_context(found.opened(os.O_RDONLY)))
        whole, file = self._files[first]
        try:
            body = os.pread(file, size, start)
        except OSError as e:
            raise damaged_file(whole.path, str(e)) from e
        if len(body) < size:
            raise whole.too_short(start + len(body), start + size)
        return body


def bodies_path(folder: Path, first: int) -> Path:
    """The file that is begun with the event at that position."""
    return folder / f"{first:020d}.bodies"


def create_bodies(path: Path) -> BodyFile:
    """An empty file with an identity of its own, durable."""
    made = BodyFile(path, os.urandom(IDENTITY_BYTES))
    with translated(path), open(path, "wb") as file:
        file.write(MAGIC + made.identity)
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(path.parent)
    return made


def _write(file: int, body: Body, at: int) -> int:
    """Write all of it, whatever part each call takes; where it ends."""
    left = memoryview(body)
    while len(left):
        done = os.pwrite(file, left, at)
        left, at = left[done:], at + done
    return at
