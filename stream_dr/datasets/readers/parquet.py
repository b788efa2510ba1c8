"""Read Parquet files, Arrow IPC files and streams in batches.

Uncompressed files with the columns of a shard can be used as shards directly, without this module.

One batch is in memory at a time. For a Parquet file, Arrow also buffers a part of the row group.
Arrow's pre-buffering is switched off, because it would hold all buffers until the file is closed.
Page checksums of a Parquet file are verified if there are any.
"""

import shutil
import tempfile
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from stream_dr.aliases import FileName
from stream_dr.arrow.categories import declared_categories, encode_categories
from stream_dr.arrow.messages import read_checked_messages, strip_file_header_footer
from stream_dr.datasets.readers.columns import (
    Blocks,
    ColumnRoles,
    feature_columns_unless_shard,
    split_batches_into_blocks,
)
from stream_dr.datasets.readers.lines import (
    BLOCK_ROWS,
    PACKED,
    check_file_exists,
    errors_as_malformed_input,
    open_decompressed,
)

_ERRORS = (pa.ArrowException, OSError)


def read_parquet(path: FileName, roles: ColumnRoles = ColumnRoles(), *, rows_per_block: int = BLOCK_ROWS) -> Blocks:
    """Yield the rows of a Parquet file in blocks.

    The rows are a dense float64 matrix, or a table if `roles.raw` says so. If the file's columns
    are named as in a shard, the file is read as a shard, which may also have sparse rows.

    rows_per_block: maximum number of rows in a block.

    Raises SourceMissing, SchemaMismatch, and MalformedInput, which names the file and the row.
    """
    check_file_exists(path)
    with errors_as_malformed_input(path, "is not a Parquet file", *_ERRORS):
        file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)

    with file:
        schema = file.schema_arrow
        columns = [name for name in schema.names if name not in roles.drop]
        features = feature_columns_unless_shard(schema, roles)
        with errors_as_malformed_input(path, "is not to be read", *_ERRORS):
            batches = file.iter_batches(rows_per_block, columns=columns)
        categories = declared_categories(file).intersection(features or ())
        batches = (encode_categories(batch, categories) for batch in batches)
        yield from split_batches_into_blocks(path, batches, features, roles, rows_per_block)


def read_arrow_ipc(path: FileName, roles: ColumnRoles = ColumnRoles(), *, rows_per_block: int = BLOCK_ROWS) -> Blocks:
    """Yield the rows of an Arrow IPC file in blocks.

    The file has the file format or the stream format of Arrow IPC.

    path: path of the file, which may be compressed (.gz, .bz2, .xz, archive.zip!member).
    rows_per_block: maximum number of rows in a block.

    Raises the errors of `read_parquet`.
    """
    with open_decompressed(path) as packed:
        with errors_as_malformed_input(path, "is not an Arrow file", *_ERRORS):
            reader = _open_batch_stream(_open_checked_ipc_file(path, packed))
        features = feature_columns_unless_shard(reader.schema, roles)
        yield from split_batches_into_blocks(path, reader, features, roles, rows_per_block)


def _open_checked_ipc_file(path: FileName, unpacked_stream: IO[bytes]) -> pa.MemoryMappedFile:
    """Open an Arrow IPC file and check its messages.

    The file has the file format or the stream format of Arrow IPC. Returns the uncompressed file.
    Raises the errors of `read_checked_messages`.

    path: path of the file, which may be compressed.
    unpacked_stream: stream of the file's uncompressed bytes. If the file is compressed, the stream
        is copied to a temporary file.
    """
    if Path(path).suffix.lower() not in PACKED and "!" not in str(path):
        file = pa.memory_map(str(path))
    else:
        with tempfile.NamedTemporaryFile() as copy:
            shutil.copyfileobj(unpacked_stream, copy)
            copy.flush()
            file = pa.memory_map(copy.name)

    read_checked_messages(strip_file_header_footer(memoryview(file.read_buffer()).cast("B")))
    file.seek(0)
    return file


def _open_batch_stream(file: IO[bytes]) -> pa.RecordBatchReader:
    """Open an Arrow IPC file as a stream of batches.

    The file has the file format or the stream format of Arrow IPC.
    """
    # An IPC file is the bytes ARROW1, two bytes of padding, and then an IPC stream.
    if file.read(6) == b"ARROW1":
        file.read(2)
    else:
        file.seek(0)
    return pa.ipc.open_stream(file)
