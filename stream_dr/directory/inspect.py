"""Inspect: summary of a directory's contents as one JSON-able value.

Reading is safe while another process writes. Models are shown as their newest snapshot has them.
Their `position`, compared with the log's, says how far behind that is.
"""

from pathlib import Path

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.models.model import Model
from stream_dr.models.snapshot import snapshot_files, snapshot_folder, state_sha256


def inspect(path: Path) -> JsonDict:
    """Return a summary of the directory at `path`.

    Its keys are "position", "rows", "first", "schema" and "models". The models are described by
    name, with "state_sha256" and "snapshots" (positions) in addition.

    Reads the newest snapshot of each model. Raises DirectoryMissing, and the errors of a damaged
    log.
    """
    with Directory(path, writable=False) as directory:
        return {
            "position": directory.position,
            "rows": directory.rows,
            "first": directory.log.first,
            "schema": directory.schema.describe(),
            "models": {name: _describe_model(directory, model) for name, model in directory.models.items()},
        }


def _describe_model(directory: Directory, model: Model) -> JsonDict:
    """Return the description of a model, the digest of its state and its snapshots."""
    folder = snapshot_folder(directory.path, model.name, model.id)
    return model.describe(directory.position) | {
        "state_sha256": state_sha256(model.accumulator.freeze()),
        "snapshots": [int(path.stem) for path in snapshot_files(folder)],
    }
