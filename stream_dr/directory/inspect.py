"""Inspect: summarise a directory in a dict for JSON.

Reading is safe while another process writes. Each model is shown in the state of its newest
snapshot. The difference between the log's position and a model's position is the number of events
that the snapshot lacks.
"""

from pathlib import Path

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.models.snapshot import snapshot_folder, snapshots_newest_first, state_sha256


def inspect(directory_path: Path) -> JsonDict:
    """Return a summary of the directory at `directory_path`.

    The summary has these keys:

    - position: position of the log's last event.
    - rows: number of rows ever appended to the log.
    - first: position of the oldest event in the log.
    - schema: description of the stream's schema.
    - models: description of each model, by name. It includes "state_sha256", "snapshots" (the
      positions of its snapshots) and "releases".

    Reads the newest snapshot of each model. Raises DirectoryMissing, and the errors of a damaged
    log.
    """
    with Directory(directory_path, writable=False) as directory:
        models = {}
        for name, model in directory.models.items():
            folder = snapshot_folder(directory.path, name, model.id)
            models[name] = model.describe(directory.position) | {
                "state_sha256": state_sha256(model.accumulator.freeze()),
                "snapshots": [int(path.stem) for path in snapshots_newest_first(folder)],
                "releases": [entry._asdict() for entry in directory.releases.entries(model)],
            }
        return {
            "position": directory.position,
            "rows": directory.rows,
            "first": directory.log.first,
            "schema": directory.schema.describe(),
            "models": models,
        }
