"""Inspect: what a directory holds, as one JSON-able value; read-only, also while another process writes.

Models are shown as their newest snapshot has them; `position` beside the log's says how far that is behind.
"""

from pathlib import Path

from stream_dr.directory.directory import Directory
from stream_dr.models.model import Model
from stream_dr.models.schema import Facts
from stream_dr.models.snapshot import snapshot_files, snapshot_folder, state_sha256


def inspect(path: Path) -> Facts:
    """{"position", "rows", "first", "schema", "models": {name: {…, "state_sha256"}}}. Raises DirectoryMissing and what
    a damaged log raises. Costs reading the newest snapshot of each model."""
    with Directory(path, writable=False) as directory:
        return {
            "position": directory.position,
            "rows": directory.rows,
            "first": directory.log.first,
            "schema": directory.schema.describe(),
            "models": {name: _model(directory, model) for name, model in directory.models.items()},
        }


def _model(directory: Directory, model: Model) -> Facts:
    folder = snapshot_folder(directory.path, model.name, model.id)
    told = model.describe(directory.position)
    return told | {
        "state_sha256": state_sha256(model.accumulator.freeze()),
        "snapshots": [int(path.stem) for path in snapshot_files(folder)],
    }
