"""LogHistory: the rows of a log's past, less what unlearn events have taken out; also a Source that refine reads.

Removals are few; they are read from the log's unlearn events when asked for, not kept.

Why this way: a rebuild, a subtraction and a refine agree on which rows are still learned, because they ask here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stream_dr.block import Block
from stream_dr.engine.decode import Decoder, check_intact
from stream_dr.engine.forget import row_numbers
from stream_dr.engine.model import Model
from stream_dr.engine.needs import going_on
from stream_dr.engine.reading import PAGE
from stream_dr.engine.snapshot import keep_published
from stream_dr.engine.unlearn import Removal, removal_of, subtracts
from stream_dr.errors import HistoryGone, InvalidParameter


class LogHistory:
    """The past of a Directory. Its methods may run in several threads at once; each call decodes for itself."""

    def __init__(self, directory: Any) -> None:
        self._directory = directory

    def remaining(self, after: int, until: int) -> Iterator[tuple[int, Block]]:
        """(position, Block), for after < position ≤ until, of the rows that unlearn events up to `until` have left."""
        for position, block, _ in self.numbered(after, until):
            yield position, block

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """As `remaining`, to the end of the log when `until` is None: the protocol of stream_dr.source."""
        return self.remaining(after, self._directory.position if until is None else until)

    def numbered(self, after: int, until: int) -> Iterator[tuple[int, Block, np.ndarray]]:
        """As `remaining`, with the numbers (rows,) that the rows had in their event when it was appended."""
        gone, decoder = self._removed(until + 1), self._decoder()
        for event in self._events(after, until):
            left_out = gone.get(event.position, ())
            if event.kind == "unlearn" or not event.body or left_out is None:
                continue
            block, numbers = self._parsed(event, decoder)
            stays = ~np.isin(numbers, left_out)
            if stays.any():
                yield event.position, block if stays.all() else block.take(np.flatnonzero(stays)), numbers[stays]

    def picked(self, removal: Removal, after: int, until: int) -> Iterator[Block]:
        """The Blocks of the rows a removal at `until` names, of events past `after`, less what was taken out before
        it."""
        gone, decoder = self._removed(until), self._decoder()
        for position in sorted(p for p in removal if after < p < until):
            for event in self._events(position - 1, position):
                before, wanted = gone.get(position, ()), removal[position]
                if before is None or not event.body:
                    continue
                block, numbers = self._parsed(event, decoder)
                chosen = ~np.isin(numbers, before)
                if wanted is not None:
                    chosen &= np.isin(numbers, wanted)
                if chosen.any():
                    yield block.take(np.flatnonzero(chosen))

    def remember_failure(self, model: Model) -> None:
        """Write a model's failure down, so that a restart does not try the same event again."""
        if model.failure is not None:
            self._directory.table.set_failure(model.id, model.failure)
            keep_published(model, self._directory.path)

    def _decoder(self) -> Decoder:
        return Decoder(self._directory.limits, self._directory.path)

    def _parsed(self, event: Any, decoder: Decoder) -> tuple[Block, np.ndarray]:
        block = decoder.block(event, self._directory.schema)
        return block, row_numbers(event, block.rows)

    def _removed(self, before: int) -> Removal:
        """Everything that unlearn events before this position took out."""
        gone: Removal = {}
        for event in self._directory.log.read_kind("unlearn", before):
            check_intact(event)
            for position, rows in removal_of(event.body).items():
                known = gone.get(position, ())
                gone[position] = None if rows is None or known is None else [*known, *rows]
        return gone

    def _events(self, after: int, until: int) -> Iterator[Any]:
        while after < until:
            page = self._directory.log.read(after, until, PAGE)
            if not page:
                return
            yield from page
            after = page[-1].position


def picked_rows(directory: Any, positions: Sequence[int], ids: Sequence[str]) -> Removal:
    """What an unlearn request names: whole events by position, single rows by id (looked up in the log, O(its bytes)).

    Raises InvalidParameter (nothing named, no such position, an id that no row has) and HistoryGone.
    """
    if not positions and not ids:
        raise InvalidParameter("nothing to unlearn was named; give positions or ids.")
    _check_rebuildable(directory)
    removal: Removal = {}
    for position in positions:
        _check_position(directory, position)
        removal[position] = None
    return _by_ids(directory, ids, removal) if ids else removal


def _check_rebuildable(directory: Any) -> None:
    """Raise HistoryGone where a model that can only be rebuilt needs events that are no longer kept."""
    for model in going_on(directory):
        if not subtracts(model.estimator) and directory.log.first > model.start:
            raise HistoryGone(
                f"model {model.name!r} cannot subtract rows and would be rebuilt from position {model.start}; the log "
                f"begins at {directory.log.first}. Remove the model first, or leave the rows."
            )


def check_removable(directory: Any, removal: Removal) -> None:
    """Raise HistoryGone where what a removal names, or a model needs for it, has been dropped."""
    _check_rebuildable(directory)
    first = int(directory.log.first)
    if removal and min(removal) < first:
        raise HistoryGone(f"events before position {first} were dropped, {min(removal)} among them.", first=first)


def _check_position(directory: Any, position: int) -> None:
    if not 0 <= position <= directory.position:
        raise InvalidParameter(f"position {position} is not in the log; it ends at {directory.position}.")
    event = directory.log.read(position - 1, position)[0]
    if event.kind == "unlearn":
        raise InvalidParameter(f"the event at position {position} holds no rows; it took some out.")


def _by_ids(directory: Any, ids: Sequence[str], removal: Removal) -> Removal:
    wanted = set(ids)
    found: set[str] = set()
    for position, block, numbers in LogHistory(directory).numbered(int(directory.log.first) - 1, directory.position):
        rows = [int(n) for n, name in zip(numbers, block.ids or (), strict=False) if name in wanted]
        if rows and position not in removal:
            removal[position] = rows
        found.update(name for name in block.ids or () if name in wanted)
    if wanted - found:
        raise InvalidParameter(f"no learned row has the ids {sorted(wanted - found)[:5]}; nothing was taken out.")
    return removal
