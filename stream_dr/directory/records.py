"""Records: history of a directory's models, for figures.

D/records.jsonl has one JSON object on each line.

Each record has a kind and `time`, seconds since 1970. The kinds:

* "progress": position and rows of the stream. For each model rows, rate (rows per second, None if
  not known), lag, version and, if it is tested, the scores of `TestThenTrain.scores` except the
  confusion and the curve.
* "tested": model, id and all scores.
* "published": model, version, position, rows, solution, angles. The angles are the principal angles
  (radians, ascending) between this version and the one recorded before it. None if a projection is
  not linear.
* "pass": the report of running/refine.py about one pass of a refine.
* "failed": model, position, code.

Nothing that is learned, published or restored depends on records: without the file only figures and
scores are lost. Past MOST_BYTES every second line of the older half is removed, except those of
refines and failures.
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

from stream_dr.aliases import JsonDict
from stream_dr.disk import TEMPORARY
from stream_dr.models.model import Model
from stream_dr.models.versions import Published
from stream_dr.solve.principal_angles import principal_angles
from stream_dr.threads import engine_thread

log = logging.getLogger("stream_dr.records")

RECORDS = "records.jsonl"

PROGRESS_EVERY = 1.0
"""Minimum number of seconds between two records of progress."""

MOST_BYTES = 8 << 20
"""Size of the file past which older lines are thinned out."""

TAIL_RECORDS = 4_000
"""Number of records that a RecordsTail holds."""

TAIL_BYTES = 2 << 20
"""Number of bytes at the end of the file that a RecordsTail reads at first."""

_NOT_SCORES = ("kind", "time", "model", "id")
"""Keys of a "tested" record besides the scores."""

_LONG = ("confusion", "curve")
"""Scores that are left out of the records of progress."""

TESTED_EVERY = 30.0
"""Minimum number of seconds between two records of a model's tests."""

# Beginnings of lines: of records of tests, and of those that are never thinned out.
_TESTED_PREFIX = b'{"kind":"tested"'
_LASTING_PREFIXES = (b'{"kind":"pass"', b'{"kind":"failed"')


class Records:
    """Records of a directory, in the file at `path`.

    most_bytes: size at which the older half is thinned out.

    All threads may add. Readers get complete lines only.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def add(self, kind: str, **fields: Any) -> None:
        """Add a record with the current time.

        If the disk does not take it, this is logged and nothing else happens.
        """
        line = (
            json.dumps({"kind": kind, "time": round(time.time(), 3), **fields}, separators=(",", ":")).encode() + b"\n"
        )
        try:
            with self._lock, self.path.open("ab") as file:
                file.write(line)
                if file.tell() > self._most_bytes:
                    self._thin()
        except OSError as e:
            log.warning("%s is not kept up: %s", self.path, e)

    def read(self) -> list[JsonDict]:
        """Return all records, oldest first. Incomplete lines are skipped."""
        try:
            return _parse_lines(self.path.read_bytes())
        except FileNotFoundError:
            return []

    def last_tested(self) -> dict[int, JsonDict]:
        """Return the last scores of each model that was tested, by model id."""
        scores = {}
        with contextlib.suppress(FileNotFoundError):
            lines = self.path.read_bytes().splitlines()
            for record in _parse_lines(b"\n".join(line for line in lines if line.startswith(_TESTED_PREFIX))):
                scores[record["id"]] = {name: value for name, value in record.items() if name not in _NOT_SCORES}
        return scores

    def _thin(self) -> None:
        """Remove every second line of the older half."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        half = len(lines) // 2
        older = [line for i, line in enumerate(lines[:half]) if i % 2 or line.startswith(_LASTING_PREFIXES)]
        remaining = b"".join([*older, *lines[half:]])
        shorter = self.path.with_suffix(TEMPORARY)
        shorter.write_bytes(remaining)
        shorter.replace(self.path)


class RecordedDirectory(Protocol):
    """Attributes of a Directory that a Recorder reads."""

    records: Records
    models: dict[str, Model]

    @property
    def position(self) -> int:
        """Last position of the log."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows in the log."""
        ...


class Recorder:
    """Thread that writes a directory's records while models learn.

    At most every PROGRESS_EVERY seconds it records how far each model is, how fast it learned
    since the last record, what it published since, and whether it failed. Nothing is written while
    nothing changes. Use it in a with-block, or call `start` and `stop`.

    directory: the directory.
    scores: returns further fields for a model's records, such as its accuracy.

    woken: event that any thread sets if something may have changed.
    """

    def __init__(self, directory: RecordedDirectory, scores: Callable[[Model], JsonDict] = lambda model: {}) -> None:
        self._directory = directory
        self._scores = scores
        self.woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = engine_thread("records", self._run)
        self._rows_before = {m.id: m.rows for m in directory.models.values()}
        self._published: dict[int, Published | None] = {m.id: m.published for m in directory.models.values()}
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        self._scored: dict[int, JsonDict] = {m.id: scores(m) for m in directory.models.values()}
        self._scored_at = -TESTED_EVERY

        # The state at the start is not recorded.
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        """Record at most every PROGRESS_EVERY seconds, until stopped."""
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
                active = self._record(now - started)
            except Exception:
                log.exception("what models did was not recorded")
            started = now

    def _record(self, seconds: float) -> bool:
        """Record what happened in the last `seconds` seconds.

        Return True if any model learned.
        """
        models = list(self._directory.models.values())
        for model in models:
            self._record_changes(model)

        learned = {m.id: max(0, m.rows - self._rows_before.get(m.id, 0)) for m in models}
        self._rows_before = {m.id: m.rows for m in models}
        progress = self._progress_of_all(learned, seconds)
        if progress != self._last_progress:
            self._directory.records.add("progress", **progress)
            self._last_progress = progress

        if self._stopping.is_set() or time.monotonic() >= self._scored_at + TESTED_EVERY:
            self._record_scores(models)
        return any(learned.values())

    def _record_scores(self, models: list[Model]) -> None:
        """Record the models' scores in tests, if they are new."""
        for model in models:
            scores = self._scores(model)
            if scores and scores != self._scored.get(model.id):
                self._scored[model.id], self._scored_at = scores, time.monotonic()
                self._directory.records.add("tested", model=model.name, id=model.id, **scores)

    def _progress_of_all(self, learned: dict[int, int], seconds: float) -> JsonDict:
        """Return the progress of the stream and of each model.

        learned: number of rows learned in the last `seconds` seconds, by model id.
        """
        last = self._directory.position
        models = list(self._directory.models.values())
        progress = {m.name: self._progress(m, last, learned.get(m.id, 0), seconds) for m in models}
        return {"position": last, "rows": self._directory.rows, "models": progress}

    def _progress(self, model: Model, last: int, learned: int, seconds: float) -> JsonDict:
        """Return the progress of one model."""
        # A rate over a shorter time means nothing.
        rate = round(learned / seconds, 1) if seconds > PROGRESS_EVERY / 2 else None
        progress = {"rows": model.rows, "rate": rate, "lag": max(0, last - model.position)}
        scores = {name: value for name, value in self._scores(model).items() if name not in _LONG}
        return progress | {"version": model.published_version, **scores}

    def _record_changes(self, model: Model) -> None:
        """Record whether a model has published or failed since the last record."""
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


def _parse_lines(text: bytes) -> list[JsonDict]:
    """Return the records in lines. Lines that are no record are skipped."""
    records = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and "kind" in record and "time" in record:
                records.append(record)
    return records


class RecordsTail:
    """Newest records of a file, read on from where the last read ended.

    seen: number that changes when there are new records.

    Used by one thread.
    """

    def __init__(self, records: Records) -> None:
        self._path = records.path
        self._newest: deque[JsonDict] = deque(maxlen=TAIL_RECORDS)
        self._offset = 0
        self._read_at = 0.0
        self.seen = 0

    def read(self) -> list[JsonDict]:
        """Return the newest TAIL_RECORDS records, oldest first.

        The file is read at most once a second.
        """
        now = time.monotonic()
        if now - self._read_at >= 1.0:
            self._read_at = now
            with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
                self._read_on(file)
        return list(self._newest)

    def _read_on(self, file: BinaryIO) -> None:
        """Read the complete lines that were added since the last read."""
        size = file.seek(0, os.SEEK_END)
        # A shorter file was thinned out, so it is read from the start.
        if size < self._offset:
            self._newest.clear()
            self._offset = 0
        if self._offset == 0 and size > TAIL_BYTES:
            self._offset = size - TAIL_BYTES

        file.seek(self._offset)
        whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)

        records = _parse_lines(whole)
        self._newest.extend(records)
        self.seen += bool(records)
