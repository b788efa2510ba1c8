"""copying: a copy of a log that another process may be writing to, as the log is at one moment.

The files of bodies are copied first, as long as they are: they only grow, and nothing that the index names is changed. Then
the index is copied, in one view, and what was appended to the files meanwhile. Bytes that it does not name are zeros in the
copy: rows that were unlearned are not in it, whatever was read before they were overwritten.

Cost: one read of the log, one write of the copy. The view, which keeps SQLite from shortening its WAL, lasts as long as the
index takes, and what was appended meanwhile.

Why this way: bodies are nearly all of a log, and a view held while they are copied would let the WAL grow all that time.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stream_dr.disk import fsync_directory
from stream_dr.errors import DamagedFile
from stream_dr.log import index as tables
from stream_dr.log.bodies import BEGIN
from stream_dr.log.head import Head
from stream_dr.log.index import Current, Index
from stream_dr.log.sqlite_file import one_view, translated

PIECE = 1 << 20
"""Bytes read at once."""

Progress = Callable[[int, int], object]
"""Called with bytes done and bytes of all."""


class LogCopy:
    """A copy of the log in the folder `source`, in the new folder `target`.

    `bodies` first; then `rest`, within `view`, makes it whole. Raises DamagedFile, ForeignFile, UnknownFormat,
    InsufficientStorage.
    """

    def __init__(self, source: Path, target: Path, progress: Progress = lambda done, total: None) -> None:
        self._source, self._target, self._progress = source, target, progress
        target.mkdir()

    @contextmanager
    def view(self) -> Iterator[Index]:
        """The index of the source as it is now, for the time of the with-block."""
        database = tables.database(self._source, writable=False)
        try:
            with database.connection() as connection, one_view(connection):
                index = Index(self._source, connection)
                index.ends()
                yield index
        finally:
            database.close()

    def bodies(self) -> None:
        """Copy the files of bodies as they are now; one that is dropped meanwhile is left out."""
        with self.view() as index:
            files = index.files()
        self._copy(files, dropped=True)

    def rest(self, index: Index) -> None:
        """Copy the index that is viewed, and what it names and is not here yet."""
        files = index.files()
        self._copy(files)
        index.copy_to(self._target)
        named = {listed.file.path.name for listed in files}
        for left in self._target.glob("*.bodies"):
            if left.name not in named:
                left.unlink()
        for listed in files:
            self._clear(listed, index.places(listed.first))
        head = Head(self._target, writable=True)
        head.write(index.ends().last)
        head.note(self._target / tables.INDEX_NAME)
        head.close()
        fsync_directory(self._target)

    def _copy(self, files: Sequence[Current], dropped: bool = False) -> None:
        done, total = 0, sum(listed.end for listed in files)
        for listed in files:
            try:
                self._extend(listed, done, total)
            except DamagedFile:
                if not dropped or listed.file.path.exists():
                    raise
            done += listed.end

    def _extend(self, listed: Current, done: int, total: int) -> None:
        """Copy what of a file is not here yet; done, total: bytes of the files before it, and of all."""
        path = self._target / listed.file.path.name
        with translated(path), open(path, "ab") as copy:
            if copy.tell() < listed.end:
                with listed.file.opened(os.O_RDONLY) as file:
                    while (at := copy.tell()) < listed.end:
                        piece = os.pread(file, min(PIECE, listed.end - at), at)
                        if not piece:
                            raise listed.file.too_short(at, listed.end)
                        copy.write(piece)
                        self._progress(done + at + len(piece), total)
            copy.flush()
            os.fsync(copy.fileno())

    def _clear(self, listed: Current, places: Sequence[tuple[int, int]]) -> None:
        """Overwrite what lies between the places (start, size), in order, of what the index names."""
        copied, at = listed.file._replace(path=self._target / listed.file.path.name), BEGIN
        for start, size in [*places, (listed.end, 0)]:
            if start > at:
                copied.erase(at, start - at)
            at = start + size
