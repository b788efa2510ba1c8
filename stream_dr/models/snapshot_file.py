"""Named arrays and JSON metadata in one checked safetensors file.

Models' snapshots and saved estimators have this format. Any safetensors library can read it. The
format adds what safetensors lacks:

* safetensors scrambles arrays that are not C-ordered. So arrays are made C-ordered first.
* safetensors orders metadata at random. So all metadata is one value, canonical JSON.
* safetensors has no checksum. So a sha256 covers names, types, shapes, bytes and metadata.

A file of another format, a file of another version, and a damaged file raise different errors.
Nothing is pickled.

Memory: while a file is written, a second copy of its content is in memory.
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
from stream_dr.disk import PRIVATE_FILE, check_free_space, write_atomically
from stream_dr.errors import DamagedFile, ForeignFile, SourceMissing, UnknownFormat
from stream_dr.projection import Columns, Linear, Projection
from stream_dr.statistics.protocol import STATES, Packable, pack, unpack

Arrays = dict[str, np.ndarray]
"""Arrays by name."""

FileContents = tuple[Arrays, JsonDict]
"""Arrays by name, and metadata."""

_UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, AttributeError)
"""Errors that safetensors raises for a file that it cannot read.

For example, the file is damaged, or has a type of numbers that numpy does not have.
"""

SNAPSHOT_FORMAT = 2
"""Version number of the file format."""

KEY = "stream_dr"
"""Key of safetensors' metadata under which this library stores its metadata."""


def write_file(path: Path, arrays: Arrays, metadata: JsonDict, mode: int = PRIVATE_FILE) -> None:
    """Write arrays and metadata to a file, durable on return.

    mode: mode of a new file, of which the process's umask is taken away.

    Raises InsufficientStorage. If the file does not fit on the disk, the error is raised before
    anything is written.
    """
    content = safetensors_bytes(arrays, metadata)
    check_free_space(path.parent, len(content))
    write_atomically(path, lambda file: file.write(content), "snapshot", mode)


def safetensors_bytes(arrays: Arrays, metadata: JsonDict) -> bytes:
    """Return arrays and metadata as the bytes of a file."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    contents = {"format": SNAPSHOT_FORMAT, "facts": metadata, "sha256": arrays_digest(arrays, canonical_json(metadata))}
    return save(arrays, {KEY: canonical_json(contents)})


def read_file(path: Path) -> FileContents:
    """Read and check a file's arrays and metadata.

    Raises

    * SourceMissing if the file does not exist,
    * ForeignFile if another program has written the file,
    * UnknownFormat if the file has another version of the format,
    * DamagedFile.
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
    return arrays, _check_and_parse_metadata(str(path), arrays, file_metadata)


def read_bytes(content: bytes) -> FileContents:
    """Return the arrays and metadata from a file's bytes.

    The arrays are copies. Raises ForeignFile, UnknownFormat or DamagedFile.
    """
    what = "the file that was sent"
    try:
        arrays = load(content)
    except _UNREADABLE as e:
        raise _unreadable_error(what, content[: 1 << 20], str(e)) from e

    # Parse the header with the metadata, which `load` does not return.
    # The length of the header is in the first 8 bytes, before the header.
    length = int.from_bytes(content[:8], "little")
    return arrays, _check_and_parse_metadata(what, arrays, json.loads(content[8 : 8 + length]).get("__metadata__"))


def pack_under_prefix(prefix: str, state: Packable) -> FileContents:
    """Pack a state or projection into arrays and metadata.

    Each array's name begins with the prefix. The metadata has one key, the prefix. Its value
    describes how `unpack` rebuilds the object from the arrays.
    """
    arrays, description = pack(state)
    return {f"{prefix}.{name}": array for name, array in arrays.items()}, {prefix: description}


def pack_projection(prefix: str, projection: Projection) -> FileContents:
    """Pack a projection into arrays and metadata.

    `unpack_projection` unpacks them. Each array's name begins with the prefix.
    """
    arrays, metadata = pack_under_prefix(prefix, projection)
    return arrays, {"class": type(projection).__name__, "fields": metadata[prefix]}


def unpack_projection(prefix: str, arrays: Arrays, metadata: JsonDict) -> Projection:
    """Return a projection from its packed arrays and metadata.

    Raises DamagedFile, and the errors of `unpack`.
    """
    kinds = {"Linear": Linear, "Columns": Columns, **STATES}
    projection = unpack(kinds[metadata["class"]], select_and_strip_prefix(prefix, arrays), metadata["fields"])
    if not isinstance(projection, Projection):
        raise DamagedFile(f"{prefix} is {type(projection).__name__}; it must be a projection. Use an older copy.")
    return projection


@contextmanager
def errors_as_damaged_file(file_label: object) -> Iterator[None]:
    """Turn unexpected errors of the with-block into DamagedFile.

    Errors that say why a file cannot be used (DamagedFile, ForeignFile, SourceMissing and
    UnknownFormat), MemoryError and OSError are raised unchanged.

    file_label: path or description of the file, for the message.
    """
    # The contents of a damaged file may be anything, so reading them may raise any error.
    try:
        yield
    except (DamagedFile, ForeignFile, SourceMissing, UnknownFormat, MemoryError, OSError):
        raise
    except Exception as e:
        raise DamagedFile(
            f"{file_label} does not hold what it says ({type(e).__name__}: {e}). Use an older copy."
        ) from e


def select_and_strip_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return the arrays whose names begin with a prefix.

    The keys of the result are the names without the prefix.
    """
    return {n.removeprefix(f"{prefix}."): a for n, a in arrays.items() if n.startswith(f"{prefix}.")}


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spaces.

    Floats are written so that reading the JSON gives exactly the same floats.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def arrays_digest(arrays: Arrays, text: str = "") -> str:
    """Return the sha256 (hex) of a text and of arrays.

    The digest includes the names, types, shapes and bytes of the arrays.
    """
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        total.update(array.data)
    return total.hexdigest()


def _check_and_parse_metadata(file_label: str, arrays: Arrays, file_metadata: dict[str, str] | None) -> JsonDict:
    """Check a file's format and checksum, and return its metadata.

    file_metadata: metadata of the file, whose key KEY has JSON text. The key is missing if another
        program has written the file.
    """
    metadata_text = (file_metadata or {}).get(KEY)
    if metadata_text is None:
        raise ForeignFile(f"{file_label} was not written by stream_dr; name a file of its save or a snapshot.")

    # The text may be anything if the file is damaged.
    try:
        contents: JsonDict = json.loads(metadata_text)
        version = contents["format"]
        metadata: JsonDict = contents["facts"]
        if not isinstance(metadata, dict):
            raise TypeError("its facts are no object")
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise DamagedFile(f"{file_label}: its metadata cannot be read ({e}). Use an older copy.") from e

    # A file of another version of the format may have other arrays and metadata.
    if version != SNAPSHOT_FORMAT:
        raise UnknownFormat(
            f"{file_label} is of format {version}; this version reads format {SNAPSHOT_FORMAT}. Use the version it is from."
        )
    if arrays_digest(arrays, canonical_json(metadata)) != contents.get("sha256"):
        raise DamagedFile(f"{file_label}: its bytes are not those its checksum names. Use an older copy.")
    return metadata


def _unreadable_error(file_label: str, first_bytes: bytes, reason: str) -> DamagedFile | ForeignFile:
    """Return the error for a file that cannot be read.

    The error is DamagedFile if this library has written the file, and ForeignFile if not.

    first_bytes: first bytes of the file.
    """
    if f'"{KEY}"'.encode() in first_bytes:
        return DamagedFile(f"{file_label} is damaged ({reason}). Use an older copy.")
    return ForeignFile(f"{file_label} was not written by stream_dr ({reason}); name a file of its save or a snapshot.")
