"""Driver: what keeps a directory's models current, one turn at a time: events, publications, snapshots, retention.

A turn lets models learn a page of events, then begins what is due: solving and publishing, and snapshots, after which the
log gives up what no model needs. The driver has no thread of its own: a service's model thread, a replay and a replay in
parts feed it, and give it the pools that it works in. Solving and writing are of frozen states, which belong to no one,
so a slow solver or a slow disk delays nothing but its own result.

Whatever happens is told to one function, which decides who is woken for it: Running has one, a replay wakes its recorder.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from typing import NamedTuple, Protocol

from stream_dr.directory.directory import Directory
from stream_dr.errors import StreamDRError
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Frozen, Model
from stream_dr.models.schema import Facts
from stream_dr.models.snapshot import snapshot
from stream_dr.running.advance import Going, Step, advance_all, always, backfill, rows_of
from stream_dr.running.test_then_train import TestThenTrain

log = logging.getLogger("stream_dr.driver")

SOLVING_SHARE = 20
"""Between two solutions of a model passes so many times what the last one took: a twentieth of one processor at most is
spent on solving each, however many rows come."""

SNAPSHOT_SHARE = 10
"""Between two snapshots passes at least so many times what the last took."""


class RunSettings(NamedTuple):
    """How models are kept current, whoever feeds the driver: the one place of these defaults.

    publish: policy of models that have none of their own. snapshot_rows, snapshot_seconds: models are snapshotted after
    so many rows or seconds with something new (None: not by that), and once when they first publish. retain_rows: rows
    kept in the log once every snapshot is past them (None: all). workers: threads that solve and snapshot; a service
    backfills and refines in twice as many. test_then_train: whether live models are tested on rows before they learn
    them.
    """

    publish: PublishPolicy = PublishPolicy()
    snapshot_rows: int | None = None
    snapshot_seconds: float | None = 60.0
    retain_rows: int | None = None
    workers: int = 2
    test_then_train: bool = True


class Happened(Protocol):
    """Told what happened: "solved" (or not), "published", "snapshot", "snapshot_failed", "checkpointed" (whether or
    not all could be written)."""

    def __call__(self, event: str, **facts: int | str) -> None:
        """The event, and its facts."""


def nobody(event: str, **facts: int | str) -> None:
    """Tell nobody."""


class Driver:
    """directory: whose models. advance: pool where models learn side by side. work: pool where they are solved and
    snapshotted. wanted: the last position whose projections somebody waits for: they are published as soon as models are
    there. solving: whether models are solved for tests (TestThenTrain). One owner (thread) takes turns; any thread
    publishes."""

    def __init__(
        self,
        directory: Directory,
        settings: RunSettings,
        advance: Executor,
        work: Executor,
        happened: Happened = nobody,
        wanted: Callable[[], int] = lambda: -1,
        solving: bool = False,
    ) -> None:
        self._directory, self._settings, self._advance, self._work = directory, settings, advance, work
        self._happened, self._wanted = happened, wanted
        self.tests = TestThenTrain(directory.records.last_tested(), solving) if settings.test_then_train else None

        self._new_rows = 0  # learned since the last snapshots were begun
        self._snapshots_begun, self._snapshots_cost = time.monotonic(), 0.0
        self._snapshots_failed = False
        self._writing: Future[None] | None = None

    def turn(
        self,
        models: Sequence[Model],
        steps: Sequence[Step],
        rebuild: Going | None = always,
        joined_rows: int = 0,
        test: bool = True,
    ) -> list[Model]:
        """Let models learn events, side by side, then begin what is due; those that are left at an event for want of a
        rebuild (`advance`). joined_rows: learned by models that came to these since the last turn. test:
        whether models are tested on the events first, if the settings test at all."""
        if test and self.tests is not None:
            self.tests.test(models, steps)
        left = advance_all(models, steps, self._directory, self._advance, rebuild)
        self.look([m for m in models if m not in left], rows_of(steps) + joined_rows)
        return left

    def catch_up(
        self,
        models: Sequence[Model],
        until: int,
        rebuild: Going | None = always,
        after_turn: Callable[[Sequence[Step]], bool | None] = lambda steps: None,
    ) -> list[Model]:
        """Take turns over the log's events up to `until`, in one pass: each model skips what it has applied. after_turn:
        a true answer ends the pass early. Gives those left for a rebuild. Raises as `backfill`."""

        def look(steps: Sequence[Step]) -> bool | None:
            self.look(models, rows_of(steps))
            return after_turn(steps)

        return backfill(self._directory, models, until, self._advance, look, rebuild)

    def scores(self, model: Model) -> Facts:
        """What the tests tell of a model (`TestThenTrain.scores`); {} where there are none."""
        return {} if self.tests is None else self.tests.scores(model)

    def look(self, models: Sequence[Model], rows: int = 0) -> None:
        """Begin what is due of models that have learned so many rows more, and of live ones, what is to be published."""
        self._new_rows += rows
        now = time.monotonic()
        for model in self._live(models):
            if self._publication_due(model, self._idle(models)) <= now:
                self._work.submit(self._publish, model, model.begin_publishing())
        if self._snapshots_due(models) <= now:
            self._begin_snapshots(models)

    def due(self, models: Sequence[Model]) -> float:
        """When, by time.monotonic, to look again though no event comes; inf: not before something changes."""
        idle = self._idle(models)
        return min([*(self._publication_due(m, idle) for m in self._live(models)), self._snapshots_due(models)])

    def publish_for_good(self, model: Model) -> "Future[None]":
        """Publish a model as it is now, on a worker, and snapshot it, as it is then: nobody may ask for that projection
        again. A disk that takes no snapshot is logged, and asked again when the next is due."""
        return self._work.submit(self._publish_for_good, model)

    def publish_soon(self, model: Model) -> None:
        """Publish a model as it is now, on a worker, where its policy publishes unasked and there is something new."""
        if model.auto_publishes and model.stale and not model.publishing and model.attempted < model.position:
            self._work.submit(self._publish, model, model.begin_publishing())

    def write(self, frozen: Iterable[tuple[Model, Frozen]]) -> None:
        """Snapshot models here, those at a new position or with a new projection, then give up what none needs. What
        cannot be written leaves the others, is logged, and the first such error is raised at the end."""
        self._directory.log.check_writer()
        errors: list[Exception] = []
        for model, state in frozen:
            if not model.has_snapshot_of(state.position) and self._directory.holds(model):
                self._snapshot(model, state, errors)
        self._retain(errors)
        if errors:
            raise errors[0]

    def finish(self, models: Iterable[Model], publishing: Callable[[Model], bool] = lambda model: True) -> None:
        """A clean end: publish what models have learned (those for which `publishing` is true), snapshot them, give back
        unused version numbers. Raises what kept one from being snapshotted, at the end."""
        if self._writing is not None:
            wait([self._writing])
        alive = [m for m in models if m.failure is None]
        stale = [m for m in alive if m.stale and publishing(m)]
        for solved in [self._work.submit(self._publish, m, m.begin_publishing()) for m in stale]:
            solved.result()
        try:
            self.write((m, m.freeze()) for m in alive)
        finally:
            for model in alive:
                model.release_versions()

    def _live(self, models: Sequence[Model]) -> list[Model]:
        return [m for m in models if m.status == "live"]

    def _idle(self, models: Sequence[Model]) -> bool:
        """Whether the models have applied the whole log."""
        return all(m.position >= self._directory.position for m in models)

    def _publication_due(self, model: Model, idle: bool) -> float:
        """When, by time.monotonic, a model is to be solved; inf: not before something changes."""
        if not model.stale or model.publishing or model.attempted >= model.position:
            return math.inf
        if model.attempted < min(self._wanted(), model.position):
            return 0.0

        published, policy = model.published, model.policy or self._settings.publish
        was_published = published is None and model.next_version > 1  # and not snapshotted before a kill
        by_rows = policy.rows is not None and model.rows - (published.rows if published else 0) >= policy.rows
        if by_rows or (idle and (policy.idle or was_published)):
            pause = 0.0
        else:
            pause = math.inf if policy.seconds is None else policy.seconds
        return model.published_at + max(pause, SOLVING_SHARE * model.publish_seconds)

    def _publish(self, model: Model, frozen: Frozen) -> None:
        published = model.try_to_publish(frozen)
        if published is not None:
            self._happened("published", model=model.name, version=published.version, position=published.position)
        self._happened("solved")

    def _publish_for_good(self, model: Model) -> None:
        if model.stale:
            self._publish(model, model.begin_publishing())
        if not model.is_snapshotted:
            with suppress(Exception):
                self.write([(model, model.freeze())])

    def _snapshots_due(self, models: Sequence[Model]) -> float:
        """When, by time.monotonic, the next snapshots are due, as far as is known: after so many rows, or so many seconds
        with something new, at most a tenth of the time, and never while any is being taken.

        A model that has published for the first time is snapshotted at once: which way its components point is in no row, so
        that after a kill later ones would be free to point the other way.
        """
        if (self._writing is not None and not self._writing.done()) or not any(map(_lacking, models)):
            return math.inf
        if self._first(models):
            return self._snapshots_begun
        settings = self._settings
        by_rows = settings.snapshot_rows is not None and self._new_rows >= settings.snapshot_rows
        pause = 0.0 if by_rows else math.inf if settings.snapshot_seconds is None else settings.snapshot_seconds
        return self._snapshots_begun + max(pause, SNAPSHOT_SHARE * self._snapshots_cost)

    def _first(self, models: Sequence[Model]) -> list[Model]:
        """Those that have published for the first time; none where the last could not be written."""
        if self._snapshots_failed:
            return []
        return [m for m in models if _lacking(m) and m.published and not m.snapshot_version]

    def _begin_snapshots(self, models: Sequence[Model]) -> None:
        new = self._first(models)
        if not new:
            new = [m for m in models if _lacking(m)]
            self._new_rows, self._snapshots_begun = 0, time.monotonic()
        self._writing = self._work.submit(self._checkpoint, [(m, m.freeze()) for m in new])
        self._writing.add_done_callback(lambda _: self._happened("checkpointed"))

    def _checkpoint(self, frozen: Sequence[tuple[Model, Frozen]]) -> None:
        begun, self._snapshots_failed = time.monotonic(), True
        try:
            self.write(frozen)
            self._snapshots_failed = False
        finally:
            self._snapshots_cost = time.monotonic() - begun

    def _snapshot(self, model: Model, frozen: Frozen, errors: list[Exception]) -> None:
        try:
            snapshot(model, frozen, self._directory.path)
        except Exception as e:  # a full or broken disk
            if self._directory.holds(model):  # else its folder went with it
                log.exception("model %s could not be snapshotted at position %d", model.name, frozen.position)
                why = str(e) if isinstance(e, StreamDRError) else "the log has the details"
                self._happened("snapshot_failed", model=model.name, why=why)
                errors.append(e)
            return
        self._happened("snapshot", model=model.name, position=frozen.position)

    def _retain(self, errors: list[Exception]) -> None:
        """Give up what the snapshots allow."""
        try:
            self._directory.retention.forget()
            if self._settings.retain_rows is not None:
                self._directory.retention.drop(self._settings.retain_rows)
        except Exception as e:
            log.exception("the log could not be shortened as far as the snapshots allow")
            errors.append(e)


def _lacking(model: Model) -> bool:
    """Whether its last snapshot lacks something that there is now."""
    return model.failure is None and not model.has_snapshot_of(model.position)
