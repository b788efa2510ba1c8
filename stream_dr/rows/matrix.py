"""Convert Arrow columns to a matrix.

Frames of other libraries, files, payloads of the service and events of the log are converted here.
`as_matrix` copies the data once. If the only column is a column of vectors of equal length,
`as_matrix` copies nothing.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.errors import InvalidRows, NotNumeric
from stream_dr.rows.frames import RowsAndNames
from stream_dr.rows.raw_rows import repeated_name_error

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
    # Convert each column, and refuse the table if a column has no numbers.
    names = table.schema.names
    parts: list[np.ndarray] = []
    refused: dict[str, pa.DataType] = {}
    for name, column in zip(names, table.itercolumns(), strict=True):
        part = number_array(column, name)
        if part is None:
            refused[name] = column.type
        else:
            parts.append(part)
    if repeated := repeated_name_error(names):
        raise repeated
    if refused:
        shown = list(refused)[:10]
        listed = ", ".join(f"{name!r} ({refused[name]})" for name in shown)
        more = f" and {len(refused) - 10} more" if len(refused) > 10 else ""
        raise NotNumeric(
            f"columns {listed}{more} hold no numbers. Leave them out, encode them as numbers, or have an estimator learn "
            "them: feature_map=stream_dr.table().",
            columns=shown,
        )

    # A single column of vectors is the matrix. Its array is not copied if it is C-ordered.
    if len(parts) == 1 and parts[0].ndim == 2:
        return RowsAndNames(np.ascontiguousarray(parts[0]), None)
    if not parts:
        return RowsAndNames(np.empty((table.num_rows, 0)), ())

    # Name the numbers of vectors. A column v0 may repeat a name of a column of vectors v.
    features: list[str] = []
    for name, part in zip(names, parts, strict=True):
        if part.ndim == 1:
            features.append(name)
        else:
            features += [f"{name}{j}" for j in range(part.shape[1])]
    if len(features) > len(names) and (repeated := repeated_name_error(features)):
        raise repeated
    return RowsAndNames(np.ascontiguousarray(np.column_stack(parts)), tuple(features))


def number_array(column: pa.Array | pa.ChunkedArray, column_name: str) -> np.ndarray | None:
    """Return a column of numbers as floats (rows,).

    A column of vectors is returned as (rows, length). float32 stays float32. A missing number is
    NaN. Floats without a missing number are not copied. Returns None if the column has no numbers.

    Raises InvalidRows, which names the first row whose vector is null or of another length.

    column_name: name of the column, for error messages.
    """
    kind = column.type
    if kind.id in _FLOATS:
        if isinstance(column, pa.Array) and not column.null_count:
            return view_of_numbers(column)
        numbers: np.ndarray = column.to_numpy(zero_copy_only=False)
        return numbers

    if is_vector_type(kind):
        return _vector_array(column, column_name)

    # Replace extension types by the values that they store. A dictionary is a category.
    if isinstance(kind, pa.BaseExtensionType):
        return number_array(column.cast(kind.storage_type), column_name)
    if is_number_or_boolean_type(kind) or pa.types.is_null(kind):
        return number_array(column.cast(pa.float64(), safe=False), column_name)
    return None


def _vector_array(vectors: pa.Array | pa.ChunkedArray, column_name: str) -> np.ndarray | None:
    """Return a column of vectors as an array (rows, length).

    Returns None if the vectors are not vectors of numbers. Raises InvalidRows as `number_array`.
    """
    refuse_nulls(vectors, column_name)

    # Vectors of a fixed size have one length. They are cut without a kernel, which is fast for one row.
    if isinstance(vectors, pa.FixedSizeListArray):
        width = vectors.type.list_size
        flat = vectors.values.slice(vectors.offset * width, len(vectors) * width)
    else:
        width = _common_length(vectors, column_name)
        flat = pc.list_flatten(vectors)

    # Convert the numbers of all vectors at once.
    numbers = number_array(flat, column_name)
    if numbers is None or numbers.ndim != 1:
        return None
    return numbers.reshape(len(vectors), width)


def _common_length(vectors: pa.Array | pa.ChunkedArray, column_name: str) -> int:
    """Return the length of all vectors. Raises InvalidRows if they differ."""
    if pa.types.is_fixed_size_list(vectors.type):
        return int(vectors.type.list_size)
    lengths = pc.list_value_length(vectors).to_numpy()
    different = np.flatnonzero(lengths != lengths[:1])
    if len(different):
        row = int(different[0])
        raise InvalidRows(
            f"column {column_name!r} has {lengths[row]} numbers in row {row} and {lengths[0]} in row 0; "
            "give vectors of one length.",
            row=row,
            column=column_name,
        )
    return int(lengths[0]) if len(lengths) else 0


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
    return int(np.flatnonzero(array_with_null.is_null().to_numpy(zero_copy_only=False))[0])


def is_vector_type(arrow_type: pa.DataType) -> bool:
    """Return True for the Arrow types list, large_list and fixed_size_list."""
    return arrow_type.id in _LISTS


def is_number_or_boolean_type(arrow_type: pa.DataType) -> bool:
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
    numbers = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
    numbers.setflags(write=False)
    return numbers
