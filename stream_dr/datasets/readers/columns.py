"""Columns: conversion of a table's columns to a Block, by the role of each.

Columns named as label, labels, target, weight or id have these roles. All others are features,
with their names, in the file's order. Features are numbers, which become a dense matrix, or
columns of a table: texts, dates, numbers with missing values.

Why this way: CSV, JSON lines, Parquet and Arrow files all give Arrow batches. The caller decides
what a column means, not the format.
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
"""Role that a column of each name probably has."""


class Roles(NamedTuple):
    """Roles of the columns that are not features.

    Attributes
    ----------
    label : str or None
        Column of one label a row.
    labels : tuple of str
        Indicator columns (0 or 1), whose names are the labels.
    target : tuple of str
        Columns of continuous targets.
    weight, id : str or None
        Column of weights, and of ids.
    drop : tuple of str
        Columns that are not read.
    raw : bool or None
        True if features are columns of a table, False if they are numbers. With None the first
        piece decides, and it is False if it has only numbers without gaps.
    kinds : tuple of (str, str)
        Columns with their declared kind, "number", "date", "time", "category" or "text".
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
        """Return all columns that are not features.

        Raises InvalidTargets if more than one kind of targets is named.
        """
        if (self.label is not None) + bool(self.labels) + bool(self.target) > 1:
            raise InvalidTargets("columns are given as more than one of label, labels and target; give one kind.")
        single = tuple(c for c in (self.label, self.weight, self.id) if c is not None)
        return single + self.labels + self.target + self.drop

    def number_columns(self) -> tuple[str, ...]:
        """Return the columns that are not features and must hold numbers."""
        return (*self.labels, *self.target, *((self.weight,) if self.weight is not None else ()))

    def features(self, columns: Sequence[str]) -> list[str]:
        """Return the feature columns among `columns`.

        Raises SchemaMismatch that names all columns of these roles that do not exist.
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
    """Return the feature columns, or None if columns are the layout of a shard.

    Raises SchemaMismatch as Roles.features does.
    """
    return None if roles._replace(raw=False) == Roles() and is_layout(names) else roles.features(names)


def blocks_of(
    batch: pa.RecordBatch,
    features: Sequence[str] | None,
    roles: Roles,
    rows: int,
    fail: Callable[[StreamDRError, int], None],
) -> Iterator[Block]:
    """Yield blocks of at most `rows` rows of a batch.

    features: None for the layout of a shard. fail: called with (error, rows before) to raise a
    block's error as the file's own.
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
    """Yield blocks of a file's batches, as `blocks_of` does for one.

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
    """Return one Block of a record batch.

    Raises NotFinite, and SchemaMismatch that names columns that are not numbers or have nulls.
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
    """Return the features as a matrix, and the names of its columns.

    Raises NotFinite and SchemaMismatch.
    """
    table = pa.Table.from_batches([batch.select(list(features))])
    for name, column in zip(features, table.columns, strict=True):
        _refuse_null(column, name)
    try:
        X, names = as_matrix(table)
    # NotNumeric is a TypeError.
    except TypeError as e:
        raise SchemaMismatch(str(e)) from e
    check_finite(X)
    return X, names


def needs_raw(first: pa.RecordBatch, features: Sequence[str] | None, roles: Roles) -> bool:
    """Return True if features are read as columns of a table.

    The roles decide it, or else the first piece of the file.
    """
    if roles.raw is not None or features is None:
        return bool(roles.raw)
    return any(kind != "number" for _, kind in roles.kinds) or any(
        not _is_numeric(first.schema.field(name).type) or first.column(name).null_count for name in features
    )


def type_of(column: pa.Array, declared: str | None) -> pa.DataType:
    """Return the type in which to read a feature, by a first piece of it.

    Whole numbers are floats, because later ones may have fractions, unless all differ. Then they
    may be ids.
    """
    kind = column.type
    if declared in ("category", "text") or pa.types.is_null(kind) or pa.types.is_time(kind):
        return pa.string()
    if declared in ("date", "time"):
        return kind if pa.types.is_date(kind) else pa.timestamp("us")
    if declared == "number":
        return pa.float64()
    distinct = pa.types.is_integer(kind) and pc.count_distinct(column).as_py() == len(column) > 1
    return pa.float64() if pa.types.is_integer(kind) and not distinct else kind


def _is_numeric(kind: pa.DataType) -> bool:
    """Return True if columns of this type are numbers, or vectors of numbers."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(numbers or pa.types.is_boolean(kind) or isinstance(kind, pa.BaseExtensionType))


def ids_of(column: pa.Array, name: str) -> Ids:
    """Return a column of ids, as integers or texts.

    Values of other types become texts. Raises SchemaMismatch for a row without an id.
    """
    _refuse_null(column, name)
    if pa.types.is_integer(column.type) or is_string_type(column.type):
        return column.to_pylist()
    return [str(v) for v in column.to_pylist()]


def blanks_to_nulls(texts: pa.Array) -> pa.Array:
    """Return the texts with null for empty ones."""
    return pc.replace_with_mask(texts, pc.equal(texts, ""), pa.scalar(None, pa.string()))


def targets_of(batch: pa.RecordBatch, roles: Roles) -> Targets | None:
    """Return the batch's targets by their columns, or None.

    A row whose label is empty has no target.
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

    Raises SchemaMismatch.
    """
    _refuse_null(column, name)
    try:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatch(
            f"column {name!r} is {column.type}, not numbers ({e}); name it as label or drop it.", column=name
        ) from e


def _refuse_null(column: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Raise SchemaMismatch for the first row without a value."""
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise SchemaMismatch(
            f"column {name!r} has no value in row {row} of the batch; fill or drop it.", row=row, column=name
        )
