"""Files in object stores, named by URIs of pyarrow.fs.

Examples are s3://bucket/key, gs://… and abfs://…. RemotePath has the methods of a Path that shards
need. So other modules use files of this machine and of object stores in one way.

Credentials come from the environment alone, as the store's own tools read them (AWS_ACCESS_KEY_ID
and so on). A URI appears in logs, manifests and messages. So a URI is refused if it has a user's
name, a password, or an option other than region, scheme and endpoint_override. The message does
not repeat the URI.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from stream_dr.arrow.sound import first_message_line
from stream_dr.errors import InvalidParameter, SourceMissing

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
    return RemotePath(path_or_uri) if "://" in path_or_uri else Path(path_or_uri)


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
    system, root = _open_object_store_and_root(urlunsplit(parts._replace(path="", fragment="")))
    return system, f"{root}/{unquote(parts.path).strip('/')}".strip("/")


@lru_cache(maxsize=64)
def _open_object_store_and_root(uri: str) -> tuple[fs.FileSystem, str]:
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
