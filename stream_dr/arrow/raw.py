"""raw: the columns of a table in Arrow ↔ RawRows, for streams that a feature map makes numbers of.

Numbers, booleans, dates and timestamps (days since 1970, UTC), strings and dictionaries of any of these, each with nulls.

Cost: a pass over each column in Arrow's kernels; each distinct text becomes one Python string.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from stream_dr.arrow.rows import BESIDE
from stream_dr.arrow.targets import is_text, numbers_of
from stream_dr.errors import InvalidRows, SchemaMismatch
from stream_dr.label_codes import by_appearance
from stream_dr.raw_rows import RawColumn, RawRows

EXACT = 2**53
"""Integers past this are texts: float64 does not tell them apart."""

_UNITS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def raw_from_arrow(batch: Any) -> RawRows:
    """A record batch, or a table or anything else with Arrow's C stream or array interface, as RawRows.

    Left out are the columns that stand beside features. Raises SchemaMismatch naming all columns of a type that is not
    taken, InvalidRows for a frame that Arrow cannot hold, NotFinite.
    """
    batch = batch if isinstance(batch, pa.RecordBatch) else _one_batch(batch)
    fields = [field for field in batch.schema if field.name not in BESIDE]
    odd = [f"{field.name} is {field.type}" for field in fields if not taken(field.type)]
    if odd:
        raise SchemaMismatch(
            f"column {', column '.join(odd)}: not taken. Send numbers, bools, dates, times or strings, or leave it out.",
            column=odd[0].split(" is ")[0],
        )
    columns = [_column(c) for c, field in zip(batch.columns, batch.schema, strict=True) if field.name not in BESIDE]
    return RawRows(tuple(field.name for field in fields), tuple(columns), batch.num_rows)


def arrow_from_raw(rows: RawRows) -> dict[str, pa.Array]:
    """RawRows as the columns that `raw_from_arrow` reads: missing values are null, texts plain strings."""
    return dict(zip(rows.names, map(_array, rows.columns), strict=True))


def taken(kind: pa.DataType) -> bool:
    """Whether a column of this type may be a table's."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        plain(kind) or is_text(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)
    )


def plain(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers or booleans."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _one_batch(given: Any) -> pa.RecordBatch:
    """Any table as one record batch."""
    try:
        if hasattr(given, "iloc"):  # pandas: as Arrow's stream, but without an index among the columns
            given = pa.Table.from_pandas(given, preserve_index=False)
        table = pa.table(given).combine_chunks()
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise InvalidRows(
            f"the rows are no table ({e}); pass a pandas, polars or Arrow table, or a list of dicts."
        ) from e
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def _column(column: pa.Array) -> RawColumn:
    kind = column.type
    if pa.types.is_dictionary(kind) and not is_text(kind.value_type):
        return _column(column.dictionary_decode())
    if pa.types.is_null(kind):
        return RawColumn("number", np.full(len(column), np.nan))
    if pa.types.is_dictionary(kind) or is_text(kind):
        return RawColumn("text", *_texts(column))
    if pa.types.is_date(kind):
        return RawColumn("date", _days(column.cast(pa.date32()).cast(pa.int32()), 1))
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


def _days(column: pa.Array, unit: int) -> np.ndarray:
    """Numbers as float64 divided by unit, NaN where null."""
    if not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64) / unit
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) / unit
    values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values


def _texts(column: pa.Array) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes (rows,) int32 and the distinct texts in order of appearance."""
    if not pa.types.is_dictionary(column.type):
        encoded = column.dictionary_encode()
        indices = encoded.indices.fill_null(-1) if column.null_count else encoded.indices
        return numbers_of(indices), tuple(encoded.dictionary.to_pylist())
    code_of, own = _texts(column.dictionary)
    if not len(column):
        return np.empty(0, dtype=np.int32), ()
    codes = np.append(code_of, np.int32(-1))[column.indices.fill_null(0).to_numpy()]
    codes[column.indices.is_null().to_numpy(zero_copy_only=False)] = -1
    used, codes = by_appearance(codes, len(own))
    return codes, tuple(own[i] for i in used.tolist())


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
