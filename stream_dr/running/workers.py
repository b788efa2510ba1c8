"""Workers: threads that solve frozen states, publish them, and write snapshots; what is costly and need not hold models
up. Checkpoints: when snapshots are due. Listeners: who is told.

Why this way: a frozen state belongs to no one, so a slow solver or a slow disk delays nothing but its own result.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress

from stream_dr.directory.directory import Directory
from stream_dr.errors import StreamDRError, without_frames
from stream_dr.models.model import Frozen, Model
from stream_dr.models.schema import Facts
from stream_dr.models.snapshot import snapshot
from stream_dr.models.versions import Published

log = logging.getLogger("stream_dr.workers")

SNAPSHOT_SHARE = 10
"""Between two snapshots passes at least so many times what the last took."""

Listener = Callable[[Facts], None]


class Listeners:
    """Callbacks, told from engine threads in the order they were added; one that raises disturbs no one."""

    def __init__(self) -> None:
        self._callbacks: list[Listener] = []

    def add(self, callback: Listener) -> Callable[[], None]:
        """Tell this one too; gives a function that ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def tell(self, event: str, **facts: int | str) -> None:
        """Tell all: {"event": event, …}."""
        for callback in list(self._callbacks):
            try:
                callback({"event": event, **facts})
            except Exception:
                log.exception("a listener failed")

    def tell_published(self, model: Model, published: Published) -> None:
        """A model has a new projection."""
        self.tell("published", model=model.name, version=published.version, position=published.position)


class Workers:
    """directory: whose models. pool: where. listeners: told what was published and snapshotted. retain_rows: rows kept in
    the log once snapshots are past them, None: all. solved: called after a model was solved, or could not be."""

    def __init__(
        self,
        directory: Directory,
        pool: Executor,
        listeners: Listeners | None = None,
        retain_rows: int | None = None,
        solved: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory, self._pool, self._retain_rows = directory, pool, retain_rows
        self._listeners, self._solved = listeners or Listeners(), solved
        self.figures = {"publishes": 0, "snapshots": 0}

    def submit(self, work: Callable[..., None], *given: object) -> "Future[None]":
        """Do something on a worker."""
        return self._pool.submit(work, *given)

    def publish_soon(self, model: Model) -> None:
        """Solve a model as it is now, and publish it, on a worker."""
        model.publishing = True
        self.submit(self.publish, model, model.freeze())

    def publish_for_good(self, model: Model) -> "Future[None]":
        """Publish a model as it is now, on a worker, and snapshot it, as it is then: nobody may ask for that projection
        again. A disk that takes no snapshot is logged, and asked again when the next is due."""
        return self.submit(self._publish_for_good, model)

    def publish(self, model: Model, frozen: Frozen) -> None:
        """Solve and publish here; a state that cannot be solved leaves the last projection and says why in `solve_error`."""
        begun = time.monotonic()
        try:
            self._publish(model, frozen)
        except Exception as e:
            self._note(model, frozen.position, e)
        finally:
            model.attempted = max(model.attempted, frozen.position)
            model.published_at = time.monotonic()
            model.publish_seconds = model.published_at - begun
            model.publishing = False
            self._solved()

    def write(self, frozen: Iterable[tuple[Model, Frozen]]) -> None:
        """Snapshot models here, those at a new position or with a new projection; then forget and drop what none needs.
        What cannot be written leaves the others, is logged, and the first such error is raised at the end."""
        errors: list[Exception] = []
        for model, state in frozen:
            if not model.snapshotted(state.position) and self._directory.holds(model):
                self._snapshot(model, state, errors)
        try:
            self._directory.history.forget()
            if self._retain_rows is not None:
                self._directory.retain(self._retain_rows)
        except Exception as e:
            log.exception("the log could not be shortened as far as the snapshots allow")
            errors.append(e)
        if errors:
            raise errors[0]

    def finalize(self, models: Iterable[Model], publishing: Callable[[Model], bool] = lambda model: True) -> None:
        """A clean end: publish what models have learned (those for which `publishing` is true), snapshot them, give back
        unused version numbers. Raises what kept one from being snapshotted, at the end."""
        alive = [m for m in models if m.failure is None]
        stale = [m for m in alive if m.stale and publishing(m)]
        for solved in [self.submit(self.publish, m, m.freeze()) for m in stale]:
            solved.result()
        try:
            self.write((m, m.freeze()) for m in alive)
        finally:
            for model in alive:
                model.release_versions()

    def _publish(self, model: Model, frozen: Frozen) -> None:
        with model.solving:
            now = model.published
            if now is not None and (now.refined_at is not None or now.position >= frozen.position):
                return  # something newer, or a refined solution, was published meanwhile
            published = model.publish(frozen)
        model.solve_error = None
        self.figures["publishes"] += 1
        self._listeners.tell_published(model, published)

    def _publish_for_good(self, model: Model) -> None:
        if model.stale:
            self.publish(model, model.freeze())
        if not model.kept:
            with suppress(Exception):
                self.write([(model, model.freeze())])

    def _note(self, model: Model, position: int, error: Exception) -> None:
        """Keep why a model could not be solved, and log it when it is something new; one of ours needs no traceback."""
        if str(error) != str(model.solve_error):
            trace = None if isinstance(error, StreamDRError) else error
            log.warning("model %s could not be solved at position %d: %s", model.name, position, error, exc_info=trace)
        model.solve_error = without_frames(error)  # its frames hold the state

    def _snapshot(self, model: Model, frozen: Frozen, errors: list[Exception]) -> None:
        try:
            snapshot(model, frozen, self._directory.path)
        except Exception as e:  # a full or broken disk
            if self._directory.holds(model):  # else its folder went with it
                log.exception("model %s could not be snapshotted at position %d", model.name, frozen.position)
                errors.append(e)
            return
        self.figures["snapshots"] += 1
        self._listeners.tell("snapshot", model=model.name, position=frozen.position)


class Checkpoints:
    """Snapshots of models that go on: after so many rows, or so many seconds with something new (None: not by that), at
    most a tenth of the time, and never while one is being taken. done: called after each. One owner (thread).

    A model that has published for the first time is snapshotted at once: which way its components point is in no row, so
    that after a kill later ones would be free to point the other way.
    """

    def __init__(
        self, workers: Workers, rows: int | None, seconds: float | None, done: Callable[[], None] = lambda: None
    ) -> None:
        self._workers, self._rows, self._seconds, self._done = workers, rows, seconds, done
        self._learned = 0
        self._last, self._cost = time.monotonic(), 0.0
        self._under_way = self._failed = False
        self._writing: Future[None] | None = None

    def another(self) -> "Checkpoints":
        """One by the same settings, for other models."""
        return Checkpoints(self._workers, self._rows, self._seconds)

    def look(self, models: Sequence[Model], rows: int) -> None:
        """Models have learned so many rows more: snapshot those whose last snapshot lacks something, where it is time."""
        self._learned += rows
        if self.due(models) > time.monotonic():
            return
        new = self._first(models)
        if not new:
            new = [m for m in models if _lacking(m)]
            self._learned, self._last = 0, time.monotonic()
        self._under_way = True
        self._writing = self._workers.submit(self._write, [(m, m.freeze()) for m in new])

    def due(self, models: Sequence[Model]) -> float:
        """When, by time.monotonic, the next is due, as far as is known; inf: not before something changes."""
        if self._under_way or not any(map(_lacking, models)):
            return math.inf
        if self._first(models):
            return self._last
        by_rows = self._rows is not None and self._learned >= self._rows
        waited = 0.0 if by_rows else math.inf if self._seconds is None else self._seconds
        return self._last + max(waited, SNAPSHOT_SHARE * self._cost)

    def wait(self) -> None:
        """Return once nothing is being written. Raises what kept the last from being written."""
        if self._writing is not None:
            self._writing.result()

    def _first(self, models: Sequence[Model]) -> list[Model]:
        """Those that have published for the first time; none where the last could not be written."""
        return [] if self._failed else [m for m in models if _lacking(m) and m.published and not m.snapshot_version]

    def _write(self, frozen: Sequence[tuple[Model, Frozen]]) -> None:
        begun, self._failed = time.monotonic(), True
        try:
            self._workers.write(frozen)
            self._failed = False
        finally:
            self._cost, self._under_way = time.monotonic() - begun, False
            self._done()


def _lacking(model: Model) -> bool:
    """Whether its last snapshot lacks something that there is now."""
    return model.failure is None and not model.snapshotted(model.position)
