"""Batches: those of a data set that the log lacks, as drafts, in groups for one commit each.

A batch is known by (shard sha256, batch, pass). While a shard is read, the next one's bytes are checked and its batches
looked up in the log, in a thread of their own. Groups start small, so that learning does not wait for the first, and are
bounded in bytes.

Cost a batch: its reading and validation (see shards), about 20 µs, and 30 µs to look it up where the log was not empty.

Why this way: which batches are missing is asked of the log, so a replay that was killed needs no notes of its own. A shard
is asked for as a whole and ahead, because a look-up waits for the commit that is being written.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from stream_dr.engine.draft import Draft, Reference, reference_draft
from stream_dr.errors import DamagedShard, StreamDRError

GROUP_EVENTS, GROUP_BYTES = 64, 64 << 20
"""A group commit of references ends at either: events, or bytes of their rows."""

FIRST_EVENTS = 4
"""Events of the first group; every group may have twice as many as the one before."""


class Batches:
    """The batches of passes 1 … `passes` over a data set. shuffle: seed of the shards' order, another in every pass; None:
    as given. skip_damaged: pass over shards that cannot be read. Attributes: shards (read so far, over all passes), skipped
    (why each shard that was left out was). One owner (thread); the counts may be read by others."""

    def __init__(self, log: Any, dataset: Any, passes: int, shuffle: int | None, skip_damaged: bool) -> None:
        self._log, self._dataset, self._passes = log, dataset, passes
        self._shuffle, self._skip_damaged = shuffle, skip_damaged
        self._nothing_logged = log.last < 0
        self.shards = 0
        self.skipped: list[str] = list(getattr(dataset, "skipped", ()))

    def groups(self) -> Iterator[list[Draft]]:
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

    def _drafts(self) -> Iterator[Draft]:
        order = [(passed, shard) for passed in range(1, self._passes + 1) for shard in self._order(passed)]
        with ThreadPoolExecutor(1, thread_name_prefix="stream_dr-ahead") as thread:
            asked = ((shard, thread.submit(self._missing, passed, shard)) for passed, shard in order)
            following = next(asked, None)
            while following is not None:
                current, following = following, next(asked, None)
                yield from self._drafts_of(*current)
                self.shards += 1

    def _drafts_of(self, shard: Any, missing: "Future[list[Reference]]") -> Iterator[Draft]:
        try:
            for reference in missing.result():
                yield reference_draft(reference, shard.read(reference.batch))
        except DamagedShard as e:
            if not self._skip_damaged:
                raise
            self.skipped.append(str(e))

    def _missing(self, passed: int, shard: Any) -> list[Reference]:
        """The batches that the log lacks; where there are any, the shard's bytes are checked.

        Raises DamagedShard or SourceMissing.
        """
        missing = [r for r in references(shard, passed) if self._nothing_logged or self._log.find_key(r.key) is None]
        if missing:
            shard.check()
        return missing

    def _order(self, passed: int) -> list[Any]:
        shards = list(self._dataset.shards)
        if self._shuffle is None:
            return shards
        order = np.random.default_rng((self._shuffle, passed)).permutation(len(shards))
        return [shards[i] for i in order]


def references(shard: Any, passed: int) -> Iterator[Reference]:
    """The batches of a shard that have rows."""
    uri = shard.path.absolute().as_uri()
    for batch, rows in enumerate(shard.batch_rows):
        if rows:
            yield Reference(uri, shard.sha256, batch, passed, rows)
