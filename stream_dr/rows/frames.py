"""Open the rows that a caller passes, and convert tables to Arrow tables.

`open_rows` finds out once what the rows are. All other code sees only the forms that it returns.

A stream of tables is converted one table after the other.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, TypeAlias

import narwhals
import numpy as np
import pyarrow as pa

from stream_dr.errors import EmptyInput, InvalidRows, SchemaMismatch
from stream_dr.rows.interfaces import ArrowArray, ArrowScanner, ArrowStream, LazyBatches
from stream_dr.rows.raw_rows import is_table
from stream_dr.rows.sparse_rows import is_sparse

RowsAndNames: TypeAlias = tuple[Any, tuple[str, ...] | None]
"""Rows (rows, features), dense or CSR, and the names of their columns or None."""


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

    The forms are an array, a list, a scipy matrix, a table for a feature map, a pandas frame, a Dask array or frame,
    an Arrow table and a TableStream. Objects of unknown types are returned unchanged.

    A column of vectors or texts becomes a table. A column of numbers is not one, since rows have
    two dimensions.
    """
    if isinstance(X, np.ndarray):
        is_list = X.ndim == 1 and X.dtype.kind in "OUT"
        return X.tolist() if is_list else X
    if isinstance(X, list | tuple | TableStream) or is_table(X) or is_sparse(X) or is_pandas(X) or is_dask(X):
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
        return table_of_dicts(X)
    if is_pandas(X):
        try:
            return pa.Table.from_pandas(X, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise InvalidRows(
                f"the rows are no table ({e}); pass a pandas, polars or Arrow table, or a list of dicts."
            ) from e
    return pa.concat_tables(X) if isinstance(X, TableStream) else None


def type_name(X: object) -> str:
    """Return the name of an object's type, for error messages."""
    return f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")


def table_of_dicts(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    """Return rows that are dicts as an Arrow table.

    The columns are the keys of all rows, in order of appearance. A value is missing if it is None
    or NaN, or if the row does not have the key. Raises SchemaMismatch if a column has values of
    different types.
    """
    keys = dict.fromkeys(key for row in rows for key in row)
    return pa.table({str(key): column_of_values([row.get(key) for row in rows], str(key)) for key in keys})


def column_of_values(values: list[Any], column_name: str) -> pa.Array:
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
