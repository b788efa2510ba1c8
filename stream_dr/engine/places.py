"""Places: where the shards are that the log refers to, once they are no longer where they were replayed from.

    D/places.json: {"stream_dr": "places", "format": 1, "shards": {sha256: uri, …}}

A reference event names a shard by URI and SHA-256. Where the URI has no such file any more, the table says where else the
same bytes are: `replay` of a data set from another place writes it, before anything is read. It is asked only for a shard
that is not where its event says, or has other bytes there; and a shard found through it is checked like any other.

Cost: a replay into a log that has events looks up one event a shard; nothing is written unless a shard has moved.

Why this way: the bytes are what was learned, their place is not; so events stay as they were written, and what is told later
about places lies beside them, whole or not at all.
"""

import json
from pathlib import Path
from typing import Any

from stream_dr.disk import write_atomically
from stream_dr.engine.batches import references
from stream_dr.errors import DamagedFile, DamagedShard, HistoryGone, SourceMissing
from stream_dr.shards.dataset import Shard, open_shard

NAME = "places.json"
FORMAT = 1


def find_shard(directory: Path | None, uri: str, sha256: str) -> Shard:
    """The shard of those bytes: at the URI, or else at the place that the directory's table has for it.

    Raises SourceMissing or DamagedShard.
    """
    try:
        return _checked(uri, sha256)
    except (SourceMissing, DamagedShard):
        place = None if directory is None else _places(directory / NAME).get(sha256)
        if place in (None, uri):
            raise
        return _checked(place, sha256)


def remember_places(directory: Any, dataset: Any) -> None:
    """Write down where a data set's shards are, as far as the log or the table has them elsewhere.

    Raises InsufficientStorage.
    """
    if directory.position < 0:
        return
    path = directory.path / NAME
    try:
        known = _places(path)
    except SourceMissing:  # it is written anew
        known = {}
    moved: dict[str, str] = {}
    for shard in dataset.shards:
        uri = shard.path.absolute().as_uri()
        if uri != known.get(shard.sha256, _logged(directory.log, shard)):
            moved[shard.sha256] = uri
    if moved:
        facts = {"stream_dr": "places", "format": FORMAT, "shards": known | moved}
        text = json.dumps(facts, sort_keys=True, indent=1)
        write_atomically(path, lambda file: file.write(text.encode()), "places")


def _checked(uri: str, sha256: str) -> Shard:
    try:
        shard = open_shard(uri, sha256)
    except DamagedFile as e:  # the manifest beside it
        raise DamagedShard(str(e), **e.details) from e
    shard.check()
    return shard


def _places(path: Path) -> dict[str, str]:
    """The table; empty where there is none."""
    try:
        facts = json.loads(path.read_bytes())
        if facts["stream_dr"] != "places" or facts["format"] != FORMAT:
            raise ValueError("not a table of this release")
        return {str(sha256): str(uri) for sha256, uri in facts["shards"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise SourceMissing(
            f"{path}, which says where moved shards are, cannot be read ({e}). Replay them from where they are now.",
            path=str(path),
        ) from e


def _logged(log: Any, shard: Shard) -> str | None:
    """The URI that the log has for a shard: of its first batch's first pass; the shard's own where the log lacks it."""
    first = next(references(shard, 1), None)
    known = log.find_key(first.key) if first is not None else None
    if first is None or known is None:
        return None if first is None else first.uri
    try:
        (event,) = log.read(known.position - 1, known.position)
    except HistoryGone:
        return None
    return str(json.loads(event.body)["uri"])
