"""Running: threads that keep models current while batches arrive.

- The appender thread takes batches from a bounded queue and commits them to the log, many in one
  transaction. Then it completes the futures that the callers of `submit` hold.
- The model thread reads the log and lets the models learn its events.
- Thread pools run long work: solving, snapshots, refining, and models that are far behind.

Every thread reports what it has done, as an EngineEvent, to `Running._wake_and_notify`, which
wakes the other threads.

A batch is acknowledged only after it is durable in the log. Models learn only
events that are in the log. The newest of them are still in memory (`Directory.recent`).
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

from threadpoolctl import threadpool_limits

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory, Start
from stream_dr.directory.draft import Draft, DryRunReceipt, Receipt, unlearn_draft
from stream_dr.disk import free_bytes
from stream_dr.errors import CannotRefine, Overloaded, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.refining import check_has_refine
from stream_dr.models.entry import PublishPolicy, RefinePolicy
from stream_dr.models.model import Model
from stream_dr.models.snapshot_file import canonical_json
from stream_dr.models.versions import Published
from stream_dr.running.driver import Driver, EngineEvent, RunSettings, report_published
from stream_dr.running.ingest import Appender
from stream_dr.running.jobs import Job, Jobs
from stream_dr.running.model_thread import ModelThread
from stream_dr.running.recorder import Recorder
from stream_dr.running.refine import check_can_refine, refine_frozen_and_publish, refuse_while_release_served
from stream_dr.threads import new_thread_pool, shorter_switch_interval

log = logging.getLogger("stream_dr.running")

RECENT_BYTES = 32 << 20
"""Maximum number of bytes of parsed batches that wait in memory until the models learn them."""

RETRY_SECONDS = 0.1
"""Number of seconds to wait before a refine starts again without unlearned rows."""

ModelAndIsNew = tuple[Model, bool]
"""A model, and True if the model is new."""


class Running:
    """Keeps a Directory's models up to date in background threads.

    Call `start()` once and `stop()` once. Between these two calls, any thread may call the other
    methods.

    >>> import stream_dr
    >>> body = b'{"rows": [[1, 2], [3, 1], [2, 2], [4, 0]], "labels": ["a", "b", "a", "b"]}'
    >>> directory = stream_dr.Directory("running", limits=stream_dr.Limits(min_free_bytes=0))
    >>> running = stream_dr.Running(directory)
    >>> running.start()
    >>> model, new = running.add_model("lda", "lda", {})
    >>> receipt = running.submit(stream_dr.rows_draft(body, "json")).result()
    >>> running.wait_until_all_include(receipt.position, timeout=60)
    True
    >>> running.publish("lda").rows
    4
    >>> running.stop()
    >>> directory.close()
    """

    def __init__(self, directory: Directory, settings: RunSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or RunSettings()
        directory.cache_appended_drafts(RECENT_BYTES)
        self._work = new_thread_pool("work", self.settings.workers)
        self._long = new_thread_pool("long", 2 * self.settings.workers)
        self._advance = new_thread_pool("advance")

        self._listeners: list[Callable[[JsonDict], None]] = []
        self._waits = Waits(directory)
        self._appender = Appender(directory, self._on_appended)
        self._models = ModelThread(
            directory, self._new_driver, self._long, self._start_due_refine, self._on_models_advanced
        )
        self._recorder = Recorder(directory, self.scores)
        # The thread of models starts the refine that waited for the end of another one.
        self._jobs = Jobs(on_ended=self._models.wake)

        self._figures = {"publishes": 0, "snapshots": 0}
        # Names of the models whose last snapshot failed, with the error of that snapshot.
        self._snapshot_errors: dict[str, str] = {}
        self._stopping = False
        self._last_rows: float | None = None
        # Ids of the failed models whose failure was reported to the listeners.
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        # Settings of the process's threads. `stop` restores the earlier settings.
        self._limits = ExitStack()

    def start(self) -> None:
        """Start the threads.

        Models that are more than limits.max_lag events behind the log catch up in the background.
        The other models are live immediately. With `settings.warm_up`, all models catch up in the
        background, after their functions are compiled.
        """
        # The model threads use the processors, so each matrix product uses one thread.
        self._limits.enter_context(threadpool_limits(1))
        # Requests shall not wait long for a thread that learns.
        self._limits.enter_context(shorter_switch_interval())

        # No live model waits yet for slower ones, so models up to `max_lag` behind become live.
        alive = [m for m in self.directory.models.values() if m.status != "failed"]
        oldest = self.directory.position - self.directory.limits.max_lag
        near = [m for m in alive if m.position >= oldest and not self.settings.warm_up]
        for model in alive:
            self._set_default_policy(model)
            model.mark_catching_up(self.settings.warm_up)

        self._recorder.start()
        self._models.start(near)
        self._appender.start()
        self._models.submit_catch_up([m for m in alive if m not in near])

    def stop(self, max_seconds: float | None = None) -> None:
        """Finish queued work, snapshot all models and end the threads.

        - New batches are refused. Queued batches are appended to the log.
        - The models learn from the log for at most `max_seconds`, or without limit if it is None.
          They learn the rest of the log after the next start.
        - The directory stays open.
        """
        # Stop accepting work. End the threads in the order in which batches pass through them.
        self._stopping = True
        self._waits.cancel_all()
        self._jobs.cancel()
        self._appender.close()
        self._models.stop(max_seconds)
        self._long.shutdown()

        # Publish and snapshot the models, then end the other threads.
        try:
            models = self.directory.models.values()
            self._models.driver.publish_and_snapshot_all(models, lambda model: model.auto_publishes)
        finally:
            self._work.shutdown()
            self._advance.shutdown()
            self._recorder.stop()
            self._limits.close()

    def submit(self, draft: Draft) -> "Future[Receipt]":
        """Queue a draft for the log.

        A draft is a batch or an unlearn request that has no position yet. Returns a future. Its
        result is the draft's Receipt, as soon as the draft is durable in the log. If the draft is
        refused, the future raises the error.

        Raises ShuttingDown after `stop`. Raises Overloaded in two cases:

        - The queued drafts would exceed limits.max_queue_bytes.
        - A live model is more than limits.max_lag events behind the log.

        The number of seconds to wait is in the error's detail `retry_after`.
        """
        if self.lag > self.directory.limits.max_lag:
            raise Overloaded(
                f"models are {self.lag} events behind the log; at most {self.directory.limits.max_lag} are allowed "
                "(max_lag). Try again in a few seconds.",
                retry_after=2,
            )
        return self._appender.submit(draft)

    def check(self, draft: Draft) -> DryRunReceipt:
        """Check a draft without appending it to the log.

        A draft is a batch or an unlearn request that has no position yet. Returns the values that
        the draft's receipt would have. If the draft would be refused, the error is raised.
        """
        return self.directory.check(draft)

    def future_until_all_include(self, position: int) -> "Future[str | None]":
        """Return a future that waits until all models include an event.

        position: the event's position in the log.

        A model includes an event if its published projection includes the event. It is enough that
        a model has applied the event, if the model is refined, has no rows, or is published only
        on request. But no model includes an unlearn event while its projection includes the rows
        that the event removed.

        - The future's result is None when all models include the event.
        - The result is a sentence with the reason if some model will never include the event,
          because the model has failed, cannot be solved, or is published only on request.
        - The future is cancelled if `stop` is called first.

        While the future is pending, models are solved and published without pauses. The caller may
        cancel the future.
        """
        future = self._waits.add(position)
        self._wake_and_notify(EngineEvent.WAIT_ADDED)
        return future

    def wait_until_all_include(self, position: int, timeout: float) -> bool:
        """Wait until all models include an event.

        position: the event's position in the log.

        `future_until_all_include` describes when a model includes an event. Returns True when all
        models include the event. Returns False in these cases:

        - `timeout` seconds pass first.
        - `stop` is called first.
        - Some model will never include the event.
        """
        future = self.future_until_all_include(position)
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
        basis: Literal["steady"] | None = None,
    ) -> ModelAndIsNew:
        """Add a model, as Directory.add_model does.

        A new model that is far behind the log catches up in the background. Raises CannotRefine if
        `refine` has a rule and the model cannot be refined.

        Returns the model, and True if the model is new.
        """
        if refine is not None and any(refine):
            check_has_refine(make(key, params))
            known = self.directory.models.get(name)
            if known is not None:
                check_can_refine(self.directory, known)
        return self._make_live_if_new(*self.directory.add_model(name, key, params, start, policy, refine, basis))

    def add_saved(self, name: str, estimator: Any, policy: PublishPolicy | None = None) -> ModelAndIsNew:
        """Add a saved estimator as a model, as Directory.add_saved does.

        The model learns the batches that are appended from now on. Returns the model, and True if
        the model is new.
        """
        return self._make_live_if_new(*self.directory.add_saved(name, estimator, policy))

    def remove_model(self, name: str) -> None:
        """Remove a model, as Directory.remove_model does, and cancel its jobs.

        Callers that have the model's projection can go on using the projection.
        """
        model = self.directory.remove_model(name)
        self._jobs.cancel(model)
        self._snapshot_errors.pop(name, None)
        self._on_models_advanced()

    def publish(self, name: str, timeout: float = 30.0, release_name: str | None = None) -> Published:
        """Publish and snapshot a model as it is now, or a release of it.

        While a release is published, the model goes on learning and publishes nothing else, whatever
        its policy. Publishing without a release ends this. A projection that is refined, or that
        includes all learned rows, is not solved again.

        release_name: name of the release to publish. None publishes the model's state.

        Raises UnknownModel, UnknownRelease, ModelFailed, InsufficientStorage, TimeoutError, and
        NotFitted if the model has no rows or its rows have no solution.
        """
        model = self.directory.model(name)
        if model.failure is not None:
            raise model.failed_request_error(model.failure)

        # Going back and its end are durable on return.
        if release_name is not None:
            releases = self.directory.releases
            released = releases.read(model, release_name).published
            publish = partial(model.publish_release, released, releases.hold(model, release_name))
            return self._submit_durable_publish(model, publish).result(timeout)
        if model.served_release is not None:
            return self._submit_durable_publish(model, model.end_release).result(timeout)

        # Publish and snapshot the model in the thread pool, and wait for the result.
        if model.needs_publishing or not model.snapshot_has_published:
            # Snapshot the model too, so that the projection is not lost if the process is killed.
            self._models.driver.submit_publish_and_snapshot(model).result(timeout)
        if model.published is None or (model.needs_publishing and model.solving.error is not None):
            raise model.unpublished_error()
        return model.published

    def _submit_durable_publish(self, model: Model, publish: Callable[[], Published]) -> "Future[Published]":
        """Publish a model's projection and snapshot it, in the thread pool.

        publish: method of the model that publishes. The future raises its errors, and
            InsufficientStorage.
        """

        def publish_and_snapshot() -> Published:
            before = model.published
            published = publish()
            if published is not before:
                report_published(self._wake_and_notify, model, published)
            self._on_models_advanced()
            if not model.snapshot_has_published:
                self._models.driver.snapshot_and_trim_log([(model, model.freeze())])
            return published

        return self._work.submit(publish_and_snapshot)

    def snapshot(self, name: str) -> Job:
        """Write a snapshot of a model in the background.

        Returns the job. Raises UnknownModel.
        """
        model = self.directory.model(name)
        write = self._models.driver.snapshot_and_trim_log
        return self._jobs.start("snapshot", model, self._work, lambda _: write([(model, model.freeze())]))

    def refine(self, name: str, tol: float = 1e-6, max_passes: int = 20) -> Job:
        """Refine a model in the background.

        A refine computes the model's exact projection by passes over the rows in the log. The
        passes end at the tolerance `tol` or after `max_passes` passes. If a refine of the model is
        already running, the running job is returned.

        Raises UnknownModel, CannotRefine, HistoryGone.
        """
        model = self.directory.model(name)
        check_can_refine(self.directory, model)
        refuse_while_release_served(model)
        return self._start_refine(model, tol, max_passes)

    def unlearn(
        self,
        positions: Sequence[int] = (),
        ids: Sequence[str | int] = (),
        key: str | None = None,
        drop_releases: bool = False,
    ) -> "Future[Receipt]":
        """Append an event that removes learned rows from all models.

        Call `releases_of_unlearned` with the receipt's position when the future is done.

        positions: positions of events whose rows are all removed.
        ids: ids of rows to remove. The log is read to find them.
        key: idempotency key. A second request with the same key changes nothing.
        drop_releases: True to delete the releases that hold the rows, in the same transaction.

        Raises InvalidParameter, HistoryGone, DirectoryMissing.
        """
        self.directory.log.check_folder_not_replaced()
        # If the request was already appended, the log need not be searched for the rows again.
        known = key is not None and self.directory.log.find_key(key) is not None
        removal = {} if known else self.directory.history.parse_named_removal(positions, ids)
        request = canonical_json({"positions": sorted(positions), "ids": sorted(ids), "drop": drop_releases}).encode()
        return self.submit(unlearn_draft(removal, key, request, drop_releases))

    def releases_of_unlearned(self, position: int) -> list[JsonDict]:
        """Return the releases that held the rows of an unlearn event when it was appended.

        If the event dropped them, nothing of them is on disk on return.

        position: position of the event.

        Each release is a dict with the keys "model", "name" and "holds_rows".
        """
        answer = self.directory.table.unlearned_releases().get(position)
        if answer is None:
            return []
        if answer["dropped"]:
            self.directory.erase_dropped_releases()
            # A model that served one of the releases is due to be published.
            self._on_models_advanced()
            self._models.wake()
        return list(answer["releases"])

    def job(self, id: str) -> Job:
        """Return the job with this id, or raise UnknownJob."""
        return self._jobs.get(id)

    @property
    def jobs(self) -> list[Job]:
        """Unfinished jobs and the most recent ended jobs, oldest first.

        If there are more than jobs.MAX_JOBS jobs, the oldest ended jobs are forgotten.
        """
        return list(self._jobs)

    @property
    def lag(self) -> int:
        """Number of events that the slowest live model must learn."""
        return self._models.lag

    @property
    def queued_bytes(self) -> int:
        """Number of bytes of batches that wait for the log."""
        return self._appender.queued_bytes

    def refusal_reason(self) -> str | None:
        """Return why batches are refused now, or None if they are accepted."""
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
        """Register a callback, and return a function that removes it.

        The callback receives a dict for each of these events:

        - {"event": "appended", "position", "rows"}
        - {"event": "published", "model", "version", "position"}
        - {"event": "failed", "model", "position", "code"}
        - {"event": "snapshot", "model", "position"}

        The callback is called from the background threads and must return quickly. Callbacks are
        called in the order in which they were added. If one raises an error, the error is logged,
        and the next callbacks are still called.
        """
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def figures(self) -> dict[str, float]:
        """Return metrics by name.

        - Counters since the start: rows_appended, events_appended, commits, duplicates, refused,
          publishes, snapshots.
        - Current values: queued_bytes, lag.
        """
        return {**self._appender.figures, **self._figures, "queued_bytes": self.queued_bytes, "lag": self.lag}

    def health(self) -> JsonDict:
        """Return a dict of values that an operator should watch.

        reason: why batches are refused now, or None.
        free_bytes: number of free bytes on the disk.
        min_free_bytes: number of free bytes below which batches are refused.
        last_rows: time of the last batch since the start, in seconds since 1970, or None.
        snapshot_errors: dict from a model's name to the error of its last snapshot, for models
            whose last snapshot failed.
        """
        return {
            "reason": self.refusal_reason(),
            "free_bytes": free_bytes(self.directory.path),
            "min_free_bytes": self.directory.limits.min_free_bytes,
            "last_rows": self._last_rows,
            "snapshot_errors": dict(self._snapshot_errors),
        }

    def can_refine(self, model: Model) -> bool:
        """Return True if a model can be refined.

        A model can be refined if its method supports refining, and if the log still contains all
        rows that the model has learned.
        """
        try:
            check_can_refine(self.directory, model)
            refuse_while_release_served(model)
        except StreamDRError:
            return False
        return True

    def scores(self, model: Model) -> JsonDict:
        """Return scores of a model's predictions on new rows.

        The model has not learned these rows when they are predicted.

        The keys of the dict are described in `TestThenTrain.scores`. The dict is empty if the
        model was not tested.
        """
        return self._models.driver.scores(model)

    def _new_driver(self) -> Driver:
        """Return a driver that works in this object's thread pools."""
        awaited = self._waits.furthest_awaited
        return Driver(self.directory, self.settings, self._advance, self._work, self._wake_and_notify, awaited)

    def _wake_and_notify(self, event: EngineEvent, **details: int | str) -> None:
        """Wake the threads and call the listeners for an event."""
        # Wake the model thread, to learn appended batches and to start due solutions or snapshots.
        if event in _WAKING:
            self._models.wake()

        # Record the models' figures, and complete the futures of callers that wait for the models.
        if event in (EngineEvent.MODELS_MOVED, EngineEvent.SOLVING_ENDED):
            self._recorder.woken.set()
            self._waits.complete_known_futures()

        # Call the listeners.
        if event in (EngineEvent.APPENDED, EngineEvent.PUBLISHED, EngineEvent.SNAPSHOT, EngineEvent.FAILED):
            for callback in list(self._listeners):
                try:
                    callback({"event": event.value, **details})
                except Exception:
                    log.exception("a listener failed")

        # Store the values that `health` and `figures` return.
        if event is EngineEvent.SNAPSHOT_FAILED:
            self._snapshot_errors[str(details["model"])] = str(details["reason"])
        elif event is EngineEvent.SNAPSHOT:
            self._snapshot_errors.pop(str(details["model"]), None)

        if event in _COUNTED:
            self._figures[_COUNTED[event]] += 1

    def _make_live_if_new(self, model: Model, is_new: bool) -> ModelAndIsNew:
        """Make a new model live, after it has caught up.

        The model becomes live, that is, it learns each new event together with the other live
        models. If the model is far behind the end of the log, it first learns earlier events
        alone. With `settings.warm_up`, its functions are compiled before. A model that is not new
        is left as it is. Returns the arguments.
        """
        if is_new:
            self._set_default_policy(model)
            model.mark_catching_up(self.settings.warm_up)
            if self.settings.warm_up or self._models.make_near_models_live([model]):
                self._models.submit_catch_up([model])
        # The model's policies may have changed, so work may be due now.
        self._models.wake()
        return model, is_new

    def _set_default_policy(self, model: Model) -> None:
        """Give a model without publish policy the default policy."""
        if model.policy is None:
            model.replace_given_policies(self.settings.publish, None)

    def _on_appended(self, receipts: Sequence[Receipt]) -> None:
        """Report that events were appended to the log."""
        rows = sum(r.rows for r in receipts)
        self._last_rows = time.time() if rows else self._last_rows
        self._wake_and_notify(EngineEvent.APPENDED, position=receipts[-1].position, rows=rows)

    def _on_models_advanced(self) -> None:
        """Report that models have applied events, and report new failures."""
        for model in self.directory.models.values():
            if model.failure is not None and model.id not in self._failed:
                self._failed.add(model.id)
                position = model.failure.position
                code = model.failure.code
                self._wake_and_notify(EngineEvent.FAILED, model=model.name, position=position, code=code)
        self._wake_and_notify(EngineEvent.MODELS_MOVED)

    def _start_due_refine(self, model: Model) -> None:
        """Start a refine that nobody has requested, unless one is running."""
        if not self._stopping:
            model.note_refine_start()
            self._start_refine(model)

    def _start_refine(self, model: Model, tol: float = 1e-6, max_passes: int = 20) -> Job:
        """Start a refine of a model, or return the running one."""
        work = partial(self._refine_and_snapshot, model, tol, max_passes)
        return self._jobs.start("refine", model, self._long, work, reuse_running=True)

    def _refine_and_snapshot(self, model: Model, tol: float, max_passes: int, job: Job) -> None:
        """Refine a model, and snapshot a newly published projection.

        If this fails or is cancelled after rows were unlearned, the solution of one pass is
        published.
        """
        previous = model.published
        refined = None
        try:
            refined = self._refine_current(model, tol, max_passes, job)
        finally:
            is_new = refined is not None and refined is not previous
            if not is_new and model.must_refine_again and not self._stopping:
                refined = model.replace_refined()
                is_new = True
            if is_new:
                # The projection is None if it was withdrawn.
                if refined is not None:
                    report_published(self._wake_and_notify, model, refined)
                self._on_models_advanced()
                # Snapshot the present state, because the model may have learned rows meanwhile.
                self._models.driver.snapshot_and_trim_log([(model, model.freeze())])

    def _refine_current(self, model: Model, tol: float, max_passes: int, job: Job) -> Published | None:
        """Refine a model until no rows are unlearned meanwhile.

        Returns None if the job is cancelled.
        """

        def should_cancel() -> bool:
            return self._stopping or job.cancel_requested

        while not should_cancel():
            model.note_refine_start()
            frozen = model.freeze()
            refined = refine_frozen_and_publish(
                self.directory, model, frozen, tol, max_passes, job.report, should_cancel
            )
            if refined is not None:
                return refined

            # A rebuild may need this thread of the pool.
            if model.status == "catching_up" and not should_cancel():
                raise CannotRefine(
                    f"rows that model {model.name!r} has learned were unlearned, and it is being rebuilt without them. "
                    "Refine it again when its state is live."
                )
            # The thread of models has to apply the unlearn event.
            time.sleep(RETRY_SECONDS)
        return None


_WAKING = (EngineEvent.APPENDED, EngineEvent.SOLVING_ENDED, EngineEvent.SNAPSHOTS_ENDED, EngineEvent.WAIT_ADDED)
"""Events after which the model thread may have work."""

_COUNTED = {EngineEvent.PUBLISHED: "publishes", EngineEvent.SNAPSHOT: "snapshots"}
"""Events that are counted, each with the name of its counter in `Running.figures`."""


class Waits:
    """Futures of callers that wait for positions of the log.

    All threads may call the methods.

    A future's result is None when the models have reached its position. If the models will never
    reach the position, the result is a sentence with the reason.

    directory: directory of the models.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._waiting: dict[Future[str | None], int] = {}
        self._ended = False

    def add(self, position: int) -> "Future[str | None]":
        """Return a new future that waits for `position`."""
        future: Future[str | None] = Future()
        future.add_done_callback(self._discard)
        with self._lock:
            self._waiting[future] = position
        self.cancel_all() if self._ended else self.complete_known_futures()
        return future

    def furthest_awaited(self) -> int:
        """Return the last position that a caller waits for, or −1."""
        with self._lock:
            return max(self._waiting.values(), default=-1)

    def complete_known_futures(self) -> None:
        """Complete the futures whose result is known.

        The result is known if the position is reached or will never be reached.

        This method must be called when models have applied events, published or failed.
        """
        with self._lock:
            waiting = list(self._waiting.items())
        for future, position in waiting:
            models = self._directory.models.values()
            reached = all(m.is_published_up_to(position) for m in models)
            reason = (
                None if reached else next((why for m in models if (why := m.reason_not_publishable(position))), None)
            )
            if (reached or reason) and self._discard(future) and future.set_running_or_notify_cancel():
                future.set_result(reason)

    def cancel_all(self) -> None:
        """Cancel all futures, because no more events will be applied.

        A future is completed instead if its result is known now. Futures that are added later are
        cancelled or completed in the same way.
        """
        self._ended = True
        self.complete_known_futures()
        with self._lock:
            unresolved = list(self._waiting)
        for future in unresolved:
            future.cancel()

    def _discard(self, future: "Future[str | None]") -> bool:
        """Remove a future. Return False if it was already removed."""
        with self._lock:
            return self._waiting.pop(future, None) is not None
