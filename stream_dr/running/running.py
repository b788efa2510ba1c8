"""Running: the threads that keep a directory's models current while batches arrive.

The appender takes drafts from a bounded queue, admits them in order, commits each group in one
transaction and answers their futures. The model thread reads the log and calls the driver of the
live models. Pools solve and snapshot, catch up and refine. All of them report what happens to
`Running._handle`, which wakes whoever must act on it.

The log is the queue between the two threads. Nothing is acknowledged before it is durable, and
nothing is learned that is not in the log.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Any

from threadpoolctl import threadpool_limits

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory, Start
from stream_dr.directory.draft import Draft, DryRunReceipt, Receipt, unlearn_draft
from stream_dr.directory.records import Recorder
from stream_dr.disk import free_bytes
from stream_dr.errors import Overloaded, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.refining import check_method
from stream_dr.models.entry import PublishPolicy, RefinePolicy
from stream_dr.models.model import Model
from stream_dr.models.snapshot_file import canonical_json
from stream_dr.models.versions import Published
from stream_dr.running.driver import Driver, EngineEvent, RunSettings
from stream_dr.running.ingest import Appender
from stream_dr.running.jobs import Job, Jobs
from stream_dr.running.model_thread import ModelThread
from stream_dr.running.refine import check_model, refine_frozen
from stream_dr.threads import fast_switching, thread_pool

log = logging.getLogger("stream_dr.running")

RECENT_BYTES = 32 << 20
"""Maximum bytes of appended batches to hold in memory, parsed, until the models learn them."""


class Running:
    """Keeps a Directory's models up to date in threads of its own.

    Call `start()` once and `stop()` once. All other methods may be called from any thread in
    between.

    >>> import stream_dr
    >>> body = b'{"rows": [[1, 2], [3, 1], [2, 2], [4, 0]], "labels": ["a", "b", "a", "b"]}'
    >>> directory = stream_dr.Directory("running", limits=stream_dr.Limits(min_free_bytes=0))
    >>> running = stream_dr.Running(directory)
    >>> running.start()
    >>> model, new = running.add_model("lda", "lda", {})
    >>> receipt = running.submit(stream_dr.rows_draft(body, "json")).result()
    >>> running.wait_applied(receipt.position, timeout=60)
    True
    >>> running.publish("lda").rows
    4
    >>> running.stop()
    >>> directory.close()
    """

    def __init__(self, directory: Directory, settings: RunSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or RunSettings()
        directory.hold_recent(RECENT_BYTES)
        self._work = thread_pool("work", self.settings.workers)
        self._long = thread_pool("long", 2 * self.settings.workers)
        self._advance = thread_pool("advance")

        self._listeners = Listeners()
        self._waits = Waits(self._included, self._blocking_reason)
        self._appender = Appender(directory, self._on_appended)
        self._models = ModelThread(directory, self._new_driver, self._long, self._refine_again, self._on_moved)
        self._recorder = Recorder(directory, self.scores)
        self._jobs = Jobs()

        self._figures = {"publishes": 0, "snapshots": 0}
        # By name, models whose last snapshot could not be written.
        self._snapshot_errors: dict[str, str] = {}
        self._stopping = False
        self._last_rows: float | None = None
        # Ids of the models whose failure was reported.
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        # Limits of the process that apply while it runs.
        self._limits = ExitStack()

    def start(self) -> None:
        """Start the threads.

        Models too far behind the log are backfilled. The others are advanced as they are.
        """
        self._limits.enter_context(threadpool_limits(1))
        self._limits.enter_context(fast_switching())

        alive = [m for m in self.directory.models.values() if m.status != "failed"]
        near = [m for m in alive if self.directory.position - m.position <= self.directory.limits.max_lag]
        for model in alive:
            self._set_default_policy(model)

        self._recorder.start()
        self._models.start(near)
        self._appender.start()
        self._models.submit_catch_up([m for m in alive if m not in near])

    def stop(self, seconds: float | None = None) -> None:
        """Append the drafts in the queue, apply the log, snapshot every model, end the threads.

        New drafts are refused. The log is applied for at most `seconds`, and the rest of it after
        the next start. The directory stays open.
        """
        self._stopping = True
        self._waits.cancel_all()
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
            self._limits.close()

    def submit(self, draft: Draft) -> "Future[Receipt]":
        """Queue a draft.

        The future gives its Receipt once it is durable, or raises the error that refused it.

        Raises Overloaded (details: retry_after, in seconds) if waiting bodies exceed
        limits.max_queue_bytes or a live model is more than limits.max_lag events behind. Raises
        ShuttingDown after `stop`.
        """
        if self.lag > self.directory.limits.max_lag:
            raise Overloaded(
                f"models are {self.lag} events behind the log; at most {self.directory.limits.max_lag} are allowed "
                "(max_lag). Try again in a few seconds.",
                retry_after=2,
            )
        return self._appender.submit(draft)

    def check(self, draft: Draft) -> DryRunReceipt:
        """Return what the draft's receipt would say, or raise the error that would refuse it."""
        return self.directory.check(draft)

    def applied(self, position: int) -> "Future[str | None]":
        """Return a future of the moment when every model publishes a projection with `position`.

        Models without any row and refined ones only have to apply it. The future gives

        - None once all models have,
        - at once a reason, if a model has failed or cannot be solved.

        It is cancelled if the engine stops first. While it waits, models publish as soon as they
        have applied the position. A future that the caller cancels is dropped.
        """
        future = self._waits.add(position)
        self._handle(EngineEvent.WAIT_ADDED)
        return future

    def wait_applied(self, position: int, timeout: float) -> bool:
        """Return True once every model publishes a projection that includes `position`.

        Returns False after `timeout` seconds, if the engine stops, or at once if a model cannot
        (`applied`).
        """
        future = self.applied(position)
        wait([future], timeout)
        return not future.cancel() and not future.cancelled() and future.result() is None

    def add_model(
        self,
        name: str,
        key: str,
        params: JsonDict,
        start: Start = "start",
        policy: PublishPolicy | None = None,
        refine: RefinePolicy | None = None,
    ) -> tuple[Model, bool]:
        """Add a model, as Directory.add_model. A new model that is far behind is backfilled.

        Raises CannotRefine for a refine policy of a model that cannot be refined.
        """
        if refine is not None and any(refine):
            check_method(make(key, params))
            known = self.directory.models.get(name)
            if known is not None:
                check_model(self.directory, known)
        return self._join_or_backfill(*self.directory.add_model(name, key, params, start, policy, refine))

    def add_saved(self, name: str, estimator: Any, policy: PublishPolicy | None = None) -> tuple[Model, bool]:
        """Add a saved estimator, as Directory.add_saved.

        It goes on with the next batch.
        """
        return self._join_or_backfill(*self.directory.add_saved(name, estimator, policy))

    def remove_model(self, name: str) -> None:
        """Remove a model, as Directory.remove_model, and cancel its jobs.

        Readers may go on using its projection.
        """
        model = self.directory.remove_model(name)
        self._jobs.cancel(model)
        self._snapshot_errors.pop(name, None)
        self._on_moved()

    def publish(self, name: str, timeout: float = 30.0) -> Published:
        """Solve, publish and snapshot a model as it is now.

        A projection that includes all its rows already, or was refined, stays. Raises
        UnknownModel, ModelFailed, NotFitted (also if its rows have no solution), TimeoutError.
        """
        model = self.directory.model(name)
        if model.failure is not None:
            raise model.failure_error(model.failure)
        if model.stale or not model.is_snapshotted:
            # The snapshot keeps the projection after a kill.
            self._models.driver.submit_publish_and_snapshot(model).result(timeout)
        if model.published is None or (model.stale and model.solving.error is not None):
            raise model.unpublished_error()
        return model.published

    def snapshot(self, name: str) -> Job:
        """Snapshot a model in the background. Raises UnknownModel."""
        model = self.directory.model(name)
        write = self._models.driver.write_snapshots
        return self._jobs.start("snapshot", model, self._work, lambda _: write([(model, model.freeze())]))

    def refine(self, name: str, tol: float = 1e-6, max_passes: int = 20) -> Job:
        """Refine a model in the background over the log up to its position.

        If the model is being refined already, that job is returned. Raises UnknownModel,
        CannotRefine, HistoryGone.
        """
        model = self.directory.model(name)
        check_model(self.directory, model)
        return self._jobs.start(
            "refine", model, self._long, lambda job: self._refine(model, job, tol, max_passes), exclusive=True
        )

    def unlearn(
        self, positions: Sequence[int] = (), ids: Sequence[str | int] = (), key: str | None = None
    ) -> "Future[Receipt]":
        """Append an event that takes rows out again.

        A repetition under the same key changes nothing. Looking ids up reads the log. Raises
        InvalidParameter, HistoryGone.
        """
        known = key is not None and self.directory.log.find_key(key) is not None
        picked = {} if known else self.directory.history.pick(positions, ids)
        request = canonical_json({"positions": sorted(positions), "ids": sorted(ids)}).encode()
        return self.submit(unlearn_draft(picked, key, request))

    def job(self, id: str) -> Job:
        """Return the job with this id, or raise UnknownJob."""
        return self._jobs.get(id)

    @property
    def jobs(self) -> list[Job]:
        """Jobs that can be looked up, oldest first.

        At most jobs.JOBS_KEPT that have ended.
        """
        return list(self._jobs)

    @property
    def lag(self) -> int:
        """Number of events that some live model has not applied."""
        return self._models.lag

    @property
    def queued_bytes(self) -> int:
        """Number of bytes of queued bodies that are not yet durable."""
        return self._appender.queued_bytes

    def ready(self) -> str | None:
        """Return why no batch can be taken, as a sentence, or None."""
        if self._stopping:
            return "the engine is stopping"
        if self.directory.log.displaced is not None:
            return str(self.directory.log.displaced)
        free = free_bytes(self.directory.path)
        needed = self.directory.limits.min_free_bytes
        if free < needed:
            return f"{free} bytes free on the disk, {needed} needed (min_free_bytes)"
        return None

    def listen(self, callback: Callable[[JsonDict], None]) -> Callable[[], None]:
        """Call `callback` on each of these events, and return a function that ends it.

        - {"event": "appended", "position", "rows"}
        - {"event": "published", "model", "version", "position"}
        - {"event": "failed", "model", "position", "code"}
        - {"event": "snapshot", "model", "position"}

        It is called from engine threads and must return at once.
        """
        return self._listeners.add(callback)

    def figures(self) -> dict[str, float]:
        """Return counters and gauges since start, under stable names.

        They are rows_appended, events_appended, commits, duplicates, refused, publishes,
        snapshots, queued_bytes and lag.
        """
        return {**self._appender.figures, **self._figures, "queued_bytes": self.queued_bytes, "lag": self.lag}

    def health(self) -> JsonDict:
        """Return what an operator should watch.

        reason: why no batch is taken, or None.
        free_bytes, min_free_bytes: of the disk.
        last_rows: time of the last appended rows since start, in seconds since 1970, or None.
        snapshot_errors: error of the last snapshot of models, by name.
        """
        return {
            "reason": self.ready(),
            "free_bytes": free_bytes(self.directory.path),
            "min_free_bytes": self.directory.limits.min_free_bytes,
            "last_rows": self._last_rows,
            "snapshot_errors": dict(self._snapshot_errors),
        }

    def refinable(self, model: Model) -> bool:
        """Return True if a model can be refined.

        Its method must have an out-of-core solution, and the log must hold what it learned.
        """
        try:
            check_model(self.directory, model)
        except StreamDRError:
            return False
        return True

    def scores(self, model: Model) -> JsonDict:
        """Return {"accuracy", "baseline", "tested", "confusion"} of a model by test-then-train.

        Empty if the model was not tested.
        """
        return self._models.driver.scores(model)

    def _new_driver(self) -> Driver:
        """Return a driver of some of the models."""
        return Driver(
            self.directory, self.settings, self._advance, self._work, self._handle, lambda: self._waits.furthest
        )

    def _handle(self, event: EngineEvent, **details: int | str) -> None:
        """Wake whoever must act on an event."""
        # The end of a solution or a snapshot may make another one due.
        if event in (
            EngineEvent.APPENDED, EngineEvent.SOLVING_ENDED, EngineEvent.CHECKPOINT_ENDED, EngineEvent.WAIT_ADDED
        ):  # fmt: skip
            self._models.wake()

        if event in (EngineEvent.MODELS_MOVED, EngineEvent.SOLVING_ENDED):
            self._recorder.woken.set()
            self._waits.resolve()

        if event in (EngineEvent.APPENDED, EngineEvent.PUBLISHED, EngineEvent.SNAPSHOT, EngineEvent.FAILED):
            self._listeners.notify(event, **details)

        if event is EngineEvent.SNAPSHOT_FAILED:
            self._snapshot_errors[str(details["model"])] = str(details["reason"])
        elif event is EngineEvent.SNAPSHOT:
            self._snapshot_errors.pop(str(details["model"]), None)

        if event in _COUNTED:
            self._figures[_COUNTED[event]] += 1

    def _join_or_backfill(self, model: Model, new: bool) -> tuple[Model, bool]:
        """Let a new model join the live ones. Backfill it if it is far behind."""
        if new:
            self._set_default_policy(model)
            model.catch_up()
            if self._models.join([model]):
                self._models.submit_catch_up([model])
        self._handle(EngineEvent.WAIT_ADDED)
        return model, new

    def _set_default_policy(self, model: Model) -> None:
        """Give a model without a policy of its own that of the settings."""
        if model.policy is None:
            model.set_policies(self.settings.publish, None)

    def _on_appended(self, receipts: Sequence[Receipt]) -> None:
        rows = sum(r.rows for r in receipts)
        self._last_rows = time.time() if rows else self._last_rows
        self._handle(EngineEvent.APPENDED, position=receipts[-1].position, rows=rows)

    def _on_moved(self) -> None:
        """Report that models have moved, and each new failure once."""
        for model in self.directory.models.values():
            if model.failure is not None and model.id not in self._failed:
                self._failed.add(model.id)
                failure = model.failure
                self._handle(EngineEvent.FAILED, model=model.name, position=failure.position, code=failure.code)
        self._handle(EngineEvent.MODELS_MOVED)

    def _included(self, position: int) -> bool:
        """Return True if every model's projection includes the position."""
        return all(m.includes(position) for m in self.directory.models.values())

    def _blocking_reason(self, position: int) -> str | None:
        """Return why some model will never publish what includes `position`, or None."""
        return next((why for m in self.directory.models.values() if (why := m.blocking_reason(position))), None)

    def _refine_again(self, model: Model) -> None:
        """Start the refine that a model's policy asks for.

        Errors are in its job or logged.
        """
        model.begin_refine()
        try:
            self.refine(model.name)
        except StreamDRError as e:
            log.warning("model %s could not be refined again (%s): %s", model.name, e.code, e)

    def _refine(self, model: Model, job: Job, tol: float, max_passes: int) -> None:
        """Refine a model, and snapshot it if that has published a projection."""
        model.begin_refine()
        previous = model.published
        published = refine_frozen(
            self.directory, model, model.freeze(), tol, max_passes, job.report, lambda: job.cancel_requested
        )
        if published is not None and published is not previous:
            self._handle(
                EngineEvent.PUBLISHED, model=model.name, version=published.version, position=published.position
            )
            self._on_moved()
            # The model may have learned more, or failed, meanwhile, so freeze it again.
            self._models.driver.write_snapshots([(model, model.freeze())])


_COUNTED = {EngineEvent.PUBLISHED: "publishes", EngineEvent.SNAPSHOT: "snapshots"}
"""Names of the counters of events."""

Listener = Callable[[JsonDict], None]


class Listeners:
    """Callbacks, called from the engine's threads in the order they were added.

    An error of one does not affect the others.
    """

    def __init__(self) -> None:
        self._callbacks: list[Listener] = []

    def add(self, callback: Listener) -> Callable[[], None]:
        """Add a callback. Return a function that removes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def notify(self, event: EngineEvent, **details: int | str) -> None:
        """Call all callbacks with {"event": event, …}."""
        for callback in list(self._callbacks):
            try:
                callback({"event": event.value, **details})
            except Exception:
                log.exception("a listener failed")


class Waits:
    """Futures of callers that wait for positions. Thread-safe.

    A future gives None once its position is reached, or the reason why it never will be. A future
    that was cancelled is dropped.

    Parameters
    ----------
    reached : callable
        Returns True if a position is reached.
    blocking_reason : callable
        Returns why a position will never be reached, or None if no reason is known.
    """

    def __init__(self, reached: Callable[[int], bool], blocking_reason: Callable[[int], str | None]) -> None:
        self._reached = reached
        self._blocking_reason = blocking_reason
        self._lock = threading.Lock()
        self._waiting: dict[Future[str | None], int] = {}
        self._ended = False

    def add(self, position: int) -> "Future[str | None]":
        """Return a future of `position`.

        `cancel_all` cancels it if it is not done.
        """
        future: Future[str | None] = Future()
        future.add_done_callback(self._discard)
        with self._lock:
            self._waiting[future] = position
        self.cancel_all() if self._ended else self.resolve()
        return future

    @property
    def furthest(self) -> int:
        """Last position that a caller waits for, or −1."""
        with self._lock:
            return max(self._waiting.values(), default=-1)

    def resolve(self) -> None:
        """Resolve the futures that can be. Called after every change."""
        with self._lock:
            waiting = list(self._waiting.items())
        for future, position in waiting:
            reached = self._reached(position)
            reason = None if reached else self._blocking_reason(position)
            if (reached or reason) and self._discard(future) and future.set_running_or_notify_cancel():
                future.set_result(reason)

    def cancel_all(self) -> None:
        """Cancel all futures that cannot be resolved now, and all later ones."""
        self._ended = True
        self.resolve()
        with self._lock:
            unresolved = list(self._waiting)
        for future in unresolved:
            future.cancel()

    def _discard(self, future: "Future[str | None]") -> bool:
        """Remove a future. Return False if it was removed before."""
        with self._lock:
            return self._waiting.pop(future, None) is not None
