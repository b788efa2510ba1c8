"""table_rows: rows of any kind as RawRows, for a feature map that makes numbers of them, and RawRows as Arrow's columns.

Numbers, booleans, dates and timestamps (days since 1970, UTC), strings and dictionaries of any of these, each with nulls;
lists of numbers of one length, as vectors are: `v` becomes columns v0, v1 …

Cost: a pass over each column in Arrow's kernels; each distinct text becomes one Python string.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.errors import InvalidRows, SchemaMismatch
from stream_dr.rows.frames import table_of
from stream_dr.rows.kinds import COLUMNAR, Kind, kind_of
from stream_dr.rows.number_rows import as_rows
from stream_dr.rows.raw_rows import RawColumn, RawRows, dated, places, raw_of

EXACT = 2**53
"""Integers past this are texts: float64 does not tell them apart."""

LONGEST_VECTOR = 4096
"""Numbers of a vector beside a table's other columns, at most: each becomes a column."""

_KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_NUMBERS = {getattr(pa, kind)().id: np.dtype(kind) for kind in _KINDS}

_UNITS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def raw_from_arrow(batch: Any, beside: Sequence[str] = ()) -> RawRows:
    """A record batch, or a table or anything else with Arrow's C stream or array interface, as RawRows.

    beside: names of columns that are left out. Raises SchemaMismatch naming all columns of a type that is not
    taken, InvalidRows for a frame that Arrow cannot hold, NotFinite.
    """
    batch = batch if isinstance(batch, pa.RecordBatch) else _one_batch(batch)
    index = next((name for name in batch.schema.names if name.startswith("__index_level_")), None)
    if index is not None:
        raise SchemaMismatch(f"column {index} is a pandas index; convert with preserve_index=False.", column=index)
    fields = [field for field in batch.schema if field.name not in beside]
    odd = [f"{field.name} is {field.type}" for field in fields if not taken(field.type)]
    if odd:
        raise SchemaMismatch(
            f"column {', column '.join(odd)}: not taken. Send numbers, bools, dates, times or strings, or leave it out.",
            column=odd[0].split(" is ")[0],
        )
    columns: list[tuple[str, RawColumn]] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name in beside:
            continue
        columns += _places(field.name, column) if _is_vector(field.type) else [(field.name, _column(column))]
    return RawRows(tuple(name for name, _ in columns), tuple(column for _, column in columns), batch.num_rows)


def arrow_from_raw(rows: RawRows) -> dict[str, pa.Array]:
    """RawRows as the columns that `raw_from_arrow` reads: missing values are null, texts plain strings."""
    return dict(zip(rows.names, map(_array, rows.columns), strict=True))


def taken(kind: pa.DataType) -> bool:
    """Whether a column of this type may be a table's."""
    if pa.types.is_dictionary(kind) or _is_vector(kind):
        kind = kind.value_type
    return bool(
        plain(kind) or is_text(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)
    )


def raw_rows(X: Any, names: tuple[str, ...] | None = None) -> RawRows:
    """RawRows of anything but sparse rows: a table, texts, dicts, a dense array or lists.

    names: of an array's columns; None: x0, x1 … Raises InvalidRows, SchemaMismatch or NotFinite.
    """
    kind = kind_of(X)
    if kind is Kind.DICTS:
        return dated(raw_from_dicts(X))
    if kind is Kind.TEXTS:
        return raw_from_texts(X)
    if kind is Kind.COLUMN:  # called as the one column of a list of texts is
        return raw_from_arrow(pa.table({"text": pa.array(X, from_pandas=True)}))
    if kind in COLUMNAR:
        return raw_from_arrow(X)
    if kind is Kind.RAW:
        return raw_of(X)
    if kind is not Kind.SPARSE:
        dense = np.asarray(X)
        if dense.dtype == object and dense.ndim == 2:
            names = names or places(dense)
            columns = [_guessed(column.tolist(), name) for name, column in zip(names, dense.T, strict=True)]
            return raw_from_arrow(pa.table(columns, list(names)))
        if dense.dtype.kind in "fiub" and dense.ndim == 2:
            return raw_of(dense, names)
    return raw_of(as_rows(X)[0], names)  # which says what is wrong


def raw_from_texts(texts: Iterable[str]) -> RawRows:
    """Texts as the one column `text`."""
    return RawRows(("text",), (RawColumn("text", *_texts(pa.array(list(texts), pa.string()))),))


def raw_from_dicts(rows: Sequence[Mapping[str, Any]]) -> RawRows:
    """Rows as dicts of values; what a row lacks, None and NaN are missing. Raises InvalidRows or SchemaMismatch."""
    names = tuple(dict.fromkeys(str(name) for row in rows for name in row))
    columns = [_guessed([row.get(name) for row in rows], name) for name in names]
    return raw_from_arrow(pa.table(columns, list(names))) if names else RawRows((), (), len(rows))


def _guessed(values: list[Any], name: str) -> pa.Array:
    """Python's values as a column. Raises SchemaMismatch naming the first row of another type than those before it."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError) as e:
        there = [(row, value) for row, value in enumerate(values) if value is not None and value == value]
        first = type(there[0][1])
        row, value = next((given for given in there if type(given[1]) is not first), there[0])
        raise SchemaMismatch(
            f"row {row}, column {name} is {value!r}; the column begins with {first.__name__}. Give a column one type.",
            row=row,
            column=name,
        ) from e


def _one_batch(given: Any) -> pa.RecordBatch:
    """Any table as one record batch."""
    try:
        table = pa.table(given if isinstance(given, pa.Table) else table_of(given)).combine_chunks()
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as e:
        raise InvalidRows(
            f"the rows are no table ({e}); pass a pandas, polars or Arrow table, or a list of dicts."
        ) from e
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is string, large_string or string_view."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def plain(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers or booleans."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def numbers_of(array: pa.Array) -> np.ndarray:
    """The integers or floats of an array without nulls, as they lie in its buffer; read-only.

    O(1). No other thread takes the interpreter meanwhile; `to_numpy` gives it up twice.
    """
    kind = _NUMBERS[array.type.id]
    if not len(array):
        return np.empty(0, kind)
    found = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
    found.setflags(write=False)
    return found


def _column(column: pa.Array) -> RawColumn:
    kind = column.type
    if pa.types.is_dictionary(kind) and not is_text(kind.value_type):
        return _column(column.dictionary_decode())
    if pa.types.is_null(kind):
        return RawColumn("number", np.full(len(column), np.nan))
    if pa.types.is_dictionary(kind) or is_text(kind):
        return RawColumn("text", *_texts(column))
    if pa.types.is_date(kind):
        return RawColumn("date", _days(column.cast(pa.date32(), safe=False).cast(pa.int32()), 1))
    if pa.types.is_timestamp(kind):
        return RawColumn("time", _days(column.cast(pa.int64()), _UNITS[kind.unit]))
    if pa.types.is_boolean(kind):
        return RawColumn("boolean", _days(column.cast(pa.int8()), 1))
    if not pa.types.is_integer(kind):
        return RawColumn("number", _days(column, 1))
    values = _days(column, 1)
    if np.abs(np.nan_to_num(values)).max(initial=0.0) > EXACT:
        return RawColumn("text", *_texts(column.cast(pa.string())))
    return RawColumn("integer", values)


def _is_vector(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists of numbers."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (plain(kind.value_type) or pa.types.is_null(kind.value_type)))


def _places(name: str, column: pa.Array) -> list[tuple[str, RawColumn]]:
    """Vectors of one length as a column of numbers a place; all missing where a row has none.

    Raises InvalidRows naming the column and the first row whose vector has another length, or is too long.
    """
    there = column.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    length = int(lengths[there.argmax()]) if there.any() else 0
    odd = np.flatnonzero(there & (lengths != length))
    if len(odd):
        row = int(odd[0])
        raise InvalidRows(
            f"column {name} has {lengths[row]} numbers in row {row} and {length} in row {int(there.argmax())}; vectors have "
            "one length. Send those, null, or leave the column out.",
            row=row,
            column=name,
        )
    if length > LONGEST_VECTOR:
        raise InvalidRows(
            f"column {name} has vectors of {length} numbers; beside other columns up to {LONGEST_VECTOR} are taken. Send "
            "the vectors alone, or shorter ones.",
            column=name,
        )
    values = np.full((len(column), length), np.nan)
    values[there] = _days(pc.list_flatten(column).cast(pa.float64(), safe=False), 1).reshape(-1, length)
    return [(f"{name}{i}", RawColumn("number", np.ascontiguousarray(values[:, i]))) for i in range(length)]


def _days(column: pa.Array, unit: int) -> np.ndarray:
    """Numbers as float64 divided by unit, NaN where null."""
    if not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64) / unit
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) / unit
    values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values


def _texts(column: pa.Array) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes (rows,) int32, −1 where null, and the distinct texts in order of appearance.

    A dictionary may hold nulls, texts no row has, or one text twice; it is not unpacked, for texts may be long.
    """
    own: tuple[str, ...] | None = None
    if pa.types.is_dictionary(column.type):
        codes, own = _texts(column.dictionary)
        column = pa.array(codes, mask=codes < 0).take(column.indices)
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    return numbers_of(encoded.indices.fill_null(-1)), tuple(distinct if own is None else (own[i] for i in distinct))


def _array(column: RawColumn) -> pa.Array:
    missing = column.missing
    if column.kind == "text":
        return pa.array(column.labels, pa.string()).take(pa.array(column.values, mask=missing))
    if column.kind == "number":
        return pa.array(column.values, mask=missing)
    values = np.where(missing, 0.0, column.values)
    if column.kind == "boolean":
        return pa.array(values != 0.0, mask=missing)
    if column.kind == "time":
        return pa.array(np.rint(values * _UNITS["us"]).astype(np.int64), pa.timestamp("us"), mask=missing)
    whole = pa.array(values.astype(np.int64), mask=missing)
    return whole.cast(pa.int32()).cast(pa.date32()) if column.kind == "date" else whole
