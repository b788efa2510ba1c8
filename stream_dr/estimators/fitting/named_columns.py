"""Tables, with columns in the order of the first rows.

Columns with names are matched by name and never by position. So later tables may have the columns
in any order.

Targets become a column of one label a row, as scikit-learn's classifiers expect them.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from stream_dr.batch.block import Block
from stream_dr.batch.matrix import as_rows, read_table
from stream_dr.batch.rows import as_block, only_has, take_target_column
from stream_dr.errors import CannotMerge, EmptyInput, NotNumeric
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.sklearn_bases import ClassifierMixin
from stream_dr.feature_maps.hashing import dicts_to_sparse_rows


def read_rows_and_names(
    block: Block,
    columns_found_by_name: bool,
    as_table: bool,
    known_names: tuple[str, ...] | None = None,
) -> tuple[Any, tuple[str, ...] | None]:
    """Convert rows to numbers, and return their columns' names.

    Returns the rows and a tuple of names. The tuple is None if columns have no names.

    columns_found_by_name: True if the feature map identifies columns by name. Rows may then be
        dicts with any names.
    as_table: True if the feature map reads tables. The rows are then returned as a table, which is
        not converted to numbers.
    known_names: names of the learned columns, or None. If a column that is not among them holds no
        numbers, the error says to leave it out.
    """
    if as_table:
        X = read_table(block.X, block.names)
        return X, tuple(X.schema.names)

    # All rows are dicts from column name to value. Each name becomes a column of sparse rows.
    if columns_found_by_name and only_has(block.X, Mapping):
        matrix, names = dicts_to_sparse_rows(block.X)
        return as_rows(matrix)[0], names

    # Read the rows, with `own_names` if they have names. The names in the block are preferred.
    try:
        X, own_names = as_rows(block.X)
    except NotNumeric as e:
        # The error names the columns without numbers, if it knows them. Those that were not learned
        # are not needed, so advise to leave them out. Without such columns, the error stays.
        if known_names is None:
            raise
        extra = sorted(set(e.details.get("columns", ())).difference(known_names))
        if not extra:
            raise
        raise NotNumeric(f"columns {extra} hold no numbers and were not learned; leave them out.") from e
    return X, block.names or own_names


def joint_names(mine: tuple[str, ...] | None, theirs: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the column names of two states that are merged.

    The longer names are returned, or None if neither state has names. Raises CannotMerge if only
    one state has names, or if the shorter names are not the beginning of the longer names.
    """
    if (mine is None) != (theirs is None):
        raise CannotMerge(
            f"states of features {theirs} and {mine} cannot be merged: without names it is not known which column is "
            "which. Learn both from named columns, or both from arrays."
        )
    if mine is None or theirs is None:
        return None

    shorter, longer = sorted((mine, theirs), key=len)
    if longer[: len(shorter)] != shorter:
        raise CannotMerge(
            f"states of features {theirs} and {mine} cannot be merged: learn both in one order of columns."
        )
    return longer


def refuse_empty_rows(rows: Any) -> None:
    """Raise EmptyInput if there are no rows or no features."""
    for axis, what in enumerate(("sample", "feature")):
        if rows.shape[axis] == 0:
            raise EmptyInput(f"Found array with 0 {what}(s) (shape={rows.shape}) while a minimum of 1 is required.")


class LabelScore(ClassifierMixin):
    """Base class of classifiers whose `score` takes a column's name as y."""

    def score(self, X: RowsLike, y: TargetsLike, sample_weight: WeightsLike = None) -> float:
        """Return the share of rows whose label is predicted correctly.

        y: labels (rows,), or the name of the column of X with the labels.
        """
        rows = take_target_column(as_block(X, y, sample_weight))
        return super().score(rows.X, rows.y, rows.weights)


def warn_of_column(y: TargetsLike, stacklevel: int) -> None:
    """Issue DataConversionWarning for targets y of shape (rows, 1).

    scikit-learn's classifiers issue this warning, too.

    stacklevel: as in `warnings.warn`, counted from the caller of this function.
    """
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is read as one label a row.",
            DataConversionWarning,
            stacklevel=stacklevel + 1,
        )
