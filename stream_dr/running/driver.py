"""Driver: lets models learn events, and starts due work.

One call of `Driver.learn_and_schedule` lets the models learn some events. Then it starts the work
that is due:

- solving models and publishing their projections,
- writing snapshots,
- dropping the events that no model needs any more from the log.

The driver has no thread. Its callers are the service's model thread and replays. They give it the
thread pools in which it works, and a function that it calls when something has happened.
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
from stream_dr.models.entry import ON_DEMAND, PublishPolicy
from stream_dr.models.model import FrozenState, Model, MonotonicTime
from stream_dr.models.snapshot import write_snapshot_if_needed
from stream_dr.models.versions import Published
from stream_dr.running import advance
from stream_dr.running.live_scores import TestThenTrain

log = logging.getLogger("stream_dr.driver")

# With 20, solving one model takes at most about a twentieth of one processor's time.
SOLVING_PAUSE_FACTOR = 20
"""Shortest pause after a model was solved, as a multiple of the time that solving took."""

SNAPSHOT_PAUSE_FACTOR = 10
"""Shortest time between two rounds of snapshots, as a multiple of the last round's duration."""


class RunSettings(NamedTuple):
    """Settings for publishing, snapshotting and testing models.

    Attributes
    ----------
    publish : PublishPolicy
        Publish policy of the models that have no policy of their own.
    snapshot_rows : int or None
        Number of new rows after which changed models are snapshotted. None: the number of rows
        does not matter.
    snapshot_seconds : float or None
        Number of seconds after which changed models are snapshotted. None: the time does not
        matter.
    retain_rows : int or None
        Number of the newest rows that always stay in the log. Older rows are dropped when the
        snapshots of all models include them. None: no row is dropped.
    workers : int
        Number of threads that solve and snapshot models. The service uses twice this number of
        threads for models that catch up or are refined.
    test_then_train : bool
        True to test live models on rows before they learn these rows.
    warm_up : bool
        True to compile the functions of a model before the model learns with live models. Replays
        ignore this setting.

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
    warm_up: bool = False


class EngineEvent(StrEnum):
    """Kind of change that the engine reports to an EventHandler.

    MODELS_MOVED: models have applied events of the log, or have failed.
    SNAPSHOTS_ENDED: a task that writes snapshots has ended.
    """

    APPENDED = "appended"
    PUBLISHED = "published"
    SNAPSHOT = "snapshot"
    SNAPSHOT_FAILED = "snapshot_failed"
    FAILED = "failed"
    MODELS_MOVED = "models_moved"
    WAIT_ADDED = "wait_added"
    # SOLVING_ENDED and SNAPSHOTS_ENDED are also reported if solving or snapshotting has failed.
    SOLVING_ENDED = "solving_ended"
    SNAPSHOTS_ENDED = "snapshots_ended"


class EventHandler(Protocol):
    """Function that receives events of the models and the log."""

    def __call__(self, event: EngineEvent, **details: int | str) -> None:
        """Handle an event, whose kind decides which details it has."""


def ignore_event(event: EngineEvent, **details: int | str) -> None:
    """Do nothing. This function is the default event handler."""


class Driver:
    """Schedules the learning, solving and snapshots of models.

    Only one thread at a time may call `learn_and_schedule` or `catch_up`. Any thread may call the
    methods that publish models.

    Parameters
    ----------
    directory : Directory
        Directory of the models.
    settings : RunSettings
        When to publish, snapshot and test.
    learn_pool : Executor
        Thread pool in which models learn in parallel.
    solve_pool : Executor
        Thread pool in which models are solved and snapshotted.
    on_event : EventHandler
        Function that receives the events of models.
    awaited_position : callable
        Returns the last position of the log that some caller waits for, or -1. A model whose last
        solution is older is published immediately, unless it is published only on request.
    solve_for_tests : bool
        True to solve models for the tests of `TestThenTrain`. A replay needs this, because it
        publishes models only at its end.
    """

    def __init__(
        self,
        directory: Directory,
        settings: RunSettings,
        learn_pool: Executor,
        solve_pool: Executor,
        on_event: EventHandler = ignore_event,
        awaited_position: Callable[[], int] = lambda: -1,
        solve_for_tests: bool = False,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._learn_pool = learn_pool
        self._solve_pool = solve_pool
        self._on_event = on_event
        self._awaited_position = awaited_position
        self.tests = None
        if settings.test_then_train:
            self.tests = TestThenTrain(directory.records.newest_scores(), solve_for_tests)

        # Number of rows learned since the last round of snapshots was started.
        self._new_rows = 0

        # A round is a task in the thread pool that snapshots one or more models.
        self._round_started_at = time.monotonic()
        self._round_seconds = 0.0
        self._round_failed = False
        self._snapshot_task: Future[None] | None = None

    def learn_and_schedule(
        self,
        models: Sequence[Model],
        events: Sequence[advance.ParsedEvent],
        continue_rebuild: advance.ShouldContinue | None = advance.always_continue,
        test_first: bool = True,
    ) -> advance.BlockedModels:
        """Let models learn events, then start due publications and snapshots.

        An unlearn event may require a rebuild: the model learns the log again without the
        unlearned rows.

        continue_rebuild: function that is called at every event of a rebuild. It returns False to
            stop the rebuild. None: do not rebuild models here.
        test_first: True to test the models on the events first, if the settings allow tests.

        Returns the models that need a rebuild that was not done.
        """
        if test_first and self.tests is not None:
            self.tests.test(models, events)
        blocked = advance.apply_events_to_models(models, events, self._directory, self._learn_pool, continue_rebuild)
        self.start_due_work([m for m in models if m not in blocked], advance.count_rows_to_learn(events))
        return blocked

    def catch_up(
        self,
        models: Sequence[Model],
        last_position: int,
        continue_rebuild: advance.ShouldContinue | None = advance.always_continue,
        after_page: advance.AfterPage = lambda page: None,
    ) -> advance.BlockedModels:
        """Let models that are behind learn the log's events.

        The log is read once for all models. Each model skips the events that it has already
        applied. Models are published and snapshotted on the way, when this is due.

        last_position: position of the last event to apply.
        continue_rebuild: function that is called at every event of a rebuild. It returns False to
            stop the rebuild. None forbids rebuilds. A rebuild learns the log again without
            unlearned rows.
        after_page: function that is called after each page of events. It may return True to stop.

        Returns the models that need a rebuild that was not done. Raises HistoryGone if a model
        needs events that are no longer in the log.
        """

        def start_work_after_page(events: Sequence[advance.ParsedEvent]) -> bool | None:
            self.start_due_work(models, advance.count_rows_to_learn(events))
            return after_page(events)

        return advance.backfill(
            self._directory, models, last_position, self._learn_pool, start_work_after_page, continue_rebuild
        )

    def scores(self, model: Model) -> JsonDict:
        """Return the scores of a model's tests.

        The keys are described in `TestThenTrain.scores`. The dict is empty if models are not
        tested.
        """
        return {} if self.tests is None else self.tests.scores(model)

    def start_due_work(self, models: Sequence[Model], new_rows: int = 0) -> None:
        """Start the publications and snapshots that are due now.

        Only live models (near the end of the log) are published.

        new_rows: number of rows learned since the last call.
        """
        self._new_rows += new_rows
        now = time.monotonic()

        for model in self._models_near_log_end(models):
            if self._next_publication_time(model, self._all_at_log_end(models)) <= now:
                self._submit_publish(model)

        if self._next_snapshot_time(models) <= now:
            self._submit_snapshots_of_changed(models)

    def next_due_time(self, models: Sequence[Model]) -> MonotonicTime:
        """Return the time at which the next work becomes due.

        The time is a value of time.monotonic.

        Returns infinity if nothing becomes due before new events arrive or running work ends.
        """
        idle = self._all_at_log_end(models)
        publications = [self._next_publication_time(m, idle) for m in self._models_near_log_end(models)]
        return min([*publications, self._next_snapshot_time(models)])

    def submit_publish_and_snapshot(self, model: Model) -> "Future[None]":
        """Publish a model in the worker pool, then snapshot it.

        An error of the snapshot is logged. The snapshot is repeated when the next one is due.
        """
        return self._solve_pool.submit(self._publish_and_snapshot, model)

    def submit_publish_if_new(self, model: Model) -> None:
        """Publish a model in the worker pool.

        The model is not published in these cases:

        - It has learned nothing new since it was last solved or published.
        - It is being solved.
        - Its policy has no automatic publication.
        """
        if model.auto_publishes and model.needs_solving:
            self._submit_publish(model)

    def snapshot_and_trim_log(self, models_and_states: Iterable[tuple[Model, FrozenState]]) -> None:
        """Snapshot models in this thread, then drop unneeded events.

        models_and_states: pairs of a model and its state.

        Models whose snapshot is up to date are skipped. If a snapshot fails, the error is logged
        and the next model is snapshotted. After all models, the first error is raised.
        """
        self._directory.log.check_folder_not_replaced()
        errors: list[Exception] = []
        for model, state in models_and_states:
            if model.snapshot_would_be_new_at(state.position) and self._directory.holds(model):
                self._snapshot_and_report(model, state, errors)

        try:
            self._directory.retention.erase_unlearned_rows()
            if self._settings.retain_rows is not None:
                self._directory.retention.drop_unneeded_events(self._settings.retain_rows)
        except Exception as e:
            log.exception("the log could not be shortened as far as the snapshots allow")
            errors.append(e)
        if errors:
            raise errors[0]

    def publish_and_snapshot_all(
        self, models: Iterable[Model], should_publish: Callable[[Model], bool] = lambda model: True
    ) -> None:
        """Publish and snapshot the models before the process ends.

        should_publish: returns True for a model that is to be published. All models are
            snapshotted.

        Version numbers that were reserved on disk and not used are released. If snapshots fail,
        the first error is raised at the end.
        """
        # Wait for snapshots that another thread is writing.
        if self._snapshot_task is not None:
            wait([self._snapshot_task])

        alive = [m for m in models if m.failure is None]
        unpublished = [m for m in alive if m.needs_publishing and should_publish(m)]
        for solved in [self._submit_publish(m) for m in unpublished]:
            solved.result()

        try:
            self.snapshot_and_trim_log((m, m.freeze()) for m in alive)
        finally:
            for model in alive:
                model.version_numbers.release_unused()

    def _models_near_log_end(self, models: Sequence[Model]) -> list[Model]:
        """Return the live models, which are near the log's end."""
        return [m for m in models if m.status == "live"]

    def _all_at_log_end(self, models: Sequence[Model]) -> bool:
        """True if all models have applied the log's last event."""
        return all(m.position >= self._directory.position for m in models)

    def _next_publication_time(self, model: Model, all_at_log_end: bool) -> MonotonicTime:
        """Return the time at which a model must be published.

        The time is a value of time.monotonic.

        all_at_log_end: True if all models have applied the last event of the log.

        Returns infinity in these cases:

        - The model has nothing new to publish.
        - The model is being solved.
        - The last attempt to solve this state has failed.
        - The model's policy asks for no publication so far.
        """
        if not model.needs_solving:
            return math.inf
        policy = model.policy or self._settings.publish
        is_awaited = model.solving.attempted_position < min(self._awaited_position(), model.position)
        if is_awaited and policy != ON_DEMAND:
            return 0.0

        published = model.published
        # True if an earlier process published the model and was killed before the first snapshot.
        was_published = published is None and model.version_numbers.next > 1
        by_rows = policy.rows is not None and model.rows - (published.rows if published else 0) >= policy.rows

        has_unlearned = model.serves_unlearned and policy != ON_DEMAND
        if by_rows or has_unlearned or (all_at_log_end and (policy.idle or was_published)):
            pause = 0.0
        else:
            pause = math.inf if policy.seconds is None else policy.seconds
        return model.solving.ended_at + max(pause, SOLVING_PAUSE_FACTOR * model.solving.seconds)

    def _submit_publish(self, model: Model) -> "Future[None]":
        """Let the thread pool publish the model's present state."""
        return self._solve_pool.submit(self._publish_and_report, model, model.freeze_and_mark_solving())

    def _publish_and_report(self, model: Model, frozen: FrozenState) -> None:
        published = model.publish_unless_refined_or_current(frozen)
        if published is not None:
            report_published(self._on_event, model, published)
        self._on_event(EngineEvent.SOLVING_ENDED)

    def _publish_and_snapshot(self, model: Model) -> None:
        if model.needs_publishing:
            self._publish_and_report(model, model.freeze_and_mark_solving())
        if not model.snapshot_has_published:
            with suppress(Exception):
                self.snapshot_and_trim_log([(model, model.freeze())])

    def _next_snapshot_time(self, models: Sequence[Model]) -> MonotonicTime:
        """Return the time at which the next snapshots are due.

        The time is a value of time.monotonic.

        Returns infinity in these cases:

        - No model has changed since its last snapshot.
        - Snapshots are being written.
        - The settings ask for no snapshot so far.
        """
        running = self._snapshot_task is not None and not self._snapshot_task.done()
        if running or not any(map(_changed_since_snapshot, models)):
            return math.inf

        # The components of a projection are unique only up to their signs.
        # A snapshot of the first published projection preserves the signs after a kill.
        if self._published_not_snapshotted(models):
            return 0.0

        settings = self._settings
        by_rows = settings.snapshot_rows is not None and self._new_rows >= settings.snapshot_rows
        pause = 0.0 if by_rows else math.inf if settings.snapshot_seconds is None else settings.snapshot_seconds
        return self._round_started_at + max(pause, SNAPSHOT_PAUSE_FACTOR * self._round_seconds)

    def _published_not_snapshotted(self, models: Sequence[Model]) -> list[Model]:
        """Return published models of which no snapshot has a projection.

        The list is empty if the last snapshots could not be written.
        """
        if self._round_failed:
            return []
        return [m for m in models if _changed_since_snapshot(m) and m.published and not m.last_snapshot.version]

    def _submit_snapshots_of_changed(self, models: Sequence[Model]) -> None:
        """Start a task that snapshots the models that changed.

        If models have a first projection that no snapshot contains, only these are snapshotted.
        """
        due = self._published_not_snapshotted(models)
        if not due:
            due = [m for m in models if _changed_since_snapshot(m)]
            self._new_rows = 0
            self._round_started_at = time.monotonic()
        self._snapshot_task = self._solve_pool.submit(self._run_snapshots, [(m, m.freeze()) for m in due])
        self._snapshot_task.add_done_callback(lambda _: self._on_event(EngineEvent.SNAPSHOTS_ENDED))

    def _run_snapshots(self, frozen: Sequence[tuple[Model, FrozenState]]) -> None:
        started_at = time.monotonic()
        self._round_failed = True
        try:
            self.snapshot_and_trim_log(frozen)
            self._round_failed = False
        finally:
            self._round_seconds = time.monotonic() - started_at

    def _snapshot_and_report(self, model: Model, frozen: FrozenState, errors: list[Exception]) -> None:
        """Write a model's snapshot.

        An error is logged and appended to `errors`.
        """
        try:
            write_snapshot_if_needed(model, frozen, self._directory.path)
        # The snapshot fails if the disk is full or broken, for example.
        except Exception as e:
            # The folder is missing if the model was removed in the meantime. That is no error.
            if self._directory.holds(model):
                log.exception("model %s could not be snapshotted at position %d", model.name, frozen.position)
                reason = str(e) if isinstance(e, StreamDRError) else "the log has the details"
                self._on_event(EngineEvent.SNAPSHOT_FAILED, model=model.name, reason=reason)
                errors.append(e)
            return
        self._on_event(EngineEvent.SNAPSHOT, model=model.name, position=frozen.position)


def report_published(on_event: EventHandler, model: Model, published: Published) -> None:
    """Report that a version of a model's projection was published."""
    version = published.version
    position = published.position
    on_event(EngineEvent.PUBLISHED, model=model.name, version=version, position=position)


def _changed_since_snapshot(model: Model) -> bool:
    """Return True if a model changed after its last snapshot.

    False for a failed model, because its state may be incomplete.
    """
    return model.failure is None and model.snapshot_would_be_new_at(model.position)
