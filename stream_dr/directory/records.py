"""Records: history of a directory's models, for figures.

D/records.sqlite has one record in each row, as a JSON object.

Each record has a kind and `time`, seconds since 1970. The kinds:

* "progress": position and rows of the stream. For each model rows, rate (rows per second, None if
  not known), lag, version and, if it is tested, the scores of `TestThenTrain.scores` except the
  confusion and the curve.
* "tested": model, id and all scores.
* "published": model, version, position, rows, solution, angles. The angles are the principal
  angles (radians, ascending) between this version and the one recorded before it. None if a
  projection is not linear.
* "pass": the report of running/refine.py about one pass of a refine.
* "failed": model, position, code.

Nothing that is learned, published or restored depends on records. If the file is damaged or
missing, only figures and scores are lost. Past MOST_RECORDS every second record of the older half
is removed, except those of refines and failures.
"""

import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from stream_dr.aliases import JsonDict
from stream_dr.models.model import Model
from stream_dr.models.versions import Published
from stream_dr.solve.principal_angles import principal_angles
from stream_dr.threads import engine_thread

log = logging.getLogger("stream_dr.records")

RECORDS = "records.sqlite"

PROGRESS_EVERY = 1.0
"""Minimum number of seconds between two records of progress."""

MOST_RECORDS = 20_000
"""Number of records past which older ones are thinned out."""

TAIL_RECORDS = 4_000
"""Number of records that a RecordsTail holds."""

_NOT_SCORES = ("kind", "time", "model", "id")
"""Keys of a "tested" record besides the scores."""

_LONG = ("confusion", "curve")
"""Scores that are left out of the records of progress."""

TESTED_EVERY = 30.0
"""Minimum number of seconds between two records of a model's tests."""

_TABLE = "CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY, kind TEXT, record TEXT)"

# The older half, without every second record.
_THIN = """
DELETE FROM records WHERE kind NOT IN ('pass', 'failed') AND id IN (
    SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM records) WHERE n % 2 = 1 AND n <= ?
)
"""


class Records:
    """Records of a directory, in the SQLite file at `path`.

    most: number of records past which the older half is thinned out.

    All threads and processes may add and read.
    """

    def __init__(self, path: Path, max_records: int = MOST_RECORDS) -> None:
        self.path = path
        self._most = max_records

    def add(self, kind: str, **fields: Any) -> None:
        """Add a record with the current time.

        If the file does not take it, this is logged and nothing else happens. A damaged file is
        removed, and the next record starts a new one.
        """
        record = json.dumps({"kind": kind, "time": round(time.time(), 3), **fields}, separators=(",", ":"))
        try:
            with closing(sqlite3.connect(self.path)) as connection, connection:
                # Records need not survive a loss of power.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(_TABLE)
                connection.execute("INSERT INTO records (kind, record) VALUES (?, ?)", (kind, record))
                (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
                if count > self._most:
                    connection.execute(_THIN, (count // 2,))
        except sqlite3.Error as e:
            log.warning("%s is not kept up: %s", self.path, e)
            if not isinstance(e, sqlite3.OperationalError):
                self.path.unlink(missing_ok=True)

    def read(self) -> list[JsonDict]:
        """Return all records, oldest first. Empty if there is no file or it is damaged."""
        return [record for _, record in self.newest()]

    def newest(self, after_id: int = 0, max_records: int = -1) -> list[tuple[int, JsonDict]]:
        """Return (id, record) of the newest records, oldest first.

        after_id: only records with a larger id. Ids ascend.
        max_records: largest number of records, −1 for all.
        """
        rows = self._select_records("id > ? ORDER BY id DESC LIMIT ?", after_id, max_records)
        return [(id, json.loads(text)) for id, text in reversed(rows)]

    def last_tested(self) -> dict[int, JsonDict]:
        """Return the last scores of each model that was tested, by model id."""
        records = [json.loads(text) for _, text in self._select_records("kind = 'tested' ORDER BY id")]
        return {
            record["id"]: {name: value for name, value in record.items() if name not in _NOT_SCORES}
            for record in records
        }

    def copy_to(self, path: Path) -> None:
        """Copy the records to a new file, if they can be read."""
        if self.path.exists():
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(self.path)) as own,
                closing(sqlite3.connect(path)) as copy,
            ):
                own.backup(copy)

    def _select_records(self, condition: str, *values: int) -> list[tuple[int, str]]:
        """Return (id, JSON text) of some records. Empty if there is no file or it is damaged."""
        if self.path.exists():
            with suppress(sqlite3.Error), closing(sqlite3.connect(self.path)) as connection:
                query = f"SELECT id, record FROM records WHERE json_valid(record) AND {condition}"
                return connection.execute(query, values).fetchall()
        return []


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

    def __init__(
        self, directory: RecordedDirectory, scores_of_model: Callable[[Model], JsonDict] = lambda model: {}
    ) -> None:
        self._directory = directory
        self._scores = scores_of_model
        self.woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = engine_thread("records", self._run)
        self._rows_before = {m.id: m.rows for m in directory.models.values()}
        self._published: dict[int, Published | None] = {m.id: m.published for m in directory.models.values()}
        self._failed = {m.id for m in directory.models.values() if m.failure is not None}
        self._scored: dict[int, JsonDict] = {m.id: scores_of_model(m) for m in directory.models.values()}
        self._scored_at = -TESTED_EVERY

        # Progress is recorded only if it differs from `_last_progress`. So the progress at the
        # start is not recorded.
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
                active = self._write_progress(now - started)
            except Exception:
                log.exception("what models did was not recorded")
            started = now

    def _write_progress(self, seconds: float) -> bool:
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
        """Record the test-then-train scores of the models whose scores have changed."""
        for model in models:
            scores = self._scores(model)
            if scores and scores != self._scored.get(model.id):
                self._scored[model.id], self._scored_at = scores, time.monotonic()
                self._directory.records.add("tested", model=model.name, id=model.id, **scores)

    def _progress_of_all(self, rows_learned: dict[int, int], seconds: float) -> JsonDict:
        """Return the progress of the stream and of each model.

        rows_learned: number of rows learned in the last `seconds` seconds, by model id.
        """
        last = self._directory.position
        models = list(self._directory.models.values())
        progress = {m.name: self._model_progress(m, last, rows_learned.get(m.id, 0), seconds) for m in models}
        return {"position": last, "rows": self._directory.rows, "models": progress}

    def _model_progress(self, model: Model, last_position: int, rows_learned: int, seconds: float) -> JsonDict:
        """Return the progress of one model."""
        # A rate over a shorter time means nothing.
        rate = round(rows_learned / seconds, 1) if seconds > PROGRESS_EVERY / 2 else None
        progress = {"rows": model.rows, "rate": rate, "lag": max(0, last_position - model.position)}
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


class RecordsTail:
    """Newest TAIL_RECORDS records of a directory, read on from the last read.

    seen: id of the newest record, which changes when there are new records.

    Used by one thread.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._newest: deque[JsonDict] = deque(maxlen=TAIL_RECORDS)
        self.seen = 0

    def read(self) -> list[JsonDict]:
        """Return the newest records, oldest first."""
        for id, record in self._records.newest(self.seen, TAIL_RECORDS):
            self._newest.append(record)
            self.seen = id
        return list(self._newest)
