"""Running: the threads that keep a directory's models current while batches arrive.

The appender takes drafts from a bounded queue, admits them in order and commits each group in one transaction, then answers
their futures. The model thread reads the log and advances every live model. Workers solve, snapshot, catch up and refine.

Why this way: the log is the queue. Nothing is acknowledged before it is durable, and nothing is learned that is not in the log.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from stream_dr.engine.directory import Directory, Start
from stream_dr.engine.draft import Draft, Receipt
from stream_dr.engine.jobs import Job
from stream_dr.engine.model import Model, Published, PublishPolicy


class RunSettings(NamedTuple):
    """How a running directory behaves.

    publish: default policy of models. snapshot_rows, snapshot_seconds: a model is snapshotted after so many rows or seconds
    with new rows (None: only on stop). retain_rows: rows kept in the log after every model and snapshot is past them (None:
    all). workers: threads that solve, snapshot, catch up and refine.
    """

    publish: PublishPolicy = PublishPolicy()
    snapshot_rows: int | None = 1_000_000
    snapshot_seconds: float | None = 60.0
    retain_rows: int | None = None
    workers: int = 2


class Running:
    """A directory being kept current. `start()` once, `stop()` once; all other methods from any thread in between."""

    def __init__(self, directory: Directory, settings: RunSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or RunSettings()

    def start(self) -> None:
        """Start the threads; models behind the log catch up in the background."""

    def stop(self) -> None:
        """Refuse new drafts, append and apply those taken, snapshot every model, end the threads. The directory stays open."""

    def submit(self, draft: Draft) -> "Future[Receipt]":
        """Queue a draft; the future gives its Receipt once it is durable, or raises what refused it.

        Raises Overloaded (details: retry_after, seconds) when waiting bodies exceed limits.max_queue_bytes or a live model is
        more than limits.max_lag events behind, and ShuttingDown.
        """
        raise NotImplementedError

    def check(self, draft: Draft) -> None:
        """Raise what would refuse the draft; append nothing."""

    def wait_applied(self, position: int, timeout: float) -> bool:
        """Wait until every model that has not failed has applied `position` and published a projection that includes it
        (models without any row: applied only). False when `timeout` seconds were not enough."""
        raise NotImplementedError

    def add_model(
        self, name: str, key: str, params: dict[str, Any], start: Start = "start", policy: PublishPolicy | None = None
    ) -> tuple[Model, bool]:
        """As Directory.add_model; a new model catches up in the background."""
        raise NotImplementedError

    def remove_model(self, name: str) -> None:
        """As Directory.remove_model; readers keep what they hold."""

    def publish(self, name: str, timeout: float = 30.0) -> Published:
        """Solve and publish a model now (policy "on demand"). Raises UnknownModel, NotFitted."""
        raise NotImplementedError

    def snapshot(self, name: str) -> Job:
        """Snapshot a model in the background. Raises UnknownModel."""
        raise NotImplementedError

    def refine(self, name: str, tol: float = 1e-6, max_passes: int = 20) -> Job:
        """Refine a model in the background over the log up to its position. Raises UnknownModel, CannotRefine."""
        raise NotImplementedError

    def unlearn(
        self, positions: Sequence[int] = (), ids: Sequence[str] = (), key: str | None = None
    ) -> "Future[Receipt]":
        """Append an event that takes rows out again. Raises InvalidParameter, HistoryGone."""
        raise NotImplementedError

    def job(self, id: str) -> Job:
        """A job by its id. Raises UnknownJob."""
        raise NotImplementedError

    @property
    def jobs(self) -> list[Job]:
        """All jobs, oldest first."""
        raise NotImplementedError

    @property
    def lag(self) -> int:
        """Events that the model furthest behind, of those that are live, has not applied."""
        raise NotImplementedError

    @property
    def queued_bytes(self) -> int:
        """Bytes of bodies taken and not yet durable."""
        raise NotImplementedError

    def ready(self) -> str | None:
        """None when batches can be taken, else why not (a sentence)."""
        raise NotImplementedError

    def listen(self, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Call `callback({"event": "appended" | "published" | "failed" | "snapshot", …})` from engine threads; it must return
        at once. Gives a function that ends it."""
        raise NotImplementedError

    def figures(self) -> dict[str, float]:
        """Counters and gauges since start: rows_appended, events_appended, commits, duplicates, refused, publishes,
        snapshots, queued_bytes, lag; names are stable."""
        raise NotImplementedError
