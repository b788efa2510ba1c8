"""bodies: the plain append-only file that holds the larger bodies of one segment.

It begins with 16 bytes that say what it is and 16 that say which segment's it is. Bodies follow one another without
frames, the first of a write and large ones at multiples of 4 KiB, with zeros before them (direct.py): where each one lies
stands only in the segment's SQLite rows. So a body is there once the transaction that names it is, and bytes that no row
names mean nothing; what a crash left past the last named one is cut when the log is next opened for writing.

Cost: a write is one durable write past the system's cache, or, of few bytes, one into it and one fdatasync; a read, one
pread a body. The file is opened for each read (about 10 µs) and kept open for writing as long as it is the one at its path,
which is looked at every LOOK seconds: who takes it away takes what was acknowledged with it. What did go into the cache is
let go at once: models that keep up never read it. 920 KB were appended one by one at 0.80 to 0.88 of the rate of a bare file
that is synced as often, four at a time at 0.78 to 0.92; through the cache at 0.75 and 0.86 (`python
benchmarks/log_append.py`, and with --cached).

Why this way: a file without frames has no format to recover, so its recovery cannot be wrong. SQLite writes every byte of
a body twice, in pages (log.py has the figures). Allocating ahead of the writes saves a tenth of a synced write (`python
benchmarks/log_append.py`, last column) and would leave a file that does not end where it ends. Opened for each write, it
made the appender wait for the interpreter several times more a group. Not memory-mapped: retention removes the file while
events read from it live on.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from stream_dr.disk import is_broken, no_room
from stream_dr.errors import ForeignFile, HistoryGone
from stream_dr.failpoints import failpoint
from stream_dr.log import direct
from stream_dr.log.event import Body
from stream_dr.log.sqlite_file import damaged, translated

MAGIC = b"stream_dr bodies"
IDENTITY_BYTES = 16
BEGIN = len(MAGIC) + IDENTITY_BYTES
"""Offset of the first body."""

LOOK = 0.1
"""Seconds between looks at whether the file that is kept open is the one at its path."""

_ZEROS = 1 << 20


class Bodies:
    """The file beside the index at `index`; identity: the 16 bytes that both hold."""

    def __init__(self, index: Path, identity: bytes) -> None:
        self.index, self.path, self.identity = index, bodies_path(index), identity
        self._kept, self._place, self._looked = (-1, -1), (0, 0), 0.0

    @classmethod
    def create(cls, index: Path) -> "Bodies":
        """An empty file with an identity of its own, synced; its directory is not."""
        made = cls(index, os.urandom(IDENTITY_BYTES))
        with translated(made.path), open(made.path, "wb") as file:
            file.write(MAGIC + made.identity)
            file.flush()
            os.fsync(file.fileno())
        return made

    def write(self, bodies: Sequence[Body], end: int) -> list[int]:
        """Put bodies behind the offset `end`, durable on return; the offsets at which they begin.

        On an error the file ends at `end` again. Raises InsufficientStorage, DamagedFile, ForeignFile.
        """
        starts = direct.offsets([len(body) for body in bodies], end)
        with self._writing() as (file, past):
            try:
                failpoint("log.bodies_write")
                durable = direct.write(file, past, bodies, starts)
                failpoint("log.bodies_sync")
                if not durable:
                    os.fdatasync(file)
            except BaseException as e:
                with suppress(OSError):
                    os.ftruncate(file, end)
                if is_broken(e):
                    raise no_room(self.path, str(e)) from e
                raise
            if not durable:
                with suppress(OSError):  # a hint; the bodies are on the disk
                    os.posix_fadvise(file, *_around(starts, bodies), os.POSIX_FADV_DONTNEED)
        return starts

    def rest(self) -> None:
        """Close the descriptors that are kept for writing; the next write opens the file again."""
        kept, self._kept = self._kept, (-1, -1)
        for file in kept:
            if file >= 0:
                os.close(file)

    def cut(self, end: int) -> None:
        """Cut what lies past `end`; raises DamagedFile when the file ends before it."""
        with self.opened(os.O_RDWR) as file:
            size = os.fstat(file).st_size
            if size < end:
                raise self.too_short(size, end)
            if size > end:
                os.ftruncate(file, end)

    def erase(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Overwrite (start, size) ranges with zeros, durable on return."""
        with self.opened(os.O_RDWR) as file:
            for start, size in ranges:
                for at in range(start, start + size, _ZEROS):
                    direct.write_cached(file, [bytes(min(_ZEROS, start + size - at))], at)
            os.fdatasync(file)

    def check(self) -> None:
        """Raise DamagedFile or ForeignFile when the file is missing or not this segment's."""
        with self.opened(os.O_RDONLY):
            pass

    @contextmanager
    def opened(self, flags: int) -> Iterator[int]:
        """A descriptor for the time of the with-block, of a file that is this segment's."""
        with translated(self.path):
            file = self._open(flags)
            try:
                yield file
            finally:
                os.close(file)

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, int]]:
        """The descriptors that are kept for writing, the second one past the cache, unless the with-block raises."""
        with translated(self.path):
            now = time.monotonic()
            if self._kept[0] >= 0 and now - self._looked > LOOK:
                self._looked = now
                if _place(self.path) != self._place:  # removed, or another put there
                    self.rest()
            if self._kept[0] < 0:
                self._kept = (self._open(os.O_RDWR), -1)
                self._kept = (self._kept[0], direct.open_past(self._kept[0]))
                self._place, self._looked = _place(self._kept[0]), now
            try:
                yield self._kept
            except BaseException:
                self.rest()
                raise

    def _open(self, flags: int) -> int:
        try:
            file = os.open(self.path, flags | os.O_CLOEXEC)
        except FileNotFoundError as e:
            raise self._missing() from e
        try:
            self._recognise(os.pread(file, BEGIN, 0))
        except BaseException:
            os.close(file)
            raise
        return file

    def _recognise(self, header: bytes) -> None:
        if len(header) < BEGIN:
            raise self.too_short(len(header), BEGIN)
        if header[: len(MAGIC)] != MAGIC:
            raise ForeignFile(f"{self.path} was not written by stream_dr; move it away.", path=str(self.path))
        if header[len(MAGIC) :] != self.identity:
            raise ForeignFile(
                f"{self.path} holds the bodies of another segment than {self.index.name}; put its own back.",
                path=str(self.path),
            )

    def _missing(self) -> Exception:
        if self.index.exists():
            return damaged(self.path, "it is missing")
        return HistoryGone(f"{self.path.name} is not there any more: its events were dropped.", path=str(self.path))

    def too_short(self, size: int, end: int) -> Exception:
        """The error that says that the file ends before `end`."""
        return damaged(self.path, f"it ends after {size} bytes; {end} were written")


class Reader:
    """Reads bodies for the time of a with-block; the file is opened when the first one is asked for."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self._open, self._file = bodies, ExitStack(), -1

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, start: int, size: int) -> bytes:
        """The `size` bytes at `start`. Raises DamagedFile, ForeignFile, HistoryGone."""
        if self._file < 0:
            self._file = self._open.enter_context(self._bodies.opened(os.O_RDONLY))
        body = os.pread(self._file, size, start)
        while len(body) < size and (more := os.pread(self._file, size - len(body), start + len(body))):
            body += more
        if len(body) < size:
            raise self._bodies.too_short(start + len(body), start + size)
        return body


def bodies_path(index: Path) -> Path:
    """The bodies file of a segment's index."""
    return index.with_suffix(".bodies")


def _place(file: Path | int) -> tuple[int, int]:
    """Which file it is; (0, 0): none."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _around(starts: Sequence[int], bodies: Sequence[Body]) -> tuple[int, int]:
    """The range (start, size), begun early enough to hold the large pages that the write before left half full."""
    begin = max(0, starts[0] - _ZEROS)
    return begin, starts[-1] + len(bodies[-1]) - begin
