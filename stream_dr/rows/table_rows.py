"""Convert rows to RawRows, and RawRows to Arrow columns.

RawRows are the columns of a table for a feature map. A column may have numbers, booleans, dates,
timestamps or strings, and nulls. Dates and timestamps become days since 1970 (UTC). A
dictionary-encoded column is a category, whatever its values are. A column `v` of vectors of equal
length becomes the columns v0, v1, …

The conversion costs one pass over each column, in compiled functions of Arrow. Each distinct text
becomes one Python string.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.errors import InvalidRows, SchemaMismatch
from stream_dr.rows.frames import as_table, only_has, open_rows
from stream_dr.rows.matrix import is_number_or_boolean_type, view_of_numbers
from stream_dr.rows.number_rows import as_rows
from stream_dr.rows.raw_rows import (
    RawColumn,
    RawRows,
    convert_column,
    default_column_names,
    fill_masked,
    parse_date_columns,
    raw_from_array,
)
from stream_dr.rows.sparse_rows import is_sparse

LARGEST_EXACT_INTEGER = 2**53
"""Largest absolute value of an integer that is read as a number.

A column with a larger integer becomes a column of texts, because float64 cannot represent all
larger integers exactly.
"""

LONGEST_VECTOR = 4096
"""Largest length of vectors in a table. Each number of a vector becomes a column."""

_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
"""Number of units of time in a day, by the name of the unit."""


def raw_from_arrow(batch: pa.RecordBatch | pa.Table) -> RawRows:
    """Return a record batch or table as RawRows.

    RawRows are the columns of a table for a feature map.

    Raises:

    - SchemaMismatch if a column has an unsupported type. The error names all of these columns.
    - NotFinite for a number that is infinite or too large.
    """
    batch = batch if isinstance(batch, pa.RecordBatch) else _as_record_batch(batch)
    index = next((name for name in batch.schema.names if name.startswith("__index_level_")), None)
    if index is not None:
        raise SchemaMismatch(f"column {index} is a pandas index; convert with preserve_index=False.", column=index)

    # Refuse columns of unsupported types.
    refused = [f"{field.name} is {field.type}" for field in batch.schema if not is_convertible_column_type(field.type)]
    if refused:
        raise SchemaMismatch(
            f"column {', column '.join(refused)}: not taken. Send numbers, bools, dates, times or strings, or leave it out.",
            column=refused[0].split(" is ")[0],
        )

    # Convert the columns. A column of vectors becomes several columns.
    columns: list[tuple[str, RawColumn]] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _is_number_list_type(field.type):
            columns += _split_vector_column(field.name, column)
        else:
            columns.append((field.name, _raw_column_from_arrow(column)))
    return RawRows(tuple(name for name, _ in columns), tuple(column for _, column in columns), batch.num_rows)


def arrow_from_raw(rows: RawRows) -> dict[str, pa.Array]:
    """Return RawRows as Arrow columns by name.

    Missing values become null. Only categories are dictionary-encoded. `raw_from_arrow` converts
    a table of these columns back.
    """
    return dict(zip(rows.names, map(_arrow_from_raw_column, rows.columns), strict=True))


def is_convertible_column_type(arrow_type: pa.DataType) -> bool:
    """True if `raw_from_arrow` can convert columns of this Arrow type."""
    if pa.types.is_dictionary(arrow_type) or _is_number_list_type(arrow_type):
        arrow_type = arrow_type.value_type
    return bool(
        is_number_or_boolean_type(arrow_type)
        or is_string_type(arrow_type)
        or pa.types.is_date(arrow_type)
        or pa.types.is_timestamp(arrow_type)
        or pa.types.is_null(arrow_type)
    )


def raw_rows(X: Any, names: tuple[str, ...] | None = None) -> RawRows:
    """Return dense rows of any kind as RawRows.

    Such rows are a table, texts, dicts, a dense array or lists.

    X: rows of any kind that is not sparse.
    names: names of an array's columns. If None, the names are x0, x1, …

    Raises:

    - InvalidRows for sparse rows, and for objects that are not rows.
    - SchemaMismatch if a column has an unsupported type, or values of different types.
    - NotFinite for a number that is infinite or too large.
    """
    X = open_rows(X)
    if only_has(X, Mapping):
        return parse_date_columns(raw_from_dicts(X))
    if only_has(X, str):
        return raw_from_texts(X)
    if isinstance(X, RawRows):
        return raw_from_array(X)

    if not is_sparse(X) and (table := as_table(X)) is not None:
        return raw_from_arrow(table)

    # Arrays of Python objects may have texts, so the type of each column is inferred.
    if not is_sparse(X):
        dense = np.asarray(fill_masked(X))
        if dense.dtype == object and dense.ndim == 2:
            names = names or default_column_names(dense)
            columns = [_column_of_values(column.tolist(), name) for name, column in zip(names, dense.T, strict=True)]
            return raw_from_arrow(pa.table(columns, list(names)))
        if dense.dtype.kind in "fiub" and dense.ndim == 2:
            return raw_from_array(dense, names)
    # Convert sparse rows here. `as_rows` raises an error if X is no supported kind of rows.
    return raw_from_array(as_rows(X)[0], names)


def raw_from_texts(texts: Iterable[str]) -> RawRows:
    """Return texts as RawRows with one column called `text`."""
    return RawRows(("text",), (RawColumn("text", *_encode_texts(pa.array(list(texts), pa.string()))),))


def raw_from_dicts(rows: Sequence[Mapping[str, Any]]) -> RawRows:
    """Return rows that are dicts as RawRows.

    The columns are the keys of all rows, in order of appearance. A value is missing if it is None
    or NaN, or if the row does not have the key. Raises SchemaMismatch if a column has values of
    different or unsupported types. Raises InvalidRows if a column has vectors of different length.
    """
    names = tuple(dict.fromkeys(str(name) for row in rows for name in row))
    columns = [_column_of_values([row.get(name) for row in rows], name) for name in names]
    if names:
        return raw_from_arrow(pa.table(columns, list(names)))
    return RawRows((), (), len(rows))


def _column_of_values(values: list[Any], column_name: str) -> pa.Array:
    """Return Python values as an Arrow column.

    Raises SchemaMismatch if the values have no common type. The error names the first row whose
    value has another type than the first value.

    column_name: name of the column, for the error message.
    """
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError) as e:
        # NaN values are dropped, because NaN is not equal to itself.
        present = [(row, value) for row, value in enumerate(values) if value is not None and value == value]
        first = type(present[0][1])
        row, value = next((item for item in present if type(item[1]) is not first), present[0])
        raise SchemaMismatch(
            f"row {row}, column {column_name} is {value!r}; the column begins with {first.__name__}. Give "
            "a column one type.",
            row=row,
            column=column_name,
        ) from e


def _as_record_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one record batch."""
    table = table.combine_chunks()
    if table.num_rows:
        return table.to_batches()[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def is_string_type(arrow_type: pa.DataType) -> bool:
    """True for Arrow's types string, large_string and string_view."""
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def as_floats(decimals: pa.Array) -> pa.Array:
    """Return decimals as float64, and any other column unchanged."""
    if pa.types.is_decimal(decimals.type):
        return decimals.cast(pa.float64())
    return decimals


def _raw_column_from_arrow(column: pa.Array) -> RawColumn:
    """Return an Arrow array as a RawColumn.

    A RawColumn has float64 numbers, or codes of texts.

    column: array of a type for which `is_convertible_column_type` is true, and not of vectors.
    """
    # Convert categories, texts and null columns.
    kind = column.type
    if pa.types.is_dictionary(kind):
        if is_string_type(kind.value_type):
            return RawColumn("category", *_encode_texts(column))
        decoded = _raw_column_from_arrow(column.dictionary_decode())
        return convert_column("", decoded, "text")._replace(kind="category")
    if pa.types.is_null(kind):
        return RawColumn("number", np.full(len(column), np.nan))
    if is_string_type(kind):
        return RawColumn("text", *_encode_texts(column))

    # Convert dates, times, booleans and floats.
    if pa.types.is_date(kind):
        return RawColumn("date", _numbers_or_nan(column.cast(pa.date32(), safe=False).cast(pa.int32())))
    if pa.types.is_timestamp(kind):
        return RawColumn("time", _numbers_or_nan(column.cast(pa.int64())) / _UNITS_PER_DAY[kind.unit])
    if pa.types.is_boolean(kind):
        return RawColumn("boolean", _numbers_or_nan(column.cast(pa.int8())))
    if not pa.types.is_integer(kind):
        return RawColumn("number", _numbers_or_nan(as_floats(column)))

    # Convert integers. If an integer is too large for float64, the column becomes texts.
    values = _numbers_or_nan(column)
    if np.abs(np.nan_to_num(values)).max(initial=0.0) > LARGEST_EXACT_INTEGER:
        return RawColumn("text", *_encode_texts(column.cast(pa.string())))
    return RawColumn("integer", values)


def _is_number_list_type(arrow_type: pa.DataType) -> bool:
    """True if columns of this Arrow type have lists of numbers."""
    if not isinstance(arrow_type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return False
    return is_number_or_boolean_type(arrow_type.value_type) or bool(pa.types.is_null(arrow_type.value_type))


def _split_vector_column(name: str, column: pa.Array) -> list[tuple[str, RawColumn]]:
    """Return a column of vectors as columns of numbers.

    Column i has number i of every vector, and its name is `name` followed by i. If a row has no
    vector, the row's values are missing in all columns. Raises InvalidRows if the vectors are too
    long, or if they differ in length.

    name: name of the column of vectors.
    """
    # Check that all vectors have the length of the first vector.
    present = column.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    length = int(lengths[present.argmax()]) if present.any() else 0
    different = np.flatnonzero(present & (lengths != length))
    if len(different):
        row = int(different[0])
        raise InvalidRows(
            f"column {name} has {lengths[row]} numbers in row {row} and {length} in row {int(present.argmax())}; vectors "
            "have one length. Send those, null, or leave the column out.",
            row=row,
            column=name,
        )
    if length > LONGEST_VECTOR:
        raise InvalidRows(
            f"column {name} has vectors of {length} numbers; beside other columns up to {LONGEST_VECTOR} are taken. Send "
            "the vectors alone, or shorter ones.",
            column=name,
        )

    # Copy the numbers of all vectors to a matrix, and split the matrix into columns.
    values = np.full((len(column), length), np.nan)
    numbers = _numbers_or_nan(pc.list_flatten(column).cast(pa.float64(), safe=False))
    values[present] = numbers.reshape(int(present.sum()), length)
    return [(f"{name}{i}", RawColumn("number", np.ascontiguousarray(values[:, i]))) for i in range(length)]


def _numbers_or_nan(column: pa.Array) -> np.ndarray:
    """Return a copy of a column's numbers (rows,) as float64.

    Nulls become NaN.
    """
    if not column.null_count:
        return np.array(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    values: np.ndarray = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values


def _encode_texts(column: pa.Array) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return a code for each text, and the distinct texts.

    The distinct texts are in order of appearance. The codes (rows,) int32 are indices into the
    distinct texts, −1 for null.
    """
    # Encode the texts of an Arrow dictionary first, and give each row the code of its text.
    # An Arrow dictionary array has a list of texts, and one index into this list for each row.
    # The list may have nulls, unused texts or repeated texts.
    own: tuple[str, ...] | None = None
    if pa.types.is_dictionary(column.type):
        codes, own = _encode_texts(column.dictionary)
        column = pa.array(codes, mask=codes < 0).take(column.indices)
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    texts = tuple(distinct if own is None else (own[i] for i in distinct))
    return view_of_numbers(encoded.indices.fill_null(-1)), texts


def _arrow_from_raw_column(column: RawColumn) -> pa.Array:
    """Return a RawColumn as an Arrow array of matching type."""
    missing = column.missing
    if column.has_texts:
        # The values of a column of text are indices of its labels.
        indices = pa.array(column.values, mask=missing)
        labels = pa.array(column.labels, pa.string())
        return labels.take(indices) if column.kind == "text" else pa.DictionaryArray.from_arrays(indices, labels)
    if column.kind == "number":
        return pa.array(column.values, mask=missing)

    # The Arrow types below have no NaN, so missing rows get the value 0, which is masked.
    values = np.where(missing, 0.0, column.values)
    if column.kind == "boolean":
        return pa.array(values != 0.0, mask=missing)
    if column.kind == "time":
        return pa.array(np.rint(values * _UNITS_PER_DAY["us"]).astype(np.int64), pa.timestamp("us"), mask=missing)
    # A date is a number of days, and the last kind is "integer".
    whole = pa.array(values.astype(np.int64), mask=missing)
    if column.kind == "date":
        return whole.cast(pa.int32()).cast(pa.date32())
    return whole
