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
import time
from collections import deque
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from stream_dr.aliases import JsonDict
from stream_dr.disk import PRIVATE_FILE

log = logging.getLogger("stream_dr.records")

RECORDS = "records.sqlite"

MOST_RECORDS = 20_000
"""Number of records above which every second record of the older half is removed."""

TAIL_RECORDS = 4_000
"""Maximum number of records that a RecordsTail stores."""

_NOT_SCORES = ("kind", "time", "model", "id")
"""Keys of a record of test scores that are not scores."""


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
        rows = self._select_json_texts("id > ? ORDER BY id DESC LIMIT ?", after_id, max_records)
        return [(id, json.loads(text)) for id, text in reversed(rows)]

    def newest_scores(self) -> dict[int, JsonDict]:
        """Return each model's newest test scores, by model id.

        Models that were never tested are left out.
        """
        scores = {}
        for _, text in self._select_json_texts("kind = 'tested' ORDER BY id"):
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

    def _select_json_texts(self, condition: str, *values: int) -> list[tuple[int, str]]:
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
