"""Retention: remove old events and erase unlearned rows' bytes.

An event can be dropped if no model needs it. After a restart, a model continues from a stored
snapshot. From its oldest snapshot, the model needs

- each later event,
- the rows that later unlearn events name, however old these rows are. A model whose state is a
  sum over rows subtracts the rows. Any other model is rebuilt from its start, and needs all events
  since then.

A model whose failure is stored does not continue, so it needs no event.

The bytes of unlearned rows are overwritten when every stored snapshot includes the unlearning. If
all rows of an event were unlearned, the event stays at its position with an empty payload. If some
rows were unlearned, the payload is rewritten without these rows, and its schema metadata lists the
numbers of the erased rows. So later events can still name rows by their original numbers. Rows in
shards are not erased, because the shard may be another owner's file.

Cost: an event is rewritten once for each unlearn event that names rows of the event.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.directory.draft import parse_removal
from stream_dr.directory.history import GONE, History, erased_payload_row_numbers, mask_of_numbers
from stream_dr.log.log import Log
from stream_dr.models.model import Model
from stream_dr.models.snapshot import oldest_snapshot_position


class Retention:
    """Remover of events and rows that no model needs.

    log: the log.
    path: path of the directory.
    history: reader of the directory's past events.
    active_models: function that returns the models that have not failed, or whose
        failure is retried after a restart.

    A thread holds the attribute `lock` while it removes past events, and while it adds a model
    that needs past events. So no event is removed that a new model needs. This lock must be taken
    before any other lock. A thread holds `append_lock` while it appends events or changes the models
    or the schema.

    Thread-safe.
    """

    def __init__(
        self,
        log: Log,
        path: Path,
        history: History,
        active_models: Callable[[], Sequence[Model]],
    ) -> None:
        self._log = log
        self._path = path
        self._history = history
        self._active_models = active_models
        self.lock = threading.Lock()
        self.append_lock = threading.Lock()

        # Number of active `prevent_row_erasure` blocks. While there are any, no rows are erased.
        self._pinned = 0

        # Position of the last unlearn event whose rows are all erased from the log.
        self._erased_to = -1

    def drop_unneeded_events(self, newest_rows_to_keep: int) -> int:
        """Drop the oldest events that no model needs.

        newest_rows_to_keep: number of rows at the end of the log that are not dropped.

        Returns the number of dropped events. Other threads can append while files are removed.
        """
        with self.lock, self.append_lock:
            first = self._log.hide_events_before(
                min(self.first_needed_position(), self._log.position_before_newest(newest_rows_to_keep))
            )
        return self._log.drop_events_before(first)

    def erase_unlearned_rows(self) -> int:
        """Erase the log's unlearned rows that no snapshot includes.

        An event is rewritten without these rows. Unlearn events whose rows are all erased are
        skipped in later calls, until the directory is opened again.

        Returns the number of rewritten events. Raises InsufficientStorage.
        """
        rewritten = 0
        for event in self._log.read_events_of_kind("unlearn", self.oldest_snapshot_position() + 1):
            if event.position <= self._erased_to:
                continue

            for position, rows in parse_removal(event.body).items():
                with self.lock:
                    # Stop if the rows are pinned.
                    # Stop too if a model was added meanwhile that must learn and unlearn the rows.
                    if self._pinned or self.oldest_snapshot_position() < event.position:
                        return rewritten
                    rewritten += self._erase_rows_of_event(position, rows)
            self._erased_to = event.position
        return rewritten

    @contextmanager
    def prevent_row_erasure(self) -> Iterator[None]:
        """Prevent the erasure of rows during the with-block.

        A refinement of a model runs in such a block, because it reads the rows in several passes,
        which must have the same rows.
        """
        with self.lock:
            self._pinned += 1
        try:
            yield
        finally:
            with self.lock:
                self._pinned -= 1

    def oldest_snapshot_position(self) -> int:
        """Return the lowest position of active models' stored snapshots.

        Without models, this is the position of the log's last event.
        """
        return min((oldest_snapshot_position(self._path, m) for m in self._active_models()), default=self._log.last)

    def first_needed_position(self) -> int:
        """Return the position of the oldest event that models need.

        If an unlearn event follows a model's oldest snapshot, the model may have to be rebuilt.
        Then it needs all events from its start.
        """
        last = self._log.last
        removals = [e.position for e in self._log.read_events_of_kind("unlearn", last + 1)]
        models = [(model, oldest_snapshot_position(self._path, model)) for model in self._active_models()]
        return min((m.start if max(removals, default=-1) > p else p + 1 for m, p in models), default=last + 1)

    def _erase_rows_of_event(self, position: int, row_numbers: Sequence[int] | None) -> bool:
        """Rewrite one event without some of its rows.

        position: position of the event.
        row_numbers: original numbers of the rows to erase. None means all rows.

        Returns False if the event was dropped, refers to a shard, or has none of these rows.
        """
        if position < self._log.first:
            return False

        (event,) = self._log.read(position - 1, position)
        stored = self._history.stored_rows_of_event(event) if event.kind == "rows" else None
        if stored is None:
            return False

        # Find the rows that stay. `numbers` are the original numbers of the rows in `block`.
        block, numbers = stored
        stays = ~mask_of_numbers(numbers, row_numbers)
        if stays.all():
            return False

        removed = [*erased_payload_row_numbers(event), *numbers[~stays].tolist()]
        remaining = block.take(np.flatnonzero(stays))
        body = b""
        if remaining.rows:
            # The schema metadata of the new payload lists the numbers of all erased rows.
            batch = arrow_from_block(remaining)
            metadata = {**(batch.schema.metadata or {}), GONE: json.dumps(sorted(removed)).encode()}
            body = write_arrow([batch.replace_schema_metadata(metadata)])
        self._log.rewrite(position, body, remaining.rows)
        return True
