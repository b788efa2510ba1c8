"""Releases: published projections that stay, with a name, in a directory.

A release is one file `releases/MODEL.ID/NAME.safetensors` and one row in the table of releases.
The file is written before the row is added, and deleted after the row is removed. So a process that
is killed leaves both or a file without a row, which the next start deletes.

The rows of an unlearn event may be in releases. The event's transaction stores which ones, and
removes them from the table if the client asks for this.
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from stream_dr.batch.schema import Schema
from stream_dr.directory.draft import DROP, parse_removal
from stream_dr.directory.history import History
from stream_dr.directory.model_table import ModelTable, check_name, store_unlearned_releases
from stream_dr.disk import fsync_directory, make_private_folder
from stream_dr.errors import (
    CatchingUp,
    LimitExceeded,
    ReleaseExists,
    ReleaseServed,
    UnknownModel,
    UnknownRelease,
    did_you_mean,
)
from stream_dr.failpoints import failpoint
from stream_dr.log.event import Event
from stream_dr.models.model import Model
from stream_dr.models.release import Release, ReleaseEntry, entry_of_release, pack_release, read_release
from stream_dr.models.snapshot_file import write_file
from stream_dr.models.versions import Published
from stream_dr.projection import Projection

FOLDER = "releases"
"""Name of the folder of releases in a directory."""

MAX_RELEASES_OF_MODEL = 100
MAX_RELEASES = 1_000

CACHED_RELEASES = 4
"""Number of releases that stay in memory, the ones used last."""


class Releases:
    """Releases of a directory's models. Thread-safe.

    path: path of the directory.
    table: table of the models and releases.
    history: reader of the directory's past events.
    append_lock: lock that a thread holds while it appends to the log.
    models: function that returns the models by name.
    schema: function that returns the stream's current schema.
    """

    def __init__(
        self,
        path: Path,
        table: ModelTable,
        history: History,
        append_lock: threading.Lock,
        models: Callable[[], dict[str, Model]],
        schema: Callable[[], Schema],
    ) -> None:
        self._path = path
        self._table = table
        self._history = history
        self._append_lock = append_lock
        self._models = models
        self._schema = schema

        # A thread holds this lock while it changes files. The entries change under the lock of
        # appends, which is taken after this one.
        self._lock = threading.Lock()
        self._entries = self._table.releases()
        self._read = lru_cache(CACHED_RELEASES)(lambda entry: read_release(release_path(path, entry)))

    def entries(self, model: Model) -> list[ReleaseEntry]:
        """Return the releases of a model, oldest first."""
        return [entry for entry in self._entries if entry.model_id == model.id]

    def names(self, model: Model) -> set[str]:
        """Return the names of a model's releases."""
        return {entry.name for entry in self.entries(model)}

    def entry(self, model: Model, name: str) -> ReleaseEntry:
        """Return the entry of a model's release. Raises UnknownRelease."""
        known = {entry.name: entry for entry in self.entries(model)}
        if name not in known:
            raise UnknownRelease(
                f"model {model.name!r} has no release {name!r}{did_you_mean(name, known)}; there are: "
                f"{', '.join(known) or 'none'}."
            )
        return known[name]

    def read(self, model: Model, name: str) -> Release:
        """Return a model's release.

        Raises UnknownRelease, and the errors of a damaged file.
        """
        return self._read(self.entry(model, name))

    def served(self, model: Model, name: str | None = None) -> Release:
        """Return the projection that answers a query.

        name: name of the release that the query asks for. None means what the model serves now.

        Raises the errors of `read` or of `Model.newest`.
        """
        if name is not None:
            return self.read(model, name)
        return Release(model.name, model.id, model.spec, self._schema(), model.newest())

    def newest_projection(self, model: Model) -> Projection | None:
        """Return the projection of the release created last, or None. Raises the errors of `read`."""
        # While the lock is held, no file is deleted.
        with self._lock:
            entries = self.entries(model)
            return self._read(entries[-1]).published.projection if entries else None

    def create(self, model: Model, name: str, version: int | None = None) -> tuple[ReleaseEntry, bool]:
        """Give a published projection a name, durable on return.

        version: version of the projection. None means the newest.

        Returns the entry, and True if the release is new. Raises ReleaseExists if the name has
        another version. Raises CatchingUp if the projection includes unlearned rows. Raises
        LimitExceeded, InsufficientStorage, InvalidParameter, UnknownVersion, NotFitted.
        """
        check_name("release", name)
        with self._lock:
            if name in self.names(model):
                return self._same_version(model, self.entry(model, name), version), False
            self._check_count(model)
            published = model.newest() if version is None else model.version(version)
            release = Release(model.name, model.id, model.spec, self._schema(), published._replace(release=name))
            entry = entry_of_release(release)
            path = release_path(self._path, entry)
            make_private_folder(path.parent)
            write_file(path, *pack_release(release))
            for folder in (path.parent.parent, self._path):
                fsync_directory(folder)
            failpoint("releases.written")
            with self._append_lock:
                try:
                    self._check_current(model, published)
                except BaseException:
                    path.unlink(missing_ok=True)
                    raise
                self._table.add_release(entry)
                self._entries = [*self._entries, entry]
        failpoint("releases.added")
        return entry, True

    def delete(self, model: Model, name: str, reset_basis: bool = False) -> None:
        """Delete a model's release.

        reset_basis: True to delete also the newest release of a model with a steady basis. The next
            projection is then turned to the release before.

        Raises UnknownRelease. Raises ReleaseServed if the model serves the release, or if its basis
        is turned to the release and `reset_basis` is false.
        """
        with self._lock, self._append_lock:
            entry = self.entry(model, name)
            if model.spec.basis is not None and entry == self.entries(model)[-1] and not reset_basis:
                raise ReleaseServed(
                    f"the steady basis of model {model.name!r} is that of its newest release {name!r}. Make another release "
                    "first, or give basis=reset: later vectors then do not match those of this release."
                )
            if model.served_release == name:
                raise ReleaseServed(
                    f"model {model.name!r} serves the release {name!r}. Publish the model or another release first: "
                    f"POST /models/{model.name}/publish."
                )
            self._table.remove_release(entry)
            self.reload()
        failpoint("releases.removed")
        self.delete_files_without_entry()

    def store_unlearned(self, transaction: sqlite3.Connection, events: Iterable[Event]) -> None:
        """Store which releases hold rows that unlearn events take out.

        If an event asks to drop them, they are removed from the table. The caller holds the append
        lock, and then calls `reload`.

        transaction: the transaction in which the events are appended.
        """
        starts = {model.id: model.start for model in self._models().values()}
        remaining = self._entries
        for event in events:
            if event.kind != "unlearn":
                continue
            positions = parse_removal(event.body)
            holding = [e for e in remaining if any(starts[e.model_id] <= p <= e.position for p in positions)]
            if holding:
                drop = json.loads(bytes(event.body)).get("releases") == DROP
                store_unlearned_releases(transaction, event.position, holding, drop)
                if drop:
                    remaining = [entry for entry in remaining if entry not in holding]

    @contextmanager
    def hold(self, model: Model, name: str) -> Iterator[None]:
        """Let no release be removed in the with-block. Raises UnknownRelease."""
        with self._append_lock:
            self.entry(model, name)
            yield

    def reload(self) -> None:
        """Read the table again, and withdraw what models publish of removed releases."""
        self._entries = self._table.releases()
        self._read.cache_clear()
        for model in self._models().values():
            model.withdraw_if(self.is_gone_from(model))

    def is_gone_from(self, model: Model) -> Callable[[Published], bool]:
        """Return a function that tells whether a projection of a model must not be kept.

        It is of a release that is not in the table, or a dropped release was made of it.
        """
        names = self.names(model)
        dropped = [pair for answer in self._table.unlearned_releases().values() for pair in answer["dropped"]]

        def is_gone(published: Published) -> bool:
            is_removed = published.release is not None and published.release not in names
            return is_removed or [model.id, published.version] in dropped

        return is_gone

    def files_without_entry(self) -> list[Path]:
        """Return the paths of files whose releases are not in the table."""
        known = {release_path(self._path, entry) for entry in self._entries}
        return [path for path in (self._path / FOLDER).glob("*/*") if path not in known]

    def delete_files_without_entry(self) -> None:
        """Delete the files of releases that are not in the table."""
        with self._lock:
            for path in self.files_without_entry():
                path.unlink()
                fsync_directory(path.parent)
            # A folder is removed with its last file.
            for folder in (self._path / FOLDER).glob("*/"):
                with suppress(OSError):
                    folder.rmdir()

    def _same_version(self, model: Model, known: ReleaseEntry, version: int | None) -> ReleaseEntry:
        """Return an existing entry. Raises ReleaseExists if it has another version."""
        if version is None and model.served_release != known.name:
            version = model.newest().version
        if version not in (None, known.version):
            raise ReleaseExists(
                f"release {known.name!r} of model {known.model!r} is version {known.version}, not {version}. Choose another "
                "name, or delete it first."
            )
        return known

    def _check_count(self, model: Model) -> None:
        """Raise LimitExceeded if there are as many releases as there may be."""
        counts = Counter(entry.model_id for entry in self._entries)
        if counts[model.id] >= MAX_RELEASES_OF_MODEL or counts.total() >= MAX_RELEASES:
            raise LimitExceeded(
                f"model {model.name!r} has {counts[model.id]} releases, and the directory {counts.total()}; at most "
                f"{MAX_RELEASES_OF_MODEL} and {MAX_RELEASES} are allowed. Delete some first."
            )

    def _check_current(self, model: Model, published: Published) -> None:
        """Raise an error if a model was removed, or its projection includes unlearned rows.

        The caller holds the append lock.
        """
        if self._models().get(model.name) is not model:
            raise UnknownModel(f"model {model.name!r} was removed.")
        if self._history.has_unlearned(model.start, published.position, published.unlearn_horizon):
            raise CatchingUp(
                f"version {published.version} of model {model.name!r} includes rows that were unlearned. Ask again when "
                "the model is published without them."
            )


def release_path(directory_path: Path, entry: ReleaseEntry) -> Path:
    """Return the path of a release's file."""
    return directory_path / FOLDER / f"{entry.model}.{entry.model_id}" / f"{entry.name}.safetensors"
