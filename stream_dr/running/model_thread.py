"""ModelThread: advances every live model as the log grows; decides when one is frozen for publishing or a snapshot.

The live models are at the cursor, or within a page of it: the thread reads on from the one furthest behind, and the others
skip what they have applied. A model further behind is backfilled by another thread, snapshotted on its way, so that a long
way is not begun anew after a kill, and joins once it is that near; so is one that is to be rebuilt for an event that takes
rows out. Solving and writing happen on workers, from frozen states.

Why this way: an accumulator has one owner. This thread owns those of live models; a model that is backfilled is owned by who
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
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Model
from stream_dr.running.advance import Step, Steps, advance_all, backfill, rows_of
from stream_dr.running.test_then_train import TestThenTrain
from stream_dr.running.workers import Checkpoints, Workers
from stream_dr.threads import thread

log = logging.getLogger("stream_dr.model_thread")

AT_ONCE = 8
"""Events learned between two looks at what is due; those of them that were held in memory are let go then."""

SOLVING_SHARE = 20
"""Between two solutions of a model passes so many times what the last one took: a twentieth of one processor at most is
spent on solving each, however many rows come."""

RETRY = 1.0
"""Seconds until the log is read again that could not be read."""


class ModelThread:
    """directory: whose log is read. pool: where models run side by side. long: where they are backfilled and rebuilt.
    wanted: the last position whose projections somebody waits for: they are published as soon as models are there.
    refine: begins to refine a model whose policy says so. moved: called after models have moved. tests: what live
    models are tested by
    on rows they are about to learn, or None."""

    def __init__(
        self,
        directory: Directory,
        workers: Workers,
        snapshot_rows: int | None,
        snapshot_seconds: float | None,
        pool: Executor,
        long: Executor,
        wanted: Callable[[], int],
        refine: Callable[[Model], None],
        moved: Callable[[], None],
        tests: TestThenTrain | None = None,
    ) -> None:
        self._directory, self._workers, self._pool, self._long = directory, workers, pool, long
        self._checkpoints = Checkpoints(workers, snapshot_rows, snapshot_seconds, self.wake)
        self._wanted, self._refine, self._moved, self._tests = wanted, refine, moved, tests
        self._steps = Steps(directory)
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stop_at = math.inf
        self._joined_rows = 0
        self._thread = thread("models", self._run)

    def start(self, live: Sequence[Model]) -> None:
        """Start with these models live, wherever each is."""
        for model in live:
            model.status = "live"
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
                    model.status = "live"
                    self._joined_rows += model.rows
        self.wake()
        return [m for m in models if m.status == "catching_up"]

    def backfill_soon(self, models: Sequence[Model]) -> None:
        """Advance models that are far behind until they join the live ones, fail, are removed, or the engine stops."""
        self._long.submit(self._backfill, models)

    def _backfill(self, models: Sequence[Model]) -> None:
        left, checkpoints = list(models), self._checkpoints.another()

        def after_page(steps: Sequence[Step]) -> bool:
            checkpoints.look(left, rows_of(steps))
            return self._stopping or not any(map(self._directory.holds, left))

        with self._failing(models):
            while (left := [m for m in self.join(left) if self._directory.holds(m)]) and not self._stopping:
                rebuilt = backfill(self._directory, left, self.cursor, self._pool, after_page, rebuild=None)
                self._rebuild_soon(rebuilt)
                left = [m for m in left if m not in rebuilt]
                self._moved()

    def _rebuild_soon(self, models: Iterable[Model]) -> None:
        """Rebuild models for their next event, each on its own, while the live ones go on."""
        for model in models:
            model.status = "catching_up"
            with suppress(RuntimeError):  # the engine has stopped
                self._long.submit(self._rebuild, model)

    def _rebuild(self, model: Model) -> None:
        """Not to its end where it is removed meanwhile, or the engine stops."""

        def going() -> bool:
            return not self._stopping and self._directory.holds(model)

        with self._failing([model]):
            backfill(self._directory, [model], model.position + 1, rebuild=going)
        if going():
            self._backfill([model])

    @contextmanager
    def _failing(self, models: Sequence[Model]) -> Iterator[None]:
        """Fail those of the models that are still behind where the with-block raises."""
        try:
            yield
        except Exception as e:
            left = [m for m in models if m.status == "catching_up"]
            log.exception("models %s could not be backfilled", [m.name for m in left])
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
        """Advance the live models by some events, publish and snapshot what is due; when, by time.monotonic, to come
        again."""
        with self._lock:
            live, last = self.live, self._directory.position
            steps = self._steps.read(self.cursor, last, AT_ONCE)
            if self._tests is not None:
                self._tests.test(live, steps)
            self._rebuild_soon(advance_all(live, steps, self._directory, self._pool, rebuild=None))
            live, cursor = self.live, self.cursor
            self._directory.recent.forget(cursor)
            due = {model: self._due(model, cursor >= last) for model in live}
            for model in [m for m in live if due[m] <= time.monotonic()]:
                self._workers.publish_soon(model)
                due[model] = math.inf
            for model in [m for m in live if m.refine_due <= time.monotonic()]:
                self._refine(model)
            self._checkpoints.look(live, rows_of(steps) + self._joined_rows)
            self._joined_rows = 0
        self._moved()
        return (
            0.0 if cursor < last else min([*due.values(), *(m.refine_due for m in live), self._checkpoints.due(live)])
        )

    def _due(self, model: Model, idle: bool) -> float:
        """When, by time.monotonic, a model is to be solved; inf: not before something changes."""
        if not model.stale or model.publishing or model.attempted >= model.position:
            return math.inf
        if model.attempted < min(self._wanted(), model.position):
            return 0.0
        published, policy = model.published, model.policy or PublishPolicy()
        was_published = published is None and model.next_version > 1  # and not snapshotted before a kill
        by_rows = policy.rows is not None and model.rows - (published.rows if published else 0) >= policy.rows
        if by_rows or (idle and (policy.idle or was_published)):
            wait = 0.0
        else:
            wait = math.inf if policy.seconds is None else policy.seconds
        return model.published_at + max(wait, SOLVING_SHARE * model.publish_seconds)
