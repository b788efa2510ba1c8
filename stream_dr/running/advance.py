"""Advance: apply the log's events to models, one by one.

Live learning, backfill and replay use this code. Events are never merged. A model's state
therefore depends only on the events, and a killed process ends with the same bits after its
restart. There is one exception: a model that was rebuilt may differ in the last digits from a
model that subtracted rows.

An unlearn event names rows to remove. There are two ways to remove them from a model:

- Subtract the rows from the state, if the state consists of sums over rows. This costs as much as
  learning these rows.
- Rebuild the model: learn the log again without the unlearned rows. A rebuild leaves out the rows
  of all unlearn events in the log, also of later ones, so it is done once for all of them.

A state of sums is rebuilt too in these cases:

- The model decays. The removed rows have then reduced the weight of older rows.
- The feature map has filled or weighted the remaining rows with statistics of the removed rows.
- Subtraction would lose too much precision.

The caller may run a rebuild in another thread, so that the other models do not wait for it.

Events were checked before they entered the log, so applying one should not raise. If it does, the
model becomes `failed`, and its failure (position, error code, message) is stored. A restart does
not try the event again, unless a file or the disk caused the error. The failed model's last
projection stays in use, and other models go on.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from functools import partial
from typing import NamedTuple

from stream_dr.batch.block import Block
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Removal, parse_removal
from stream_dr.directory.history import PAGE, Decoder, erased_payload_row_numbers
from stream_dr.errors import CannotUnlearn, HistoryGone, Overloaded, StreamDRError
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.table import can_unlearn_exactly
from stream_dr.log.event import Event, remaining_row_numbers
from stream_dr.models.model import Model, Unlearned
from stream_dr.models.snapshot import accumulator_at_start
from stream_dr.statistics.protocol import Accumulator
from stream_dr.threads import compute_ahead

log = logging.getLogger("stream_dr.advance")

# The bytes of payloads and the bytes of rows are both limited.
# A small payload can have many rows: it is compressed, or refers to a batch of a shard.
PAGE_BYTES = 64 << 20
"""Number of bytes at which a page (a list of events that are read together) ends.

The page ends when its payloads, or the rows that were read from them, have this many bytes.
"""


ShouldContinue = Callable[[], bool]
"""Function that says whether to go on with a rebuild, called at every event.

A rebuild learns the log again without unlearned rows. False stops the rebuild.
"""

BlockedModels = list[Model]
"""Models that stopped before an unlearn event, because they need a rebuild that was not done.

A rebuild learns the log again without the unlearned rows.
"""


def always_continue() -> bool:
    """Return True, so that no rebuild is stopped."""
    return True


class ParsedEvent(NamedTuple):
    """Event of the log, with its payload parsed.

    Attributes
    ----------
    position : int
        Position of the event in the log.
    block : Block or None
        Rows to learn. None for an unlearn event.
    removal : Removal or None
        Rows to unlearn. None for an event with rows.
    error : Exception or None
        Error that was raised when the event was read.
    gone : sequence of int
        Numbers, within the event, of the rows that were erased from the log. `block` does not
        contain these rows.
    """

    position: int
    block: Block | None = None
    removal: Removal | None = None
    error: Exception | None = None
    gone: Sequence[int] = ()


AfterPage = Callable[[Sequence[ParsedEvent]], bool | None]
"""Function that receives a page (a list of events) after all models have applied the page.

It may return True to stop reading the log.
"""


class EventReader:
    """Reads and parses the events of a directory's log.

    An instance must be used by one thread only.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._decoder = Decoder(directory.path)

    def read(self, after_position: int, last_position: int, limit: int = PAGE) -> list[ParsedEvent]:
        """Return the next events, parsed.

        after_position: position of the last event that was already read.
        last_position: position of the last event to read.
        limit: maximum number of events to return.

        If an event cannot be read, its attribute `error` holds the error.
        """
        # Recently appended events are still in memory and need not be parsed again.
        recent = self._directory.recent
        n_drafts = min(limit, last_position - after_position)
        drafts = recent.consecutive_drafts_after(after_position, n_drafts)
        if drafts:
            return [_event_or_error(p, partial(self._parse_draft, p, draft)) for p, draft in drafts]
        last_on_disk = min(last_position, recent.first_position_after(after_position, last_position + 1) - 1)
        return self._read_events_from_disk(after_position, last_on_disk, limit)

    def pages(self, after_position: int, last_position: int) -> Generator[list[ParsedEvent], None, None]:
        """Yield all events of a range of positions, in lists.

        The range is after_position < position ≤ last_position. Each list has at most PAGE events.
        """
        while after_position < last_position and (page := self.read(after_position, last_position)):
            yield page
            after_position = page[-1].position

    def _read_events_from_disk(self, after_position: int, last_position: int, max_events: int) -> list[ParsedEvent]:
        """Return the next events from the log on the disk.

        The parameters have the meaning that `read` describes.
        """
        parsed: list[ParsedEvent] = []
        remaining_bytes = PAGE_BYTES
        try:
            # Read a page at a time, so that no database cursor stays open between pages.
            for event in self._directory.log.read(after_position, last_position, max_events, PAGE_BYTES):
                parsed.append(_event_or_error(event.position, partial(self._parse_event, event)))
                remaining_bytes -= parsed[-1].block.nbytes if parsed[-1].block is not None else 0
                if remaining_bytes <= 0:
                    break

        # Overloaded is a temporary error that no event has caused.
        # Raise Overloaded here, because the error of an event would be stored.
        except Overloaded:
            raise
        except StreamDRError as e:
            # Read the next event alone, to find out which event cannot be read.
            if max_events > 1:
                return self._read_events_from_disk(after_position, last_position, 1)
            return [ParsedEvent(after_position + 1, error=e)]
        return parsed

    def _parse_draft(self, position: int, draft: Draft) -> ParsedEvent:
        if draft.block is None:
            return ParsedEvent(position, removal=parse_removal(draft.body))
        return ParsedEvent(position, draft.block)

    def _parse_event(self, event: Event) -> ParsedEvent:
        content = self._decoder.decode(event, self._directory.schema)
        if isinstance(content, dict):
            return ParsedEvent(event.position, removal=content)
        return ParsedEvent(event.position, content, gone=erased_payload_row_numbers(event))


def _event_or_error(position: int, read_event: Callable[[], ParsedEvent]) -> ParsedEvent:
    """Call `read_event` and return the parsed event.

    If `read_event` raises an error, return an event that holds the error.
    """
    try:
        return read_event()
    except Exception as e:
        return ParsedEvent(position, error=e)


def count_rows_to_learn(events: Iterable[ParsedEvent]) -> int:
    """Return the number of rows to learn in the events."""
    return sum(event.block.rows for event in events if event.block is not None)


def backfill(
    directory: Directory,
    models: Sequence[Model],
    last_position: int,
    learn_pool: Executor | None = None,
    after_page: AfterPage | None = None,
    continue_rebuild: ShouldContinue | None = always_continue,
) -> BlockedModels:
    """Apply the log's events to models that are behind.

    The log is read once for all models. Each model skips the events that it has already applied.
    The status of a model becomes "failed" if an event cannot be read or applied.

    last_position: position of the last event to apply.
    learn_pool: threads in which the models learn in parallel. None: one model after another.
    after_page: function that is called after each page of events. It may return True to stop.
    continue_rebuild: function that is called at every event of a rebuild. It returns False to stop
        the rebuild. None forbids rebuilds. A rebuild learns the log again without unlearned rows.

    Returns the models that stopped before an unlearn event, because they need a rebuild that was
    not done. Raises HistoryGone if a model needs events that are no longer in the log.
    """
    behind = [m for m in models if m.status != "failed" and m.position < last_position]
    blocked: BlockedModels = []
    if not behind:
        return blocked

    # Read the log from the position of the model that is furthest behind.
    start = min(m.position for m in behind)
    first = directory.log.first
    if start + 1 < first:
        raise HistoryGone(f"events before position {first} are no longer kept; {start + 1} is needed.")

    with closing(compute_ahead(EventReader(directory).pages(start, last_position))) as pages:
        for page in pages:
            unblocked = [m for m in behind if m not in blocked]
            blocked += apply_events_to_models(unblocked, page, directory, learn_pool, continue_rebuild)
            if len(blocked) == len(behind) or (after_page is not None and after_page(page)):
                break
    return blocked


def apply_events_to_models(
    models: Sequence[Model],
    events: Sequence[ParsedEvent],
    directory: Directory,
    learn_pool: Executor | None,
    continue_rebuild: ShouldContinue | None = always_continue,
) -> BlockedModels:
    """Apply events in order to every model.

    The models learn in parallel.

    learn_pool: threads in which the models learn. None: one model after another.
    continue_rebuild: function that is called at every event of a rebuild. It returns False to stop
        the rebuild. None forbids rebuilds. A rebuild learns the log again without unlearned rows.

    Returns the models that stopped before an unlearn event, because they need a rebuild that was
    not done.
    """
    # Let the pool learn even a single model if this is the main thread, which Ctrl-C interrupts.
    in_this_thread = len(models) < 2 and threading.current_thread() is not threading.main_thread()

    if learn_pool is None or in_this_thread:
        done = [_advance_until_blocked(model, events, directory, continue_rebuild) for model in models]
    else:
        futures = [
            learn_pool.submit(_advance_until_blocked, model, events, directory, continue_rebuild) for model in models
        ]
        done = [future.result() for future in futures]
    return [model for model, all_applied in zip(models, done, strict=True) if not all_applied]


def _advance_until_blocked(
    model: Model, events: Iterable[ParsedEvent], directory: Directory, continue_rebuild: ShouldContinue | None
) -> bool:
    return all(apply_event_or_rebuild(model, event, directory, continue_rebuild) for event in events)


def apply_event_or_rebuild(
    model: Model, event: ParsedEvent, directory: Directory, continue_rebuild: ShouldContinue | None = always_continue
) -> bool:
    """Apply one event to a model.

    An unlearn event may require a rebuild: the model learns the log again without the unlearned
    rows. If the event cannot be applied, the model's status becomes "failed", and no error is
    raised.

    continue_rebuild: function that is called at every event of a rebuild. It returns False to stop
        the rebuild. None forbids a rebuild, which takes long and would delay other models.

    Returns True unless the model needs a rebuild that was forbidden or stopped. In this case the
    model does not change, and False is returned.
    """
    if model.status == "failed" or event.position <= model.position:
        return True

    # Rows before the model's start were never learned, so they need not be unlearned.
    with _mark_failed_on_error(model, event.position, directory):
        if event.error is not None:
            raise event.error
        if event.removal is None:
            model.learn(event.position, _remaining_rows(event, model.unlearn_horizon, directory))
        elif event.position <= model.unlearn_horizon or max(event.removal, default=-1) < model.start:
            model.learn(event.position, None)
        else:
            return _unlearn_unless_blocked(model, event.position, event.removal, directory, continue_rebuild)
    return True


def _remaining_rows(event: ParsedEvent, unlearn_horizon: int, directory: Directory) -> Block | None:
    """Return an event's rows that are not unlearned later.

    unlearn_horizon: position of the last unlearn event whose rows are removed.

    Returns None if no row remains.
    """
    if event.block is None or event.position >= unlearn_horizon:
        return event.block
    numbers = remaining_row_numbers(event.block.rows, event.gone)
    remaining = directory.history.without_unlearned_rows(event.position, event.block, numbers, unlearn_horizon)
    return None if remaining is None else remaining[0]


@contextmanager
def _mark_failed_on_error(model: Model, position: int, directory: Directory) -> Iterator[None]:
    """Mark a model as failed at `position` if the with-block raises.

    The error is logged and not raised again.
    """
    try:
        yield
    except Exception as e:
        failure = model.mark_failed_by_error(position, e)
        directory.store_lasting_failure_and_projection(model)
        log.error("model %s failed at position %d (%s)", model.name, position, failure.code, exc_info=e)


def _unlearn_unless_blocked(
    model: Model, position: int, removal: Removal, directory: Directory, continue_rebuild: ShouldContinue | None
) -> bool:
    """Apply an unlearn event to a model.

    position: position of the unlearn event.
    removal: rows to unlearn.
    continue_rebuild: function that is called at every event of a rebuild. It returns False to stop
        the rebuild. None forbids a rebuild.

    Returns False, without changing the model, if a needed rebuild was forbidden or stopped.
    """
    # Subtract the rows from the state if this is possible without loss of precision.
    mapping = feature_map(model.estimator.feature_map)
    if model.can_subtract_rows and can_unlearn_exactly(mapping, model.accumulator.table):
        accumulator = model.estimator.accumulator(model.accumulator.freeze())
        try:
            for block in directory.history.blocks_to_unlearn(removal, model.start - 1, position):
                accumulator.remove(model.estimator.block_to_learn(block))
        except CannotUnlearn as e:
            log.info("model %s is learned anew from the log at position %d: %s", model.name, position, e)
        else:
            _replace_state(model, accumulator, position, position, directory)
            return True

    if continue_rebuild is None:
        return False

    # Rebuild the model: learn the log again up to this event.
    # Leave out the rows of all unlearn events, so that later unlearn events need no rebuild.
    accumulator = accumulator_at_start(model, directory.path)
    unlearn_horizon = directory.position
    for _, block in directory.history.events(model.start - 1, position, None, unlearn_horizon):
        if not continue_rebuild():
            return False
        accumulator.add(model.estimator.block_to_learn(block))
    _replace_state(model, accumulator, position, unlearn_horizon, directory)
    return True


def _replace_state(
    model: Model, accumulator: Accumulator, position: int, unlearn_horizon: int, directory: Directory
) -> None:
    """Replace a model's state by one without unlearned rows.

    position: position of the unlearn event that is applied.
    unlearn_horizon: position of the last unlearn event that the state reflects.
    """
    rows = model.rows - int(accumulator.rows)
    unlearned = []
    # If unlearned rows are still served, a second request to unlearn them waits as the first does.
    if rows or model.unlearned:
        # The events are not counted one by one, so the first event gets all rows.
        for event, first in directory.history.unlearn_events(model.start, position - 1, unlearn_horizon).items():
            unlearned.append(Unlearned(event, first, rows))
            rows = 0
    model.replace_state(accumulator.freeze(), position, unlearn_horizon, unlearned)
