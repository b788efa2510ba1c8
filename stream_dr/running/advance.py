"""Advance: reads the log's events as Steps and applies them to models, one event at a time.

Live learning, backfill and replay use the same code. Events are never batched together, so a state
depends on the events and their boundaries alone, and is bit-equal however often the process was
killed. A sum that was rebuilt may differ in the last digits from one that was subtracted from.

An unlearn event takes rows out. A model whose state is a sum subtracts them. Any other model is
rebuilt from the log up to this event, without all rows that were unlearned so far, by later events
too. Those later events then change nothing. A sum is rebuilt as well

- under decay, since the removed rows have reduced the weight of older ones,
- if its map has filled or weighed the remaining rows by the removed ones,
- if subtraction would lose too much precision.

A caller that advances several models may hand a rebuild to another thread, so that it does not
hold up the others.

Events in the log were admitted, so applying one must not raise. If it does, the model becomes
`failed` with the event's position and the error's code and message. Its last projection stays in
use and the other models go on. The failure is stored, so that a restart does not try the same
event for ever.

Cost: subtracting costs as much as learning those rows. Rebuilding costs as much as learning the
log again, once for all unlearn events that have arrived by then.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from functools import partial
from typing import NamedTuple

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Removal, parse_removal
from stream_dr.directory.history import PAGE, original_numbers, removed_numbers
from stream_dr.errors import CannotUnlearn, HistoryGone, Overloaded, StreamDRError
from stream_dr.estimators.fitting.mapping import subtracts_exactly
from stream_dr.log.event import Event
from stream_dr.models.model import Model
from stream_dr.models.schema import block_for, columns_in_order
from stream_dr.models.snapshot import first_accumulator
from stream_dr.rows.block import Block
from stream_dr.threads import compute_ahead

log = logging.getLogger("stream_dr.advance")

# What is compressed or in shards unpacks to more than its body.
PAGE_BYTES = 64 << 20
"""A page ends past this many bytes of bodies, or of their rows."""


ShouldContinue = Callable[[], bool]
"""Function that returns False to stop a rebuild, called at every event that the rebuild reads."""


def always() -> bool:
    """Return True."""
    return True


class Step(NamedTuple):
    """One decoded event.

    Attributes
    ----------
    position : int
    block : Block or None
        Rows to learn.
    removal : Removal or None
        Rows to take out.
    error : Exception or None
        Error of reading the event.
    gone : sequence of int
        Numbers of the event's rows that are no longer in the block.
    """

    position: int
    block: Block | None = None
    removal: Removal | None = None
    error: Exception | None = None
    gone: Sequence[int] = ()


AfterPage = Callable[[Sequence[Step]], bool | None]
"""Function that is called when all models have applied a page of steps.

It may return True to end the pass over the log early.
"""


class Steps:
    """Reader of a directory's log as Steps. Used by one thread."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._decoder = directory.history.decoder()

    def read(self, after: int, until: int, limit: int = PAGE) -> list[Step]:
        """Return the next events up to position `until`, at most `limit`.

        An event that cannot be read is a Step with the error. It fails the models that need it.
        """
        # Rows of recently appended events are in memory, parsed from the very bytes of the log.
        recent = self._directory.recent
        drafts = [(p, draft) for p, draft in recent.take(after, limit) if p <= until]
        if drafts:
            return [_step_or_error(position, partial(self._of_draft, position, draft)) for position, draft in drafts]
        return self._read_log(after, min(until, recent.first(after, until + 1) - 1), limit)

    def pages(self, after: int, until: int) -> Generator[list[Step], None, None]:
        """Yield all events with after < position ≤ until, a page at a time."""
        while after < until and (steps := self.read(after, until)):
            yield steps
            after = steps[-1].position

    def _read_log(self, after: int, until: int, limit: int) -> list[Step]:
        """Return the next events of the log."""
        steps: list[Step] = []
        remaining_bytes = PAGE_BYTES
        try:
            # One short read for each page, so that no cursor stays open on the log.
            for event in self._directory.log.read(after, until, limit, PAGE_BYTES):
                steps.append(_step_or_error(event.position, partial(self._of_event, event)))
                remaining_bytes -= steps[-1].block.nbytes if steps[-1].block is not None else 0
                if remaining_bytes <= 0:
                    break

        # This error is temporary and says nothing of the events.
        except Overloaded:
            raise
        except StreamDRError as e:
            # Read the events one by one to find the one that cannot be read.
            if limit > 1:
                return self._read_log(after, until, 1)
            return [Step(after + 1, error=e)]
        return steps

    def _of_draft(self, position: int, draft: Draft) -> Step:
        if draft.block is None:
            return Step(position, removal=parse_removal(draft.body))
        return Step(position, columns_in_order(draft.block, self._directory.schema))

    def _of_event(self, event: Event) -> Step:
        content = self._decoder.decode(event, self._directory.schema)
        if isinstance(content, dict):
            return Step(event.position, removal=content)
        return Step(event.position, content, gone=removed_numbers(event))


def _step_or_error(position: int, read: Callable[[], Step]) -> Step:
    """Return the step that `read` gives, or one with the error that it raises."""
    try:
        return read()
    except Exception as e:
        return Step(position, error=e)


def rows_to_learn(steps: Iterable[Step]) -> int:
    """Return the number of rows to learn in these steps."""
    return sum(step.block.rows for step in steps if step.block is not None)


def backfill(
    directory: Directory,
    models: Sequence[Model],
    until: int,
    pool: Executor | None = None,
    after_page: AfterPage | None = None,
    rebuild: ShouldContinue | None = always,
) -> list[Model]:
    """Apply the log's events up to `until` to all models, in one pass.

    Each model skips the events that it has applied. A model that cannot apply an event is failed,
    and so is one whose shard cannot be read.

    rebuild: as in `advance`.

    Returns the models that stopped at an event because they need a rebuild. Raises HistoryGone if
    a model needs events that are no longer in the log.
    """
    behind = [m for m in models if m.status != "failed" and m.position < until]
    blocked: list[Model] = []
    if not behind:
        return blocked

    start = min(m.position for m in behind)
    first = directory.log.first
    if start + 1 < first:
        raise HistoryGone(f"events before position {first} are no longer kept; {start + 1} is needed.")

    with closing(compute_ahead(Steps(directory).pages(start, until))) as pages:
        for steps in pages:
            blocked += advance_all([m for m in behind if m not in blocked], steps, directory, pool, rebuild)
            if len(blocked) == len(behind) or (after_page is not None and after_page(steps)):
                break
    return blocked


def advance_all(
    models: Sequence[Model],
    steps: Sequence[Step],
    directory: Directory,
    pool: Executor | None,
    rebuild: ShouldContinue | None = always,
) -> list[Model]:
    """Apply all steps in order to every model, models side by side in the pool.

    Returns the models that stopped at an event because they need a rebuild (`advance`).
    """
    # The main thread gives even a single model to the pool: Ctrl-C is raised there, and would
    # interrupt an event halfway.
    in_this_thread = len(models) < 2 and threading.current_thread() is not threading.main_thread()

    if pool is None or in_this_thread:
        done = [_advance_many(model, steps, directory, rebuild) for model in models]
    else:
        futures = [pool.submit(_advance_many, model, steps, directory, rebuild) for model in models]
        done = [future.result() for future in futures]
    return [model for model, applied in zip(models, done, strict=True) if not applied]


def _advance_many(model: Model, steps: Iterable[Step], directory: Directory, rebuild: ShouldContinue | None) -> bool:
    return all(advance(model, step, directory, rebuild) for step in steps)


def advance(model: Model, step: Step, directory: Directory, rebuild: ShouldContinue | None = always) -> bool:
    """Apply one event to a model.

    rebuild: asked during a rebuild whether to go on. None if the model must not be rebuilt here,
        because a rebuild takes long and would hold up other models.

    Returns False if the model needs a rebuild that was not done. It is then unchanged. A model
    that cannot apply the event is failed, and nothing is raised.
    """
    if model.status == "failed" or step.position <= model.position:
        return True

    with _fail_on_error(model, step.position, directory):
        if step.error is not None:
            raise step.error
        if step.removal is None:
            model.learn(step.position, _remaining_rows(step, model.unlearn_horizon, directory))
        elif step.position <= model.unlearn_horizon or max(step.removal, default=-1) < model.start:
            model.learn(step.position, None)
        else:
            return _unlearn(model, step.position, step.removal, directory, rebuild)
    return True


def _remaining_rows(step: Step, unlearn_horizon: int, directory: Directory) -> Block | None:
    """Return the rows of an event without those unlearned up to `unlearn_horizon`, or None."""
    if step.block is None or step.position >= unlearn_horizon:
        return step.block
    remaining = directory.history.remaining(
        step.position, step.block, original_numbers(step.block, step.gone), unlearn_horizon
    )
    return None if remaining is None else remaining[0]


@contextmanager
def _fail_on_error(model: Model, position: int, directory: Directory) -> Iterator[None]:
    """Fail the model if the with-block raises."""
    try:
        yield
    except Exception as e:
        failure = model.fail(position, e)
        directory.remember_failure(model)
        log.error("model %s failed at position %d (%s)", model.name, position, failure.code, exc_info=e)


def _unlearn(
    model: Model, position: int, removal: Removal, directory: Directory, rebuild: ShouldContinue | None
) -> bool:
    """Apply an unlearn event.

    Return False if that takes a rebuild that is not wanted.
    """
    if model.subtracts and subtracts_exactly(model.accumulator):
        accumulator = model.estimator.accumulator(model.accumulator.freeze())
        try:
            for block in directory.history.removed_blocks(removal, model.start - 1, position):
                accumulator.remove(block_for(model.estimator, block))
        except CannotUnlearn as e:
            log.info("model %s is learned anew from the log at position %d: %s", model.name, position, e)
        else:
            model.resume(accumulator.freeze(), position)
            return True

    if rebuild is None:
        return False

    # Leave out all rows unlearned so far, so that later unlearn events need no further rebuild.
    accumulator = first_accumulator(model, directory.path)
    unlearn_horizon = directory.position
    for _, block in directory.history.events(model.start - 1, position, None, unlearn_horizon):
        if not rebuild():
            return False
        accumulator.add(block_for(model.estimator, block))
    model.resume(accumulator.freeze(), position, unlearn_horizon)
    return True
