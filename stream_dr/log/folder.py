"""log_folder: the files of a log, by name.

    00000000000000000000.sqlite   a segment's index, named by its first position   .sqlite-wal, .sqlite-shm: SQLite's own
    00000000000000000000.bodies   the larger bodies of that segment's events
    index.sqlite                  the index of keys (key_index.py)
    head                          up to where events were acknowledged (head.py)

Why this way: a segment is there when its index is, so that comes last when one is made and goes first when one is removed;
what a crash leaves is then a file without its index, and can be removed by name alone.
"""

from pathlib import Path

from stream_dr.disk import fsync_directory, remove_temporaries
from stream_dr.errors import DirectoryMissing
from stream_dr.log.bodies import bodies_path
from stream_dr.log.head import lost
from stream_dr.log.segment import Segment


def segment_files(folder: Path) -> list[Path]:
    """The indexes of the segments, oldest first."""
    return sorted(p for p in folder.glob("*.sqlite") if p.stem.isdigit())


def prepare(folder: Path, writable: bool) -> None:
    """Make the folder. Raises DirectoryMissing when it is not there to be read."""
    if not writable:
        if not folder.is_dir():
            raise DirectoryMissing(f"{folder} holds no log; give a directory that replay or serve has written.")
        return
    if not folder.is_dir():
        folder.mkdir(parents=True)
        fsync_directory(folder.parent)


def tidy(folder: Path, known: int) -> None:
    """Remove what a crash left in the folder, and begin the first segment where there is none.

    known: the last position that was acknowledged, as others tell. Raises DamagedFile where the log ends before; of events
    up to there nothing is removed.
    """
    _check_end(folder, known)
    remove_temporaries(folder)
    first = next((int(p.stem) for p in segment_files(folder)), -1)
    for pattern in ("*.sqlite-wal", "*.sqlite-shm", "*.bodies"):
        for file in folder.glob(pattern):
            dropped = not file.stem.isdigit() or not first < int(file.stem) <= known
            if dropped and not file.with_suffix(".sqlite").exists():
                file.unlink()
    if first < 0:
        Segment.create(folder, 0, 0)


def _check_end(folder: Path, known: int) -> None:
    """As a reader: a WAL that SQLite does not believe goes with the last writing connection."""
    files = segment_files(folder)
    if not files and known >= 0:
        raise lost(folder, -1, known)
    for path in files[-1:]:
        segment = Segment(path, writable=False)
        last = segment.last()
        segment.keep_none()
        if last < known:
            raise lost(path, last, known)


def remove_segment(index: Path) -> None:
    """Remove a segment's files, durable on return."""
    index.unlink(missing_ok=True)
    for file in (index.with_name(f"{index.name}-wal"), index.with_name(f"{index.name}-shm"), bodies_path(index)):
        file.unlink(missing_ok=True)
    fsync_directory(index.parent)
