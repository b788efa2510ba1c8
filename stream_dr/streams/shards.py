"""shards: files of Arrow record batches, read a batch at a time; a batch is an event.

A shard is an Arrow IPC file or stream, or a Parquet file (a row group is a batch). A data set is a folder, a manifest, or
files. Uncompressed IPC is memory-mapped: a Block's numbers are the file's pages, nothing is copied.

Cost: the first read of a shard in a process reads it once more for its SHA-256 (1-2 GB/s, which also warms the page cache);
after that a batch costs its validation (about 0.1 ms for 1,000 sparse rows). At most 16 files are open at a time. Mapped
pages count as file memory, not as the process's own.

Why this way: an event of the log names (sha256, batch), so what is read must be what was admitted, today and in a year; the
digest decides that, not the file's name. What a digest was taken of is remembered by path, size and time of change, so that
many models reading one shard pay for it once.
"""

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow as pa

from stream_dr.block import Block
from stream_dr.errors import DamagedFile, DamagedShard, MalformedInput, SourceMissing, StreamDRError
from stream_dr.streams.codec import block_from_arrow, read_arrow
from stream_dr.streams.manifest import NAME, Manifest, ShardEntry, read_manifest
from stream_dr.streams.shard_writer import ShardWriter

__all__ = ["Dataset", "Shard", "ShardWriter", "open_dataset", "open_shard"]

SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc", ".parquet")

Source = str | os.PathLike[str]


class Shard:
    """One file of batches.

    path: the file. entry: what a manifest says of it, or None. n_features: a width stated for it, or None. Thread-safe.
    """

    def __init__(self, path: Path, entry: ShardEntry | None = None, n_features: int | None = None) -> None:
        self.path, self._entry, self.n_features = path, entry, n_features
        self._checked: tuple[Any, ...] | None = None

    @cached_property
    def sha256(self) -> str:
        """Hex digest: the manifest's, or else of the file as it is now."""
        return self._entry.sha256 if self._entry is not None else _digest(*_identity(self.path))

    @cached_property
    def batch_rows(self) -> tuple[int, ...]:
        """Rows of each batch. Raises DamagedShard or SourceMissing when no manifest says it and the file cannot be read."""
        return self._entry.batch_rows if self._entry is not None else _opened(*_identity(self.path)).batch_rows

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(self.batch_rows)

    def read(self, batch: int) -> Block:
        """One batch as a Block, memory-mapped where the file allows.

        Raises SourceMissing, DamagedShard (not the bytes of its digest, unreadable), IndexError, or what the codec raises
        of its rows, naming the file.
        """
        identity = _identity(self.path)
        if self._checked != identity:
            self._check(identity)
        batches = _opened(*identity).read(batch)
        try:
            return block_from_arrow(batches, n_features=self.n_features)
        except MalformedInput as e:
            raise _damaged(self.path, f"batch {batch}: {e}") from e
        except StreamDRError as e:
            raise type(e)(f"{self.path}, batch {batch}: {e}", **e.details) from e

    def _check(self, identity: tuple[Path, int, int]) -> None:
        if _digest(*identity) != self.sha256:
            raise _damaged(self.path, f"its bytes are not those of sha256 {self.sha256[:12]}…")
        self._checked = identity


class Dataset(NamedTuple):
    """Shards in order. n_features, target_kind, labels: from a manifest, else None, None and (). skipped: why each shard
    that was left out was."""

    shards: tuple[Shard, ...]
    n_features: int | None = None
    target_kind: str | None = None
    labels: tuple[Any, ...] = ()
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


def open_dataset(sources: Source | Sequence[Source], skip_damaged: bool = False) -> Dataset:
    """The data set in a folder, a manifest, a file or file URI, or several of them in the order given.

    Every shard is opened (one without a manifest is read as far as its footer). Raises SourceMissing (nothing there) and
    DamagedShard naming the file; with skip_damaged such shards are left out and named in `skipped`.
    """
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    parts = [_part(_local(source)) for source in given]
    kept, skipped = [], []
    for shard in (shard for shards, _ in parts for shard in shards):
        try:
            _usable(shard)
            kept.append(shard)
        except DamagedShard as e:
            if not skip_damaged:
                raise
            skipped.append(str(e))
    manifests = [manifest for _, manifest in parts]
    return Dataset(tuple(kept), *_agreed(manifests), tuple(skipped))


def open_shard(uri: Source, sha256: str | None = None) -> Shard:
    """One shard by path or file URI; a manifest beside it says its width. With sha256 only those bytes are read from it."""
    path = _local(uri)
    if not path.exists():
        raise SourceMissing(f"{path} is not there; put the shard back, or replay from where it is now.", path=str(path))
    manifest = _beside(path)
    entry = next((e for e in manifest.shards if e.file == path.name), None) if manifest else None
    if entry is not None and sha256 not in (None, entry.sha256):
        entry = None
    shard = Shard(path, entry, manifest.width if manifest and entry else None)
    if sha256 is not None:
        shard.sha256 = sha256
    return shard


def _beside(path: Path) -> Manifest | None:
    try:
        return _manifest(*_identity(path.parent / NAME)) if (path.parent / NAME).exists() else None
    except DamagedFile:
        raise
    except StreamDRError:  # somebody else's manifest.json
        return None


def _part(path: Path) -> tuple[list[Shard], Manifest | None]:
    """The shards one source names, and its manifest."""
    if path.is_dir() and not (path / NAME).exists():
        files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
        if not files:
            raise SourceMissing(
                f"{path} holds no shards ({', '.join(SUFFIXES)}); name a folder that does.", path=str(path)
            )
        return [Shard(p) for p in files], None
    if path.is_dir() or path.suffix == ".json":
        where = path / NAME if path.is_dir() else path
        manifest = read_manifest(where)
        return [Shard(where.parent / e.file, e, manifest.width) for e in manifest.shards], manifest
    return [open_shard(path)], _beside(path)


def _usable(shard: Shard) -> None:
    """Raise DamagedShard unless the file is there, of its size, and can be opened."""
    try:
        size = shard.path.stat().st_size
    except FileNotFoundError as e:
        raise SourceMissing(f"{shard.path} is not there, and the manifest names it.", path=str(shard.path)) from e
    if shard._entry is None:
        _opened(*_identity(shard.path))
    elif size != shard._entry.bytes:
        raise _damaged(shard.path, f"it has {size} bytes; the manifest says {shard._entry.bytes}")


def _agreed(manifests: list[Manifest | None]) -> tuple[int | None, str | None, tuple[Any, ...]]:
    """Width (the largest), target kind and labels, as far as every part has a manifest that says so."""
    known = [m for m in manifests if m is not None]
    if not known or len(known) < len(manifests):
        return None, None, ()
    widths = [m.width for m in known]
    width = None if None in widths else max(w for w in widths if w is not None)
    return width, known[0].target_kind, tuple(dict.fromkeys(label for m in known for label in m.labels))


def _local(source: Source) -> Path:
    text = os.fspath(source)
    if text.startswith("file:"):
        return Path(unquote(urlparse(text).path))
    if "://" in text:
        raise SourceMissing(f"{text} is not on this machine; only local paths and file: URIs are read. Copy it here.")
    return Path(text)


def _identity(path: Path) -> tuple[Path, int, int]:
    """What tells whether a file is still the one looked at before."""
    try:
        status = path.stat()
    except FileNotFoundError as e:
        raise SourceMissing(f"{path} is not there; put it back, or name where it is.", path=str(path)) from e
    return path, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=100_000)
def _digest(path: Path, _size: int, _changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=64)
def _manifest(path: Path, _size: int, _changed: int) -> Manifest:
    return read_manifest(path)


class _File:
    """An open shard: its batches by number."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        with _unreadable(path):
            self._open(pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b""))

    def _open(self, source: Any) -> None:
        start = bytes(source.read(6))
        source.seek(0)
        if start == b"ARROW1":
            reader = pa.ipc.open_file(source)
            self._get = lambda n: [reader.get_batch(n)]
            self.batch_rows = tuple(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))
        elif start[:4] == b"PAR1":
            self._open_parquet(source)
        elif start[:4] == b"\xff\xff\xff\xff":
            batches = read_arrow(source.read_buffer())
            self._get = lambda n: [batches[n]]
            self.batch_rows = tuple(batch.num_rows for batch in batches)
        else:
            raise MalformedInput("it is neither an Arrow nor a Parquet file")

    def _open_parquet(self, source: Any) -> None:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(source)
        schema = file.schema_arrow
        groups = range(file.metadata.num_row_groups)
        self.batch_rows = tuple(file.metadata.row_group(n).num_rows for n in groups)
        self._get = lambda n: file.read_row_group(n).to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]

    def read(self, batch: int) -> list[pa.RecordBatch]:
        if not 0 <= batch < len(self.batch_rows):
            raise IndexError(f"{self._path} has {len(self.batch_rows)} batches; batch {batch} was asked for")
        with self._lock, _unreadable(self._path):
            return self._get(batch)


@lru_cache(maxsize=16)
def _opened(path: Path, _size: int, _changed: int) -> _File:
    return _File(path)


class _unreadable:
    """Turn whatever reading a shard raises into DamagedShard."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, pa.ArrowException | OSError | MemoryError | MalformedInput | OverflowError | UnicodeError):
            raise _damaged(self._path, (str(error) or type(error).__name__).splitlines()[0][:200]) from error


def _damaged(path: Path, why: str) -> DamagedShard:
    return DamagedShard(
        f"{path} cannot be used: {why}. Restore or rewrite it, or leave it out with --skip-damaged.", path=str(path)
    )
