"""Open the rows that a caller passes, and convert tables to Arrow tables and matrices.

`open_rows` finds out once what the rows are. All other code sees only the forms that it returns.

A stream of tables is converted one table after the other. `as_matrix` copies the data once. If the
only column is a column of vectors of equal length, `as_matrix` copies nothing.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, NamedTuple

import narwhals
import numpy as np
import pyarrow as pa

from stream_dr.errors import EmptyInput, InvalidRows, NotNumeric
from stream_dr.rows.interfaces import ArrowArray, ArrowScanner, ArrowStream, LazyBatches
from stream_dr.rows.raw_rows import RawRows, repeated_name_error
from stream_dr.rows.sparse_rows import is_sparse


class RowsAndNames(NamedTuple):
    """Rows (rows, features) and the names of their columns.

    The rows are dense or CSR. The names may be None.
    """

    rows: Any
    names: tuple[str, ...] | None


class TableStream:
    """Arrow tables that are read one after the other.

    Iteration raises EmptyInput for a reader that was already read to its end. It raises InvalidRows
    for a lazy frame that cannot be read in batches.

    source: Arrow reader, data set or scanner, or a lazy frame.
    """

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the tables."""
        # A batch is an Arrow record batch, or a frame of the library that created the stream.
        batches: Iterable[object]
        if isinstance(self.source, ArrowScanner):
            batches = self.source.to_batches()
        elif isinstance(self.source, LazyBatches):
            batches = self.source.collect_batches()
        elif isinstance(self.source, ArrowStream):
            batches = pa.RecordBatchReader.from_stream(self.source)
        else:
            raise InvalidRows(
                f"X is a {type_name(self.source)}, which hands over no batches; collect it first, or pass its batches one "
                "by one."
            )

        is_empty = True
        for batch in batches:
            is_empty = False
            yield pa.table(batch)
        if is_empty and isinstance(self.source, pa.RecordBatchReader):
            raise EmptyInput("the reader has no batch left: it can be read once. Open it again.")


def open_rows(X: Any) -> Any:
    """Return rows in one of the forms that the library reads.

    The forms are an array, a list, a scipy matrix, RawRows, a pandas frame, a Dask array or frame,
    an Arrow table and a TableStream. Objects of unknown types are returned unchanged.

    A column of vectors or texts becomes a table. A column of numbers is not one, since rows have
    two dimensions.
    """
    if isinstance(X, np.ndarray):
        is_list = X.ndim == 1 and X.dtype.kind in "OUT"
        return X.tolist() if is_list else X
    if isinstance(X, list | tuple | RawRows | TableStream) or is_sparse(X) or is_pandas(X) or is_dask(X):
        return X

    # narwhals would raise an error for a table in which two columns have the same name.
    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.table(X)
    if isinstance(X, ArrowScanner):
        return TableStream(X)
    if isinstance(X, pa.Array) and not pa.types.is_struct(X.type):
        X = pa.chunked_array([X])

    # Convert frames and columns of libraries that narwhals supports.
    frame: Any = narwhals.from_native(X, pass_through=True, allow_series=True)
    if isinstance(frame, narwhals.LazyFrame):
        return TableStream(frame.to_native())
    if isinstance(frame, narwhals.Series):
        if frame.dtype.is_numeric() or frame.dtype == narwhals.Boolean:
            return X
        frame = frame.alias("text").to_frame()
    if isinstance(frame, narwhals.DataFrame):
        native = frame.to_native()
        return native if is_pandas(native) else frame.to_arrow().select(frame.columns)

    # Convert other objects with Arrow's interface.
    is_stream = isinstance(X, ArrowStream)
    if isinstance(X, ArrowArray) or (is_stream and isinstance(X, Sized)):
        return pa.table(X)
    return TableStream(X) if is_stream else X


def is_pandas(X: object) -> bool:
    """True if X is a pandas frame."""
    # If pandas is not loaded, X cannot be a frame. Loading it here would take time.
    loaded = sys.modules.get("pandas")
    return loaded is not None and isinstance(X, loaded.DataFrame)


def is_dask(X: object, modules: str | tuple[str, ...] = ("dask.array", "dask.dataframe")) -> bool:
    """True if X is a Dask array or dataframe.

    modules: modules that may have the type of X.
    """
    return type(X).__module__.startswith(modules)


def only_has(X: object, kind: type) -> bool:
    """True if X is a list or tuple whose rows are all of one type.

    Costs O(rows). An empty list has rows of no type.
    """
    return isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(row, kind) for row in X)


def as_table(X: Any) -> pa.Table | None:
    """Return opened rows as an Arrow table, or None if they are no table.

    Rows that are dicts become a table whose columns are the keys. The index of a pandas frame is
    dropped.
    """
    if isinstance(X, pa.Table):
        return X
    if only_has(X, Mapping):
        return pa.Table.from_pylist(list(X))
    if is_pandas(X):
        try:
            return pa.Table.from_pandas(X, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise InvalidRows(
                f"the rows are no table ({e}); pass a pandas, polars or Arrow table, or a list of dicts."
            ) from e
    return pa.concat_tables(X) if isinstance(X, TableStream) else None


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
