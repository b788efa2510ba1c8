"""Data sets of shards, read a batch at a time.

Each batch is an event. A shard is an Arrow IPC file, an Arrow IPC stream, or a Parquet file. The
row groups of a Parquet file are its batches. A data set is a folder, a manifest, or files, on this
machine or in an object store (file.py). Uncompressed IPC files are memory-mapped, so their numbers
are not copied.

An event in the log does not hold the rows. It identifies them by the SHA-256 of the file and the
index of the batch. The rows may be read from the file at any later time, so the file must not
change after the event is appended. The SHA-256 of the file shows whether the file has changed. The
SHA-256 is cached by path, size and time of change, so many models that read one shard compute it
only once.

Cost: before the first batch of a shard, a process reads the whole file to compute a fast checksum
(the seal, folder.py). If no manifest has a seal, the SHA-256 is computed, which takes several
times as long. Reading a batch then costs only the validation of the batch. At most 16 files are
open at a time. Mapped pages count as file memory and not as memory of the process.
"""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from stream_dr.batch.arrow import EXTRA_COLUMNS, block_from_arrow, is_shard_layout
from stream_dr.batch.block import Block
from stream_dr.batch.matrix import is_numeric_type
from stream_dr.batch.targets import Label
from stream_dr.errors import DamagedFile, DamagedShard, ForeignFile, MalformedInput, SourceMissing, StreamDRError
from stream_dr.shards.file import (
    AnyPath,
    FileIdentity,
    RemotePath,
    current_file_identity,
    damaged_shard_error,
    download_file_cached,
    file_sha256,
    mapped_file_bytes,
    may_be_shard,
    open_shard_file_cached,
    parse_path_or_uri,
)
from stream_dr.shards.folder import (
    MANIFEST_NAME,
    UNFINISHED,
    Manifest,
    ShardEntry,
    ShardWriter,
    read_manifest,
    seal_checksum,
)

__all__ = ["Dataset", "Shard", "ShardWriter", "are_shards_or_missing", "open_dataset", "open_shard"]

_EVENT_BYTES = 256 << 20
"""Size in bytes of a Parquet row group above which the group becomes several events.

A smaller row group becomes one event, like a batch of a shard.
"""

_SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc", ".parquet")

PathOrUri = str | os.PathLike[str]
"""Path on this machine, or URI of an object store."""


class Shard:
    """One file of batches. Thread-safe.

    A remote file is downloaded when it is first needed. Later changes of the remote file are
    ignored.

    Parameters
    ----------
    path : Path or RemotePath
    entry : ShardEntry or None
        Entry of the file in a manifest.
    n_features : int or None
        Number of columns of the rows, if it is known.
    """

    def __init__(self, path: AnyPath, entry: ShardEntry | None = None, n_features: int | None = None) -> None:
        self.path = path
        self.entry = entry
        self.n_features = n_features
        # Identity of the file when it was last checked. None before the first check.
        # A local file is identified by path, size and time of change, a remote one by its download.
        self._checked: object = None
        self._remote: FileIdentity | None = None

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file in hex.

        The SHA-256 is read from the manifest. Without a manifest it is computed.
        """
        if self.entry is not None:
            return self.entry.sha256
        return file_sha256(*self._file_identity())

    @cached_property
    def batch_rows(self) -> tuple[int, ...]:
        """Number of rows of each batch.

        Without a manifest the file is read. Raises DamagedShard or SourceMissing.
        """
        if self.entry is not None:
            return self.entry.batch_rows
        return open_shard_file_cached(*self._file_identity()).batch_rows

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches. Raises SourceMissing or DamagedShard."""
        return open_shard_file_cached(*self._file_identity()).schema

    @property
    def rows(self) -> int:
        """Number of rows of all batches."""
        return sum(self.batch_rows)

    @property
    def bytes(self) -> int:
        """Size of the file in bytes."""
        if self.entry is not None:
            return self.entry.bytes
        return self._file_identity().size

    def read(self, batch_index: int) -> Block:
        """Return one batch as a Block, memory-mapped if possible.

        Raises SourceMissing or IndexError. Raises DamagedShard if a checksum of the file is wrong
        or the batch cannot be read. The message of an error in the batch begins with the file's
        path and the number of the batch.
        """
        identity = self.check()
        batches = open_shard_file_cached(*identity).read(batch_index)
        try:
            return block_from_arrow(batches, declared_n_features=self.n_features)
        except MalformedInput as e:
            raise damaged_shard_error(self.path, f"batch {batch_index}: {e}") from e
        except StreamDRError as e:
            raise type(e)(f"{self.path}, batch {batch_index}: {e}", **e.details) from e

    def check(self) -> FileIdentity:
        """Check the file, and return its identity.

        The file is checked against its seal (a fast checksum), and against its SHA-256 if the seal
        is missing or wrong. The numbers of rows are checked against the manifest. Each state of
        the file is checked one time.

        `read` calls this method. If another thread has called this method before, `read` does not
        have to wait for the check. Raises SourceMissing or DamagedShard.
        """
        identity = self._file_identity()
        token = download_file_cached(self.path, *identity[1:]).token if isinstance(self.path, RemotePath) else identity
        if self._checked != token:
            # Check the bytes before Arrow reads them, because Arrow's errors do not say "damaged".
            seal = self.entry.seal if self.entry is not None else ""
            if not seal or seal_checksum(mapped_file_bytes(*identity), self.sha256) != seal:
                self._check_sha256(identity)

            # Compare the file with the manifest, because a replay relies on the manifest's numbers.
            batch_rows = open_shard_file_cached(*identity).batch_rows
            if self.entry is not None and batch_rows != self.entry.batch_rows:
                raise damaged_shard_error(
                    self.path,
                    f"it has {len(batch_rows)} batches of {sum(batch_rows)} rows in all; the manifest says other ones "
                    f"({len(self.entry.batch_rows)} of {sum(self.entry.batch_rows)})",
                )
            self._checked = token
        return identity

    def verify(self) -> None:
        """Check the file against its SHA-256.

        The SHA-256 is computed even if the file's fast checksum is right. Raises SourceMissing or
        DamagedShard.
        """
        self._check_sha256(self._file_identity())

    def _file_identity(self) -> FileIdentity:
        """Return the identity of the file.

        The identity is path, size and time of change. The identity of a remote file is stored, so
        later changes of the remote file are ignored.
        """
        if not isinstance(self.path, RemotePath):
            return current_file_identity(self.path)
        if self._remote is None:
            self._remote = current_file_identity(self.path)
        return self._remote

    def _check_sha256(self, identity: FileIdentity) -> None:
        """Raise DamagedShard unless the file has the right SHA-256."""
        if file_sha256(*identity) != self.sha256:
            raise damaged_shard_error(self.path, f"its bytes are not those of sha256 {self.sha256[:12]}…")


class Dataset(NamedTuple):
    """Data set of shards, in order.

    Attributes
    ----------
    shards : tuple of Shard
    n_features : int or None
        Number of columns, if a manifest has it.
    target_kind : str or None
        Kind of the targets, if a manifest has it.
    labels : tuple
        Labels, if a manifest has them.
    skipped : tuple of str
        For each shard that was skipped, the reason.
    """

    shards: tuple[Shard, ...]
    n_features: int | None = None
    target_kind: str | None = None
    labels: tuple[Label, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield batches as Blocks with their numbers.

        The batches of all shards are numbered from 0. The batches whose numbers are in
        after < number ≤ until are yielded. If `until` is None, there is no upper limit.

        Because of this method, a Dataset is a `Source`, the protocol of objects whose rows can be
        read repeatedly.
        """
        number = -1
        for shard in self.shards:
            for batch in range(len(shard.batch_rows)):
                number += 1
                if until is not None and number > until:
                    return
                if number > after:
                    yield number, shard.read(batch)


def open_dataset(sources: PathOrUri | Sequence[PathOrUri], skip_damaged: bool = False) -> Dataset:
    """Open a data set.

    Every shard is opened. The footer of a shard without a manifest is read. Raises SourceMissing
    if a source or shard does not exist, ForeignFile for a file of another format, and DamagedShard
    with the file's name.

    Parameters
    ----------
    sources : path, URI or a sequence of them
        Folder, manifest or file. Several sources are read in this order.
    skip_damaged : bool
        If True, damaged shards are skipped and listed in the attribute `skipped` of the data set.
        If all shards are damaged, DamagedShard is raised.
    """
    source_list = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    parts = [_open_shards_and_manifest(parse_path_or_uri(os.fspath(source))) for source in source_list]
    all_shards = [shard for shards, _ in parts for shard in shards]

    usable: list[Shard] = []
    skipped: list[str] = []
    for shard in all_shards:
        try:
            _check_size(shard)
            usable.append(shard)
        except DamagedShard as e:
            if not skip_damaged:
                raise
            skipped.append(str(e))
            if len(skipped) == len(all_shards):
                raise

    manifests = [manifest for _, manifest in parts]
    described = _combine_manifest_descriptions(manifests)
    return described._replace(shards=tuple(usable), skipped=tuple(skipped))


def open_shard(path_or_uri: PathOrUri, sha256_checked_on_read: str | None = None) -> Shard:
    """Open one shard, without reading its rows.

    If the file's folder has a manifest, the number of columns is taken from it. Raises
    SourceMissing if there is no such file.

    Parameters
    ----------
    path_or_uri : path or URI
        The shard's file.
    sha256_checked_on_read : str or None
        SHA-256 in hex. Reading the shard raises DamagedShard if the file has another one. None
        means that the manifest's SHA-256 is used.
    """
    path = parse_path_or_uri(os.fspath(path_or_uri))
    # Opening a FIFO would block until another process writes to it.
    if not (path.is_file() or path.is_dir()):
        raise SourceMissing(
            f"{path} is not there; check the path, or put a shard that was replayed back in its place, or replay it from "
            "where it is now.",
            path=str(path),
        )

    manifest = _read_folder_manifest(path)
    entry = next((e for e in manifest.shards if e.file == path.name), None) if manifest else None
    if entry is not None and sha256_checked_on_read not in (None, entry.sha256):
        entry = None

    shard = Shard(path, entry, manifest.width if manifest and entry else None)
    if sha256_checked_on_read is not None:
        shard.sha256 = sha256_checked_on_read
    return shard


def _read_folder_manifest(shard_path: AnyPath) -> Manifest | None:
    """Return the manifest in a file's folder.

    The result is None if the folder has no manifest, or the manifest.json of another program.
    """
    manifest_path = shard_path.parent / MANIFEST_NAME
    try:
        return _read_manifest_cached(*current_file_identity(manifest_path)) if manifest_path.exists() else None
    except (DamagedFile, SourceMissing):
        raise
    # The file may be the manifest.json of another program.
    except StreamDRError:
        return None


def _open_shards_and_manifest(path: AnyPath) -> tuple[list[Shard], Manifest | None]:
    """Return the shards of one source, and its manifest.

    The manifest is None if the source has no manifest.

    path: path of a folder of shards, of a manifest, or of one shard.

    Raises SourceMissing, ForeignFile or DamagedFile.
    """
    # If the folder has no manifest, all shards in it are returned.
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

    # If there is a manifest (in the folder or at the path), the shards that it lists are returned.
    if path.is_dir() or path.suffix == ".json":
        manifest_path = path / MANIFEST_NAME if path.is_dir() else path
        manifest = read_manifest(manifest_path)
        return [Shard(manifest_path.parent / e.file, e, manifest.width) for e in manifest.shards], manifest

    # The path must be the path of a single shard. Refuse a file that cannot be a shard.
    if path.is_file() and path.suffix not in _SUFFIXES and not may_be_shard(path):
        raise ForeignFile(
            f"{path} is no shard of Arrow record batches. Make shards of it first, with stream-dr convert {path} --out "
            f"DIR, or learn it as it is, with stream-dr learn {path}.",
            path=str(path),
        )
    return [open_shard(path)], _read_folder_manifest(path)


def _check_size(shard: Shard) -> None:
    """Raise an error if a shard cannot be used.

    Raises SourceMissing if the file does not exist. Raises DamagedShard if the file does not have
    the size in its manifest. Without a manifest, DamagedShard is raised if the file cannot be
    opened.
    """
    try:
        size = shard.path.stat().st_size
    except FileNotFoundError as e:
        raise SourceMissing(f"{shard.path} is not there, and the manifest names it.", path=str(shard.path)) from e

    if shard.entry is None:
        open_shard_file_cached(*current_file_identity(shard.path))
    elif size != shard.entry.bytes:
        raise damaged_shard_error(shard.path, f"it has {size} bytes; the manifest says {shard.entry.bytes}")


def _combine_manifest_descriptions(manifests: list[Manifest | None]) -> Dataset:
    """Return the common description of several data sets, as a Dataset without shards.

    The width is the largest width. The labels are the labels of all data sets. If one data set has
    no manifest, the width and the target kind are None and there are no labels.

    manifests: manifest of each data set, or None.
    """
    known = [m for m in manifests if m is not None]
    if not known or len(known) < len(manifests):
        return Dataset(())

    widths = [m.width for m in known]
    width = None if None in widths else max(w for w in widths if w is not None)
    labels = tuple(dict.fromkeys(label for m in known for label in m.labels))
    return Dataset((), width, known[0].target_kind, labels)


@lru_cache(maxsize=64)
def _read_manifest_cached(path: AnyPath, _size: int, _changed_ns: int) -> Manifest:
    return read_manifest(path)


def are_shards_or_missing(path: Path) -> bool:
    """True if a path names shards, and not a file of another format.

    Shards are a folder, a manifest, or one shard file. A path that does not exist counts as shards.
    """
    archive = Path(str(path).partition("!")[0])
    if not archive.is_file() or path.suffix == ".json":
        return archive == path
    if archive != path or not may_be_shard(path):
        return False

    try:
        shard = open_shard(path)
        schema = shard.schema
    except DamagedShard:
        return True

    if is_shard_layout(schema.names):
        return True
    features = [field for field in schema if field.name not in EXTRA_COLUMNS]
    # A shard is read one row group at a time, which takes much memory if row groups are large.
    # Read a file with large row groups as a table, which takes less memory than as a shard.
    is_small = max(shard.batch_rows, default=0) * len(schema) * 8 <= _EVENT_BYTES
    return is_small and all(is_numeric_type(field.type) for field in features)
