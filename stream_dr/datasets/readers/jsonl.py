"""JSON lines: read files of one JSON object per line.

Arrow's incremental reader reads the files. Files may be compressed (.gz, .bz2, .xz, or
archive.zip!member). Each object is a row. Its keys are the names of columns. A missing key is a
missing value. Sparse rows are written as in a shard, such as
`{"indices": [3, 17], "values": [0.5, 1.2], "label": "a"}`.

Arrow reads the file in pieces of 1 MiB. The values in the first piece decide the type of each
column. Numeric features are read as floats. One piece and its parsed columns are in memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pajson

from stream_dr.aliases import FileName
from stream_dr.batch.block import LARGEST
from stream_dr.datasets.readers.columns import (
    Blocks,
    ColumnRoles,
    choose_feature_type,
    feature_columns_unless_shard,
    must_read_as_table,
    split_batches_into_blocks,
)
from stream_dr.datasets.readers.lines import BLOCK_ROWS, Lines, open_text_for_arrow, read_line_groups
from stream_dr.errors import MalformedInput, SchemaMismatch

PIECE = 1 << 20
"""Number of bytes that Arrow parses at a time."""

_MOST_CELLS = 1 << 24
"""Maximum of (number of rows) × (number of different keys) in the first PIECE bytes.

The limit is needed because Arrow allocates a value for each row and each key.
"""

_JSON_TYPES = {int: "number", float: "number", str: "string", bool: "boolean", list: "list", dict: "object"}
"""Python type of a parsed JSON value → name of the type in error messages."""

_SECONDS_A_DAY = 86_400


def read_jsonl(path: FileName, roles: ColumnRoles = ColumnRoles(), *, rows_per_block: int = BLOCK_ROWS) -> Blocks:
    """Yield the rows of a JSON lines file in blocks.

    rows_per_block: maximum number of rows in a block.

    Raises SourceMissing. Raises SchemaMismatch if none of the first lines has a column that
    `roles` names. Raises MalformedInput, which names the file and the line.
    """
    # Read the file twice: first only the start, to choose the types, and then all rows.
    _check_key_count(path)
    with _open_json_reader(path, None, {}) as reader:
        schema = reader.schema
        first = next(reader, None) or pa.RecordBatch.from_pylist([], schema=schema)

    # `features` are the names of the feature columns, or None if the file is read as a shard.
    features = feature_columns_unless_shard(schema, roles)
    # `types` are the Arrow types of columns that must not have the type that Arrow infers:
    # - the features of a table, whose values decide,
    # - the features of a matrix, and numeric targets, which are floats (`floats`).
    number_columns = roles.numeric_target_columns(schema)
    table_features: list[str] = []
    if must_read_as_table(first, features, roles):
        roles = roles._replace(raw=True)
        table_features = features or []
    else:
        number_columns += tuple(features or ())
    kinds = dict(roles.kinds)
    floats = {name: _float_type(schema.field(name).type) for name in number_columns}
    types = {name: choose_feature_type(first.column(name), kinds.get(name)) for name in table_features} | floats
    schema = pa.schema([(field.name, types.get(field.name, field.type)) for field in schema])
    # Arrow reads days as timestamps at midnight. Days without a declared kind are converted.
    day_columns = [name for name in table_features if name not in kinds and _has_only_midnights(first.column(name))]

    # After an error, `split_batches_into_blocks` calls the lambda. It ignores its arguments (`_`),
    # searches the lines for the error, and raises an error that names the line.
    with _open_json_reader(path, schema, floats) as reader:
        batches = (_convert_midnights_to_days(batch, day_columns) for batch in reader)
        yield from split_batches_into_blocks(
            path, batches, features, roles, rows_per_block, lambda *_: _check_json_lines(path, floats)
        )


def _has_only_midnights(column: pa.Array) -> bool:
    """True if a column has only days, which Arrow reads as timestamps at midnight."""
    has_times = pa.types.is_timestamp(column.type) and len(column) > column.null_count
    return has_times and not len(_rows_off_midnight(column))


def _rows_off_midnight(column: pa.Array) -> np.ndarray:
    """Return the indices of rows whose timestamp (in seconds) is not at midnight."""
    # A missing timestamp counts as midnight.
    seconds = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.flatnonzero(seconds % _SECONDS_A_DAY)


def _convert_midnights_to_days(batch: pa.RecordBatch, column_names: list[str]) -> pa.RecordBatch:
    """Return a batch with the timestamps of some columns converted to days.

    Arrow reads days as timestamps at midnight.

    column_names: names of the columns.

    Raises SchemaMismatch, which names the row of the batch, if a timestamp is not at midnight.
    """
    for name in column_names:
        column = batch.column(name)
        if len(others := _rows_off_midnight(column)):
            row = int(others[0])
            raise SchemaMismatch(
                f"column {name!r} is {column[row]}, and the first rows have days without a time. Say --as {name}=time.",
                column=name,
                row=row,
            )
        batch = batch.set_column(batch.schema.get_field_index(name), name, column.cast(pa.date32()))
    return batch


def _check_key_count(path: FileName) -> None:
    """Raise MalformedInput if the first lines have too many keys.

    Arrow allocates a value for each row and each different key, so a file with many different keys
    would take too much memory. The limit is _MOST_CELLS.
    """
    # A nested object counts as a row of its own. {"a": {"b": 1}} counts as two rows, with the keys
    # ".a" and ".a.b". `size` is the number of bytes so far.
    rows = 0
    size = 0
    names: set[str] = set()
    for lines in read_line_groups(path, comment_byte=b""):
        size += len(lines.data)
        for i in range(lines.rows):
            rows += _count_objects(_parse_json_line(lines, i), "", names)
            if rows * len(names) > _MOST_CELLS:
                lines.fail(i, f"{rows} rows so far have {len(names)} keys; give rows the same ones.")
        # Arrow infers the columns from the first PIECE bytes, so only these are checked.
        if size > PIECE:
            return


def _parse_json_line(lines: Lines, line_index: int) -> object:
    """Return the value of a line of JSON, or raise MalformedInput."""
    try:
        return orjson.loads(lines.text(line_index))
    except orjson.JSONDecodeError as e:
        lines.fail(line_index, f"no JSON ({e}).")


def _count_objects(value: object, key_prefix: str, keys: set[str]) -> int:
    """Return the number of objects in a JSON value, and add their keys to `keys`.

    Nested objects are counted, too, and their keys are added.

    value: parsed JSON value. A value without objects has no keys.
    key_prefix: keys that lead to the value within its line, joined by dots. They are put before
        each key that is added.
    keys: set to which the keys are added.
    """
    if isinstance(value, list):
        return sum(_count_objects(inner, key_prefix, keys) for inner in value)
    if not isinstance(value, dict):
        return 0
    keys.update(f"{key_prefix}.{name}" for name in value)
    return 1 + sum(_count_objects(v, f"{key_prefix}.{name}", keys) for name, v in value.items())


def _float_type(inferred_type: pa.DataType) -> pa.DataType:
    """Return an Arrow type, with float64 in place of integers and nulls."""
    if pa.types.is_list(inferred_type):
        return pa.list_(_float_type(inferred_type.value_type))
    if pa.types.is_integer(inferred_type) or pa.types.is_null(inferred_type):
        return pa.float64()
    return inferred_type


@contextmanager
def _open_json_reader(
    path: FileName, schema: pa.Schema | None, types_to_find_bad_line: dict[str, pa.DataType]
) -> Iterator[pa.RecordBatchReader]:
    """Return a context manager that opens Arrow's JSON reader.

    schema: Arrow types of the columns. None: Arrow infers them from the first lines.
    types_to_find_bad_line: Arrow types of the columns whose values must be numbers, by name of the
        column. After an error, they are used to find the line with the error.

    An error of opening the file, or of reading in the with-block, is replaced by MalformedInput.
    """
    read = pajson.ReadOptions(block_size=PIECE)
    parse = pajson.ParseOptions(explicit_schema=schema, newlines_in_values=False)
    try:
        with open_text_for_arrow(path) as stream, pajson.open_json(stream, read, parse) as reader:
            yield reader
    except (pa.ArrowException, OSError, EOFError) as e:
        _check_json_lines(path, types_to_find_bad_line)
        raise MalformedInput(f"{path}: {e}", file=str(path)) from e


def _check_json_lines(path: FileName, float64_columns: dict[str, pa.DataType]) -> None:
    """Raise MalformedInput for the first line with an error.

    The error names the number of the line. A line has an error in these cases:

    - The line is not a JSON object.
    - A value has another JSON type than the values of its key in earlier lines.
    - A column whose values must be numbers has no number.

    Nothing is raised if no line has an error.

    float64_columns: Arrow types of the columns whose values must be numbers, by name of the
        column.
    """
    json_types: dict[str, str] = {}
    for lines in read_line_groups(path, comment_byte=b""):
        for i in range(lines.rows):
            parsed = _parse_json_line(lines, i)
            if not isinstance(parsed, dict):
                lines.fail(i, "no JSON object; a line is an object of one row's columns.")

            # `json_types` has the type of each key's first value that is not null.
            for name, value in parsed.items():
                json_type = _JSON_TYPES.get(type(value), "null")
                if json_type != "null" and json_types.setdefault(name, json_type) != json_type:
                    lines.fail(
                        i,
                        f"{value!r} in column {name!r} is a {json_type}, and was a {json_types[name]} in the lines "
                        "before.",
                    )

            # Columns of lists do not have the type float64, and are not checked here.
            for name, arrow_type in float64_columns.items():
                value = parsed.get(name)
                is_number = isinstance(value, int | float) and abs(value) <= LARGEST
                if arrow_type == pa.float64() and not is_number:
                    lines.fail(
                        i,
                        f"{value!r} in column {name!r} is no number (finite, at most 1e100 in size); fill "
                        "it, or leave the row or the column out.",
                    )
