"""Convert feature columns of record batches to Blocks, and back.

A Block has the rows of one batch with their targets, weights and ids.

There are three numeric layouts of the feature columns:

- dense: one column `features`, with a list of numbers for each row,
- sparse: the columns `indices` and `values`, with a list for each row,
- dense with names: one numeric column for each feature.

A feature called `weight`, or by another name of RESERVED_NAMES, has the column `feature:weight`.

Each error message names its column.

Sparse rows become one CSR matrix. So the lists `indices` and `values` of a row must have equal
lengths. If a column is a slice of a longer array, its offsets need not start at 0, and values
outside the slice are not checked. Nulls are refused, because an Arrow buffer may have 0.0 in the
place of a null.

Cost: the columns of dense rows with names are copied once into a C-ordered array. Other numbers
are copied only if a Block needs another type or order.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from stream_dr.arrow.target_columns import TARGET_COLUMNS, is_list, list_offsets, vector_column
from stream_dr.errors import InvalidIndex, InvalidRows, SchemaMismatch
from stream_dr.rows.block import Block
from stream_dr.rows.matrix import (
    first_null_index,
    is_number_or_boolean_type,
    is_number_type,
    is_vector_type,
    number_array,
    refuse_nulls,
    view_of_numbers,
)
from stream_dr.rows.table_rows import arrow_from_raw

if TYPE_CHECKING:
    import scipy.sparse as sp

EXTRA_COLUMNS = (*TARGET_COLUMNS, "weight", "id")
"""Names of columns that a batch may have in addition to its features."""

RESERVED_NAMES = ("features", "indices", "values", *EXTRA_COLUMNS)
"""Names of columns that are no features, unless they have the prefix FEATURE."""

FEATURE = "feature:"
"""Prefix of the column of a feature whose name is reserved."""

# A feature whose own name is "feature:weight" has the column "feature:feature:weight".
_PREFIXED_OR_RESERVED = re.compile(f"({FEATURE})*({'|'.join(RESERVED_NAMES)})")

# Sparse rows become a CSR matrix, whose column indices are int32.
MAX_WIDTH = 2**31 - 1
"""Maximum number of columns of sparse rows."""


def column_of_feature(name: str) -> str:
    """Return the name of the column that holds a feature."""
    if _PREFIXED_OR_RESERVED.fullmatch(name):
        return FEATURE + name
    return name


def feature_hint(name: str) -> str:
    """Return the sentence that says how to send a feature of a reserved name."""
    return f"If {name} is a feature, call its Arrow column {FEATURE}{name}, or read a file with --as {name}=feature."


def feature_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the feature columns, each under its feature's name.

    The columns of targets, weights and ids are left out. Raises SchemaMismatch if no feature is
    left, or if a column is an index of pandas.
    """
    names = [name for name in batch.schema.names if name not in EXTRA_COLUMNS]
    if not names:
        raise SchemaMismatch("the batch has no features: send features, or indices and values, or numeric columns.")
    index = next((name for name in names if name.startswith("__index_level_")), None)
    if index is not None:
        raise SchemaMismatch(f"column {index} is a pandas index; convert with preserve_index=False.", column=index)
    features = [name.removeprefix(FEATURE) if _PREFIXED_OR_RESERVED.fullmatch(name) else name for name in names]
    batch = batch.select(names)
    if features == names:
        return batch
    return batch.rename_columns(features)


def prefix_features(batch: pa.RecordBatch, stream_features: Sequence[str], to_learn: bool) -> pa.RecordBatch:
    """Return a batch that marks the stream's features by their prefix.

    A column `weight` becomes `feature:weight` if the stream has a feature `weight`, and the batch
    has no column `feature:weight`. Lists are not renamed, because no feature is a list.

    to_learn: True to raise SchemaMismatch instead, because wrong rows would be learned for good.
    """
    columns = batch.schema.names
    renamed = []
    for field in batch.schema:
        name = field.name
        column = column_of_feature(name)
        if column != name and name in stream_features and column not in columns and not pa.types.is_nested(field.type):
            if to_learn:
                raise SchemaMismatch(f"this stream has a feature called {name}. {feature_hint(name)}", column=name)
            name = column
        renamed.append(name)
    return batch.rename_columns(renamed)


def has_dense_or_sparse_columns(column_names: Sequence[str]) -> bool:
    """Return True for column names of dense or sparse rows.

    Dense rows have the column `features`. Sparse rows have the columns `indices` and `values`.
    """
    return "features" in column_names or {"indices", "values"} <= set(column_names)


def check_columns_fit_layout(column_names: list[str]) -> None:
    """Raise SchemaMismatch unless the columns fit one layout of rows.

    The error is raised in three cases:

    - Two columns have the same name.
    - The batch has the columns of dense or sparse rows, and a further column that has no targets,
      weights or ids.
    - Only one of the columns `indices` and `values` is present.

    column_names: names of all columns of the batch.
    """
    if len(set(column_names)) < len(column_names):
        repeated = next(name for i, name in enumerate(column_names) if name in column_names[:i])
        raise SchemaMismatch(f"column {repeated} comes twice; name each column once.", column=repeated)

    present = [name for name in ("features", "indices", "values") if name in column_names]
    if not present:
        return
    hint = feature_hint(present[0])
    needed = ["features"] if "features" in present else ["indices", "values"]
    for name in column_names:
        if name not in needed and name not in EXTRA_COLUMNS:
            others = " and ".join(needed)
            raise SchemaMismatch(f"column {name} has no place beside {others}; leave it out. {hint}", column=name)
    for name in needed:
        if name not in present:
            message = f"column {name} is missing: sparse rows need indices and values. {hint}"
            raise SchemaMismatch(message, column=name)


def dense_rows(column: pa.Array) -> np.ndarray:
    """Return the lists of the column `features` as an array (rows, d).

    The array is float32 or float64, and shares the column's memory if possible.

    column: column of lists of numbers. Each list has the d values of a row.

    Raises SchemaMismatch for another type. Raises InvalidRows for a null, or if the lists differ in
    length.
    """
    X = None
    kind = column.type
    if is_vector_type(kind):
        refuse_nulls(column, "features")
        if column.values.null_count:
            _refuse_null_entries(column)
        if is_number_type(kind.value_type):
            X = number_array(column, "features")
    if X is None or (X.shape[1] == 0 and len(X)):
        message = f"column features is {kind}; it must be a list of numbers a row. {feature_hint('features')}"
        raise SchemaMismatch(message, column="features")
    return X


def _refuse_null_entries(lists: pa.Array) -> None:
    """Raise InvalidRows for the first null in a list of the column `features`.

    lists: column without a null row.
    """
    flat = lists.flatten()
    if not flat.null_count:
        return
    at = first_null_index(flat)
    if is_list(lists.type):
        starts = list_offsets(lists) - list_offsets(lists)[0]
        row = int(np.searchsorted(starts, at, side="right")) - 1
        feature = at - int(starts[row])
    else:
        row, feature = divmod(at, lists.type.list_size)
    raise InvalidRows(f"row {row}, column {feature} is null; send a number.", row=row, column=feature)


def sparse_rows(batch: pa.RecordBatch, declared_width: int | None) -> "sp.csr_matrix":
    """Return the columns `indices` and `values` as a CSR matrix.

    Row i of the matrix has the values in list i of the column `values`, at the indices in list i
    of the column `indices`. The indices of the matrix are sorted and distinct.

    declared_width: number of columns of the matrix. If None, it is the largest index + 1.

    Raises
    ------
    SchemaMismatch
        A column has another type than a list of numbers.
    InvalidRows
        A value is null, or the two lists of a row have different lengths.
    InvalidIndex
        An index is negative or repeated in a row, or is too large for `declared_width`.
    """
    indices, indptr = _flatten_list_column(batch.column("indices"), "indices")
    values, value_indptr = _flatten_list_column(batch.column("values"), "values")
    differing = np.flatnonzero(indptr != value_indptr)
    if len(differing):
        row = int(differing[0]) - 1
        raise InvalidRows(f"row {row} has different numbers of indices and values; send one value an index.", row=row)
    if not pa.types.is_integer(indices.type):
        raise SchemaMismatch(f"column indices holds {indices.type}; it must be list<int32>.", column="indices")

    numbers = number_array(values, "values") if is_number_type(values.type) else None
    if numbers is None:
        raise SchemaMismatch(f"column values holds {values.type}; it must hold float or double.", column="values")
    return checked_csr(numbers, view_of_numbers(indices), indptr, declared_width)


def numeric_no_nulls(batch: pa.RecordBatch) -> bool:
    """Return True if all columns are numeric without nulls.

    Columns of bools count as numeric.
    """
    return all(is_number_or_boolean_type(column.type) and not column.null_count for column in batch.columns)


def arrow_feature_columns(block: Block) -> dict[str, pa.Array]:
    """Return the features of a Block as named Arrow columns.

    Dense rows with feature names are copied. Sparse rows and dense rows without names share the
    Block's memory.
    """
    if block.sparse:
        offsets = pa.array(block.X.indptr.astype(np.int32, copy=False))
        lists = (("indices", block.X.indices.astype(np.int32, copy=False)), ("values", block.X.data))
        return {name: pa.ListArray.from_arrays(offsets, pa.array(flat)) for name, flat in lists}

    if block.table:
        return {column_of_feature(name): column for name, column in arrow_from_raw(block.X).items()}

    if block.names is None:
        return {"features": vector_column(block.X)}
    columns = enumerate(map(column_of_feature, block.names))
    return {column: pa.array(np.ascontiguousarray(block.X[:, i])) for i, column in columns}


def _flatten_list_column(list_column: pa.Array, name: str) -> tuple[pa.Array, np.ndarray]:
    """Return a list column's values and boundaries of lists.

    Returns two values:

    - Values of all lists, one list after the other.
    - Offsets (rows + 1,) in `values`, from 0. Row i has the values from indptr[i] up to
      indptr[i + 1].

    name: name of the column, for error messages.

    Raises SchemaMismatch for a column of another type, and InvalidRows for a null.
    """
    if not is_list(list_column.type):
        hint = feature_hint(name)
        raise SchemaMismatch(f"column {name} is {list_column.type}; it must be a list a row. {hint}", column=name)
    refuse_nulls(list_column, name)

    # Cut the values to those of the column.
    # If the column is a slice of a longer array, its first offset may be larger than 0.
    offsets = list_offsets(list_column)
    first = int(offsets[0])
    last = int(offsets[-1])
    flat = list_column.values
    if first or last < len(flat):
        flat = flat.slice(first, last - first)
    indptr = offsets if first == 0 else offsets - first

    if flat.null_count:
        row = int(np.searchsorted(indptr, first_null_index(flat), side="right")) - 1
        raise InvalidRows(f"row {row} has a null in column {name}; leave the entry out.", row=row)
    return flat, indptr


def csr_without_check(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> "sp.csr_matrix":
    """Return a CSR matrix of three arrays without checks.

    The caller guarantees that the indices of each row are sorted, distinct and below shape[1].
    Nothing is copied if `indptr` is int32. Costs O(1).

    data: values of all rows, one row after the other.
    indices: column of each value.
    indptr: offsets (rows + 1,) of the rows in `data` and `indices`.
    shape: number of rows and number of columns.
    """
    matrix = _new_csr(data, indices, indptr.astype(np.int32, copy=False), shape)
    matrix.has_canonical_format = True
    return matrix


def checked_csr(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, declared_width: int | None
) -> "sp.csr_matrix":
    """Return a CSR matrix (rows, features) with sorted indices.

    Nothing is copied if the indices are int32 and those of each row are sorted already. Raises
    InvalidIndex for an index out of range or repeated within a row. The error names the row and
    the index.

    Parameters
    ----------
    data : ndarray (entries,), float32 or float64
        Values of all rows, one row after the other.
    indices : ndarray (entries,), integers
        Column of each value.
    indptr : ndarray (rows + 1,)
        Offsets of the rows in `data` and `indices`.
    declared_width : int or None
        Number of columns of the matrix. If None, it is the largest index + 1.
    """
    limit = declared_width or MAX_WIDTH
    if indices.min(initial=0) < 0 or indices.max(initial=0) >= limit:
        at = int(np.flatnonzero((indices < 0) | (indices >= limit))[0])
        row = int(np.searchsorted(indptr, at, side="right")) - 1
        index = int(indices[at])
        message = f"row {row} has index {index}; indices are integers from 0 to {limit - 1}."
        raise InvalidIndex(message, row=row, column=index)

    indices = indices.astype(np.int32, copy=False)
    shape = (len(indptr) - 1, declared_width or int(indices.max(initial=-1)) + 1)
    matrix = _new_csr(data, indices, indptr.astype(np.int32, copy=False), shape)
    if matrix.has_canonical_format:
        return matrix

    # Sort copies, because `sort_indices` changes the caller's `data` and `indices` in place.
    matrix = _new_csr(data.copy(), indices.copy(), matrix.indptr, shape)
    matrix.sort_indices()
    # Sorted rows have the canonical format unless an index is repeated in a row.
    if not _new_csr(matrix.data, matrix.indices, matrix.indptr, shape).has_canonical_format:
        # Find the first repeated index, for the error message.
        rows = np.repeat(np.arange(shape[0]), np.diff(matrix.indptr))
        at = int(np.flatnonzero((matrix.indices[1:] == matrix.indices[:-1]) & (rows[1:] == rows[:-1]))[0])
        row = int(rows[at])
        column = int(matrix.indices[at])
        raise InvalidIndex(f"row {row} has index {column} more than once; add its values up.", row=row, column=column)

    matrix.has_canonical_format = True
    return matrix


def _new_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> "sp.csr_matrix":
    # scipy is imported here, so that a client that sends dense rows need not load scipy.
    from scipy.sparse import csr_matrix

    return csr_matrix((data, indices, indptr), shape=shape)
