"""csv: delimited text by column, through Arrow's incremental reader; unpacks gz, bz2, xz and zip members.

Features are read as float64; the label column's type is decided by the first piece of the file (whole numbers, words or
booleans). Memory: one piece (1 MiB by default) and its parsed columns. Time: Arrow's.

Why this way: Arrow guesses types from the first piece and fails where a later one disagrees (0, then 0.5); so the file
is opened twice, and the second time every feature is stated to be a float.
"""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from stream_dr.block import LARGEST, Block, check_finite
from stream_dr.datasets.readers.columns import Roles, block_of
from stream_dr.datasets.readers.lines import BLOCK_ROWS, open_bytes, read_lines
from stream_dr.disk import FileName
from stream_dr.errors import MalformedInput, NotFinite, SchemaMismatch, StreamDRError

PIECE = 1 << 20
"""Bytes parsed at once."""

_WORDS = {pa.float64(): "number (finite, at most 1e100 in size); name the column as label or drop it"}


def read_csv(
    path: FileName,
    roles: Roles = Roles(),
    *,
    delimiter: str = ",",
    header: bool = True,
    rows: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Blocks of dense float64 rows, names kept. Without a header, columns are called f0, f1 …

    Raises SourceMissing, SchemaMismatch (a named column is not there), MalformedInput naming file and line.
    """
    parse = pacsv.ParseOptions(delimiter=delimiter)
    read = pacsv.ReadOptions(block_size=PIECE, autogenerate_column_names=not header)
    columns, kinds = _schema(path, read, parse)
    features = roles.features(columns)
    types = {name: pa.float64() for name in features}
    types.update({name: pa.string() for name in (roles.id, roles.label) if name is not None})
    if roles.label is not None and not pa.types.is_floating(kinds[roles.label]):
        types[roles.label] = kinds[roles.label]
    convert = pacsv.ConvertOptions(column_types=types, include_columns=[c for c in columns if c not in roles.drop])
    line = 1 + int(header)
    with _opened(path, read, parse, convert, types) as reader:
        for batch in reader:
            for at in range(0, batch.num_rows, rows):
                try:
                    yield _block(batch.slice(at, rows), features, roles, str(path), line + at)
                except MalformedInput:  # blank lines are no rows: ask the lines themselves
                    _name_the_line(path, delimiter, dict.fromkeys(features, pa.float64()), header)
                    raise
            line += batch.num_rows


def _schema(path: FileName, read: Any, parse: Any) -> tuple[list[str], dict[str, pa.DataType]]:
    """Column names and the types the first piece suggests."""
    with _opened(path, read, parse, None, {}) as reader:
        schema = reader.schema
    if len(set(schema.names)) < len(schema.names):
        raise SchemaMismatch(f"{path}: a column name stands twice; rename it.")
    kinds = {name: schema.field(name).type for name in schema.names}
    return schema.names, {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in kinds.items()}


@contextmanager
def _opened(path: FileName, read: Any, parse: Any, convert: Any, types: Any) -> Iterator[pacsv.CSVStreamingReader]:
    """The file's batches; what Arrow does not parse is told as the line it stands in."""
    with open_bytes(path) as file:
        try:
            with pacsv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert) as reader:
                yield reader
        except (pa.ArrowInvalid, pa.ArrowKeyError) as e:
            _name_the_line(path, parse.delimiter, types, not read.autogenerate_column_names)
            raise MalformedInput(f"{path}: {e}", file=str(path)) from e


def _name_the_line(path: FileName, delimiter: str, types: dict[str, pa.DataType], header: bool) -> None:
    """Raise MalformedInput for the first line that does not parse; quoted line breaks are not followed."""
    names: list[str] = []
    for lines in read_lines(path, comment=b""):
        for i in range(lines.rows):
            fields = next(csv.reader([lines.text(i)], delimiter=delimiter))
            if not names:
                names = fields if header else [f"f{j}" for j in range(len(fields))]
                if header:
                    continue
            if len(fields) != len(names):
                lines.fail(i, f"{len(fields)} fields where {len(names)} are needed.")
            for name, field in zip(names, fields, strict=True):
                if name in types and types[name] == pa.float64() and not field.strip():
                    lines.fail(i, f"column {name!r} has no value; fill it or leave the row out.")
                if name in types and not _parses(field, types[name]):
                    lines.fail(i, f"{field!r} in column {name!r} is no {_WORDS.get(types[name], types[name])}.")


def _parses(field: str, kind: pa.DataType) -> bool:
    try:
        value = pa.array([field.strip()]).cast(kind)[0].as_py()
    except pa.ArrowInvalid:
        return False
    return not isinstance(value, float) or abs(value) <= LARGEST


def _block(batch: pa.RecordBatch, features: list[str], roles: Roles, path: str, line: int) -> Block:
    try:
        block = block_of(batch, features, roles)
        check_finite(block.X)
    except (SchemaMismatch, NotFinite) as e:
        where = f"{path}, line {line + int(e.details['row'])}" if "row" in e.details else path
        raise MalformedInput(f"{where}: {e}", file=path) from e
    except StreamDRError as e:
        raise MalformedInput(f"{path}, lines {line} to {line + batch.num_rows - 1}: {e}", file=path) from e
    return block
