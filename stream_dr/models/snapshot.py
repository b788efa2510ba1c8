"""Snapshots: files with a model's state, spec and published projection.

A snapshot also has the state's log position. The path of a snapshot in a directory is
`snapshots/NAME.ID/POSITION.safetensors`. The two newest snapshots of a model are stored. A restart
restores the newest valid snapshot. A snapshot is made from an immutable copy of the state, so the
model can learn while the file is written. A restored model gives exactly the results of a model
that never stopped.

If a model started from a saved estimator, this estimator is stored in the same folder, because the
log does not contain the rows that the estimator had learned.

Cost: all bytes of the state are written and hashed once.
"""

import hashlib
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stream_dr import __version__
from stream_dr.aliases import JsonDict
from stream_dr.disk import (
    PRIVATE_FILE,
    cannot_write_error,
    fsync_directory,
    is_disk_unwritable,
    make_private_folder,
    write_atomically,
)
from stream_dr.errors import DamagedFile, ForeignFile, HistoryGone, StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.failpoints import failpoint
from stream_dr.models import snapshot_file
from stream_dr.models.entry import Entry, ModelFailure
from stream_dr.models.model import FrozenState, Model, Unlearned
from stream_dr.models.saved import complete_stored_spec, load, saved_file_bytes, spec_from_json, spec_to_json
from stream_dr.models.versions import Published
from stream_dr.projection import Linear
from stream_dr.statistics.protocol import Accumulator, State, pack, unpack

MAX_SNAPSHOTS = 2
"""Number of snapshots stored for each model."""

DAMAGED_SUFFIX = ".damaged"
"""Suffix of the name of a damaged snapshot, in place of ".safetensors"."""

START_FILE_NAME = "start.saved"
"""Name of the file with the saved estimator that a model started from."""

FAILED_FILE_NAME = "failed.part"
"""Name of the file with the projection that a failed model had published."""

log = logging.getLogger("stream_dr.snapshot")


def write_snapshot_if_needed(model: Model, frozen: FrozenState, directory_path: Path) -> Path:
    """Write a frozen state's snapshot, and return its path.

    The newest two snapshots of the model remain, and older snapshots are removed. No snapshot is
    written in two cases:

    * The model has a snapshot of a later position.
    * The model has a snapshot of the same position that contains the published projection.

    Raises InsufficientStorage.
    """
    folder = snapshot_folder(directory_path, model.name, model.id)
    path = folder / f"{frozen.position:020d}.safetensors"

    # Let one thread write at a time, because two would use the same temporary file.
    with model.snapshotting:
        # Another thread may have written this snapshot while this thread waited.
        if not model.snapshot_would_be_new_at(frozen.position):
            return path

        published = model.published
        make_private_folder(folder)
        snapshot_file.write_file(path, *_pack_snapshot(model, frozen, published))
        model.note_snapshot(frozen.position, published.version if published else 0)
        failpoint("snapshot.noted")
        for old in snapshots_newest_first(folder)[MAX_SNAPSHOTS:]:
            old.unlink(missing_ok=True)
    return path


def _pack_snapshot(model: Model, frozen: FrozenState, published: Published | None) -> snapshot_file.FileContents:
    """Return the arrays and metadata of a model's snapshot."""
    arrays, metadata = snapshot_file.pack_under_prefix("state", frozen.state)
    if published is not None:
        more, metadata["published"] = pack_published(published)
        arrays |= more

    # A restart checks the spec and the position before it restores the state.
    metadata |= {
        "kind": "model",
        "name": model.name,
        "spec": spec_to_json(model.spec),
        "position": frozen.position,
        "removed_to": frozen.unlearn_horizon,
        "unlearned": frozen.unlearned,
        "names": list(model.names) if model.names else None,
        "next_version": model.version_numbers.next,
        "stream_dr": __version__,
        "numpy": np.__version__,
    }
    return arrays, metadata


def export_model(model: Model) -> bytes:
    """Return a snapshot of the model's present state as bytes.

    `load` reads these bytes, and a service accepts them as a saved estimator. Raises ModelFailed.

    The example uses `running`, `directory` and `model` from the example of Running.

    >>> import stream_dr
    >>> stream_dr.load(stream_dr.export_model(model))
    LDA()
    """
    return snapshot_file.safetensors_bytes(*_pack_snapshot(model, model.freeze(), model.published))


def write_failed_projection(failed_model: Model, directory_path: Path) -> None:
    """Write a failed model's published projection to a file.

    After a restart, the projection can be published again from this file. The model's state is not
    written, because it may contain only a part of the event at which the model failed.
    """
    if failed_model.published is None:
        return

    folder = snapshot_folder(directory_path, failed_model.name, failed_model.id)
    make_private_folder(folder)
    arrays, description = pack_published(failed_model.published)
    metadata = {
        "kind": "published",
        "spec": spec_to_json(failed_model.spec),
        "next_version": failed_model.version_numbers.next,
        "published": description,
    }
    snapshot_file.write_file(folder / FAILED_FILE_NAME, arrays, metadata)


def restore_published(failed_model: Model, directory_path: Path) -> None:
    """Publish a failed model's projection again after a restart.

    The projection is read from the file that `write_failed_projection` writes. If the file
    does not exist or cannot be read, nothing is published and a warning is logged.
    """
    path = snapshot_folder(directory_path, failed_model.name, failed_model.id) / FAILED_FILE_NAME
    try:
        arrays, metadata = snapshot_file.read_file(path)
        with snapshot_file.errors_as_damaged_file(path):
            _restore_published_from(failed_model, arrays, metadata)
    except StreamDRError as e:
        log.warning("%s passed over (%s): %s", path, e.code, e)


def restore_model_from_snapshot(
    model: Model, entry: Entry, directory_path: Path, log_first: int, log_last: int, may_rename_damaged: bool
) -> None:
    """Restore a model's state and projection after a restart.

    model: new Model object, which has learned nothing.
    entry: the model's row in the directory's table of models.
    directory_path: path of the directory.
    log_first: position of the first event in the log.
    log_last: position of the last event in the log.
    may_rename_damaged: True if damaged snapshots may be renamed.

    Raises HistoryGone if events that the model needs are no longer in the log.
    """
    # A model whose parameters are invalid in this release has already failed.
    if model.failure is not None:
        restore_published(model, directory_path)
        return

    restored = restore_newest_snapshot(model, directory_path, log_last, may_rename_damaged)
    if not restored and not model.can_subtract_rows:
        # Skip the rows that unlearn events remove, because this model cannot subtract them later.
        model.set_unlearn_horizon(log_last)
    if model.published is not None and model.published.refined_at is not None:
        model.note_refine_start(model.published.rows)

    # Decide whether the model has failed, is live, or must catch up.
    if entry.failure is not None:
        model.mark_failed(entry.failure)
        restore_published(model, directory_path)
    elif model.spec.saved is not None and not restored:
        why = "the saved estimator that it began with cannot be read; restore the directory from a copy"
        model.mark_failed(ModelFailure(entry.start, DamagedFile.code, why))
    elif model.position + 1 < log_first:
        raise HistoryGone(f"no usable snapshot, and events before position {log_first} are no longer kept")
    elif model.position >= log_last:
        model.mark_live()


def restore_newest_snapshot(model: Model, directory_path: Path, log_last: int, may_rename_damaged: bool) -> bool:
    """Restore a model's newest valid snapshot up to `log_last`.

    If there is no valid snapshot, the saved estimator that the model started from is restored.
    Returns False if there is neither a valid snapshot nor a saved estimator.

    log_last: position of the last event in the log.
    may_rename_damaged: True to rename damaged snapshots, so that they do not count as stored
        snapshots.
    """
    # Try the snapshots, newest first. The reason why a snapshot cannot be used is logged.
    for path in snapshots_newest_first(snapshot_folder(directory_path, model.name, model.id)):
        try:
            with snapshot_file.errors_as_damaged_file(path):
                _restore_from_file(model, path, log_last)
        except StreamDRError as e:
            log.warning("snapshot %s passed over (%s): %s", path, e.code, e)
            if may_rename_damaged and isinstance(e, DamagedFile | ForeignFile):
                path.replace(path.with_suffix(DAMAGED_SUFFIX))
        else:
            return True

    # There is no valid snapshot. Start again from the saved estimator, if there is one.
    if model.spec.saved is not None:
        try:
            path = start_estimator_path(directory_path, model.name, model.id)
            adopt_saved_estimator(model, load(path, max_bytes=None))
        except StreamDRError as e:
            log.warning("model %s cannot begin (%s): %s", model.name, e.code, e)
        else:
            return True
    return False


def adopt_saved_estimator(model: Model, estimator: Any) -> None:
    """Let a model continue from a saved estimator.

    The estimator's projection is published. The estimator does not change.
    """
    fitted = estimator.fitted()
    model.replace_state(fitted.accumulator.freeze(), model.position)
    model.set_log_end(model.log_end, model.names or fitted.names)

    try:
        projection = estimator.projection()
    except Exception:
        # The error is raised again, and reported, when the model is published the next time.
        return

    if isinstance(projection, Linear):
        projection = projection.with_offset()
    # The version number is not reserved on disk. A restart gives the same projection the same one.
    refined_at = None if fitted.refined is None else model.position
    model.restore_published(
        Published(
            model.version_numbers.next,
            model.position,
            projection,
            model.rows,
            refined_at=refined_at,
            unlearn_horizon=model.position,
            timestamp=time.time(),
        )
    )


def write_start_estimator(estimator: Estimator, directory_path: Path, model_name: str, model_id: int) -> None:
    """Write the saved estimator that a model starts from.

    The file is durable when the function returns. Raises InsufficientStorage.

    model_name: name of the model.
    model_id: id of the model.
    """
    path = start_estimator_path(directory_path, model_name, model_id)
    try:
        make_private_folder(path.parent)
        content = saved_file_bytes(estimator)
        write_atomically(path, lambda file: file.write(content), "snapshot", PRIVATE_FILE)
        for folder in (path.parent.parent, directory_path):
            fsync_directory(folder)
    except OSError as e:
        if is_disk_unwritable(e):
            raise cannot_write_error(path, str(e)) from e
        raise


def accumulator_at_start(model: Model, directory_path: Path) -> Accumulator:
    """Return an accumulator in a model's state before any event.

    The accumulator is empty unless the model started from a saved estimator. Raises the errors of
    reading the saved estimator.
    """
    if model.spec.saved is None:
        return model.estimator.accumulator()

    saved = load(start_estimator_path(directory_path, model.name, model.id), max_bytes=None)
    return model.estimator.accumulator(saved.fitted().accumulator.freeze())


def start_estimator_path(directory_path: Path, model_name: str, model_id: int) -> Path:
    """Return the path of a model's saved estimator.

    The file exists only if the model started from a saved estimator.

    model_name: name of the model.
    model_id: id of the model.
    """
    return snapshot_folder(directory_path, model_name, model_id) / START_FILE_NAME


def snapshot_folder(directory_path: Path, model_name: str, model_id: int) -> Path:
    """Return the path of the folder of a model's snapshots.

    model_name: name of the model.
    model_id: id of the model.
    """
    return directory_path / "snapshots" / f"{model_name}.{model_id}"


def snapshots_newest_first(folder: Path) -> list[Path]:
    """Return the paths of a model's snapshots, newest first."""
    return sorted(folder.glob("*.safetensors"), reverse=True)


def oldest_snapshot_position(directory_path: Path, model: Model) -> int:
    """Return the log position of a model's oldest snapshot file.

    If the model has no snapshot, the result is `model.start` − 1.
    """
    files = snapshots_newest_first(snapshot_folder(directory_path, model.name, model.id))
    return int(files[-1].stem) if files else model.start - 1


def newest_snapshot_position(directory_path: Path) -> int:
    """Return the log position of the newest snapshot of any model.

    The result is −1 if no model has a snapshot.
    """
    return max((int(p.stem) for p in directory_path.glob("snapshots/*/*.safetensors") if p.stem.isdigit()), default=-1)


def remove_snapshots(directory_path: Path, model: Model) -> None:
    """Remove the folder of a model's snapshots."""
    # A thread that writes a snapshot would create the folder again, so wait for this thread.
    with model.snapshotting:
        shutil.rmtree(snapshot_folder(directory_path, model.name, model.id), ignore_errors=True)


def state_sha256(state: State) -> str:
    """Return the sha256 (hex) of a State's arrays.

    The digest includes the names and bytes of the arrays.
    """
    arrays, _ = pack(state)
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(arrays[name].tobytes())
    return total.hexdigest()


def _restore_from_file(model: Model, path: Path, log_last: int) -> None:
    """Restore a model from one snapshot.

    log_last: last position of the log.

    Raises ForeignFile if the snapshot is of another model. Raises DamagedFile if the snapshot is
    of a later position than `log_last`.
    """
    # Check that the snapshot is of this model and of this log.
    arrays, metadata = snapshot_file.read_file(path)
    if metadata.get("kind") != "model" or spec_to_json(
        complete_stored_spec(spec_from_json(metadata["spec"]))
    ) != spec_to_json(model.spec):
        raise ForeignFile(f"{path} is of another model ({metadata.get('spec')}).")

    unlearn_horizon = metadata["removed_to"]
    newest_position = max(metadata["position"], unlearn_horizon)
    if newest_position > log_last:
        raise DamagedFile(f"{path} is at position {newest_position}, the log ends at {log_last}.")

    # Restore the state, then the published projection.
    state_arrays = snapshot_file.select_and_strip_prefix("state", arrays)
    state: State = unpack(model.estimator.state_type, state_arrays, metadata["state"])
    unlearned = [Unlearned(*fields) for fields in metadata["unlearned"]]
    model.replace_state(state, metadata["position"], unlearn_horizon, unlearned)
    model.set_log_end(model.log_end, model.names or (tuple(metadata["names"]) if metadata.get("names") else None))
    _restore_published_from(model, arrays, metadata)
    model.note_snapshot(model.position, model.published_version)


def _restore_published_from(model: Model, arrays: snapshot_file.Arrays, metadata: JsonDict) -> None:
    """Restore a published projection from arrays and metadata."""
    published = None
    if "published" in metadata:
        published = unpack_published(arrays, metadata["published"])
    model.restore_published(published, metadata["next_version"])


def pack_published(published: Published) -> snapshot_file.FileContents:
    """Return the arrays and metadata of a published projection."""
    arrays, metadata = snapshot_file.pack_projection("published", published.projection)
    names = ("version", "position", "rows", "refined_at", "residual", "unlearn_horizon", "timestamp", "release")
    fields = {name: getattr(published, name) for name in names}
    return arrays, fields | {"projection": metadata}


def unpack_published(arrays: snapshot_file.Arrays, metadata: JsonDict) -> Published:
    """Return the published projection that `pack_published` has packed."""
    fields = dict(metadata)
    projection = snapshot_file.unpack_projection("published", arrays, fields.pop("projection"))
    return Published(projection=projection, **fields)


def remove_published_if(directory_path: Path, model: Model, is_removed: Callable[[Published], bool]) -> None:
    """Remove published projections from a model's snapshots.

    The state in a snapshot does not change. A snapshot that cannot be read is left as it is.
    """
    folder = snapshot_folder(directory_path, model.name, model.id)
    # A thread that writes a snapshot would remove older ones meanwhile.
    with model.snapshotting:
        for path in [*snapshots_newest_first(folder), *folder.glob(FAILED_FILE_NAME)]:
            try:
                arrays, metadata = snapshot_file.read_file(path)
                published = None
                if "published" in metadata:
                    published = unpack_published(arrays, metadata["published"])
            except StreamDRError as e:
                log.warning("snapshot %s passed over (%s): %s", path, e.code, e)
                continue

            if published is not None and is_removed(published):
                del metadata["published"]
                arrays = {name: array for name, array in arrays.items() if not name.startswith("published.")}
                snapshot_file.write_file(path, arrays, metadata)
