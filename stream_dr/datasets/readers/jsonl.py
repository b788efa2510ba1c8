"""JSON lines: a JSON object a line, through Arrow's incremental reader.

Unpacks gz, bz2, xz and zip members. Features are numbers, or vectors of them. A line may also be a
row in a shard's layout (`{"indices": [3, 17], "values": [0.5, 1.2], "label": "a"}`). A key that a
line lacks is a missing value. Memory: one piece and its columns. Types are those of the first
piece, except that features are floats.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pajson

from stream_dr.datasets.readers.arrow_stream import open_for_arrow
from stream_dr.datasets.readers.columns import Roles, blocks_of, feature_columns, needs_raw, type_of
from stream_dr.datasets.readers.lines import BLOCK_ROWS, read_lines
from stream_dr.disk import FileName
from stream_dr.errors import MalformedInput, SchemaMismatch, StreamDRError
from stream_dr.rows.block import LARGEST, Block

PIECE = 1 << 20
"""Bytes parsed at a time."""

_MOST_CELLS = 1 << 24
"""Rows times keys of the first piece. Arrow makes a cell for each."""

_KINDS = {int: "number", float: "number", str: "string", bool: "boolean", list: "list", dict: "object"}


def read_jsonl(path: FileName, roles: Roles = Roles(), *, rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """Blocks of rows. Raises SourceMissing, SchemaMismatch (a named key is in no line of the first piece), MalformedInput
    naming file and line."""
    _check_keys(path)
    with _opened(path, None, {}) as reader:
        schema = reader.schema
        first = next(reader, None) or pa.RecordBatch.from_pylist([], schema=schema)
    features = feature_columns(schema.names, roles)
    floats = {name: _floats(schema.field(name).type) for name in (*(features or ()), *roles.numbers())}
    days: list[str] = []
    if needs_raw(first, features, roles):
        roles, floats = roles._replace(raw=True), {}
        kinds = dict(roles.kinds)
        days = [name for name in features or () if name not in kinds and _are_days(first.column(name))]
        table = {name: type_of(first.column(name), kinds.get(name)) for name in features or ()}
        schema = pa.schema([pa.field(f.name, table.get(f.name, f.type)) for f in schema])
    schema = pa.schema([pa.field(f.name, floats.get(f.name, f.type)) for f in schema])
    row = 0

    def fail(error: StreamDRError, at: int) -> NoReturn:
        at += row + int(error.details.get("row", 0))
        _name_the_line(path, floats)
        raise MalformedInput(f"{path}, row {at}: {error}", file=str(path), row=at) from error

    with _opened(path, schema, floats) as reader:
        for batch in reader:
            for name in days:
                batch = _with_days(batch, name, fail)
            yield from blocks_of(batch, features, roles, rows, fail)
            row += batch.num_rows


def _are_days(column: pa.Array) -> bool:
    """Return True if a column's values are points in time, all of them midnight."""
    return pa.types.is_timestamp(column.type) and len(column) > column.null_count and not len(_times(column))


def _times(column: pa.Array) -> np.ndarray:
    """Return the numbers of the rows whose time, in seconds, is not midnight."""
    return np.flatnonzero(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) % 86_400)


def _with_days(batch: pa.RecordBatch, name: str, fail: Callable[[StreamDRError, int], NoReturn]) -> pa.RecordBatch:
    """Return the batch with days for the midnights that Arrow makes of them. Fails for other times."""
    column = batch.column(name)
    if len(times := _times(column)):
        at = int(times[0])
        fail(
            SchemaMismatch(
                f"column {name!r} is {column[at]}, and the first rows have days without a time. Say --as {name}=time.",
                column=name,
            ),
            at,
        )
    return batch.set_column(batch.schema.get_field_index(name), name, column.cast(pa.date32()))


def _check_keys(path: FileName) -> None:
    """Raise MalformedInput where the first piece's rows × keys are too many: Arrow makes all of them."""
    rows, size, names = 0, 0, set[str]()
    for lines in read_lines(path, comment=b""):
        size += len(lines.data)
        for i in range(lines.rows):
            try:
                rows += _add_keys(orjson.loads(lines.text(i)), "", names)
            except orjson.JSONDecodeError as e:
                lines.fail(i, f"no JSON ({e}).")
            if rows * len(names) > _MOST_CELLS:
                lines.fail(i, f"{rows} rows so far have {len(names)} keys; give rows the same ones.")
        if size > PIECE:
            return


def _add_keys(value: Any, path: str, names: set[str]) -> int:
    """Add the keys of an object, and of those within it, by their paths.

    Return the number of objects.
    """
    if isinstance(value, list):
        return sum(_add_keys(inner, path, names) for inner in value if isinstance(inner, dict | list))
    if not isinstance(value, dict):
        return 0
    names.update(f"{path}.{name}" for name in value)
    return 1 + sum(_add_keys(v, f"{path}.{name}", names) for name, v in value.items() if isinstance(v, dict | list))


def _floats(kind: pa.DataType) -> pa.DataType:
    """The type in which a feature is read that looks like `kind`."""
    if pa.types.is_list(kind):
        return pa.list_(_floats(kind.value_type))
    return pa.float64() if pa.types.is_integer(kind) or pa.types.is_null(kind) else kind


@contextmanager
def _opened(path: FileName, schema: pa.Schema | None, floats: dict[str, Any]) -> Iterator[pa.RecordBatchReader]:
    read = pajson.ReadOptions(block_size=PIECE)
    parse = pajson.ParseOptions(explicit_schema=schema, newlines_in_values=False)
    try:
        with open_for_arrow(path) as stream, pajson.open_json(stream, read, parse) as reader:
            yield reader
    except (pa.ArrowException, OSError, EOFError) as e:
        _name_the_line(path, floats)
        raise MalformedInput(f"{path}: {e}", file=str(path)) from e


def _name_the_line(path: FileName, floats: dict[str, Any]) -> None:
    """Raise MalformedInput for the first line that cannot be parsed.

    It is no object, or has a value of another type than lines before, or no number.
    """
    known: dict[str, str] = {}
    for lines in read_lines(path, comment=b""):
        for i in range(lines.rows):
            try:
                parsed = orjson.loads(lines.text(i))
            except orjson.JSONDecodeError as e:
                lines.fail(i, f"no JSON ({e}).")
            if not isinstance(parsed, dict):
                lines.fail(i, "no JSON object; a line is an object of one row's columns.")
            for name, value in parsed.items():
                kind = _KINDS.get(type(value), "null")
                if kind != "null" and known.setdefault(name, kind) != kind:
                    lines.fail(
                        i, f"{value!r} in column {name!r} is a {kind}, and was a {known[name]} in the lines before."
                    )
            for name, kind in floats.items():
                if kind == pa.float64() and not _is_number(parsed.get(name)):
                    lines.fail(
                        i,
                        f"{parsed.get(name)!r} in column {name!r} is no number (finite, at most 1e100 in size); fill it, or "
                        "leave the row or the column out.",
                    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST
