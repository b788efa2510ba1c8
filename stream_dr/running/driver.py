"""Driver: keeps the models of a directory current, one turn at a time.

A turn lets the models learn a page of events, then starts whatever is due: solving and publishing,
snapshots, and retention (the log drops what no model needs any more).

The driver has no thread of its own. A service's model thread, a replay and a replay in parts call
it, and give it the pools that it works in. It reports what happens to one function, its event
handler.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple, Protocol

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.errors import StreamDRError
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Frozen, Model
from stream_dr.models.snapshot import snapshot
from stream_dr.running.advance import AfterPage, ShouldContinue, Step, advance_all, always, backfill, rows_to_learn
from stream_dr.running.live_scores import TestThenTrain

log = logging.getLogger("stream_dr.driver")

# At most a twentieth of one processor is spent on solving each model, however many rows come.
SOLVING_SHARE = 20
"""Least pause between two solutions of a model, in multiples of the last one's time."""

SNAPSHOT_SHARE = 10
"""Least pause between two snapshots, in multiples of the last one's time."""


class RunSettings(NamedTuple):
    """Settings of how models are kept current.

    Attributes
    ----------
    publish : PublishPolicy
        Policy of models that have none of their own.
    snapshot_rows : int or None
        Snapshot changed models after this many new rows. None: not by rows.
    snapshot_seconds : float or None
        Snapshot changed models after this many seconds. None: not by time.
    retain_rows : int or None
        Number of rows to keep in the log once every snapshot is past them. None: all.
    workers : int
        Number of threads that solve and snapshot. A service backfills and refines in twice as
        many.
    test_then_train : bool
        True if live models are tested on rows before they learn them.

    Examples
    --------
    >>> import stream_dr
    >>> settings = stream_dr.RunSettings(publish=stream_dr.PublishPolicy(seconds=5.0), workers=1)
    >>> settings.publish.seconds
    5.0
    """

    publish: PublishPolicy = PublishPolicy()
    snapshot_rows: int | None = None
    snapshot_seconds: float | None = 60.0
    retain_rows: int | None = None
    workers: int = 2
    test_then_train: bool = True


class EngineEvent(StrEnum):
    """Kinds of events that the engine reports to an EventHandler."""

    APPENDED = "appended"
    PUBLISHED = "published"
    SNAPSHOT = "snapshot"
    SNAPSHOT_FAILED = "snapshot_failed"
    FAILED = "failed"
    MODELS_MOVED = "models_moved"
    WAIT_ADDED = "wait_added"
    # Both are reported whether or not the work succeeded.
    SOLVING_ENDED = "solving_ended"
    CHECKPOINT_ENDED = "checkpoint_ended"


class EventHandler(Protocol):
    """Function that receives the events of the engine."""

    def __call__(self, event: EngineEvent, **details: int | str) -> None:
        """Handle an event."""


def ignore_event(event: EngineEvent, **details: int | str) -> None:
    """Do nothing."""


class Driver:
    """Schedules the learning, solving and snapshots of models.

    One thread at a time takes turns. Any thread may publish.

    Parameters
    ----------
    directory : Directory
        Directory of the models.
    settings : RunSettings
    advance : Executor
        Pool in which models learn side by side.
    work : Executor
        Pool in which models are solved and snapshotted.
    on_event : EventHandler
        Receives what happens.
    awaited_position : callable
        Returns the last position that a caller waits for. Projections that cover it are published
        as soon as the models have learned it.
    solving : bool
        True if models are solved for the tests (`TestThenTrain`), because they publish only at the
        end, as in a replay.
    """

    def __init__(
        self,
        directory: Directory,
        settings: RunSettings,
        advance: Executor,
        work: Executor,
        on_event: EventHandler = ignore_event,
        awaited_position: Callable[[], int] = lambda: -1,
        solving: bool = False,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._advance = advance
        self._work = work
        self._on_event = on_event
        self._awaited_position = awaited_position
        self.tests = TestThenTrain(directory.records.last_tested(), solving) if settings.test_then_train else None

        # Number of rows learned since the last snapshots were started.
        self._new_rows = 0

        # A checkpoint is one run on a worker that snapshots one or more models.
        self._checkpoint_started_at = time.monotonic()
        self._checkpoint_seconds = 0.0
        self._checkpoint_failed = False
        self._checkpoint: Future[None] | None = None

    def turn(
        self,
        models: Sequence[Model],
        steps: Sequence[Step],
        rebuild: ShouldContinue | None = always,
        joined_rows: int = 0,
        test: bool = True,
    ) -> list[Model]:
        """Let models learn events, then start whatever is due.

        rebuild: asked during a rebuild whether to go on. None to return the models that need a
            rebuild, instead of rebuilding them here.
        joined_rows: number of rows learned by models that joined these since the last turn.
        test: True to test the models on the events first, if the settings test at all.

        Returns the models that stopped at an event because they need a rebuild.
        """
        if test and self.tests is not None:
            self.tests.test(models, steps)
        blocked = advance_all(models, steps, self._directory, self._advance, rebuild)
        self.schedule_due([m for m in models if m not in blocked], rows_to_learn(steps) + joined_rows)
        return blocked

    def catch_up(
        self,
        models: Sequence[Model],
        until: int,
        rebuild: ShouldContinue | None = always,
        after_turn: AfterPage = lambda steps: None,
    ) -> list[Model]:
        """Take turns over the log's events up to `until`, in one pass.

        Each model skips the events that it has applied. Returns the models that need a rebuild.
        Raises as `backfill`.

        rebuild: as in `turn`.
        """

        def schedule(steps: Sequence[Step]) -> bool | None:
            self.schedule_due(models, rows_to_learn(steps))
            return after_turn(steps)

        return backfill(self._directory, models, until, self._advance, schedule, rebuild)

    def scores(self, model: Model) -> JsonDict:
        """Return the test scores of a model, or {} if there are no tests."""
        return {} if self.tests is None else self.tests.scores(model)

    def schedule_due(self, models: Sequence[Model], rows: int = 0) -> None:
        """Start whatever is due: publish live models, and snapshot changed ones.

        rows: number of rows learned since the last call.
        """
        self._new_rows += rows
        now = time.monotonic()

        for model in self._live(models):
            if self._publication_due(model, self._idle(models)) <= now:
                self._work.submit(self._publish, model, model.begin_publishing())

        if self._snapshots_due(models) <= now:
            self._start_checkpoint(models)

    def next_due(self, models: Sequence[Model]) -> float:
        """Return the time, by time.monotonic, to call `schedule_due` if no event comes first.

        Infinity means that nothing becomes due before something changes.
        """
        idle = self._idle(models)
        return min([*(self._publication_due(m, idle) for m in self._live(models)), self._snapshots_due(models)])

    def submit_publish_and_snapshot(self, model: Model) -> "Future[None]":
        """Publish a model on a worker as it is now, then snapshot it.

        An error of the disk is logged, and the snapshot is taken when the next one is due.
        """
        return self._work.submit(self._publish_and_snapshot, model)

    def submit_publish(self, model: Model) -> None:
        """Publish a model on a worker, if its policy allows and it has changed."""
        if (
            model.auto_publishes
            and model.stale
            and not model.solving.under_way
            and model.solving.attempted < model.position
        ):
            self._work.submit(self._publish, model, model.begin_publishing())

    def write_snapshots(self, frozen: Iterable[tuple[Model, Frozen]]) -> None:
        """Snapshot models in this thread, then drop from the log what no model needs.

        Models whose snapshot is up to date are skipped. An error does not stop the others. It is
        logged, and the first one is raised at the end.
        """
        self._directory.log.check_writer()
        errors: list[Exception] = []
        for model, state in frozen:
            if not model.has_snapshot_of(state.position) and self._directory.holds(model):
                self._snapshot(model, state, errors)
        self._retain(errors)
        if errors:
            raise errors[0]

    def finish(self, models: Iterable[Model], publishing: Callable[[Model], bool] = lambda model: True) -> None:
        """End cleanly: publish, snapshot, and give back unused version numbers.

        Only models for which `publishing` returns True are published. The first error of a
        snapshot is raised at the end.
        """
        if self._checkpoint is not None:
            wait([self._checkpoint])

        alive = [m for m in models if m.failure is None]
        stale = [m for m in alive if m.stale and publishing(m)]
        for solved in [self._work.submit(self._publish, m, m.begin_publishing()) for m in stale]:
            solved.result()

        try:
            self.write_snapshots((m, m.freeze()) for m in alive)
        finally:
            for model in alive:
                model.version_numbers.release()

    def _live(self, models: Sequence[Model]) -> list[Model]:
        """Return the models that are live."""
        return [m for m in models if m.status == "live"]

    def _idle(self, models: Sequence[Model]) -> bool:
        """Return True if the models have applied the whole log."""
        return all(m.position >= self._directory.position for m in models)

    def _publication_due(self, model: Model, idle: bool) -> float:
        """Return the time, by time.monotonic, at which a model is to be solved.

        Infinity means not before something changes.
        """
        if not model.stale or model.solving.under_way or model.solving.attempted >= model.position:
            return math.inf
        if model.solving.attempted < min(self._awaited_position(), model.position):
            return 0.0

        published = model.published
        policy = model.policy or self._settings.publish
        # True if the process was killed after a publication and before its snapshot.
        was_published = published is None and model.version_numbers.next > 1
        by_rows = policy.rows is not None and model.rows - (published.rows if published else 0) >= policy.rows

        if by_rows or (idle and (policy.idle or was_published)):
            pause = 0.0
        else:
            pause = math.inf if policy.seconds is None else policy.seconds
        return model.solving.ended_at + max(pause, SOLVING_SHARE * model.solving.seconds)

    def _publish(self, model: Model, frozen: Frozen) -> None:
        published = model.try_to_publish(frozen)
        if published is not None:
            self._on_event(
                EngineEvent.PUBLISHED, model=model.name, version=published.version, position=published.position
            )
        self._on_event(EngineEvent.SOLVING_ENDED)

    def _publish_and_snapshot(self, model: Model) -> None:
        if model.stale:
            self._publish(model, model.begin_publishing())
        if not model.is_snapshotted:
            with suppress(Exception):
                self.write_snapshots([(model, model.freeze())])

    def _snapshots_due(self, models: Sequence[Model]) -> float:
        """Return the time, by time.monotonic, at which the next snapshots are due.

        Infinity means not before something changes, or while snapshots are being written.
        """
        running = self._checkpoint is not None and not self._checkpoint.done()
        if running or not any(map(_lacks_snapshot, models)):
            return math.inf

        # The sign of components cannot be derived from the rows. Without an early snapshot, later
        # components could point the other way after a kill.
        if self._published_first(models):
            return self._checkpoint_started_at

        settings = self._settings
        by_rows = settings.snapshot_rows is not None and self._new_rows >= settings.snapshot_rows
        pause = 0.0 if by_rows else math.inf if settings.snapshot_seconds is None else settings.snapshot_seconds
        return self._checkpoint_started_at + max(pause, SNAPSHOT_SHARE * self._checkpoint_seconds)

    def _published_first(self, models: Sequence[Model]) -> list[Model]:
        """Return the models whose first publication has no snapshot yet.

        Empty if the last snapshots could not be written.
        """
        if self._checkpoint_failed:
            return []
        return [m for m in models if _lacks_snapshot(m) and m.published and not m.last_snapshot.version]

    def _start_checkpoint(self, models: Sequence[Model]) -> None:
        """Snapshot models on a worker."""
        due = self._published_first(models)
        if not due:
            due = [m for m in models if _lacks_snapshot(m)]
            self._new_rows = 0
            self._checkpoint_started_at = time.monotonic()
        self._checkpoint = self._work.submit(self._run_checkpoint, [(m, m.freeze()) for m in due])
        self._checkpoint.add_done_callback(lambda _: self._on_event(EngineEvent.CHECKPOINT_ENDED))

    def _run_checkpoint(self, frozen: Sequence[tuple[Model, Frozen]]) -> None:
        started_at = time.monotonic()
        self._checkpoint_failed = True
        try:
            self.write_snapshots(frozen)
            self._checkpoint_failed = False
        finally:
            self._checkpoint_seconds = time.monotonic() - started_at

    def _snapshot(self, model: Model, frozen: Frozen, errors: list[Exception]) -> None:
        """Write a snapshot, or append the error to `errors`."""
        try:
            snapshot(model, frozen, self._directory.path)
        # The disk may be full or broken.
        except Exception as e:
            # The folder of a model that was removed meanwhile is gone.
            if self._directory.holds(model):
                log.exception("model %s could not be snapshotted at position %d", model.name, frozen.position)
                reason = str(e) if isinstance(e, StreamDRError) else "the log has the details"
                self._on_event(EngineEvent.SNAPSHOT_FAILED, model=model.name, reason=reason)
                errors.append(e)
            return
        self._on_event(EngineEvent.SNAPSHOT, model=model.name, position=frozen.position)

    def _retain(self, errors: list[Exception]) -> None:
        """Drop from the log what the snapshots allow."""
        try:
            self._directory.retention.forget()
            if self._settings.retain_rows is not None:
                self._directory.retention.drop(self._settings.retain_rows)
        except Exception as e:
            log.exception("the log could not be shortened as far as the snapshots allow")
            errors.append(e)


def _lacks_snapshot(model: Model) -> bool:
    """Return True if a model has changed since its last snapshot."""
    return model.failure is None and not model.has_snapshot_of(model.position)
