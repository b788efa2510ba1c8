"""References: events that name a shard's batch instead of holding its rows.

A reference event is identified by the shard's sha256, the index of the batch, and the number of
the pass over the data set. `MissingBatches` finds the batches of a data set that the log does not
have yet, and returns drafts of these batches, in groups that are committed one by one. So a replay
that was killed can be repeated, and continues with the first missing batch. While a shard is read,
another thread checks the bytes of the next shard and looks up its batches.

An event is never changed if its shard is moved. The file places.json has the new URI of each
moved shard, by the sha256 of its bytes. `replay` of a data set updates this file before it reads
any batch:

    D/places.json: {"stream_dr": "places", "format": 1, "shards": {sha256: uri, …}}

Cost: one look-up for each batch, unless the log was empty.
"""

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np

from stream_dr.directory.draft import Draft, Reference, reference_draft
from stream_dr.disk import PRIVATE_FILE, write_atomically
from stream_dr.errors import DamagedFile, DamagedShard, SourceMissing, StreamDRError
from stream_dr.log.log import Log
from stream_dr.shards.dataset import Dataset, Shard, open_shard
from stream_dr.threads import new_thread_pool

PLACES = "places.json"
"""Name of the file with the new URIs of moved shards."""

PLACES_FORMAT = 1

SOURCES = "sources"
"""Name of the folder of the shards that a directory owns (learned_sources.py)."""

GROUP_EVENTS = 64
"""Maximum number of reference events that are committed together."""

GROUP_BYTES = 64 << 20
"""Number of bytes of rows at which a group of reference events is committed."""

FIRST_EVENTS = 4
"""Maximum number of reference events in the first commit.

The maximum doubles with each commit, up to GROUP_EVENTS. The first commits are small so that
learning begins early.
"""


def references_to_batches(shard: Shard, pass_number: int) -> Iterator[Reference]:
    """Yield a Reference for each batch that is not empty.

    A Reference says where the rows of an event are: shard, batch and pass.

    pass_number: number of the pass over the data set, from 1.
    """
    for batch, rows in enumerate(shard.batch_rows):
        if rows:
            yield Reference(shard_file_uri(shard), shard.sha256, batch, pass_number, rows)


def shard_file_uri(shard: Shard) -> str:
    """Return the URI of a shard's file."""
    return shard.path.absolute().as_uri()


class MissingBatches:
    """Batches of a data set that the log lacks.

    n_passes: number of passes over the data set.
    shuffle_seed: seed of a random order of the shards, which differs in each pass. None for the
        order of the data set.
    skip_damaged: True to skip damaged shards. False to raise an error.

    The attribute `shards` is the number of shards read so far, over all passes. The attribute
    `skipped` has the error message of each skipped shard.

    The methods must be called by one thread. Other threads may read the attributes.
    """

    def __init__(self, log: Log, dataset: Dataset, n_passes: int, shuffle_seed: int | None, skip_damaged: bool) -> None:
        self._log = log
        self._dataset = dataset
        self._passes = n_passes
        self._shuffle = shuffle_seed
        self._skip_damaged = skip_damaged
        self._nothing_logged = log.last < 0
        self.shards = 0
        self.skipped = list(dataset.skipped)

    def draft_groups_by_commit(self) -> Generator[list[Draft], None, None]:
        """Yield missing batches' drafts, one list for each commit.

        A draft is an event that is not in the log yet. The batches are in the order of the data
        set. Raises DamagedShard, SourceMissing, or the codec's error for a batch's rows.
        """
        group: list[Draft] = []
        size = 0
        limit = min(FIRST_EVENTS, GROUP_EVENTS)

        try:
            for draft in self._drafts():
                group.append(draft)
                size += draft.size
                if len(group) >= limit or size >= GROUP_BYTES:
                    yield group
                    group = []
                    size = 0
                    limit = min(2 * limit, GROUP_EVENTS)
        except StreamDRError:
            # Yield the group before the error is raised.
            # The error is about the next batch, and the batches of the group are good.
            if group:
                yield group
            raise

        if group:
            yield group

    def missing_batches(self) -> Iterator[tuple[Shard, Reference]]:
        """Yield (shard, Reference) of each batch that the log lacks.

        A Reference names one batch of the shard. The batches are in the order of the data set.
        Rows are not read. Raises DamagedShard or SourceMissing.
        """
        for pass_number, shard in self._shards_of_all_passes():
            yield from ((shard, reference) for reference in self._batches_missing_in_log(pass_number, shard))
            self.shards += 1

    def _drafts(self) -> Iterator[Draft]:
        """Yield drafts of all batches that the log lacks.

        A draft is an event that is not in the log yet. Another thread checks the next shard while
        the current one is read.
        """
        # Start the look-up of the next shard before the drafts of the current shard are read.
        order = self._shards_of_all_passes()
        with new_thread_pool("look-ahead", 1) as thread:
            lookups = ((shard, thread.submit(self._batches_missing_in_log, number, shard)) for number, shard in order)
            following = next(lookups, None)
            while following is not None:
                shard, missing_references = following
                following = next(lookups, None)
                try:
                    for reference in missing_references.result():
                        yield reference_draft(reference, shard.read(reference.batch))
                except DamagedShard as e:
                    if not self._skip_damaged:
                        raise
                    self.skipped.append(str(e))
                self.shards += 1

    def _batches_missing_in_log(self, pass_number: int, shard: Shard) -> list[Reference]:
        """Return References to a shard's batches that the log lacks.

        The shard's bytes are checked if any batch is missing. Raises DamagedShard or
        SourceMissing.
        """
        in_pass = references_to_batches(shard, pass_number)
        missing = [r for r in in_pass if self._nothing_logged or self._log.find_key(r.key) is None]
        if missing:
            shard.check()
        return missing

    def _shards_of_all_passes(self) -> Iterator[tuple[int, Shard]]:
        """Yield (pass number, shard) of all passes.

        The shards of a pass may be in random order.
        """
        for pass_number in range(1, self._passes + 1):
            shards = list(self._dataset.shards)
            if self._shuffle is not None:
                order = np.random.default_rng((self._shuffle, pass_number)).permutation(len(shards))
                shards = [shards[i] for i in order]
            yield from ((pass_number, shard) for shard in shards)


def find_shard(directory_path: Path, uri: str, sha256: str) -> Shard:
    """Find the shard that an event refers to.

    The shard is searched at these places, in this order:

    1. the URI of the event,
    2. the URI that the directory's places.json has for its sha256,
    3. the folder of shards that the directory owns. The URI of such a shard is wrong after the
       directory was moved or copied.

    directory_path: path of the directory.

    Raises SourceMissing or DamagedShard if no place has a shard with this sha256.
    """
    try:
        return _open_verified_shard(uri, sha256)
    except (SourceMissing, DamagedShard):
        own = directory_path.absolute().joinpath(SOURCES, *Path(unquote(urlparse(uri).path)).parts[-2:])
        for place in (_moved_shard_uris(directory_path / PLACES).get(sha256, uri), own.as_uri()):
            if place != uri and (place != own.as_uri() or own.exists()):
                return _open_verified_shard(place, sha256)
        raise


def store_current_shard_uris(path: Path, log: Log, dataset: Dataset) -> None:
    """Store the current URIs of a data set's shards in places.json.

    The file says where a shard is, if it was moved after an event had stored its URI.

    path: path of the directory.

    Raises InsufficientStorage.
    """
    # If the log is empty, all events will be written with the current URIs.
    if log.last < 0:
        return

    places_file = path / PLACES
    try:
        known = _moved_shard_uris(places_file)
    except SourceMissing:
        # Replace a damaged places.json, as if it had no entries.
        known = {}

    places = known | {shard.sha256: shard_file_uri(shard) for shard in dataset.shards}
    if places != known:
        table = {"stream_dr": "places", "format": PLACES_FORMAT, "shards": places}
        text = json.dumps(table, sort_keys=True, indent=1)
        write_atomically(places_file, lambda file: file.write(text.encode()), "places", PRIVATE_FILE)


def _open_verified_shard(uri: str, sha256: str) -> Shard:
    """Open the shard at `uri`, and check that its digest is `sha256`.

    Raises SourceMissing or DamagedShard.
    """
    try:
        shard = open_shard(uri, sha256)
    except DamagedFile as e:
        # The manifest (list of shards) in the shard's folder is damaged.
        # Raise DamagedShard, which makes the caller look for the shard in other places.
        raise DamagedShard(str(e), **e.details) from e
    shard.check()
    return shard


def _moved_shard_uris(places_file: Path) -> dict[str, str]:
    """Return the URI of each moved shard by its sha256.

    places_file: path of places.json. If there is no such file, the result is empty.

    Raises SourceMissing if the file cannot be read.
    """
    try:
        table = json.loads(places_file.read_bytes())
        if table["stream_dr"] != "places" or table["format"] != PLACES_FORMAT:
            raise ValueError("not a table of this release")
        return {str(sha256): str(uri) for sha256, uri in table["shards"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise SourceMissing(
            f"{places_file}, which says where moved shards are, cannot be read ({e}). Replay them from where they are now.",
            path=str(places_file),
        ) from e
