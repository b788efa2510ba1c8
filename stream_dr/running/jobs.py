"""Jobs: refines and snapshots in the background, which can be cancelled."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Literal

from stream_dr.aliases import JsonDict
from stream_dr.errors import StreamDRError, UnknownJob
from stream_dr.models.model import Model

log = logging.getLogger("stream_dr.jobs")

JobKind = Literal["refine", "snapshot"]
JobState = Literal["waiting", "running", "done", "failed", "cancelled"]

MAX_JOBS = 1_000
"""Number of jobs above which the oldest ended jobs are forgotten."""


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
        The model object. None once the job has ended.
    state : str
        "waiting", "running", "done", "failed" or "cancelled".
    progress : dict
        Latest progress report, which can be written as JSON. Each report is a new dict, so readers
        need no lock.
    error : dict or None
        `{"code": …, "message": …}` if the job failed.

    Examples
    --------
    The example uses `running` from the example of Running.

    >>> import stream_dr
    >>> job = running.snapshot("lda")
    >>> job.kind, job.model
    ('snapshot', 'lda')
    """

    def __init__(self, id: str, kind: JobKind, target: Model) -> None:
        self.id = id
        self.kind = kind
        self.model = target.name
        self.target: Model | None = target

        self.state: JobState = "waiting"
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

        Nothing happens if the job has already ended.
        """
        self._cancel_requested.set()

    def run(self, work: Callable[["Job"], None], previous_job: "Job | None" = None) -> None:
        """Run the job's work, and record how the work ended.

        work: function that does the work. It receives this job, so that it can report progress and
            see a request to stop.
        previous_job: another job that must end before this job starts, or None.
        """
        if previous_job is not None:
            previous_job.wait()

        self.state = "running"
        try:
            if not self.cancel_requested:
                work(self)
            self.state = "cancelled" if self.cancel_requested else "done"

        except StreamDRError as e:
            self.state = "failed"
            self.error = {"code": e.code, "message": str(e)}

        except Exception as e:
            # The text of an unexpected error may contain private data, so clients do not get it.
            log.exception("job %s (%s of %s) failed", self.id, self.kind, self.model)
            self.state = "failed"
            self.error = {"code": "internal", "message": type(e).__name__}

        finally:
            # Drop the reference, so that the memory of a removed model can be freed.
            self.target = None
            self._ended.set()

    def report(self, progress: JsonDict) -> None:
        """Add fields to the progress report, or replace their values."""
        self.progress = {**self.progress, **progress}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job ends, and return True.

        Returns False if `timeout` seconds pass first.
        """
        return self._ended.wait(timeout)

    def describe(self) -> JsonDict:
        """Return the job's public attributes as a dict for JSON."""
        return {name: getattr(self, name) for name in ("id", "kind", "model", "state", "progress", "error")}


class Jobs:
    """The jobs of a running directory, oldest first.

    max_jobs: number of jobs above which the oldest ended jobs are forgotten.
    on_ended: function that is called after each job.
    """

    def __init__(self, max_jobs: int = MAX_JOBS, on_ended: Callable[[], None] = lambda: None) -> None:
        self._max_jobs = max_jobs
        self._on_ended = on_ended
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(
        self, kind: JobKind, model: Model, pool: Executor, work: Callable[[Job], None], reuse_running: bool = False
    ) -> Job:
        """Start a job on a model in a thread pool.

        work: function that does the work. It receives the job.
        reuse_running: True if a model may have only one running job of this kind. An unfinished
            earlier job is then returned instead of a new job. But if the earlier job was asked to
            stop, a new job is started after the earlier job has ended.

        Returns the new job or the earlier job.
        """
        with self._lock:
            previous = None
            if reuse_running:
                for job in self._jobs.values():
                    if job.kind == kind and job.target is model and not job.has_ended:
                        previous = job
            if previous is not None and not previous.cancel_requested:
                return previous

            job = Job(uuid.uuid4().hex, kind, model)
            self._jobs[job.id] = job

            # Forget the oldest ended jobs if there are too many jobs.
            ended = [j.id for j in self._jobs.values() if j.has_ended]
            for id in ended[: max(0, len(self._jobs) - self._max_jobs)]:
                del self._jobs[id]

        pool.submit(job.run, work, previous).add_done_callback(lambda _: self._on_ended())
        return job

    def get(self, id: str) -> Job:
        """Return the job with this id, or raise UnknownJob."""
        job = self._jobs.get(id)
        if job is None:
            raise UnknownJob(
                f"no job has the id {id!r}; the last {self._max_jobs} are known, and none from before the service was "
                "started."
            )
        return job

    def cancel(self, model: Model | None = None) -> None:
        """Ask a model's jobs, or all jobs, to stop.

        model: the model. None stands for all models.
        """
        for job in self:
            if model is None or job.target is model:
                job.cancel()

    def __iter__(self) -> Iterator[Job]:
        with self._lock:
            return iter(list(self._jobs.values()))
