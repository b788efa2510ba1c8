"""ModelThread: reads the log and advances every live model; decides when one is frozen for publishing or a snapshot.

`cursor` is the position that every live model has applied. A model behind it catches up elsewhere and joins under the
lock once it has reached the cursor. Solving and writing happen on workers, from frozen states.

Why this way: an accumulator has one owner. This thread owns those of live models; a catching-up model is owned by its
worker until `join` hands it over.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from stream_dr.engine.advance import Step, advance_all, rows_of
from stream_dr.engine.cadence import Cadence
from stream_dr.engine.catch_up import catch_up
from stream_dr.engine.decode import Decoder, in_order
from stream_dr.engine.history import LogHistory
from stream_dr.engine.model import Model, PublishPolicy
from stream_dr.engine.publish import Frozen, freeze
from stream_dr.engine.reading import read_steps
from stream_dr.engine.unlearn import removal_of

log = logging.getLogger("stream_dr.model_thread")

PAGE_EVENTS, PAGE_BYTES = 32, 32 << 20
HELD_EVENTS = 8
"""Events held in memory that are learned at once; then there is room for others."""

NEAR = 8
"""Events a catching-up model may be behind to be brought level under the lock."""

TICK = 0.05
"""Seconds between looks at publishing policies while nothing arrives."""

PAUSE, LONG_PAUSE = 19, 49
"""Between two solutions of a model pass so many times what the last one took, the longer pause while it is at most a
second: a fiftieth of one processor is spent on quick ones and a twentieth on others, however many rows come."""


class ModelThread:
    """directory: whose log is read. publish, snapshot: called with frozen states, must only hand them to a worker.
    told: called after models have moved. pool: where models run side by side. wanted: the last position whose
    projections somebody waits for: they are published as soon as models are there."""

    def __init__(
        self,
        directory: Any,
        snapshots: Cadence,
        publish: Callable[[Model, Frozen], None],
        snapshot: Callable[[Sequence[tuple[Model, Frozen]], Cadence], None],
        told: Callable[[], None],
        pool: Executor,
        wanted: Callable[[], int],
    ) -> None:
        self._directory, self._pool, self._wanted = directory, pool, wanted
        self._snapshots, self._publish, self._snapshot, self._told = snapshots, publish, snapshot, told
        self._history = LogHistory(directory)
        self._decoder = Decoder(directory.limits, directory.path)
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stop_at: float | None = None
        self._firsts: set[int] = set()
        self.cursor = directory.position
        self._thread = threading.Thread(target=self._run, name="stream_dr-models", daemon=True)

    def start(self, live: Sequence[Model]) -> None:
        """Start with these models live; the cursor is where the one furthest behind is."""
        for model in live:
            model.status = "live"
        self.cursor = min([m.position for m in live], default=self._directory.position)
        self._thread.start()

    def stop(self, seconds: float | None) -> None:
        """Apply what the log holds, for at most `seconds` (None: all of it), and end."""
        self._stop_at = time.monotonic() + (seconds if seconds is not None else 1e9)
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """There is something to do: events, or a demand."""
        self._wake.set()

    @property
    def live(self) -> list[Model]:
        """Models that are level with the cursor."""
        return [m for m in self._directory.models.values() if m.status == "live"]

    @property
    def lag(self) -> int:
        """Events that the live models have not applied."""
        return max(0, self._directory.position - self.cursor) if self.live else 0

    def join(self, models: Sequence[Model]) -> list[Model]:
        """Make live those that have reached the cursor, or nearly; give those that are still behind."""
        with self._lock:
            near = [m for m in models if self.cursor - m.position <= NEAR and m.status != "failed"]
            catch_up(self._directory, near, self.cursor)
            for model in near:
                if model.status != "failed":
                    model.status = "live"
                    self._snapshots.add(model.rows)
        self._wake.set()
        return [m for m in models if m.status == "catching_up"]

    def _run(self) -> None:
        while True:
            behind = self._directory.position > self.cursor
            if self._stop_at is not None and (not behind or time.monotonic() > self._stop_at):
                return
            if not behind:
                self._wake.wait(TICK if any(m.stale for m in self.live) else 1.0)
                self._wake.clear()
            try:
                self._turn()
            except Exception:
                log.exception("the model thread could not read the log; it tries again")
                time.sleep(0.2)

    def _turn(self) -> None:
        with self._lock:
            live, last = self.live, self._directory.position
            if not live:
                self._skip(last)
            elif last > self.cursor:
                self._advance(live, last)
            live, idle = self.live, self._directory.position <= self.cursor
            for model in live:
                if self._due(model, idle):
                    self._publish(model, freeze(model))
            self._hurry_for_firsts(live)
            demanded = [m for m in live if not m.kept and not m.soon]
            if demanded:
                self._snapshots.ask()
            if self._snapshots.due:
                due = [m for m in live if m.position > m.snapshot_position or m in demanded]
                self._snapshot([(m, freeze(m)) for m in due], self._snapshots)
        self._told()

    def _hurry_for_firsts(self, live: Sequence[Model]) -> None:
        """Snapshot models soon, once, that have published for the first time: which way their components point is in no row,
        so that after a kill later projections would be free to point the other way."""
        firsts = {m.id for m in live if m.published_version and not m.snapshot_version} - self._firsts
        if firsts:
            self._firsts |= firsts
            self._snapshots.hurry()

    def _skip(self, last: int) -> None:
        """No model is live: nothing is held for one."""
        self.cursor = last
        if self._directory.recent is not None:
            self._directory.recent.forget(last)

    def _advance(self, live: Sequence[Model], last: int) -> None:
        steps = self._held_steps() or self._read_steps(last)
        advance_all(live, steps, self._history, self._pool)
        self.cursor = steps[-1].position
        self._snapshots.add(rows_of(steps))

    def _held_steps(self) -> list[Step]:
        """The next events as they were parsed when they came; empty where they are not held any more."""
        recent, schema = self._directory.recent, self._directory.schema
        held = recent.take(self.cursor, HELD_EVENTS) if recent is not None else []
        return [
            Step(position, in_order(draft.block, schema))
            if draft.block is not None
            else Step(position, removal=removal_of(draft.body))
            for position, draft in held
        ]

    def _read_steps(self, last: int) -> list[Step]:
        """The next events from the log, up to those that are held."""
        directory = self._directory
        if directory.recent is not None:
            last = max(self.cursor + 1, min(last, directory.recent.first(last + 1) - 1))
        return read_steps(directory.log, directory.schema, self.cursor, last, self._decoder, PAGE_EVENTS, PAGE_BYTES)

    def _due(self, model: Model, idle: bool) -> bool:
        """Whether a model is to be solved now."""
        if not model.stale or model.publishing or model.attempted >= model.position:
            return False
        published, policy = model.published, model.policy or PublishPolicy()
        if model.attempted < min(self._wanted(), model.position):
            return True
        waited = time.monotonic() - model.published_at
        if waited < _pause(model.publish_seconds):
            return False
        learned = model.rows - (published.rows if published else 0)
        was_published = published is None and model.next_version > 1  # and not snapshotted before a kill
        by_rows = policy.rows is not None and learned >= policy.rows
        by_time = policy.seconds is not None and waited >= policy.seconds
        return by_rows or by_time or (idle and (policy.idle or was_published))


def _pause(seconds: float) -> float:
    """Seconds to wait after a solution that took `seconds`."""
    return max(PAUSE * seconds, min(LONG_PAUSE * seconds, 1.0))
