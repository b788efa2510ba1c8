"""Advance: a model applies exactly one event of the log; events are never joined.

What comes here was admitted, so it must not raise. If it does all the same, that model becomes `failed` with the
event's position, the error's code and message; its last projection goes on serving, the other models go on, and the
failure is written down, so that a restart does not try the same event for ever.

Why this way: a State depends on the events and their boundaries alone, so it comes out bit-equal however often it was
killed.
"""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from stream_dr.block import Block
from stream_dr.engine.model import Model
from stream_dr.engine.unlearn import History, Removal, learned_by, take_out
from stream_dr.errors import DamagedFile, DamagedShard, InsufficientStorage, SourceMissing, StreamDRError

log = logging.getLogger("stream_dr.advance")

PASSING: tuple[type[StreamDRError], ...] = (SourceMissing, DamagedShard, DamagedFile, InsufficientStorage)
"""Errors of the surroundings, not of the event: a model that met one is tried again after a restart."""


class Step(NamedTuple):
    """One event, decoded: rows to learn, rows to take out, or why it could not be read."""

    position: int
    block: Block | None = None
    removal: Removal | None = None
    error: Exception | None = None


def rows_of(steps: Iterable[Step]) -> int:
    """Rows that events bring to be learned."""
    return sum(step.block.rows for step in steps if step.block is not None)


def advance(model: Model, step: Step, history: History) -> None:
    """Apply one event to a model. Raises nothing but what ends the process; a model that cannot is failed."""
    if model.status == "failed" or step.position <= model.position:
        return
    with model.learning:
        try:
            _apply(model, step, history)
            model.position = step.position
        except Exception as e:
            _fail(model, step.position, e, history)


def advance_all(models: Sequence[Model], steps: Sequence[Step], history: History, pool: Executor | None = None) -> None:
    """Every model applies all steps in order, models side by side in the pool; returns when all have.

    In the main thread a single model too is given to the pool: Ctrl-C is raised there, and would leave half an event
    applied.
    """
    here = len(models) < 2 and threading.current_thread() is not threading.main_thread()
    if pool is None or here:
        for model in models:
            _advance_many(model, steps, history)
        return
    for done in [pool.submit(_advance_many, model, steps, history) for model in models]:
        done.result()


def _advance_many(model: Model, steps: Iterable[Step], history: History) -> None:
    begun, rows = time.perf_counter(), model.rows
    for step in steps:
        advance(model, step, history)
    model.advance_seconds += time.perf_counter() - begun
    model.advanced_rows += model.rows - rows


def _apply(model: Model, step: Step, history: History) -> None:
    if step.error is not None:
        raise step.error
    if step.block is not None:
        model.accumulator.add(learned_by(model.estimator, step.block))
    elif step.removal is not None:
        take_out(model, step.position, step.removal, history)


def _fail(model: Model, position: int, error: Exception, history: History) -> None:
    failure = model.fail(position, error)
    if not isinstance(error, PASSING):
        history.remember_failure(model)
    log.error("model %s failed at position %d (%s)", model.name, position, failure.code, exc_info=error)
