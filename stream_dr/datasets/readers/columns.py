"""Columns: convert a table's columns to a Block, by the role of each column.

The caller names the columns of labels, targets, weights and ids. All other columns are features,
with their names, in the file's order. If all features are numbers, they become a dense matrix.
Otherwise (texts, dates, numbers with missing values) they become columns of a table.

All table formats (CSV, JSON lines, Parquet, Arrow, databases) are read as Arrow batches. So this
module converts all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.aliases import FileName
from stream_dr.arrow.codec import block_from_arrow
from stream_dr.arrow.rows import RESERVED, is_layout
from stream_dr.arrow.target_columns import targets_from_arrow
from stream_dr.errors import InvalidTargets, LimitExceeded, MalformedInput, SchemaMismatch, StreamDRError, did_you_mean
from stream_dr.rows.block import Block, Ids, Rows, check_finite
from stream_dr.rows.frames import as_matrix
from stream_dr.rows.table_rows import is_string_type, raw_from_arrow
from stream_dr.targets.targets import Targets, class_targets, continuous_targets

_ROLES_BY_NAME = {"id": "id", "label": "label", "labels": "label", "target": "targets", "weight": "weight"}
"""Role that a column probably has, by the column's name. Used in error messages."""


class Roles(NamedTuple):
    """Roles of the columns that are not features.

    Attributes
    ----------
    label : str or None
        Column with one label for each row.
    labels : tuple of str
        Indicator columns (0 or 1). The name of such a column is the label.
    target : tuple of str
        Columns of continuous targets.
    weight, id : str or None
        Column of weights, and of ids.
    drop : tuple of str
        Columns that are not read.
    raw : bool or None
        True to read the features as columns of a table, False to read them as a matrix of numbers.
        None means False if the first rows of the file have only numbers and no missing value,
        else True.
    kinds : tuple of (str, str)
        (column, kind) of each column whose kind is declared. Kinds are "number", "date", "time",
        "category" and "text".
    """

    label: str | None = None
    labels: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    weight: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    raw: bool | None = False
    kinds: tuple[tuple[str, str], ...] = ()

    def non_features(self) -> tuple[str, ...]:
        """Return the names of all columns that are not features.

        Raises InvalidTargets if columns of more than one kind of targets are named.
        """
        if (self.label is not None) + bool(self.labels) + bool(self.target) > 1:
            raise InvalidTargets("columns are given as more than one of label, labels and target; give one kind.")
        single = tuple(c for c in (self.label, self.weight, self.id) if c is not None)
        return single + self.labels + self.target + self.drop

    def number_columns(self) -> tuple[str, ...]:
        """Return the names of target and weight columns that must have numbers."""
        return (*self.labels, *self.target, *((self.weight,) if self.weight is not None else ()))

    def features(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the feature columns.

        columns: names of all columns of the file.

        Raises SchemaMismatch if a column with a role does not exist, if there is no feature, or if
        a feature has a reserved name.
        """
        non_features = set(self.non_features())
        missing = sorted((non_features | set(dict(self.kinds))) - set(columns))
        if missing:
            listed = ", ".join(f"{name!r}{did_you_mean(name, columns)}" for name in missing)
            raise SchemaMismatch(f"there is no column {listed}; there are {list(columns)[:10]} …", column=missing[0])

        features = [c for c in columns if c not in non_features]
        if not features:
            raise SchemaMismatch("no column is left for the features.")
        for name in features:
            if name in RESERVED:
                advice = f"say what it is (--{_ROLES_BY_NAME[name]} {name}), or " if name in _ROLES_BY_NAME else ""
                raise SchemaMismatch(
                    f"a column is called {name!r}, as a part of a shard is; {advice}leave it out (--drop {name}).",
                    column=name,
                )
        return features


def feature_columns(names: Sequence[str], roles: Roles) -> list[str] | None:
    """Return the names of the feature columns.

    names: names of all columns of the file.

    Returns None if no roles are given and the columns are those of a shard (`features`, or
    `indices` and `values`). Raises the errors of `Roles.features`.
    """
    return None if roles._replace(raw=False) == Roles() and is_layout(names) else roles.features(names)


def blocks_of(
    batch: pa.RecordBatch,
    features: Sequence[str] | None,
    roles: Roles,
    rows: int,
    fail: Callable[[StreamDRError, int], None],
) -> Iterator[Block]:
    """Yield the rows of a record batch in blocks.

    features: names of the feature columns. None if the columns are those of a shard.
    rows: maximum number of rows in a block.
    fail: function called with the error of a block and the number of rows before the block. It
        raises an error that names the file and the line.
    """
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        try:
            block = block_from_arrow(part) if features is None else block_of(part, features, roles)
        except StreamDRError as e:
            fail(e, start)
            raise
        yield block


def blocks_of_batches(
    path: FileName, batches: Iterable[pa.RecordBatch], features: list[str] | None, roles: Roles, rows: int
) -> Iterator[Block]:
    """Yield the rows of a file's record batches in blocks.

    path: path of the file, for error messages.
    features: names of the feature columns. None if the columns are those of a shard.
    rows: maximum number of rows in a block.

    Raises MalformedInput that names file and row, and LimitExceeded.
    """
    row = 0

    def fail(error: StreamDRError, rows_before: int) -> None:
        number = row + rows_before + int(error.details.get("row", 0))
        raise MalformedInput(f"{path}, row {number}: {error}", file=str(path), row=number) from error

    try:
        for batch in batches:
            batch.validate(full=True)
            roles = roles._replace(raw=needs_raw(batch, features, roles))
            yield from blocks_of(batch, features, roles, rows, fail)
            row += batch.num_rows
    except (pa.ArrowException, OSError, EOFError) as e:
        raise MalformedInput(f"{path}, after row {row}: {e}", file=str(path)) from e
    except LimitExceeded as e:
        raise LimitExceeded(f"{path}, after row {row}: {e}", **e.details) from e


def block_of(batch: pa.RecordBatch, features: Sequence[str], roles: Roles) -> Block:
    """Return the rows of a record batch as one Block.

    features: names of the feature columns.

    Raises NotFinite. Raises SchemaMismatch if a column that must have numbers has other values or
    nulls. The error names the column.
    """
    X: Rows
    if roles.raw:
        X = raw_from_arrow(batch.select(list(features)))
        names = X.names
    else:
        X, names = _number_rows(batch, features)

    targets = targets_of(batch, roles)
    weights = None if roles.weight is None else float_column(batch.column(roles.weight), roles.weight)
    ids = None if roles.id is None else ids_of(batch.column(roles.id), roles.id)
    return Block(X, targets, weights, ids, names)


def _number_rows(batch: pa.RecordBatch, features: Sequence[str]) -> tuple[Rows, tuple[str, ...] | None]:
    """Return the features of a record batch as a matrix, and the names of its columns.

    features: names of the feature columns.

    Raises NotFinite. Raises SchemaMismatch if a feature has a null or is not numeric.
    """
    table = pa.Table.from_batches([batch.select(list(features))])
    for name, column in zip(features, table.columns, strict=True):
        _refuse_null(column, name)
    try:
        X, names = as_matrix(table)
    # `as_matrix` raises NotNumeric, which is a TypeError, for a column that is not numeric.
    except TypeError as e:
        raise SchemaMismatch(str(e)) from e
    check_finite(X)
    return X, names


def needs_raw(first: pa.RecordBatch, features: Sequence[str] | None, roles: Roles) -> bool:
    """Return True if the features are to be read as columns of a table.

    If `roles.raw` is None, the result is True unless the first rows have only numbers without
    missing values.

    first: first rows of the file.
    features: names of the feature columns. None if the columns are those of a shard.
    """
    if roles.raw is not None or features is None:
        return bool(roles.raw)
    return any(kind != "number" for _, kind in roles.kinds) or any(
        not _is_numeric(first.schema.field(name).type) or first.column(name).null_count for name in features
    )


def type_of(column: pa.Array, declared: str | None) -> pa.DataType:
    """Return the Arrow type as which a feature of a table is read.

    column: the first values of the feature.
    declared: kind that the caller declared for the feature, or None.
    """
    kind = column.type
    if declared in ("category", "text") or pa.types.is_null(kind) or pa.types.is_time(kind):
        return pa.string()
    if declared in ("date", "time"):
        return kind if pa.types.is_date(kind) else pa.timestamp("us")
    if declared == "number":
        return pa.float64()
    # Integers are read as floats, because later values may have fractions.
    # If all integers differ, they may be ids, and are read as integers.
    distinct = pa.types.is_integer(kind) and pc.count_distinct(column).as_py() == len(column) > 1
    return pa.float64() if pa.types.is_integer(kind) and not distinct else kind


def _is_numeric(kind: pa.DataType) -> bool:
    """Return True if an Arrow type is a number or a list of numbers."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(numbers or pa.types.is_boolean(kind) or isinstance(kind, pa.BaseExtensionType))


def ids_of(column: pa.Array, name: str) -> Ids:
    """Return the ids in a column as a list of integers or texts.

    Values of other types are converted to texts. Raises SchemaMismatch for a row without an id.
    """
    _refuse_null(column, name)
    if pa.types.is_integer(column.type) or is_string_type(column.type):
        return column.to_pylist()
    return [str(v) for v in column.to_pylist()]


def blanks_to_nulls(texts: pa.Array) -> pa.Array:
    """Return an array of texts with null in place of empty texts."""
    return pc.replace_with_mask(texts, pc.equal(texts, ""), pa.scalar(None, pa.string()))


def targets_of(batch: pa.RecordBatch, roles: Roles) -> Targets | None:
    """Return the targets of a record batch, or None if no column has targets.

    A row with an empty label has no target.
    """
    if roles.label is not None:
        column = batch.column(roles.label)
        if pa.types.is_string(column.type):
            column = blanks_to_nulls(column)
        if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
            return targets_from_arrow(pa.record_batch([column], ["label"]))
        return class_targets([None if v == "" else v for v in batch.column(roles.label).to_pylist()])

    if roles.labels:
        Y = np.column_stack([float_column(batch.column(name), name) for name in roles.labels])
        if not np.all((Y == 0) | (Y == 1)):
            column = roles.labels[int(np.argwhere((Y != 0) & (Y != 1))[0][1])]
            raise InvalidTargets(f"label column {column!r} has values other than 0 and 1; give it as target.")
        indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(Y, axis=1)))).astype(np.int64)
        return Targets("multilabel", roles.labels, np.nonzero(Y)[1].astype(np.int32), indptr)

    if roles.target:
        return continuous_targets(np.column_stack([float_column(batch.column(name), name) for name in roles.target]))
    return None


def float_column(column: pa.Array, name: str) -> np.ndarray:
    """Return a column as float64 (rows,).

    Raises SchemaMismatch if the column has a null or is not numeric.
    """
    _refuse_null(column, name)
    try:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatch(
            f"column {name!r} is {column.type}, not numbers ({e}); name it as label or drop it.", column=name
        ) from e


def _refuse_null(column: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Raise SchemaMismatch if a column has a null. The error names the first row.

    name: name of the column.
    """
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise SchemaMismatch(
            f"column {name!r} has no value in row {row} of the batch; fill or drop it.", row=row, column=name
        )
