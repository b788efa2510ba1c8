"""Records: history of a directory's models, for plots.

The file D/records.sqlite has a table with one record in each row. A record is a JSON object with
`kind`, `time` (seconds since 1970) and the fields of its kind:

* "progress": position and number of rows of the stream, and the progress of each model. A model's
  progress is its number of rows, rate (rows per second, None if not known), lag (number of events
  not learned yet) and version. If the model is tested, the scores of `TestThenTrain.scores`
  follow, except the confusion matrix and the curve.
* "tested": name, id and all scores of a model.
* "published": name of a model, version, position, rows, solution and angles. The angles are the
  principal angles (radians, ascending) between this version and the version recorded before. None
  if one of the two projections is not linear.
* "pass": the report of running/refine.py about one pass of a refine.
* "failed": name of a model, position and code of the error.

Nothing that is learned, published or restored depends on records. If the file is damaged or
missing, only plots and scores are lost. If there are more than MOST_RECORDS records, every
second record of the older half is removed. Records of refines and failures are not removed.
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
from typing import TYPE_CHECKING, Any

from stream_dr.aliases import JsonDict
from stream_dr.disk import PRIVATE_FILE
from stream_dr.models.model import Model
from stream_dr.models.versions import Published
from stream_dr.solve.orientation import principal_angles
from stream_dr.threads import new_engine_thread

if TYPE_CHECKING:
    from stream_dr.directory.directory import Directory

log = logging.getLogger("stream_dr.records")

RECORDS = "records.sqlite"

PROGRESS_EVERY = 1.0
"""Minimum number of seconds between two records of progress."""

MOST_RECORDS = 20_000
"""Number of records above which every second record of the older half is removed."""

TAIL_RECORDS = 4_000
"""Maximum number of records that a RecordsTail stores."""

_NOT_SCORES = ("kind", "time", "model", "id")
"""Keys of a record of test scores that are not scores."""

_LONG = ("confusion", "curve")
"""Names of scores that are too long for the records of a model's progress."""

TESTED_EVERY = 30.0
"""Minimum number of seconds between two records of test scores."""

_TABLE = "CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY, kind TEXT, record TEXT)"

# Remove every second record of the older half, except records of refines and failures.
_THIN = """
DELETE FROM records WHERE kind NOT IN ('pass', 'failed') AND id IN (
    SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM records) WHERE n % 2 = 1 AND n <= ?
)
"""


class Records:
    """Recorded history of a directory's models, in a SQLite file.

    A record has the time and, for example, the progress, test scores or new version of a model.
    All threads and processes may add and read records.

    path: path of the file, which need not exist.
    max_records: number of records above which every second record of the older half is removed.
    """

    def __init__(self, path: Path, max_records: int = MOST_RECORDS) -> None:
        self.path = path
        self._most = max_records

    def add(self, kind: str, **fields: Any) -> None:
        """Add a record with the current time.

        If the record cannot be stored, the error is logged and not raised. A damaged file is
        removed, and the next record starts a new file.

        kind: kind of the record, such as "progress".
        fields: other fields of the record, as values that JSON can represent.
        """
        record = json.dumps({"kind": kind, "time": round(time.time(), 3), **fields}, separators=(",", ":"))
        try:
            self.path.touch(PRIVATE_FILE)
            with closing(sqlite3.connect(self.path)) as connection, connection:
                # Do not wait for the disk. Records need not survive a loss of power.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(_TABLE)
                connection.execute("INSERT INTO records (kind, record) VALUES (?, ?)", (kind, record))
                (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
                if count > self._most:
                    connection.execute(_THIN, (count // 2,))
        except (sqlite3.Error, OSError) as e:
            log.warning("%s is not kept up: %s", self.path, e)
            if isinstance(e, sqlite3.Error) and not isinstance(e, sqlite3.OperationalError):
                self.path.unlink(missing_ok=True)

    def read(self) -> list[JsonDict]:
        """Return all records, oldest first.

        The list is empty if the file is missing or damaged.
        """
        return [record for _, record in self.ids_and_newest_records()]

    def ids_and_newest_records(self, after_id: int = 0, max_records: int = -1) -> list[tuple[int, JsonDict]]:
        """Return pairs (id, record) of the newest records, oldest first.

        after_id: only records with an id above this number are returned. Newer records have larger
            ids.
        max_records: maximum number of records. −1 means all.
        """
        rows = self._select_ids_and_json_texts("id > ? ORDER BY id DESC LIMIT ?", after_id, max_records)
        return [(id, json.loads(text)) for id, text in reversed(rows)]

    def last_scores_by_model_id(self) -> dict[int, JsonDict]:
        """Return each model's newest test scores, by model id.

        Models that were never tested are left out.
        """
        scores = {}
        for _, text in self._select_ids_and_json_texts("kind = 'tested' ORDER BY id"):
            record = json.loads(text)
            scores[record["id"]] = {name: value for name, value in record.items() if name not in _NOT_SCORES}
        return scores

    def copy_to(self, path: Path) -> None:
        """Copy the records to a new file, if they are readable."""
        if self.path.exists():
            path.touch(PRIVATE_FILE)
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(self.path)) as own,
                closing(sqlite3.connect(path)) as copy,
            ):
                own.backup(copy)

    def _select_ids_and_json_texts(self, condition: str, *values: int) -> list[tuple[int, str]]:
        """Return (id, JSON text) of records that meet a condition.

        The list is empty if the file is missing or damaged.

        condition: SQL condition and order, with placeholders.
        values: values of the placeholders.
        """
        if self.path.exists():
            with suppress(sqlite3.Error), closing(sqlite3.connect(self.path)) as connection:
                query = f"SELECT id, record FROM records WHERE json_valid(record) AND {condition}"
                return connection.execute(query, values).fetchall()
        return []


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

    def __init__(self, directory: "Directory", scores_of_model: Callable[[Model], JsonDict]) -> None:
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
                active = self._record_new_and_tell_if_learned(now - started)
            except Exception:
                log.exception("what models did was not recorded")
            started = now

    def _record_new_and_tell_if_learned(self, seconds: float) -> bool:
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
            self._record_changed_scores(models)
        return any(learned.values())

    def _record_changed_scores(self, models: list[Model]) -> None:
        """Record the scores of the models whose scores have changed.

        The scores come from test-then-train, which tests a model on each batch before the model
        learns the batch.
        """
        for model in models:
            scores = self._scores(model)
            if scores and scores != self._scored.get(model.id):
                self._scored[model.id], self._scored_at = scores, time.monotonic()
                self._directory.records.add("tested", model=model.name, id=model.id, **scores)

    def _progress_of_all(self, rows_learned: dict[int, int], seconds: float) -> JsonDict:
        """Return the fields of a record of progress.

        The fields are the stream's last position and number of rows, and each model's progress.

        rows_learned: number of rows learned in the last `seconds` seconds, by model id.
        """
        last = self._directory.position
        models = list(self._directory.models.values())
        progress = {m.name: self._model_progress(m, last, rows_learned.get(m.id, 0), seconds) for m in models}
        return {"position": last, "rows": self._directory.rows, "models": progress}

    def _model_progress(self, model: Model, log_end_position: int, rows_learned: int, seconds: float) -> JsonDict:
        """Return the progress of one model.

        log_end_position: position of the log's last event.
        rows_learned: number of rows that the model learned in the last `seconds` seconds.
        """
        # Rows per second are not computed after a very short time, when they would be inaccurate.
        rate = round(rows_learned / seconds, 1) if seconds > PROGRESS_EVERY / 2 else None
        progress = {"rows": model.rows, "rate": rate, "lag": max(0, log_end_position - model.position)}
        scores = {name: value for name, value in self._scores(model).items() if name not in _LONG}
        return progress | {"version": model.published_version, **scores}

    def _record_publish_or_failure(self, model: Model) -> None:
        """Add records of a model's new projection and new failure.

        A projection or failure is new if the last call did not record it.
        """
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
            failure = model.failure
            self._directory.records.add("failed", model=model.name, position=failure.position, code=failure.code)


class RecordsTail:
    """Newest records of a directory, at most TAIL_RECORDS.

    `newest_records` reads from the file only the records that were added since its last call. Only
    one thread may use a RecordsTail.

    seen: id of the newest record that was read.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._newest: deque[JsonDict] = deque(maxlen=TAIL_RECORDS)
        self.seen = 0

    def newest_records(self) -> list[JsonDict]:
        """Return the newest TAIL_RECORDS records, oldest first."""
        for id, record in self._records.ids_and_newest_records(self.seen, TAIL_RECORDS):
            self._newest.append(record)
            self.seen = id
        return list(self._newest)
