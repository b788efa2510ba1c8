"""Sources: files that a directory has learned, stored as shards of its own.

    D/sources/NAME/part-00000.arrow … manifest.json source.json

source.json notes which file it was, its size and time, and how it was read. A folder gets its name
once it is complete.

Events cannot name a file, which has no batches and may be deleted. Rows in shards are replayed by
reference like any others, so that recovery, several passes, refine, unlearn and verify work as
always.
"""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from stream_dr.aliases import JsonDict
from stream_dr.datasets.sources import FileSource
from stream_dr.directory.references import SOURCES
from stream_dr.disk import TEMPORARY, fsync_directory, write_atomically
from stream_dr.errors import OutputExists
from stream_dr.shards.manifest import MANIFEST_NAME, Manifest, read_manifest
from stream_dr.shards.writer import write_shards
from stream_dr.threads import compute_ahead

NOTE = "source.json"
NOTE_FORMAT = 1


def keep_as_shards(
    path: Path, source: FileSource, name: str | None = None, progress: Callable[[int], object] | None = None
) -> Path:
    """Return the folder with a file's rows as shards, written if it is missing.

    path: path of the directory.
    source: source of one file.
    name: name of the folder. None takes the file's name.
    progress: called with the number of rows written so far.

    Only one process may call this at a time. Raises OutputExists if other rows were learned under
    that name, InsufficientStorage, and the errors of reading the file. After an error nothing is
    left.
    """
    name = re.sub(r"[^\w.-]+", "_", name or source.paths[0].name.replace("!", "_"))
    folder = path / SOURCES / name
    note = _source_note(source)
    if (folder / NOTE).exists() and json.loads((folder / NOTE).read_bytes()) == note:
        return folder

    # Remove what a killed process left.
    temporary = folder.with_name(f".{name}{TEMPORARY}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with closing(compute_ahead(source.blocks())) as blocks:
            manifest = write_shards(blocks, temporary, n_features=source.options.n_features, progress=progress)
        if not folder.exists():
            _write_source_note(temporary, note)
            temporary.rename(folder)
            fsync_directory(folder.parent)
            return folder

        _check_same_rows(source, manifest, folder)
        _write_source_note(folder, note)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _source_note(source: FileSource) -> JsonDict:
    """Return the content of source.json for a source."""
    path = source.paths[0]
    status = Path(str(path).partition("!")[0]).stat()
    options = {k: v for k, v in source.options._asdict().items() if v not in (None, ())}
    file = {"path": str(path.absolute()), "bytes": status.st_size, "changed": status.st_mtime_ns}
    fields = {"stream_dr": "source", "format": NOTE_FORMAT, **file, "read_as": source.format, "options": options}
    note: JsonDict = json.loads(json.dumps(fields, default=str))
    return note


def _write_source_note(folder: Path, note: JsonDict) -> None:
    """Write source.json."""
    text = json.dumps(note, indent=1, sort_keys=True)
    write_atomically(folder / NOTE, lambda file: file.write(text.encode()), "source")


def _check_same_rows(source: FileSource, manifest: Manifest, folder: Path) -> None:
    """Raise OutputExists unless the rows are those in the folder."""
    known = read_manifest(folder / MANIFEST_NAME)
    if [entry.sha256 for entry in known.shards] != [entry.sha256 for entry in manifest.shards]:
        raise OutputExists(
            f"{source.paths[0]} gives {manifest.rows} rows now, others than the {known.rows} learned as {folder.name!r}: "
            "the file has changed, or is read in another way. Rows learned before would be learned again; put the new ones "
            "into a file of their own, or learn it all beside them by another name, with stream-dr learn --name.",
            path=str(folder),
        )
