"""log_folder: the files of a log, by name.

    00000000000000000000.sqlite   a segment's index, named by its first position   .sqlite-wal, .sqlite-shm: SQLite's own
    00000000000000000000.bodies   the larger bodies of that segment's events
    index.sqlite                  the index of keys (key_index.py)

Why this way: a segment is there when its index is, so that comes last when one is made and goes first when one is removed;
what a crash leaves is then a file without its index, and can be removed by name alone.
"""

from pathlib import Path

from stream_dr.errors import DirectoryMissing
from stream_dr.streams.bodies import bodies_path
from stream_dr.streams.disk import fsync_directory, remove_temporaries


def segment_files(folder: Path) -> list[Path]:
    """The indexes of the segments, oldest first."""
    return sorted(p for p in folder.glob("*.sqlite") if p.stem.isdigit())


def prepare(folder: Path, writable: bool) -> None:
    """Make the folder, or remove what a crash left in it. Raises DirectoryMissing when it is not there to be read."""
    if not writable:
        if not folder.is_dir():
            raise DirectoryMissing(f"{folder} holds no log; give a directory that replay or serve has written.")
        return
    if not folder.is_dir():
        folder.mkdir(parents=True)
        fsync_directory(folder.parent)
    remove_temporaries(folder)
    for pattern in ("*.sqlite-wal", "*.sqlite-shm", "*.bodies"):
        for file in folder.glob(pattern):
            if not file.with_suffix(".sqlite").exists():
                file.unlink()


def remove_segment(index: Path) -> None:
    """Remove a segment's files, durable on return."""
    index.unlink(missing_ok=True)
    for file in (index.with_name(f"{index.name}-wal"), index.with_name(f"{index.name}-shm"), bodies_path(index)):
        file.unlink(missing_ok=True)
    fsync_directory(index.parent)
