"""ModelTable: the names, specs and starts of a directory's models, in one small SQLite file.

Beside the spec it keeps what must survive a kill although no snapshot has it yet: a model's failure (so that a restart
does not try the same event for ever), its publishing policy, and a ceiling of version numbers handed out (so that none
is used twice). Models that were removed are noted until their snapshots are gone, too: those of any other model that the
table does not have show that it has lost one. Opened for each call; a call costs one transaction. A row has a digest of its
fields, which every read checks: SQLite does not find a flipped bit inside a value.

Why this way: specs change seldom and events always; in a file of their own neither waits for the other.
"""

import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from stream_dr.errors import DamagedFile, InvalidParameter
from stream_dr.failpoints import failpoint
from stream_dr.log.sqlite_file import check_integrity, connect, created, damaged_file, transaction, translated
from stream_dr.models.entry import Entry, Failure, PublishPolicy, RefinePolicy, Spec
from stream_dr.models.saved import stored_spec

MODELS_NAME = "models.db"
_APPLICATION = 0x5344524D  # "SDRM"
_FORMAT = 2
_TABLES = """
CREATE TABLE models (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE NOT NULL, spec TEXT NOT NULL,
  start INTEGER NOT NULL, policy TEXT, failure TEXT, version_ceiling INTEGER NOT NULL DEFAULT 0, digest INTEGER);
CREATE TABLE replays (dataset TEXT PRIMARY KEY, passes INTEGER NOT NULL, digest INTEGER);
CREATE TABLE removed (id INTEGER PRIMARY KEY);
"""
_FIELDS = {"models": "id, name, spec, start, policy, failure, version_ceiling", "replays": "dataset, passes"}


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def check_name(name: str) -> None:
    """Raise InvalidParameter for what no model may be called."""
    if not _NAME.fullmatch(name):
        raise InvalidParameter(f"model name {name!r}; use 1 to 64 letters, digits, '_', '-' or '.'.")


def check_there(directory: Path, last: int) -> None:
    """Raise DamagedFile where a stream has come to position `last`, or has snapshots, and the table of its models is gone:
    the snapshots would be taken for nobody's."""
    path, folders = directory / MODELS_NAME, sorted(p.name for p in (directory / "snapshots").glob("*"))
    if path.exists() or (last < 0 and not folders):
        return
    raise DamagedFile(
        f"{path} is missing, and there are {last + 1} events and {len(folders)} folders of snapshots "
        f"({', '.join(folders[:5])}). Restore it from a copy; or, to go on without models, move {directory / 'snapshots'} "
        "away and put the models.db of a new directory in its place.",
        path=str(path),
    )


class ModelTable:
    """The table at `path`; every method is one transaction and may be called by any thread.

    check_writer: raises what keeps this process from changing it.
    Raises DamagedFile, ForeignFile, UnknownFormat, InsufficientStorage.
    """

    def __init__(self, path: Path, writable: bool = True, check_writer: Callable[[], None] = lambda: None) -> None:
        self.path, self.writable, self._check_writer = path, writable, check_writer
        if writable and not path.exists():
            self._create()

    def entries(self) -> list[Entry]:
        """All models, oldest first."""
        if not self.path.exists():
            return []
        with self._connection() as db:
            return self._entries(db)

    def add(
        self,
        name: str,
        spec: Spec,
        start: int,
        policy: PublishPolicy | None = None,
        refine: RefinePolicy | None = None,
        write: Callable[[int], None] | None = None,
    ) -> Entry:
        """Add a model; its name must be free. write: makes durable, before the model is, what it begins with; called with
        the model's id, which counts as that of a removed model until the model is there: so the next start removes what a
        kill left."""
        id = None
        if write is not None:
            id = self._reserved(name)
            write(id)
            failpoint("models.begun")
        with self._written("models", "name", name) as db:
            values = (id, name, _canonical(spec), start, _policies(policy, refine))
            row = db.execute(
                "INSERT INTO models (id, name, spec, start, policy) VALUES (?, ?, ?, ?, ?)", values
            ).lastrowid
            db.execute("DELETE FROM removed WHERE id = ?", (row,))
            failpoint("models.before_commit")
        failpoint("models.after_commit")
        return Entry(int(row or 0), name, spec, start, policy, refine, None, 0)

    def _reserved(self, name: str) -> int:
        """An id that no model gets but the one to be added next, noted as removed."""
        self._check_writer()
        with self._connection() as db, transaction(db):
            id = int(db.execute("INSERT INTO models (name, spec, start) VALUES (?, '', 0)", (name,)).lastrowid or 0)
            db.execute("DELETE FROM models WHERE id = ?", (id,))
            db.execute("INSERT INTO removed VALUES (?)", (id,))
        failpoint("models.reserved")
        return id

    def remove(self, id: int) -> None:
        """Forget a model; its id is never used again."""
        with self._written("models", "id", id) as db:
            db.execute("DELETE FROM models WHERE id = ?", (id,))
            db.execute("INSERT OR IGNORE INTO removed VALUES (?)", (id,))
            failpoint("models.removing")

    def removed_folders(self, folders: Sequence[Path]) -> list[Path]:
        """Those folders of snapshots (NAME.ID) whose models were removed. Raises DamagedFile where one is of a model that
        neither is there nor was removed: the table is older, or has lost a row."""
        with self._connection() as db:
            known = {f"{entry.name}.{entry.id}" for entry in self._entries(db)}
            unknown = [folder for folder in folders if folder.name not in known and folder.suffix[1:].isdigit()]
            noted = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'removed'").fetchone() is not None
            removed = {id for (id,) in db.execute("SELECT id FROM removed")} if noted else None
        for folder in unknown:
            if removed is not None and int(folder.suffix[1:]) not in removed:
                raise damaged_file(
                    self.path, f"it lacks the model whose snapshots are in {folder}; move them away to do without"
                )
        return unknown

    def forget_removed(self) -> None:
        """Forget which models were removed: no snapshot of theirs is left."""
        with self._connection() as db, transaction(db):
            db.execute("CREATE TABLE IF NOT EXISTS removed (id INTEGER PRIMARY KEY)")
            db.execute("DELETE FROM removed")

    def set_policies(self, id: int, policy: PublishPolicy | None, refine: RefinePolicy | None) -> None:
        """Change when a model is published, and when it is refined."""
        with self._written("models", "id", id) as db:
            db.execute("UPDATE models SET policy = ? WHERE id = ?", (_policies(policy, refine), id))

    def set_failure(self, id: int, failure: Failure) -> None:
        """Remember why a model stopped."""
        with self._written("models", "id", id) as db:
            db.execute("UPDATE models SET failure = ? WHERE id = ?", (json.dumps(failure._asdict()), id))

    def set_ceiling(self, id: int, ceiling: int) -> None:
        """Remember that versions up to `ceiling` may have been handed out."""
        with self._written("models", "id", id) as db:
            db.execute("UPDATE models SET version_ceiling = ? WHERE id = ?", (ceiling, id))

    def replay_passes(self, dataset: str) -> int:
        """Passes that a replay of this data set has begun and not ended; 0 when none."""
        with self._connection() as db:
            rows = self._rows(db, "replays", "WHERE dataset = ?", (dataset,))
        return int(rows[0][1]) if rows else 0

    def replaying(self) -> bool:
        """Whether any replay of several passes has begun and not ended."""
        with self._connection() as db:
            return db.execute("SELECT 1 FROM replays LIMIT 1").fetchone() is not None

    def begin_replay(self, dataset: str, passes: int) -> None:
        """Remember that a replay of this data set is to reach `passes` passes."""
        with self._written("replays", "dataset", dataset) as db:
            db.execute("INSERT OR REPLACE INTO replays (dataset, passes) VALUES (?, ?)", (dataset, passes))

    def end_replay(self, dataset: str) -> None:
        """Forget a replay that has ended."""
        with self._written("replays", "dataset", dataset) as db:
            db.execute("DELETE FROM replays WHERE dataset = ?", (dataset,))

    def copy_to(self, path: Path) -> list[tuple[str, int]]:
        """Make the same table at `path`, in place of one that is there; name and id of its models."""
        if not self.path.exists():
            return []
        with self._connection() as db, created(path, _APPLICATION, _FORMAT) as copy:
            db.backup(copy)
        return [(entry.name, entry.id) for entry in ModelTable(path, writable=False).entries()]

    def check(self) -> None:
        """SQLite's own check of the file, and every row's digest; raises DamagedFile."""
        if not self.path.exists():
            return
        with self._connection() as db:
            check_integrity(db, self.path)
            self._rows(db, "replays")
        self.entries()

    def _entries(self, db: sqlite3.Connection) -> list[Entry]:
        return [_entry(*row) for row in self._rows(db, "models", "ORDER BY id")]

    def _rows(self, db: sqlite3.Connection, table: str, which: str = "", values: tuple[Any, ...] = ()) -> list[Any]:
        """Rows of a table, without their digests, which are checked."""
        found = db.execute(f"SELECT {_FIELDS[table]}, digest FROM {table} {which}", values).fetchall()
        for *fields, stored in found:
            if _digest(*fields) != stored:
                raise damaged_file(self.path, f"the entry {fields[0]!r} of its table {table} is not what was written")
        return [row[:-1] for row in found]

    @contextmanager
    def _written(self, table: str, column: str, value: Any) -> Iterator[sqlite3.Connection]:
        """A transaction that changes the row where `column` is `value`; the row's digest is set at its end."""
        self._check_writer()
        which = f"WHERE {column} = ?"
        with self._connection() as db, transaction(db):
            self._rows(db, table, which, (value,))
            yield db
            db.create_function("digest", -1, _digest, deterministic=True)
            db.execute(f"UPDATE {table} SET digest = digest({_FIELDS[table]}) {which}", (value,))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with translated(self.path), closing(connect(self.path, self.writable, _APPLICATION, _FORMAT)) as db:
            yield db

    def _create(self) -> None:
        with created(self.path, _APPLICATION, _FORMAT) as db:
            db.executescript(_TABLES)


def _digest(*fields: object) -> int:
    """CRC-32 of a row's fields."""
    return zlib.crc32("\x1f".join(map(str, fields)).encode("utf-8", "surrogatepass"))


def _canonical(spec: Spec) -> str:
    told = {name: fact for name, fact in spec._asdict().items() if fact is not None}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def _policies(policy: PublishPolicy | None, refine: RefinePolicy | None) -> str | None:
    """Both as one JSON text: what the one says, and under "refine" the other."""
    told: dict[str, Any] = (policy._asdict() if policy else {}) | ({"refine": refine._asdict()} if refine else {})
    return json.dumps(told) if told else None


def _entry(id: int, name: str, spec: str, start: int, policy: Any, failure: Any, ceiling: int) -> Entry:
    told = json.loads(policy) if policy else {}
    refine = told.pop("refine", None)
    return Entry(
        id,
        name,
        stored_spec(json.loads(spec)),
        start,
        PublishPolicy(**told) if told else None,
        RefinePolicy(**refine) if refine else None,
        Failure(**json.loads(failure)) if failure else None,
        ceiling,
    )
