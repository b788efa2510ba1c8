"""arrow_targets: the columns `label`, `labels` and `target` of a batch ↔ Targets.

Cost: O(rows + labels) in Arrow's own kernels; no loop over rows in Python.

Why this way: Arrow's dictionary encoding numbers values in order of first appearance and keeps nulls apart, which is what
Targets asks for. A dictionary column's codes are numbered anew, because its own dictionary may hold labels no row has, or
one label twice; it is not unpacked, because a label of a megabyte in each of 10,000 rows would be 10 GB.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.errors import InvalidTargets, SchemaMismatch
from stream_dr.rows.block import LARGEST
from stream_dr.rows.table_rows import is_text, numbers_of
from stream_dr.targets.label_codes import Label, by_appearance, distinct_within
from stream_dr.targets.targets import Targets

TARGET_COLUMNS = ("label", "labels", "target")


def targets_from_arrow(batch: pa.RecordBatch) -> Targets | None:
    """The batch's Targets by the column it has: label → class, labels → multilabel, target → continuous; None without.

    Null = a row without target. Raises SchemaMismatch (more than one such column, wrong type) or InvalidTargets.
    """
    names = batch.schema.names
    there = [name for name in TARGET_COLUMNS if name in names]
    if not there:
        return None
    if len(there) > 1:
        raise SchemaMismatch(f"the batch has the columns {' and '.join(there)}; send one of them.", column=there[1])
    column = batch.column(there[0])
    return {"label": _class, "labels": _multilabel, "target": _continuous}[there[0]](column)


def arrow_from_targets(targets: Targets) -> tuple[str, pa.Array]:
    """The column's name and values; labels keep their type (string, int64, bool), absent rows are null."""
    absent = None if targets.present is None else ~targets.present
    if targets.values is not None:
        k = targets.values.shape[1]
        flat = pa.array(np.ascontiguousarray(targets.values).ravel())
        if k == 1:
            return "target", pa.array(targets.values[:, 0], mask=absent)
        return "target", pa.FixedSizeListArray.from_arrays(flat, k, mask=None if absent is None else pa.array(absent))
    table = _label_array(targets.labels)
    if targets.indptr is None:
        codes = pa.array(targets.codes, mask=targets.codes < 0)
        return "label", table.take(codes)
    offsets = pa.array(targets.indptr.astype(np.int32))
    mask = None if absent is None else pa.array(absent)
    return "labels", pa.ListArray.from_arrays(offsets, table.take(pa.array(targets.codes)), mask=mask)


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is list or large_list."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def first_null(array: pa.Array) -> int:
    """Index of the first null; an array of the null type, which may say it is of any length, is not looked through."""
    if pa.types.is_null(array.type):
        return 0
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])


def offsets_of(column: pa.Array) -> np.ndarray:
    """Where each row of a list column begins in its values, and where the last one ends (rows + 1,); read-only.

    Arrow lets a column of no rows be without the one offset that is due.
    """
    return numbers_of(column.offsets) if len(column) else np.zeros(1, np.int32)


def _class(column: pa.Array) -> Targets:
    if is_list(column.type):
        raise SchemaMismatch(
            f"column label is {column.type}; it holds one label a row. Call a column of lists labels.", column="label"
        )
    labels, codes = _encode(column, "label")
    if not column.null_count and not pa.types.is_dictionary(column.type):
        return Targets("class", labels, codes)
    present = codes >= 0
    return Targets("class", labels, codes, present=None if present.all() else present)


def _multilabel(column: pa.Array) -> Targets:
    if not is_list(column.type):
        raise SchemaMismatch(
            f"column labels is {column.type}; it holds a list of labels a row. Call a column of single labels label.",
            column="labels",
        )
    indptr = _bounds(column)
    flat = column.flatten()  # leaves out what lies under null slots
    if pa.types.is_null(flat.type) and len(flat):  # it may say it is of any length
        raise _null_label(indptr, 0)
    labels, codes = _encode(flat, "labels")
    if len(codes) and codes.min() < 0:
        raise _null_label(indptr, int(codes.argmin()))
    codes, indptr = distinct_within(codes, indptr)
    present = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    return Targets("multilabel", labels, codes, indptr, present=present)


def _null_label(indptr: np.ndarray, at: int) -> InvalidTargets:
    """The error that says that the label at a place of the flattened column is null."""
    row = int(np.searchsorted(indptr, at, side="right")) - 1
    return InvalidTargets(f"a label of row {row} is null; leave it out of the list.", row=row)


@np.errstate(invalid="ignore")  # a signalling NaN warns when it is cast; it is refused in any case
def _continuous(column: pa.Array) -> Targets:
    k = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 1
    flat = column.values.slice(column.offset * k, len(column) * k) if k != 1 or _nested(column) else column
    if k == 0 or not (pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)):
        raise SchemaMismatch(
            f"column target is {column.type}; it must be double or fixed_size_list<double>. "
            "Call a column of labels label or labels.",
            column="target",
        )
    values = flat.to_numpy(zero_copy_only=False).astype(np.float64, copy=False).reshape(len(column), k)
    present = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    if present is not None:
        values = np.where(present[:, None], values, 0.0)
    fine = np.abs(values) <= LARGEST
    if not fine.all():
        row = int(np.argwhere(~fine)[0][0])
        raise InvalidTargets(f"the target of row {row} is NaN, null or too large; targets must be finite.", row=row)
    return Targets("continuous", (), np.empty(0, dtype=np.int32), values=values, present=present)


def _nested(column: pa.Array) -> bool:
    return bool(pa.types.is_fixed_size_list(column.type))


def _encode(column: pa.Array, name: str) -> tuple[tuple[Label, ...], np.ndarray]:
    """Distinct labels in order of first appearance, and int32 codes (−1 where null)."""
    if pa.types.is_dictionary(column.type):
        return _encode_codes(column, name)
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if not _is_label(column.type):
        raise SchemaMismatch(
            f"column {name} holds {column.type}; labels are string, integer or bool. "
            "Call a column of numbers to regress on target.",
            column=name,
        )
    encoded = column.dictionary_encode()
    indices = encoded.indices.fill_null(-1) if column.null_count else encoded.indices
    return tuple(encoded.dictionary.to_pylist()), numbers_of(indices)


def _encode_codes(column: pa.DictionaryArray, name: str) -> tuple[tuple[Label, ...], np.ndarray]:
    """`_encode` of a dictionary column, whose dictionary may itself hold nulls, labels no row has, or one label twice."""
    own, code_of = _encode(column.dictionary, name)
    if not len(column):
        return (), np.empty(0, dtype=np.int32)
    places = column.indices.fill_null(0) if column.indices.null_count else column.indices
    codes = np.append(code_of, np.int32(-1))[places.to_numpy()]  # of nulls alone there may be no label
    if column.indices.null_count:
        codes[column.indices.is_null().to_numpy(zero_copy_only=False)] = -1
    used, codes = by_appearance(codes, len(own))
    return tuple(own[i] for i in used.tolist()), codes


def _is_label(kind: pa.DataType) -> bool:
    return bool(is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _bounds(column: pa.Array) -> np.ndarray:
    """Where each row's labels begin and end in the flattened column (rows + 1,) int64; a null row has none."""
    if column.null_count == 0:
        offsets = offsets_of(column)
        return offsets.astype(np.int64) - offsets[0]
    indptr = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy(), out=indptr[1:])
    return indptr


def _label_array(labels: tuple[Label, ...]) -> pa.Array:
    if not labels:
        return pa.array([], pa.string())
    numbers = [label for label in labels if type(label) is int]
    least, largest = min(numbers, default=0), max(numbers, default=0)
    if largest < 2**63:
        return pa.array(labels)
    if least < 0:
        raise InvalidTargets(
            f"the labels {least} and {largest} are in one batch, and no Arrow type holds both; pass labels as strings."
        )
    return pa.array(labels, pa.uint64())
