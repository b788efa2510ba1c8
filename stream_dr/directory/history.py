"""History: events of the log back as Blocks; the rows of its past, less what unlearn events took out.

A body is Arrow or JSON, told apart by its first bytes; a reference event names a batch of a shard (references.py).

Cost: removals are few; they are read from the log's unlearn events when asked for, not kept.

Why this way: a rebuild, a subtraction and a refine agree on which rows are still learned, because they ask here.
"""

import json
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from stream_dr.directory.draft import Reference, Removal, media_of, parse_rows, reference_in, removal_of
from stream_dr.directory.references import find_shard
from stream_dr.errors import DamagedFile, HistoryGone, InvalidParameter
from stream_dr.log.event import Event
from stream_dr.log.log import Log
from stream_dr.models.model import Model
from stream_dr.models.schema import Limits, Schema, columns_in_order
from stream_dr.rows.block import Block
from stream_dr.shards.dataset import Shard

PAGE = 64
"""Events read from the log at once."""

GONE = b"stream_dr.gone"
"""Schema metadata key: JSON list of the row numbers that were taken out of a body."""


class Decoder:
    """Reads events into Blocks; keeps the shards it has found. directory: whose table says where moved shards are. One owner
    (thread) each."""

    def __init__(self, limits: Limits, directory: Path) -> None:
        self._limits, self._directory = limits, directory
        self._shards: dict[tuple[str, str], Shard] = {}

    def decode(self, event: Event, schema: Schema) -> Block | Removal | None:
        """What an event brings, columns in the schema's order; None where all its rows were unlearned and forgotten.

        Raises DamagedFile, and SourceMissing or DamagedShard when a referenced shard is not there or is not what it was.
        """
        check_intact(event)
        if event.kind == "unlearn":
            return removal_of(event.body)
        return columns_in_order(self._block(event), schema) if event.body else None

    def numbered(self, event: Event, schema: Schema) -> tuple[Block, np.ndarray] | None:
        """The rows of an event, and the numbers (rows,) that they had when it was appended; None where there are none."""
        found = self.decode(event, schema)
        if not isinstance(found, Block):
            return None
        gone = gone_of(event)
        return found, np.setdiff1d(np.arange(found.rows + len(gone)), np.asarray(gone, dtype=np.int64))

    def _block(self, event: Event) -> Block:
        if event.kind != "reference":
            return parse_rows(event.body, media_of(event.body), self._limits)
        facts = json.loads(bytes(event.body))
        where = (facts["uri"], facts["sha256"])
        if where not in self._shards:
            self._shards[where] = find_shard(self._directory, *where)
        return self._shards[where].read(facts["batch"])


def check_intact(event: Event) -> None:
    """Raise DamagedFile for an event whose body is not what was written: a number with a flipped bit is a number still."""
    if not event.intact:
        raise DamagedFile(
            f"the body of the event at position {event.position} is not what was written. Restore the log from a copy; "
            "models keep serving from their snapshots.",
            position=event.position,
        )


def gone_of(event: Event) -> list[int]:
    """The numbers of the rows that were taken out of an event's body."""
    if event.kind != "rows" or event.checksum is None or not event.body:
        return []
    metadata = pa.ipc.open_stream(event.body).schema.metadata or {}
    return [int(number) for number in json.loads(metadata.get(GONE, b"[]"))]


class History:
    """The past of a directory's log. schema: the stream's, now. going_on: the models that learn, now, or will after a
    restart. Its methods may run in several threads at once; each call decodes for itself. It is a Source."""

    def __init__(
        self,
        log: Log,
        path: Path,
        limits: Limits,
        schema: Callable[[], Schema],
        going_on: Callable[[], Sequence[Model]],
    ) -> None:
        self._log, self._path, self._limits, self._schema, self._going_on = log, path, limits, schema, going_on

    def decoder(self) -> Decoder:
        """A new Decoder of the log's events."""
        return Decoder(self._limits, self._path)

    def stored(self, event: Event) -> tuple[Block, np.ndarray] | None:
        """The rows that an event still holds, and the numbers (rows,) that they had when it was appended; None where it
        holds none."""
        return self.decoder().numbered(event, self._schema())

    def events(
        self, after: int = -1, until: int | None = None, only: Container[int] | None = None
    ) -> Generator[tuple[int, Block], None, None]:
        """(position, Block), for after < position ≤ until, of the rows that unlearn events up to `until` have left; to
        the end of the log when it is None. only: of these positions alone."""
        for position, block, _ in self._numbered(after, self._log.last if until is None else until, only):
            yield position, block

    def references(self, after: int, until: int) -> Iterator[tuple[int, Reference | None]]:
        """(position, what the event refers to), for after < position ≤ until, of events that have rows left; None where the
        rows are in the log itself, or not all of them are left."""
        gone = self._removed(until + 1)
        for event in self._read(after, until):
            left_out = gone.get(event.position, ())
            if event.kind != "unlearn" and event.body and left_out is not None:
                yield event.position, reference_in(event.body) if event.kind == "reference" and not left_out else None

    def picked(self, removal: Removal, after: int, until: int) -> Iterator[Block]:
        """The Blocks of the rows a removal at `until` names, of events past `after`, less what was taken out before
        it."""
        gone, decoder = self._removed(until), self.decoder()
        for position in sorted(p for p in removal if after < p < until):
            for event in self._read(position - 1, position):
                before, wanted = gone.get(position, ()), removal[position]
                found = decoder.numbered(event, self._schema())
                if found is None:
                    continue
                block, numbers = found
                chosen = ~among(numbers, before) & among(numbers, wanted)
                if chosen.any():
                    yield block.take(np.flatnonzero(chosen))

    def pick(self, positions: Sequence[int], ids: Sequence[str | int]) -> Removal:
        """What an unlearn request names: whole events by position, single rows by id (looked up in the log, O(its bytes)).

        Raises InvalidParameter (nothing named, no such position, an id that no row has) and HistoryGone.
        """
        if not positions and not ids:
            raise InvalidParameter("nothing to unlearn was named; give positions or ids.")
        self.check_removable({})
        for position in positions:
            self._check_position(position)
        removal: Removal = dict.fromkeys(positions)
        return self._by_ids(set(map(str, ids)), removal) if ids else removal

    def check_removable(self, removal: Removal) -> None:
        """Raise HistoryGone where what a removal names, or a model needs for it, has been dropped."""
        first = self._log.first
        for model in self._going_on():
            if not model.subtracts and first > model.start:
                raise HistoryGone(
                    f"model {model.name!r} cannot subtract rows and would be rebuilt from position {model.start}; the log "
                    f"begins at {first}. Remove the model first, or leave the rows."
                )
        if removal and min(removal) < first:
            raise HistoryGone(f"events before position {first} were dropped, {min(removal)} among them.", first=first)

    def _numbered(
        self, after: int, until: int, only: Container[int] | None = None
    ) -> Iterator[tuple[int, Block, np.ndarray]]:
        """As `events`, with the numbers (rows,) that the rows had in their event when it was appended."""
        gone, decoder = self._removed(until + 1), self.decoder()
        for event in self._read(after, until):
            left_out = gone.get(event.position, ())
            passed_over = left_out is None or (only is not None and event.position not in only)
            found = None if passed_over else decoder.numbered(event, self._schema())
            if found is None:
                continue
            block, numbers = found
            stays = ~among(numbers, left_out)
            if stays.any():
                yield event.position, block if stays.all() else block.take(np.flatnonzero(stays)), numbers[stays]

    def _removed(self, before: int) -> Removal:
        """Rows that unlearn events before a position have taken out; None: all of an event's."""
        gone: Removal = {}
        for event in self._log.read_kind("unlearn", before):
            check_intact(event)
            for position, rows in removal_of(event.body).items():
                known = gone.get(position, ())
                gone[position] = None if rows is None or known is None else [*known, *rows]
        return gone

    def _read(self, after: int, until: int) -> Iterator[Event]:
        while after < until:
            page = self._log.read(after, until, PAGE)
            if not page:
                return
            yield from page
            after = page[-1].position

    def _check_position(self, position: int) -> None:
        if not 0 <= position <= self._log.last:
            raise InvalidParameter(f"position {position} is not in the log; it ends at {self._log.last}.")
        event = self._log.read(position - 1, position)[0]
        if event.kind == "unlearn":
            raise InvalidParameter(f"the event at position {position} holds no rows; it took some out.")

    def _by_ids(self, wanted: set[str], removal: Removal) -> Removal:
        found: set[str] = set()
        for position, block, numbers in self._numbered(self._log.first - 1, self._log.last):
            named = zip(numbers.tolist(), block.ids or (), strict=False)
            rows = [number for number, name in named if str(name) in wanted]
            if rows and position not in removal:
                removal[position] = rows
            found.update(str(name) for name in block.ids or () if str(name) in wanted)
        if wanted - found:
            raise InvalidParameter(f"no learned row has the ids {sorted(wanted - found)[:5]}; nothing was taken out.")
        return removal


def among(numbers: np.ndarray, rows: Sequence[int] | None) -> np.ndarray:
    """Which of an event's row numbers are among these; None: all are."""
    return np.ones(len(numbers), dtype=bool) if rows is None else np.isin(numbers, rows)
