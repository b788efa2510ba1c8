"""Backup: a copy of a directory that another process may be writing to, as it is at one moment.

A copy is a directory like any other: it may be opened, verified, served where it lies, and copied back in the same way. It
is made under another name,
checked as `verify` does, and renamed; so it is whole, or not there. What an ended process has left under that name
(`TARGET.tmp`) is removed by the next one. Shards that events refer to are not copied, but for the directory's own.

Snapshots are not changed once they are written, only removed, so they are opened first and copied later: then the models'
table, then the log are looked at, and all belong together where no snapshot came or went meanwhile. The log reaches each
snapshot, because it was looked at last; and it holds what models need after them, because nothing is dropped that a
snapshot which is kept needs.

Cost: one read of the log and the snapshots, one write, and one read of the copy.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stream_dr.directory.model_table import MODELS_NAME, ModelTable
from stream_dr.directory.records import RECORDS
from stream_dr.directory.references import PLACES, SOURCES
from stream_dr.directory.verify import verify
from stream_dr.disk import TEMPORARY, DirectoryLock, check_room, fsync_directory, is_full, no_room
from stream_dr.errors import DirectoryMissing, OutputExists, Overloaded
from stream_dr.failpoints import failpoint
from stream_dr.log.copying import LogCopy, Progress
from stream_dr.models.snapshot import FAILED, START, snapshot_files, snapshot_folder

TRIES = 50
"""How often it is looked for a moment in which no snapshot comes or goes."""


def backup(directory: Path, target: Path, progress: Progress = lambda done, total: None) -> None:
    """Copy a directory to `target`, which must not exist yet; also while another process writes to it.

    progress: called with bytes of the log that are copied, and of all. Raises DirectoryMissing, OutputExists, DirectoryInUse
    (another backup to that target), InsufficientStorage, Overloaded, and what `verify` finds but for shards; there is no
    target then.
    """
    if not (directory / "log").is_dir():
        raise DirectoryMissing(f"{directory} holds no log; name a directory that `replay` or `serve` has made.")
    with _made(target) as made:
        check_room(made, _size(directory))
        copy = LogCopy(directory / "log", made / "log", progress)
        copy.bodies()
        failpoint("backup.log")
        with ExitStack() as open_files:
            for path, file in _moment(directory, made, copy, open_files).items():
                _write(file, made / path)
        for path in sorted((directory / SOURCES).glob("[!.]*/*")):  # whole, and not changed, once they have their name
            with path.open("rb") as file:
                _write(file, made / path.relative_to(directory))
        for finding in verify(made, shards=False):
            if finding.error is not None:
                raise finding.error


def _moment(directory: Path, made: Path, copy: LogCopy, files: ExitStack) -> dict[Path, BinaryIO]:
    """Copy models.db and what is left of the log, as they are at one moment; what there was beside them, by its path within
    the directory, held open until `files` ends."""
    for _ in range(TRIES):
        with ExitStack() as tried:
            names = ModelTable(directory / MODELS_NAME, writable=False).copy_to(made / MODELS_NAME)
            found: dict[Path, BinaryIO] = {}
            try:
                for path in _files(directory, names):
                    found[path] = tried.enter_context((directory / path).open("rb"))
            except FileNotFoundError:
                continue
            with copy.view() as index:
                if list(found) == _files(directory, names):
                    copy.rest(index)
                    files.enter_context(tried.pop_all())
                    return found
    raise Overloaded(
        f"snapshots of {directory} come and go too quickly; try again, or stop the service.", retry_after=5
    )


def _size(directory: Path) -> int:
    """Return the number of bytes of a directory's files, which other processes may remove meanwhile."""
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(folder, name)).st_size
    return size


def _files(directory: Path, names: list[tuple[str, int]]) -> list[Path]:
    """What there is beside the log, within the directory: of these models (name, id)."""
    found = [directory / PLACES, directory / RECORDS]
    for folder in (snapshot_folder(directory, *name) for name in names):
        found += [folder / FAILED, folder / START, *snapshot_files(folder)]
    return [path.relative_to(directory) for path in found if path.exists()]


@contextmanager
def _made(target: Path) -> Iterator[Path]:
    """A new directory, filled by the with-block, durable and in its place after it; an error there leaves nothing."""
    made = target.with_name(target.name + TEMPORARY)
    if target.exists() or target.is_symlink():
        raise OutputExists(f"{target} exists; name a directory that does not.", path=str(target))
    made.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(made):
        try:
            _clear(made)
            yield made
            failpoint("backup.copied")
            for folder, _, _ in os.walk(made):
                fsync_directory(folder)
            failpoint("backup.rename")
            made.rename(target)
            failpoint("backup.dir_fsync")
            fsync_directory(target.parent)
        except BaseException as e:
            shutil.rmtree(made, ignore_errors=True)
            if is_full(e):
                raise no_room(target, str(e)) from e
            raise


def _clear(made: Path) -> None:
    """Remove what an ended process has left, but for the lock that is held."""
    for left in made.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left.name != "lock":
            left.unlink()


def _write(file: BinaryIO, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())
