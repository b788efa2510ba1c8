"""frames: other libraries' tables as Arrow tables, and Arrow columns as a matrix.

pandas and polars frames, Arrow tables and batches, and whatever else narwhals knows or offers Arrow's C stream are tables.
Readers, Arrow data sets and scanners, polars LazyFrames and DuckDB relations are streams: they hand over their rows batch by
batch, and are never held whole.

Cost of `matrix_of`: one copy; a single column of vectors of one length is not copied.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stream_dr.errors import EmptyInput, InvalidRows, InvalidTargets, NotNumeric, SchemaMismatch

Table = Any
"""A pyarrow.Table; pyarrow is imported where a table comes in."""


def is_frame(X: Any) -> bool:
    """Whether X is a table, a column, a list of dicts, or a stream; pandas frames of numbers alone are left to numpy."""
    if isinstance(X, np.ndarray | list | tuple):
        return isinstance(X, list) and bool(X) and all(isinstance(row, dict) for row in X)
    if hasattr(X, "iloc"):
        types = list(getattr(X, "dtypes", [])) if getattr(X, "ndim", 1) == 2 else [X.dtype]
        return any(kind == np.dtype(object) or not isinstance(kind, np.dtype) for kind in types) and not hasattr(
            X, "sparse"
        )
    return is_stream(X) or hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")


def is_stream(X: Any) -> bool:
    """Whether X hands over its rows batch by batch."""
    if isinstance(X, np.ndarray | list | tuple) or any(hasattr(X, name) for name in ("iloc", "indptr", "num_columns")):
        return False
    if hasattr(X, "to_batches") and hasattr(X, "count_rows"):  # an Arrow data set or scanner
        return True
    import narwhals

    known = narwhals.from_native(X, pass_through=True, allow_series=True)
    if isinstance(known, narwhals.LazyFrame):
        return True
    return known is X and hasattr(X, "__arrow_c_stream__") and not hasattr(X, "__len__")


def parts(X: Any, y: Any = None) -> Iterator[tuple[Any, Any]]:
    """(rows, targets) of what is given to learn: a stream's batches, or X and y as they are; y may name a column of X.

    A stream's empty batches are left out, as long as there are others. Raises InvalidTargets where a stream's targets are
    no column of its own, SchemaMismatch where there is no such column.
    """
    if not is_stream(X):
        yield split(X, y)
        return
    if y is not None and not isinstance(y, str):
        raise InvalidTargets(
            f"X is a {_name(X)}, read batch by batch, and y a {_name(y)}: name the column of X that holds the targets."
        )
    empty, some = None, False
    for table in batches_of(X):
        given = (table, None) if y is None else split(table, y)
        if table.num_rows:
            some = True
            yield given
        else:
            empty = given
    if empty is not None and not some:
        yield empty


def split(X: Any, y: Any) -> tuple[Any, Any]:
    """X and y, as they are unless y names a column of the table X: then the table without it, and the column.

    Raises SchemaMismatch where there is no such column.
    """
    if not isinstance(y, str):
        return X, y
    if hasattr(X, "iloc") and getattr(X, "ndim", 1) == 2:
        columns, table = list(X.columns), X
    else:
        table = table_of(X) if is_frame(X) else None
        if table is None:
            return X, y
        columns = table.column_names
    if y not in columns:
        raise SchemaMismatch(f"X has no column {y!r} for the targets; it has {columns[:10]}.", column=y)
    return (table.drop(columns=y) if hasattr(X, "iloc") else table.drop_columns([y])), table[y]


def batches_of(X: Any) -> Iterator[Table]:
    """The tables that a stream hands over, one after the other.

    Raises EmptyInput for a reader that is at its end, and InvalidRows for a lazy frame that gives no batches.
    """
    import pyarrow as pa

    none = True
    for batch in _handed_over(X):
        none = False
        yield pa.table(batch)
    if none and isinstance(X, pa.RecordBatchReader):
        raise EmptyInput("the reader has no batch left: it can be read once. Open it again.")


def _handed_over(X: Any) -> Iterator[Any]:
    import pyarrow as pa

    X = X.to_native() if hasattr(X, "to_native") else X
    if hasattr(X, "count_rows"):
        return iter(X.to_batches())
    if hasattr(X, "collect_batches"):
        return iter(X.collect_batches())
    if hasattr(X, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(X))
    raise InvalidRows(
        f"X is a {_name(X)}, which hands over no batches; collect it first, or pass its batches one by one."
    )


def table_of(X: Any) -> Table | None:
    """X as one pyarrow.Table, a column of vectors as a table of one column without a name; None for what is no table.

    Rows may also be dicts, one column a key. An index of pandas is left out.
    """
    import narwhals
    import pyarrow as pa

    if isinstance(X, list):
        return pa.Table.from_pylist(X)
    if isinstance(X, pa.Table | pa.RecordBatch):
        return pa.table(X)
    if is_stream(X):
        return pa.concat_tables(batches_of(X))
    known = narwhals.from_native(X, pass_through=True, allow_series=True)
    if isinstance(known, narwhals.Series):
        return _column(known.to_arrow())
    if isinstance(known, narwhals.DataFrame):
        table = known.to_arrow()
        return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
    if isinstance(X, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(X.type):
        return _column(X)
    return pa.table(X) if hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__") else None


def _column(column: Any) -> Table | None:
    import pyarrow as pa

    return pa.table([column], [""]) if pa.types.is_nested(column.type) else None


def matrix_of(table: Table) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """A table's columns as (rows, features), float32 if all are, else float64, and the features' names.

    A column of vectors of one length gives a feature a place, called by the column and the place; vectors alone have no
    names. A missing number is NaN. Raises NotNumeric naming every column that holds no numbers, and InvalidRows.
    """
    parts = {name: _numbers(table.column(i), name) for i, name in enumerate(table.column_names)}
    if len(parts) < table.num_columns:
        twice = next(n for i, n in enumerate(table.column_names) if n in table.column_names[:i])
        raise InvalidRows(f"two columns are called {twice!r}; give every column a name of its own.")
    odd = [f"{name!r} ({table.schema.field(name).type})" for name, part in parts.items() if part is None]
    if odd:
        more = f" and {len(odd) - 10} more" if len(odd) > 10 else ""
        raise NotNumeric(
            f"columns {', '.join(odd[:10])}{more} hold no numbers. Leave them out, or encode them as numbers."
        )
    found = {name: part for name, part in parts.items() if part is not None}
    if len(found) == 1 and next(iter(found.values())).ndim == 2:
        return np.ascontiguousarray(next(iter(found.values()))), None
    names = [n for name, part in found.items() for n in _names(name, part)]
    single = bool(found) and all(part.dtype == np.float32 for part in found.values())
    X = np.empty((table.num_rows, len(names)), np.float32 if single else np.float64)
    at = 0
    for part in found.values():
        width = 1 if part.ndim == 1 else part.shape[1]
        X[:, at : at + width] = part.reshape(-1, width)
        at += width
    return X, tuple(names)


def _names(name: str, part: np.ndarray) -> list[str]:
    return [name] if part.ndim == 1 else [f"{name}{j}" for j in range(part.shape[1])]


def _numbers(column: Any, name: str) -> np.ndarray | None:
    """A column as (rows,) or, of vectors, (rows, length); None where it holds no numbers."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind) and not pa.types.is_map(kind):
        return _vectors(column, name)
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    numbers = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return numbers if numbers.dtype in (np.float32, np.float64) else numbers.astype(np.float64)


def _vectors(column: Any, name: str) -> np.ndarray | None:
    """Vectors of one length (rows, length). Raises InvalidRows naming the first row that is null or of another length."""
    import pyarrow.compute as pc

    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InvalidRows(f"column {name!r} is null in row {row}; give a vector or leave the row out.", row=row)
    lengths = pc.list_value_length(column).to_numpy()
    odd = np.flatnonzero(lengths != lengths[:1])
    if len(odd):
        row = int(odd[0])
        raise InvalidRows(
            f"column {name!r} has {lengths[row]} numbers in row {row} and {lengths[0]} in row 0; vectors have one length.",
            row=row,
        )
    flat = _numbers(pc.list_flatten(column), name)
    width = int(lengths[0]) if len(lengths) else getattr(column.type, "list_size", 0)
    return None if flat is None or flat.ndim != 1 else flat.reshape(len(column), width)


def _name(X: Any) -> str:
    return f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
