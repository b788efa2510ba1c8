"""Manifest: the JSON file that describes a data set's shards.

    {"stream_dr": "shards", "format": 1, "rows": 804414, "width": 47236,
     "target_kind": "multilabel", "labels": ["CCAT", …],
     "shards": [{"file": "part-00000.arrow", "rows": 100000, "batch_rows": [1000, …],
                 "bytes": 92000000, "sha256": "…", "seal": "…"}, …]}

`width` is null if it is unknown. Shards with named columns have the names in their own schemas.
`seal` is a fast checksum, which may be missing.

The digest `sha256` shows whether a file is damaged or is another file. The number of rows of each
batch is known without opening a file. The manifest is written last, so a folder with a manifest is
complete.

Seals are fast checksums of shards, checked in place of SHA-256. The log identifies a shard by its
SHA-256. Computing the SHA-256 takes longer than many models take to learn the rows. So the writer
of a shard stores a second checksum, the seal. The seal is XXH64 of the bytes [XXH64], with the
first 64 bits of the SHA-256 as its seed. If the seal is right, the bytes and the SHA-256 were
written together. If the seal is wrong, the SHA-256 of the bytes is computed, and decides whether
the shard is damaged.

A seal detects damage. It does not protect against an attacker, who could as well write another
SHA-256 into the manifest.
"""

import json
import mmap
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from stream_dr.disk import write_atomically
from stream_dr.errors import DamagedFile, ForeignFile, SourceMissing, UnknownFormat
from stream_dr.shards.uri import AnyPath
from stream_dr.targets.label_codes import Label


def seal_checksum(data: bytes | memoryview | mmap.mmap | pa.Buffer, sha256_as_seed: str) -> str:
    """Return the fast checksum (the seal) of a shard's bytes.

    The seal has 16 hex digits. It is XXH64 of the bytes, seeded with the first 64 bits of
    `sha256_as_seed`.

    sha256_as_seed: SHA-256 of these bytes in hex, as the manifest states it.
    """
    return xxhash.xxh64_hexdigest(data, int(sha256_as_seed[:16], 16))


MANIFEST_NAME = "manifest.json"
"""File name of the manifest in the folder of its shards."""

MANIFEST_FORMAT = 1
"""Version of the manifest's format."""

_DIGEST = re.compile("[0-9a-f]{64}")

UNFINISHED = "part-unfinished.tmp"
"""Name of the file that marks a folder while shards are written into it."""


class ShardEntry(NamedTuple):
    """One shard of a manifest.

    Attributes
    ----------
    file : str
        File name, relative to the manifest.
    rows : int
        Number of rows.
    batch_rows : tuple of int
        Number of rows of each batch.
    bytes : int
        Size of the file.
    sha256 : str
        Digest in hex.
    seal : str
        Fast checksum in hex (manifest.py). "" if there is none.
    """

    file: str
    rows: int
    batch_rows: tuple[int, ...]
    bytes: int
    sha256: str
    seal: str = ""


class Manifest(NamedTuple):
    """Description of a data set.

    Attributes
    ----------
    rows : int
        Number of rows of all shards.
    width : int or None
        Number of columns, if it is known.
    target_kind : str or None
        Kind of the targets, "class", "multilabel" or "continuous". None if rows have no targets.
    labels : tuple
        All labels of the rows.
    shards : tuple of ShardEntry
    """

    rows: int
    width: int | None
    target_kind: str | None
    labels: tuple[Label, ...]
    shards: tuple[ShardEntry, ...]


def write_manifest(folder: str | os.PathLike[str], manifest: Manifest) -> Path:
    """Write `folder/manifest.json` atomically, and return its path."""
    path = Path(folder) / MANIFEST_NAME
    write_atomically(path, lambda handle: handle.write(encode_manifest(manifest)), failpoint_prefix="manifest")
    return path


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as the bytes of its JSON file."""
    obj = {"stream_dr": "shards", "format": MANIFEST_FORMAT, **manifest._asdict()}
    obj["shards"] = [entry._asdict() for entry in manifest.shards]
    return json.dumps(obj, ensure_ascii=False, indent=None, separators=(",", ":")).encode()


def read_manifest(manifest_path: AnyPath) -> Manifest:
    """Return the manifest in a file.

    Raises SourceMissing, ForeignFile, UnknownFormat or DamagedFile.
    """
    try:
        obj = json.loads(manifest_path.read_bytes())
    except FileNotFoundError as e:
        raise SourceMissing(f"{manifest_path} is not there; give a folder of shards, a manifest or shard files.") from e
    except ValueError as e:
        raise DamagedFile(f"{manifest_path} is not JSON ({e}); write the shards anew.", path=str(manifest_path)) from e

    if not isinstance(obj, dict) or obj.get("stream_dr") != "shards":
        raise ForeignFile(f"{manifest_path} is not a manifest of stream_dr shards.", path=str(manifest_path))
    if obj.get("format") != MANIFEST_FORMAT:
        raise UnknownFormat(
            f"{manifest_path} has format {obj.get('format')!r}; this release reads {MANIFEST_FORMAT}.",
            path=str(manifest_path),
        )

    try:
        entries = tuple(_parse_shard_entry(entry) for entry in obj["shards"])
        return Manifest(obj["rows"], obj["width"], obj["target_kind"], tuple(obj["labels"]), entries)
    except (KeyError, TypeError, ValueError) as e:
        raise DamagedFile(f"{manifest_path} lacks {e}; write the shards anew.", path=str(manifest_path)) from e


def _parse_shard_entry(json_entry: dict[str, Any]) -> ShardEntry:
    """Return one shard's entry from its JSON object.

    Raises KeyError, TypeError or ValueError.
    """
    sha256 = str(json_entry["sha256"])
    if not _DIGEST.fullmatch(sha256):
        raise ValueError("a sha256 of 64 hex digits")
    return ShardEntry(
        file=str(json_entry["file"]),
        rows=int(json_entry["rows"]),
        batch_rows=tuple(int(n) for n in json_entry["batch_rows"]),
        bytes=int(json_entry["bytes"]),
        sha256=sha256,
        seal=str(json_entry.get("seal", "")),
    )
