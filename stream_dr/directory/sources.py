"""sources: files that a directory has learned, kept as shards of its own, so that all that reads the log again finds them.

    D/sources/NAME/part-00000.arrow … manifest.json source.json

source.json says which file it was, of what size and time, and how it was read. A folder has its name once it is whole.

Why this way: a file is not what an event can name; it has no batches, and may be gone tomorrow. As shards its rows are
replayed by reference like any other, so kill and repeat, several passes, refine, unlearn and verify need nothing new.
"""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from stream_dr.datasets.sources import FileSource
from stream_dr.directory.references import SOURCES
from stream_dr.disk import TEMPORARY, fsync_directory, write_atomically
from stream_dr.errors import OutputExists
from stream_dr.shards.manifest import MANIFEST_NAME, Manifest, read_manifest
from stream_dr.shards.writer import write_shards
from stream_dr.threads import ahead

NOTE = "source.json"
NOTE_FORMAT = 1


def keep_as_shards(
    directory: Path, source: FileSource, name: str | None = None, progress: Callable[[int], object] | None = None
) -> Path:
    """The folder of a directory that holds the file's rows as shards, written now unless they are there already.

    source: of one file. name: of the folder; None: the file's. progress: called with the rows written so far. Raises
    OutputExists where other rows were learned by that name, InsufficientStorage, and what reading raises; then nothing is
    left of it. One process at a time.
    """
    name = re.sub(r"[^\w.-]+", "_", name or source.paths[0].name.replace("!", "_"))
    folder, note = directory / SOURCES / name, _note(source)
    if (folder / NOTE).exists() and json.loads((folder / NOTE).read_bytes()) == note:
        return folder
    written = folder.with_name(f".{name}{TEMPORARY}")
    shutil.rmtree(written, ignore_errors=True)  # what a kill left
    try:
        with closing(ahead(source.blocks())) as blocks:
            manifest = write_shards(blocks, written, n_features=source.options.n_features, progress=progress)
        if not folder.exists():
            _write_note(written, note)
            written.rename(folder)
            fsync_directory(folder.parent)
            return folder
        _check_same(source, manifest, folder)
        _write_note(folder, note)
    finally:
        shutil.rmtree(written, ignore_errors=True)
    return folder


def _note(source: FileSource) -> dict[str, Any]:
    path = source.paths[0]
    status = Path(str(path).partition("!")[0]).stat()
    options = {k: v for k, v in source.options._asdict().items() if v not in (None, ())}
    told = {"path": str(path.absolute()), "bytes": status.st_size, "changed": status.st_mtime_ns}
    facts = {"stream_dr": "source", "format": NOTE_FORMAT, **told, "read_as": source.format, "options": options}
    found: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return found


def _write_note(folder: Path, note: dict[str, Any]) -> None:
    text = json.dumps(note, indent=1, sort_keys=True)
    write_atomically(folder / NOTE, lambda file: file.write(text.encode()), "source")


def _check_same(source: FileSource, manifest: Manifest, folder: Path) -> None:
    """Raise OutputExists unless the rows are those that the folder holds."""
    kept = read_manifest(folder / MANIFEST_NAME)
    if [entry.sha256 for entry in kept.shards] != [entry.sha256 for entry in manifest.shards]:
        raise OutputExists(
            f"{source.paths[0]} gives {manifest.rows} rows now, others than the {kept.rows} learned as {folder.name!r}: the "
            "file has changed, or is read in another way. Rows learned before would be learned again; put the new ones into "
            "a file of their own, or learn it all beside them by another name, with stream-dr learn --name.",
            path=str(folder),
        )
