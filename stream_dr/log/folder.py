"""Folder of a log: its files and opening checks.

index.sqlite                  events, keys, schema changes (index.py)
index.sqlite-wal, -shm        SQLite's own files
00000000000000000000.bodies   payloads of events, named by the first position (bodies.py)
head                          last acknowledged position (head.py)
"""

from pathlib import Path

from stream_dr.disk import fsync_directory, make_private_folder
from stream_dr.errors import DirectoryMissing
from stream_dr.log.head import HeadFile, truncated_log_error
from stream_dr.log.index import INDEX_NAME, Index, create_index, open_existing_index_database
from stream_dr.log.sqlite_file import damaged_file_error


def create_or_check_log(folder: Path, writable: bool, least_position: int, more_tables: str) -> None:
    """Create a log, or check the log in a folder.

    An existing log must not end before the last acknowledged event.

    folder: path of the log's folder.
    writable: True to create a missing log. False to raise DirectoryMissing.
    least_position: position that the log must have reached, as the caller knows from other files.
    more_tables: SQL that creates further tables in a new index.

    Raises DirectoryMissing, UnknownFormat, DamagedFile.
    """
    if writable and not folder.is_dir():
        make_private_folder(folder)
        fsync_directory(folder.parent)

    path = folder / INDEX_NAME
    known = max(least_position, HeadFile(folder, writable=False).read_acknowledged_position())
    if not path.exists():
        if known >= 0:
            raise truncated_log_error(path, -1, known)
        if any(folder.glob("*.bodies")):
            raise damaged_file_error(path, "it is missing")
        if not writable:
            raise DirectoryMissing(f"{folder} holds no log; give a directory that replay or serve has written.")
        create_index(folder, more_tables)
    elif writable:
        check_log_reaches(folder, known)


def check_log_reaches(folder: Path, acknowledged_position: int) -> None:
    """Raise DamagedFile if the log ends before the position `acknowledged_position`."""
    # Read the end with a read-only connection.
    # A connection that may write would delete a damaged write-ahead log when it is closed.
    database = open_existing_index_database(folder, writable=False)
    with database.connection() as connection:
        last = Index(folder, connection).bounds_and_total_rows().last
    database.close()
    if last < acknowledged_position:
        raise truncated_log_error(folder / INDEX_NAME, last, acknowledged_position)
