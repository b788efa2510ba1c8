"""Retention: what of the log's past may be given up: the bytes of unlearned rows, and events that nobody needs any more.

A model goes on from any snapshot it keeps. From the oldest it needs every later event, and what the unlearn events among
those name, however far back: a sum subtracts those rows, any other model is rebuilt from its start. A model whose failure
is written down does not go on and needs nothing.

The bytes of unlearned rows are overwritten once every kept snapshot is past their unlearning: an event whose rows are all
gone keeps its position with an empty body; one that lost some is written anew without them, and its schema metadata says
which row numbers those were, so that later events may go on naming rows by their first numbers. Rows that an event only
refers to stay in their shard: that file is not ours.

Cost: an event is rewritten once for each unlearning that names it.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stream_dr.arrow.codec import arrow_from_block, write_arrow
from stream_dr.directory.draft import removal_of
from stream_dr.directory.history import GONE, History, among, gone_of
from stream_dr.log.log import Log
from stream_dr.models.model import Model
from stream_dr.models.snapshot import oldest_snapshot
from stream_dr.rows.block import Block


class Retention:
    """Gives up what no model of a directory needs. going_on: the models that learn, now, or will after a restart.
    appending: held by who appends.

    lock: taken, before any other, by who gives up events of the past, and by who comes to need them, so that nothing
    comes to need what is just going. Any thread.
    """

    def __init__(
        self,
        log: Log,
        path: Path,
        history: History,
        going_on: Callable[[], Sequence[Model]],
        appending: threading.Lock,
    ) -> None:
        self._log, self._path, self._history, self._going_on = log, path, history, going_on
        self._appending = appending
        self.lock = threading.Lock()
        self._readers = 0  # who goes over the rows again and again
        self._forgotten = -1  # the last unlearning whose rows are no longer in the log's bytes

    def drop(self, rows: int) -> int:
        """Drop the events that neither a model nor the last `rows` rows need; how many. Others append meanwhile."""
        with self.lock, self._appending:
            first = self._log.begin_at(min(self.needed(), self._log.holding(rows)))
        return self._log.drop_before(first)

    def forget(self) -> int:
        """Overwrite what may be forgotten; the number of events written anew. Raises InsufficientStorage.

        A model that is made meanwhile ends it: it may learn the rows, and has to find them when it comes to their
        unlearning."""
        written = self._without_unlearned()
        with self.lock:
            self._log.erase()
        return written

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let no rows be forgotten in the with-block: a refine has the same ones in every pass."""
        with self.lock:
            self._readers += 1
        try:
            yield
        finally:
            with self.lock:
                self._readers -= 1

    def passed(self) -> int:
        """The position that every kept snapshot of every model has reached; the log's last where there is no model."""
        return min((oldest_snapshot(self._path, m) for m in self._going_on()), default=self._log.last)

    def needed(self) -> int:
        """The first position that a model may still have to read: all it has learned, while it may have to be rebuilt."""
        last = self._log.last
        removals = [e.position for e in self._log.read_kind("unlearn", last + 1)]
        past = [(model, oldest_snapshot(self._path, model)) for model in self._going_on()]
        return min((m.start if max(removals, default=-1) > p else p + 1 for m, p in past), default=last + 1)

    def _without_unlearned(self) -> int:
        """Write the events anew whose rows every snapshot is past; their number. One that is done is passed over until the
        directory is opened again."""
        written = 0
        for event in self._log.read_kind("unlearn", self.passed() + 1):
            if event.position <= self._forgotten:
                continue
            for position, rows in removal_of(event.body).items():
                with self.lock:
                    if self._readers or self.passed() < event.position:
                        return written
                    written += self._forget_rows(position, rows)
            self._forgotten = event.position
        return written

    def _forget_rows(self, position: int, rows: Sequence[int] | None) -> bool:
        """Write one event anew without those rows; False where there is nothing to do."""
        if position < self._log.first:
            return False
        (event,) = self._log.read(position - 1, position)
        found = self._history.stored(event) if event.kind == "rows" else None
        if found is None:
            return False
        block, numbers = found
        stays = ~among(numbers, rows)
        if stays.all():
            return False
        gone = [*gone_of(event), *numbers[~stays].tolist()]
        left = block.take(np.flatnonzero(stays))
        self._log.rewrite(position, _body(left, gone) if left.rows else b"", left.rows, erase=False)
        return True


def _body(block: Block, gone: list[int]) -> bytes:
    batch = arrow_from_block(block)
    metadata = {**(batch.schema.metadata or {}), GONE: json.dumps(sorted(gone)).encode()}
    return bytes(write_arrow([batch.replace_schema_metadata(metadata)]))
