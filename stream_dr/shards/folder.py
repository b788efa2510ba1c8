"""Folder of shards: the manifest, and the writer.

The manifest is a JSON file that describes the shards:

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

Rows to write may come in blocks of any size, for example one line or a whole file. The writer
divides the rows into batches of equal size. So the batches do not depend on the sizes of the
blocks.

A shard gets its final name when it is complete, and the manifest is written last. After an error
no file remains. After a kill, a marker file remains in the folder. Readers refuse a folder with a
marker file, so that incomplete shards are never used. The marker file shows the next writer that
the files in the folder may be removed. A writer locks the marker file.

Cost: each row is copied into the file one time. Memory is the Block that is written, plus one
batch: rows_per_batch rows, or fewer if they fill half of 128 MiB.
"""

import hashlib
import json
import mmap
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import xxhash

from stream_dr.batch.arrow import arrow_from_block
from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label
from stream_dr.disk import TEMPORARY, cannot_write_error, fsync_directory, is_disk_unwritable, write_atomically
from stream_dr.errors import DamagedFile, ForeignFile, OutputExists, SchemaMismatch, SourceMissing, UnknownFormat
from stream_dr.shards.file import AnyPath


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
        Fast checksum in hex, as described above. "" if there is none.
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


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

WriteProgress = Callable[[int], object]
"""Callback that receives the number of rows so far, after each block."""


def write_shards(
    blocks: Iterable[Block],
    directory: str | os.PathLike[str],
    rows_per_shard: int = 100_000,
    rows_per_batch: int = 1_000,
    *,
    n_features: int | None = None,
    progress: WriteProgress | None = None,
) -> Manifest:
    """Write blocks as shards into a folder.

    Returns the manifest. Raises the errors of ShardWriter.

    Parameters
    ----------
    blocks : iterable of Block
        The rows.
    directory, rows_per_shard, rows_per_batch, n_features
        Parameters of ShardWriter.
    progress : callable or None
        Function called after each block with the number of rows written so far.
    """
    with ShardWriter(directory, rows_per_shard, rows_per_batch, n_features) as writer:
        for block in blocks:
            writer.write(block)
            if progress is not None:
                progress(writer.rows)
    return writer.manifest


def find_leftovers(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the files that an interrupted write has left.

    Raises OutputExists if the folder has complete shards.
    """
    folder = Path(directory)
    mark = folder / UNFINISHED
    leftovers = [path for path in folder.glob("part-*") if path != mark]
    if (folder / MANIFEST_NAME).exists() or (leftovers and not mark.exists()):
        raise OutputExists(f"{directory} holds shards already; give an empty or a new folder.", path=str(directory))
    return leftovers


_BATCH_BYTES = 128 << 20
"""Number of bytes of rows in memory above which the writer writes them as a batch.

The batch then has fewer rows than `rows_per_batch`.
"""


class ShardWriter:
    """Context manager that writes shards and a manifest.

    The shards are `part-00000.arrow` and so on. `manifest.json` is written at the end, if there
    was no error.

    Raises OutputExists if the folder has shards, SchemaMismatch if a Block has other columns than
    the first, and InsufficientStorage.

    Parameters
    ----------
    directory : path
        Folder, which is created if needed.
    rows_per_shard : int
        Number of rows of a file. The last file may have fewer.
    rows_per_batch : int
        Number of rows of a batch, which a replay logs as one event. The last batch may have fewer.
    n_features : int or None
        Number of columns of sparse rows. If None, the largest number of columns of a Block.

    Attributes
    ----------
    rows : int
        Number of rows so far.
    manifest : Manifest
        Available after `close`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        rows_per_shard: int = 100_000,
        rows_per_batch: int = 1_000,
        n_features: int | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.rows_per_shard = rows_per_shard
        self.rows_per_batch = rows_per_batch
        self.manifest: Manifest
        self.rows = 0

        self._n_features = n_features
        self._width = n_features or 0
        self._labels: dict[Label, None] = {}
        self._target_kind: str | None = None
        self._schema: pa.Schema = None

        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

        self._entries: list[ShardEntry] = []
        self._batch_rows: list[int] = []
        self._writer: pa.RecordBatchFileWriter | None = None
        self._mark: IO[bytes] | None = None

        leftovers = find_leftovers(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        if leftovers:
            self._lock_marker_file().close()
            for path in leftovers:
                path.unlink()

    def write(self, block: Block) -> None:
        """Add the rows of a Block.

        Complete batches are written immediately.
        """
        batch = arrow_from_block(block)
        self._check_schema_add_labels(block, batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows

        while self._waiting_rows >= self.rows_per_batch:
            self._write_waiting_rows(self.rows_per_batch)
            self._waiting_bytes = sum(part.nbytes for part in self._waiting)

        # Rows with long texts reach the limit in bytes before the limit in rows.
        if self._waiting_bytes > _BATCH_BYTES:
            self._write_waiting_rows(self._waiting_rows)
            self._waiting_bytes = 0

    def close(self) -> Manifest:
        """Write the remaining rows and the manifest.

        Returns the manifest.
        """
        if self._waiting_rows:
            self._write_waiting_rows(self._waiting_rows)
        self._finish_shard_if_open()

        labels = tuple(self._labels)
        entries = tuple(self._entries)
        self.manifest = Manifest(self.rows, self._width or None, self._target_kind, labels, entries)
        write_manifest(self.directory, self.manifest)
        self._remove_marker_file()
        return self.manifest

    def _lock_marker_file(self) -> IO[bytes]:
        """Open and lock the marker file of the folder.

        Raises OutputExists if another process writes into the folder. On Windows the file is closed
        and not locked, because Windows does not remove open files.
        """
        mark = (self.directory / UNFINISHED).open("ab")
        if fcntl is None:
            mark.close()
            return mark

        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            mark.close()
            raise OutputExists(
                f"{self.directory} is being written to by another process; give another folder.",
                path=str(self.directory),
            ) from e
        return mark

    def _remove_marker_file(self) -> None:
        """Remove and unlock the marker file of the folder."""
        if self._mark is not None:
            (self.directory / UNFINISHED).unlink(missing_ok=True)
            self._mark.close()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the writer.

        After an error, all shards are removed and no manifest is written.
        """
        if kind is None:
            try:
                self.close()
            except BaseException:
                self._remove_shards_unless_manifest()
                raise
        else:
            self._remove_shards_unless_manifest()

    def _remove_shards_unless_manifest(self) -> None:
        """Remove all shards, unless the folder has a manifest."""
        if self._writer is not None:
            # The file is removed next, so an error of closing it does not matter.
            with suppress(Exception):
                self._writer.close()
            self._sink.close()

        if self._mark is not None and not (self.directory / MANIFEST_NAME).exists():
            for path in self.directory.glob("part-*"):
                path.unlink(missing_ok=True)
        self._remove_marker_file()

    def _check_schema_add_labels(self, block: Block, batch: pa.RecordBatch) -> None:
        """Update the schema, the width and the labels.

        The first Block sets the schema. Raises SchemaMismatch if a later Block has other columns.

        batch: the rows of the Block as an Arrow batch.
        """
        if self._schema is None:
            metadata = {"n_features": str(self._n_features)} if self._n_features and block.sparse else None
            self._schema = batch.schema.with_metadata(metadata)

        if not batch.schema.equals(self._schema):
            odd = next((f.name for f in batch.schema if f not in self._schema), "")
            raise SchemaMismatch(
                f"rows have the columns {batch.schema.names} (odd one: {odd}); the first had {self._schema.names}, "
                "of the same types. Write them to another folder.",
                column=odd,
            )

        self._width = max(self._width, block.features)
        if block.y is not None:
            self._target_kind = block.y.kind
            self._labels.update(dict.fromkeys(block.y.labels))

    def _write_waiting_rows(self, n_rows: int) -> None:
        """Write rows that wait in memory as one batch.

        n_rows: number of rows to write. The rows that came first are written.
        """
        table = pa.Table.from_batches([b.replace_schema_metadata(None) for b in self._waiting])
        # Arrow would write more bytes than those of the slice, so the slice is copied.
        # `combine_chunks` copies only a table of several parts, so an empty part is added.
        empty = table.slice(0, 0)
        head = pa.concat_tables([table.slice(0, n_rows), empty]).combine_chunks()
        rest = table.slice(n_rows)
        self._waiting = [b for b in rest.to_batches() if b.num_rows]
        self._waiting_rows -= n_rows

        # Write the batch into the open shard, or into a new shard if none is open.
        try:
            if self._writer is None:
                self._writer = self._open_next_shard()
            self._writer.write_table(head.replace_schema_metadata(self._schema.metadata))
        except OSError as e:
            if is_disk_unwritable(e):
                raise cannot_write_error(self._temporary, str(e)) from e
            raise

        self._batch_rows.append(n_rows)
        if sum(self._batch_rows) >= self.rows_per_shard:
            self._finish_shard_if_open()

    def _open_next_shard(self) -> pa.RecordBatchFileWriter:
        """Open the next shard's file, under a temporary name."""
        self._mark = self._mark or self._lock_marker_file()
        self._path = self.directory / f"part-{len(self._entries):05d}.arrow"
        self._temporary = self._path.with_name(self._path.name + TEMPORARY)
        self._sink = pa.OSFile(str(self._temporary), "wb")
        return pa.ipc.new_file(self._sink, self._schema)

    def _finish_shard_if_open(self) -> None:
        """Complete the open shard, if there is one.

        The shard's file is closed, made durable, and renamed to its final name.
        """
        if self._writer is None:
            return
        self._writer.close()
        self._sink.close()

        with open(self._temporary, "r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as written:
            size = len(written)
            digest = hashlib.sha256(written).hexdigest()
            seal = seal_checksum(written, digest)
            os.fsync(file.fileno())
        self._temporary.rename(self._path)
        fsync_directory(self.directory)

        batch_rows = tuple(self._batch_rows)
        self._entries.append(ShardEntry(self._path.name, sum(batch_rows), batch_rows, size, digest, seal))
        self._writer = None
        self._batch_rows = []
