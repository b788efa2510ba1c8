"""ModelThread: feeds the driver of the live models as the log grows; brings those that are behind to them.

The live models are at the cursor, or within a page of it: the thread reads on from the one furthest behind, and the
others skip what they have applied. A model further behind catches up in another thread, with a driver of its own,
snapshotted on its way, so that a long way is not begun anew after a kill, and joins once it is that near; so is one that
is to be rebuilt for an event that takes rows out.

Why this way: an accumulator has one owner. This thread owns those of live models; a model that catches up is owned by who
does that until `join` hands it over.
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
from stream_dr.threads import thread

log = logging.getLogger("stream_dr.model_thread")

AT_ONCE = 8
"""Events learned between two looks at what is due; those of them that were held in memory are let go then."""

RETRY = 1.0
"""Seconds until the log is read again that could not be read."""


class ModelThread:
    """directory: whose log is read. drivers: makes a driver. long: where models catch up and are rebuilt. refine: begins to
    refine a model whose policy says so. moved: called after models have moved."""

    def __init__(
        self,
        directory: Directory,
        drivers: Callable[[], Driver],
        long: Executor,
        refine: Callable[[Model], None],
        moved: Callable[[], None],
    ) -> None:
        self._directory, self._drivers, self._long = directory, drivers, long
        self._refine, self._moved = refine, moved
        self.driver = drivers()
        self._steps = Steps(directory)
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stop_at = math.inf
        self._joined_rows = 0
        self._thread = thread("models", self._run)

    def start(self, live: Sequence[Model]) -> None:
        """Start with these models live, wherever each is."""
        for model in live:
            model.live()
        self._thread.start()

    def stop(self, seconds: float | None) -> None:
        """Apply what the log holds, for at most `seconds` (None: all of it), and end."""
        self._stop_at = time.monotonic() + (1e9 if seconds is None else seconds)
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """There is something to do: events, or a demand."""
        self._woken.set()

    @property
    def live(self) -> list[Model]:
        """The models that this thread advances."""
        return [m for m in self._directory.models.values() if m.status == "live"]

    @property
    def cursor(self) -> int:
        """The position that every live model has applied."""
        return min((m.position for m in self.live), default=self._directory.position)

    @property
    def lag(self) -> int:
        """Events that the live models have not applied."""
        return max(0, self._directory.position - self.cursor)

    def join(self, models: Sequence[Model]) -> list[Model]:
        """Make live those that are within a page of the live ones; give those that are further behind."""
        with self._lock:
            cursor = self.cursor
            for model in models:
                if model.status == "catching_up" and cursor - model.position <= PAGE:
                    model.live()
                    self._joined_rows += model.rows
        self.wake()
        return [m for m in models if m.status == "catching_up"]

    def catch_up_soon(self, models: Sequence[Model]) -> None:
        """Advance models that are far behind until they join the live ones, fail, are removed, or the engine stops."""
        self._long.submit(self._catch_up, models)

    def _catch_up(self, models: Sequence[Model]) -> None:
        left, driver = list(models), self._drivers()

        def stopped(steps: Sequence[Step]) -> bool:
            return self._stopping or not any(map(self._directory.holds, left))

        with self._failing(models):
            while (left := [m for m in self.join(left) if self._directory.holds(m)]) and not self._stopping:
                rebuilt = driver.catch_up(left, self.cursor, rebuild=None, after_turn=stopped)
                for model in rebuilt:  # it may be rebuilt again and again, and never come to be live
                    driver.publish_soon(model)
                self._rebuild_soon(rebuilt)
                left = [m for m in left if m not in rebuilt]
                self._moved()

    def _rebuild_soon(self, models: Iterable[Model]) -> None:
        """Rebuild models for their next event, each on its own, while the live ones go on."""
        for model in models:
            model.catch_up()
            with suppress(RuntimeError):  # the engine has stopped
                self._long.submit(self._rebuild, model)

    def _rebuild(self, model: Model) -> None:
        """Not to its end where it is removed meanwhile, or the engine stops."""

        def going() -> bool:
            return not self._stopping and self._directory.holds(model)

        with self._failing([model]):
            self._drivers().catch_up([model], model.position + 1, rebuild=going)
        if going():
            self._catch_up([model])

    @contextmanager
    def _failing(self, models: Sequence[Model]) -> Iterator[None]:
        """Fail those of the models that are still behind where the with-block raises."""
        try:
            yield
        except Exception as e:
            left = [m for m in models if m.status == "catching_up"]
            log.exception("models %s could not be brought up to the log's end", [m.name for m in left])
            for model in left:
                model.fail(model.position + 1, e)
        self._moved()

    @property
    def _stopping(self) -> bool:
        return self._stop_at < math.inf

    def _run(self) -> None:
        while True:
            behind = self.cursor < self._directory.position
            if self._stopping and (not behind or time.monotonic() > self._stop_at):
                return

            self._woken.clear()
            try:
                left = self._turn() - time.monotonic()
            except Exception:
                log.exception("the model thread could not read the log; it tries again")
                left = RETRY
            if left > 0:
                self._woken.wait(None if left == math.inf else left)

    def _turn(self) -> float:
        """Advance the live models by some events, and begin what is due; when, by time.monotonic, to come again."""
        with self._lock:
            last, joined = self._directory.position, self._joined_rows
            self._joined_rows = 0
            steps = self._steps.read(self.cursor, last, AT_ONCE)
            self._rebuild_soon(self.driver.turn(self.live, steps, rebuild=None, joined_rows=joined))
            live, cursor = self.live, self.cursor
            self._directory.recent.forget(cursor)
            for model in [m for m in live if m.refine_due <= time.monotonic()]:
                self._refine(model)
        self._moved()

        if cursor < last:
            return 0.0
        return min([self.driver.due(live), *(m.refine_due for m in live)])
