"""Copy of a log at one moment, while another process may write.

A log has an index (a SQLite file) and files of bodies (the payloads of events). The copy is made
in two steps:

1. The files of bodies are copied. They only grow, and bytes of a body never change except when the
   body is erased.
2. The index is copied as it is at one moment. Bytes that were appended to the files of bodies
   since step 1 are also copied.

During step 2, the other process may replace a body because rows were unlearned. The new body is
appended to a file, and the old bytes are overwritten. The copied index then still points to the
old bytes. In this case `source_overwritten_since` returns True, and step 2 must be repeated.

Nearly all bytes of a log are bodies, so step 1 takes most of the time. If the index were read in
one transaction from step 1 on, SQLite could not shorten its write-ahead log during this time.

Bytes that belong to no body in the index are zeros in the copy. So unlearned rows are not in the
copy, even if they were copied before they were overwritten.

Cost: one read of the log and one write of the copy.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stream_dr.disk import fsync_directory, make_private_folder, open_private
from stream_dr.errors import DamagedFile
from stream_dr.log.bodies import BEGIN
from stream_dr.log.head import HeadFile
from stream_dr.log.index import INDEX_NAME, BodyFileEntry, Index, open_existing_index_database
from stream_dr.log.sqlite_file import read_transaction, translate_errors

PIECE = 1 << 20
"""Number of bytes read at a time."""

CopyProgress = Callable[[int, int], object]
"""Function called with the number of bytes copied so far and the total number of bytes."""


class LogCopy:
    """Copy of the log in `source`, in new folder `target`.

    Call `copy_bodies` first. Then call `copy_index_and_rest` within the with-block of
    `open_source_index_snapshot`. This completes the copy, unless `source_overwritten_since` returns
    True afterwards. Raises DamagedFile, ForeignFile, UnknownFormat, InsufficientStorage.
    """

    def __init__(self, source: Path, target: Path, progress: CopyProgress = lambda done, total: None) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        make_private_folder(target)

    @contextmanager
    def open_source_index_snapshot(self) -> Iterator[Index]:
        """Open the source's index for the time of the with-block.

        Within the with-block, the index is one consistent snapshot.
        """
        database = open_existing_index_database(self._source, writable=False)
        try:
            with database.connection() as connection, read_transaction(connection):
                index = Index(self._source, connection)
                index.bounds_and_total_rows()
                yield index
        finally:
            database.close()

    def copy_bodies(self) -> None:
        """Copy the files of event payloads as they are now.

        Files that retention removes during the copying are not copied.
        """
        with self.open_source_index_snapshot() as index:
            files = index.files()
        self._copy_body_files(files, skip_dropped_files=True)

    def copy_index_and_rest(self, index: Index) -> None:
        """Copy the index and the payloads that the copy lacks.

        index: consistent snapshot of the source's index, as `open_source_index_snapshot` yields it.
        """
        files = index.files()
        self._copy_body_files(files)
        index.copy_to(self._target)

        # Remove files of dropped events, and payloads that the index does not list.
        named = {listed.file.path.name for listed in files}
        for path in self._target.glob("*.bodies"):
            if path.name not in named:
                path.unlink()

        # Overwrite bytes that belong to no event payload with zeros.
        for listed in files:
            copied = listed.file._replace(path=self._target / listed.file.path.name)
            at = BEGIN
            for start, size in [*index.body_offsets_and_sizes(listed.first), (listed.end, 0)]:
                if start > at:
                    copied.overwrite_with_zeros(at, start - at)
                at = start + size

        # Write the file `head` of the copy, which has the last position and identifies the index.
        head = HeadFile(self._target, writable=True)
        head.try_write_acknowledged(index.bounds_and_total_rows().last)
        head.try_store_inode(self._target / INDEX_NAME)
        head.close()
        fsync_directory(self._target)

    def source_overwritten_since(self, copied_index: Index) -> bool:
        """Return True if copied payloads may have been overwritten.

        A payload is overwritten when its rows are unlearned.

        copied_index: the consistent snapshot that was copied.
        """
        copied = {
            listed.first: set(copied_index.body_offsets_and_sizes(listed.first)) for listed in copied_index.files()
        }
        with self.open_source_index_snapshot() as now:
            return any(
                copied.get(listed.first, set()) - set(now.body_offsets_and_sizes(listed.first))
                for listed in now.files()
            )

    def _copy_body_files(self, files: Sequence[BodyFileEntry], skip_dropped_files: bool = False) -> None:
        """Copy files of event payloads.

        files: the files, with the end of the last payload in each file.
        skip_dropped_files: True to skip files that retention removes during the copying.
        """
        done = 0
        total = sum(listed.end for listed in files)
        for listed in files:
            try:
                self._append_missing_bytes(listed, done, total)
            except DamagedFile:
                if not skip_dropped_files or listed.file.path.exists():
                    raise
            done += listed.end

    def _append_missing_bytes(
        self, listed: BodyFileEntry, bytes_of_earlier_files: int, bytes_of_all_files: int
    ) -> None:
        """Append a payload file's missing bytes to its copy.

        listed: the payload file, and the end of its last payload.
        bytes_of_earlier_files: number of bytes of the files before this file.
        bytes_of_all_files: number of bytes of all files.
        """
        path = self._target / listed.file.path.name
        with translate_errors(path), open(path, "ab", opener=open_private) as copy:
            if copy.tell() < listed.end:
                with listed.file.open_checked(os.O_RDONLY) as file:
                    while (at := copy.tell()) < listed.end:
                        piece = os.pread(file, min(PIECE, listed.end - at), at)
                        if not piece:
                            raise listed.file.too_short_error(at, listed.end)
                        copy.write(piece)
                        self._progress(bytes_of_earlier_files + at + len(piece), bytes_of_all_files)

            copy.flush()
            os.fsync(copy.fileno())
