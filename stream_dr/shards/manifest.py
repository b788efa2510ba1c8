"""manifest: what a data set's shards are, in one JSON file beside them.

    {"stream_dr": "shards", "format": 1, "rows": 804414, "width": 47236, "target_kind": "multilabel", "labels": ["CCAT", …],
     "shards": [{"file": "part-00000.arrow", "rows": 100000, "batch_rows": [1000, …], "bytes": 92000000, "sha256": "…",
                 "seal": "…"}, …]}

`width` is null when it is not known (rows of named columns have their names in each shard). `seal` may be missing: then the
file is told by its digest alone.

Why this way: a digest that was written with the shard tells damage from difference, and rows a batch need no file opened.
The manifest is written last, so a folder that has one is whole.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from stream_dr.disk import write_atomically
from stream_dr.errors import DamagedFile, ForeignFile, SourceMissing, UnknownFormat
from stream_dr.shards.uri import AnyPath
from stream_dr.targets.label_codes import Label

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1

_DIGEST = re.compile("[0-9a-f]{64}")

UNFINISHED = "part-unfinished.tmp"
"""Lies in a folder while shards are written into it."""


class ShardEntry(NamedTuple):
    """One shard of a manifest: file name relative to it, rows, rows of each batch, size in bytes, hex sha256, hex seal (see
    seal.py; "": none)."""

    file: str
    rows: int
    batch_rows: tuple[int, ...]
    bytes: int
    sha256: str
    seal: str = ""


class Manifest(NamedTuple):
    """rows: of all shards. width: columns, or None. target_kind, labels: as in Targets, or None and ()."""

    rows: int
    width: int | None
    target_kind: str | None
    labels: tuple[Label, ...]
    shards: tuple[ShardEntry, ...]


def write_manifest(folder: str | os.PathLike[str], manifest: Manifest) -> Path:
    """Write `folder/manifest.json`, whole or not at all; its path."""
    path = Path(folder) / MANIFEST_NAME
    write_atomically(path, lambda handle: handle.write(manifest_bytes(manifest)), point="manifest")
    return path


def manifest_bytes(manifest: Manifest) -> bytes:
    """What `write_manifest` writes."""
    facts = {"stream_dr": "shards", "format": MANIFEST_FORMAT, **manifest._asdict()}
    facts["shards"] = [entry._asdict() for entry in manifest.shards]
    return json.dumps(facts, ensure_ascii=False, indent=None, separators=(",", ":")).encode()


def read_manifest(path: AnyPath) -> Manifest:
    """The manifest in a file. Raises SourceMissing, ForeignFile, UnknownFormat, DamagedFile."""
    try:
        facts = json.loads(path.read_bytes())
    except FileNotFoundError as e:
        raise SourceMissing(f"{path} is not there; give a folder of shards, a manifest or shard files.") from e
    except ValueError as e:
        raise DamagedFile(f"{path} is not JSON ({e}); write the shards anew.", path=str(path)) from e
    if not isinstance(facts, dict) or facts.get("stream_dr") != "shards":
        raise ForeignFile(f"{path} is not a manifest of stream_dr shards.", path=str(path))
    if facts.get("format") != MANIFEST_FORMAT:
        raise UnknownFormat(
            f"{path} has format {facts.get('format')!r}; this release reads {MANIFEST_FORMAT}.", path=str(path)
        )
    try:
        entries = tuple(_entry(entry) for entry in facts["shards"])
        return Manifest(facts["rows"], facts["width"], facts["target_kind"], tuple(facts["labels"]), entries)
    except (KeyError, TypeError, ValueError) as e:
        raise DamagedFile(f"{path} lacks {e}; write the shards anew.", path=str(path)) from e


def _entry(facts: dict[str, Any]) -> ShardEntry:
    batch_rows = tuple(int(n) for n in facts["batch_rows"])
    told = (int(facts["bytes"]), str(facts["sha256"]), str(facts.get("seal", "")))
    if not _DIGEST.fullmatch(told[1]):
        raise ValueError("a sha256 of 64 hex digits")
    return ShardEntry(str(facts["file"]), int(facts["rows"]), batch_rows, *told)
