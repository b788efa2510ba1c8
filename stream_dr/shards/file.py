"""shard_file: one open file of record batches, whatever its format.

Arrow IPC files and streams are memory-mapped; Parquet's row groups are decoded one at a time. At most 16 files are kept open
in a process; the batches handed out keep their pages mapped as long as they live. A file of an object store is fetched
whole, into a temporary file that takes room on this machine's disk as long as it is open: its digest is of all its bytes.

Parquet's pages are checked by their own checksums where they have them (many writers leave them out), so that
damage in a file whose digest nobody wrote down is found as far as it can be.

Cost: opening reads the footer, and of an IPC file what each batch says of itself.

Why this way: what tells whether a file is still the one looked at is its path, size and time of change, so a shard that was
replaced is opened, and its digest taken, anew.
"""

import hashlib
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stream_dr.arrow.codec import check_file, read_arrow
from stream_dr.arrow.sound import check_types, first_line
from stream_dr.errors import DamagedShard, LimitExceeded, MalformedInput, SchemaMismatch, SourceMissing
from stream_dr.shards.uri import AnyPath, RemotePath

Identity = tuple[AnyPath, int, int]


def identity_of(path: AnyPath) -> Identity:
    """What tells whether a file is still the one looked at before."""
    try:
        status = path.stat()
    except FileNotFoundError as e:
        raise SourceMissing(f"{path} is not there; put it back, or name where it is.", path=str(path)) from e
    return path, status.st_size, status.st_mtime_ns


def digest_of(path: AnyPath, size: int, changed: int) -> str:
    """Hex sha256 of a file, taken once a process for one identity. O(bytes)."""
    if isinstance(path, RemotePath):
        return fetched(path, size, changed).sha256
    return _digest(path, size, changed)


@lru_cache(maxsize=100_000)
def _digest(path: Path, _size: int, _changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def begins_as_shard(path: AnyPath) -> bool:
    """Whether a file begins as an Arrow IPC file or stream or a Parquet file does; a remote one is taken for a shard."""
    if isinstance(path, RemotePath):
        return True
    with open(path, "rb") as file:
        return file.read(6).startswith((b"ARROW1", b"PAR1", b"\xff\xff\xff\xff"))


def bytes_of(path: AnyPath, size: int, changed: int) -> pa.Buffer:
    """A file's bytes, memory-mapped. Raises DamagedShard when it cannot be read."""
    if isinstance(path, RemotePath):
        return fetched(path, size, changed).data
    with _unreadable(path):
        return _mapped(path)


def _mapped(path: Path) -> pa.Buffer:
    return pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")


class Fetched:
    """The bytes that a remote file had when it was fetched. Thread-safe."""

    def __init__(self, path: RemotePath) -> None:
        self._path, self._lock = path, threading.Lock()
        self._data: pa.Buffer | None = None
        self.token = object()

    @property
    def data(self) -> pa.Buffer:
        """All of them, mapped from a temporary file that has no name any more."""
        with self._lock:
            if self._data is None:
                with tempfile.NamedTemporaryFile(prefix="stream_dr-") as file:
                    try:
                        self._path.copy_to(Path(file.name))
                    except FileNotFoundError as e:
                        raise SourceMissing(
                            f"{self._path} is no longer there; put it back.", path=self._path.uri
                        ) from e
                    self._data = _mapped(Path(file.name))
            return self._data

    @cached_property
    def sha256(self) -> str:
        """Hex digest."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def file(self) -> "ShardFile":
        """The shard."""
        return ShardFile(self._path, self.data)


@lru_cache(maxsize=16)
def fetched(path: RemotePath, _size: int, _changed: int) -> Fetched:
    """What was fetched of an identity; fetched once more, and so another object, once 16 others were."""
    return Fetched(path)


class ShardFile:
    """An open shard: its batches by number. data: its bytes. schema: their Arrow schema. batch_rows: rows of each."""

    schema: pa.Schema

    def __init__(self, path: AnyPath, data: pa.Buffer | None = None) -> None:
        self._path, self._lock = path, threading.Lock()
        with _unreadable(path):
            self._open(pa.BufferReader(_mapped(Path(path)) if data is None else data))

    def _open(self, source: Any) -> None:
        data = source.read_buffer()
        start = bytes(data[:6])
        source.seek(0)
        if start == b"ARROW1":
            self.batch_rows = check_file(data)
            reader = pa.ipc.open_file(source)
            self._get, self.schema = lambda n: [reader.get_batch(n)], reader.schema
        elif start[:4] == b"PAR1":
            self._open_parquet(source)
        elif start[:4] == b"\xff\xff\xff\xff":
            batches = read_arrow(data)
            self._get, self.schema = lambda n: [batches[n]], batches[0].schema if batches else pa.schema([])
            self.batch_rows = tuple(batch.num_rows for batch in batches)
        else:
            raise MalformedInput("it is neither an Arrow nor a Parquet file")

    def _open_parquet(self, source: Any) -> None:
        file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        self.schema = file.schema_arrow
        self.batch_rows = tuple(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups))

        def batches_of(number: int) -> list[pa.RecordBatch]:
            return file.read_row_group(number).to_batches() or [pa.RecordBatch.from_pylist([], schema=self.schema)]

        self._get = batches_of

    def read(self, batch: int) -> list[pa.RecordBatch]:
        """The record batches of one event. Raises IndexError, DamagedShard or SchemaMismatch."""
        if not 0 <= batch < len(self.batch_rows):
            raise IndexError(f"{self._path} has {len(self.batch_rows)} batches; batch {batch} was asked for")
        with self._lock, _unreadable(self._path):
            check_types(self.schema)  # before anything is decoded
            return self._get(batch)


def opened(path: AnyPath, size: int, changed: int) -> ShardFile:
    """The open file of an identity. Raises DamagedShard when it is no file of batches, SchemaMismatch for other columns."""
    return fetched(path, size, changed).file if isinstance(path, RemotePath) else _opened(path, size, changed)


@lru_cache(maxsize=16)
def _opened(path: Path, _size: int, _changed: int) -> ShardFile:
    return ShardFile(path)


@contextmanager
def _unreadable(path: AnyPath) -> Iterator[None]:
    """Turn whatever reading a shard raises into DamagedShard; columns of other types are told with the file's name."""
    try:
        yield
    except (pa.ArrowException, OSError, MemoryError, MalformedInput, OverflowError, UnicodeError) as e:
        raise damaged_shard(path, first_line(e)) from e
    except (SchemaMismatch, LimitExceeded) as e:
        raise type(e)(f"{path}: {e}", **e.details) from e


def damaged_shard(path: AnyPath, why: str) -> DamagedShard:
    """The error that says that a shard cannot be used."""
    return DamagedShard(
        f"{path} cannot be used: {why}. Restore or rewrite it; replay and evaluate leave it out with --skip-damaged.",
        path=str(path),
    )
