"""Payload files: append-only files of event bodies (payloads).

A file begins with 16 bytes that mark the format and 16 random bytes that identify the file. The
log's index (index.py) stores the same identity. Bodies follow one another without headers or
separators. Only the index has the offset and size of each body. So a body exists when the
transaction that stores its offset is committed. A crash may leave bytes after the last body in the
index. These bytes are cut off when the log is next opened.

Why this way: without headers, nothing in a file has to be recovered. A body can be overwritten in
place. SQLite would write each byte of a body twice, in pages, and move the pages. The files are
not memory-mapped, because retention may remove a file while events that were read from the file
are still used.

Cost: a write is one fdatasync. A read is one pread for each body, and opens each file once.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stream_dr.disk import cannot_write_error, fsync_directory, is_device_error, open_private, sync_data
from stream_dr.errors import DamagedFile, ForeignFile
from stream_dr.failpoints import failpoint
from stream_dr.log.event import Body
from stream_dr.log.sqlite_file import damaged_file_error, translate_errors

MAGIC = b"stream_dr bodies"
IDENTITY_BYTES = 16
BEGIN = len(MAGIC) + IDENTITY_BYTES
"""Offset of the first body (event payload) in a file."""

_ZEROS = 1 << 20
"""Maximum number of zero bytes to write at a time."""


class BodyFile(NamedTuple):
    """File of bodies (event payloads).

    identity: the 16 bytes that the file and the log's index both hold.

    The methods raise DamagedFile, ForeignFile, InsufficientStorage.
    """

    path: Path
    identity: bytes

    def write_and_return_offsets(self, bodies: Sequence[Body], offset: int) -> list[int]:
        """Write event bodies (payloads), and return each body's offset.

        The bodies are durable on return. After an error, the file ends at `offset` again.

        offset: offset of the first body, which is the end of the file.
        """
        starts = [offset]
        with self.open_checked(os.O_RDWR) as file:
            try:
                failpoint("log.bodies_write")
                for body in bodies:
                    starts.append(_write_whole_body(file, body, starts[-1]))
                failpoint("log.bodies_sync")
                sync_data(file)

                # Remove the written bytes from the page cache, because they are hardly ever read.
                # In the cache, a long stream would replace useful pages.
                # macOS lacks `posix_fadvise`.
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file, offset, starts[-1] - offset, os.POSIX_FADV_DONTNEED)
            except BaseException as e:
                with suppress(OSError):
                    os.ftruncate(file, offset)
                if is_device_error(e):
                    raise cannot_write_error(self.path, str(e)) from e
                raise
        return starts[:-1]

    def check(self, least_end: int, cut_past_end: bool = False) -> None:
        """Raise an error unless the file matches the log's index.

        The identity in the file must be `identity`, and the file must not end before `least_end`.

        least_end: offset of the end of the last body in the index.
        cut_past_end: remove the bytes past `least_end`.
        """
        with self.open_checked(os.O_RDWR if cut_past_end else os.O_RDONLY) as file:
            size = os.fstat(file).st_size
            if size < least_end:
                raise self.too_short_error(size, least_end)
            if cut_past_end and size > least_end:
                os.ftruncate(file, least_end)

    def overwrite_with_zeros(self, start: int, size: int) -> None:
        """Overwrite a range of bytes with zeros, durable on return.

        start: offset of the range.
        size: number of bytes.
        """
        with self.open_checked(os.O_RDWR) as file:
            for at in range(start, start + size, _ZEROS):
                _write_whole_body(file, bytes(min(_ZEROS, start + size - at)), at)
            sync_data(file)

    @contextmanager
    def open_checked(self, flags: int) -> Iterator[int]:
        """Open the file, check its identity, and yield its descriptor."""
        with translate_errors(self.path):
            try:
                # Without O_NONBLOCK, opening a FIFO would block until another process opens it.
                file = os.open(self.path, flags | os.O_NONBLOCK)
            except (FileNotFoundError, PermissionError) as e:
                raise damaged_file_error(
                    self.path, "it is missing" if e.errno == errno.ENOENT else "it may not be opened"
                ) from e

            try:
                header = os.pread(file, BEGIN, 0)
                if len(header) < BEGIN:
                    raise self.too_short_error(len(header), BEGIN)
                if header[: len(MAGIC)] != MAGIC:
                    raise ForeignFile(f"{self.path} was not written by stream_dr; move it away.", path=str(self.path))
                if header[len(MAGIC) :] != self.identity:
                    raise ForeignFile(
                        f"{self.path} holds the bodies of another log or of other events; put its own back.",
                        path=str(self.path),
                    )
                yield file
            finally:
                os.close(file)

    def too_short_error(self, size: int, end: int) -> DamagedFile:
        """Return the error for a file that ends too early.

        size: size of the file.
        end: offset of the end of the last body in the index.
        """
        return damaged_file_error(self.path, f"it ends after {size} bytes; {end} were written")


class BodyReader:
    """Reader of event bodies (payloads) within a with-block.

    file_of: function that returns a file of bodies by its number (index.py).
    """

    def __init__(self, file_of: Callable[[int], BodyFile]) -> None:
        self._file_of = file_of
        self._open = ExitStack()
        self._files: dict[int, tuple[BodyFile, int]] = {}

    def __enter__(self) -> "BodyReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, file_number: int, start: int, size: int) -> bytes:
        """Return the `size` bytes at offset `start` of a file.

        file_number: number of the file.
        """
        if file_number not in self._files:
            new_file = self._file_of(file_number)
            self._files[file_number] = (new_file, self._open.enter_context(new_file.open_checked(os.O_RDONLY)))

        body_file, descriptor = self._files[file_number]
        try:
            body = os.pread(descriptor, size, start)
        except OSError as e:
            raise damaged_file_error(body_file.path, str(e)) from e
        if len(body) < size:
            raise body_file.too_short_error(start + len(body), start + size)
        return body


def body_file_path(folder: Path, first_position: int) -> Path:
    """Return the path of a file of bodies (event payloads).

    first_position: position of the first event in the file.
    """
    return folder / f"{first_position:020d}.bodies"


def create_body_file(path: Path) -> BodyFile:
    """Create a durable empty file of event bodies (payloads).

    The file gets a random identity.
    """
    body_file = BodyFile(path, os.urandom(IDENTITY_BYTES))
    with translate_errors(path), open(path, "wb", opener=open_private) as file:
        file.write(MAGIC + body_file.identity)
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(path.parent)
    return body_file


def _write_whole_body(file: int, body: Body, offset: int) -> int:
    """Write the whole body at `offset`, and return its end.

    file: descriptor of the file.
    """
    rest = memoryview(body)
    while len(rest):
        written = os.pwrite(file, rest, offset)
        rest = rest[written:]
        offset += written
    return offset
