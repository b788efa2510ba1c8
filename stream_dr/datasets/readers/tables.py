"""Read typed tables: Parquet, Arrow IPC, SQLite and DuckDB.

Uncompressed files of Parquet and Arrow IPC with the columns of a shard can be used as shards
directly, without this module.

One batch is in memory at a time. For a Parquet file, Arrow also buffers a part of the row group.
Arrow's pre-buffering is switched off, because it would hold all buffers until the file is closed.
Page checksums of a Parquet file are verified if there are any.

Tables and views of SQLite and DuckDB files can be read. The path of a table is `FILE!TABLE`, or
`FILE` if the file has only one table. Files are opened read-only.

DuckDB returns Arrow batches with typed columns. It is installed with the extra [duckdb]. In SQLite
a column may have values of several types, so the first rows decide the type of each column.
Numeric features are read as floats.

About 1,000 rows are in memory at a time, in addition to the memory that DuckDB takes.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import IO
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from stream_dr.aliases import FileName
from stream_dr.batch.arrow import declared_categories, encode_categories
from stream_dr.batch.messages import read_checked_messages, strip_file_header_footer
from stream_dr.datasets.readers.columns import (
    Blocks,
    ColumnRoles,
    choose_column_types,
    feature_columns_unless_shard,
    must_read_as_table,
    split_batches_into_blocks,
)
from stream_dr.datasets.readers.lines import (
    BLOCK_ROWS,
    LONGEST,
    PACKED,
    check_file_exists,
    errors_as_malformed_input,
    open_decompressed,
)
from stream_dr.errors import InvalidParameter, MalformedInput, SourceMissing

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
        # `features` is None if the columns are those of a shard, such as `indices` and `values`.
        features = feature_columns_unless_shard(schema, roles)
        with errors_as_malformed_input(path, "is not to be read", *_ERRORS):
            batches = file.iter_batches(rows_per_block, columns=columns)
        # The file's metadata say which columns were dictionaries (categories) in Arrow.
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
            reader = _open_checked_ipc_file(path, packed)
        features = feature_columns_unless_shard(reader.schema, roles)
        yield from split_batches_into_blocks(path, reader, features, roles, rows_per_block)


def _open_checked_ipc_file(path: FileName, unpacked_stream: IO[bytes]) -> pa.RecordBatchReader:
    """Open an Arrow IPC file as a stream of batches, and check its messages.

    The file has the file format or the stream format of Arrow IPC. Raises the errors of
    `read_checked_messages`.

    path: path of the file, which may be compressed.
    unpacked_stream: stream of the file's uncompressed bytes. If the file is compressed, the stream
        is copied to a temporary file.
    """
    # Map the file into memory, or an unpacked copy of it. ARCHIVE!FILE names a file in an archive.
    # The map stays valid after the copy is deleted.
    if Path(path).suffix.lower() not in PACKED and "!" not in str(path):
        file = pa.memory_map(str(path))
    else:
        with tempfile.NamedTemporaryFile() as copy:
            shutil.copyfileobj(unpacked_stream, copy)
            copy.flush()
            file = pa.memory_map(copy.name)

    # An IPC file is a header, an IPC stream, and a footer.
    stream = strip_file_header_footer(memoryview(file.read_buffer()).cast("B"))
    read_checked_messages(stream)
    return pa.ipc.open_stream(stream)


_SqliteRow = tuple[int | float | str | bytes | None, ...]


def read_sqlite(path: FileName, roles: ColumnRoles = ColumnRoles(), *, rows_per_block: int = BLOCK_ROWS) -> Blocks:
    """Yield the rows of an SQLite table in blocks.

    The table may be a view.

    path: FILE!TABLE, or FILE if the file has only one table.
    rows_per_block: maximum number of rows in a block.

    Raises SourceMissing if the file or the table does not exist. Raises SchemaMismatch. Raises
    MalformedInput, which names the file.
    """
    file, table = _split_table_name(path)
    with (
        errors_as_malformed_input(path, "cannot be read", sqlite3.Error),
        closing(sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True)) as database,
    ):
        # The file may not be trusted, so its views must not call functions with side effects.
        database.execute("PRAGMA trusted_schema = OFF")
        # Tables that SQLite has for itself have names such as sqlite_sequence.
        tables = database.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
        name = _choose_table_to_read(path, table, [name for (name,) in tables if not name.startswith("sqlite_")])
        cursor = database.execute(f"SELECT * FROM {_quote_identifier(name)}")
        yield from _read_cursor_in_blocks(path, cursor, roles, rows_per_block)


def _read_cursor_in_blocks(path: FileName, cursor: sqlite3.Cursor, roles: ColumnRoles, rows_per_block: int) -> Blocks:
    """Yield the rows of an SQLite query in blocks.

    path: path of the table, for error messages.
    cursor: cursor of the executed query.
    rows_per_block: maximum number of rows in a block.
    """
    # Choose the features by the names of the columns. Their types are not known yet. The result is
    # None if the columns are those of a shard, such as `indices` and `values`.
    names = [column[0] for column in cursor.description]
    untyped = pa.schema(dict.fromkeys(names, pa.null()))
    features = feature_columns_unless_shard(untyped, roles)

    # The first rows decide the type of each column, and whether the rows are a table.
    pieces = _fetch_row_groups(cursor, rows_per_block)
    if (piece := next(pieces, None)) is None:
        return

    first = _convert_rows_to_batch(path, names, piece, {})
    roles = roles._replace(raw=must_read_as_table(first, features, roles))
    types = choose_column_types(first, features or (), roles)
    types = {name: types.get(name, first.schema.field(name).type) for name in names}

    # The first rows (`piece`) are converted again, now with the chosen types.
    batches = (_convert_rows_to_batch(path, names, piece, types) for piece in chain([piece], pieces))
    yield from split_batches_into_blocks(path, batches, features, roles, rows_per_block)


def _fetch_row_groups(cursor: sqlite3.Cursor, max_rows: int) -> Iterator[list[_SqliteRow]]:
    """Yield the rows of a query in lists.

    max_rows: maximum number of rows in a list. A list has fewer rows if the rows are long.
    """
    # `size` is the number of characters and bytes in the values of `piece`.
    piece: list[_SqliteRow] = []
    size = 0
    for row in cursor:
        piece.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(piece) == max_rows or size > LONGEST:
            yield piece
            piece = []
            size = 0
    if piece:
        yield piece


def _convert_rows_to_batch(
    path: FileName, column_names: Sequence[str], rows: list[_SqliteRow], type_by_column: dict[str, pa.DataType]
) -> pa.RecordBatch:
    """Convert rows of SQLite to an Arrow batch.

    path: path of the table, for error messages.
    column_names: names of the columns.
    type_by_column: Arrow types by name of the column. The type of any other column is inferred.

    Raises MalformedInput if a column cannot be converted to its type.
    """
    # `zip(*rows)` turns the rows into columns.
    arrays = []
    for name, values in zip(column_names, zip(*rows, strict=True), strict=True):
        try:
            inferred = pa.array(values)
            arrays.append(inferred.cast(type_by_column.get(name, inferred.type)))
        except pa.ArrowException as e:
            message = (
                f"{path}, column {name!r}: {e}; its first rows are {type_by_column.get(name, 'of several types')}. "
                f"Say --as {name}=category (or number), or --drop {name}."
            )
            raise MalformedInput(message, file=str(path), column=name) from e
    return pa.record_batch(arrays, names=list(column_names))


def read_duckdb(path: FileName, roles: ColumnRoles = ColumnRoles(), *, rows_per_block: int = BLOCK_ROWS) -> Blocks:
    """Yield the rows of a DuckDB table in blocks.

    The table may be a view.

    path: FILE!TABLE, or FILE if the file has only one table.
    rows_per_block: maximum number of rows in a block.

    Raises InvalidParameter if duckdb is not installed, and the errors of `read_sqlite`.
    """
    try:
        import duckdb
    except ImportError as e:
        message = f"{path} is read by duckdb, which is not installed: pip install 'stream-dr[duckdb]'."
        raise InvalidParameter(message) from e

    file, table = _split_table_name(path)
    with (
        errors_as_malformed_input(path, "cannot be read", duckdb.Error),
        duckdb.connect(file, read_only=True, config={"enable_external_access": False}) as database,
    ):
        # External access is off, so that a view in the file cannot read other files.
        listed = database.sql("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        # `tables` has the schema and the name of each table, by the name that users write.
        tables = {}
        for schema, name in listed:
            shown = name if schema == "main" else f"{schema}.{name}"
            tables[shown] = (schema, name)
        schema, name = tables[_choose_table_to_read(path, table, list(tables))]
        relation = database.sql(f"SELECT * FROM {_quote_identifier(schema)}.{_quote_identifier(name)}")

        batches = relation.to_arrow_reader(rows_per_block)
        features = feature_columns_unless_shard(batches.schema, roles)
        yield from split_batches_into_blocks(path, batches, features, roles, rows_per_block)


def _split_table_name(path: FileName) -> tuple[str, str]:
    """Split a path FILE!TABLE into FILE and TABLE, which may be ""."""
    check_file_exists(path)
    file, _, table = str(path).partition("!")
    return file, table


def _choose_table_to_read(path: FileName, requested_table: str, existing_tables: list[str]) -> str:
    """Return `requested_table`, or the only table of the database if it is ""."""
    # Raises SourceMissing if there is no such table, or no only one.
    if not requested_table and len(existing_tables) == 1:
        return existing_tables[0]
    if requested_table not in existing_tables:
        raise SourceMissing(
            f"{path} names no table of the file; write {str(path).partition('!')[0]}!TABLE with one of "
            f"{existing_tables[:10]}.",
            file=str(path),
        )
    return requested_table


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
