"""Records: what a directory's models did over time, for figures: one JSON object a line in D/records.jsonl.

Each record has a kind and `time`, seconds since 1970. The kinds:

* "progress": position and rows of the stream. Of each model rows, rate (rows a second; None if not known),
  lag, version and, if it is tested, the scores of `TestThenTrain.scores` but the confusion and the curve.
* "tested": model, id and all scores.
* "published": model, version, position, rows, solution, angles. The angles are the principal angles (radians,
  ascending) between this version and the one recorded before it. None if a projection is not linear.
* "pass": what running/refine.py reports of a pass of a refine.
* "failed": model, position, code.

Nothing that is learned, published or restored reads them: a file that is missing, damaged or cannot be written costs figures
and scores alone. It is bounded: past MOST_BYTES every second line of the older half goes, but those of refines and failures.
"""

import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from stream_dr.disk import TEMPORARY
from stream_dr.models.model import Model
from stream_dr.models.schema import Facts
from stream_dr.models.versions import Published
from stream_dr.solve.principal_angles import principal_angles
from stream_dr.threads import thread

log = logging.getLogger("stream_dr.records")

RECORDS = "records.jsonl"

BEAT = 1.0
"""Seconds between two records of progress."""

MOST_BYTES = 8 << 20
"""Length of the file past which older lines are thinned out."""

FOLLOWED, FOLLOWED_BYTES = 4_000, 2 << 20
"""Records that are held by who follows them, and bytes of the file that are read for it at first, the last."""

_NOT_SCORES = ("kind", "time", "model", "id")
"""Keys of a "tested" record besides the scores."""

_LONG = ("confusion", "curve")
"""Scores that are left out of the records of progress."""

TESTED_EVERY = 30.0
"""Seconds between two records of a model's tests."""

_TESTED = b'{"kind":"tested"'
_LASTING = (b'{"kind":"pass"', b'{"kind":"failed"')


class Records:
    """The records in a file. Any thread adds; who reads gets what is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, kind: str, **facts: Any) -> None:
        """Add one, with the time; a disk that does not take it is logged, and nothing else."""
        line = (
            json.dumps({"kind": kind, "time": round(time.time(), 3), **facts}, separators=(",", ":")).encode() + b"\n"
        )
        try:
            with self._lock, self.path.open("ab") as file:
                file.write(line)
                if file.tell() > MOST_BYTES:
                    self._thin()
        except OSError as e:
            log.warning("%s is not kept up: %s", self.path, e)

    def read(self) -> list[Facts]:
        """All there are, oldest first; lines that are not whole are left out."""
        try:
            return _facts(self.path.read_bytes())
        except FileNotFoundError:
            return []

    def last_tested(self) -> dict[int, Facts]:
        """Return the last scores of each model that was tested, by model id."""
        found = {}
        with contextlib.suppress(FileNotFoundError):
            lines = self.path.read_bytes().splitlines()
            for facts in _facts(b"\n".join(line for line in lines if line.startswith(_TESTED))):
                found[facts["id"]] = {name: value for name, value in facts.items() if name not in _NOT_SCORES}
        return found

    def _thin(self) -> None:
        lines = self.path.read_bytes().splitlines(keepends=True)
        half = len(lines) // 2
        older = [line for i, line in enumerate(lines[:half]) if i % 2 or line.startswith(_LASTING)]
        kept = b"".join([*older, *lines[half:]])
        shorter = self.path.with_suffix(TEMPORARY)
        shorter.write_bytes(kept)
        shorter.replace(self.path)


class Recorded(Protocol):
    """What a Recorder looks at: a Directory, which has Records itself."""

    records: Records
    models: dict[str, Model]

    @property
    def position(self) -> int:
        """Of the last event."""
        ...

    @property
    def rows(self) -> int:
        """In the log."""
        ...


class Recorder:
    """A thread that writes a directory's records while models learn, at most once in BEAT seconds.

    Each beat tells how far every model is, at what rate it learned since the last, what it has published since, and whether
    it failed; when nothing happens nothing is written. Use in a with-block, or `start` and `stop`. scores: what is told of a
    model beside (accuracy, baseline). woken: set by any thread where something may have changed.
    """

    def __init__(self, directory: Recorded, scores: Callable[[Model], Facts] = lambda model: {}) -> None:
        self._directory, self._scores = directory, scores
        self.woken, self._stopping = threading.Event(), threading.Event()
        self._thread = thread("records", self._run)
        self._seen = {m.id: m.rows for m in directory.models.values()}
        self._published: dict[int, Published | None] = {m.id: m.published for m in directory.models.values()}
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        self._scored: dict[int, Facts] = {m.id: scores(m) for m in directory.models.values()}
        self._scored_at = -TESTED_EVERY
        self._said = self._now({}, BEAT)  # what was so at the start is no news

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write what there is to tell, and end."""
        self._stopping.set()
        self.woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> "Recorder":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        begun, active = time.monotonic(), True
        while not self._stopping.is_set():
            if not active:
                self.woken.wait()
                begun = time.monotonic()
            self.woken.clear()
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
        if self._stopping.is_set() or time.monotonic() >= self._scored_at + TESTED_EVERY:
            self._record_scores(models)
        return any(learned.values())

    def _record_scores(self, models: list[Model]) -> None:
        """Record what the models score in tests, where that is new."""
        for model in models:
            scores = self._scores(model)
            if scores and scores != self._scored.get(model.id):
                self._scored[model.id], self._scored_at = scores, time.monotonic()
                self._directory.records.add("tested", model=model.name, id=model.id, **scores)

    def _now(self, learned: dict[int, int], seconds: float) -> Facts:
        """How far every model is, and at what rate it learned; learned: rows by model id."""
        last, models = self._directory.position, list(self._directory.models.values())
        told = {m.name: self._progress(m, last, learned.get(m.id, 0), seconds) for m in models}
        return {"position": last, "rows": self._directory.rows, "models": told}

    def _progress(self, model: Model, last: int, learned: int, seconds: float) -> Facts:
        rate = round(learned / seconds, 1) if seconds > BEAT / 2 else None  # of less time it says nothing
        told = {"rows": model.rows, "rate": rate, "lag": max(0, last - model.position)}
        scores = {name: value for name, value in self._scores(model).items() if name not in _LONG}
        return told | {"version": model.published_version, **scores}

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


def _facts(text: bytes) -> list[Facts]:
    """The records in lines; what is none is left out."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            facts = json.loads(line)
            if isinstance(facts, dict) and "kind" in facts and "time" in facts:
                found.append(facts)
    return found


class Following:
    """The newest records, read on from where they were read before. seen: changes with what there is to read. One owner."""

    def __init__(self, records: Records) -> None:
        self._path = records.path
        self._facts: deque[Facts] = deque(maxlen=FOLLOWED)
        self._at, self._read_at = 0, 0.0
        self.seen = 0

    def read(self) -> list[Facts]:
        """The newest FOLLOWED of them, oldest first; as they were within the last second."""
        now = time.monotonic()
        if now - self._read_at >= 1.0:
            self._read_at = now
            with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
                self._read_on(file)
        return list(self._facts)

    def _read_on(self, file: BinaryIO) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < self._at:  # it was thinned out
            self._facts.clear()
            self._at = 0
        if self._at == 0 and size > FOLLOWED_BYTES:
            self._at = size - FOLLOWED_BYTES
        file.seek(self._at)
        whole, newline, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(newline)
        found = _facts(whole)
        self._facts.extend(found)
        self.seen += bool(found)
