"""Open the rows that a caller passes, and divide them into batches.

`open_rows` finds out once what the rows are. All other code sees only the forms that it returns.
`as_block` puts opened rows, targets and weights into one Block. `batches` yields the batches of a
Block: one batch, or one for each table of a stream. One table of a stream is in memory at a time.
The targets may be a column of the rows.

A Source yields a stream's batches for every pass of `refine`, which makes an approximate solution
exact. A source may be data in memory, shards, a directory's log, or any object with a method
`events`.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Protocol, TypeAlias, runtime_checkable

import narwhals
import numpy as np
import pyarrow as pa

from stream_dr.batch.block import Block
from stream_dr.batch.sparse import is_sparse
from stream_dr.batch.table import is_table, refuse_repeated_names
from stream_dr.errors import EmptyInput, InvalidParameter, InvalidRows, InvalidTargets, SchemaMismatch, did_you_mean


@runtime_checkable
class ArrowStream(Protocol):
    """Table that can be read through Arrow's C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the data as a capsule with a C stream."""


@runtime_checkable
class ArrowArray(Protocol):
    """Table or column with Arrow's C array interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return the data as capsules with a C array."""


@runtime_checkable
class ArrowScanner(Protocol):
    """Arrow data set or scanner, which reads its rows in batches."""

    def to_batches(self) -> Iterable[object]:
        """Return the record batches, one after the other."""

    def count_rows(self) -> int:
        """Return the number of rows."""


@runtime_checkable
class LazyBatches(Protocol):
    """Lazy frame that computes its rows batch by batch."""

    def collect_batches(self) -> Iterable[object]:
        """Compute the frame's rows, and return them as an iterable of smaller frames."""


@runtime_checkable
class Shaped(Protocol):
    """Array or table with a known shape."""

    shape: tuple[int, ...]


@runtime_checkable
class NumpyArrayLike(Protocol):
    """Object that numpy converts to an array."""

    def __array__(self) -> np.ndarray:
        """Return the values of the rows or targets as a numpy array."""


@runtime_checkable
class NumpyConvertible(Protocol):
    """Column or table with a method that returns a numpy array."""

    def to_numpy(self) -> np.ndarray:
        """Return the values as a numpy array."""


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
        """Yield one table for each batch that the source yields."""
        # A batch is an Arrow record batch, or a frame of the library that created the stream. The
        # stream is a pyarrow dataset or scanner, a lazy frame of polars, or an Arrow C stream.
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

    Returned unchanged are arrays, lists, scipy matrices, pandas frames, Dask arrays and frames,
    Arrow tables, TableStreams, and tables in the form for a feature map. Frames of other libraries
    become Arrow tables. Lazy frames and Arrow streams become TableStreams. A single column of texts
    or vectors becomes an Arrow table.

    Any other object is returned unchanged, and refused when its rows are read. So is a single
    column of numbers, because its rows lack a second dimension.
    """
    # A numpy array with one dimension of texts or objects becomes a list of rows.
    if isinstance(X, np.ndarray):
        if X.ndim == 1 and X.dtype.kind in "OUT":
            return X.tolist()
        return X
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
        # A column of texts or vectors becomes a frame, under the name that the map `text` expects.
        frame = frame.alias("text").to_frame()
    if isinstance(frame, narwhals.DataFrame):
        native = frame.to_native()
        if is_pandas(native):
            return native
        return frame.to_arrow().select(frame.columns)

    # Convert other objects with Arrow's interface. An object of known length is one table in
    # memory.
    is_stream = isinstance(X, ArrowStream)
    if isinstance(X, ArrowArray) or (is_stream and isinstance(X, Sized)):
        return pa.table(X)
    if is_stream:
        return TableStream(X)
    return X


def is_pandas(X: object) -> bool:
    """True if X is a pandas frame."""
    # If pandas is not loaded, X cannot be a frame. Loading it here would take time.
    loaded = sys.modules.get("pandas")
    return loaded is not None and isinstance(X, loaded.DataFrame)


def is_dask(X: object, modules: str | tuple[str, ...] = ("dask.array", "dask.dataframe")) -> bool:
    """True if X is a Dask array or dataframe.

    modules: names of modules, one of which must define the type of X.
    """
    return type(X).__module__.startswith(modules)


def only_has(X: object, kind: type) -> bool:
    """True if X is a list or tuple whose rows are all of the type `kind`.

    False for an empty list. Costs O(rows).
    """
    return isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(row, kind) for row in X)


def as_table(X: Any) -> pa.Table | None:
    """Return opened rows as an Arrow table, or None if they are no table.

    Opened rows have one of the forms that `open_rows` returns. Rows that are dicts become a table
    whose columns are the keys. The index of a pandas frame is dropped.
    """
    if isinstance(X, pa.Table):
        return X
    if only_has(X, Mapping):
        return arrow_from_dicts(X)
    if is_pandas(X):
        try:
            return pa.Table.from_pandas(X, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise InvalidRows(
                f"the rows are no table ({e}); pass a pandas, polars or Arrow table, or a list of dicts."
            ) from e
    if isinstance(X, TableStream):
        return pa.concat_tables(X)
    return None


def type_name(X: object) -> str:
    """Return the name of an object's type, for error messages."""
    return f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")


def arrow_from_dicts(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    """Return rows that are dicts as an Arrow table.

    The columns are the keys of all rows, in order of appearance. A value is missing if it is None
    or NaN, or if the row does not have the key. Raises SchemaMismatch if a column has values of
    different types.
    """
    # A dict of the keys has no key twice. But different keys, such as 1 and "1", may give one name.
    keys = dict.fromkeys(key for row in rows for key in row)
    names = [str(key) for key in keys]
    refuse_repeated_names(names)
    columns = {}
    for key, name in zip(keys, names, strict=True):
        values = [row.get(key) for row in rows]
        columns[name] = column_of_values(values, name)
    return pa.table(columns)


def infer_array(values: Any) -> pa.Array | pa.ChunkedArray:
    """Return values as an Arrow array of their common type.

    Raises pa.ArrowException or OverflowError if the values have no common type.
    """
    # pyarrow ends the process if a date of numpy comes before another scalar (np.generic) of numpy.
    if isinstance(values, list):
        others = set(map(type, values)) - {np.datetime64}
        if np.datetime64 in map(type, values) and any(issubclass(kind, np.generic) for kind in others):
            raise pa.ArrowInvalid("dates of numpy beside other values")
    return pa.array(values, from_pandas=True)


def column_of_values(values: list[Any], column_name: str) -> pa.Array:
    """Return Python values as an Arrow column.

    Raises SchemaMismatch if the values have no common type. The error names the first row whose
    value has another type than the first value.

    column_name: name of the column, for the error message.
    """
    try:
        return infer_array(values)
    except (pa.ArrowException, OverflowError) as e:
        # For the message, find the first row whose value has another type than the first value.
        # Missing values have no type. NaN is dropped by the comparison: it is not equal to itself.
        present = [(row, value) for row, value in enumerate(values) if value is not None and value == value]
        first = type(present[0][1])
        of_other_type = (pair for pair in present if type(pair[1]) is not first)
        # Values of one type can fail too, such as integers that are too large. Name the first then.
        row, value = next(of_other_type, present[0])
        raise SchemaMismatch(
            f"row {row}, column {column_name} is {value!r}; the column begins with {first.__name__}. Give "
            "a column one type.",
            row=row,
            column=column_name,
        ) from e


def as_block(X: Any, y: Any = None, weights: Any = None) -> Block:
    """Return rows, targets and weights as one Block.

    The rows of the Block have one of the forms that `open_rows` returns.

    X: rows of any kind, or a Block.
    y: targets. If None and X is a Block, the block's own targets are used.
    weights: weights of the rows. If None and X is a Block, the block's own weights are used.
    """
    if not isinstance(X, Block):
        return Block(open_rows(X), y, weights)
    if y is None:
        y = X.y
    if weights is None:
        weights = X.weights
    return X._replace(X=open_rows(X.X), y=y, weights=weights)


def batches(block: Block) -> Iterator[Block]:
    """Yield the batches of a block from `as_block`.

    The rows of the block may be a stream of tables, which has one batch for each table. A block
    with other rows is one batch. If the block's `y` is the name of a column of X, this column
    becomes the targets. Empty batches of a stream are skipped. If all batches of a stream are
    empty, the result is one empty batch.

    Raises InvalidTargets if the `y` of a stream is neither None nor a string. Raises
    SchemaMismatch if X has no column named `y`.
    """
    # Rows that are no stream are one batch. If `y` is no name, the block does not change.
    if not isinstance(block.X, TableStream):
        yield take_target_column(block)
        return

    # Each table of a stream is a batch. Its targets must be one of its columns, named by `y`.
    if block.y is not None and not isinstance(block.y, str):
        raise InvalidTargets(
            f"X is a {type_name(block.X.source)}, read batch by batch, and y a {type_name(block.y)}: name the column of "
            "X that holds the targets."
        )

    batch = None
    any_rows = False
    for table in block.X:
        batch = take_target_column(block._replace(X=table))
        if table.num_rows:
            any_rows = True
            yield batch

    # If all batches are empty, yield one of them, because its columns can still be learned.
    if batch is not None and not any_rows:
        yield batch


def take_target_column(block: Block) -> Block:
    """Move the column that a block's `y` names to the targets.

    Returns a block without this column in X, and with the column as `y`. If `y` is not a string, or
    X is not a table, the block is returned unchanged. Raises SchemaMismatch if X has no column
    named `y`, and InvalidRows if it has two.
    """
    y = block.y
    if not isinstance(y, str):
        return block

    # A pandas frame is not converted, because pandas itself can select and drop the column `y`.
    # Any other table becomes an Arrow table.
    pandas = is_pandas(block.X) or is_dask(block.X, "dask.dataframe")
    if pandas:
        table = block.X
        columns = list(table.columns)
    else:
        table = as_table(block.X)
        if table is None:
            return block
        columns = table.column_names

    # Move the column from the rows to the targets.
    if y not in columns:
        meant = did_you_mean(y, columns)
        raise SchemaMismatch(f"X has no column {y!r} for the targets{meant}; it has {columns[:10]}.", column=y)
    refuse_repeated_names([name for name in columns if name == y])
    if pandas:
        rows = table.drop(columns=y)
    else:
        rows = table.drop_columns([y])
    return block._replace(X=rows, y=table[y])


def drop_column(block: Block, name: str) -> Block:
    """Return a block without the column of this name.

    If the rows have no such column, they do not change. The tables of a TableStream are read, and
    joined to one table.
    """
    if isinstance(block.X, TableStream):
        block = block._replace(X=as_table(block.X))
    # `take_target_column` removes the column from X, as if it had the targets. It raises
    # SchemaMismatch if there is no such column.
    try:
        rows = take_target_column(block._replace(y=name)).X
    except SchemaMismatch:
        return block
    return block._replace(X=rows)


Batch = Block | tuple[Any, ...] | list[Any]
"""A batch as a caller passes it: a Block, (X, y) or (X, y, weights)."""


@runtime_checkable
class Source(Protocol):
    """Object that yields a stream's batches any number of times."""

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for batches in a range of positions.

        Positions are in ascending order.

        after: position before the first batch to yield. −1 yields from the first batch on.
        until: position of the last batch to yield. None yields up to the last batch.
        """
        ...


class RepeatableBatches:
    """Source of batches from an iterable that can be read repeatedly.

    A batch is a Block, (X, y) or (X, y, weights). X may also be a stream of tables that can be
    read again, such as an Arrow data set or a LazyFrame. For a stream of tables, y is the name of
    the column of targets.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for batches in a range of positions.

        The first batch of the source has the position 0.

        after: position before the first batch to yield.
        until: position of the last batch to yield. None yields up to the last batch.
        """
        # A stream of tables is one batch of the source, but has a position for each of its tables.
        position = -1
        for number, batch in enumerate(self._batches):
            for block in batches(_batch_as_block(batch, number)):
                position += 1
                if position > after and (until is None or position <= until):
                    yield position, block


def _batch_as_block(batch: Batch, position: int) -> Block:
    """Return a batch as a Block. Errors name the batch by its position."""
    if isinstance(batch, Block):
        return as_block(batch)
    if isinstance(batch, tuple | list) and 0 < len(batch) <= 3:
        return as_block(*batch)
    raise InvalidParameter(
        f"batch {position} of the source is of type {type(batch).__name__}; give tuples (X, y) or (X, y, weights). A single "
        "one may be given as it is, as a tuple and not a list."
    )


def as_source(source: object) -> Source:
    """Return data as a Source for repeated passes.

    source: a Source, one batch as a tuple (X, y) or (X, y, weights), or an iterable of batches
        that can be read again.

    Raises InvalidParameter for other objects. An iterator is refused, because it can be read only
    once.
    """
    if isinstance(source, Source):
        return source

    # A tuple of up to three items (X, y and weights) is one batch, unless its first item is itself
    # a batch (a tuple or a Block).
    if isinstance(source, tuple) and 0 < len(source) <= 3 and not isinstance(source[0], tuple | Block):
        if not isinstance(source[0], Iterator):
            return RepeatableBatches([source])
        # If the X of a batch is an iterator, the error below names the iterator.
        source = source[0]
    if isinstance(source, Iterator):
        raise InvalidParameter(
            f"source is a {type(source).__name__}, which can be read once, and refine reads the stream once a pass. Give a "
            "list of its batches, or an object with events(after=-1, until=None)."
        )

    # The items of an array or table (Shaped) are its rows or columns, and not batches.
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict | Shaped):
        return RepeatableBatches(source)
    raise InvalidParameter(
        f"source is of type {type(source).__name__}; give (X, y), an iterable of (X, y), or an object whose events("
        "after=-1, until=None) yields (position, stream_dr.Block(X, y, weights)) of the rows learned, anew at every call."
    )
