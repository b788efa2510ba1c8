"""Convert rows to a table for a feature map.

A column may have numbers, booleans, dates, timestamps or strings, and nulls. A dictionary-encoded
column is a category, whatever its values are. A column `v` of vectors of equal length becomes the
columns v0, v1, …

The conversion costs one pass over each column, in compiled functions of Arrow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.errors import InvalidRows, SchemaMismatch
from stream_dr.rows.frames import as_table, column_of_values, only_has, open_rows, table_of_dicts
from stream_dr.rows.matrix import is_number_or_boolean_type
from stream_dr.rows.number_rows import as_rows
from stream_dr.rows.raw_rows import (
    TEXT,
    column_kind,
    columns_by_name,
    convert_column,
    default_column_names,
    fill_masked,
    is_table,
    parse_date_columns,
    raw_from_array,
    table_batch,
)
from stream_dr.rows.sparse_rows import is_sparse

LARGEST_EXACT_INTEGER = 2**53
"""Largest absolute value of an integer that is read as a number.

A column with a larger integer becomes a column of texts, because float64 cannot represent all
larger integers exactly.
"""

LONGEST_VECTOR = 4096
"""Largest length of vectors in a table. Each number of a vector becomes a column."""


def raw_from_arrow(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    """Return a record batch or table as a table for a feature map.

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
    columns: list[tuple[str, pa.Array]] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _is_number_list_type(field.type):
            columns += _split_vector_column(field.name, column)
        else:
            columns.append((field.name, _table_column(column)))
    return table_batch(columns, batch.num_rows)


def arrow_from_raw(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of a table by name, as they are written.

    Texts are plain strings, and times have microseconds. Only categories stay dictionary-encoded,
    so that `raw_from_arrow` converts the columns back.
    """
    columns = columns_by_name(rows)
    for name, column in columns.items():
        if column.type == TEXT:
            columns[name] = column.cast(pa.string())
        elif column_kind(column.type) == "time":
            columns[name] = pc.round_temporal(column, unit="microsecond").cast(pa.timestamp("us"))
    return columns


def is_convertible_column_type(arrow_type: pa.DataType) -> bool:
    """True if `raw_from_arrow` can convert columns of this Arrow type."""
    if pa.types.is_dictionary(arrow_type) or _is_number_list_type(arrow_type):
        arrow_type = arrow_type.value_type
    types = pa.types
    checks = (is_number_or_boolean_type, is_string_type, types.is_date, types.is_timestamp, types.is_null)
    return any(check(arrow_type) for check in checks)


def raw_rows(X: Any, names: tuple[str, ...] | None = None) -> pa.RecordBatch:
    """Return dense rows of any kind as a table for a feature map.

    Such rows are a frame, texts, dicts, a dense array or lists.

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
        return raw_from_arrow(pa.table({"text": pa.array(X)}))
    if is_table(X):
        return raw_from_array(X)

    if not is_sparse(X) and (table := as_table(X)) is not None:
        return raw_from_arrow(table)

    # Arrays of Python objects may have texts, so the type of each column is inferred.
    if not is_sparse(X):
        dense = np.asarray(fill_masked(X))
        if dense.dtype == object and dense.ndim == 2:
            names = names or default_column_names(dense)
            columns = [column_of_values(column.tolist(), name) for name, column in zip(names, dense.T, strict=True)]
            return raw_from_arrow(pa.table(columns, list(names)))
        if dense.dtype.kind in "fiub" and dense.ndim == 2:
            return raw_from_array(dense, names)
    # Convert sparse rows here. `as_rows` raises an error if X is no supported kind of rows.
    return raw_from_array(as_rows(X)[0], names)


def raw_from_dicts(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return rows that are dicts as a table.

    The columns are those of `table_of_dicts`. Raises SchemaMismatch if a column has values of
    different or unsupported types. Raises InvalidRows if a column has vectors of different length.
    """
    table = table_of_dicts(rows)
    if table.num_columns:
        return raw_from_arrow(table)
    return table_batch((), len(rows))


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


def _table_column(column: pa.Array) -> pa.Array:
    """Return an Arrow array as a column of a table.

    column: array of a type for which `is_convertible_column_type` is true, and not of vectors.
    """
    # Convert categories and texts.
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = column.dictionary
        if kind.value_type == pa.string_view():  # Arrow cannot take items of this type.
            values = values.cast(pa.string())
        texts = convert_column("", _table_column(values.take(column.indices)), "text")
        return pa.DictionaryArray.from_arrays(texts.indices, texts.dictionary)
    if is_string_type(kind):
        encoded = column.cast(pa.string()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary, ordered=True)

    # Convert dates, times and booleans.
    if pa.types.is_date(kind):
        return column.cast(pa.date32(), safe=False)
    if pa.types.is_timestamp(kind):
        return column.view(pa.timestamp(kind.unit))
    if pa.types.is_boolean(kind):
        return column

    # Convert numbers. If an integer is too large for float64, the column becomes texts.
    numbers = _numbers_or_nan(column)
    if not pa.types.is_integer(kind):
        return pa.array(numbers, from_pandas=True)
    if np.fmax.reduce(np.abs(numbers), initial=0.0) > LARGEST_EXACT_INTEGER:
        return _table_column(column.cast(pa.string()))
    return column.cast(pa.int64())


def _is_number_list_type(arrow_type: pa.DataType) -> bool:
    """True if columns of this Arrow type have lists of numbers."""
    if not isinstance(arrow_type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return False
    return is_number_or_boolean_type(arrow_type.value_type) or bool(pa.types.is_null(arrow_type.value_type))


def _split_vector_column(name: str, column: pa.Array) -> list[tuple[str, pa.Array]]:
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

    numbers = [_numbers_or_nan(pc.list_element(column, i)) for i in range(length)]
    return [(f"{name}{i}", pa.array(values, from_pandas=True)) for i, values in enumerate(numbers)]


def _numbers_or_nan(column: pa.Array) -> np.ndarray:
    """Return a column's numbers (rows,) as float64, NaN for null."""
    numbers: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers
