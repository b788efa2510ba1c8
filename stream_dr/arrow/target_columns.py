"""Convert a record batch's target column to Targets, and back.

The target column is called `label`, `labels` or `target`.

Each distinct label gets a number (code), by Arrow's dictionary encoding. The first label that
appears in the column has code 0, the next distinct label code 1, and so on. Nulls have no code.

If a column is already dictionary-encoded, its codes are renumbered, because the dictionary may
have unused or repeated labels. The column is not decoded to plain strings, because a label of a
megabyte in 10,000 rows would take 10 GB.

The cost is O(rows + labels). No Python loop runs over rows.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.errors import SchemaMismatch
from stream_dr.rows.matrix import is_number_type, view_of_numbers
from stream_dr.rows.table_rows import as_floats
from stream_dr.targets.label_codes import is_label_type, label_column
from stream_dr.targets.targets import Targets, continuous_targets, targets_of_label_sets, targets_of_labels

TARGET_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}
"""Kind of targets → name of the column with the targets or the predictions."""

TARGET_COLUMNS = tuple(TARGET_COLUMN.values())
"""Names of target columns. A batch has at most one target column."""


class TargetColumn(NamedTuple):
    """Target column of a record batch.

    name: "label", "labels" or "target".
    values: one value or one list for each row. A row without a target is null.
    """

    name: str
    values: pa.Array


def targets_from_arrow(batch: pa.RecordBatch) -> Targets | None:
    """Return a batch's Targets, or None if absent.

    The target column is one of these:

    - label: one label for each row.
    - labels: a list of labels for each row.
    - target: one number, or a list of numbers, for each row.

    A row whose entry is null has no target. Raises SchemaMismatch for several target columns or an
    unsupported type, and InvalidTargets for a null label in a list or a number that is not finite.
    """
    names = batch.schema.names
    target_names = [name for name in TARGET_COLUMNS if name in names]
    if not target_names:
        return None
    if len(target_names) > 1:
        joined = " and ".join(target_names)
        raise SchemaMismatch(f"the batch has the columns {joined}; send one of them.", column=target_names[1])

    parse = {"label": _targets_of_single_labels, "labels": _targets_of_label_lists, "target": _continuous_targets}
    return parse[target_names[0]](batch.column(target_names[0]))


def arrow_from_targets(targets: Targets) -> TargetColumn:
    """Return targets as a column of a record batch.

    Labels become Arrow strings, integers or bools. Raises InvalidTargets if no Arrow type has all
    integer labels.
    """
    # Numbers become a column of numbers, or a column of lists of k numbers.
    absent = None if targets.present is None else ~targets.present
    mask = None if absent is None else pa.array(absent)
    if targets.values is not None:
        if targets.values.shape[1] == 1:
            return TargetColumn("target", pa.array(targets.values[:, 0], mask=absent))
        return TargetColumn("target", vector_column(targets.values, mask))

    # Targets of one label per row become a column of labels.
    # Without labels, the type of the column would be null.
    label_values = label_column(targets.labels) if targets.labels else pa.array([], pa.string())
    if targets.indptr is None:
        codes = pa.array(targets.codes, mask=targets.codes < 0)
        return TargetColumn("label", label_values.take(codes))

    # Several labels for each row become a column of lists.
    offsets = pa.array(targets.indptr.astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, label_values.take(pa.array(targets.codes)), mask=mask)
    return TargetColumn("labels", lists)


def vector_column(rows: np.ndarray, mask: pa.Array | None = None) -> pa.Array:
    """Return rows (rows, k) as an Arrow column of lists.

    mask: booleans (rows,), true for each row that becomes null. None without nulls.
    """
    width = rows.shape[1]
    # Arrow cannot count the rows of lists that are all empty.
    if not width:
        return pa.array([[]] * len(rows), pa.list_(pa.float64()))
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).ravel()), width, mask=mask)


def is_list(arrow_type: pa.DataType) -> bool:
    """Return True if an Arrow type is list or large_list."""
    return bool(pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type))


def list_offsets(list_column: pa.Array) -> np.ndarray:
    """Return the offsets of a list column as an array.

    The array (rows + 1,) is read-only. The list of row i has the column's values from offset i up
    to offset i + 1.
    """
    # Return one offset, 0, for a column without rows. Arrow allows it to have no offset.
    if len(list_column):
        return view_of_numbers(list_column.offsets)
    return np.zeros(1, np.int32)


def _targets_of_single_labels(column: pa.Array) -> Targets:
    """Return the Targets of a column of single labels."""
    if is_list(column.type):
        message = f"column label is {column.type}; it holds one label a row. Call a column of lists labels."
        raise SchemaMismatch(message, column="label")
    _check_label_type(column.type, "label")
    return targets_of_labels(column)


def _targets_of_label_lists(labels_column: pa.Array) -> Targets:
    """Return the Targets of a column with lists of labels."""
    if not is_list(labels_column.type):
        raise SchemaMismatch(
            f"column labels is {labels_column.type}; it holds a list of labels a row. Call a column of single labels "
            "label.",
            column="labels",
        )

    # Place the rows in the flattened values. flatten() skips the values of null rows.
    present = labels_column.is_valid().to_numpy(zero_copy_only=False) if labels_column.null_count else None
    indptr = np.zeros(len(labels_column) + 1, dtype=np.int64)
    np.cumsum(pc.list_value_length(labels_column).fill_null(0).to_numpy(), out=indptr[1:])
    flat = labels_column.flatten()
    _check_label_type(flat.type, "labels")
    return targets_of_label_sets(flat, indptr, present)


def _check_label_type(arrow_type: pa.DataType, column_name: str) -> None:
    """Raise SchemaMismatch unless a column's values are strings, integers or bools."""
    if not is_label_type(arrow_type):
        raise SchemaMismatch(
            f"column {column_name} holds {arrow_type}; labels are string, integer or bool. Call a column of "
            "numbers to regress on target.",
            column=column_name,
        )


# numpy warns when it casts a signalling NaN. NaN is refused below.
@np.errstate(invalid="ignore")
def _continuous_targets(target_column: pa.Array) -> Targets:
    """Return the Targets of a column with numbers.

    Each row has one number, or each row has a list of k numbers. A null is a row without a target.
    """
    has_lists = pa.types.is_fixed_size_list(target_column.type)
    k = target_column.type.list_size if has_lists else 1
    flat = target_column
    if has_lists:
        flat = target_column.values.slice(target_column.offset * k, len(target_column) * k)
    if k == 0 or not is_number_type(flat.type):
        raise SchemaMismatch(
            f"column target is {target_column.type}; it must be double or fixed_size_list<double>. Call a column of "
            "labels label or labels.",
            column="target",
        )

    values = as_floats(flat).to_numpy(zero_copy_only=False).reshape(len(target_column), k)
    present = target_column.is_valid().to_numpy(zero_copy_only=False) if target_column.null_count else None
    return continuous_targets(values, present)
