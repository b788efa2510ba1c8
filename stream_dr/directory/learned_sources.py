"""Sources: learned files, converted to shards that the directory owns.

    D/sources/NAME/part-00000.arrow … manifest.json source.json

source.json has the path, size and time of the file, and the options with which the file was read.
A folder gets its final name when it is complete.

An event cannot refer to a learned file itself, because the file has no numbered batches, and its
owner may delete the file. So the file's rows are written to shards, and events refer to the
batches of the shards. Recovery, several passes, refine, unlearn and verify then work as for any
other shards.
"""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from stream_dr.aliases import JsonDict
from stream_dr.datasets.sources import FileSource
from stream_dr.directory.references import SOURCES
from stream_dr.disk import PRIVATE_FILE, TEMPORARY, fsync_directory, make_private_folder, write_atomically
from stream_dr.errors import OutputExists
from stream_dr.shards.folder import MANIFEST_NAME, read_manifest, write_shards
from stream_dr.threads import compute_ahead

NOTE = "source.json"
"""Name of the file that says from which file the shards were made."""

NOTE_FORMAT = 1


def write_owned_shards(
    directory_path: Path, source: FileSource, name: str | None = None, progress: Callable[[int], object] | None = None
) -> Path:
    """Write a file's rows as shards that the directory owns.

    If the shards of an unchanged file exist already, nothing is written.

    directory_path: path of the directory.
    source: source of one file.
    name: name of the shards' folder. None takes the file's name.
    progress: function called with the number of rows written so far.

    Returns the folder of the shards. Only one process at a time may call this function for a
    directory. Raises OutputExists if the folder of that name has other rows, InsufficientStorage,
    and the errors of reading the file. After an error, unfinished shards are removed.
    """
    name = re.sub(r"[^\w.-]+", "_", name or source.paths[0].name.replace("!", "_"))
    folder = directory_path / SOURCES / name
    note = _source_json_content(source)
    if (folder / NOTE).exists() and json.loads((folder / NOTE).read_bytes()) == note:
        return folder

    # Remove the unfinished folder of a process that was killed.
    temporary = folder.with_name(f".{name}{TEMPORARY}")
    shutil.rmtree(temporary, ignore_errors=True)
    make_private_folder(temporary)
    try:
        with closing(compute_ahead(source.blocks())) as blocks:
            manifest = write_shards(blocks, temporary, n_features=source.options.n_features, progress=progress)
        for file in temporary.iterdir():
            with suppress(OSError):
                file.chmod(PRIVATE_FILE)
        if not folder.exists():
            _write_source_note(temporary, note)
            temporary.rename(folder)
            fsync_directory(folder.parent)
            return folder

        # The folder must have the same rows as the file.
        known = read_manifest(folder / MANIFEST_NAME)
        if [entry.sha256 for entry in known.shards] != [entry.sha256 for entry in manifest.shards]:
            raise OutputExists(
                f"{source.paths[0]} gives {manifest.rows} rows now, others than the {known.rows} learned as "
                f"{folder.name!r}: the file has changed, or is read in another way. Rows learned before "
                "would be learned again; put the new ones into a file of their own, or learn it all beside them by "
                "another name, with stream-dr learn --name.",
                path=str(folder),
            )
        _write_source_note(folder, note)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _source_json_content(source: FileSource) -> JsonDict:
    """Return the content of a one-file source's source.json."""
    path = source.paths[0]
    status = Path(str(path).partition("!")[0]).stat()
    options = {k: v for k, v in source.options._asdict().items() if v not in (None, ())}
    file = {"path": str(path.absolute()), "bytes": status.st_size, "changed": status.st_mtime_ns}
    fields = {"stream_dr": "source", "format": NOTE_FORMAT, **file, "read_as": source.format, "options": options}
    note: JsonDict = json.loads(json.dumps(fields, default=str))
    return note


def _write_source_note(folder: Path, note: JsonDict) -> None:
    """Write `note` as source.json into a folder."""
    text = json.dumps(note, indent=1, sort_keys=True)
    write_atomically(folder / NOTE, lambda file: file.write(text.encode()), "source", PRIVATE_FILE)
