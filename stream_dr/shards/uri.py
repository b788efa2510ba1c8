"""uri: files that are not on this machine, named by a URI that pyarrow.fs knows (s3://bucket/key, gs://…, abfs://…).

Credentials come from the environment alone, as the store's own tools read them (AWS_ACCESS_KEY_ID …). A URI goes into logs,
manifests and messages, so one that holds a user's name, a password or an option other than region, scheme and
endpoint_override is refused, and what it held is not repeated.

Why this way: RemotePath has what shards ask of a Path, so that nothing else knows where a shard is.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from stream_dr.arrow.sound import first_line
from stream_dr.disk import write_atomically
from stream_dr.errors import InvalidParameter, SourceMissing

OPTIONS = ("region", "scheme", "endpoint_override")
"""What a URI may say beside the place."""

ATTEMPTS = 10
"""Number of times that S3 is asked before an error, unless AWS_MAX_ATTEMPTS is set. With the waits this takes minutes."""


class Status(NamedTuple):
    """Size in bytes, and time of change in nanoseconds."""

    st_size: int
    st_mtime_ns: int


class RemotePath(os.PathLike[str]):
    """A file or folder of an object store, with those of Path's methods that shards need.

    All that asks the store raises SourceMissing when it does not answer or refuses.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._parts = _plain(uri)

    def __str__(self) -> str:
        return self.uri

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"RemotePath({self.uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __lt__(self, other: "RemotePath") -> bool:
        return self.uri < other.uri

    def __truediv__(self, name: str) -> "RemotePath":
        return self._at(f"{self._parts.path.rstrip('/')}/{quote(name)}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return unquote(self._parts.path.rstrip("/").rpartition("/")[2])

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot on."""
        return Path(self.name).suffix

    @property
    def parent(self) -> "RemotePath":
        """The folder it is in."""
        return self._at(self._parts.path.rstrip("/").rpartition("/")[0])

    def absolute(self) -> "RemotePath":
        """Itself."""
        return self

    def as_uri(self) -> str:
        """Its URI."""
        return self.uri

    def stat(self) -> Status:
        """Size and time of change. Raises FileNotFoundError where there is no such file."""
        info = self._info()
        if info.type != fs.FileType.File:
            raise FileNotFoundError(self.uri)
        return Status(info.size, info.mtime_ns or 0)

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        return bool(self._info().type != fs.FileType.NotFound)

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self._info().type == fs.FileType.File)

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return bool(self._info().type == fs.FileType.Directory)

    def iterdir(self) -> Iterator["RemotePath"]:
        """The files and folders in it."""
        system, path = filesystem(self.uri)
        with _asked(self.uri):
            found = system.get_file_info(fs.FileSelector(path))
        return (self / info.base_name for info in found)

    def read_bytes(self) -> bytes:
        """The file's bytes. Raises FileNotFoundError."""
        system, path = filesystem(self.uri)
        with _asked(self.uri), system.open_input_file(path) as file:
            return bytes(file.read())

    def copy_to(self, path: Path) -> None:
        """Copy the file to one on this machine. Raises FileNotFoundError."""
        system, there = filesystem(self.uri)
        with _asked(self.uri):
            fs.copy_files(there, str(path), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())

    def _info(self) -> fs.FileInfo:
        system, path = filesystem(self.uri)
        with _asked(self.uri):
            return system.get_file_info(path)

    def _at(self, path: str) -> "RemotePath":
        return RemotePath(urlunsplit(self._parts._replace(path=path)))


AnyPath = Path | RemotePath


def path_of(text: str) -> AnyPath:
    """A path, a file: URI or another store's URI as what reads it. Raises InvalidParameter."""
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    return RemotePath(text) if "://" in text else Path(text)


def filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI or a path, and the path in it. Raises InvalidParameter, SourceMissing."""
    if "://" not in uri or uri.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(path_of(uri)).absolute())
    parts = _plain(uri)
    system, top = _opened(urlunsplit(parts._replace(path="", fragment="")))
    return system, f"{top}/{unquote(parts.path).strip('/')}".strip("/")


def write_whole(folder: str, name: str, content: bytes) -> None:
    """Create or replace a file in a folder, made where it is not there, or under a URI: it is there as a whole, or not at
    all. Raises InsufficientStorage, and as `filesystem`."""
    system, at = filesystem(folder)
    path = f"{at}/{name}"
    if isinstance(system, fs.LocalFileSystem):
        Path(at).mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(content))
        return
    with system.open_output_stream(path) as stream:
        stream.write(content)


@lru_cache(maxsize=64)
def _opened(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        with _asked(uri):
            system, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, NotImplementedError) as e:
        raise InvalidParameter(f"{uri} names no store that can be read ({first_line(e)}); give s3://bucket/key.") from e
    if system.type_name == "s3":  # once more, with more attempts; of the environment, from_uri alone takes the endpoint
        said = {name: value[0] for name, value in parse_qs(urlsplit(uri).query).items()}
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        known = {"region": system.region, "endpoint_override": endpoint, **said}
        attempts = int(os.environ.get("AWS_MAX_ATTEMPTS", ATTEMPTS))
        system = fs.S3FileSystem(**known, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=attempts))
    return system, path


def _plain(uri: str) -> SplitResult:
    parts = urlsplit(uri)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if "@" in parts.netloc:
        raise InvalidParameter(
            f"the URI of {where} holds a user or password; leave them out and put the credentials into the environment."
        )
    other = set(parse_qs(parts.query, keep_blank_values=True)) - set(OPTIONS)
    if other:
        raise InvalidParameter(
            f"the URI of {where} says {', '.join(sorted(other))}; it may say {', '.join(OPTIONS)}. Credentials belong into "
            "the environment."
        )
    return parts


@contextmanager
def _asked(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        raise SourceMissing(
            f"{uri} cannot be reached ({first_line(e)}). Check the address, the network and the credentials in the "
            "environment, and give the command again.",
            path=uri,
        ) from e
