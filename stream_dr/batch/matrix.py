"""Convert rows of any kind to a matrix, or to a table for a feature map.

`as_rows` converts opened rows to an ndarray or a CSR matrix, with the names of the columns.
`as_matrix` converts Arrow columns, for frames of other libraries, files, payloads of the service
and events of the log alike. It copies the data once. If the only column is a column of vectors of
equal length, it copies nothing.

`read_table` converts rows to a table (table.py). A column may have numbers, booleans, dates,
timestamps or strings, and nulls. A dictionary-encoded column is a category, whatever its values
are. A column `v` of vectors of equal length becomes the columns v0, v1, … This costs one pass over
each column, in compiled functions of Arrow.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from stream_dr.batch.block import Rows, check_finite
from stream_dr.batch.rows import (
    RowsAndNames,
    arrow_from_dicts,
    as_table,
    column_of_values,
    is_pandas,
    only_has,
    open_rows,
    type_name,
)
from stream_dr.batch.sparse import is_sparse, raise_if_complex, sparse_as_csr
from stream_dr.batch.table import (
    TEXT,
    column_kind,
    columns_by_name,
    convert_column,
    default_column_names,
    fill_masked,
    is_table,
    parse_date_columns,
    refuse_repeated_names,
    refuse_table,
    table_batch,
    table_from_array,
)
from stream_dr.errors import InvalidRows, NotNumeric, SchemaMismatch

_NUMERIC = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
"""Names of the number types that Arrow and numpy share."""

_NUMPY_TYPES = {getattr(pa, kind)().id: np.dtype(kind) for kind in _NUMERIC}
"""Numpy type of each Arrow number type, by the id of the Arrow type."""

_DECIMALS = (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
_NUMBERS = {*_NUMPY_TYPES, *(decimal(1).id for decimal in _DECIMALS)}
"""Ids of the Arrow types of integers, floats and decimals."""

_FLOATS = {pa.float32().id, pa.float64().id}
"""Ids of the Arrow types of the numbers in a matrix."""

_LISTS = {pa.list_(pa.null()).id, pa.large_list(pa.null()).id, pa.list_(pa.null(), 1).id}
"""Ids of the Arrow types of vectors."""

LARGEST_EXACT_INTEGER = 2**53
"""Largest absolute value of an integer that is read as a number.

A column with a larger integer becomes a column of texts, because float64 cannot represent all
larger integers exactly.
"""

LONGEST_VECTOR = 4096
"""Largest length of vectors in a table. Each number of a vector becomes a column."""


# numpy warns when it casts a signalling NaN. `check_finite` refuses NaN later.
@np.errstate(invalid="ignore")
def as_matrix(table: pa.Table | pa.RecordBatch) -> RowsAndNames:
    """Return a table or record batch as a matrix with its feature names.

    The matrix (rows, features) is float32 if all columns are float32, else float64. A missing
    number is NaN. A column `v` of vectors of equal length becomes the features v0, v1, … If `v` is
    the only column, the names are None.

    Raises NotNumeric, which names the columns without numbers. Raises InvalidRows if two columns
    have the same name, or if the vectors of a column differ in length.
    """
    # Convert each column, and refuse the table if a column has no numbers. A part is an array
    # (rows,) of a column of numbers, or (rows, length) of a column of vectors.
    names = table.schema.names
    parts: list[np.ndarray] = []
    refused: dict[str, pa.DataType] = {}
    for name, column in zip(names, table.itercolumns(), strict=True):
        part = number_array(column, name)
        if part is None:
            refused[name] = column.type
        else:
            parts.append(part)
    refuse_repeated_names(names)
    if refused:
        shown = list(refused)[:10]
        listed = ", ".join(f"{name!r} ({refused[name]})" for name in shown)
        more = ""
        if len(refused) > 10:
            more = f" and {len(refused) - 10} more"
        raise NotNumeric(
            f"columns {listed}{more} hold no numbers. Leave them out, encode them as numbers, or have an estimator learn "
            "them: feature_map=stream_dr.table().",
            columns=shown,
        )

    # A single column of vectors is the matrix. Its array is not copied if it is C-ordered.
    if len(parts) == 1 and parts[0].ndim == 2:
        return np.ascontiguousarray(parts[0]), None
    if not parts:
        return np.empty((table.num_rows, 0)), ()

    # Name the numbers of vectors. A column v0 may repeat a name of a column of vectors v.
    features: list[str] = []
    for name, part in zip(names, parts, strict=True):
        if part.ndim == 1:
            features.append(name)
        else:
            features += [f"{name}{j}" for j in range(part.shape[1])]
    if len(features) > len(names):
        refuse_repeated_names(features)
    return np.ascontiguousarray(np.column_stack(parts)), tuple(features)


def number_array(column: pa.Array | pa.ChunkedArray, column_name: str) -> np.ndarray | None:
    """Return a column of numbers as floats (rows,).

    A column of vectors is returned as (rows, length). float32 stays float32. A missing number is
    NaN. Floats without a missing number are not copied. Returns None if the column has no numbers.

    Raises InvalidRows, which names the first row whose vector is null or of another length.

    column_name: name of the column, for error messages.
    """
    # A single array of floats without nulls can be read without a copy. Otherwise `to_numpy` joins
    # the chunks of a ChunkedArray, and makes NaN of nulls.
    kind = column.type
    if kind.id in _FLOATS:
        if isinstance(column, pa.Array) and not column.null_count:
            return view_of_numbers(column)
        numbers: np.ndarray = column.to_numpy(zero_copy_only=False)
        return numbers

    if is_vector_type(kind):
        return _vector_array(column, column_name)

    # Convert other columns to a type that is handled above, and call this function again: extension
    # types to the type in which they are stored, all other numbers to float64 (`safe=False` rounds
    # large ones). A dictionary-encoded column is a category, and not numbers.
    if isinstance(kind, pa.BaseExtensionType):
        return number_array(column.cast(kind.storage_type), column_name)
    if is_numeric_type(kind) or pa.types.is_null(kind):
        return number_array(column.cast(pa.float64(), safe=False), column_name)
    return None


def _vector_array(vectors: pa.Array | pa.ChunkedArray, column_name: str) -> np.ndarray | None:
    """Return a column of vectors as an array (rows, length).

    Returns None if the vectors are not vectors of numbers. Raises InvalidRows as `number_array`.
    """
    refuse_nulls(vectors, column_name)

    # `flat` has the numbers of all vectors, row after row. Vectors of a fixed size are cut without
    # an Arrow kernel, because a kernel is slow for a batch of one row.
    if isinstance(vectors, pa.FixedSizeListArray):
        width = vectors.type.list_size
        flat = vectors.values.slice(vectors.offset * width, len(vectors) * width)
    else:
        width = _common_length(vectors, column_name)
        flat = pc.list_flatten(vectors)

    # Convert the numbers of all vectors at once. If the elements of the vectors are themselves
    # vectors, the result has two dimensions.
    numbers = number_array(flat, column_name)
    if numbers is None or numbers.ndim != 1:
        return None
    return numbers.reshape(len(vectors), width)


def _common_length(vectors: pa.Array | pa.ChunkedArray, column_name: str) -> int:
    """Return the one length that all vectors of a column have.

    Nulls are ignored. The result is 0 if there is no vector. Raises InvalidRows if two lengths
    differ.
    """
    if pa.types.is_fixed_size_list(vectors.type):
        return int(vectors.type.list_size)
    # `lengths` (rows,) has −1 for a null. `rows` are the indices of rows that have a vector.
    lengths = pc.list_value_length(vectors).fill_null(-1).to_numpy()
    rows = np.flatnonzero(lengths >= 0)
    if not len(rows):
        return 0
    first = rows[0]
    different = rows[lengths[rows] != lengths[first]]
    if len(different):
        row = int(different[0])
        raise InvalidRows(
            f"column {column_name!r} has {lengths[row]} numbers in row {row} and {lengths[first]} in row {first}; "
            "give vectors of one length.",
            row=row,
            column=column_name,
        )
    return int(lengths[first])


def refuse_nulls(column: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Raise InvalidRows if a column has a null.

    The error names the first row with a null.

    name: name of the column, for the error message.
    """
    if column.null_count:
        row = first_null_index(column)
        message = f"column {name!r} is null in row {row} of the batch; give a value or leave the row out."
        raise InvalidRows(message, row=row, column=name)


def first_null_index(array_with_null: pa.Array | pa.ChunkedArray) -> int:
    """Return the index of the first null of an array.

    array_with_null: array with at least one null.
    """
    # Return 0 for an array of the null type, which takes no memory and may be very long.
    if pa.types.is_null(array_with_null.type):
        return 0
    return int(array_with_null.is_null().index(True).as_py())


def is_vector_type(arrow_type: pa.DataType) -> bool:
    """Return True for the Arrow types list, large_list and fixed_size_list."""
    return arrow_type.id in _LISTS


def is_numeric_type(arrow_type: pa.DataType) -> bool:
    """Return True for the Arrow types of numbers and booleans."""
    return is_number_type(arrow_type) or bool(pa.types.is_boolean(arrow_type))


def is_number_type(arrow_type: pa.DataType) -> bool:
    """Return True for Arrow's types of integers, floats and decimals."""
    return arrow_type.id in _NUMBERS


def view_of_numbers(array: pa.Array) -> np.ndarray:
    """Return an Arrow array's numbers as a read-only view.

    The array must have no nulls. Costs O(1).
    """
    # Make a view of the buffer: `to_numpy` would release the interpreter lock for a moment.
    kind = _NUMPY_TYPES[array.type.id]
    if not len(array):
        return np.empty(0, kind)
    # An Arrow array of numbers has two buffers: the mask of nulls, and the numbers.
    numbers = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
    numbers.setflags(write=False)
    return numbers


def as_rows(X: Any) -> RowsAndNames:
    """Return rows as ndarray or CSR, with their column names.

    Sparse matrices of any scipy format become CSR. Tables are converted through Arrow. float32
    stays float32, and all other types become float64. A C-ordered array of floats is not copied.
    The names are None unless X is a table with named columns.

    X: rows (rows, features) of any kind except a Block.

    Raises:

    - NotNumeric if values are not numbers.
    - InvalidRows if X is not a table of rows and columns.
    - InvalidIndex for a sparse matrix with invalid index arrays.
    - NotFinite for a value that is NaN, infinite or too large.
    - SchemaMismatch or InvalidRows for a table of `table_from_arrow`, which may have texts. Only a
      feature map takes it.
    """
    X = open_rows(X)
    names = None
    rows: Rows
    if isinstance(X, np.ndarray):
        rows = _as_float_matrix(X)
    elif is_sparse(X):
        rows = sparse_as_csr(X)
    elif is_pandas(X) and all(map(_is_pandas_number, X.dtypes)):
        # numpy converts a single row of numbers ten times faster than Arrow.
        rows = _as_float_matrix(X.to_numpy())
        names = _column_names(X.columns)
    elif (table := as_table(X)) is not None:
        rows, names = as_matrix(table)
    else:
        # A table that was made for a feature map raises an error here. Any other X is a list, or of
        # unknown type.
        refuse_table(X)
        rows = _as_float_matrix(X)
    check_finite(rows)
    return rows, names


def _is_pandas_number(kind: object) -> bool:
    """True for the types of pandas columns that numpy converts to numbers."""
    # numpy's kinds: b is bool, i and u are integers, f is float, and c is complex, which is refused
    # later. Of pandas' own types, only sparse columns go this way.
    return (isinstance(kind, np.dtype) and kind.kind in "biufc") or str(kind).startswith("Sparse")


def _as_float_matrix(X: ArrayLike) -> np.ndarray:
    """Return an array or nested lists as floats (rows, features).

    The result is C-ordered. Raises InvalidRows or NotNumeric.
    """
    # A masked array is a subclass of ndarray. Its masked values become NaN.
    try:
        if type(X) is np.ndarray:
            array = X
        else:
            array = np.asarray(fill_masked(X))
    except ValueError as e:
        raise InvalidRows(f"rows are not a table ({e}); give every row the same number of features.") from e

    # If X is no list of rows, numpy makes an array without dimensions, of Python objects (kind O),
    # bytes (S) or text (U).
    if array.ndim == 0 and array.dtype.kind in "OSU":
        if isinstance(X, str | PathLike):
            raise NotNumeric(f"X is the text {str(X)[:80]!r}; stream_dr.fit(estimator, path, label=…) reads files.")
        raise NotNumeric(
            f"X is of type {type_name(X)}; pass an array, a scipy sparse matrix, a list of rows, or a pandas, polars or "
            "Arrow table. Batches that come one by one go to partial_fit."
        )
    if array.dtype not in (np.float32, np.float64):
        raise_if_complex(array)
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as e:
            # numpy raises TypeError for an object that is no number, and ValueError for a text.
            kind = InvalidRows
            if isinstance(e, TypeError):
                kind = NotNumeric
            raise kind(f"rows of dtype {array.dtype} are not numbers ({e}); pass numeric columns only.") from e

    if array.ndim != 2:
        raise InvalidRows(
            f"Expected 2D array, got {array.ndim}D array instead: rows must be (rows, features). "
            "Reshape your data with X.reshape(1, -1) for one row or X.reshape(-1, 1) for one feature."
        )
    return np.ascontiguousarray(array)


def _column_names(columns: Iterable[object]) -> tuple[str, ...] | None:
    """Return the names of a frame's columns, or None.

    A frame counts as having no names if it has no columns, or if a column's name is not a string.
    Raises InvalidRows if two columns have the same name.
    """
    names = tuple(str(name) for name in columns if isinstance(name, str))
    if not names or len(names) < len(list(columns)):
        return None
    refuse_repeated_names(names)
    return names


def table_from_arrow(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    """Convert Arrow data to a table for a feature map.

    Such a table is a record batch with columns of the few types that a feature map reads.

    Raises:

    - SchemaMismatch if a column has an unsupported type. The error names all of these columns.
    - NotFinite for a number that is infinite or too large.
    """
    # Join the record batches of a table. A table without rows may have no record batch.
    if isinstance(batch, pa.Table):
        parts = batch.to_batches() or [pa.RecordBatch.from_pylist([], schema=batch.schema)]
        batch = pa.concat_batches(parts)
    refuse_pandas_index(batch.schema.names)

    # Refuse columns of unsupported types. The error names all of them.
    refused = [field for field in batch.schema if not is_table_type(field.type)]
    if refused:
        listed = ", ".join(f"column {field.name} is {field.type}" for field in refused)
        raise SchemaMismatch(
            f"{listed}: not taken. Send numbers, bools, dates, times or strings, or leave it out.",
            column=refused[0].name,
        )

    # Convert the columns. A column of vectors becomes several columns.
    columns: list[tuple[str, pa.Array]] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if is_vector_type(field.type):
            columns += _split_vector_column(field.name, column)
        else:
            columns.append((field.name, _table_column(column)))
    return table_batch(columns, batch.num_rows)


def refuse_pandas_index(column_names: Iterable[str]) -> None:
    """Raise SchemaMismatch if a column is an index of pandas."""
    for name in column_names:
        if name.startswith("__index_level_"):
            raise SchemaMismatch(f"column {name} is a pandas index; convert with preserve_index=False.", column=name)


def columns_to_write(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return a table's columns by name, in types for writing.

    Texts become plain strings, and times are rounded to microseconds. Only categories stay
    dictionary-encoded, because `table_from_arrow` reads any dictionary-encoded column as a category.
    """
    columns = columns_by_name(rows)
    for name, column in columns.items():
        if column.type == TEXT:
            columns[name] = column.cast(pa.string())
        elif column_kind(column.type) == "time":
            columns[name] = pc.round_temporal(column, unit="microsecond").cast(pa.timestamp("us"))
    return columns


def is_table_type(arrow_type: pa.DataType) -> bool:
    """True if `table_from_arrow` can convert columns of this Arrow type."""
    # Vectors must have numbers or only nulls. The values of a category may have any other type.
    types = pa.types
    if is_vector_type(arrow_type):
        return is_numeric_type(arrow_type.value_type) or bool(types.is_null(arrow_type.value_type))
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    checks = (is_numeric_type, is_string_type, types.is_date, types.is_timestamp, types.is_null)
    return any(check(arrow_type) for check in checks)


def read_table(X: Any, names: tuple[str, ...] | None = None) -> pa.RecordBatch:
    """Return dense rows of any kind as a table for a feature map.

    Such rows are a frame, texts, dicts, a dense array or lists.

    X: rows of any kind that is not sparse.
    names: names of an array's columns. If None, the names are x0, x1, …

    Raises:

    - InvalidRows for sparse rows, and for objects that are not rows.
    - SchemaMismatch if a column has an unsupported type, or values of different types.
    - NotFinite for a number that is infinite or too large.
    """
    # A table that is already in the form for feature maps is returned as it is.
    X = open_rows(X)
    if is_table(X):
        return X

    if only_has(X, Mapping):
        return parse_date_columns(table_from_dicts(X))
    if only_has(X, str):
        X = pa.table({"text": X})
    # `table_from_array` raises the error for sparse rows.
    if is_sparse(X):
        rows, _ = as_rows(X)
        return table_from_array(rows, names)

    # `as_table` returns None if X is no frame.
    table = as_table(X)
    if table is not None:
        return table_from_arrow(table)
    return _read_dense_array(X, names)


def _read_dense_array(X: Any, names: tuple[str, ...] | None) -> pa.RecordBatch:
    """Return the rows of a dense array or of lists as a table.

    Objects of Python may be texts, so the type of each of their columns is inferred.
    """
    dense = np.asarray(fill_masked(X))
    if dense.dtype == object and dense.ndim == 2:
        names = names or default_column_names(dense)
        columns = [column_of_values(column.tolist(), name) for name, column in zip(names, dense.T, strict=True)]
        return table_from_arrow(pa.table(columns, list(names)))
    # numpy's kinds f, i, u and b are numbers and bools.
    if dense.dtype.kind in "fiub" and dense.ndim == 2:
        return table_from_array(dense, names)
    # `as_rows` raises an error if X is no kind of rows.
    rows, _ = as_rows(X)
    return table_from_array(rows, names)


def table_from_dicts(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return rows that are dicts as a table.

    The columns are those of `arrow_from_dicts`. Raises SchemaMismatch if a column has values of
    different or unsupported types. Raises InvalidRows if a column has vectors of different length.
    """
    table = arrow_from_dicts(rows)
    if table.num_columns:
        return table_from_arrow(table)
    return table_batch((), len(rows))


def is_string_type(arrow_type: pa.DataType) -> bool:
    """True for Arrow's types string, large_string and string_view."""
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def as_floats(decimals: pa.Array) -> pa.Array:
    """Return decimals as float64, and any other column unchanged."""
    if pa.types.is_decimal(decimals.type):
        return decimals.cast(pa.float64())
    return decimals


def _table_column(column: pa.Array) -> pa.Array:
    """Convert an Arrow array to one of the few types that a feature map's table has.

    Texts and categories become dictionary-encoded texts. Dates become days, and times lose their
    time zone. Booleans stay. Integers become int64, and all other numbers float64. Integers that
    float64 cannot represent become texts.

    column: array of a type for which `is_table_type` is true, and not of vectors.
    """
    # Convert categories and texts to dictionary-encoded texts. A table tells the two apart by the
    # flag `ordered`, which is set only for texts.
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _categories_as_texts(column)
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

    # Convert numbers. If float64 cannot represent an integer exactly, the column becomes texts.
    # `fmax` ignores NaN, which numpy has in the place of nulls.
    numbers = _float_column(column)
    if not pa.types.is_integer(kind):
        return numbers
    if np.fmax.reduce(np.abs(numbers), initial=0.0) > LARGEST_EXACT_INTEGER:
        return _table_column(column.cast(pa.string()))
    return column.cast(pa.int64())


def _categories_as_texts(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return categories of any type, such as numbers or dates, as categories of texts.

    Each distinct value that occurs is converted once, because many rows may share a long text.
    """
    # For example, rows with the codes (4, 2, 4) have the used codes (4, 2). The texts of their
    # values get the codes (0, 1), so the rows get the codes (0, 1, 0).
    used = column.indices.unique().drop_null()
    values = column.dictionary
    if values.type == pa.string_view():  # Arrow cannot take items of this type.
        values = values.cast(pa.string())
    # Every value can become a text, so no error needs the name of the column ("").
    texts = convert_column("", _table_column(values.take(used)), "text")
    codes = texts.indices.take(pc.index_in(column.indices, used))
    return pa.DictionaryArray.from_arrays(codes, texts.dictionary)


def _split_vector_column(name: str, column: pa.Array) -> list[tuple[str, pa.Array]]:
    """Return a column of vectors as columns of numbers.

    Column i has number i of every vector, and its name is `name` followed by i. If a row has no
    vector, the row's values are missing in all columns. Raises InvalidRows if the vectors are too
    long, or if they differ in length.

    name: name of the column of vectors.
    """
    # A column of nulls alone has no vector, so its length stays 0, and no column is returned.
    length = 0
    if column.null_count < len(column):
        length = _common_length(column, name)
    if length > LONGEST_VECTOR:
        raise InvalidRows(
            f"column {name} has vectors of {length} numbers; beside other columns up to {LONGEST_VECTOR} are taken. Send "
            "the vectors alone, or shorter ones.",
            column=name,
        )

    return [(f"{name}{i}", _float_column(pc.list_element(column, i))) for i in range(length)]


def _float_column(column: pa.Array) -> pa.Array:
    """Return a column's numbers as float64. NaN becomes null."""
    return pa.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), from_pandas=True)
