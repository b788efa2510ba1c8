"""Retention: removal of events that nobody needs, and of the bytes of unlearned rows.

A model can go on from any snapshot that is stored. From the oldest it needs each later event, and
the rows that the unlearn events among those name, however old they are: a sum subtracts those
rows, and any other model is rebuilt from its start. A model whose failure is stored does not go on
and needs nothing.

The bytes of unlearned rows are overwritten once every stored snapshot is past their unlearning. An
event of which no row is left keeps its position with an empty body. An event that lost some rows
is rewritten without them, and its schema metadata lists the numbers of the removed rows, so that
later events can still name rows by their original numbers. Rows that an event only refers to stay
in their shard, because that file is not ours.

Cost: an event is rewritten once for each unlearn event that names it.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stream_dr.arrow.codec import arrow_from_block, write_arrow
from stream_dr.directory.draft import parse_removal
from stream_dr.directory.history import GONE, History, is_among, removed_numbers
from stream_dr.log.log import Log
from stream_dr.models.model import Model
from stream_dr.models.snapshot import oldest_snapshot
from stream_dr.rows.block import Block


class Retention:
    """Removes what no model of a directory needs. Thread-safe.

    log: the log.
    path: path of the directory.
    history: its History.
    active_models: returns the models that learn, or will learn after a restart.
    appending: lock that a thread holds while it appends.

    lock: lock that must be taken before any other lock, to remove past events or to begin to need
    them. So nothing that is being removed comes to be needed.
    """

    def __init__(
        self,
        log: Log,
        path: Path,
        history: History,
        active_models: Callable[[], Sequence[Model]],
        appending: threading.Lock,
    ) -> None:
        self._log = log
        self._path = path
        self._history = history
        self._active_models = active_models
        self.append_lock = appending
        self.lock = threading.Lock()

        # Number of running readers that need the same rows in each pass.
        self._pinned = 0

        # Position of the last unlearn event whose rows are erased from the log.
        self._erased_to = -1

    def drop(self, rows: int) -> int:
        """Drop events that neither a model nor the last `rows` rows need.

        Return the number of dropped events. Other threads can append meanwhile.
        """
        with self.lock, self.append_lock:
            first = self._log.hide_before(min(self.first_needed(), self._log.first_position_keeping(rows)))
        return self._log.drop_before(first)

    def forget(self) -> int:
        """Overwrite unlearned rows that no snapshot needs.

        Return the number of events that were rewritten. Raises InsufficientStorage.
        """
        rewritten = self._erase_unlearned()
        with self.lock:
            self._log.erase()
        return rewritten

    @contextmanager
    def pin_rows(self) -> Iterator[None]:
        """Keep all rows during the with-block.

        A refine must see the same rows in each pass.
        """
        with self.lock:
            self._pinned += 1
        try:
            yield
        finally:
            with self.lock:
                self._pinned -= 1

    def snapshotted_position(self) -> int:
        """Return the position that every stored snapshot has reached.

        Without models it is the log's last position.
        """
        return min((oldest_snapshot(self._path, m) for m in self._active_models()), default=self._log.last)

    def first_needed(self) -> int:
        """Return the first position that a model may still have to read.

        A model that may have to be rebuilt needs all events from its start.
        """
        last = self._log.last
        removals = [e.position for e in self._log.read_kind("unlearn", last + 1)]
        models = [(model, oldest_snapshot(self._path, model)) for model in self._active_models()]
        return min((m.start if max(removals, default=-1) > p else p + 1 for m, p in models), default=last + 1)

    def _erase_unlearned(self) -> int:
        """Rewrite the events with unlearned rows that every snapshot is past.

        Return the number of rewritten events. Unlearn events that are done are skipped until the
        directory is opened again.
        """
        rewritten = 0
        for event in self._log.read_kind("unlearn", self.snapshotted_position() + 1):
            if event.position <= self._erased_to:
                continue

            for position, rows in parse_removal(event.body).items():
                with self.lock:
                    # A model that was added meanwhile may still have to learn and unlearn the
                    # rows.
                    if self._pinned or self.snapshotted_position() < event.position:
                        return rewritten
                    rewritten += self._erase_rows(position, rows)
            self._erased_to = event.position
        return rewritten

    def _erase_rows(self, position: int, rows: Sequence[int] | None) -> bool:
        """Rewrite one event without these rows.

        Return False if there is nothing to do.
        """
        if position < self._log.first:
            return False

        (event,) = self._log.read(position - 1, position)
        stored = self._history.stored(event) if event.kind == "rows" else None
        if stored is None:
            return False

        block, numbers = stored
        stays = ~is_among(numbers, rows)
        if stays.all():
            return False

        removed = [*removed_numbers(event), *numbers[~stays].tolist()]
        remaining = block.take(np.flatnonzero(stays))
        body = _body_without(remaining, removed) if remaining.rows else b""
        self._log.rewrite(position, body, remaining.rows, erase=False)
        return True


def _body_without(block: Block, removed: list[int]) -> bytes:
    """Return an event's body of these rows, which notes the removed row numbers."""
    batch = arrow_from_block(block)
    metadata = {**(batch.schema.metadata or {}), GONE: json.dumps(sorted(removed)).encode()}
    return bytes(write_arrow([batch.replace_schema_metadata(metadata)]))
