"""shard_writer: Blocks of any size → shards of even batches and a manifest.

Cost: each row is copied once into the file; memory is one batch (rows_per_batch rows, fewer where they fill half of
128 MiB) plus the Block given.

Why this way: where rows come in (a line, a file, a generator's chunk) must not decide where events lie, so rows are cut
anew: the same rows give the same batches. A shard is renamed into place when it is whole, the manifest is written last.
After an error nothing is left; after a kill a mark is, by which readers refuse the folder, so that some of the rows are
never taken for all of them, and by which the next writer knows that it may remove what is left. Who writes has it locked.
"""

import fcntl
import hashlib
import mmap
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from stream_dr.arrow.codec import arrow_from_block
from stream_dr.disk import TEMPORARY, fsync_directory, is_full, no_room
from stream_dr.errors import OutputExists, SchemaMismatch
from stream_dr.rows.block import Block
from stream_dr.shards.manifest import MANIFEST_NAME, UNFINISHED, Manifest, ShardEntry, write_manifest
from stream_dr.shards.seal import seal_of
from stream_dr.targets.label_codes import Label

WriteProgress = Callable[[int], object]
"""Called after each block with the rows so far."""


def write_shards(
    blocks: Iterable[Block],
    directory: str | os.PathLike[str],
    rows_per_shard: int = 100_000,
    rows_per_batch: int = 1_000,
    *,
    n_features: int | None = None,
    progress: WriteProgress | None = None,
) -> Manifest:
    """Write blocks as shards into a folder; its manifest. Raises what ShardWriter does."""
    with ShardWriter(directory, rows_per_shard, rows_per_batch, n_features) as writer:
        for block in blocks:
            writer.write(block)
            if progress is not None:
                progress(writer.rows)
    return writer.manifest


def check_empty(directory: str | os.PathLike[str]) -> list[Path]:
    """The files that an interrupted write has left there. Raises OutputExists where there are shards."""
    folder = Path(directory)
    mark = folder / UNFINISHED
    left = [path for path in folder.glob("part-*") if path != mark]
    if (folder / MANIFEST_NAME).exists() or (left and not mark.exists()):
        raise OutputExists(f"{directory} holds shards already; give an empty or a new folder.", path=str(directory))
    return left


_BATCH_BYTES = 128 << 20
"""Bytes of waiting rows above which they are written as a batch of fewer rows."""


class ShardWriter:
    """Writes `directory/part-00000.arrow` … and, on a clean end, `directory/manifest.json`. A context manager.

    rows_per_shard, rows_per_batch: rows a file and an event hold (the last of each may hold fewer). n_features: width of
    sparse rows where it is known from the start; else the manifest's width is the largest seen.
    Attributes: rows (given so far), manifest (once it is closed). Raises OutputExists when the directory has shards,
    SchemaMismatch when a later Block has other columns than the first, InsufficientStorage.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        rows_per_shard: int = 100_000,
        rows_per_batch: int = 1_000,
        n_features: int | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.rows_per_shard, self.rows_per_batch = rows_per_shard, rows_per_batch
        self.manifest: Manifest
        self.rows = 0
        self._n_features = n_features
        self._width = n_features or 0
        self._labels: dict[Label, None] = {}
        self._target_kind: str | None = None
        self._schema: pa.Schema = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._entries: list[ShardEntry] = []
        self._batches: list[int] = []
        self._writer: Any = None
        self._mark: IO[bytes] | None = None
        left = check_empty(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        if left:
            self._locked().close()
            for path in left:
                path.unlink()

    def write(self, block: Block) -> None:
        """Add a Block's rows; whole batches go to the file at once."""
        batch = arrow_from_block(block)
        self._note(block, batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        while self._waiting_rows >= self.rows_per_batch:
            self._write_batch(self.rows_per_batch)
            self._waiting_bytes = sum(part.nbytes for part in self._waiting)
        # Long texts make a batch of fewer rows.
        if self._waiting_bytes > _BATCH_BYTES:
            self._write_batch(self._waiting_rows)
            self._waiting_bytes = 0

    def close(self) -> Manifest:
        """Write what is left and the manifest; what is in the directory afterwards."""
        if self._waiting_rows:
            self._write_batch(self._waiting_rows)
        self._end_shard()
        about = (self._width or None, self._target_kind, tuple(self._labels))
        self.manifest = Manifest(self.rows, *about, tuple(self._entries))
        write_manifest(self.directory, self.manifest)
        self._end()
        return self.manifest

    def _locked(self) -> IO[bytes]:
        """The mark, locked until it is closed. Raises OutputExists where another process writes."""
        mark = (self.directory / UNFINISHED).open("ab")
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            mark.close()
            raise OutputExists(
                f"{self.directory} is being written to by another process; give another folder.",
                path=str(self.directory),
            ) from e
        return mark

    def _end(self) -> None:
        if self._mark is not None:
            (self.directory / UNFINISHED).unlink(missing_ok=True)
            self._mark.close()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; after an error all shards are removed and no manifest is written."""
        if kind is None:
            try:
                self.close()
            except BaseException:
                self._undo()
                raise
        else:
            self._undo()

    def _undo(self) -> None:
        """Leave nothing, unless all of it is there."""
        if self._writer is not None:
            with suppress(Exception):  # of a file that goes anyway
                self._writer.close()
            self._sink.close()
        if self._mark is not None and not (self.directory / MANIFEST_NAME).exists():
            for path in self.directory.glob("part-*"):
                path.unlink(missing_ok=True)
        self._end()

    def _note(self, block: Block, batch: pa.RecordBatch) -> None:
        """Remember width and labels; refuse other columns than the first Block's."""
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

    def _write_batch(self, rows: int) -> None:
        """Write the first `rows` waiting rows as one batch."""
        table = pa.Table.from_batches([b.replace_schema_metadata(None) for b in self._waiting])
        empty = table.slice(0, 0)  # two parts make pyarrow copy: a mere slice is written with some of what follows it
        head, rest = pa.concat_tables([table.slice(0, rows), empty]).combine_chunks(), table.slice(rows)
        self._waiting = [b for b in rest.to_batches() if b.num_rows]
        self._waiting_rows -= rows
        try:
            if self._writer is None:
                self._begin_shard()
            self._writer.write_table(head.replace_schema_metadata(self._schema.metadata))
        except OSError as e:
            if is_full(e):
                raise no_room(self._temporary, str(e)) from e
            raise
        self._batches.append(rows)
        if sum(self._batches) >= self.rows_per_shard:
            self._end_shard()

    def _begin_shard(self) -> None:
        self._mark = self._mark or self._locked()
        self._path = self.directory / f"part-{len(self._entries):05d}.arrow"
        self._temporary = self._path.with_name(self._path.name + TEMPORARY)
        self._sink = pa.OSFile(str(self._temporary), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)

    def _end_shard(self) -> None:
        """Close the file, make it durable, give it its name."""
        if self._writer is None:
            return
        self._writer.close()
        self._sink.close()
        with open(self._temporary, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as written:
            digest = hashlib.sha256(written).hexdigest()
            known = (len(written), digest, seal_of(written, digest))
            os.fsync(file.fileno())
        self._temporary.rename(self._path)
        fsync_directory(self.directory)
        self._entries.append(ShardEntry(self._path.name, sum(self._batches), tuple(self._batches), *known))
        self._writer, self._batches = None, []
