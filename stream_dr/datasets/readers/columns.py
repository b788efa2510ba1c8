"""Columns: convert Arrow batches of a table to Blocks.

The caller names the columns of labels, targets, weights and ids. All other columns are features,
in the file's order. If all features are numbers without missing values, they become a dense
matrix. If a feature is not a number or has a missing value, they become columns of a table.

The readers of all table formats (CSV, JSON lines, Parquet, Arrow, databases) read Arrow batches
and convert them with this module.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.aliases import FileName
from stream_dr.batch.arrow import RESERVED_NAMES, block_from_arrow, is_shard_layout, targets_from_arrow
from stream_dr.batch.block import Block, Ids, Rows, check_finite
from stream_dr.batch.matrix import (
    as_floats,
    as_matrix,
    is_numeric_type,
    is_string_type,
    is_vector_type,
    refuse_nulls,
    table_from_arrow,
)
from stream_dr.batch.rows import RowsAndNames
from stream_dr.batch.table import refuse_repeated_names
from stream_dr.batch.targets import (
    Targets,
    class_targets,
    continuous_targets,
    indicator_targets,
    is_label_type,
    targets_of_labels,
)
from stream_dr.errors import (
    InvalidParameter,
    InvalidTargets,
    MalformedInput,
    NotNumeric,
    SchemaMismatch,
    StreamDRError,
    did_you_mean,
)

Blocks = Iterator[Block]
"""Blocks of a file, as a reader yields them."""

RaiseLocated = Callable[[StreamDRError, int], None]
"""Function that raises an error with the file and the line in place of another error.

Its arguments are the other error, and the number of the file's row, from 0. Nothing is raised if
no line is found.
"""

_ROLES_BY_NAME = {"id": "id", "label": "label", "labels": "label", "target": "targets", "weight": "weight"}
"""Name of a column → role that the column probably has, which error messages suggest."""


class ColumnRoles(NamedTuple):
    """Roles of a table's columns: labels, targets, weights, ids, features.

    Columns without a role are features.

    Attributes
    ----------
    label : str or None
        Name of the column with one label for each row.
    labels : tuple of str
        Names of columns with 0 and 1, one column for each label. A label has the name of its
        column, and a row with 1 in the column has the label. A single name may instead be that of
        a column with several labels in each row: lists, texts that are JSON lists, or texts in
        which `separator` stands between the labels.
    target : tuple of str
        Names of the columns with numeric targets.
    weight : str or None
        Name of the column with the rows' weights.
    id : str or None
        Name of the column with the rows' ids.
    drop : tuple of str
        Names of columns that are not read.
    raw : bool or None
        True to read the features as columns of a table, which may have any type. False to read
        them as a matrix of numbers. None lets the first rows of the file decide. They are then
        read as a matrix if they have only numbers and no missing values.
    kinds : tuple of (str, str)
        Pairs of a feature's name and its declared kind: "number", "date", "time", "category" or
        "text". The kind of other features is inferred.
    feature : tuple of str
        Names of features that have a reserved name, such as "weight".
    separator : str or None
        Text between the labels of a row, in the one column of `labels`.
    """

    label: str | None = None
    labels: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    weight: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    raw: bool | None = False
    kinds: tuple[tuple[str, str], ...] = ()
    feature: tuple[str, ...] = ()
    separator: str | None = None

    def non_feature_columns(self) -> tuple[str, ...]:
        """Return the names of all columns that are not features.

        These are the columns of targets, weights and ids, and the columns to leave out. Columns of
        targets are named by one of three attributes:

        - `label`: one column of labels.
        - `labels`: columns of 0 and 1, or one column with several labels in each row.
        - `target`: columns of numbers.

        Raises InvalidTargets if more than one of the three is given. Raises InvalidParameter if
        `separator` is empty, or if `separator` is given and `labels` is not exactly one column.
        """
        if self.separator == "" or (self.separator is not None and len(self.labels) != 1):
            raise InvalidParameter(
                f"separator={self.separator!r} with {len(self.labels)} columns of labels; name one column with labels, "
                "and the text between its labels with separator."
            )
        n_attributes = (self.label is not None) + bool(self.labels) + bool(self.target)
        if n_attributes > 1:
            raise InvalidTargets("columns are given as more than one of label, labels and target; give one kind.")
        single = tuple(c for c in (self.label, self.weight, self.id) if c is not None)
        return single + self.labels + self.target + self.drop

    def label_set_column(self, schema: pa.Schema) -> str | None:
        """Return the name of the column with several labels a row.

        The result is None if there is no such column, for example because `labels` names columns
        of 0 and 1.

        schema: Arrow types of the columns.
        """
        if len(self.labels) != 1:
            return None
        # `value_type` is the type of the column's values, which a dictionary column encodes.
        column_type = schema.field(self.labels[0]).type
        value_type = column_type
        if pa.types.is_dictionary(column_type):
            value_type = column_type.value_type
        # The column has several labels a row if its values are lists, or texts with a separator or
        # a JSON list. If its values are numbers, it is a column of 0 and 1 for one label.
        has_texts = self.separator is not None or is_string_type(value_type)
        if has_texts or pa.types.is_nested(column_type):
            return self.labels[0]
        return None

    def code_columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns whose values are ids or labels.

        Columns of 0 and 1, each of which is one label, are not included.

        schema: Arrow types of the columns.
        """
        return [name for name in (self.id, self.label, self.label_set_column(schema)) if name is not None]

    def numeric_target_columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the names of the columns of numbers to predict, and of weights.

        Columns of 0 and 1, which tell which labels a row has, are included, too. A column with the
        rows' labels is not, because its values may be texts.

        schema: Arrow types of the columns.
        """
        labels = () if self.label_set_column(schema) else self.labels
        weights = () if self.weight is None else (self.weight,)
        return (*labels, *self.target, *weights)

    def features(self, all_columns: Sequence[str]) -> list[str]:
        """Return the names of the feature columns.

        all_columns: names of all columns of the file.

        Raises SchemaMismatch in these cases:

        - A column that the options name does not exist in the file.
        - No column is a feature.
        - A column has a reserved name, such as "label" or "id", and the options do not say what it
          is. In shards, columns of these names have the labels and ids.
        """
        # `declared` has the columns that the options call features: with their kind (`kinds`), or
        # without it (`feature`).
        excluded = set(self.non_feature_columns())
        declared = {*dict(self.kinds), *self.feature}
        missing = sorted((excluded | declared) - set(all_columns))
        if missing:
            listed = ", ".join(f"{name!r}{did_you_mean(name, all_columns)}" for name in missing)
            existing = list(all_columns)[:10]
            raise SchemaMismatch(f"there is no column {listed}; there are {existing} …", column=missing[0])

        features = [c for c in all_columns if c not in excluded]
        if not features:
            raise SchemaMismatch("no column is left for the features.")
        for name in features:
            if name not in RESERVED_NAMES or name in declared:
                continue
            # Suggest the option of the role that a column of this name probably has.
            role = ""
            if name in _ROLES_BY_NAME:
                role = f"--{_ROLES_BY_NAME[name]} {name}, or "
            raise SchemaMismatch(
                f"a column is called {name!r}, as a part of a shard is; say what it is ({role}--as {name}=feature), "
                f"or leave it out (--drop {name}).",
                column=name,
            )
        return features


def feature_columns_unless_shard(schema: pa.Schema, roles: ColumnRoles) -> list[str] | None:
    """Return the names of a file's feature columns.

    None is returned if the file is read as a shard. This is the case if the file has a shard's
    columns and `roles` names no column. A shard has a column `features`, or the columns `indices`
    and `values`. Raises the errors of `ColumnRoles.features`.

    schema: names and Arrow types of the columns.
    """
    refuse_repeated_names(schema.names)
    # `raw` says how features are read and names no column, so it is ignored here.
    names_no_column = roles._replace(raw=False) == ColumnRoles()
    if names_no_column and is_shard_layout(schema.names):
        return None
    # The name `features` is reserved for shards. But Spark, pandas and polars write rows as lists
    # in a column of this name. Declare such a column as a feature, which allows the name.
    if any(field.name == "features" and pa.types.is_nested(field.type) for field in schema):
        roles = roles._replace(feature=(*roles.feature, "features"))
    return roles.features(schema.names)


def split_batches_into_blocks(
    path: FileName,
    batches: Iterable[pa.RecordBatch],
    features: Sequence[str] | None,
    roles: ColumnRoles,
    rows_per_block: int,
    raise_with_line: RaiseLocated | None = None,
) -> Blocks:
    """Yield the rows of a file's Arrow batches in blocks.

    path: path of the file, for error messages.
    features: names of the feature columns. None if the batches have the columns of a shard.
    rows_per_block: maximum number of rows in a block.
    raise_with_line: function that searches a text file for the line with an error, and raises an
        error that names the line.

    Raises MalformedInput, which names the file and the row unless `raise_with_line` names the line.
    """
    row = 0
    try:
        for batch in batches:
            # `raise_with_line` is given for text files only.
            # Arrow has built the batches of a text file itself, so they are valid.
            if raise_with_line is None:
                batch.validate(full=True)
            # `raw` is True if the features keep their types, and False if they are read as numbers.
            # If the caller has not decided it (None), the first batch does, for all later batches.
            roles = roles._replace(raw=must_read_as_table(batch, features, roles))
            for start in range(0, batch.num_rows, rows_per_block):
                part = batch.slice(start, rows_per_block)
                if features is None:
                    yield block_from_arrow(part)
                else:
                    yield convert_batch_to_block(part, features, roles)
                row += part.num_rows
    except (pa.ArrowException, OSError, EOFError) as e:
        raise MalformedInput(f"{path}, after row {row}: {e}", file=str(path)) from e
    except StreamDRError as e:
        # Errors with a file were raised by the reader of the batches.
        if "file" in e.details:
            raise
        # `row` counts the rows of earlier parts. The error has the row within its part.
        row += int(e.details.get("row", 0))
        if raise_with_line is not None:
            raise_with_line(e, row)
        raise MalformedInput(f"{path}, row {row}: {e}", file=str(path), row=row) from e


def convert_batch_to_block(batch: pa.RecordBatch, feature_names: Sequence[str], roles: ColumnRoles) -> Block:
    """Return the rows of an Arrow batch as one Block.

    feature_names: names of the feature columns.

    Raises NotFinite. Raises InvalidRows, which names the column, if a column of numbers has missing
    values. Raises SchemaMismatch if it has values that are not numbers.
    """
    # If `raw` is True, the features keep their types, and are read as a table.
    X: Rows
    if roles.raw:
        X = table_from_arrow(batch.select(list(feature_names)))
        names: tuple[str, ...] | None = tuple(X.schema.names)
    else:
        X, names = _complete_matrix(batch, feature_names)
        check_finite(X)

    targets = targets_from_batch(batch, roles)
    weights = None
    if roles.weight is not None:
        weights = _role_numbers(batch, (roles.weight,))[:, 0]
    ids: Ids | None = None
    if roles.id is not None:
        column = batch.column(roles.id)
        refuse_nulls(column, roles.id)
        ids = column.to_pylist()
        # Ids are integers or texts, so values of any other type become texts.
        if not (pa.types.is_integer(column.type) or is_string_type(column.type)):
            ids = [str(value) for value in ids]
    return Block(X, targets, weights, ids, names)


def _complete_matrix(batch: pa.RecordBatch, column_names: Sequence[str]) -> RowsAndNames:
    """Return columns of an Arrow batch as a matrix with its names.

    Raises InvalidRows if a column has missing values, and SchemaMismatch if it is not numeric.
    """
    columns = batch.select(list(column_names))
    for name, column in zip(column_names, columns.itercolumns(), strict=True):
        refuse_nulls(column, name)
    try:
        return as_matrix(columns)
    except NotNumeric as e:
        message = f"{e} If they are labels, name them as label."
        raise SchemaMismatch(message, column=e.details["columns"][0]) from e


def _role_numbers(batch: pa.RecordBatch, column_names: Sequence[str]) -> np.ndarray:
    """Return columns of targets or weights as a matrix (rows, columns).

    Raises InvalidRows if a column has missing values, and SchemaMismatch if it has vectors or values
    that are no numbers.
    """
    X, _ = _complete_matrix(batch, column_names)
    if X.shape[1] != len(column_names):
        message = f"columns {list(column_names)} have {X.shape[1]} numbers a row; name columns of single numbers."
        raise SchemaMismatch(message, column=column_names[0])
    return np.asarray(X)


def must_read_as_table(first_batch: pa.RecordBatch, feature_names: Sequence[str] | None, roles: ColumnRoles) -> bool:
    """Return True if features must be read as a table.

    False is returned if the features are read as a matrix of numbers. `roles.raw` has the answer
    if the user has decided it. If not, it is None, and the first rows decide. A matrix needs
    features that are all numbers without missing values.

    first_batch: first rows of the file.
    feature_names: names of the feature columns. None if the file has the columns of a shard, which
        is never read as a table.
    """
    if roles.raw is not None or feature_names is None:
        return bool(roles.raw)
    # `kinds` has the features whose kind the caller has declared. A matrix has only numbers.
    if any(kind != "number" for _, kind in roles.kinds):
        return True
    columns = map(first_batch.column, feature_names)
    return any(not _has_numbers(column.type) or column.null_count for column in columns)


def choose_column_types(
    first_batch: pa.RecordBatch, feature_names: Sequence[str], roles: ColumnRoles
) -> dict[str, pa.DataType]:
    """Return the Arrow types for reading features, targets and weights, by column name.

    first_batch: first rows of the file.
    feature_names: names of the feature columns.
    """
    # A matrix of numbers is read as float64. Features of a table (`raw`) have types of their own.
    types = dict.fromkeys((*feature_names, *roles.numeric_target_columns(first_batch.schema)), pa.float64())
    if roles.raw:
        kinds = dict(roles.kinds)
        types |= {name: choose_feature_type(first_batch.column(name), kinds.get(name)) for name in feature_names}
    return types


def choose_feature_type(first_values: pa.Array, declared_kind: str | None) -> pa.DataType:
    """Return the Arrow type for reading a table's feature.

    first_values: first values of the feature.
    declared_kind: kind of the feature that the caller has declared. None: decide by the values.
    """
    # Categories and texts are read as texts. So are a feature without any value yet, and times of
    # day such as 12:30, for which tables have no type.
    arrow_type = first_values.type
    if declared_kind in ("category", "text") or pa.types.is_null(arrow_type) or pa.types.is_time(arrow_type):
        return pa.string()
    # Days stay days. Other dates and times become timestamps in microseconds.
    if declared_kind in ("date", "time"):
        if pa.types.is_date(arrow_type):
            return arrow_type
        return pa.timestamp("us")
    if declared_kind == "number":
        return pa.float64()

    if not pa.types.is_integer(arrow_type):
        return arrow_type
    # If the first integers all differ, they may be ids, which are read as integers.
    # Other integers are read as floats, because later values may have fractions.
    n_values = len(first_values)
    if n_values > 1 and pc.count_distinct(first_values).as_py() == n_values:
        return arrow_type
    return pa.float64()


def _has_numbers(arrow_type: pa.DataType) -> bool:
    """Return True if a column of an Arrow type can be read as numbers.

    The values are numbers, lists of numbers, or values of an extension type, which are stored as
    values of another type.
    """
    if is_vector_type(arrow_type):
        arrow_type = arrow_type.value_type
    return is_numeric_type(arrow_type) or isinstance(arrow_type, pa.BaseExtensionType)


def targets_from_batch(batch: pa.RecordBatch, roles: ColumnRoles) -> Targets | None:
    """Return the targets of an Arrow batch.

    The result is None if `roles` names no column of targets. A row whose label is empty has no
    target.
    """
    if roles.label is not None:
        return _single_label_targets(batch.column(roles.label), roles.label)

    # One column has several labels in each row.
    if (name := roles.label_set_column(batch.schema)) is not None:
        column = batch.column(name)
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        # Texts are split, so that `column` has the list of labels of each row.
        if not pa.types.is_nested(column.type):
            column = split_labels(column, name, roles.separator)
        return targets_from_arrow(pa.record_batch([column], ["labels"]))

    # Each column with 0 and 1 is one label.
    if roles.labels:
        Y = _role_numbers(batch, roles.labels)
        wrong = (Y != 0) & (Y != 1)
        if wrong.any():
            column = roles.labels[int(np.argwhere(wrong)[0][1])]
            raise InvalidTargets(f"label column {column!r} has values other than 0 and 1; give it as label or target.")
        return indicator_targets(Y, roles.labels)

    if roles.target:
        return continuous_targets(_role_numbers(batch, roles.target))
    return None


def _single_label_targets(column: pa.Array, column_name: str) -> Targets:
    """Return the targets in a column with one label for each row."""
    column = as_floats(column)  # Only decimals are converted.
    if pa.types.is_nested(column.type):
        message = f"column {column_name!r} has several labels in each row; name it with --labels, not with --label."
        raise SchemaMismatch(message, column=column_name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # An empty text becomes null, which is a row without a target.
    if is_string_type(column.type):
        column = column.cast(pa.large_string())
        column = pc.if_else(pc.equal(column, ""), None, column)
    # `class_targets` converts or refuses values of other types than labels, such as floats.
    if is_label_type(column.type):
        return targets_of_labels(column)
    return class_targets(column.to_pylist())


def _parse_json_labels(text: str, row: int, column_name: str) -> list[Any]:
    """Return the labels of a JSON list, or raise SchemaMismatch for another text."""
    labels = None
    with suppress(orjson.JSONDecodeError):
        labels = orjson.loads(text)
    if not isinstance(labels, list):
        raise SchemaMismatch(
            f"{text!r} in column {column_name!r} is no JSON list of labels; give --separator, or --label.",
            row=row,
            column=column_name,
        )
    return labels


def split_labels(column: pa.Array, column_name: str, separator: str | None) -> pa.Array:
    """Return a column of texts as a column of label lists.

    An empty text becomes null, which is a row without a target.

    column_name: name of the column, for error messages.
    separator: text between the labels of a row. None: each text is a JSON list.

    Raises SchemaMismatch if a text is no JSON list, or if the labels have several types.
    """
    sets: list[list[Any] | None] = []
    for row, text in enumerate(column.cast(pa.string()).to_pylist()):
        if not text:
            sets.append(None)
        elif separator is not None:
            sets.append([label.strip() for label in text.split(separator) if label.strip()])
        else:
            sets.append(_parse_json_labels(text, row, column_name))

    # JSON lists may have texts or numbers, whose type Arrow infers (None). It cannot if all lists
    # are empty. They are then lists of texts, as texts with a separator are.
    are_texts = separator is not None or not any(sets)
    arrow_type = pa.list_(pa.string()) if are_texts else None
    try:
        return pa.array(sets, arrow_type)
    except pa.ArrowException as e:
        message = f"column {column_name!r} has labels of several types ({e}); give texts or whole numbers."
        raise SchemaMismatch(message, column=column_name) from e
