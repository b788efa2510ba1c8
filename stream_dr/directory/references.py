"""References: events that name a batch of a shard instead of holding its rows; which of them the log lacks, and where the
shards are.

A batch is known by (shard sha256, batch, pass). `Batches` gives those of a data set that the log lacks, as drafts, in
groups for one commit each, small ones first, so that learning does not wait. While a shard is read, the next one's bytes
are checked and its batches looked up in the log, in a thread of their own.

Where an event's URI has no such file any more, a table says where else the same bytes are; `replay` of a data set from
another place writes it, before anything is read:

    D/places.json: {"stream_dr": "places", "format": 1, "shards": {sha256: uri, …}}

Cost: a look-up a batch where the log was not empty.

Why this way: the bytes are what was learned, their place is not; so events stay as they were written. Which batches are
missing is asked of the log, so a replay that was killed needs no notes of its own.
"""

import json
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np

from stream_dr.directory.draft import Draft, Reference, reference_draft
from stream_dr.disk import write_atomically
from stream_dr.errors import DamagedFile, DamagedShard, SourceMissing, StreamDRError
from stream_dr.log.log import Log
from stream_dr.shards.dataset import Dataset, Shard, open_shard
from stream_dr.threads import pool

PLACES = "places.json"
PLACES_FORMAT = 1

SOURCES = "sources"
"""Folder of the shards that are a directory's own (sources.py)."""

GROUP_EVENTS, GROUP_BYTES = 64, 64 << 20
"""A group commit of references ends at either: events, or bytes of their rows."""

FIRST_EVENTS = 4
"""Events of the first group; every group may have twice as many as the one before."""


def references(shard: Shard, passed: int) -> Iterator[Reference]:
    """The batches of a shard that have rows."""
    for batch, rows in enumerate(shard.batch_rows):
        if rows:
            yield Reference(uri_of(shard), shard.sha256, batch, passed, rows)


def uri_of(shard: Shard) -> str:
    """Where a shard is."""
    return shard.path.absolute().as_uri()


class Batches:
    """The batches of passes 1 … `passes` over a data set. shuffle: seed of the shards' order, another in every pass; None:
    as given. skip_damaged: pass over shards that cannot be read. Attributes: shards (read so far, over all passes), skipped
    (why each shard that was left out was). One owner (thread); the counts may be read by others."""

    def __init__(self, log: Log, dataset: Dataset, passes: int, shuffle: int | None, skip_damaged: bool) -> None:
        self._log, self._dataset, self._passes = log, dataset, passes
        self._shuffle, self._skip_damaged = shuffle, skip_damaged
        self._nothing_logged = log.last < 0
        self.shards = 0
        self.skipped = list(dataset.skipped)

    def groups(self) -> Generator[list[Draft], None, None]:
        """The missing batches in order. Raises DamagedShard, SourceMissing, or what the codec raises of a batch's rows."""
        group: list[Draft] = []
        held, most = 0, min(FIRST_EVENTS, GROUP_EVENTS)
        try:
            for draft in self._drafts():
                group.append(draft)
                held += draft.size
                if len(group) >= most or held >= GROUP_BYTES:
                    yield group
                    group, held, most = [], 0, min(2 * most, GROUP_EVENTS)
        except StreamDRError:  # of a batch that could not be read: those before it are as good as any
            if group:
                yield group
            raise
        if group:
            yield group

    def missing(self) -> Iterator[tuple[Shard, Reference]]:
        """The missing batches in order, unread. Raises DamagedShard or SourceMissing."""
        for passed, shard in self._shards():
            yield from ((shard, reference) for reference in self._missing(passed, shard))
            self.shards += 1

    def _drafts(self) -> Iterator[Draft]:
        order = self._shards()
        with pool("look-ahead", 1) as thread:
            asked = ((shard, thread.submit(self._missing, passed, shard)) for passed, shard in order)
            following = next(asked, None)
            while following is not None:
                current, following = following, next(asked, None)
                yield from self._drafts_of(*current)
                self.shards += 1

    def _drafts_of(self, shard: Shard, missing: "Future[list[Reference]]") -> Iterator[Draft]:
        try:
            for reference in missing.result():
                yield reference_draft(reference, shard.read(reference.batch))
        except DamagedShard as e:
            if not self._skip_damaged:
                raise
            self.skipped.append(str(e))

    def _missing(self, passed: int, shard: Shard) -> list[Reference]:
        """The batches that the log lacks; where there are any, the shard's bytes are checked.

        Raises DamagedShard or SourceMissing.
        """
        missing = [r for r in references(shard, passed) if self._nothing_logged or self._log.find_key(r.key) is None]
        if missing:
            shard.check()
        return missing

    def _shards(self) -> Iterator[tuple[int, Shard]]:
        return ((passed, shard) for passed in range(1, self._passes + 1) for shard in self._order(passed))

    def _order(self, passed: int) -> list[Shard]:
        shards = list(self._dataset.shards)
        if self._shuffle is None:
            return shards
        order = np.random.default_rng((self._shuffle, passed)).permutation(len(shards))
        return [shards[i] for i in order]


def find_shard(directory: Path, uri: str, sha256: str) -> Shard:
    """The shard of those bytes: at the URI, or else at the place that the directory's table has for it, or else among its
    own sources, should it have been moved or copied.

    Raises SourceMissing or DamagedShard.
    """
    try:
        return _checked(uri, sha256)
    except (SourceMissing, DamagedShard):
        own = directory.absolute().joinpath(SOURCES, *Path(unquote(urlparse(uri).path)).parts[-2:])
        for place in (_places(directory / PLACES).get(sha256, uri), own.as_uri()):
            if place != uri and (place != own.as_uri() or own.exists()):
                return _checked(place, sha256)
        raise


def remember_places(directory: Path, log: Log, dataset: Dataset) -> None:
    """Write down where a data set's shards are, as far as the table has them elsewhere or not at all; a log that is empty
    will name those places itself. Raises InsufficientStorage."""
    if log.last < 0:
        return
    path = directory / PLACES
    try:
        known = _places(path)
    except SourceMissing:  # it is written anew
        known = {}
    places = known | {shard.sha256: uri_of(shard) for shard in dataset.shards}
    if places != known:
        facts = {"stream_dr": "places", "format": PLACES_FORMAT, "shards": places}
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
        if facts["stream_dr"] != "places" or facts["format"] != PLACES_FORMAT:
            raise ValueError("not a table of this release")
        return {str(sha256): str(uri) for sha256, uri in facts["shards"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise SourceMissing(
            f"{path}, which says where moved shards are, cannot be read ({e}). Replay them from where they are now.",
            path=str(path),
        ) from e
