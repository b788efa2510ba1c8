"""SnapshotFile: named arrays and JSON metadata in one safetensors file, checked when read.

Models' snapshots and saved estimators have this format. Any safetensors library can read it. The
format adds what safetensors lacks:

* safetensors scrambles arrays that are not C-ordered. So arrays are made C-ordered first.
* safetensors orders metadata at random. So all metadata is one value, canonical JSON.
* safetensors has no checksum. So a sha256 covers names, types, shapes, bytes and metadata.

A file of another format, a file of another version, and a damaged file raise different errors.
Nothing is pickled.

Memory: the size of the file once more while it is written.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from stream_dr.aliases import JsonDict
from stream_dr.disk import check_room, write_atomically
from stream_dr.errors import DamagedFile, ForeignFile, SourceMissing, UnknownFormat
from stream_dr.projection import Columns, Linear, Projection
from stream_dr.statistics.protocol import STATES, Packable, pack, unpack

Arrays = dict[str, np.ndarray]
"""Arrays by name."""

_UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, AttributeError)
"""Errors that safetensors raises for a file that it cannot read.

safetensors raises some of them for a type of numbers that numpy does not have.
"""

SNAPSHOT_FORMAT = 1
KEY = "stream_dr"


def write_file(path: Path, arrays: Arrays, metadata: JsonDict) -> None:
    """Write arrays and metadata to `path`, durable on return.

    Raises InsufficientStorage. If the file does not fit on the disk, the error is raised before
    anything is written.
    """
    content = file_bytes(arrays, metadata)
    check_room(path.parent, len(content))
    write_atomically(path, lambda file: file.write(content), "snapshot")


def file_bytes(arrays: Arrays, metadata: JsonDict) -> bytes:
    """Return the bytes that `write_file` writes."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    contents = {"format": SNAPSHOT_FORMAT, "facts": metadata, "sha256": arrays_digest(arrays, canonical_json(metadata))}
    return save(arrays, {KEY: canonical_json(contents)})


def read_file(path: Path) -> tuple[Arrays, JsonDict]:
    """Return the arrays and metadata of a file, after checking its bytes.

    Raises SourceMissing, ForeignFile (not ours), UnknownFormat (another version) or DamagedFile.
    """
    if not path.is_file():
        raise SourceMissing(f"{path} is not a file; name one that save or a snapshot has written.")
    try:
        with safe_open(path, framework="numpy") as file:
            file_metadata = file.metadata()
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except _UNREADABLE as e:
        with path.open("rb") as head:
            raise _unreadable_error(str(path), head.read(1 << 20), str(e)) from e
    return arrays, _checked_metadata(str(path), arrays, file_metadata)


def read_bytes(content: bytes) -> tuple[Arrays, JsonDict]:
    """Return the arrays and metadata of a file's content, as `read_file` does.

    The arrays are copies.
    """
    what = "the file that was sent"
    try:
        arrays = load(content)
    except _UNREADABLE as e:
        raise _unreadable_error(what, content[: 1 << 20], str(e)) from e

    # `load` checks the header but does not return it. The first 8 bytes are the header's length.
    length = int.from_bytes(content[:8], "little")
    return arrays, _checked_metadata(what, arrays, json.loads(content[8 : 8 + length]).get("__metadata__"))


def packed(prefix: str, state: Packable) -> tuple[Arrays, JsonDict]:
    """Return a State's arrays and its description as metadata.

    Each array's name begins with the prefix. The prefix is also the key of the description in the
    metadata.
    """
    arrays, description = pack(state)
    return {f"{prefix}.{name}": array for name, array in arrays.items()}, {prefix: description}


def packed_projection(prefix: str, projection: Projection) -> tuple[Arrays, JsonDict]:
    """Return a projection's arrays and the metadata that `projection_of` needs.

    Each array's name begins with the prefix.
    """
    arrays, metadata = packed(prefix, projection)
    return arrays, {"class": type(projection).__name__, "fields": metadata[prefix]}


def projection_of(prefix: str, arrays: Arrays, metadata: JsonDict) -> Projection:
    """Return the projection that `packed_projection` packed.

    Raises DamagedFile, and the errors of `unpack`.
    """
    kinds = {"Linear": Linear, "Columns": Columns, **STATES}
    projection = unpack(kinds[metadata["class"]], arrays_under(prefix, arrays), metadata["fields"])
    if not isinstance(projection, Projection):
        raise DamagedFile(f"{prefix} is {type(projection).__name__}; it must be a projection. Use an older copy.")
    return projection


@contextmanager
def damaged_contents(what: object) -> Iterator[None]:
    """Replace any error in the with-block by DamagedFile.

    The contents of a file may be anything, so reading them may raise any error.

    what: path or description of the file, for the message.
    """
    try:
        yield
    except (DamagedFile, ForeignFile, SourceMissing, UnknownFormat, MemoryError, OSError):
        raise
    except Exception as e:
        raise DamagedFile(f"{what} does not hold what it says ({type(e).__name__}: {e}). Use an older copy.") from e


def arrays_under(prefix: str, arrays: Arrays) -> Arrays:
    """Return the arrays whose names begin with a prefix, under names without it."""
    return {n.removeprefix(f"{prefix}."): a for n, a in arrays.items() if n.startswith(f"{prefix}.")}


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spaces.

    Floats are written as repr, so they come back bit-equal.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def arrays_digest(arrays: Arrays, text: str = "") -> str:
    """Return the sha256 (hex) of a text and all arrays, sorted by name."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        total.update(_bytes(array))
    return total.hexdigest()


def _bytes(array: np.ndarray) -> memoryview | bytes:
    """Return a C-ordered array's bytes without copying them."""
    return array.data.cast("B") if array.size else b""


def _checked_metadata(what: str, arrays: Arrays, file_metadata: dict[str, str] | None) -> JsonDict:
    """Return a file's metadata, after checking its format and the checksum of the arrays."""
    contents = _parse_metadata(what, (file_metadata or {}).get(KEY))
    if arrays_digest(arrays, canonical_json(contents["facts"])) != contents.get("sha256"):
        raise DamagedFile(f"{what}: its bytes are not those its checksum names. Use an older copy.")
    metadata: JsonDict = contents["facts"]
    return metadata


def _parse_metadata(path: str, text: str | None) -> JsonDict:
    """Return the JSON metadata of a safetensors file, after checking its format.

    text: value of the metadata key, None if the file lacks the key.
    """
    if text is None:
        raise ForeignFile(f"{path} was not written by stream_dr; name a file of its save or a snapshot.")
    try:
        contents: JsonDict = json.loads(text)
        version = contents["format"]
        if not isinstance(contents["facts"], dict):
            raise TypeError("its facts are no object")
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise DamagedFile(f"{path}: its metadata cannot be read ({e}). Use an older copy.") from e
    if version != SNAPSHOT_FORMAT:
        raise UnknownFormat(
            f"{path} is of format {version}; this version reads format {SNAPSHOT_FORMAT}. Use the version it is from."
        )
    return contents


def _unreadable_error(path: str, head: bytes, reason: str) -> DamagedFile | ForeignFile:
    """Return the error for a file that cannot be read.

    The error is DamagedFile if the file was written by this library, else ForeignFile.

    head: first bytes of the file.
    """
    if f'"{KEY}"'.encode() in head:
        return DamagedFile(f"{path} is damaged ({reason}). Use an older copy.")
    return ForeignFile(f"{path} was not written by stream_dr ({reason}); name a file of its save or a snapshot.")
