"""History: events of the log back as Blocks; the rows of its past, less what unlearn events took out.

A body is Arrow or JSON, told apart by its first bytes; a reference event names a batch of a shard (references.py).

Cost: each unlearn event is read once, and what it takes out is held: some bytes a row. An id is looked up in the log's
index, and the events that may have it are read.

Why this way: a rebuild, a subtraction and a refine agree on which rows are still learned, because they ask here.
"""

import json
import threading
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from stream_dr.directory.draft import Reference, Removal, media_of, parse_rows, reference_in, removal_of
from stream_dr.directory.references import find_shard
from stream_dr.errors import DamagedFile, HistoryGone, InvalidParameter, StreamDRError
from stream_dr.log.event import Event
from stream_dr.log.ids import id_hashes
from stream_dr.log.log import Log
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema, columns_in_order
from stream_dr.rows.block import Block
from stream_dr.shards.dataset import Shard

PAGE = 64
"""Events read from the log at once."""

PAGE_OF_IDS = 1024
"""Events of an earlier release whose ids are noted at once."""

GONE = b"stream_dr.gone"
"""Schema metadata key: JSON list of the row numbers that were taken out of a body."""


class Decoder:
    """Reads events into Blocks; keeps the shards it has found. directory: whose table says where moved shards are. One owner
    (thread) each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
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
        return (found, numbers_of(found, gone_of(event))) if isinstance(found, Block) else None

    def _block(self, event: Event) -> Block:
        if event.kind != "reference":
            return parse_rows(event.body, media_of(event.body), None)
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


def numbers_of(block: Block, gone: Sequence[int]) -> np.ndarray:
    """The numbers (rows,) that an event's rows had when it was appended; gone: those of rows that are not there any more."""
    return np.setdiff1d(np.arange(block.rows + len(gone)), np.asarray(gone, dtype=np.int64))


class History:
    """The past of a directory's log. schema: the stream's, now. going_on: the models that learn, now, or will after a
    restart. Its methods may run in several threads at once; each call decodes for itself. It is a Source."""

    def __init__(
        self,
        log: Log,
        path: Path,
        schema: Callable[[], Schema],
        going_on: Callable[[], Sequence[Model]],
    ) -> None:
        self._log, self._path, self._schema, self._going_on = log, path, schema, going_on
        self._lock = threading.Lock()
        self._removals: dict[int, list[tuple[int, Sequence[int] | None]]] = {}  # by which event, of each position
        self._removals_to = -1

    def decoder(self) -> Decoder:
        """A new Decoder of the log's events."""
        return Decoder(self._path)

    def stored(self, event: Event) -> tuple[Block, np.ndarray] | None:
        """The rows that an event still holds, and the numbers (rows,) that they had when it was appended; None where it
        holds none."""
        return self.decoder().numbered(event, self._schema())

    def events(
        self,
        after: int = -1,
        until: int | None = None,
        only: Container[int] | None = None,
        removed_to: int | None = None,
    ) -> Generator[tuple[int, Block], None, None]:
        """(position, Block), for after < position ≤ until, of the rows that unlearn events up to removed_to (None: `until`)
        have left; to the end of the log when it is None. only: of these positions alone."""
        last, decoder = self._log.last if until is None else until, self.decoder()
        for event in self._read(after, last):
            if only is None or event.position in only:
                found = self._left_of(event, decoder, last if removed_to is None else removed_to)
                if found is not None:
                    yield event.position, found[0]

    def left(
        self, position: int, block: Block, numbers: np.ndarray, removed_to: int
    ) -> tuple[Block, np.ndarray] | None:
        """The rows of an event, of these numbers (rows,), that unlearn events up to a position leave, and their numbers;
        None where they leave none."""
        stays = ~among(numbers, self._removed(position, removed_to + 1))
        if stays.all():
            return block, numbers
        return (block.take(np.flatnonzero(stays)), numbers[stays]) if stays.any() else None

    def references(self, after: int, until: int, removed_to: int) -> Iterator[tuple[int, Reference | None]]:
        """(position, what the event refers to), for after < position ≤ until, of events that unlearn events up to removed_to
        have left rows of; None where the rows are in the log itself, or not all of them are left."""
        for event in self._read(after, until):
            left_out = self._removed(event.position, removed_to + 1)
            if event.kind != "unlearn" and event.body and left_out is not None:
                yield event.position, reference_in(event.body) if event.kind == "reference" and not left_out else None

    def picked(self, removal: Removal, after: int, until: int) -> Iterator[Block]:
        """The Blocks of the rows a removal at `until` names, of events past `after`, less what was taken out before
        it."""
        decoder = self.decoder()
        for position in sorted(p for p in removal if after < p < until):
            for event in self._read(position - 1, position):
                before, wanted = self._removed(position, until), removal[position]
                found = decoder.numbered(event, self._schema())
                if found is None:
                    continue
                block, numbers = found
                chosen = ~among(numbers, before) & among(numbers, wanted)
                if chosen.any():
                    yield block.take(np.flatnonzero(chosen))

    def pick(self, positions: Sequence[int], ids: Sequence[str | int]) -> Removal:
        """What an unlearn request names: whole events by position, single rows by id.

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

    def index_ids(self) -> None:
        """Note the ids of the rows that an earlier release appended, which noted none. An event that cannot be read now is
        read when an id is looked for, and raises then."""
        decoder = self.decoder()
        for first, last in self._log.not_indexed():
            after = max(first, self._log.first) - 1
            with suppress(StreamDRError):
                while after < last and (page := self._log.read(after, last, PAGE_OF_IDS)):
                    after, ids, unread = page[-1].position, dict[int, np.ndarray](), list[int]()
                    for event in page:
                        try:
                            found = decoder.decode(event, self._schema())
                        except StreamDRError:
                            unread.append(event.position)
                        else:
                            if isinstance(found, Block) and found.ids is not None:
                                ids[event.position] = id_hashes(found.ids)
                    self._log.index_ids(last, after, ids, unread)

    def _left_of(self, event: Event, decoder: Decoder, removed_to: int) -> tuple[Block, np.ndarray] | None:
        """As `left`, of an event of any kind; None for one without rows."""
        if self._removed(event.position, removed_to + 1) is None:
            return None
        found = decoder.numbered(event, self._schema())
        return None if found is None else self.left(event.position, *found, removed_to)

    def _removed(self, position: int, before: int) -> Sequence[int] | None:
        """Numbers of an event's rows that unlearn events before a position have taken out; None: all of them."""
        with self._lock:
            if before - 1 > self._removals_to:
                for event in self._log.read_kind("unlearn", before, self._removals_to):
                    check_intact(event)
                    for named, rows in removal_of(event.body).items():
                        self._removals.setdefault(named, []).append((event.position, rows))
                    self._removals_to = event.position
                self._removals_to = before - 1
            taken = [rows for by, rows in self._removals.get(position, ()) if by < before]
        return None if None in taken else list(chain.from_iterable(rows for rows in taken if rows is not None))

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
        found, decoder, last = set[str](), self.decoder(), self._log.last
        for position in self._log.with_ids(id_hashes(wanted)):
            for event in self._read(position - 1, position):
                left = self._left_of(event, decoder, last)
                if left is None or left[0].ids is None:
                    continue
                named = {n: str(name) for n, name in zip(left[1].tolist(), left[0].ids, strict=True)}
                rows = [number for number, name in named.items() if name in wanted]
                found.update(named[number] for number in rows)
                if rows and position not in removal:
                    removal[position] = rows
        if wanted - found:
            raise InvalidParameter(f"no learned row has the ids {sorted(wanted - found)[:5]}; nothing was taken out.")
        return removal


def among(numbers: np.ndarray, rows: Sequence[int] | None) -> np.ndarray:
    """Which of an event's row numbers are among these; None: all are."""
    return np.ones(len(numbers), dtype=bool) if rows is None else np.isin(numbers, rows)
