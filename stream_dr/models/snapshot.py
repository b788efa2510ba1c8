"""Snapshot: a model's State, position, spec and published projection in one file.

`D/snapshots/NAME.ID/POSITION.safetensors`; the last two are kept, the newest valid one wins. Taken from a frozen State,
so it may be written while the model goes on. Restoring and going on gives the same bits as never having stopped. A model
that began with a saved estimator keeps that one beside its snapshots: what it knew before is in no event of the log.

Cost: the state's bytes, written and hashed once.

Why this way: `pack` knows no estimator, so the format does not change when one is added.
"""

import hashlib
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from stream_dr import __version__
from stream_dr.disk import fsync_directory, is_full, no_room
from stream_dr.errors import DamagedFile, ForeignFile, StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.failpoints import failpoint
from stream_dr.models.model import Frozen, Model
from stream_dr.models.saved import completed, load, plain_spec, save, stored_spec
from stream_dr.models.schema import Facts
from stream_dr.models.snapshot_file import (
    Arrays,
    contents_of,
    file_bytes,
    packed,
    packed_projection,
    part,
    projection_of,
    read_file,
    write_file,
)
from stream_dr.models.versions import Published
from stream_dr.statistics.protocol import AdditiveAccumulator, State, pack, unpack

SNAPSHOTS_KEPT = 2
"""Snapshots kept a model."""

DAMAGED = ".damaged"
"""What a snapshot that is put aside is called instead of .safetensors."""

START = "start.saved"
"""The saved estimator that a model began with."""

FAILED = "failed.part"
"""What a failed model had published."""

log = logging.getLogger("stream_dr.snapshot")


def snapshot(model: Model, frozen: Frozen, directory: Path) -> Path:
    """Write a model's frozen state to its own folder and drop all but the last two; nothing where there is a newer one, or
    one of that position with what is published. Raises InsufficientStorage."""
    folder = snapshot_folder(directory, model.name, model.id)
    path = folder / f"{frozen.position:020d}.safetensors"
    with model.snapshotting:  # two of one position have the same temporary file; the later has what is published later
        if model.snapshotted(frozen.position):  # it was written meanwhile
            return path
        published = model.published
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, *_snapshot(model, frozen, published))
        model.note_snapshot(frozen.position, published.version if published else 0)
        failpoint("snapshot.noted")
        for old in snapshot_files(folder)[SNAPSHOTS_KEPT:]:
            old.unlink(missing_ok=True)
    return path


def _snapshot(model: Model, frozen: Frozen, published: Published | None) -> tuple[Arrays, Facts]:
    """A snapshot's arrays and facts."""
    arrays, facts = packed("state", frozen.state)
    if published is not None:
        more, facts["published"] = _packed_published(published)
        arrays |= more
    facts |= {
        "kind": "model",
        "name": model.name,
        "spec": plain_spec(model.spec),
        "position": frozen.position,
        "removed_to": frozen.unlearn_horizon,
        "names": list(model.names) if model.names else None,
        "next_version": model.next_version,
        "stream_dr": __version__,
        "numpy": np.__version__,
    }
    return arrays, facts


def export_model(model: Model) -> bytes:
    """The content of a snapshot of the model as it is now: what `load` takes, and a service as a saved estimator. Raises
    ModelFailed."""
    return file_bytes(*_snapshot(model, model.freeze(), model.published))


def keep_published(model: Model, directory: Path) -> None:
    """Write what a failed model has published, so that it goes on serving after a restart; its state may be half
    new."""
    if model.published is None:
        return
    folder = snapshot_folder(directory, model.name, model.id)
    folder.mkdir(parents=True, exist_ok=True)
    arrays, told = _packed_published(model.published)
    facts = {"kind": "published", "spec": plain_spec(model.spec), "next_version": model.next_version, "published": told}
    write_file(folder / FAILED, arrays, facts)


def restore_published(model: Model, directory: Path) -> None:
    """Give a failed model back what it had published."""
    path = snapshot_folder(directory, model.name, model.id) / FAILED
    try:
        arrays, facts = read_file(path)
        with contents_of(path):
            _restore_published(model, arrays, facts)
    except StreamDRError as e:
        log.warning("%s passed over (%s): %s", path, e.code, e)


def restore(model: Model, directory: Path, last: int, writable: bool) -> bool:
    """Bring a model to its newest valid snapshot at or before position `last`, or to the saved estimator that it began with;
    False when there is none.

    Each snapshot that cannot be used is named in the log, with why; the next older one is tried. A damaged one is put aside
    where the directory may be written to: it must not count as one of those that are kept.
    """
    for path in snapshot_files(snapshot_folder(directory, model.name, model.id)):
        try:
            with contents_of(path):
                _restore_file(model, path, last)
        except StreamDRError as e:
            log.warning("snapshot %s passed over (%s): %s", path, e.code, e)
            if writable and isinstance(e, DamagedFile | ForeignFile):
                path.replace(path.with_suffix(DAMAGED))
        else:
            return True
    if model.spec.saved is not None:
        try:
            begin_with(model, load(start_file(directory, model.name, model.id), max_bytes=None))
        except StreamDRError as e:
            log.warning("model %s cannot begin (%s): %s", model.name, e.code, e)
        else:
            return True
    return False


def begin_with(model: Model, estimator: Any) -> None:
    """Let a model go on from what a saved estimator has learned, and publish what it projects by; the estimator stays as
    it is.

    The version has a number that no restart gives to another projection, though none is reserved for it: it is in the
    file.
    """
    holder = estimator.holder()
    model.resume(holder.accumulator.freeze(), model.position)
    model.follow(model.goal, model.names or holder.names)
    try:
        projection = estimator.projection()
    except Exception:  # what cannot be solved is told when it is tried again, as of any model
        return
    if hasattr(projection, "prepared"):
        projection = projection.prepared()
    refined_at = None if holder.refined is None else model.position
    model.take(Published(model.next_version, model.position, projection, model.rows, refined_at=refined_at))


def keep_start(estimator: Estimator, directory: Path, name: str, id: int) -> None:
    """Write the saved estimator that a model begins with; durable on return. Raises InsufficientStorage."""
    path = start_file(directory, name, id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(estimator, path)
        for folder in (path.parent.parent, directory):
            fsync_directory(folder)
    except OSError as e:
        if is_full(e):
            raise no_room(path, str(e)) from e
        raise


def first_accumulator(model: Model, directory: Path) -> AdditiveAccumulator:
    """What a model knew before its first event. Raises DamagedFile."""
    if model.spec.saved is None:
        return model.estimator.accumulator()
    begun = load(start_file(directory, model.name, model.id), max_bytes=None)
    return model.estimator.accumulator(begun.holder().accumulator.freeze())


def start_file(directory: Path, name: str, id: int) -> Path:
    """Where the saved estimator is that a model began with, if it did."""
    return snapshot_folder(directory, name, id) / START


def snapshot_folder(directory: Path, name: str, id: int) -> Path:
    """Where a model's snapshots are."""
    return directory / "snapshots" / f"{name}.{id}"


def snapshot_files(folder: Path) -> list[Path]:
    """A model's snapshots, newest first."""
    return sorted(folder.glob("*.safetensors"), reverse=True)


def oldest_snapshot(directory: Path, model: Model) -> int:
    """Position of a model's oldest kept snapshot; the last before its start when it has none."""
    files = snapshot_files(snapshot_folder(directory, model.name, model.id))
    return int(files[-1].stem) if files else model.start - 1


def newest_snapshot(directory: Path) -> int:
    """The last position that any model's snapshot has reached; −1 where there is none."""
    return max((int(p.stem) for p in directory.glob("snapshots/*/*.safetensors") if p.stem.isdigit()), default=-1)


def remove_snapshots(directory: Path, model: Model) -> None:
    """Remove the folder of one model."""
    shutil.rmtree(snapshot_folder(directory, model.name, model.id), ignore_errors=True)


def snapshot_folders(directory: Path) -> list[Path]:
    """The folders of all models' snapshots."""
    return sorted((directory / "snapshots").glob("*"))


def state_sha256(state: State) -> str:
    """sha256 (hex) over the names and array bytes of a State, by name."""
    arrays, _ = pack(state)
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(arrays[name].tobytes())
    return total.hexdigest()


def _restore_file(model: Model, path: Path, last: int) -> None:
    arrays, facts = read_file(path)
    if facts.get("kind") != "model" or plain_spec(completed(stored_spec(facts["spec"]))) != plain_spec(model.spec):
        raise ForeignFile(f"{path} is of another model ({facts.get('spec')}).")
    unlearn_horizon = facts.get("removed_to", -1)  # earlier releases did not look ahead
    if max(facts["position"], unlearn_horizon) > last:
        raise DamagedFile(f"{path} is at position {max(facts['position'], unlearn_horizon)}, the log ends at {last}.")
    state = unpack(model.estimator.state_type, part("state", arrays), facts["state"])
    model.resume(state, facts["position"], unlearn_horizon)
    model.follow(model.goal, model.names or (tuple(facts["names"]) if facts.get("names") else None))
    _restore_published(model, arrays, facts)
    model.note_snapshot(model.position, model.published_version)


def _restore_published(model: Model, arrays: Arrays, facts: Facts) -> None:
    published = None
    if "published" in facts:
        fields = dict(facts["published"])
        projection = projection_of("published", arrays, fields.pop("projection"))
        published = Published(projection=projection, **fields)
    model.take(published, facts["next_version"])


def _packed_published(published: Published) -> tuple[Arrays, Facts]:
    arrays, facts = packed_projection("published", published.projection)
    told = {k: getattr(published, k) for k in ("version", "position", "rows", "refined_at", "residual")}
    return arrays, told | {"projection": facts}
