"""ModelThread: advances the live models as the log grows, and lets others catch up to them.

The live models are within a page of the cursor. The thread reads on from the one furthest behind,
and the others skip what they have applied.

A model further behind catches up in another thread, with a driver of its own, and joins the live
ones once it is near enough. It is snapshotted on its way, so that a long way does not start again
after a kill. A model that must be rebuilt for an unlearn event takes the same way.

An accumulator has one owner. This thread owns those of live models. The thread in which a model
catches up owns that model until `join`.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress

from stream_dr.directory.directory import Directory
from stream_dr.directory.history import PAGE
from stream_dr.models.model import Model
from stream_dr.running.advance import Step, Steps
from stream_dr.running.driver import Driver
from stream_dr.threads import engine_thread

log = logging.getLogger("stream_dr.model_thread")

# Drafts held in memory are released at the end of a turn.
EVENTS_PER_TURN = 8
"""Maximum number of events to learn before checking what is due."""

RETRY_SECONDS = 1.0
"""Seconds to wait after the log could not be read."""


class ModelThread:
    """Thread that advances the live models.

    Parameters
    ----------
    directory : Directory
        Directory whose log is read.
    new_driver : callable
        Returns a new driver.
    long : Executor
        Pool in which models catch up and are rebuilt.
    refine : callable
        Starts a refine of a model whose policy asks for one.
    on_moved : callable
        Called after models have moved.
    """

    def __init__(
        self,
        directory: Directory,
        new_driver: Callable[[], Driver],
        long: Executor,
        refine: Callable[[Model], None],
        on_moved: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._new_driver = new_driver
        self._long = long
        self._refine = refine
        self._on_moved = on_moved
        self.driver = new_driver()
        self._steps = Steps(directory)

        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stop_at = math.inf
        self._joined_rows = 0
        self._thread = engine_thread("models", self._run)

    def start(self, live: Sequence[Model]) -> None:
        """Start the thread with these models live, wherever each is."""
        for model in live:
            model.live()
        self._thread.start()

    def stop(self, seconds: float | None) -> None:
        """Apply the rest of the log, for at most `seconds`, and end.

        None: without a limit.
        """
        self._stop_at = time.monotonic() + (1e9 if seconds is None else seconds)
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Make the thread check for new events and for what is due."""
        self._woken.set()

    @property
    def live(self) -> list[Model]:
        """Models that this thread advances."""
        return [m for m in self._directory.models.values() if m.status == "live"]

    @property
    def cursor(self) -> int:
        """Position that every live model has applied."""
        return min((m.position for m in self.live), default=self._directory.position)

    @property
    def lag(self) -> int:
        """Number of events that some live model has not applied."""
        return max(0, self._directory.position - self.cursor)

    def join(self, models: Sequence[Model]) -> list[Model]:
        """Make models live that are within a page of the live ones.

        Return the others.
        """
        with self._lock:
            cursor = self.cursor
            for model in models:
                if model.status == "catching_up" and cursor - model.position <= PAGE:
                    model.live()
                    self._joined_rows += model.rows
        self.wake()
        return [m for m in models if m.status == "catching_up"]

    def submit_catch_up(self, models: Sequence[Model]) -> None:
        """Advance models in the pool until they join the live ones.

        A model that fails or is removed is dropped. All stop when the engine stops.
        """
        self._long.submit(self._catch_up, models)

    def _catch_up(self, models: Sequence[Model]) -> None:
        """Advance models until they join the live ones."""
        behind = list(models)
        driver = self._new_driver()

        def stopped(steps: Sequence[Step]) -> bool:
            return self._stopping or not any(map(self._directory.holds, behind))

        with self._fail_on_error(models):
            while (behind := [m for m in self.join(behind) if self._directory.holds(m)]) and not self._stopping:
                blocked = driver.catch_up(behind, self.cursor, rebuild=None, after_turn=stopped)
                # A model may be rebuilt again and again and never become live, so publish it now.
                for model in blocked:
                    driver.submit_publish(model)
                self._submit_rebuilds(blocked)
                behind = [m for m in behind if m not in blocked]
                self._on_moved()

    def _submit_rebuilds(self, models: Iterable[Model]) -> None:
        """Rebuild each model for its next event in the pool, while the live ones go on."""
        for model in models:
            model.catch_up()
            # The pool refuses work once the engine has stopped.
            with suppress(RuntimeError):
                self._long.submit(self._rebuild, model)

    def _rebuild(self, model: Model) -> None:
        """Rebuild a model, then catch up.

        Stops if it is removed or the engine stops.
        """

        def should_continue() -> bool:
            return not self._stopping and self._directory.holds(model)

        with self._fail_on_error([model]):
            self._new_driver().catch_up([model], model.position + 1, rebuild=should_continue)
        if should_continue():
            self._catch_up([model])

    @contextmanager
    def _fail_on_error(self, models: Sequence[Model]) -> Iterator[None]:
        """Fail those of the models that are still behind if the with-block raises."""
        try:
            yield
        except Exception as e:
            behind = [m for m in models if m.status == "catching_up"]
            log.exception("models %s could not be brought up to the log's end", [m.name for m in behind])
            for model in behind:
                model.fail(model.position + 1, e)
        self._on_moved()

    @property
    def _stopping(self) -> bool:
        return self._stop_at < math.inf

    def _run(self) -> None:
        """Take turns until the thread is stopped."""
        while True:
            behind = self.cursor < self._directory.position
            if self._stopping and (not behind or time.monotonic() > self._stop_at):
                return

            self._woken.clear()
            try:
                pause = self._take_turn() - time.monotonic()
            except Exception:
                log.exception("the model thread could not read the log; it tries again")
                pause = RETRY_SECONDS
            if pause > 0:
                self._woken.wait(None if pause == math.inf else pause)

    def _take_turn(self) -> float:
        """Advance the live models by some events and start what is due.

        Returns the time, by time.monotonic, of the next turn.
        """
        with self._lock:
            last = self._directory.position
            joined_rows = self._joined_rows
            self._joined_rows = 0

            steps = self._steps.read(self.cursor, last, EVENTS_PER_TURN)
            self._submit_rebuilds(self.driver.turn(self.live, steps, rebuild=None, joined_rows=joined_rows))

            live = self.live
            cursor = self.cursor
            self._directory.recent.forget(cursor)
            for model in [m for m in live if m.refine_due <= time.monotonic()]:
                self._refine(model)
        self._on_moved()

        if cursor < last:
            return 0.0
        return min([self.driver.next_due(live), *(m.refine_due for m in live)])
