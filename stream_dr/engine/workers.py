"""Workers: threads that solve frozen states, publish them, and write snapshots; what is costly and need not hold models
up.

Why this way: a frozen state belongs to no one, so a slow solver or a slow disk delays nothing but its own result.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from stream_dr.engine.cadence import Cadence
from stream_dr.engine.forget import forget
from stream_dr.engine.listeners import Listeners
from stream_dr.engine.model import Model
from stream_dr.engine.publish import Frozen, freeze, publish
from stream_dr.engine.snapshot import snapshot
from stream_dr.errors import StreamDRError, without_frames

log = logging.getLogger("stream_dr.workers")


class Workers:
    """directory: whose models. threads: how many. retain_rows: rows kept in the log once snapshots are past them, None:
    all. done: called after a model was solved, or could not be."""

    def __init__(
        self,
        directory: Any,
        threads: int,
        retain_rows: int | None,
        listeners: Listeners,
        done: Callable[[], None],
    ) -> None:
        self._directory, self._retain_rows = directory, retain_rows
        self._listeners, self._done = listeners, done
        self.figures = {"publishes": 0, "snapshots": 0}
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="stream_dr-solve")

    def publish_soon(self, model: Model, frozen: Frozen) -> None:
        """Solve and publish on a worker."""
        model.publishing = True
        self.pool.submit(self.publish, model, frozen)

    def publish(self, model: Model, frozen: Frozen) -> None:
        """Solve and publish here; a state that cannot be solved leaves the last projection and says why in
        `solve_error`."""
        begun = time.monotonic()
        try:
            with model.solving:
                if _superseded(model, frozen):
                    return
                published = publish(model, frozen, self._directory.table)
            model.solve_error = None
            self.figures["publishes"] += 1
            self._listeners.tell_published(model, published)
        except Exception as e:
            self._note(model, frozen.position, e)
        finally:
            model.attempted = max(model.attempted, frozen.position)
            model.published_at = time.monotonic()
            model.publish_seconds = time.monotonic() - begun
            model.publishing = False
            self._done()

    def publish_for_good(self, model: Model) -> None:
        """Publish a model as it is now, and snapshot it, as it is then: nobody may ask for that projection again. A disk
        that takes no snapshot is logged, and asked again by the cadence."""
        if model.stale:
            self.publish(model, freeze(model))
        if not model.kept:
            with suppress(Exception):
                self.write([(model, freeze(model))])

    def _note(self, model: Model, position: int, error: Exception) -> None:
        """Keep why a model could not be solved, and log it when it is something new; one of ours needs no traceback."""
        if str(error) != str(model.solve_error):
            trace = None if isinstance(error, StreamDRError) else error
            log.warning("model %s could not be solved at position %d: %s", model.name, position, error, exc_info=trace)
        model.solve_error = without_frames(error)  # its frames hold the state

    def snapshot_soon(self, frozen: Sequence[tuple[Model, Frozen]], cadence: Cadence) -> None:
        """Snapshot models on a worker, by a cadence that is started here and ends when they are written."""
        cadence.start()
        self.pool.submit(self._write_unasked, frozen, cadence)

    def write(self, frozen: Sequence[tuple[Model, Frozen]]) -> None:
        """Snapshot models here, those at a new position or with a new projection; then forget and drop what none needs.
        What cannot be written leaves the others, is logged, and the first such error is raised at the end."""
        errors: list[Exception] = []
        for model, state in frozen:
            if model.snapshotted(state.position) or not self._directory.holds(model):
                continue
            try:
                snapshot(model, state, self._directory.path)
            except Exception as e:  # a full or broken disk
                if not self._directory.holds(model):  # its folder went with it
                    continue
                log.exception("model %s could not be snapshotted at position %d", model.name, state.position)
                errors.append(e)
                continue
            self.figures["snapshots"] += 1
            self._listeners.tell("snapshot", model=model.name, position=state.position)
        try:
            forget(self._directory)
            if self._retain_rows is not None:
                self._directory.retain(self._retain_rows)
        except Exception as e:
            log.exception("the log could not be shortened as far as the snapshots allow")
            errors.append(e)
        if errors:
            raise errors[0]

    def _write_unasked(self, frozen: Sequence[tuple[Model, Frozen]], cadence: Cadence) -> None:
        """As `write`; nobody waits for its errors, which it has logged."""
        try:
            with suppress(Exception):
                self.write(frozen)
        finally:
            cadence.done()


def _superseded(model: Model, frozen: Frozen) -> bool:
    """Whether something newer was published, or a refined solution, since the state was frozen."""
    published = model.published
    return published is not None and (published.refined_at is not None or published.position >= frozen.position)
