"""ModelThread: the thread in which live models learn events.

Live models are close to each other in the log. The thread reads the log from the position of the
slowest live model, and the other models skip the events that they have already applied.

A model that is far behind catches up in another thread, and becomes live when it is near the live
models. It is snapshotted on the way, so that a restart does not repeat all of this work. A model
that must be rebuilt for an unlearn event is handled in the same way. So is a model whose functions
must be compiled, because compiling in the thread of live models would delay all of them.

Only one thread may change a model's state at a time: this thread for live models, and the thread
of the pool for a model that catches up, until `make_near_models_live` makes the model live.
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
from stream_dr.models.model import Model, MonotonicTime
from stream_dr.running.advance import EventReader, ParsedEvent
from stream_dr.running.driver import Driver
from stream_dr.running.warm_up import warm_up
from stream_dr.threads import new_engine_thread

log = logging.getLogger("stream_dr.model_thread")

# A small number saves memory: batches are released only after all these events are learned.
EVENTS_PER_TURN = 8
"""Maximum number of events to learn before due publications and snapshots are started."""

RETRY_SECONDS = 1.0
"""Number of seconds to wait after an error before the log is read again."""

ModelsBehind = list[Model]
"""Models that are more than PAGE events behind the live models."""


class ModelThread:
    """Thread in which the live models learn new events.

    Parameters
    ----------
    directory : Directory
        Directory of the log and the models.
    new_driver : callable
        Returns a new Driver.
    catch_up_pool : Executor
        Thread pool in which models catch up and are rebuilt.
    start_refine : callable
        Starts a refine of a model, unless one is running. Called when the model's refine policy
        says that one is due, and after rows of a refined model were unlearned.
    on_models_advanced : callable
        Called after models have applied events or failed.
    """

    def __init__(
        self,
        directory: Directory,
        new_driver: Callable[[], Driver],
        catch_up_pool: Executor,
        start_refine: Callable[[Model], None],
        on_models_advanced: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._new_driver = new_driver
        self._catch_up_pool = catch_up_pool
        self._start_refine = start_refine
        self._on_models_advanced = on_models_advanced
        self.driver = new_driver()
        self._event_reader = EventReader(directory)

        self._lock = threading.Lock()
        # One model is warmed at a time, so that `stop` waits for one only.
        self._warming = threading.Lock()
        self._woken = threading.Event()
        self._stop_at = math.inf
        self._thread = new_engine_thread("models", self._run)

    def start(self, live_models: Sequence[Model]) -> None:
        """Make these models live and start the thread."""
        for model in live_models:
            model.mark_live()
        self._thread.start()

    def stop(self, max_learning_seconds: float | None) -> None:
        """Learn the rest of the log, then end the thread.

        max_learning_seconds: maximum time for the rest of the log. None: no limit.
        """
        self._stop_at = time.monotonic() + (1e9 if max_learning_seconds is None else max_learning_seconds)
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Wake the thread to look for new events and work."""
        self._woken.set()

    @property
    def live_models(self) -> list[Model]:
        """Live models, which learn new events in this thread."""
        return [m for m in self._directory.models.values() if m.status == "live"]

    @property
    def slowest_position(self) -> int:
        """Position of the last event that all live models applied."""
        return min((m.position for m in self.live_models), default=self._directory.position)

    @property
    def lag(self) -> int:
        """Number of events that the slowest live model must learn."""
        return max(0, self._directory.position - self.slowest_position)

    def make_near_models_live(self, models: Sequence[Model]) -> ModelsBehind:
        """Make models live if they are near the live models.

        A model becomes live if it is at most PAGE events behind the live models. Live models learn
        new events in this thread. PAGE is the maximum number of events that are read from the log
        together.

        Returns the models that are more than PAGE events behind, which do not become live.
        """
        with self._lock:
            slowest_position = self.slowest_position
            for model in models:
                # The live models wait until the model has caught up, so it must be near.
                if model.status == "catching_up" and slowest_position - model.position <= PAGE:
                    model.mark_live()
        self.wake()
        return [m for m in models if m.status == "catching_up"]

    def submit_catch_up(self, models: Sequence[Model]) -> None:
        """Let models catch up in a thread pool, and then become live.

        The functions of models with status "warming" are compiled first. A model that fails or is removed
        does not stop the other models. All models stop when this thread is stopped.
        """
        self._catch_up_pool.submit(self._catch_up, models)

    def _catch_up(self, models: Sequence[Model]) -> None:
        """Let models catch up in the calling thread, and then become live."""
        behind = list(models)
        driver = self._new_driver()

        def should_stop(_: Sequence[ParsedEvent]) -> bool:
            return self._stopping or not any(map(self._directory.holds, behind))

        with self._mark_failed(models):
            for model in models:
                if model.status == "warming":
                    # Compile the model's functions.
                    with self._warming:
                        if not self._stopping:
                            warm_up([model.estimator])
                    model.mark_catching_up()

            while (
                behind := [m for m in self.make_near_models_live(behind) if self._directory.holds(m)]
            ) and not self._stopping:
                blocked = driver.catch_up(behind, self.slowest_position, continue_rebuild=None, after_page=should_stop)
                # Each model in `blocked` must be rebuilt, which takes long.
                # Publish the projection learned so far, to answer queries during the rebuild.
                for model in blocked:
                    driver.submit_publish_if_new(model)
                self._submit_rebuilds(blocked)
                behind = [m for m in behind if m not in blocked]
                self._on_models_advanced()

    def _submit_rebuilds(self, models: Iterable[Model]) -> None:
        """Rebuild each model in the thread pool.

        A rebuild learns the log again without the rows that unlearn events remove. Meanwhile the
        live models go on learning.
        """
        for model in models:
            model.mark_catching_up()
            # The thread pool raises RuntimeError for new work if it was shut down.
            with suppress(RuntimeError):
                self._catch_up_pool.submit(self._rebuild_and_catch_up, model)

    def _rebuild_and_catch_up(self, model: Model) -> None:
        """Rebuild a model in the calling thread, then let it catch up.

        The model learns the log again without unlearned rows. The rebuild stops if the model is
        removed or this ModelThread is stopped.
        """

        def should_continue() -> bool:
            return not self._stopping and self._directory.holds(model)

        with self._mark_failed([model]):
            self._new_driver().catch_up([model], model.position + 1, continue_rebuild=should_continue)
        if should_continue():
            self._catch_up([model])

    @contextmanager
    def _mark_failed(self, models: Sequence[Model]) -> Iterator[None]:
        """Mark models that catch up as failed on an error.

        An error in the with-block is logged and not raised again. Live models do not become
        failed.
        """
        try:
            yield
        except Exception as e:
            behind = [m for m in models if m.status == "catching_up"]
            log.exception("models %s could not be brought up to the log's end", [m.name for m in behind])
            for model in behind:
                model.mark_failed_by_error(model.position + 1, e)
        self._on_models_advanced()

    @property
    def _stopping(self) -> bool:
        """True if `stop` was called."""
        return self._stop_at < math.inf

    def _run(self) -> None:
        """Learn new events and start due work until stopped."""
        while True:
            behind = self.slowest_position < self._directory.position
            if self._stopping and (not behind or time.monotonic() > self._stop_at):
                return

            # Clear the flag first, so that a call of `wake` during the turn is not lost.
            self._woken.clear()
            try:
                pause = self._learn_events() - time.monotonic()
            except Exception:
                log.exception("the model thread could not read the log; it tries again")
                pause = RETRY_SECONDS
            if pause > 0:
                self._woken.wait(None if pause == math.inf else pause)

    def _learn_events(self) -> MonotonicTime:
        """Learn the next events with live models. Start due work.

        Returns the time (time.monotonic) at which this method must be called again. Infinity means
        that nothing becomes due before this thread is woken.
        """
        with self._lock:
            last = self._directory.position
            events = self._event_reader.read(self.slowest_position, last, EVENTS_PER_TURN)
            self._submit_rebuilds(self.driver.learn_and_schedule(self.live_models, events, continue_rebuild=None))

            # The live models may have changed, because a model has failed or needs a rebuild.
            live = self.live_models
            slowest_position = self.slowest_position
            self._directory.recent.remove_up_to(slowest_position)
            for model in live:
                if model.must_refine_again or model.refine_due_at <= time.monotonic():
                    self._start_refine(model)
        self._on_models_advanced()

        # Continue at once if there are more events to learn.
        if slowest_position < last:
            return 0.0
        return min([self.driver.next_due_time(live), *(m.refine_due_at for m in live)])
