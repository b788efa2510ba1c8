"""Jobs: long work in the background (refine, snapshot) with progress and cancel."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from stream_dr.aliases import JsonDict
from stream_dr.errors import StreamDRError, UnknownJob
from stream_dr.models.model import Model

log = logging.getLogger("stream_dr.jobs")

JOBS_KEPT = 1_000
"""Maximum number of jobs that can be looked up.

The oldest ended jobs are dropped first.
"""


class Job:
    """Long work on one model, run in a background thread.

    Attributes
    ----------
    id : str
        Random identifier.
    kind : str
        "refine" or "snapshot".
    model : str
        Name of the model.
    target : Model or None
        The model, until the job ends.
    state : str
        "waiting", "running", "done", "failed" or "cancelled".
    progress : dict
        JSON-able progress report. It is replaced as a whole, so readers need no lock.
    error : dict or None
        `{"code": …, "message": …}` if the job failed.

    Examples
    --------
    >>> import stream_dr  # running, directory and model are those of the example of Running
    >>> job = running.snapshot("lda")
    >>> job.kind, job.model
    ('snapshot', 'lda')
    """

    def __init__(self, id: str, kind: str, target: Model) -> None:
        self.id = id
        self.kind = kind
        self.model = target.name
        self.target: Model | None = target

        self.state = "waiting"
        self.progress: JsonDict = {}
        self.error: dict[str, str] | None = None

        self._cancel_requested = threading.Event()
        self._ended = threading.Event()

    @property
    def cancel_requested(self) -> bool:
        """True if the job was asked to stop."""
        return self._cancel_requested.is_set()

    @property
    def has_ended(self) -> bool:
        """True if the job is done, failed or cancelled."""
        return self._ended.is_set()

    def cancel(self) -> None:
        """Ask the job to stop at its next safe point.

        An ended job does not change.
        """
        self._cancel_requested.set()

    def run(self, work: Callable[["Job"], None], after: "Job | None" = None) -> None:
        """Run `work` in this thread and record how it ended.

        If `after` is given, wait for that job to end first.
        """
        if after is not None:
            after.wait()

        self.state = "running"
        try:
            if not self.cancel_requested:
                work(self)
            self.state = "cancelled" if self.cancel_requested else "done"

        except StreamDRError as e:
            self.state = "failed"
            self.error = {"code": e.code, "message": str(e)}

        except Exception as e:
            # Clients must not see the text of an unexpected error. It may hold data of others.
            log.exception("job %s (%s of %s) failed", self.id, self.kind, self.model)
            self.state = "failed"
            self.error = {"code": "internal", "message": type(e).__name__}

        finally:
            # Drop the reference, so that a model removed meanwhile can be freed.
            self.target = None
            self._ended.set()

    def report(self, progress: JsonDict) -> None:
        """Update the progress report with these fields."""
        self.progress = {**self.progress, **progress}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job ends. Return False if `timeout` seconds passed first."""
        return self._ended.wait(timeout)

    def describe(self) -> JsonDict:
        """Return the job's public attributes, JSON-able."""
        return {name: getattr(self, name) for name in ("id", "kind", "model", "state", "progress", "error")}


class Jobs:
    """All jobs of a running directory, oldest first.

    Holds every job that has not ended, and at most `most` in total beyond those.
    """

    def __init__(self, most: int = JOBS_KEPT) -> None:
        self._most = most
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(
        self, kind: str, model: Model, pool: Executor, work: Callable[[Job], None], exclusive: bool = False
    ) -> Job:
        """Run `work` on a model in the pool and return its job.

        exclusive: if a job of this kind has not ended for the model, return that job instead of a
        new one. If that job was asked to stop, the new job starts once it has ended.
        """
        with self._lock:
            previous = self._unfinished(kind, model) if exclusive else None
            if previous is not None and not previous.cancel_requested:
                return previous

            job = Job(uuid.uuid4().hex, kind, model)
            self._jobs[job.id] = job
            ended = [j.id for j in self._jobs.values() if j.has_ended]
            for id in ended[: max(0, len(self._jobs) - self._most)]:
                del self._jobs[id]

        pool.submit(job.run, work, previous)
        return job

    def _unfinished(self, kind: str, model: Model) -> Job | None:
        """Return the newest job of this kind for the model that has not ended, or None."""
        jobs = (j for j in reversed(self._jobs.values()) if j.kind == kind and j.target is model and not j.has_ended)
        return next(jobs, None)

    def get(self, id: str) -> Job:
        """Return the job with this id, or raise UnknownJob."""
        job = self._jobs.get(id)
        if job is None:
            raise UnknownJob(
                f"no job has the id {id!r}; the last {self._most} are known, and none from before the service was started."
            )
        return job

    def cancel(self, model: Model | None = None) -> None:
        """Ask all jobs of a model to stop, or all jobs if no model is given."""
        for job in self:
            if model is None or job.target is model:
                job.cancel()

    def __iter__(self) -> Iterator[Job]:
        with self._lock:
            return iter(list(self._jobs.values()))
