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

Files in object stores are named by URIs of pyarrow.fs. Examples are s3://bucket/key, gs://… and
abfs://…. RemotePath has the methods of a Path that shards need. So other modules use files of this
machine and of object stores in one way.

Credentials come from the environment alone, as the store's own tools read them (AWS_ACCESS_KEY_ID
and so on). A URI appears in logs, manifests and messages. So a URI is refused if it has a user's
name, a password, or an option other than region, scheme and endpoint_override. The message does
not repeat the URI.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from stream_dr.batch.arrow import EXTRA_COLUMNS, checked_row_counts, declared_categories, encode_categories, read_arrow
from stream_dr.batch.messages import first_message_line, refuse_unsupported_types
from stream_dr.errors import (
    DamagedShard,
    InvalidParameter,
    LimitExceeded,
    MalformedInput,
    SchemaMismatch,
    SourceMissing,
)

OPTIONS = ("region", "scheme", "endpoint_override")
"""Options that a URI may have."""

ATTEMPTS = 10
"""Number of attempts at an S3 request, unless AWS_MAX_ATTEMPTS is set.

All attempts together, with the waits between them, take minutes.
"""


class FileStatus(NamedTuple):
    """Size and time of change of a file.

    The fields have the names of os.stat.

    Attributes
    ----------
    st_size : int
        Size in bytes.
    st_mtime_ns : int
        Time of the last change in nanoseconds since 1970.
    """

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True)
class RemotePath(os.PathLike[str]):
    """File or folder of an object store.

    A RemotePath has the methods of Path that shards need. Methods that access the store raise
    SourceMissing if the store does not answer or refuses access.
    """

    uri: str

    def __post_init__(self) -> None:
        _split_secret_free_uri(self.uri)

    def __str__(self) -> str:
        return self.uri

    __fspath__ = __str__

    def __truediv__(self, name: str) -> "RemotePath":
        return self._with_path(f"{self._parts.path.rstrip('/')}/{quote(name)}")

    @property
    def name(self) -> str:
        """Last part of the path."""
        return unquote(self._parts.path.rstrip("/").rpartition("/")[2])

    @property
    def suffix(self) -> str:
        """End of the name, from its last dot on."""
        return Path(self.name).suffix

    @property
    def parent(self) -> "RemotePath":
        """Folder that contains the file or folder."""
        return self._with_path(self._parts.path.rstrip("/").rpartition("/")[0])

    def absolute(self) -> "RemotePath":
        """Return this path, because a URI is always absolute."""
        return self

    def as_uri(self) -> str:
        """Return the URI of the file or folder."""
        return self.uri

    def stat(self) -> FileStatus:
        """Return the file's size and time of change.

        Raises FileNotFoundError.
        """
        info = self._file_info()
        if info.type != fs.FileType.File:
            raise FileNotFoundError(self.uri)
        return FileStatus(info.size, info.mtime_ns or 0)

    def exists(self) -> bool:
        """Return True if the file or folder exists."""
        return bool(self._file_info().type != fs.FileType.NotFound)

    def is_file(self) -> bool:
        """Return True if the path is a file."""
        return bool(self._file_info().type == fs.FileType.File)

    def is_dir(self) -> bool:
        """Return True if the path is a folder."""
        return bool(self._file_info().type == fs.FileType.Directory)

    def iterdir(self) -> Iterator["RemotePath"]:
        """Return the files and folders in this folder."""
        system, path = open_filesystem_and_path(self.uri)
        with _errors_as_source_missing(self.uri):
            infos = system.get_file_info(fs.FileSelector(path))
        return (self / info.base_name for info in infos)

    def read_bytes(self) -> bytes:
        """Return the bytes of the file. Raises FileNotFoundError."""
        system, path = open_filesystem_and_path(self.uri)
        with _errors_as_source_missing(self.uri), system.open_input_file(path) as file:
            return bytes(file.read())

    def copy_to(self, local_path: Path) -> None:
        """Copy the remote file to this machine.

        Raises FileNotFoundError.
        """
        system, source = open_filesystem_and_path(self.uri)
        with _errors_as_source_missing(self.uri):
            local = fs.LocalFileSystem()
            fs.copy_files(source, str(local_path), source_filesystem=system, destination_filesystem=local)

    def _file_info(self) -> fs.FileInfo:
        system, path = open_filesystem_and_path(self.uri)
        with _errors_as_source_missing(self.uri):
            return system.get_file_info(path)

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.uri)

    def _with_path(self, path: str) -> "RemotePath":
        return RemotePath(urlunsplit(self._parts._replace(path=path)))


AnyPath = Path | RemotePath
"""Path on this machine or in an object store."""


def parse_path_or_uri(path_or_uri: str) -> AnyPath:
    """Return a path or URI as a Path or RemotePath.

    A URI that starts with "file:" becomes a Path. Raises InvalidParameter if the URI contains a
    user, a password or an unknown option.
    """
    if path_or_uri.startswith("file:"):
        return Path(unquote(urlsplit(path_or_uri).path))
    if "://" in path_or_uri:
        return RemotePath(path_or_uri)
    return Path(path_or_uri)


def refuse_url(path_or_uri: str) -> None:
    """Raise InvalidParameter for a URL of the web."""
    if path_or_uri.lower().startswith(("http://", "https://", "ftp://")):
        raise InvalidParameter(f"{path_or_uri.partition('?')[0]}: URLs are not read; download it first.")


def open_filesystem_and_path(path_or_uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI or path.

    Also returns the path of the file in this file system. Raises InvalidParameter or
    SourceMissing.
    """
    if "://" not in path_or_uri or path_or_uri.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(parse_path_or_uri(path_or_uri)).absolute())
    parts = _split_secret_free_uri(path_or_uri)
    system, root = _open_object_store(urlunsplit(parts._replace(path="", fragment="")))
    return system, f"{root}/{unquote(parts.path).strip('/')}".strip("/")


@lru_cache(maxsize=64)
def _open_object_store(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of an object store.

    Also returns the path of the store's root in this file system. Raises InvalidParameter or
    SourceMissing.

    uri: URI of the store, without the path of a file.
    """
    try:
        with _errors_as_source_missing(uri):
            system, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, NotImplementedError) as e:
        raise InvalidParameter(
            f"{uri} names no store that can be read ({first_message_line(e)}); give s3://bucket/key."
        ) from e

    # Of the ways to open S3, only this constructor accepts a number of attempts per request.
    # S3FileSystem ignores these AWS_* environment variables, so they are read here.
    if system.type_name == "s3":
        options = {name: value[0] for name, value in parse_qs(urlsplit(uri).query).items()}
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        arguments = {"region": system.region, "endpoint_override": endpoint, **options}
        attempts = int(os.environ.get("AWS_MAX_ATTEMPTS", ATTEMPTS))
        system = fs.S3FileSystem(**arguments, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=attempts))
    return system, path


def _split_secret_free_uri(uri: str) -> SplitResult:
    """Split a URI into its parts.

    Raises InvalidParameter if the URI contains a user, a password, or an option that is not in
    OPTIONS. The message does not repeat them.
    """
    refuse_url(uri)
    parts = urlsplit(uri)
    # Messages show the URI without user and password.
    location = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if "@" in parts.netloc:
        raise InvalidParameter(
            f"the URI of {location} holds a user or password; leave them out and put the credentials into the environment."
        )

    unknown = set(parse_qs(parts.query, keep_blank_values=True)) - set(OPTIONS)
    if unknown:
        raise InvalidParameter(
            f"the URI of {location} says {', '.join(sorted(unknown))}; it may say {', '.join(OPTIONS)}. Credentials belong "
            "into the environment."
        )
    return parts


@contextmanager
def _errors_as_source_missing(uri: str) -> Iterator[None]:
    """Replace a store's errors in the with-block by SourceMissing.

    FileNotFoundError is raised unchanged.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        raise SourceMissing(
            f"{uri} cannot be reached ({first_message_line(e)}). Check the address, the network and the credentials in the "
            "environment, and give the command again.",
            path=uri,
        ) from e


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
    if path.stat().st_size:
        return pa.memory_map(str(path)).read_buffer()
    return pa.py_buffer(b"")


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
