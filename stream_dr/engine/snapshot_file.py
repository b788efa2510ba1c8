"""SnapshotFile: named arrays and JSON facts in one safetensors file, checked when read.

safetensors writes arrays that are not C-ordered scrambled, checks no bytes and orders metadata at random. So every array is
made C-ordered, all facts stand in one metadata key as canonical JSON, and a sha256 over names, types, shapes, bytes and
facts stands beside them. A file that is not ours, of another format version, or damaged raises an error of its own. Nothing
is pickled. Memory: the file once more while it is written.

Why this way: one format for a model's snapshot and for a saved estimator, readable by any safetensors library.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from stream_dr.disk import write_atomically
from stream_dr.engine.schema import Facts
from stream_dr.errors import DamagedFile, ForeignFile, SourceMissing, UnknownFormat

Arrays = dict[str, np.ndarray]
"""Arrays by name."""

SNAPSHOT_FORMAT = 1
KEY = "stream_dr"


def write_file(path: Path, arrays: Arrays, facts: Facts) -> None:
    """Write arrays and facts to `path`: a temporary file, fsync, rename, fsync of the folder. Raises
    InsufficientStorage."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    told = {"format": SNAPSHOT_FORMAT, "facts": facts, "sha256": arrays_digest(arrays, canonical_json(facts))}
    write_atomically(path, lambda file: file.write(save(arrays, {KEY: canonical_json(told)})), "snapshot")


def read_file(path: Path) -> tuple[Arrays, Facts]:
    """Arrays and facts of a file that `write_file` made, bytes checked.

    Raises SourceMissing, ForeignFile (not ours), UnknownFormat (another version) or DamagedFile.
    """
    if not path.is_file():
        raise SourceMissing(f"{path} is not a file; name one that save or a snapshot has written.")
    try:
        with safe_open(path, framework="numpy") as file:
            told = _told(path, (file.metadata() or {}).get(KEY))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as e:
        raise _not_read(path, str(e)) from e
    if arrays_digest(arrays, canonical_json(told["facts"])) != told.get("sha256"):
        raise DamagedFile(f"{path}: its bytes are not those its checksum names. Use an older copy.")
    return arrays, told["facts"]


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces; floats as repr, so they come back bit-equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def arrays_digest(arrays: Arrays, text: str = "") -> str:
    """sha256 (hex) over text and the arrays' names, types, shapes and bytes, by name."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        total.update(_bytes(array))
    return total.hexdigest()


def _bytes(array: np.ndarray) -> memoryview | bytes:
    """A C-ordered array's bytes, not copied."""
    return array.data.cast("B") if array.size else b""


def _told(path: Path, text: str | None) -> Facts:
    """The checked metadata."""
    if text is None:
        raise ForeignFile(f"{path} was not written by stream_dr; name a file of its save or a snapshot.")
    try:
        told = json.loads(text)
        version = told["format"]
        _ = told["facts"]
    except (ValueError, TypeError, KeyError) as e:
        raise DamagedFile(f"{path}: its metadata cannot be read ({e}). Use an older copy.") from e
    if version != SNAPSHOT_FORMAT:
        raise UnknownFormat(
            f"{path} is of format {version}; this version reads format {SNAPSHOT_FORMAT}. Use the version it is from."
        )
    return told


def _not_read(path: Path, reason: str) -> DamagedFile | ForeignFile:
    """Which error an unreadable file deserves: ours once, or never."""
    with path.open("rb") as file:
        head = file.read(1 << 20)
    if f'"{KEY}"'.encode() in head:
        return DamagedFile(f"{path} is damaged ({reason}). Use an older copy.")
    return ForeignFile(f"{path} was not written by stream_dr ({reason}); name a file of its save or a snapshot.")
