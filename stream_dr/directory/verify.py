"""Verify: every byte a directory relies on, read and checked: its log, the shards it refers to, its models and
their snapshots.

Why this way: a checksum that is never read protects nothing; this reads them all, and changes nothing.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from stream_dr.directory.model_table import MODELS_NAME, ModelTable, check_there
from stream_dr.directory.references import find_shard
from stream_dr.errors import DamagedFile, DirectoryMissing, StreamDRError
from stream_dr.log.log import Log
from stream_dr.models.snapshot import START, snapshot_files, snapshot_folders
from stream_dr.models.snapshot_file import read_file


class Finding(NamedTuple):
    """One thing checked: what it is, and the error it has, or None."""

    what: str
    error: StreamDRError | None = None


def verify(path: Path, shards: bool = True) -> Iterator[Finding]:
    """Check a directory part by part, each whatever the others are like. shards: those that its log refers to, too. Raises
    DirectoryMissing."""
    last = -1
    try:
        with Log(path / "log", writable=False) as log:
            last = log.last
            yield _checked(f"log of {log.last + 1} events", log.verify)
            if shards:
                yield from _check_shards(path, log)
    except DirectoryMissing:
        raise
    except StreamDRError as e:
        yield Finding("log", e)
    yield _checked(MODELS_NAME, partial(_check_models, path, last))
    for folder in sorted((path / "snapshots").glob("*")):
        for file in [*snapshot_files(folder), *folder.glob(START)]:
            found = _checked(f"snapshot {folder.name}/{file.name}", partial(read_file, file))
            if found.error is None or file.exists():  # a service may have dropped it meanwhile
                yield found


def verify_shards(path: Path) -> Iterator[Finding]:
    """Check the shards that a directory's log refers to."""
    with Log(path / "log", writable=False) as log:
        yield from _check_shards(path, log)


def _check_shards(path: Path, log: Log) -> Iterator[Finding]:
    for uri, sha256 in _shards(log):
        yield _checked(f"shard {uri}", partial(_open, path, uri, sha256))


def _checked(what: str, check: Callable[[], object]) -> Finding:
    try:
        check()
    except StreamDRError as e:
        return Finding(what, e)
    except OSError as e:
        return Finding(what, DamagedFile(f"{what}: {e}"))
    return Finding(what)


def _check_models(path: Path, last: int) -> None:
    check_there(path, last)
    table, folders = ModelTable(path / MODELS_NAME, writable=False), snapshot_folders(path)
    table.check()
    if folders:
        table.removed_folders(folders)


def _open(directory: Path, uri: str, sha256: str) -> None:
    shard = find_shard(directory, uri, sha256)
    shard.verify()
    for batch in range(len(shard.batch_rows)):
        shard.read(batch)


def _shards(log: Log) -> list[tuple[str, str]]:
    """Every shard that an event names, once, in order."""
    found: dict[tuple[str, str], None] = {}
    for event in log.read_readable("reference"):
        with suppress(ValueError, KeyError):  # a damaged body: the log's own check names its event
            facts = json.loads(bytes(event.body))
            found[(facts["uri"], facts["sha256"])] = None
    return list(found)
