"""Advance: the log's events as Steps, and how a model applies one of them at a time; events are never batched together.

Live, backfill and replay get their Steps from the same code. The log is read a page at a time (short
reads: no cursor stays open on it); an event that was just appended may be taken from the directory's `recent` drafts, whose
rows are parsed already, from the very bytes that were written.

An unlearn event takes rows out: a model whose state is a sum subtracts them; any other is rebuilt from the log up to this
event, without the rows that were unlearned so far, by later events too: those then change nothing (`Model.unlearn_horizon`).
So is a sum under decay (the rows that go have made older ones weigh less), one whose map has filled or weighed the rows that
stay by those that go, and one that would lose too much precision by subtraction. A caller that advances several models may
hand a rebuild to another thread, so that it does not hold up the others.

Events here were admitted, so applying one must not raise. If it does all the same, the model becomes `failed` with the
event's position, the error's code and message; its last projection stays in use, the other models go on, and the failure is
written down, so that a restart does not try the same event for ever.

Cost: subtracting costs as much as learning those rows; rebuilding, as much as learning the log again, once for all unlearn
events that have come by then.

Why this way: a State depends on the events and their boundaries alone, so it is bit-equal however often the process was
killed. A sum that is rebuilt where others were subtracted from may differ from theirs in the last digits.
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
from stream_dr.threads import ahead

log = logging.getLogger("stream_dr.advance")

PAGE_BYTES = 64 << 20
"""A page ends past so many bytes of bodies, or of their rows: what is compressed or in shards unpacks."""


Going = Callable[[], bool]
"""Whether to go on: asked at every event that a rebuild reads."""


def always() -> bool:
    """Go on."""
    return True


class Step(NamedTuple):
    """One event, decoded: rows to learn, rows to take out, or why it could not be read. gone: numbers of its rows that are
    no longer in the block."""

    position: int
    block: Block | None = None
    removal: Removal | None = None
    error: Exception | None = None
    gone: Sequence[int] = ()


class Steps:
    """The maker of Steps of a directory's log. One owner (thread)."""

    def __init__(self, directory: Directory) -> None:
        self._directory, self._decoder = directory, directory.history.decoder()

    def read(self, after: int, until: int, limit: int = PAGE) -> list[Step]:
        """The next events, at most `limit`, up to position `until`: those held in memory, or else those of the log before
        them. One that cannot be read is a Step with the error, which fails the models that need it."""
        recent = self._directory.recent
        held = [(p, draft) for p, draft in recent.take(after, limit) if p <= until]
        if held:
            return [_step(position, partial(self._of_draft, position, draft)) for position, draft in held]
        return self._logged(after, min(until, recent.first(after, until + 1) - 1), limit)

    def pages(self, after: int, until: int) -> Generator[list[Step], None, None]:
        """All events with after < position ≤ until, a page at a time."""
        while after < until and (steps := self.read(after, until)):
            yield steps
            after = steps[-1].position

    def _logged(self, after: int, until: int, limit: int) -> list[Step]:
        steps: list[Step] = []
        left = PAGE_BYTES
        try:
            for event in self._directory.log.read(after, until, limit, PAGE_BYTES):
                steps.append(_step(event.position, partial(self._of_event, event)))
                left -= steps[-1].block.nbytes if steps[-1].block is not None else 0
                if left <= 0:
                    break
        except Overloaded:  # of this moment
            raise
        except StreamDRError as e:
            if limit > 1:  # which of them it is, one by one
                return self._logged(after, until, 1)
            return [Step(after + 1, error=e)]
        return steps

    def _of_draft(self, position: int, draft: Draft) -> Step:
        if draft.block is None:
            return Step(position, removal=parse_removal(draft.body))
        return Step(position, columns_in_order(draft.block, self._directory.schema))

    def _of_event(self, event: Event) -> Step:
        found = self._decoder.decode(event, self._directory.schema)
        if isinstance(found, dict):
            return Step(event.position, removal=found)
        return Step(event.position, found, gone=removed_numbers(event))


def _step(position: int, read: Callable[[], Step]) -> Step:
    try:
        return read()
    except Exception as e:
        return Step(position, error=e)


def rows_of(steps: Iterable[Step]) -> int:
    """Rows that events bring to be learned."""
    return sum(step.block.rows for step in steps if step.block is not None)


def backfill(
    directory: Directory,
    models: Sequence[Model],
    until: int,
    pool: Executor | None = None,
    after_page: Callable[[list[Step]], bool | None] | None = None,
    rebuild: Going | None = always,
) -> list[Model]:
    """Apply the log's events up to `until` to each model that is behind, in one pass: each skips what it has applied.

    after_page: called when all models have applied a page; a true answer ends the pass early. rebuild: as in `advance`;
    the models that are left at an event for want of it are given. Raises HistoryGone when a model needs events that are no
    longer kept. A model that cannot apply an event, or whose shard cannot be read, is failed.
    """
    behind, left = [m for m in models if m.status != "failed" and m.position < until], list[Model]()
    if not behind:
        return left
    start, first = min(m.position for m in behind), directory.log.first
    if start + 1 < first:
        raise HistoryGone(f"events before position {first} are no longer kept; {start + 1} is needed.")
    with closing(ahead(Steps(directory).pages(start, until))) as pages:
        for steps in pages:
            left += advance_all([m for m in behind if m not in left], steps, directory, pool, rebuild)
            if len(left) == len(behind) or (after_page is not None and after_page(steps)):
                break
    return left


def advance_all(
    models: Sequence[Model],
    steps: Sequence[Step],
    directory: Directory,
    pool: Executor | None,
    rebuild: Going | None = always,
) -> list[Model]:
    """Every model applies all steps in order, models side by side in the pool; returns when all have, with those that are
    left at an event for want of a rebuild (`advance`).

    In the main thread a single model too is given to the pool: Ctrl-C is raised there, and would leave half an event
    applied.
    """
    here = len(models) < 2 and threading.current_thread() is not threading.main_thread()
    if pool is None or here:
        done = [_advance_many(model, steps, directory, rebuild) for model in models]
    else:
        futures = [pool.submit(_advance_many, model, steps, directory, rebuild) for model in models]
        done = [future.result() for future in futures]
    return [model for model, applied in zip(models, done, strict=True) if not applied]


def _advance_many(model: Model, steps: Iterable[Step], directory: Directory, rebuild: Going | None) -> bool:
    return all(advance(model, step, directory, rebuild) for step in steps)


def advance(model: Model, step: Step, directory: Directory, rebuild: Going | None = always) -> bool:
    """Apply one event to a model; False where it is as it was, because it is to be rebuilt for that and is not.

    rebuild: None: nothing is rebuilt here. Raises nothing but what ends the process; a model that cannot is failed.
    """
    if model.status == "failed" or step.position <= model.position:
        return True

    with _failing(model, step.position, directory):
        if step.error is not None:
            raise step.error
        if step.removal is None:
            model.learn(step.position, _left(step, model.unlearn_horizon, directory))
        elif step.position <= model.unlearn_horizon or max(step.removal, default=-1) < model.start:
            model.learn(step.position, None)
        else:
            return _take_out(model, step.position, step.removal, directory, rebuild)
    return True


def _left(step: Step, unlearn_horizon: int, directory: Directory) -> Block | None:
    """The rows of an event that no unlearn event up to a position takes out; None where there are none."""
    if step.block is None or step.position >= unlearn_horizon:
        return step.block
    left = directory.history.remaining(
        step.position, step.block, original_numbers(step.block, step.gone), unlearn_horizon
    )
    return None if left is None else left[0]


@contextmanager
def _failing(model: Model, position: int, directory: Directory) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        failure = model.fail(position, e)
        directory.remember_failure(model)
        log.error("model %s failed at position %d (%s)", model.name, position, failure.code, exc_info=e)


def _take_out(model: Model, position: int, removal: Removal, directory: Directory, rebuild: Going | None) -> bool:
    """Apply an unlearn event; False where that takes a rebuild that is not wanted, or not any more."""
    if model.subtracts and subtracts_exactly(model.accumulator):
        left = model.estimator.accumulator(model.accumulator.freeze())
        try:
            for block in directory.history.removed_blocks(removal, model.start - 1, position):
                left.remove(block_for(model.estimator, block))
        except CannotUnlearn as e:
            log.info("model %s is learned anew from the log at position %d: %s", model.name, position, e)
        else:
            model.resume(left.freeze(), position)
            return True
    if rebuild is None:
        return False

    left, unlearn_horizon = first_accumulator(model, directory.path), directory.position
    for _, block in directory.history.events(model.start - 1, position, None, unlearn_horizon):
        if not rebuild():
            return False
        left.add(block_for(model.estimator, block))
    model.resume(left.freeze(), position, unlearn_horizon)
    return True
