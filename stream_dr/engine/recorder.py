"""Recorder: a thread that writes a directory's records (records.py) while models learn, at most once a second.

Each beat tells how far every model is, at what rate it learned since the last, what it has published since, and whether it
failed. When nothing happens nothing is written.
"""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from stream_dr.engine.directory import Directory
from stream_dr.engine.model import Model
from stream_dr.engine.records import principal_angles
from stream_dr.engine.schema import Facts
from stream_dr.engine.threads import thread
from stream_dr.engine.versions import Published

log = logging.getLogger("stream_dr.recorder")

BEAT = 1.0
"""Seconds between two records of progress."""


class Recorder:
    """Use in a with-block, or `start` and `stop`. scores: what is told of a model beside (accuracy, baseline)."""

    def __init__(self, directory: Directory, scores: Callable[[Model], Facts] = lambda model: {}) -> None:
        self._directory, self._scores = directory, scores
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._thread = thread("records", self._run)
        self._seen = {m.id: m.rows for m in directory.models.values()}
        self._published: dict[int, Published | None] = {m.id: m.published for m in directory.models.values()}
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        self._said = self._now({}, BEAT)  # what was so at the start is no news

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write what there is to tell, and end."""
        self._stopping.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Something may have changed; from any thread, returns at once."""
        self._woken.set()

    def __enter__(self) -> "Recorder":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        begun, active = time.monotonic(), True
        while not self._stopping.is_set():
            if not active:
                self._woken.wait()
                begun = time.monotonic()
            self._woken.clear()
            self._stopping.wait(max(0.0, begun + BEAT - time.monotonic()))
            now = time.monotonic()
            try:
                active = self._beat(now - begun)
            except Exception:
                log.exception("what models did was not recorded")
            begun = now

    def _beat(self, seconds: float) -> bool:
        """Record what the last `seconds` brought; whether any model learned."""
        models = list(self._directory.models.values())
        for model in models:
            self._look(model)
        learned = {m.id: max(0, m.rows - self._seen.get(m.id, 0)) for m in models}
        self._seen = {m.id: m.rows for m in models}
        said = self._now(learned, seconds)
        if said != self._said:
            self._directory.records.add("progress", **said)
            self._said = said
        return any(learned.values())

    def _now(self, learned: dict[int, int], seconds: float) -> Facts:
        """How far every model is, and at what rate it learned; learned: rows by model id."""
        last, models = self._directory.position, list(self._directory.models.values())
        told = {m.name: self._progress(m, last, learned.get(m.id, 0), seconds) for m in models}
        return {"position": last, "rows": self._directory.rows, "models": told}

    def _progress(self, model: Model, last: int, learned: int, seconds: float) -> Facts:
        rate = round(learned / seconds, 1) if seconds > BEAT / 2 else None  # of less time it says nothing
        told = {"rows": model.rows, "rate": rate, "lag": max(0, last - model.position)}
        return told | {"version": model.published_version, **self._scores(model)}

    def _look(self, model: Model) -> None:
        """Record what a model has published, or that it failed, since it was last looked at."""
        now, before = model.published, self._published.get(model.id)
        if now is not None and now is not before:
            self._published[model.id] = now
            angles = principal_angles(before.projection, now.projection) if before is not None else None
            self._directory.records.add(
                "published", model=model.name, version=now.version, position=now.position, rows=now.rows,
                solution=now.projection.solution, angles=None if angles is None else [round(a, 6) for a in angles.tolist()],
            )  # fmt: skip
        if model.failure is not None and model.id not in self._failed:
            self._failed.add(model.id)
            self._directory.records.add(
                "failed", model=model.name, position=model.failure.position, code=model.failure.code
            )
