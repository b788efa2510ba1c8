"""Read Parquet files, and Arrow IPC files and streams, batch by batch.

Files with the columns of a shard can be used as shards directly, unless they are packed. Then they
are read here.

Memory: one batch, and for Parquet the part of its row group that Arrow buffers. Arrow's pre-buffering
is off, because Arrow would hold the buffers until the file is closed. If a Parquet file has page
checksums, they are verified.
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
    """Yield the rows of a Parquet file in blocks.

    Rows are dense float64, or rows of a table.

    rows: maximum number of rows in a block.

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
    """Yield the rows of an Arrow IPC file or stream in blocks.

    path: path of the file, which may be packed (gz, bz2, xz, zip members).
    rows: maximum number of rows in a block.

    Raises the errors of `read_parquet`.
    """
    with open_bytes(path) as packed:
        with _readable(path, "an Arrow file"):
            reader = _open_stream(_checked_file(path, packed))
        yield from blocks_of_batches(path, reader, feature_columns(reader.schema.names, roles), roles, rows)


def _checked_file(path: FileName, packed: IO[bytes]) -> IO[bytes]:
    """Open an Arrow IPC file or stream and check its messages.

    packed: stream of the unpacked bytes. A packed file is copied from it to a temporary file.

    Returns the unpacked file. Raises the errors of `check_messages`.
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
    """Open the Arrow stream in an IPC file or stream."""
    # An IPC file begins with ARROW1 and two bytes of padding. A stream follows.
    if file.read(6) == b"ARROW1":
        file.read(2)
    else:
        file.seek(0)
    return pa.ipc.open_stream(file)


@contextmanager
def _readable(path: FileName, kind: str) -> Iterator[None]:
    """Raise MalformedInput if the with-block raises an error of Arrow.

    kind: end of the error message "PATH is not …".
    """
    try:
        yield
    except (pa.ArrowException, OSError) as e:
        raise MalformedInput(f"{path} is not {kind} ({e}).", file=str(path)) from e
