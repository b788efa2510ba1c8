"""Verify: a check of every byte that a directory relies on.

The log, the shards it refers to, the models and their snapshots are read and checked. Nothing is
changed. A checksum protects only if it is read.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from stream_dr.directory.model_table import MODELS_NAME, ModelTable, check_table_exists
from stream_dr.directory.references import find_shard
from stream_dr.errors import DamagedFile, DirectoryMissing, StreamDRError
from stream_dr.log.log import Log
from stream_dr.models.snapshot import START, snapshot_files, snapshot_folders
from stream_dr.models.snapshot_file import read_file


class Finding(NamedTuple):
    """Result of one check.

    what: the part that was checked.
    error: the error that was found, or None.
    """

    what: str
    error: StreamDRError | None = None


def verify(path: Path, shards: bool = True) -> Iterator[Finding]:
    """Check a directory and yield a Finding for each part.

    An error in one part does not stop the check of others.

    path: path of the directory.
    shards: also check the shards that its log refers to.

    Raises DirectoryMissing.
    """
    last = -1
    try:
        with Log(path / "log", writable=False) as log:
            last = log.last
            yield _run_check(f"log of {log.last + 1} events", log.verify)
            if shards:
                yield from _check_shards(path, log)
    except DirectoryMissing:
        raise
    except StreamDRError as e:
        yield Finding("log", e)

    yield _run_check(MODELS_NAME, partial(_check_models, path, last))
    for folder in sorted((path / "snapshots").glob("*")):
        for file in [*snapshot_files(folder), *folder.glob(START)]:
            finding = _run_check(f"snapshot {folder.name}/{file.name}", partial(read_file, file))
            # A service may have dropped the snapshot meanwhile.
            if finding.error is None or file.exists():
                yield finding


def verify_shards(path: Path) -> Iterator[Finding]:
    """Check the shards that a directory's log refers to."""
    with Log(path / "log", writable=False) as log:
        yield from _check_shards(path, log)


def _check_shards(path: Path, log: Log) -> Iterator[Finding]:
    """Check each shard that the log refers to."""
    for uri, sha256 in _shards_in(log):
        yield _run_check(f"shard {uri}", partial(_check_shard, path, uri, sha256))


def _run_check(what: str, check: Callable[[], object]) -> Finding:
    """Run a check and return its Finding."""
    try:
        check()
    except StreamDRError as e:
        return Finding(what, e)
    except OSError as e:
        return Finding(what, DamagedFile(f"{what}: {e}"))
    return Finding(what)


def _check_models(path: Path, last: int) -> None:
    """Check the table of models."""
    check_table_exists(path, last)
    table = ModelTable(path / MODELS_NAME, writable=False)
    folders = snapshot_folders(path)
    table.check()
    if folders:
        table.removed_folders(folders)


def _check_shard(path: Path, uri: str, sha256: str) -> None:
    """Read a shard as a whole and decode each batch."""
    shard = find_shard(path, uri, sha256)
    shard.verify()
    for batch in range(len(shard.batch_rows)):
        shard.read(batch)


def _shards_in(log: Log) -> list[tuple[str, str]]:
    """Return (uri, sha256) of each shard that an event names, in order."""
    shards: dict[tuple[str, str], None] = {}
    for event in log.read_readable("reference"):
        # The log's own check names an event whose body is damaged.
        with suppress(ValueError, KeyError):
            fields = json.loads(bytes(event.body))
            shards[(fields["uri"], fields["sha256"])] = None
    return list(shards)
