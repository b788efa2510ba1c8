"""Running: the threads that keep a directory's models current while batches arrive.

The appender takes drafts from a bounded queue, admits them in order and commits each group in one transaction, then
answers their futures. The model thread reads the log and feeds the driver of the live models. Pools solve and snapshot,
catch up and refine. What happens in any of them is told to `Running._happened`, which says who is woken.

Why this way: the log is the queue. Nothing is acknowledged before it is durable, and nothing is learned that is not in
it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Any

from threadpoolctl import threadpool_limits

from stream_dr.directory.directory import Directory, Start
from stream_dr.directory.draft import Draft, DryRunReceipt, Receipt, unlearn_draft
from stream_dr.directory.records import Recorder
from stream_dr.disk import free_bytes
from stream_dr.errors import Overloaded, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.refining import check_method
from stream_dr.models.entry import PublishPolicy, RefinePolicy
from stream_dr.models.model import Model
from stream_dr.models.reasons import why_unpublished
from stream_dr.models.schema import Facts
from stream_dr.models.snapshot_file import canonical_json
from stream_dr.models.versions import Published
from stream_dr.running.driver import Driver, RunSettings
from stream_dr.running.ingest import Appender
from stream_dr.running.jobs import Job, Jobs
from stream_dr.running.model_thread import ModelThread
from stream_dr.running.refine import check_model, refine
from stream_dr.threads import pool, switching

log = logging.getLogger("stream_dr.running")

RECENT_BYTES = 32 << 20
"""Bytes of batches that were just appended and are held, parsed, for the models."""


class Running:
    """Keeps a Directory's models up to date in threads of its own. `start()` once, `stop()` once; all other methods from
    any thread in between."""

    def __init__(self, directory: Directory, settings: RunSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or RunSettings()
        directory.hold_recent(RECENT_BYTES)
        self._work = pool("work", self.settings.workers)
        self._long = pool("long", 2 * self.settings.workers)
        self._advance = pool("advance")
        self._listeners = Listeners()
        self._waits = Waits(self._included, self._hindered)
        self._appender = Appender(directory, self._appended)
        self._models = ModelThread(directory, self._driver, self._long, self._refine_again, self._moved)
        self._recorder = Recorder(directory, self.scores)
        self._jobs = Jobs()
        self._figures = {"publishes": 0, "snapshots": 0}
        self._snapshot_errors: dict[str, str] = {}  # of models whose last snapshot could not be written
        self._stopping = False
        self._last_rows: float | None = None
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        self._limited = ExitStack()  # what this process is limited to while it runs

    def start(self) -> None:
        """Start the threads; models too far behind the log are backfilled, the others advanced as they are."""
        self._limited.enter_context(threadpool_limits(1))
        self._limited.enter_context(switching())
        alive = [m for m in self.directory.models.values() if m.status != "failed"]
        near = [m for m in alive if self.directory.position - m.position <= self.directory.limits.max_lag]
        for model in alive:
            self._prepare(model)
        self._recorder.start()
        self._models.start(near)
        self._appender.start()
        self._models.catch_up_soon([m for m in alive if m not in near])

    def stop(self, seconds: float | None = None) -> None:
        """Refuse new drafts, append those taken, apply the log (for at most `seconds`), snapshot every model, end the
        threads. The directory stays open. What was not applied in time is applied after the next start."""
        self._stopping = True
        self._waits.end()
        self._jobs.cancel()
        self._appender.close()
        self._models.stop(seconds)
        self._long.shutdown()
        try:
            self._models.driver.finish(self.directory.models.values(), lambda model: model.auto_publishes)
        finally:
            self._work.shutdown()
            self._advance.shutdown()
            self._recorder.stop()
            self._limited.close()

    def submit(self, draft: Draft) -> "Future[Receipt]":
        """Queue a draft; the future gives its Receipt once it is durable, or raises what refused it.

        Raises Overloaded (details: retry_after, seconds) when waiting bodies exceed limits.max_queue_bytes or a live
        model is more than limits.max_lag events behind, and ShuttingDown.
        """
        if self.lag > self.directory.limits.max_lag:
            raise Overloaded(
                f"models are {self.lag} events behind the log; at most {self.directory.limits.max_lag} are allowed "
                "(max_lag). Try again in a few seconds.",
                retry_after=2,
            )
        return self._appender.submit(draft)

    def check(self, draft: Draft) -> DryRunReceipt:
        """Raise what would refuse the draft, else say what its receipt would; append nothing."""
        return self.directory.check(draft)

    def applied(self, position: int) -> "Future[str | None]":
        """A future that gives None once every model has applied `position` and published a projection that includes it
        (models without any row, and refined ones: applied only), or else, at once, why that will not be: a model has
        failed, or cannot be solved; cancelled when the engine stops before.

        While it waits, models publish as soon as they are there; one that is cancelled is forgotten.
        """
        future = self._waits.add(position)
        self._happened("asked")
        return future

    def wait_applied(self, position: int, timeout: float) -> bool:
        """Whether every model publishes what includes `position` within `timeout` seconds, and before the engine stops;
        False at once where one cannot (`applied`)."""
        future = self.applied(position)
        wait([future], timeout)
        return not future.cancel() and not future.cancelled() and future.result() is None

    def add_model(
        self,
        name: str,
        key: str,
        params: dict[str, Any],
        start: Start = "start",
        policy: PublishPolicy | None = None,
        refine: RefinePolicy | None = None,
    ) -> tuple[Model, bool]:
        """As Directory.add_model; a new model that is far behind is backfilled. Raises CannotRefine for a policy of refining
        what cannot be refined."""
        if refine is not None and any(refine):
            check_method(make(key, params))
            known = self.directory.models.get(name)
            if known is not None:
                check_model(self.directory, known)
        return self._joined(*self.directory.add_model(name, key, params, start, policy, refine))

    def add_saved(self, name: str, estimator: Any, policy: PublishPolicy | None = None) -> tuple[Model, bool]:
        """As Directory.add_saved: what `load` gives goes on from where it was, with the next batch."""
        return self._joined(*self.directory.add_saved(name, estimator, policy))

    def remove_model(self, name: str) -> None:
        """As Directory.remove_model; readers keep what they hold, and its jobs are cancelled."""
        model = self.directory.remove_model(name)
        self._jobs.cancel(model)
        self._snapshot_errors.pop(name, None)
        self._moved()

    def publish(self, name: str, timeout: float = 30.0) -> Published:
        """Solve and publish a model as it is now (policy "on demand"), and snapshot it, so that a kill leaves it as it is;
        what includes its rows already, or was refined, stays. Raises UnknownModel, ModelFailed, NotFitted (also where its
        rows have no solution), TimeoutError."""
        model = self.directory.model(name)
        if model.failure is not None:
            raise model.failure_error(model.failure)
        if model.stale or not model.is_snapshotted:
            self._models.driver.publish_for_good(model).result(timeout)
        if model.published is None or (model.stale and model.solve_error is not None):
            raise why_unpublished(model)
        return model.published

    def snapshot(self, name: str) -> Job:
        """Snapshot a model in the background. Raises UnknownModel."""
        model = self.directory.model(name)
        write = self._models.driver.write
        return self._jobs.begin("snapshot", model, self._work, lambda _: write([(model, model.freeze())]))

    def refine(self, name: str, tol: float = 1e-6, max_passes: int = 20) -> Job:
        """Refine a model in the background over the log up to its position, or the job that is at it. Raises
        UnknownModel, CannotRefine, HistoryGone."""
        model = self.directory.model(name)
        check_model(self.directory, model)
        return self._jobs.begin(
            "refine", model, self._long, lambda job: self._refine(model, job, tol, max_passes), alone=True
        )

    def unlearn(
        self, positions: Sequence[int] = (), ids: Sequence[str | int] = (), key: str | None = None
    ) -> "Future[Receipt]":
        """Append an event that takes rows out again; a repetition under the same key changes nothing.

        Looking ids up reads the log. Raises InvalidParameter, HistoryGone.
        """
        known = key is not None and self.directory.log.find_key(key) is not None
        picked = {} if known else self.directory.history.pick(positions, ids)
        request = canonical_json({"positions": sorted(positions), "ids": sorted(ids)}).encode()
        return self.submit(unlearn_draft(picked, key, request))

    def job(self, id: str) -> Job:
        """A job by its id. Raises UnknownJob."""
        return self._jobs.get(id)

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are known (jobs.KEPT), oldest first."""
        return list(self._jobs)

    @property
    def lag(self) -> int:
        """Events that the model furthest behind, of those that are live, has not applied."""
        return self._models.lag

    @property
    def queued_bytes(self) -> int:
        """Bytes of bodies taken and not yet durable."""
        return self._appender.queued_bytes

    def ready(self) -> str | None:
        """None when batches can be taken, else why not (a sentence)."""
        if self._stopping:
            return "the engine is stopping"
        if self.directory.log.displaced is not None:
            return str(self.directory.log.displaced)
        free, needed = free_bytes(self.directory.path), self.directory.limits.min_free_bytes
        if free < needed:
            return f"{free} bytes free on the disk, {needed} needed (min_free_bytes)"
        return None

    def listen(self, callback: Callable[[Facts], None]) -> Callable[[], None]:
        """Call `callback` from engine threads with {"event": "appended", "position", "rows"}, {"event": "published",
        "model", "version", "position"}, {"event": "failed", "model", "position", "code"} or {"event": "snapshot",
        "model", "position"}; it must return at once. Gives a function that ends it."""
        return self._listeners.add(callback)

    def figures(self) -> dict[str, float]:
        """Counters and gauges since start: rows_appended, events_appended, commits, duplicates, refused, publishes,
        snapshots, queued_bytes, lag; names are stable."""
        return {**self._appender.figures, **self._figures, "queued_bytes": self.queued_bytes, "lag": self.lag}

    def health(self) -> Facts:
        """{"reason": why no batch is taken, or None; "free_bytes", "min_free_bytes": of the disk; "last_rows": when
        rows were taken last, seconds since 1970, None: not since start; "snapshot_errors": why a model has no new
        snapshot, by its name}."""
        free, needed = free_bytes(self.directory.path), self.directory.limits.min_free_bytes
        facts = {"reason": self.ready(), "free_bytes": free, "min_free_bytes": needed, "last_rows": self._last_rows}
        return facts | {"snapshot_errors": dict(self._snapshot_errors)}

    def refinable(self, model: Model) -> bool:
        """Whether `refine` takes a model: its method has an out-of-core solution, and the log holds what it learned."""
        try:
            check_model(self.directory, model)
        except StreamDRError:
            return False
        return True

    def scores(self, model: Model) -> Facts:
        """{"accuracy", "baseline", "tested", "confusion"} of a model, by test-then-train; {} where it was not tested."""
        return self._models.driver.scores(model)

    def _driver(self) -> Driver:
        """A driver of some of the models."""
        pools = self._advance, self._work
        return Driver(self.directory, self.settings, *pools, self._happened, lambda: self._waits.furthest)

    def _happened(self, event: str, **facts: int | str) -> None:
        """Wake who waits for that: the one place that says who is woken for what.

        The model thread comes for events, and when a solution or a snapshot has ended, for another may be due. Who waits
        for a position, the record of what models did, and the listeners look when models have moved: learned, published,
        failed.
        """
        if event in ("appended", "solved", "checkpointed", "asked"):
            self._models.wake()
        if event in ("moved", "solved"):
            self._recorder.woken.set()
            self._waits.look()
        if event in ("appended", "published", "snapshot", "failed"):
            self._listeners.tell(event, **facts)
        if event == "snapshot_failed":
            self._snapshot_errors[str(facts["model"])] = str(facts["why"])
        elif event == "snapshot":
            self._snapshot_errors.pop(str(facts["model"]), None)
        if event in _COUNTED:
            self._figures[_COUNTED[event]] += 1

    def _joined(self, model: Model, new: bool) -> tuple[Model, bool]:
        if new:
            self._prepare(model)
            model.catch_up()
            if self._models.join([model]):
                self._models.catch_up_soon([model])
        self._happened("asked")
        return model, new

    def _prepare(self, model: Model) -> None:
        """A model without a policy of its own takes the settings'."""
        if model.policy is None:
            model.set_policies(self.settings.publish, None)

    def _appended(self, receipts: Sequence[Receipt]) -> None:
        rows = sum(r.rows for r in receipts)
        self._last_rows = time.time() if rows else self._last_rows
        self._happened("appended", position=receipts[-1].position, rows=rows)

    def _moved(self) -> None:
        """Models have moved; who has failed since is told once."""
        for model in self.directory.models.values():
            if model.failure is not None and model.id not in self._failed:
                self._failed.add(model.id)
                where = model.failure
                self._happened("failed", model=model.name, position=where.position, code=where.code)
        self._happened("moved")

    def _included(self, position: int) -> bool:
        return all(m.includes(position) for m in self.directory.models.values())

    def _hindered(self, position: int) -> str | None:
        """Why not every model will publish what includes a position; None where nothing is known to keep one from it."""
        return next((why for m in self.directory.models.values() if (why := m.blocking_reason(position))), None)

    def _refine_again(self, model: Model) -> None:
        """What a model's policy asks for; why it could not be done is in its job, or in the log."""
        model.begin_refine()
        try:
            self.refine(model.name)
        except StreamDRError as e:
            log.warning("model %s could not be refined again (%s): %s", model.name, e.code, e)

    def _refine(self, model: Model, job: Job, tol: float, max_passes: int) -> None:
        model.begin_refine()
        before = model.published
        published = refine(self.directory, model, model.freeze(), tol, max_passes, job.tell, lambda: job.cancelled)
        if published is not None and published is not before:
            self._happened("published", model=model.name, version=published.version, position=published.position)
            self._moved()
            self._models.driver.write([(model, model.freeze())])  # it may have gone on, or failed, meanwhile


_COUNTED = {"published": "publishes", "snapshot": "snapshots"}
"""What is counted of what happens, by the figures' names."""

Listener = Callable[[Facts], None]


class Listeners:
    """Callbacks, called from the engine's threads in the order they were added; one that raises disturbs no one."""

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


class Waits:
    """Futures of who waits for positions: they give None once `reached` is true of one, and what `hindered` says, where it
    says why that will not be. A future that was cancelled is forgotten. Thread-safe."""

    def __init__(self, reached: Callable[[int], bool], hindered: Callable[[int], str | None]) -> None:
        self._reached, self._hindered = reached, hindered
        self._lock = threading.Lock()
        self._waiting: dict[Future[str | None], int] = {}
        self._ended = False

    def add(self, position: int) -> "Future[str | None]":
        """A future that is done once `position` is reached or will not be, and cancelled when the waits are ended before."""
        future: Future[str | None] = Future()
        future.add_done_callback(self._forget)
        with self._lock:
            self._waiting[future] = position
        self.end() if self._ended else self.look()
        return future

    @property
    def furthest(self) -> int:
        """The last position that somebody waits for; −1 when nobody does."""
        with self._lock:
            return max(self._waiting.values(), default=-1)

    def look(self) -> None:
        """What was waited for may be true now: called after every change."""
        with self._lock:
            waiting = list(self._waiting.items())
        for future, position in waiting:
            reached = self._reached(position)
            why = None if reached else self._hindered(position)
            if (reached or why) and self._forget(future) and future.set_running_or_notify_cancel():
                future.set_result(why)

    def end(self) -> None:
        """What is not reached now will not be: those futures, and all later ones, are cancelled."""
        self._ended = True
        self.look()
        with self._lock:
            left = list(self._waiting)
        for future in left:
            future.cancel()

    def _forget(self, future: "Future[str | None]") -> bool:
        """Whether the future was still waited for."""
        with self._lock:
            return self._waiting.pop(future, None) is not None
