"""ModelTable: a directory's models, in a SQLite file.

The table has the names, specs and starts of the models. It is in the SQLite file of the log's
index. The table also stores facts that must survive a killed process, even if no snapshot has them
yet:

- the failure of a model, so that a restart does not try the same event again,
- the policies that say when a model is published and refined,
- an upper bound of a model's version numbers, so that no version number is used twice.

A folder of snapshots whose model is not in the table belongs to a removed model.

Each row has a digest of its fields, which every read checks, because SQLite does not detect a
flipped bit inside a value. The file is opened for each call. A call costs one transaction.
"""

import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from stream_dr.aliases import JsonDict
from stream_dr.errors import InvalidParameter
from stream_dr.failpoints import failpoint
from stream_dr.log.index import INDEX_NAME, open_existing_index_database
from stream_dr.log.sqlite_file import check_integrity, commit_or_rollback, damaged_file_error
from stream_dr.models.entry import Entry, ModelFailure, PublishPolicy, RefinePolicy, Spec
from stream_dr.models.release import ReleaseEntry
from stream_dr.models.saved import spec_from_json

TABLES = """
CREATE TABLE models (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE NOT NULL, spec TEXT NOT NULL,
  start INTEGER NOT NULL, policy TEXT, failure TEXT, version_ceiling INTEGER NOT NULL DEFAULT 0, digest INTEGER);
CREATE TABLE replays (dataset TEXT PRIMARY KEY, passes INTEGER NOT NULL, digest INTEGER);
CREATE TABLE releases (key TEXT PRIMARY KEY, model INTEGER NOT NULL, entry TEXT NOT NULL, digest INTEGER);
CREATE TABLE erased_releases (position INTEGER PRIMARY KEY, answer TEXT NOT NULL, digest INTEGER);
"""
"""SQL that creates the tables of models, unfinished replays, releases, and releases with unlearned rows."""

_FIELDS = {
    "models": "id, name, spec, start, policy, failure, version_ceiling",
    "replays": "dataset, passes",
    "releases": "key, model, entry",
    "erased_releases": "position, answer",
}


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def check_name(noun: str, name: str) -> None:
    """Raise InvalidParameter if the name of a model or release is not valid."""
    if not _NAME.fullmatch(name):
        raise InvalidParameter(f"{noun} name {name!r}; use 1 to 64 letters, digits, '_', '-' or '.'.")


class ModelTable:
    """Table of the models of a directory. Thread-safe.

    Each method is one transaction. The methods raise DamagedFile, ForeignFile, UnknownFormat and
    InsufficientStorage.

    folder: path of the directory.
    writable: True if this process may change the table.
    check_folder_not_replaced: function that raises an error if this process may no longer write.
    """

    def __init__(
        self, folder: Path, writable: bool = True, check_folder_not_replaced: Callable[[], None] = lambda: None
    ) -> None:
        self.path = folder / "log" / INDEX_NAME
        self.writable = writable
        self._check_folder_not_replaced = check_folder_not_replaced

    def entries(self) -> list[Entry]:
        """Return all models, oldest first."""
        with self._connection() as db:
            return [_entry_of_row(*row) for row in self._select_checked_rows(db, "models", "ORDER BY id")]

    def add(
        self,
        name: str,
        spec: Spec,
        start: int,
        policy: PublishPolicy | None = None,
        refine: RefinePolicy | None = None,
        write_initial_state: Callable[[int], None] | None = None,
    ) -> Entry:
        """Add a model with a new name. Return its entry.

        name: name of the model.
        spec: registry key and parameters of the model's estimator.
        start: position of the first event that the model learns.
        policy, refine: when the model is published and refined.
        write_initial_state: function that stores the initial state of the model, durable on
            return. Called with the model's id before the model is added. None if there is no such
            state.
        """
        id = None
        if write_initial_state is not None:
            # Reserve the model's id, which no other model may get.
            self._check_folder_not_replaced()
            with self._connection() as db, commit_or_rollback(db):
                id = int(db.execute("INSERT INTO models (name, spec, start) VALUES (?, '', 0)", (name,)).lastrowid or 0)
                db.execute("DELETE FROM models WHERE id = ?", (id,))
            failpoint("models.reserved")
            # The initial state is stored under the id before the model is added.
            # If the process is killed before the model is added, the next start deletes this state.
            write_initial_state(id)
            failpoint("models.begun")

        with self._change_row("models", "name", name) as db:
            fields = {field: value for field, value in spec._asdict().items() if value is not None}
            spec_json = json.dumps(fields, sort_keys=True, separators=(",", ":"))
            values = (id, name, spec_json, start, _policies_json(policy, refine))
            cursor = db.execute("INSERT INTO models (id, name, spec, start, policy) VALUES (?, ?, ?, ?, ?)", values)
            failpoint("models.before_commit")
        failpoint("models.after_commit")
        return Entry(int(cursor.lastrowid or 0), name, spec, start, policy, refine, None, 0)

    def remove(self, id: int) -> None:
        """Remove a model and its releases. Its id is never used again."""
        with self._change_row("models", "id", id) as db:
            db.execute("DELETE FROM models WHERE id = ?", (id,))
            db.execute("DELETE FROM releases WHERE model = ?", (id,))
            failpoint("models.removing")

    def set_policies(self, id: int, policy: PublishPolicy | None, refine: RefinePolicy | None) -> None:
        """Store a model's policies of publishing and refining."""
        with self._change_row("models", "id", id) as db:
            db.execute("UPDATE models SET policy = ? WHERE id = ?", (_policies_json(policy, refine), id))

    def set_failure(self, id: int, failure: ModelFailure) -> None:
        """Store the failure that stopped a model's learning."""
        with self._change_row("models", "id", id) as db:
            db.execute("UPDATE models SET failure = ? WHERE id = ?", (json.dumps(failure._asdict()), id))

    def set_version_ceiling(self, id: int, ceiling: int) -> None:
        """Store an upper bound of a model's version numbers.

        A version is a published projection. The bound prevents that a number is used twice, if the
        process is killed.
        """
        with self._change_row("models", "id", id) as db:
            db.execute("UPDATE models SET version_ceiling = ? WHERE id = ?", (ceiling, id))

    def unfinished_target_passes(self, dataset: str) -> int:
        """Return the number of passes of a data set's unfinished replay.

        The number includes passes that are done and passes that remain. Returns 0 if no replay of
        the data set is unfinished.
        """
        with self._connection() as db:
            rows = self._select_checked_rows(db, "replays", "WHERE dataset = ?", (dataset,))
        return int(rows[0][1]) if rows else 0

    def has_unfinished_replay(self) -> bool:
        """Return True if a replay of several passes is unfinished."""
        with self._connection() as db:
            return db.execute("SELECT 1 FROM replays LIMIT 1").fetchone() is not None

    def store_unfinished_replay(self, dataset: str, target_passes: int) -> None:
        """Store that a replay of a data set is unfinished.

        A replay learns the rows of the data set, in one or several passes.

        target_passes: number of passes that the replay is to reach.
        """
        with self._change_row("replays", "dataset", dataset) as db:
            db.execute("INSERT OR REPLACE INTO replays (dataset, passes) VALUES (?, ?)", (dataset, target_passes))

    def remove_unfinished_replay(self, dataset: str) -> None:
        """Remove the entry of a data set's replay that has ended."""
        with self._change_row("replays", "dataset", dataset) as db:
            db.execute("DELETE FROM replays WHERE dataset = ?", (dataset,))

    def releases(self) -> list[ReleaseEntry]:
        """Return all releases, oldest first."""
        with self._connection() as db:
            rows = self._select_checked_rows(db, "releases")
        entries = [ReleaseEntry(**json.loads(entry)) for _, _, entry in rows]
        return sorted(entries, key=lambda entry: entry.created)

    def add_release(self, entry: ReleaseEntry) -> None:
        """Add a release, whose file must be durable."""
        key = _release_key(entry)
        with self._change_row("releases", "key", key) as db:
            values = (key, entry.model_id, json.dumps(entry._asdict()))
            db.execute("INSERT INTO releases (key, model, entry) VALUES (?, ?, ?)", values)

    def remove_release(self, entry: ReleaseEntry) -> None:
        """Remove a release, before its file is deleted."""
        with self._change_row("releases", "key", _release_key(entry)) as db:
            db.execute("DELETE FROM releases WHERE key = ?", (_release_key(entry),))

    def unlearned_releases(self) -> dict[int, JsonDict]:
        """Return what `store_unlearned_releases` has stored, by position of the unlearn event."""
        with self._connection() as db:
            rows = self._select_checked_rows(db, "erased_releases")
        return {position: json.loads(answer) for position, answer in rows}

    def check(self) -> None:
        """Raise DamagedFile unless SQLite's check and all digests succeed."""
        with self._connection() as db:
            check_integrity(db, self.path)
            for table in ("replays", "releases", "erased_releases"):
                self._select_checked_rows(db, table)
        self.entries()

    def _select_checked_rows(
        self, db: sqlite3.Connection, table: str, where_or_order_clause: str = "", values: tuple[Any, ...] = ()
    ) -> list[Any]:
        """Return rows of a table, after checking their digests.

        The returned rows do not include the digests.

        where_or_order_clause: end of the SQL query, such as "WHERE id = ?".
        values: values of the placeholders in `where_or_order_clause`.
        """
        rows = db.execute(f"SELECT {_FIELDS[table]}, digest FROM {table} {where_or_order_clause}", values).fetchall()
        for *fields, digest in rows:
            if _crc32_of_fields(*fields) != digest:
                raise damaged_file_error(
                    self.path, f"the entry {fields[0]!r} of its table {table} is not what was written"
                )
        return [row[:-1] for row in rows]

    @contextmanager
    def _change_row(self, table: str, column: str, value: Any) -> Iterator[sqlite3.Connection]:
        """Open a transaction in which the caller changes a row of a table.

        The row is the one whose `column` is `value`. At the end of the transaction, the digest
        (checksum) that is stored with the row is computed again.
        """
        self._check_folder_not_replaced()
        which = f"WHERE {column} = ?"
        with self._connection() as db, commit_or_rollback(db):
            self._select_checked_rows(db, table, which, (value,))
            yield db
            db.create_function("digest", -1, _crc32_of_fields, deterministic=True)
            db.execute(f"UPDATE {table} SET digest = digest({_FIELDS[table]}) {which}", (value,))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open a connection to the SQLite file for the with-block."""
        database = open_existing_index_database(self.path.parent, self.writable)
        with closing(database), database.connection() as db:
            yield db


def store_unlearned_releases(
    transaction: sqlite3.Connection, position: int, entries: Sequence[ReleaseEntry], drop: bool
) -> None:
    """Store which releases hold rows that an unlearn event takes out.

    transaction: the transaction in which the event is appended.
    position: position of the event.
    drop: True if the releases are removed in the same transaction.
    """
    named = [{"model": e.model, "name": e.name, "holds_rows": e.holds_rows} for e in entries]
    dropped = [(e.model_id, e.version) for e in entries if drop]
    answer = json.dumps({"releases": named, "dropped": dropped})
    digest = _crc32_of_fields(position, answer)
    transaction.execute("INSERT INTO erased_releases VALUES (?, ?, ?)", (position, answer, digest))
    if drop:
        keys = [(_release_key(entry),) for entry in entries]
        transaction.executemany("DELETE FROM releases WHERE key = ?", keys)


def _release_key(entry: ReleaseEntry) -> str:
    """Return the key of a release in its table. The id of a removed model is never used again."""
    return f"{entry.model_id}/{entry.name}"


def _crc32_of_fields(*fields: object) -> int:
    """Return the CRC-32 of a row's fields."""
    return zlib.crc32("\x1f".join(map(str, fields)).encode("utf-8", "surrogatepass"))


def _policies_json(policy: PublishPolicy | None, refine: RefinePolicy | None) -> str | None:
    """Return two policies as JSON, or None without a policy.

    The keys of the JSON object are the fields of the publishing policy, and "refine".
    """
    fields: JsonDict = (policy._asdict() if policy else {}) | ({"refine": refine._asdict()} if refine else {})
    return json.dumps(fields) if fields else None


def _entry_of_row(id: int, name: str, spec: str, start: int, policy: Any, failure: Any, ceiling: int) -> Entry:
    """Return the Entry of a row of SQL table `models`.

    The parameters are the columns of the row, in the order of `_FIELDS`. `spec`, `policy` and
    `failure` are JSON texts. `policy` and `failure` may be None.
    """
    fields = json.loads(policy) if policy else {}
    refine = fields.pop("refine", None)
    publish_policy = PublishPolicy(**fields) if fields else None
    refine_policy = RefinePolicy(**refine) if refine else None
    model_failure = ModelFailure(**json.loads(failure)) if failure else None
    parsed_spec = spec_from_json(json.loads(spec))
    return Entry(id, name, parsed_spec, start, publish_policy, refine_policy, model_failure, ceiling)
