"""shards: files of Arrow record batches, read a batch at a time; a batch is an event.

A shard is an Arrow IPC file or stream, or a Parquet file (a row group is a batch). A data set is a folder, a manifest, or
files, on this machine or in an object store (uri.py). Uncompressed IPC is memory-mapped: a Block's numbers are the file's
pages, nothing is copied.

Cost: the first read of a shard in a process reads it once more, for its seal or, where no manifest has one, for
its SHA-256, which takes several times as long; after that a batch costs its validation. At most 16 files are
open at a time. Mapped pages count as file memory, not as the process's own.

Why this way: an event of the log names (sha256, batch), so what is read must be what was admitted, today and in a year; the
digest decides that, not the file's name. What a digest was taken of is remembered by path, size and time of change, so that
many models reading one shard pay for it once.
"""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import pyarrow as pa

from stream_dr.arrow.codec import block_from_arrow
from stream_dr.errors import DamagedFile, DamagedShard, ForeignFile, MalformedInput, SourceMissing, StreamDRError
from stream_dr.rows.block import Block
from stream_dr.shards.file import (
    Identity,
    begins_as_shard,
    bytes_of,
    damaged_shard,
    digest_of,
    fetched,
    identity_of,
    opened,
)
from stream_dr.shards.manifest import MANIFEST_NAME, UNFINISHED, Manifest, ShardEntry, read_manifest
from stream_dr.shards.seal import seal_of
from stream_dr.shards.uri import AnyPath, RemotePath, path_of
from stream_dr.shards.writer import ShardWriter
from stream_dr.targets.label_codes import Label

__all__ = ["Dataset", "Shard", "ShardWriter", "open_dataset", "open_shard"]

_SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc", ".parquet")

PathOrUri = str | os.PathLike[str]


class Shard:
    """One file of batches.

    path: the file. entry: what a manifest says of it, or None. n_features: a width stated for it, or None. Thread-safe.
    A remote file is looked at once: what was fetched of it is what is read.
    """

    def __init__(self, path: AnyPath, entry: ShardEntry | None = None, n_features: int | None = None) -> None:
        self.path, self.entry, self.n_features = path, entry, n_features
        self._checked: object = None
        self._remote: Identity | None = None

    @cached_property
    def sha256(self) -> str:
        """Hex digest: the manifest's, or else of the file as it is now."""
        return self.entry.sha256 if self.entry is not None else digest_of(*self._identity())

    @cached_property
    def batch_rows(self) -> tuple[int, ...]:
        """Rows of each batch. Raises DamagedShard or SourceMissing when no manifest says it and the file cannot be read."""
        return self.entry.batch_rows if self.entry is not None else opened(*self._identity()).batch_rows

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the file's batches. Raises SourceMissing or DamagedShard."""
        return opened(*self._identity()).schema

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(self.batch_rows)

    @property
    def bytes(self) -> int:
        """The file's size."""
        return self.entry.bytes if self.entry is not None else self._identity()[1]

    def read(self, batch: int) -> Block:
        """One batch as a Block, memory-mapped where the file allows.

        Raises SourceMissing, DamagedShard (not the bytes of its digest, unreadable), IndexError, or what the codec raises
        of its rows, naming the file.
        """
        identity = self.check()
        batches = opened(*identity).read(batch)
        try:
            return block_from_arrow(batches, n_features=self.n_features)
        except MalformedInput as e:
            raise damaged_shard(self.path, f"batch {batch}: {e}") from e
        except StreamDRError as e:
            raise type(e)(f"{self.path}, batch {batch}: {e}", **e.details) from e

    def check(self) -> Identity:
        """Compare the file's seal or digest with the shard's, and its batches' rows with the manifest's, once for each state
        of the file; what the file is now.

        Raises SourceMissing or DamagedShard. `read` does it too; called from another thread it takes it off the reader.
        """
        identity = self._identity()
        token = fetched(self.path, *identity[1:]).token if isinstance(self.path, RemotePath) else identity
        if self._checked != token:
            if not self._sealed(identity):
                self._compare(identity)
            self._count(identity)
            self._checked = token
        return identity

    def verify(self) -> None:
        """Compare the file's digest with the shard's, whatever its seal says. Raises SourceMissing or DamagedShard."""
        self._compare(self._identity())

    def _identity(self) -> Identity:
        if not isinstance(self.path, RemotePath):
            return identity_of(self.path)
        if self._remote is None:
            self._remote = identity_of(self.path)
        return self._remote

    def _sealed(self, identity: Identity) -> bool:
        """Whether the file has the bytes that were written with the digest and the seal that the manifest names.

        Nothing of the file is interpreted before: flipped bytes are damage, not columns of a type that is refused.
        """
        seal = self.entry.seal if self.entry is not None else ""
        return bool(seal) and seal_of(bytes_of(*identity), self.sha256) == seal

    def _count(self, identity: Identity) -> None:
        """Compare the batches' rows with the manifest's: by those a replay knows what there is to read."""
        found = opened(*identity).batch_rows
        if self.entry is not None and found != self.entry.batch_rows:
            raise damaged_shard(
                self.path,
                f"it has {len(found)} batches of {sum(found)} rows in all; the manifest says other ones "
                f"({len(self.entry.batch_rows)} of {sum(self.entry.batch_rows)})",
            )

    def _compare(self, identity: Identity) -> None:
        if digest_of(*identity) != self.sha256:
            raise damaged_shard(self.path, f"its bytes are not those of sha256 {self.sha256[:12]}…")


class Dataset(NamedTuple):
    """Shards in order. n_features, target_kind, labels: from a manifest, else None, None and (). skipped: why each shard
    that was left out was."""

    shards: tuple[Shard, ...]
    n_features: int | None = None
    target_kind: str | None = None
    labels: tuple[Label, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """(number, Block) of the batches in order, for after < number ≤ until: a `Source` for refine."""
        number = -1
        for shard in self.shards:
            for batch in range(len(shard.batch_rows)):
                number += 1
                if until is not None and number > until:
                    return
                if number > after:
                    yield number, shard.read(batch)


def open_dataset(sources: PathOrUri | Sequence[PathOrUri], skip_damaged: bool = False) -> Dataset:
    """Open a data set: a folder, a manifest, a file, or a URI of one of these, or several of these in the order given.

    Every shard is opened (without a manifest, to its footer). Raises SourceMissing (nothing there) and
    DamagedShard naming the file; with skip_damaged such shards are left out and named in `skipped`; it raises only
    where all are damaged. Raises
    ForeignFile for a file of another format.
    """
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    parts = [_part(path_of(os.fspath(source))) for source in given]
    kept, skipped = [], []
    for shard in (shard for shards, _ in parts for shard in shards):
        try:
            _usable(shard)
            kept.append(shard)
        except DamagedShard as e:
            if not skip_damaged:
                raise
            skipped.append(str(e))
            if len(skipped) == sum(len(shards) for shards, _ in parts):  # there is nothing else to read
                raise
    manifests = [manifest for _, manifest in parts]
    return Dataset(tuple(kept), *_agreed(manifests), tuple(skipped))


def open_shard(uri: PathOrUri, sha256: str | None = None) -> Shard:
    """One shard by path or URI; a manifest beside it says its width. With sha256 only those bytes are read from it."""
    path = path_of(os.fspath(uri))
    if not (path.is_file() or path.is_dir()):  # a FIFO would be waited for
        raise SourceMissing(
            f"{path} is not there; check the path, or put a shard that was replayed back in its place, or replay it from "
            "where it is now.",
            path=str(path),
        )
    manifest = _beside(path)
    entry = next((e for e in manifest.shards if e.file == path.name), None) if manifest else None
    if entry is not None and sha256 not in (None, entry.sha256):
        entry = None
    shard = Shard(path, entry, manifest.width if manifest and entry else None)
    if sha256 is not None:
        shard.sha256 = sha256
    return shard


def _beside(path: AnyPath) -> Manifest | None:
    try:
        return _manifest(*identity_of(path.parent / MANIFEST_NAME)) if (path.parent / MANIFEST_NAME).exists() else None
    except (DamagedFile, SourceMissing):
        raise
    except StreamDRError:  # somebody else's manifest.json
        return None


def _part(path: AnyPath) -> tuple[list[Shard], Manifest | None]:
    """The shards one source names, and its manifest."""
    if path.is_dir() and not (path / MANIFEST_NAME).exists():
        if (path / UNFINISHED).exists():
            raise DamagedFile(
                f"{path} is not whole: what wrote shards into it did not come to its end, or is at it. Write it anew.",
                path=str(path),
            )
        files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES)
        if not files:
            raise SourceMissing(
                f"{path} holds no shards ({', '.join(_SUFFIXES)}); name a folder that does.", path=str(path)
            )
        return [Shard(p) for p in files], None
    if path.is_dir() or path.suffix == ".json":
        where = path / MANIFEST_NAME if path.is_dir() else path
        manifest = read_manifest(where)
        return [Shard(where.parent / e.file, e, manifest.width) for e in manifest.shards], manifest
    if path.is_file() and path.suffix not in _SUFFIXES and not begins_as_shard(path):
        raise ForeignFile(
            f"{path} is no shard of Arrow record batches. Make shards of it first, with stream-dr convert {path} --out "
            f"DIR, or learn it as it is, with stream-dr learn {path}.",
            path=str(path),
        )
    return [open_shard(path)], _beside(path)


def _usable(shard: Shard) -> None:
    """Raise DamagedShard unless the file is there, of its size, and can be opened."""
    try:
        size = shard.path.stat().st_size
    except FileNotFoundError as e:
        raise SourceMissing(f"{shard.path} is not there, and the manifest names it.", path=str(shard.path)) from e
    if shard.entry is None:
        opened(*identity_of(shard.path))
    elif size != shard.entry.bytes:
        raise damaged_shard(shard.path, f"it has {size} bytes; the manifest says {shard.entry.bytes}")


def _agreed(manifests: list[Manifest | None]) -> tuple[int | None, str | None, tuple[Label, ...]]:
    """Width (the largest), target kind and labels, as far as every part has a manifest that says so."""
    known = [m for m in manifests if m is not None]
    if not known or len(known) < len(manifests):
        return None, None, ()
    widths = [m.width for m in known]
    width = None if None in widths else max(w for w in widths if w is not None)
    return width, known[0].target_kind, tuple(dict.fromkeys(label for m in known for label in m.labels))


@lru_cache(maxsize=64)
def _manifest(path: AnyPath, _size: int, _changed: int) -> Manifest:
    return read_manifest(path)
