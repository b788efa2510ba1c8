"""JSON lines: read a file with one JSON object in each line, with Arrow's incremental reader.

Files may be packed (gz, bz2, xz, zip members). An object has a row's values by column name. A
feature is a number or a list of numbers, or a value of a table's column. A missing key is a missing
value. Rows may also have the layout of a shard, such as
`{"indices": [3, 17], "values": [0.5, 1.2], "label": "a"}`.

Arrow reads the file in pieces of 1 MiB. The first piece decides the type of each column, except
that features of numbers are floats. Memory: one piece and its parsed columns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pajson

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.arrow_stream import open_for_arrow
from stream_dr.datasets.readers.columns import Roles, blocks_of, feature_columns, needs_raw, type_of
from stream_dr.datasets.readers.lines import BLOCK_ROWS, Lines, read_lines
from stream_dr.errors import MalformedInput, SchemaMismatch, StreamDRError
from stream_dr.rows.block import LARGEST, Block

PIECE = 1 << 20
"""Number of bytes that are parsed at a time."""

_MOST_CELLS = 1 << 24
"""Maximum of (number of rows) × (number of different keys) in the first PIECE bytes.

Arrow allocates a cell for each row and key.
"""

_JSON_TYPES = {int: "number", float: "number", str: "string", bool: "boolean", list: "list", dict: "object"}
"""Name of the JSON type of a parsed value, by Python type, for error messages."""

_SECONDS_A_DAY = 86_400


def read_jsonl(path: FileName, roles: Roles = Roles(), *, rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield the rows of a file of JSON lines in blocks.

    rows: maximum number of rows in a block.

    Raises SourceMissing, SchemaMismatch if a column with a role is in none of the first lines, and
    MalformedInput that names file and line.
    """
    _check_keys(path)
    with _open_reader(path, None, {}) as reader:
        schema = reader.schema
        first = next(reader, None) or pa.RecordBatch.from_pylist([], schema=schema)

    features = feature_columns(schema.names, roles)
    floats = {name: _float_type(schema.field(name).type) for name in (*(features or ()), *roles.number_columns())}
    day_columns: list[str] = []
    if needs_raw(first, features, roles):
        roles = roles._replace(raw=True)
        floats = {}
        kinds = dict(roles.kinds)
        day_columns = [name for name in features or () if name not in kinds and _are_days(first.column(name))]
        table = {name: type_of(first.column(name), kinds.get(name)) for name in features or ()}
        schema = pa.schema([pa.field(f.name, table.get(f.name, f.type)) for f in schema])
    schema = pa.schema([pa.field(f.name, floats.get(f.name, f.type)) for f in schema])

    row = 0

    def fail(error: StreamDRError, rows_before: int) -> NoReturn:
        number = row + rows_before + int(error.details.get("row", 0))
        _raise_for_first_bad_line(path, floats)
        raise MalformedInput(f"{path}, row {number}: {error}", file=str(path), row=number) from error

    with _open_reader(path, schema, floats) as reader:
        for batch in reader:
            for name in day_columns:
                batch = _midnights_as_days(batch, name, fail)
            yield from blocks_of(batch, features, roles, rows, fail)
            row += batch.num_rows


def _are_days(column: pa.Array) -> bool:
    """Return True if all values of a column are times at midnight.

    Arrow reads days as such times.
    """
    return (
        pa.types.is_timestamp(column.type) and len(column) > column.null_count and not len(_rows_after_midnight(column))
    )


def _rows_after_midnight(column: pa.Array) -> np.ndarray:
    """Return the numbers of the rows whose time is not midnight.

    column: timestamps in seconds.
    """
    seconds = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.flatnonzero(seconds % _SECONDS_A_DAY)


def _midnights_as_days(
    batch: pa.RecordBatch, name: str, fail: Callable[[StreamDRError, int], NoReturn]
) -> pa.RecordBatch:
    """Return the batch with a column of times converted to days.

    Arrow reads a day as a time at midnight.

    name: name of the column.
    fail: function that raises the given error with its line. It is called if a time is not
        midnight.
    """
    column = batch.column(name)
    if len(others := _rows_after_midnight(column)):
        row = int(others[0])
        fail(
            SchemaMismatch(
                f"column {name!r} is {column[row]}, and the first rows have days without a time. Say --as {name}=time.",
                column=name,
            ),
            row,
        )
    return batch.set_column(batch.schema.get_field_index(name), name, column.cast(pa.date32()))


def _check_keys(path: FileName) -> None:
    """Raise MalformedInput if the first lines have too many different keys.

    Arrow would allocate a cell for each row and key, see _MOST_CELLS.
    """
    rows = 0
    size = 0
    names: set[str] = set()
    for lines in read_lines(path, comment=b""):
        size += len(lines.data)
        for i in range(lines.rows):
            rows += _add_keys(_parse_line(lines, i), "", names)
            if rows * len(names) > _MOST_CELLS:
                lines.fail(i, f"{rows} rows so far have {len(names)} keys; give rows the same ones.")
        if size > PIECE:
            return


def _parse_line(lines: Lines, i: int) -> object:
    """Return the parsed JSON value of line `i` of a group of lines.

    Raises MalformedInput.
    """
    try:
        return orjson.loads(lines.text(i))
    except orjson.JSONDecodeError as e:
        lines.fail(i, f"no JSON ({e}).")


def _add_keys(value: object, path: str, names: set[str]) -> int:
    """Add the keys of an object and of all nested objects to `names`.

    path: path of the object within its line. A key is added as "path.key".

    Returns the number of objects.
    """
    if isinstance(value, list):
        return sum(_add_keys(inner, path, names) for inner in value if isinstance(inner, dict | list))
    if not isinstance(value, dict):
        return 0
    names.update(f"{path}.{name}" for name in value)
    return 1 + sum(_add_keys(v, f"{path}.{name}", names) for name, v in value.items() if isinstance(v, dict | list))


def _float_type(inferred: pa.DataType) -> pa.DataType:
    """Return the Arrow type as which a numeric feature is read.

    Integers become floats.

    inferred: type that Arrow infers from the first values.
    """
    if pa.types.is_list(inferred):
        return pa.list_(_float_type(inferred.value_type))
    return pa.float64() if pa.types.is_integer(inferred) or pa.types.is_null(inferred) else inferred


@contextmanager
def _open_reader(
    path: FileName, schema: pa.Schema | None, floats: dict[str, pa.DataType]
) -> Iterator[pa.RecordBatchReader]:
    """Open a file with Arrow's JSON reader.

    schema: types of the columns. None to infer them from the first lines.
    floats: types of the columns that must be numbers. They are needed to find the line of an error.

    Raises MalformedInput if opening the file or the with-block raises an error of reading.
    """
    read = pajson.ReadOptions(block_size=PIECE)
    parse = pajson.ParseOptions(explicit_schema=schema, newlines_in_values=False)
    try:
        with open_for_arrow(path) as stream, pajson.open_json(stream, read, parse) as reader:
            yield reader
    except (pa.ArrowException, OSError, EOFError) as e:
        _raise_for_first_bad_line(path, floats)
        raise MalformedInput(f"{path}: {e}", file=str(path)) from e


def _raise_for_first_bad_line(path: FileName, floats: dict[str, pa.DataType]) -> None:
    """Raise MalformedInput for the first line that cannot be parsed.

    Such a line

    - is not a JSON object,
    - has a value whose type differs from that of earlier lines,
    - or has no number in a column of numbers.

    floats: types of the columns that must be numbers.
    """
    json_types: dict[str, str] = {}
    for lines in read_lines(path, comment=b""):
        for i in range(lines.rows):
            parsed = _parse_line(lines, i)
            if not isinstance(parsed, dict):
                lines.fail(i, "no JSON object; a line is an object of one row's columns.")

            for name, value in parsed.items():
                json_type = _JSON_TYPES.get(type(value), "null")
                if json_type != "null" and json_types.setdefault(name, json_type) != json_type:
                    was = json_types[name]
                    lines.fail(
                        i, f"{value!r} in column {name!r} is a {json_type}, and was a {was} in the lines before."
                    )

            for name, arrow_type in floats.items():
                if arrow_type == pa.float64() and not _is_number(parsed.get(name)):
                    lines.fail(
                        i,
                        f"{parsed.get(name)!r} in column {name!r} is no number (finite, at most 1e100 in size); fill it, or "
                        "leave the row or the column out.",
                    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST
