"""Convert tables of other libraries to Arrow tables.

A stream of tables is converted one table after the other.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stream_dr.errors import EmptyInput, InvalidRows
from stream_dr.rows.interfaces import ArrowArray, ArrowScanner, ArrowStream, LazyBatches, NarwhalsFrame
from stream_dr.rows.kinds import COLUMNAR, Kind, rows_kind

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


def type_name(X: object) -> str:
    """Return the name of an object's type, for error messages."""
    return f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
