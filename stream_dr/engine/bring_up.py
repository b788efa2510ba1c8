"""BringUp: models that are far behind the log catch up in the background, until they join the live ones.

They are snapshotted on their way by a cadence of their own, so that a long way is not begun anew after a kill.

Why this way: the model thread goes on with the live models; a model changes hands once, when it is nearly level.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from stream_dr.engine.advance import Step, rows_of
from stream_dr.engine.cadence import Cadence
from stream_dr.engine.catch_up import catch_up
from stream_dr.engine.model import Model
from stream_dr.engine.model_thread import ModelThread
from stream_dr.engine.publish import freeze
from stream_dr.engine.workers import Workers

log = logging.getLogger("stream_dr.bring_up")


class BringUp:
    """directory: whose log is read. live: what models join. snapshots: like its cadence. lanes: where models run side by
    side. stopping: whether to give up. moved: called when models have moved."""

    def __init__(
        self,
        directory: Any,
        live: ModelThread,
        workers: Workers,
        snapshots: Cadence,
        lanes: Executor,
        stopping: Callable[[], bool],
        moved: Callable[[], None],
    ) -> None:
        self._directory, self._live, self._workers, self._snapshots = directory, live, workers, snapshots
        self._lanes, self._stopping, self._moved = lanes, stopping, moved

    def __call__(self, models: Sequence[Model]) -> None:
        """Catch models up until they join the live ones, fail, are removed, or the engine stops."""
        left, snapshots = list(models), self._snapshots.another()
        try:
            while left and not self._stopping():
                after_page = partial(self._after_page, left, snapshots)
                catch_up(self._directory, left, self._live.cursor, self._lanes, after_page)
                left = [m for m in self._live.join(left) if self._directory.holds(m)]
                self._moved()
        except Exception as e:
            log.exception("models %s could not catch up", [m.name for m in left])
            for model in left:
                model.fail(model.position + 1, e)
            self._moved()

    def _after_page(self, models: Sequence[Model], snapshots: Cadence, steps: Sequence[Step]) -> bool:
        """Snapshot models on their way, when it is time; whether to end: the engine stops, or all were removed."""
        snapshots.add(rows_of(steps))
        if snapshots.due:
            self._workers.snapshot_soon([(m, freeze(m)) for m in models if m.failure is None], snapshots)
        return self._stopping() or not any(map(self._directory.holds, models))
