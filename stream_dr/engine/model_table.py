"""ModelTable: the names, specs and starts of a directory's models, in one small SQLite file.

Beside the spec it keeps what must survive a kill although no snapshot has it yet: a model's failure (so that a restart
does not try the same event for ever), its publishing policy, and a ceiling of version numbers handed out (so that none
is used twice). Opened for each call; a call costs one transaction.

Why this way: specs change seldom and events always; in a file of their own neither waits for the other.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from stream_dr.engine.model import Failure, PublishPolicy, Spec

_TABLES = """
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE NOT NULL, spec TEXT NOT NULL,
  start INTEGER NOT NULL, policy TEXT, failure TEXT, version_ceiling INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS replays (dataset TEXT PRIMARY KEY, passes INTEGER NOT NULL);
"""


class Entry(NamedTuple):
    """One model's row."""

    id: int
    name: str
    spec: Spec
    start: int
    policy: PublishPolicy | None
    failure: Failure | None
    version_ceiling: int


class ModelTable:
    """The table at `path`; every method is one transaction and may be called by any thread."""

    def __init__(self, path: Path, writable: bool = True) -> None:
        self.path, self.writable = path, writable
        if writable:
            with self._connection() as db:
                db.executescript(_TABLES)

    def entries(self) -> list[Entry]:
        """All models, oldest first."""
        if not self.path.exists():
            return []
        with self._connection() as db:
            rows = db.execute("SELECT id, name, spec, start, policy, failure, version_ceiling FROM models ORDER BY id")
            return [_entry(*row) for row in rows.fetchall()]

    def add(self, name: str, spec: Spec, start: int, policy: PublishPolicy | None = None) -> Entry:
        """Add a model; its name must be free."""
        with self._connection() as db:
            told = json.dumps(policy._asdict()) if policy else None
            values = (name, _canonical(spec), start, told)
            id = db.execute("INSERT INTO models (name, spec, start, policy) VALUES (?, ?, ?, ?)", values).lastrowid
        return Entry(int(id or 0), name, spec, start, policy, None, 0)

    def remove(self, id: int) -> None:
        """Forget a model; its id is never used again."""
        with self._connection() as db:
            db.execute("DELETE FROM models WHERE id = ?", (id,))

    def set_failure(self, id: int, failure: Failure) -> None:
        """Remember why a model stopped."""
        with self._connection() as db:
            db.execute("UPDATE models SET failure = ? WHERE id = ?", (json.dumps(failure._asdict()), id))

    def set_ceiling(self, id: int, ceiling: int) -> None:
        """Remember that versions up to `ceiling` may have been handed out."""
        with self._connection() as db:
            db.execute("UPDATE models SET version_ceiling = ? WHERE id = ?", (ceiling, id))

    def replay_passes(self, dataset: str) -> int:
        """Passes that a replay of this data set has begun and not ended; 0 when none."""
        with self._connection() as db:
            row = db.execute("SELECT passes FROM replays WHERE dataset = ?", (dataset,)).fetchone()
        return row[0] if row else 0

    def replaying(self) -> bool:
        """Whether any replay of several passes has begun and not ended."""
        with self._connection() as db:
            return db.execute("SELECT 1 FROM replays LIMIT 1").fetchone() is not None

    def begin_replay(self, dataset: str, passes: int) -> None:
        """Remember that a replay of this data set is to reach `passes` passes."""
        with self._connection() as db:
            db.execute("INSERT OR REPLACE INTO replays VALUES (?, ?)", (dataset, passes))

    def end_replay(self, dataset: str) -> None:
        """Forget a replay that has ended."""
        with self._connection() as db:
            db.execute("DELETE FROM replays WHERE dataset = ?", (dataset,))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        where = str(self.path) if self.writable else f"{self.path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(where, uri=not self.writable, timeout=30)) as db:
            if self.writable:
                db.execute("PRAGMA synchronous = FULL")
            with db:
                yield db


def _canonical(spec: Spec) -> str:
    return json.dumps(spec._asdict(), sort_keys=True, separators=(",", ":"))


def _entry(id: int, name: str, spec: str, start: int, policy: Any, failure: Any, ceiling: int) -> Entry:
    return Entry(
        id,
        name,
        Spec(**json.loads(spec)),
        start,
        PublishPolicy(**json.loads(policy)) if policy else None,
        Failure(**json.loads(failure)) if failure else None,
        ceiling,
    )
