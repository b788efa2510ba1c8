"""History: read past events' rows that were not unlearned.

The rows of an event are an Arrow or JSON payload, or a batch of a shard that the event refers to
(references.py).

The rows are read through this module when a model is rebuilt, when rows are subtracted from its
sums, and when it is refined. So these three operations agree on which rows are learned.

Cost: each unlearn event is read once, and the numbers of the unlearned rows stay in memory. To
find rows by id, the log's index of hashed ids is searched, and the events that it names are read.
"""

import json
import threading
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa

from stream_dr.batch.block import Block
from stream_dr.batch.schema import Schema
from stream_dr.directory.draft import Reference, Removal, json_or_arrow, parse_reference, parse_removal, parse_rows
from stream_dr.directory.references import find_shard
from stream_dr.errors import DamagedFile, HistoryGone, InvalidParameter
from stream_dr.log.event import Event, remaining_row_numbers
from stream_dr.log.ids import id_hashes
from stream_dr.log.log import Log
from stream_dr.models.model import Model
from stream_dr.shards.dataset import Shard

PAGE = 64
"""Number of events read from the log at once."""

GONE = b"stream_dr.gone"
"""Key of the schema metadata of an Arrow payload from which rows were erased.

The value is a JSON list of the original numbers of the erased rows.
"""

NumberedRows = tuple[Block, np.ndarray]
"""Rows of an event, and their numbers (rows,).

The number of a row is its index among the event's rows when the event was appended.
"""


class Decoder:
    """Decoder that turns events into Blocks, and caches opened shards.

    path: path of the directory, whose file places.json says where moved shards are.

    A Decoder must be used by one thread only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shards: dict[tuple[str, str], Shard] = {}

    def decode(self, event: Event, schema: Schema) -> Block | Removal | None:
        """Return the content of an event.

        Returns

        - a Block of the event's rows, with columns in the schema's order,
        - a Removal (rows to unlearn), for an unlearn event,
        - None, if all rows of the event were unlearned and erased.

        Raises DamagedFile if the payload is damaged. Raises SourceMissing or DamagedShard if the
        event's shard is missing or has changed.
        """
        check_payload_checksum(event)
        if event.kind == "unlearn":
            return parse_removal(event.body)
        if not event.body:
            return None
        if event.kind != "reference":
            return schema.conform(parse_rows(event.body, json_or_arrow(event.body), None))

        # The body names a batch of a shard, which has the rows.
        reference = parse_reference(event.body)
        shard = (reference.uri, reference.sha256)
        if shard not in self._shards:
            self._shards[shard] = find_shard(self._path, *shard)
        return schema.conform(self._shards[shard].read(reference.batch))

    def decode_numbered_rows(self, event: Event, schema: Schema) -> NumberedRows | None:
        """Return an event's rows, and their original numbers (rows,).

        The original number of a row is its index among the event's rows when the event was
        appended. Returns None if the event has no rows.
        """
        block = self.decode(event, schema)
        if not isinstance(block, Block):
            return None
        return block, remaining_row_numbers(block.rows, erased_payload_row_numbers(event))


def check_payload_checksum(event: Event) -> None:
    """Raise DamagedFile if an event's payload contradicts its checksum.

    A payload must be checked before it is parsed. The parser cannot detect every damage, because a
    number with a flipped bit is still a number.
    """
    if not event.intact:
        raise DamagedFile(
            f"the body of the event at position {event.position} is not what was written. Restore the log from a copy; "
            "models keep serving from their snapshots.",
            position=event.position,
        )


def erased_payload_row_numbers(event: Event) -> list[int]:
    """Return the original numbers of rows erased from a payload.

    The original number of a row is its index among the event's rows when the event was appended.
    """
    if event.kind != "rows" or event.checksum is None or not event.body:
        return []
    metadata = pa.ipc.open_stream(event.body).schema.metadata or {}
    return [int(number) for number in json.loads(metadata.get(GONE, b"[]"))]


class History:
    """Reader of the past events of a directory's log.

    A History is a Source of rows, so estimators can learn from it.

    log: the log.
    path: path of the directory.
    current_schema: function that returns the stream's current schema.
    active_models: function that returns the models that have not failed, or whose
        failure is retried after a restart.

    Thread-safe. Each call uses a new Decoder.
    """

    def __init__(
        self,
        log: Log,
        path: Path,
        current_schema: Callable[[], Schema],
        active_models: Callable[[], Sequence[Model]],
    ) -> None:
        self._log = log
        self._path = path
        self._schema = current_schema
        self._active_models = active_models
        self._lock = threading.Lock()

        # Unlearned rows, by the position of the event that added them.
        # Each value lists pairs (position of the unlearn event, row numbers or None for all rows).
        self._removals: dict[int, list[tuple[int, Sequence[int] | None]]] = {}
        # Position of each unlearn event, oldest first, with the positions of the events it names.
        self._named: list[tuple[int, list[int]]] = []
        self._removals_read_to = -1

    def stored_rows_of_event(self, event: Event) -> NumberedRows | None:
        """Return the rows that an event's payload still holds.

        Rows that were unlearned and not erased yet are among them.

        Returns (Block, original numbers (rows,) of the rows), or None if there are no rows.
        """
        return Decoder(self._path).decode_numbered_rows(event, self._schema())

    def events(
        self,
        after: int = -1,
        until: int | None = None,
        wanted_positions: Container[int] | None = None,
        unlearn_horizon: int | None = None,
    ) -> Generator[tuple[int, Block], None, None]:
        """Yield (position, Block) for after < position ≤ until.

        The Block has the event's rows that were not unlearned. Events without such rows are
        skipped.

        until: the last position. None means the end of the log.
        wanted_positions: positions to yield. None means all.
        unlearn_horizon: only unlearn events up to this position are applied. None means `until`.
        """
        last = self._log.last if until is None else until
        horizon = last if unlearn_horizon is None else unlearn_horizon
        decoder = Decoder(self._path)

        for event in self._read_events(after, last):
            if wanted_positions is None or event.position in wanted_positions:
                remaining = self._remaining_rows_of_event(event, decoder, horizon)
                if remaining is not None:
                    yield event.position, remaining[0]

    def without_unlearned_rows(
        self, position: int, block: Block, row_numbers: np.ndarray, unlearn_horizon: int
    ) -> NumberedRows | None:
        """Return an event's rows without unlearned rows, and their numbers.

        position: position of the event.
        block: some or all rows of the event.
        row_numbers: (rows,) index of each row among the event's rows when the event was appended.
        unlearn_horizon: only unlearn events up to this position are applied.

        Returns None if all of these rows were unlearned.
        """
        stays = ~mask_of_numbers(row_numbers, self._unlearned_row_numbers(position, unlearn_horizon + 1))
        if stays.all():
            return block, row_numbers
        return (block.take(np.flatnonzero(stays)), row_numbers[stays]) if stays.any() else None

    def references(self, after: int, until: int, unlearn_horizon: int) -> Iterator[tuple[int, Reference | None]]:
        """Yield (position, Reference) for after < position ≤ until.

        A Reference names the batch of a shard that has the event's rows. It is None if the log
        itself has the rows, or if some of the rows were unlearned. Events whose rows were all
        unlearned are skipped.

        unlearn_horizon: only unlearn events up to this position are applied.
        """
        for event in self._read_events(after, until):
            removed = self._unlearned_row_numbers(event.position, unlearn_horizon + 1)
            if event.kind != "unlearn" and event.body and removed is not None:
                yield event.position, parse_reference(event.body) if event.kind == "reference" and not removed else None

    def blocks_to_unlearn(self, removal: Removal, after: int, until: int) -> Iterator[Block]:
        """Yield Blocks of the rows that an unlearn event removes.

        Rows that an earlier unlearn event removed are not among them.

        removal: the rows that the unlearn event names.
        after: only rows of events after this position are returned.
        until: position of the unlearn event.
        """
        decoder = Decoder(self._path)
        for position in sorted(p for p in removal if after < p < until):
            for event in self._read_events(position - 1, position):
                removed_before = self._unlearned_row_numbers(position, until)
                stored = decoder.decode_numbered_rows(event, self._schema())
                if stored is None:
                    continue

                block, numbers = stored
                chosen = ~mask_of_numbers(numbers, removed_before) & mask_of_numbers(numbers, removal[position])
                if chosen.any():
                    yield block.take(np.flatnonzero(chosen))

    def unlearn_events(self, start: int, after: int, until: int | None = None) -> dict[int, int]:
        """Return the unlearn events that name rows from a position on.

        start: events before this position are ignored.
        after: only unlearn events after this position are returned.
        until: position of the last unlearn event. None means the end of the log.

        Returns a dict from the position of the unlearn event, oldest first, to the lowest position
        that it names.
        """
        last = self._log.last if until is None else until
        with self._lock:
            self._read_removals(last + 1)
            newest = list(takewhile(lambda event: event[0] > after, reversed(self._named)))

        found = {}
        for position, named in reversed(newest):
            first = min((p for p in named if p >= start), default=None)
            if position <= last and first is not None:
                found[position] = first
        return found

    def has_unlearned(self, start: int, position: int, horizon: int) -> bool:
        """Return True if rows from `start` to `position` were unlearned after `horizon`."""
        events = self.unlearn_events(start, horizon)
        return any(first <= position for first in events.values())

    def parse_named_removal(self, positions: Sequence[int], ids: Sequence[str | int]) -> Removal:
        """Return the Removal of rows that an unlearn request names.

        positions: positions of events of which all rows are to be unlearned.
        ids: ids of single rows to unlearn.

        Raises InvalidParameter in these cases:

        - Both lists are empty.
        - A position is not in the log, or its event has no rows.
        - No learned row has one of the ids.

        Raises HistoryGone if events that are needed to unlearn rows were dropped.
        """
        if not positions and not ids:
            raise InvalidParameter("nothing to unlearn was named; give positions or ids.")
        self.check_needed_events({})
        for position in positions:
            if not 0 <= position <= self._log.last:
                raise InvalidParameter(f"position {position} is not in the log; it ends at {self._log.last}.")
            if self._log.read(position - 1, position)[0].kind == "unlearn":
                raise InvalidParameter(f"the event at position {position} holds no rows; it took some out.")
        removal: Removal = dict.fromkeys(positions)
        if not ids:
            return removal

        # The index has hashes of ids, so read the events to find the ids themselves.
        wanted = set(map(str, ids))
        found_ids = set[str]()
        decoder = Decoder(self._path)
        last = self._log.last
        for position in self._log.positions_with_ids(id_hashes(wanted)):
            for event in self._read_events(position - 1, position):
                remaining = self._remaining_rows_of_event(event, decoder, last)
                if remaining is None or remaining[0].ids is None:
                    continue

                named = {n: str(name) for n, name in zip(remaining[1].tolist(), remaining[0].ids, strict=True)}
                rows = [number for number, name in named.items() if name in wanted]
                found_ids.update(named[number] for number in rows)
                if rows and position not in removal:
                    removal[position] = rows

        missing = wanted - found_ids
        if missing:
            raise InvalidParameter(f"no learned row has the ids {sorted(missing)[:5]}; nothing was taken out.")
        return removal

    def check_needed_events(self, removal: Removal) -> None:
        """Raise HistoryGone if events needed to unlearn rows were dropped.

        The needed events are

        - the events whose rows the removal names,
        - all events since the start of any model that cannot subtract rows from its sums. Such a
          model is rebuilt from these events.

        removal: the rows to unlearn. If empty, only the models are checked.
        """
        first = self._log.first
        for model in self._active_models():
            if not model.can_subtract_rows and first > model.start:
                raise HistoryGone(
                    f"model {model.name!r} cannot subtract rows and would be rebuilt from position {model.start}; the log "
                    f"begins at {first}. Remove the model first, or leave the rows."
                )
        if removal and min(removal) < first:
            raise HistoryGone(f"events before position {first} were dropped, {min(removal)} among them.", first=first)

    def _remaining_rows_of_event(self, event: Event, decoder: Decoder, unlearn_horizon: int) -> NumberedRows | None:
        """Return an event's rows that were not unlearned, and their numbers.

        The numbers (rows,) are the indices of the rows when the event was appended.

        unlearn_horizon: only unlearn events up to this position are applied.

        Returns None if the event has no such rows.
        """
        if self._unlearned_row_numbers(event.position, unlearn_horizon + 1) is None:
            return None
        stored = decoder.decode_numbered_rows(event, self._schema())
        return None if stored is None else self.without_unlearned_rows(event.position, *stored, unlearn_horizon)

    def _unlearned_row_numbers(self, position: int, before_position: int) -> Sequence[int] | None:
        """Return the original numbers of an event's unlearned rows.

        position: position of the event.
        before_position: only unlearn events before this position are applied.

        None means that all rows of the event were unlearned.
        """
        with self._lock:
            self._read_removals(before_position)
            removals = self._removals.get(position, ())
            removed = [rows for unlearned_at, rows in removals if unlearned_at < before_position]
        return None if None in removed else list(chain.from_iterable(rows for rows in removed if rows is not None))

    def _read_removals(self, before_position: int) -> None:
        """Read the unlearn events that no earlier call has read.

        The caller holds the lock.
        """
        if before_position - 1 <= self._removals_read_to:
            return
        for event in self._log.read_events_of_kind("unlearn", before_position, self._removals_read_to):
            check_payload_checksum(event)
            removal = parse_removal(event.body)
            for position, rows in removal.items():
                self._removals.setdefault(position, []).append((event.position, rows))
            self._named.append((event.position, list(removal)))
            self._removals_read_to = event.position
        self._removals_read_to = before_position - 1

    def _read_events(self, after: int, until: int) -> Iterator[Event]:
        """Yield the events with after < position ≤ until."""
        while after < until:
            page = self._log.read(after, until, PAGE)
            if not page:
                return
            yield from page
            after = page[-1].position


def mask_of_numbers(numbers: np.ndarray, chosen_numbers: Sequence[int] | None) -> np.ndarray:
    """Return a mask (numbers,) of the numbers in `chosen_numbers`.

    chosen_numbers: row numbers. None means all rows, so the mask is all True.
    """
    return np.ones(len(numbers), dtype=bool) if chosen_numbers is None else np.isin(numbers, chosen_numbers)
