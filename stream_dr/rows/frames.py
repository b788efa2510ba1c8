"""Convert tables of other libraries to Arrow tables and matrices.

A stream of tables is converted one table after the other. `as_matrix` copies the data once. If the
only column is a column of vectors of equal length, `as_matrix` copies nothing.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stream_dr.errors import EmptyInput, InvalidRows, NotNumeric
from stream_dr.rows.interfaces import ArrowArray, ArrowScanner, ArrowStream, LazyBatches, NarwhalsFrame
from stream_dr.rows.kinds import COLUMNAR, Kind, rows_kind
from stream_dr.rows.raw_rows import repeated_name_error

# At run time, pyarrow is imported only when a table is passed in.
if TYPE_CHECKING:
    import pyarrow as pa


class RowsAndNames(NamedTuple):
    """Rows (rows, features) and the names of their columns.

    The rows are dense or CSR. The names may be None.
    """

    rows: Any
    names: tuple[str, ...] | None


def iterate_arrow_tables(X: object) -> "Iterator[pa.Table]":
    """Yield the tables of a stream as Arrow tables.

    Raises EmptyInput for a reader that was already read to its end. Raises InvalidRows for a lazy
    frame that cannot be read in batches.

    X: stream of tables (an Arrow reader, data set or scanner, or a lazy frame).
    """
    import pyarrow as pa

    # A batch is an Arrow record batch, or a frame of the library that created the stream.
    batches: Iterable[object]
    native = X.to_native() if isinstance(X, NarwhalsFrame) else X
    if isinstance(native, ArrowScanner):
        batches = native.to_batches()
    elif isinstance(native, LazyBatches):
        batches = native.collect_batches()
    elif isinstance(native, ArrowStream):
        batches = pa.RecordBatchReader.from_stream(native)
    else:
        raise InvalidRows(
            f"X is a {type_name(native)}, which hands over no batches; collect it first, or pass its batches one by one."
        )

    is_empty = True
    for batch in batches:
        is_empty = False
        yield pa.table(batch)
    if is_empty and isinstance(X, pa.RecordBatchReader):
        raise EmptyInput("the reader has no batch left: it can be read once. Open it again.")


def as_table(X: Any, kind: Kind | None = None) -> "pa.Table | None":
    """Return X as an Arrow table, or None if X is no table.

    A column of vectors becomes a table of one column without a name. Rows that are dicts become a
    table whose columns are the keys. The index of a pandas frame is dropped.

    kind: kind of X as `rows_kind` returns it. If None, `rows_kind` is called.
    """
    # pyarrow and narwhals are imported only if X is a table.
    kind = kind or rows_kind(X)
    if kind is not Kind.DICTS and kind not in COLUMNAR:
        return None
    import narwhals
    import pyarrow as pa

    if kind is Kind.DICTS:
        return pa.Table.from_pylist(list(X))
    if isinstance(X, pa.Table | pa.RecordBatch):
        return pa.table(X)
    if kind is Kind.STREAM:
        return pa.concat_tables(iterate_arrow_tables(X))

    # Convert frames and series of libraries that narwhals supports. Drop a pandas frame's index.
    frame = narwhals.from_native(X, pass_through=True, allow_series=True)
    if isinstance(frame, narwhals.DataFrame):
        table = frame.to_arrow()
        return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])

    # A single column is a table only if its values are vectors.
    column = None
    if isinstance(frame, narwhals.Series):
        column = frame.to_arrow()
    elif isinstance(X, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(X.type):
        column = X
    if column is not None:
        if not pa.types.is_nested(column.type):
            return None
        return pa.table([column], [""])

    # Convert other objects with Arrow's interface.
    if isinstance(X, ArrowStream | ArrowArray):
        return pa.table(X)
    return None


def as_matrix(table: "pa.Table") -> RowsAndNames:
    """Return a table as a matrix with its feature names.

    The matrix (rows, features) is float32 if all columns are float32, else float64. A missing
    number is NaN. A column `v` of vectors of equal length becomes the features v0, v1, … If `v` is
    the only column, the names are None.

    Raises NotNumeric, which names the columns without numbers. Raises InvalidRows if two columns
    have the same name, or if the vectors of a column differ in length.
    """
    # Convert each column, and refuse the table if a column has no numbers.
    parts = {name: _numeric_array_or_none(table.column(i), name) for i, name in enumerate(table.column_names)}
    if repeated := repeated_name_error(table.column_names):
        raise repeated
    refused = [name for name, part in parts.items() if part is None]
    if refused:
        listed = ", ".join(f"{name!r} ({table.schema.field(name).type})" for name in refused[:10])
        more = f" and {len(refused) - 10} more" if len(refused) > 10 else ""
        raise NotNumeric(
            f"columns {listed}{more} hold no numbers. Leave them out, encode them as numbers, or have an estimator learn "
            "them: feature_map=stream_dr.table().",
            columns=refused[:10],
        )

    # A single column of vectors is the matrix. Its array is not copied if it is C-ordered.
    numbers = {name: part for name, part in parts.items() if part is not None}
    if len(numbers) == 1 and next(iter(numbers.values())).ndim == 2:
        return RowsAndNames(np.ascontiguousarray(next(iter(numbers.values()))), None)

    # Copy the columns into one matrix. A column v0 may repeat a name of a column of vectors v.
    names: list[str] = []
    for name, part in numbers.items():
        names += [name] if part.ndim == 1 else [f"{name}{j}" for j in range(part.shape[1])]
    if repeated := repeated_name_error(names):
        raise repeated
    single = bool(numbers) and all(part.dtype == np.float32 for part in numbers.values())
    X = np.empty((table.num_rows, len(names)), np.float32 if single else np.float64)
    start = 0
    for part in numbers.values():
        width = 1 if part.ndim == 1 else part.shape[1]
        X[:, start : start + width] = part.reshape(-1, width)
        start += width
    return RowsAndNames(X, tuple(names))


def _numeric_array_or_none(column: "pa.Array | pa.ChunkedArray", column_name: str) -> np.ndarray | None:
    """Return a numeric column as an array (rows,).

    Returns None if the column has no numbers. A column of vectors is returned as (rows, length).

    column_name: name of the column, for error messages.
    """
    import pyarrow as pa

    # Replace extension types by the values that they store. A dictionary is a category.
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        kind = column.type

    if pa.types.is_nested(kind) and not pa.types.is_struct(kind) and not pa.types.is_map(kind):
        return _vector_array_if_numeric(column, column_name)
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    numbers: np.ndarray = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    if numbers.dtype in (np.float32, np.float64):
        return numbers
    return numbers.astype(np.float64)


def _vector_array_if_numeric(list_column: "pa.Array | pa.ChunkedArray", column_name: str) -> np.ndarray | None:
    """Return a column of vectors as an array (rows, length).

    All vectors must have the same length. Returns None if the vectors are not vectors of numbers.
    Raises InvalidRows, which names the first row whose vector is null or of another length.

    column_name: name of the column, for error messages.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if list_column.null_count:
        row = pc.index(pc.is_null(list_column), True).as_py()
        raise InvalidRows(f"column {column_name!r} is null in row {row}; give a vector or leave the row out.", row=row)
    lengths = pc.list_value_length(list_column).to_numpy()
    different = np.flatnonzero(lengths != lengths[:1])
    if len(different):
        row = int(different[0])
        raise InvalidRows(
            f"column {column_name!r} has {lengths[row]} numbers in row {row} and {lengths[0]} in row 0; "
            "vectors have one length.",
            row=row,
        )

    # Convert the numbers of all vectors at once.
    flat = _numeric_array_or_none(pc.list_flatten(list_column), column_name)
    declared = list_column.type.list_size if pa.types.is_fixed_size_list(list_column.type) else 0
    width = int(lengths[0]) if len(lengths) else declared
    if flat is None or flat.ndim != 1:
        return None
    return flat.reshape(len(list_column), width)


def type_name(X: object) -> str:
    """Return the name of an object's type, for error messages."""
    return f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
