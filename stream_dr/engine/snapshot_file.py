"""SnapshotFile: named arrays and JSON facts in one safetensors file, checked when read.

safetensors' own writer copies every array first, writes those that are not C-ordered scrambled, checks no bytes and orders
metadata at random. So the file is written here (a header of JSON, then the arrays' bytes as they lie), every array is made
C-ordered, all facts stand in one metadata key as canonical JSON, and a sha256 over names, types, shapes, bytes and facts
stands beside them. A file that is not ours, of another format version, or damaged raises an error of
its own. Nothing is pickled.

Why this way: one format for a model's snapshot and for a saved estimator, readable by any safetensors library.
"""

import hashlib
import json
from pathlib import Path
from typing import BinaryIO

import numpy as np

from stream_dr.disk import write_atomically
from stream_dr.engine.schema import Facts
from stream_dr.errors import DamagedFile, ForeignFile, SourceMissing, UnknownFormat

Arrays = dict[str, np.ndarray]
"""Arrays by name."""

FORMAT = 1
KEY = "stream_dr"

_TYPES = {
    "<f8": "F64",
    "<f4": "F32",
    "<f2": "F16",
    "<i8": "I64",
    "<i4": "I32",
    "<i2": "I16",
    "<u8": "U64",
    "<u4": "U32",
    "<u2": "U16",
    "|u1": "U8",
    "|i1": "I8",
    "|b1": "BOOL",
}
"""numpy's names of types, and the format's."""


def write_file(path: Path, arrays: Arrays, facts: Facts) -> None:
    """Write arrays and facts to `path`: a temporary file, fsync, rename, fsync of the folder. Raises
    InsufficientStorage."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    told = {"format": FORMAT, "facts": facts, "sha256": digest(arrays, canonical(facts))}
    write_atomically(path, lambda file: _write(file, arrays, {KEY: canonical(told)}), "snapshot")


def _write(file: BinaryIO, arrays: Arrays, metadata: dict[str, str]) -> None:
    """The safetensors format: the header's length in 8 bytes, the header padded with spaces to 8, the arrays, widest items
    first so that each begins where its type may."""
    header: Facts = {"__metadata__": metadata}
    order, at = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)), 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": _TYPES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(_bytes(arrays[name]))


def read_file(path: Path) -> tuple[Arrays, Facts]:
    """Arrays and facts of a file that `write_file` made, bytes checked.

    Raises SourceMissing, ForeignFile (not ours), UnknownFormat (another version) or DamagedFile.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise SourceMissing(f"{path} is not a file; name one that save or a snapshot has written.")
    try:
        with safe_open(path, framework="numpy") as file:
            told = _told(path, (file.metadata() or {}).get(KEY))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as e:
        raise _not_read(path, str(e)) from e
    if digest(arrays, canonical(told["facts"])) != told.get("sha256"):
        raise DamagedFile(f"{path}: its bytes are not those its checksum names. Use an older copy.")
    return arrays, told["facts"]


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; floats as repr, so they come back bit-equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(arrays: Arrays, text: str = "") -> str:
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
    if version != FORMAT:
        raise UnknownFormat(
            f"{path} is of format {version}; this version reads format {FORMAT}. Use the version it is from."
        )
    return told


def _not_read(path: Path, reason: str) -> DamagedFile | ForeignFile:
    """Which error an unreadable file deserves: ours once, or never."""
    with path.open("rb") as file:
        head = file.read(1 << 20)
    if f'"{KEY}"'.encode() in head:
        return DamagedFile(f"{path} is damaged ({reason}). Use an older copy.")
    return ForeignFile(f"{path} was not written by stream_dr ({reason}); name a file of its save or a snapshot.")
