"""Verify: read a directory completely and check every checksum.

The log, the shards to which the log refers, the table of models, the snapshots and the releases
are checked.
Nothing is changed.

Damage is noticed only when the damaged bytes are read. Without this check, some bytes are not read
for a long time. Events are decoded as in learning, because a new model will learn them.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from stream_dr.batch.schema import Schema, apply_deltas
from stream_dr.directory.draft import parse_reference
from stream_dr.directory.history import Decoder
from stream_dr.directory.model_table import ModelTable
from stream_dr.directory.references import find_shard
from stream_dr.directory.releases import release_path
from stream_dr.errors import DamagedFile, DirectoryMissing, StreamDRError
from stream_dr.log.event import Event
from stream_dr.log.log import Log
from stream_dr.models.release import read_release
from stream_dr.models.snapshot import START_FILE_NAME, snapshots_newest_first
from stream_dr.models.snapshot_file import read_file


class Finding(NamedTuple):
    """Result of one check.

    what: the file or files that were checked, in words.
    error: the error that was found. None if the check found no error.
    """

    what: str
    error: StreamDRError | None = None


def verify(path: Path, include_shards: bool = True) -> Iterator[Finding]:
    """Check a directory and yield a Finding for each part.

    The parts are the log, each shard, the table of models, each snapshot and each release. An error
    in one part does not stop the check of the other parts.

    path: path of the directory.
    include_shards: True to also check the shards to which the log refers.

    Raises DirectoryMissing.
    """
    try:
        with Log(path / "log", writable=False) as log:
            yield _run_check(f"log of {log.last + 1} events", partial(_read_whole_log, path, log))
        if include_shards:
            yield from verify_shards_of_log(path)
    except DirectoryMissing:
        raise
    except StreamDRError as e:
        yield Finding("log", e)

    table = _run_check("table of models", ModelTable(path, writable=False).check)
    yield table
    for folder in sorted((path / "snapshots").glob("*")):
        for file in [*snapshots_newest_first(folder), *folder.glob(START_FILE_NAME)]:
            finding = _run_check(f"snapshot {folder.name}/{file.name}", partial(read_file, file))
            # Skip a snapshot that a running service has removed during the check.
            if finding.error is None or file.exists():
                yield finding
    if table.error is None:
        releases = ModelTable(path, writable=False).releases
        for entry in releases():
            finding = _run_check(
                f"release {entry.model}/{entry.name}", partial(read_release, release_path(path, entry))
            )
            # Skip a release that a running service has removed during the check.
            if finding.error is None or entry in releases():
                yield finding


def verify_shards_of_log(directory_path: Path) -> Iterator[Finding]:
    """Check the shards to which a directory's log refers.

    Yields a Finding for each shard.
    """
    shards: dict[tuple[str, str], None] = {}
    with Log(directory_path / "log", writable=False) as log:
        # No variable holds the list of events, so its memory is freed before shards are read.
        for event in log.read_undamaged_events("reference"):
            # Skip an event whose payload is damaged. `Log.verify` reports it.
            with suppress(ValueError, KeyError):
                fields = json.loads(bytes(event.body))
                shards[fields["uri"], fields["sha256"]] = None

    for uri, sha256 in shards:
        yield _run_check(f"shard {uri}", partial(_read_whole_shard, directory_path, uri, sha256))


def _run_check(checked_item: str, check: Callable[[], object]) -> Finding:
    """Run a check and return the result as a Finding.

    checked_item: the file or files that are checked, in words.
    check: function that raises an error if the file is damaged.
    """
    try:
        check()
    except StreamDRError as e:
        return Finding(checked_item, e)
    except OSError as e:
        return Finding(checked_item, DamagedFile(f"{checked_item}: {e}"))
    return Finding(checked_item)


def _read_whole_log(directory_path: Path, log: Log) -> None:
    """Read all bytes of the log and decode each event.

    The rows of shards are not read. Raises an error if something is damaged or cannot be decoded.
    """
    decoder = Decoder(directory_path)
    schema = apply_deltas(Schema(), log.schema_changes())

    def decode(event: Event) -> None:
        try:
            if event.kind == "reference":
                parse_reference(event.body)
            else:
                decoder.decode(event, schema)
        # Whatever is raised here would be raised again in each model that learns the event.
        except Exception as e:
            raise DamagedFile(
                f"the event at position {event.position} cannot be decoded ({e}), so no new model can learn it. Restore "
                "the log from a copy.",
                position=event.position,
            ) from e

    log.verify(decode)


def _read_whole_shard(directory_path: Path, uri: str, sha256: str) -> None:
    """Read all bytes of a shard and decode each batch.

    Raises an error if the shard is missing or damaged.

    directory_path: path of the directory whose log refers to the shard.
    uri, sha256: URI of the shard and SHA-256 of its bytes, as the log has them.
    """
    shard = find_shard(directory_path, uri, sha256)
    shard.verify()
    for batch in range(len(shard.batch_rows)):
        shard.read(batch)
