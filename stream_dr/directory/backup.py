"""Backup: copy a directory as it is at one moment.

Another process may write to the directory during the copying. The copy is a usual directory, which
can be opened, verified, served and copied back. Of the shards that events refer to, only those in
the directory's own folder are copied.

The copy is written under the name `TARGET.tmp`, checked as `verify` does, and then renamed to
`TARGET`. So `TARGET` is either complete or absent. After an interrupted backup, the next backup to
the same target removes the unfinished files.

Cost: one read of the log and the snapshots, one write, and one read of the copy.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stream_dr import disk
from stream_dr.directory.model_table import ModelTable
from stream_dr.directory.records import RECORDS, Records
from stream_dr.directory.references import PLACES, SOURCES
from stream_dr.directory.releases import FOLDER
from stream_dr.directory.verify import verify
from stream_dr.errors import DirectoryMissing, OutputExists, Overloaded
from stream_dr.failpoints import failpoint
from stream_dr.log.copying import CopyProgress, LogCopy
from stream_dr.models.snapshot import FAILED_FILE_NAME, START_FILE_NAME, snapshot_folder, snapshots_newest_first

TRIES = 50
"""Maximum number of attempts to copy a directory as it is at one moment.

An attempt fails if snapshots change or rows are erased during the copying.
"""


def backup(path: Path, target: Path, progress: CopyProgress = lambda done, total: None) -> None:
    """Copy a directory as it is at one moment.

    Another process may write to the directory during the copying.

    path: path of the directory.
    target: path of the copy. Nothing may exist at this path before the call. After an error, the
        unfinished copy is removed.
    progress: function called with the number of bytes of the log that are copied so far, and with
        the total number of bytes of the log.

    Raises
    ------
    DirectoryMissing
        There is no directory at `path`.
    OutputExists
        Something exists at `target`.
    DirectoryInUse
        Another backup to this target is running.
    InsufficientStorage
        The disk has no room for the copy.
    Overloaded
        Snapshots were added or removed, or rows were erased, during each attempt.
    StreamDRError
        Any error that `verify` finds in the copy. Shards are not checked.
    """
    if not (path / "log").is_dir():
        raise DirectoryMissing(f"{path} holds no log; name a directory that `replay` or `serve` has made.")
    with _new_directory(target) as temporary:
        disk.check_free_space(temporary, _total_bytes(path))

        copy = LogCopy(path / "log", temporary / "log", progress)
        copy.copy_bodies()
        failpoint("backup.log")

        with ExitStack() as open_files:
            for name, file in _copy_at_one_moment(path, temporary, copy, open_files).items():
                _copy_durably(file, temporary / name)

        Records(path / RECORDS).copy_to(temporary / RECORDS)

        # Copy the shards that the directory owns, at any time.
        # A folder of shards gets its final name when it is complete.
        # The files in a folder with its final name never change.
        for source in sorted((path / SOURCES).glob("[!.]*/*")):
            with source.open("rb") as file:
                _copy_durably(file, temporary / source.relative_to(path))

        for finding in verify(temporary, include_shards=False):
            if finding.error is not None:
                raise finding.error


def _copy_at_one_moment(
    directory_path: Path, unfinished_copy: Path, copy: LogCopy, open_file_stack: ExitStack
) -> dict[Path, BinaryIO]:
    """Copy the log's index and remaining parts at one moment.

    directory_path: path of the directory.
    unfinished_copy: path of the unfinished copy.
    copy: copy of the log, whose event payloads are copied already.
    open_file_stack: receives the open files, and closes them when the caller is done.

    Returns the snapshots and other files of the same moment, open for reading, by their path
    relative to the directory. Raises Overloaded after TRIES attempts.
    """
    # A snapshot never changes, but it can be removed. So it is opened here and copied later.
    # If no snapshot was added or removed meanwhile, all the open files are of one moment.
    # If the snapshots have changed, the loop tries again.
    # The log is copied last, so that it is not older than any snapshot.
    # Retention never drops events after a snapshot, so the log has all events that models need.
    for _ in range(TRIES):
        with ExitStack() as attempt:
            models = _model_names_and_ids(directory_path)
            open_files: dict[Path, BinaryIO] = {}
            try:
                for name in _paths_to_copy(directory_path, models):
                    open_files[name] = attempt.enter_context((directory_path / name).open("rb"))
            except FileNotFoundError:
                continue

            with copy.open_source_index_snapshot() as index:
                if list(open_files) != _paths_to_copy(directory_path, models):
                    continue
                copy.copy_index_and_rest(index)
                if copy.source_overwritten_since(index):
                    continue
            if _model_names_and_ids(unfinished_copy) == models:
                open_file_stack.enter_context(attempt.pop_all())
                return open_files

    raise Overloaded(
        f"snapshots of {directory_path} come and go too quickly; try again, or stop the service.", retry_after=5
    )


def _model_names_and_ids(path: Path) -> list[tuple[str, int]]:
    """Return (name, id) of each model in a directory's table."""
    return [(entry.name, entry.id) for entry in ModelTable(path, writable=False).entries()]


def _total_bytes(path: Path) -> int:
    """Return the number of bytes of all files under `path`.

    Files that another process removes meanwhile are not counted.
    """
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(folder, name)).st_size
    return size


def _paths_to_copy(path: Path, model_names_and_ids: list[tuple[str, int]]) -> list[Path]:
    """Return the paths of files to copy with the log.

    The files are the snapshots and other files of each model, the releases, and places.json. Files
    that do not exist are left out. The paths are relative to the directory.

    path: path of the directory.
    model_names_and_ids: (name, id) of each model.
    """
    files = [path / PLACES]
    for folder in (snapshot_folder(path, *model) for model in model_names_and_ids):
        files += [folder / FAILED_FILE_NAME, folder / START_FILE_NAME, *snapshots_newest_first(folder)]
    files += sorted((path / FOLDER).glob("*/*.safetensors"))
    return [file.relative_to(path) for file in files if file.exists()]


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """Let the with-block fill a directory, then rename it `target`.

    The with-block receives the temporary path. All files are durable when the context manager
    ends. After an error in the with-block, the temporary directory is removed.
    """
    temporary = target.with_name(target.name + disk.TEMPORARY)
    if target.exists() or target.is_symlink():
        raise OutputExists(f"{target} exists; name a directory that does not.", path=str(target))

    # Create the temporary directory, and lock it against a second backup to the same target.
    disk.make_private_folder(temporary)
    with disk.DirectoryLock(temporary):
        try:
            _remove_partial_backup(temporary)
            yield temporary
            failpoint("backup.copied")
            for folder, _, _ in os.walk(temporary):
                disk.fsync_directory(folder)
            failpoint("backup.rename")
            temporary.rename(target)
            failpoint("backup.dir_fsync")
            disk.fsync_directory(target.parent)
        except BaseException as e:
            shutil.rmtree(temporary, ignore_errors=True)
            if disk.is_disk_unwritable(e):
                raise disk.cannot_write_error(target, str(e)) from e
            raise


def _remove_partial_backup(folder: Path) -> None:
    """Remove the files of an interrupted backup.

    The file `lock` stays, because this process holds the lock.
    """
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _copy_durably(file: BinaryIO, path: Path) -> None:
    """Copy an open file to a new, durable file."""
    disk.make_private_folder(path.parent)
    with open(path, "wb", opener=disk.open_private) as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())
