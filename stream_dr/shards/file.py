"""Open shard files, whatever their format.

Arrow IPC files and streams are memory-mapped. Row groups of Parquet are decoded one at a time. A
process has at most 16 files open. The pages of a returned batch are mapped as long as the batch
exists. A file of an object store is downloaded as a whole, because its digest covers all its
bytes. The download is a temporary file, which takes disk space as long as the shard is open.

A Parquet page may have a checksum, which is then checked. Many writers write no checksums. If the
digest of a file is unknown, only these checksums detect damage.

A file is identified by path, size and time of change. If a shard was replaced, the new file is
opened and its digest is computed.

Cost: opening reads the footer, and the metadata of each batch of an IPC file.
"""

import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stream_dr.arrow.categories import declared_categories, encode_categories
from stream_dr.arrow.codec import checked_row_counts, read_arrow
from stream_dr.arrow.rows import EXTRA_COLUMNS
from stream_dr.arrow.sound import first_message_line, refuse_unsupported_types
from stream_dr.errors import DamagedShard, LimitExceeded, MalformedInput, SchemaMismatch, SourceMissing
from stream_dr.shards.uri import AnyPath, RemotePath


class FileIdentity(NamedTuple):
    """Path, size and change time that identify a file's state.

    Attributes
    ----------
    path : Path or RemotePath
    size : int
        Size in bytes.
    changed_ns : int
        Time of the last change, in nanoseconds since 1970.
    """

    path: AnyPath
    size: int
    changed_ns: int


def current_file_identity(path: AnyPath) -> FileIdentity:
    """Return the current identity of a file.

    The identity is the path, the size and the time of change. Raises SourceMissing.
    """
    try:
        status = path.stat()
    except FileNotFoundError as e:
        raise SourceMissing(f"{path} is not there; put it back, or name where it is.", path=str(path)) from e
    return FileIdentity(path, status.st_size, status.st_mtime_ns)


def file_sha256(path: AnyPath, size: int, changed_ns: int) -> str:
    """Return the SHA-256 of a file in hex.

    A process computes the digest once for each path, size and time of change. Cost: O(bytes).

    size: size of the file in bytes.
    changed_ns: time of the last change, in nanoseconds since 1970.
    """
    if isinstance(path, RemotePath):
        return download_file_cached(path, size, changed_ns).sha256
    return _cached_sha256(path, size, changed_ns)


@lru_cache(maxsize=100_000)
def _cached_sha256(path: Path, _size: int, _changed_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def may_be_shard(path: AnyPath) -> bool:
    """Return True if a file begins like a shard.

    A shard is an Arrow IPC or Parquet file. A remote file is not read, and True is returned.
    """
    if isinstance(path, RemotePath):
        return True
    with open(path, "rb") as file:
        return file.read(6).startswith((b"ARROW1", b"PAR1", b"\xff\xff\xff\xff"))


def mapped_file_bytes(path: AnyPath, size: int, changed_ns: int) -> pa.Buffer:
    """Return a file's bytes, memory-mapped.

    A remote file is downloaded first. Raises DamagedShard if the file cannot be read.

    size: size of the file in bytes.
    changed_ns: time of the last change, in nanoseconds since 1970.
    """
    if isinstance(path, RemotePath):
        return download_file_cached(path, size, changed_ns).data
    with _errors_as_damaged_shard(path):
        return _map_file(path)


def _map_file(path: Path) -> pa.Buffer:
    # An empty file cannot be mapped.
    return pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")


class DownloadedFile:
    """A downloaded remote file. Thread-safe.

    token: object that identifies this download. Two downloads of a file have different tokens.
    """

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._data: pa.Buffer | None = None
        self.token = object()

    @property
    def data(self) -> pa.Buffer:
        """All bytes of the remote file.

        The first access downloads the file to a temporary file, maps its bytes into memory and
        deletes its name. Raises SourceMissing.
        """
        with self._lock:
            if self._data is None:
                with tempfile.NamedTemporaryFile(prefix="stream_dr-") as file:
                    try:
                        self._path.copy_to(Path(file.name))
                    except FileNotFoundError as e:
                        uri = self._path.uri
                        raise SourceMissing(f"{uri} is no longer there; put it back.", path=uri) from e
                    self._data = _map_file(Path(file.name))
            return self._data

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file's bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def file(self) -> "ShardFile":
        """The downloaded file as an open shard."""
        return ShardFile(self._path, self.data)


@lru_cache(maxsize=16)
def download_file_cached(path: RemotePath, _size: int, _changed_ns: int) -> DownloadedFile:
    """Return the downloaded content of a remote file.

    The last 16 downloads are stored. An older download is dropped, and its file is downloaded
    again when it is needed. The attribute `token` of the new download is then another object. A
    Shard compares tokens to find out if it has checked the bytes of this download already.

    The result is cached by the values of all parameters. The size and the time of change are
    parameters only because a changed file must be downloaded again.
    """
    return DownloadedFile(path)


class ShardFile:
    """Opened shard whose batches are read by number.

    Parameters
    ----------
    path : Path or RemotePath
    data : Buffer or None
        Bytes of the file. If None, the file at `path` is memory-mapped.

    Attributes
    ----------
    schema : pa.Schema
        Arrow schema of the batches.
    batch_rows : tuple of int
        Number of rows of each batch.
    """

    schema: pa.Schema
    batch_rows: tuple[int, ...]
    _read_batch: Callable[[int], list[pa.RecordBatch]]

    def __init__(self, path: AnyPath, data: pa.Buffer | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        with _errors_as_damaged_shard(path):
            self._open_by_format(pa.BufferReader(_map_file(Path(path)) if data is None else data))

    def _open_by_format(self, source: pa.BufferReader) -> None:
        """Open the file in the format of its first bytes."""
        data = source.read_buffer()
        start = bytes(data[:6])
        source.seek(0)

        if start == b"ARROW1":
            self.batch_rows = checked_row_counts(data)
            reader = pa.ipc.open_file(source)
            self.schema = reader.schema
            self._read_batch = lambda number: [reader.get_batch(number)]
        elif start[:4] == b"PAR1":
            self._open_parquet(source)
        elif start[:4] == b"\xff\xff\xff\xff":
            batches = read_arrow(data)
            self.schema = batches[0].schema if batches else pa.schema([])
            self.batch_rows = tuple(batch.num_rows for batch in batches)
            self._read_batch = lambda number: [batches[number]]
        else:
            raise MalformedInput("it is neither an Arrow nor a Parquet file")

    def _open_parquet(self, source: pa.BufferReader) -> None:
        file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        categories = declared_categories(file).difference(EXTRA_COLUMNS)
        empty = encode_categories(pa.RecordBatch.from_pylist([], schema=file.schema_arrow), categories)
        self.schema = empty.schema
        self.batch_rows = tuple(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups))

        def read_row_group(number: int) -> list[pa.RecordBatch]:
            batches = file.read_row_group(number).to_batches() or [empty]
            return [encode_categories(batch, categories) for batch in batches]

        self._read_batch = read_row_group

    def read(self, batch_index: int) -> list[pa.RecordBatch]:
        """Return one batch, as Arrow record batches.

        A row group of a Parquet file may become several record batches. Raises IndexError,
        DamagedShard or SchemaMismatch.

        batch_index: number of the batch, from 0.
        """
        if not 0 <= batch_index < len(self.batch_rows):
            raise IndexError(f"{self._path} has {len(self.batch_rows)} batches; batch {batch_index} was asked for")
        with self._lock, _errors_as_damaged_shard(self._path):
            # Types are checked before anything is decoded.
            refuse_unsupported_types(self.schema)
            return self._read_batch(batch_index)


def open_shard_file_cached(path: AnyPath, size: int, changed_ns: int) -> ShardFile:
    """Return a file as an open shard.

    The last 16 open shards are stored. Raises DamagedShard if the file has no batches that can be
    read. Raises SchemaMismatch if a column has a type that a shard cannot have.

    size: size of the file in bytes.
    changed_ns: time of the last change, in nanoseconds since 1970.
    """
    if isinstance(path, RemotePath):
        return download_file_cached(path, size, changed_ns).file
    return _open_local_shard_cached(path, size, changed_ns)


@lru_cache(maxsize=16)
def _open_local_shard_cached(path: Path, _size: int, _changed_ns: int) -> ShardFile:
    return ShardFile(path)


@contextmanager
def _errors_as_damaged_shard(path: AnyPath) -> Iterator[None]:
    """Replace errors of reading in the with-block by DamagedShard.

    SchemaMismatch and LimitExceeded are raised again, with the path added to the message.
    """
    try:
        yield
    except (pa.ArrowException, OSError, MemoryError, MalformedInput, OverflowError, UnicodeError) as e:
        raise damaged_shard_error(path, first_message_line(e)) from e
    except (SchemaMismatch, LimitExceeded) as e:
        raise type(e)(f"{path}: {e}", **e.details) from e


def damaged_shard_error(path: AnyPath, reason: str) -> DamagedShard:
    """Return the error for a shard that cannot be used.

    reason: reason, for the error message.
    """
    return DamagedShard(
        f"{path} cannot be used: {reason}. Restore or rewrite it; replay and evaluate leave it out with --skip-damaged.",
        path=str(path),
    )
