"""folder: the files of a log, by name; what is looked at before it is opened, and what is cleared away.

    index.sqlite                  events, keys, schema changes (index.py); index.sqlite-wal, -shm: SQLite's own
    00000000000000000000.bodies   the rows, in files named by the position they were begun with (bodies.py)
    head                          up to where events were acknowledged (head.py)

A WAL that SQLite does not believe goes with the last writing connection, so where the log ends is looked up by a reader
first.
"""

from collections.abc import Sequence
from pathlib import Path

from stream_dr.disk import fsync_directory
from stream_dr.errors import DirectoryMissing
from stream_dr.log import index as tables
from stream_dr.log.head import Head, lost
from stream_dr.log.index import INDEX_NAME, Current, Index
from stream_dr.log.sqlite_file import damaged_file, unknown_format


def prepare(folder: Path, writable: bool, at_least: int) -> None:
    """Make the log where there is none yet, and look whether it ends where it should; at_least: a position it has reached.

    Raises DirectoryMissing, UnknownFormat, DamagedFile.
    """
    if writable and not folder.is_dir():
        folder.mkdir(parents=True)
        fsync_directory(folder.parent)
    path, known = folder / INDEX_NAME, max(at_least, Head(folder, writable=False).read())
    if not path.exists():
        if _segments(folder):
            raise unknown_format(path, 2, tables.LOG_FORMAT)
        if known >= 0:
            raise lost(path, -1, known)
        if any(folder.glob("*.bodies")):
            raise damaged_file(path, "it is missing")
        if not writable:
            raise DirectoryMissing(f"{folder} holds no log; give a directory that replay or serve has written.")
        tables.create_index(folder)
    elif writable:
        check_end(folder, known)


def check_end(folder: Path, known: int) -> None:
    """Raise DamagedFile where the log ends before the position `known`; look as a reader."""
    database = tables.database(folder, writable=False)
    with database.connection() as connection:
        last = Index(folder, connection).ends().last
    database.close()
    if last < known:
        raise lost(folder / INDEX_NAME, last, known)


def tidy(folder: Path, files: Sequence[Current]) -> None:
    """Remove files of bodies that the index does not name, and an index that was not completed."""
    named = {listed.file.path for listed in files}
    for left in (*folder.glob("*.bodies"), *folder.glob(f"{INDEX_NAME}.tmp*")):
        if left not in named:
            left.unlink()


def _segments(folder: Path) -> list[Path]:
    """The indexes of format 2, with SQLite's own files beside them."""
    return [path for path in folder.glob("*.sqlite*") if path.name.split(".")[0].isdigit()]
