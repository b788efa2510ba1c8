"""Jobs: long work in the background (refine, snapshot) with progress and cancel."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from stream_dr.errors import StreamDRError, UnknownJob
from stream_dr.models.model import Model
from stream_dr.models.schema import Facts

log = logging.getLogger("stream_dr.jobs")

JOBS_KEPT = 1_000
"""Jobs that can be asked for; of more, those that ended first are forgotten."""


class Job:
    """One piece of long work.

    id, kind ("refine", "snapshot"), of (the Model, until it ends), model (its name), state ("waiting", "running",
    "done", "failed", "cancelled"), progress (JSON-able dict, replaced as a whole), error ({"code", "message"} or None).
    """

    def __init__(self, id: str, kind: str, of: Model) -> None:
        self.id, self.kind, self.model = id, kind, of.name
        self.of: Model | None = of
        self.state = "waiting"
        self.progress: Facts = {}
        self.error: dict[str, str] | None = None
        self._cancel = threading.Event()
        self._ended = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return self._cancel.is_set()

    @property
    def ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self._ended.is_set()

    def cancel(self) -> None:
        """Ask it to stop at its next safe point; an ended job stays what it is."""
        self._cancel.set()

    def run(self, work: Callable[["Job"], None], after: "Job | None" = None) -> None:
        """Do the work in this thread, once `after` has ended; its end, error or cancellation becomes the job's state."""
        if after is not None:
            after.wait()
        self.state = "running"
        try:
            if not self.cancelled:
                work(self)
            self.state = "cancelled" if self.cancelled else "done"
        except StreamDRError as e:
            self.state, self.error = "failed", {"code": e.code, "message": str(e)}
        except Exception as e:
            log.exception("job %s (%s of %s) failed", self.id, self.kind, self.model)
            self.state, self.error = "failed", {"code": "internal", "message": type(e).__name__}
        finally:
            self.of = None  # one that was removed meanwhile is not held
            self._ended.set()

    def tell(self, facts: Facts) -> None:
        """How far it is."""
        self.progress = {**self.progress, **facts}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; False when the timeout came first."""
        return self._ended.wait(timeout)

    def describe(self) -> Facts:
        """All that is told about it, JSON-able."""
        return {name: getattr(self, name) for name in ("id", "kind", "model", "state", "progress", "error")}


class Jobs:
    """The jobs of a running directory, oldest first; at most KEPT beside those still under way."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def begin(self, kind: str, model: Model, pool: Executor, work: Callable[[Job], None], alone: bool = False) -> Job:
        """Do work for a model in the pool.

        alone: where one of this kind is under way for the model, that one is answered, and one that was cancelled ends
        before the new one begins.
        """
        with self._lock:
            before = self._under_way(kind, model) if alone else None
            if before is not None and not before.cancelled:
                return before
            job = Job(uuid.uuid4().hex, kind, model)
            self._jobs[job.id] = job
            ended = [j.id for j in self._jobs.values() if j.ended]
            for id in ended[: max(0, len(self._jobs) - JOBS_KEPT)]:
                del self._jobs[id]
        pool.submit(job.run, work, before)
        return job

    def _under_way(self, kind: str, model: Model) -> Job | None:
        found = (j for j in reversed(self._jobs.values()) if j.kind == kind and j.of is model and not j.ended)
        return next(found, None)

    def get(self, id: str) -> Job:
        """A job by its id. Raises UnknownJob."""
        job = self._jobs.get(id)
        if job is None:
            raise UnknownJob(
                f"no job has the id {id!r}; the last {JOBS_KEPT} are known, and none from before the service was started."
            )
        return job

    def cancel(self, model: Model | None = None) -> None:
        """Ask every job to stop, or every one of a model."""
        for job in self:
            if model is None or job.of is model:
                job.cancel()

    def __iter__(self) -> Iterator[Job]:
        with self._lock:
            return iter(list(self._jobs.values()))
