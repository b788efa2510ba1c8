"""Backup: a copy of a directory as it is at one moment, also while another process writes to it.

A copy is a directory like any other. It can be opened, verified, served where it lies, and copied
back in the same way. Shards that events refer to are not copied, except the directory's own.

The copy is made under the name `TARGET.tmp`, checked as `verify` does, and renamed, so it is
complete or absent. The next backup to the same target removes what an interrupted one left.

Cost: one read of the log and the snapshots, one write, and one read of the copy.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stream_dr.directory.model_table import MODELS_NAME, ModelTable
from stream_dr.directory.records import RECORDS, Records
from stream_dr.directory.references import PLACES, SOURCES
from stream_dr.directory.verify import verify
from stream_dr.disk import TEMPORARY, DirectoryLock, check_room, fsync_directory, is_full, storage_error
from stream_dr.errors import DirectoryMissing, OutputExists, Overloaded
from stream_dr.failpoints import failpoint
from stream_dr.log.copying import LogCopy, Progress
from stream_dr.models.snapshot import FAILED, START, snapshot_files, snapshot_folder

TRIES = 50
"""Maximum number of attempts to see a moment in which no snapshot comes or goes."""


def backup(path: Path, target: Path, progress: Progress = lambda done, total: None) -> None:
    """Copy a directory to `target`, also while another process writes to it.

    path: path of the directory.
    target: path of the copy. It must not exist yet, and does not exist after an error.
    progress: called with the number of bytes of the log that are copied, and the total.

    Raises
    ------
    DirectoryMissing
    OutputExists
    DirectoryInUse
        Another backup to this target is running.
    InsufficientStorage
    Overloaded
        Snapshots come and go too quickly.
    StreamDRError
        Any error that `verify` finds in the copy. Shards are not checked.
    """
    if not (path / "log").is_dir():
        raise DirectoryMissing(f"{path} holds no log; name a directory that `replay` or `serve` has made.")
    with _new_directory(target) as temporary:
        check_room(temporary, _total_bytes(path))

        copy = LogCopy(path / "log", temporary / "log", progress)
        copy.copy_bodies()
        failpoint("backup.log")

        with ExitStack() as open_files:
            for name, file in _copy_moment(path, temporary, copy, open_files).items():
                _copy_durably(file, temporary / name)

        Records(path / RECORDS).copy_to(temporary / RECORDS)

        # A source folder is complete once it has its name, and is not changed afterwards.
        for source in sorted((path / SOURCES).glob("[!.]*/*")):
            with source.open("rb") as file:
                _copy_durably(file, temporary / source.relative_to(path))

        for finding in verify(temporary, shards=False):
            if finding.error is not None:
                raise finding.error


def _copy_moment(path: Path, temporary: Path, copy: LogCopy, stack: ExitStack) -> dict[Path, BinaryIO]:
    """Copy models.db and the rest of the log as they are at one moment.

    Return the other files of that moment, open until `stack` closes, by their path within the
    directory.

    A snapshot is never changed after it is written, only removed. So snapshots are opened first
    and copied later: if none came or went while the table of models and the log were copied, all
    belong together. The log reaches each snapshot because it is read last. It also holds the
    events that models need after their snapshots, because retention never drops those.
    """
    for _ in range(TRIES):
        with ExitStack() as attempt:
            models = ModelTable(path / MODELS_NAME, writable=False).copy_to(temporary / MODELS_NAME)

            open_files: dict[Path, BinaryIO] = {}
            try:
                for name in _relative_paths(path, models):
                    open_files[name] = attempt.enter_context((path / name).open("rb"))
            except FileNotFoundError:
                continue

            with copy.view() as index:
                if list(open_files) == _relative_paths(path, models):
                    copy.copy_rest(index)
                    stack.enter_context(attempt.pop_all())
                    return open_files

    raise Overloaded(f"snapshots of {path} come and go too quickly; try again, or stop the service.", retry_after=5)


def _total_bytes(path: Path) -> int:
    """Return the number of bytes of a directory's files.

    Other processes may remove files meanwhile.
    """
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(folder, name)).st_size
    return size


def _relative_paths(path: Path, models: list[tuple[str, int]]) -> list[Path]:
    """Return the paths of the files other than the log and models.db.

    The paths are relative to the directory.

    models: (name, id) of each model.
    """
    files = [path / PLACES]
    for folder in (snapshot_folder(path, *model) for model in models):
        files += [folder / FAILED, folder / START, *snapshot_files(folder)]
    return [file.relative_to(path) for file in files if file.exists()]


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """Make a new directory that the with-block fills, then rename it to `target`.

    It is durable after the rename. An error in the with-block leaves nothing.
    """
    temporary = target.with_name(target.name + TEMPORARY)
    if target.exists() or target.is_symlink():
        raise OutputExists(f"{target} exists; name a directory that does not.", path=str(target))

    temporary.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(temporary):
        try:
            _remove_partial_backup(temporary)
            yield temporary
            failpoint("backup.copied")
            for folder, _, _ in os.walk(temporary):
                fsync_directory(folder)
            failpoint("backup.rename")
            temporary.rename(target)
            failpoint("backup.dir_fsync")
            fsync_directory(target.parent)
        except BaseException as e:
            shutil.rmtree(temporary, ignore_errors=True)
            if is_full(e):
                raise storage_error(target, str(e)) from e
            raise


def _remove_partial_backup(folder: Path) -> None:
    """Remove what an interrupted backup left, except the lock that is held."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _copy_durably(file: BinaryIO, path: Path) -> None:
    """Write the content of an open file to a new file, durable on return."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())
