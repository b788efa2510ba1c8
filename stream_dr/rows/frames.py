"""frames: other libraries' tables, and streams of them, as Arrow tables, and Arrow columns as a matrix.

Cost of `matrix_of`: one copy; a single column of vectors of one length is not copied.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stream_dr.errors import EmptyInput, InvalidRows, NotNumeric
from stream_dr.rows.kinds import COLUMNAR, Kind, kind_of

Table = Any
"""A pyarrow.Table; pyarrow is imported where a table comes in."""


def tables_of(X: Any) -> Iterator[Table]:
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
        f"X is a {type_name(X)}, which hands over no batches; collect it first, or pass its batches one by one."
    )


def table_of(X: Any) -> Table | None:
    """X as one pyarrow.Table, a column of vectors as a table of one column without a name; None for what is no table.

    Rows may also be dicts, one column a key. An index of pandas is left out.
    """
    kind = kind_of(X)
    if kind is not Kind.DICTS and kind not in COLUMNAR:
        return None
    import narwhals
    import pyarrow as pa

    if kind is Kind.DICTS:
        return pa.Table.from_pylist(list(X))
    if isinstance(X, pa.Table | pa.RecordBatch):
        return pa.table(X)
    if kind is Kind.STREAM:
        return pa.concat_tables(tables_of(X))
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
            f"columns {', '.join(odd[:10])}{more} hold no numbers. Leave them out, encode them as numbers, or have an "
            "estimator learn them: feature_map=stream_dr.table()."
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


def type_name(X: Any) -> str:
    """What an error calls an object of no kind that is known."""
    return f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
