"""Parquet and Arrow files, a batch at a time.

Parquet is read by column, a batch of a row group at a time, Arrow IPC files and streams by batch.
Files in stream_dr's own layout need no reader, because they are shards, unless they are packed.
Memory: one batch, and for Parquet what Arrow buffers of its row group. One huge row group is
decoded in column chunks. Nothing is fetched ahead, since Arrow keeps it until the file is closed.
Page checksums are verified if there are any.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from stream_dr.aliases import FileName
from stream_dr.arrow.messages import check_messages, ipc_stream
from stream_dr.datasets.readers.columns import Roles, blocks_of_batches, feature_columns
from stream_dr.datasets.readers.lines import BLOCK_ROWS, PACKED, open_bytes
from stream_dr.errors import MalformedInput, SourceMissing
from stream_dr.rows.block import Block


def read_parquet(path: FileName, roles: Roles = Roles(), *, rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield blocks of dense float64 rows, or of a table's rows.

    Raises SourceMissing, SchemaMismatch, and MalformedInput that names file and row.
    """
    if not Path(path).is_file():
        raise SourceMissing(f"there is no file {path}; give the path of a file that is there.")
    with _readable(path, "a Parquet file"):
        file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)

    with file:
        names = file.schema_arrow.names
        columns = [name for name in names if name not in roles.drop]
        with _readable(path, "to be read"):
            batches = file.iter_batches(rows, columns=columns)
        yield from blocks_of_batches(path, batches, feature_columns(names, roles), roles, rows)


def read_ipc(path: FileName, roles: Roles = Roles(), *, rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield blocks of an Arrow IPC file or stream.

    It may be packed (gz, bz2, xz). Raises as `read_parquet` does.
    """
    with open_bytes(path) as packed:
        with _readable(path, "an Arrow file"):
            reader = _open_stream(_checked_file(path, packed))
        yield from blocks_of_batches(path, reader, feature_columns(reader.schema.names, roles), roles, rows)


def _checked_file(path: FileName, packed: IO[bytes]) -> IO[bytes]:
    """Return the bytes of a file after checking its messages.

    A packed file is unpacked to a temporary one. Raises MalformedInput.
    """
    if Path(path).suffix.lower() not in PACKED and "!" not in str(path):
        file = pa.memory_map(str(path))
    else:
        with tempfile.NamedTemporaryFile() as copy:
            shutil.copyfileobj(packed, copy)
            copy.flush()
            file = pa.memory_map(copy.name)

    check_messages(ipc_stream(memoryview(file.read_buffer()).cast("B")))
    file.seek(0)
    return file


def _open_stream(file: IO[bytes]) -> pa.RecordBatchReader:
    """Open the stream that a file is, or has inside."""
    # An IPC file is a magic string, padding and a stream.
    if file.read(6) == b"ARROW1":
        file.read(2)
    else:
        file.seek(0)
    return pa.ipc.open_stream(file)


@contextmanager
def _readable(path: FileName, kind: str) -> Iterator[None]:
    """Raise MalformedInput if the with-block raises an error of Arrow.

    kind: ends the message "… is not".
    """
    try:
        yield
    except (pa.ArrowException, OSError) as e:
        raise MalformedInput(f"{path} is not {kind} ({e}).", file=str(path)) from e
