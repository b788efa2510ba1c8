"""Recorder: the thread that writes records of what models do."""

import logging
import threading
import time
from collections.abc import Callable

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.models.model import Model
from stream_dr.models.versions import Published
from stream_dr.solve.orientation import principal_angles
from stream_dr.threads import new_engine_thread

log = logging.getLogger("stream_dr.records")

PROGRESS_EVERY = 1.0
"""Minimum number of seconds between two records of progress."""

TESTED_EVERY = 30.0
"""Minimum number of seconds between two records of test scores."""

_LONG = ("confusion", "curve")
"""Names of scores that are too long for the records of a model's progress."""


class Recorder:
    """Thread that writes a directory's records while models learn.

    The thread records the changes since the last record, at most every PROGRESS_EVERY seconds:

    - the progress of each model and its speed,
    - newly published versions,
    - failures.

    Nothing is written while nothing changes. Use the Recorder in a with-block, or call `start` and
    `stop`.

    directory: the directory.
    scores_of_model: function that returns the test-then-train scores of a model, such as its
        accuracy. They are added to the model's records.

    The attribute `woken` is a threading.Event. Any thread sets it when a model may have changed.
    """

    def __init__(self, directory: Directory, scores_of_model: Callable[[Model], JsonDict]) -> None:
        self._directory = directory
        self._scores = scores_of_model
        self.woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = new_engine_thread("records", self._run)
        self._rows_before = {m.id: m.rows for m in directory.models.values()}
        self._published: dict[int, Published | None] = {m.id: m.published for m in directory.models.values()}
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        self._scored: dict[int, JsonDict] = {m.id: scores_of_model(m) for m in directory.models.values()}
        self._scored_at = -TESTED_EVERY

        # Set `_last_progress` to the progress at the start, which is then not recorded.
        # Progress is recorded only if it differs from `_last_progress`.
        self._last_progress = self._progress_of_all({}, PROGRESS_EVERY)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write the last records and end the thread."""
        self._stopping.set()
        self.woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> "Recorder":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        """Write new records until `stop` is called.

        Records are written at most every PROGRESS_EVERY seconds. While no model learns, the thread
        waits for `woken`.
        """
        started = time.monotonic()
        active = True
        while not self._stopping.is_set():
            if not active:
                self.woken.wait()
                started = time.monotonic()

            self.woken.clear()
            self._stopping.wait(max(0.0, started + PROGRESS_EVERY - time.monotonic()))
            now = time.monotonic()
            try:
                active = self._record_new(now - started)
            except Exception:
                log.exception("what models did was not recorded")
            started = now

    def _record_new(self, seconds: float) -> bool:
        """Record changes of the models in the last `seconds` seconds.

        Returns True if any model has learned rows.
        """
        models = list(self._directory.models.values())
        for model in models:
            self._record_publish_or_failure(model)

        learned = {m.id: max(0, m.rows - self._rows_before.get(m.id, 0)) for m in models}
        self._rows_before = {m.id: m.rows for m in models}
        progress = self._progress_of_all(learned, seconds)
        if progress != self._last_progress:
            self._directory.records.add("progress", **progress)
            self._last_progress = progress

        if self._stopping.is_set() or time.monotonic() >= self._scored_at + TESTED_EVERY:
            # Test-then-train tests a model on each batch before the model learns the batch.
            for model in models:
                scores = self._scores(model)
                if scores and scores != self._scored.get(model.id):
                    self._scored[model.id] = scores
                    self._scored_at = time.monotonic()
                    self._directory.records.add("tested", model=model.name, id=model.id, **scores)
        return any(learned.values())

    def _progress_of_all(self, rows_learned: dict[int, int], seconds: float) -> JsonDict:
        """Return the fields of a record of progress.

        The fields are the stream's last position and number of rows, and each model's progress.

        rows_learned: number of rows learned in the last `seconds` seconds, by model id.
        """
        last = self._directory.position
        progress = {}
        for model in list(self._directory.models.values()):
            # Rows per second are not computed after a very short time, when they would be
            # inaccurate.
            rate = round(rows_learned.get(model.id, 0) / seconds, 1) if seconds > PROGRESS_EVERY / 2 else None
            scores = {name: value for name, value in self._scores(model).items() if name not in _LONG}
            progress[model.name] = {
                "rows": model.rows,
                "rate": rate,
                "lag": max(0, last - model.position),
                "version": model.published_version,
                **scores,
            }
        return {"position": last, "rows": self._directory.rows, "models": progress}

    def _record_publish_or_failure(self, model: Model) -> None:
        """Add records of a model's new projection and new failure.

        A projection or failure is new if the last call did not record it.
        """
        now = model.published
        before = self._published.get(model.id)
        if now is not None and now is not before:
            self._published[model.id] = now
            angles = principal_angles(before.projection, now.projection) if before is not None else None
            self._directory.records.add(
                "published", model=model.name, version=now.version, position=now.position, rows=now.rows,
                solution=now.projection.solution, angles=None if angles is None else [round(a, 6) for a in angles.tolist()],
            )  # fmt: skip

        if model.failure is not None and model.id not in self._failed:
            self._failed.add(model.id)
            failure = model.failure
            self._directory.records.add("failed", model=model.name, position=failure.position, code=failure.code)
