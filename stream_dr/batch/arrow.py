"""Convert bytes to Arrow record batches and Blocks, and back.

A Block has the rows of one batch with their targets, weights and ids.

`read_arrow` checks bytes in this order, before they are used:

1. the messages of the stream (messages.py),
2. the types of the columns,
3. every record batch, with Arrow's full validation (messages.py).

pyarrow reads the record batches without a copy. If the bytes are an Arrow file, only the stream in
the file is read. The footer of the file is not used, because a hostile footer may list one batch a
million times.

Layouts of rows:

dense
    `features`, a column with a list of numbers for each row, or one numeric column with a name for
    each feature.
sparse
    `indices: list<integer>` and `values: list<float|double>`, with lists of equal lengths.
table
    Columns with nulls, strings or dates (table.py).

In addition, a batch may have a column `weight`, a column `id`, and one of the columns `label`,
`labels` and `target`. A feature with one of the RESERVED_NAMES has the column `feature:weight`, and
so on. In the dense layout with `features` and in the sparse layout, any other column raises an
error, which names the column. Lists of integers are cast to float64. Nulls in numbers are refused,
because an Arrow buffer may have 0.0 in the place of a null.

Payloads from the network, events of the log and batches of a shard have the same format and pass
the same checks. So each Block has finite values, and the indices of sparse rows are sorted,
distinct and not negative. If an event has several record batches, the record batches are joined to
one Block.

If an event has one record batch, its values are not copied. The Block points into the read-only
Arrow buffers. For sparse rows, this also requires sorted int32 indices. Dense rows with names are
copied once. The checks read each number once. If a column is a slice of a longer array, its
offsets need not start at 0, and values outside the slice are not checked.

Parquet files keep no categories of their own: a column that was a dictionary in Arrow is a
category (`declared_categories`). Parquet's own dictionary encoding has no meaning.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stream_dr.batch.block import Block, Ids, as_weights, check_finite
from stream_dr.batch.matrix import (
    as_floats,
    as_matrix,
    columns_to_write,
    first_null_index,
    is_number_type,
    is_numeric_type,
    is_string_type,
    is_vector_type,
    number_array,
    refuse_nulls,
    refuse_pandas_index,
    table_from_arrow,
    view_of_numbers,
)
from stream_dr.batch.messages import (
    BytesLike,
    checked_footer_row_counts,
    first_message_line,
    read_checked_messages,
    refuse_invalid_batches,
    refuse_unsupported_types,
    strip_file_header_footer,
)
from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.sparse import MAX_WIDTH, checked_csr, row_of_entry
from stream_dr.batch.targets import (
    KINDS,
    Targets,
    continuous_targets,
    is_label_type,
    label_column,
    targets_of_label_sets,
    targets_of_labels,
)
from stream_dr.errors import InvalidRows, MalformedInput, SchemaMismatch, WidthMismatch

if TYPE_CHECKING:
    import scipy.sparse as sp


TARGET_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}
"""Kind of targets → name of the column with the targets or the predictions."""

TARGET_COLUMNS = tuple(TARGET_COLUMN.values())
"""Names of target columns. A batch has at most one target column."""


def targets_from_arrow(batch: pa.RecordBatch) -> Targets | None:
    """Return a batch's Targets, or None without a target column.

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

    name = target_names[0]
    column = batch.column(name)
    if name == "target":
        return _continuous_targets(column)
    if name == "labels":
        return _targets_of_label_lists(column)
    _check_label_type(column.type, name)
    return targets_of_labels(column)


def arrow_from_targets(targets: Targets) -> tuple[str, pa.Array]:
    """Return the name of the target column, and the targets as its values.

    A row without a target is null.

    Labels become Arrow strings, integers or bools. Raises InvalidTargets if no Arrow type has all
    integer labels.
    """
    # `absent` (rows,) is True for rows without a target. pyarrow takes such a mask as a numpy
    # array for a column of numbers, and as an Arrow array (`mask`) for a column of lists.
    absent = None
    mask = None
    if targets.present is not None:
        absent = ~targets.present
        mask = pa.array(absent)

    # `values` (rows, k) are the numbers of continuous targets, None for labels.
    # One number for each row becomes a column of numbers, several become a column of lists.
    if targets.values is not None:
        if targets.values.shape[1] == 1:
            return "target", pa.array(targets.values[:, 0], mask=absent)
        return "target", vector_column(targets.values, mask)

    # `label_values` has each distinct label once. Without labels, its type must be set, because
    # Arrow would infer the type null.
    if targets.labels:
        label_values = label_column(targets.labels)
    else:
        label_values = pa.array([], pa.string())

    # Targets of one label per row (`indptr` is None) become a column of labels.
    # A code is the index of the row's label, −1 for a row without a target.
    if targets.indptr is None:
        codes = pa.array(targets.codes, mask=targets.codes < 0)
        return "label", label_values.take(codes)

    # Several labels for each row become a column of lists. `flat` has the labels of all rows, and
    # row i has those from offsets[i] up to offsets[i + 1].
    flat = label_values.take(pa.array(targets.codes))
    offsets = pa.array(targets.indptr.astype(np.int32))
    return "labels", pa.ListArray.from_arrays(offsets, flat, mask=mask)


def vector_column(rows: np.ndarray, mask: pa.Array | None = None) -> pa.Array:
    """Return rows (rows, k) as an Arrow column of lists.

    mask: booleans (rows,), true for each row that becomes null. None without nulls.
    """
    width = rows.shape[1]
    # Arrow computes the number of lists as numbers / width, so it cannot count empty lists.
    if not width:
        return pa.array([[]] * len(rows), pa.list_(pa.float64()))
    numbers = pa.array(np.ascontiguousarray(rows).ravel())
    return pa.FixedSizeListArray.from_arrays(numbers, width, mask=mask)


def _targets_of_label_lists(labels_column: pa.Array) -> Targets:
    """Return the Targets of a column with lists of labels."""
    _check_list_type(labels_column.type, "labels", "Call a column of single labels label.")
    flat, indptr = _flatten_lists(labels_column)
    _check_label_type(flat.type, "labels")
    return targets_of_label_sets(flat, indptr, _present(labels_column))


def _present(column: pa.Array) -> np.ndarray | None:
    """Return a mask (rows,) of the values that are not null, or None if no value is."""
    if not column.null_count:
        return None
    return column.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _check_label_type(arrow_type: pa.DataType, column_name: str) -> None:
    """Raise SchemaMismatch unless a column's values are strings, integers or bools."""
    if not is_label_type(arrow_type):
        raise SchemaMismatch(
            f"column {column_name} holds {arrow_type}; labels are string, integer or bool. Call a column of "
            "lists labels, and a column of numbers to regress on target.",
            column=column_name,
        )


# numpy warns when it casts a signalling NaN. NaN is refused below.
@np.errstate(invalid="ignore")
def _continuous_targets(target_column: pa.Array) -> Targets:
    """Return the Targets of a column with numbers.

    Each row has one number, or each row has a list of k numbers. A null is a row without a target.
    """
    # `flat` has the numbers of all rows, k numbers for each row. If the column is a slice of a
    # longer one, `target_column.values` has all numbers of the longer one, so cut off the others.
    k = 1
    flat = target_column
    if pa.types.is_fixed_size_list(target_column.type):
        k = target_column.type.list_size
        flat = target_column.values.slice(target_column.offset * k, len(target_column) * k)
    if k == 0 or not is_number_type(flat.type):
        raise SchemaMismatch(
            f"column target is {target_column.type}; it must be double or fixed_size_list<double>. Call a column of "
            "labels label or labels.",
            column="target",
        )

    # Decimals become floats in Arrow, because numpy would make Python objects of them.
    values = as_floats(flat).to_numpy(zero_copy_only=False).reshape(len(target_column), k)
    return continuous_targets(values, _present(target_column))


EXTRA_COLUMNS = (*TARGET_COLUMNS, "weight", "id")
"""Names of columns that a batch may have in addition to its features."""

RESERVED_NAMES = ("features", "indices", "values", *EXTRA_COLUMNS)
"""Names of columns that are no features, unless they have the prefix FEATURE."""

FEATURE = "feature:"
"""Prefix of the column of a feature whose name is reserved."""

# A feature whose own name is "feature:weight" has the column "feature:feature:weight".
_PREFIXED_OR_RESERVED = re.compile(f"({FEATURE})*({'|'.join(RESERVED_NAMES)})")


def column_of_feature(name: str) -> str:
    """Return the name of the Arrow column that has a feature's values.

    It is the feature's name, with a prefix if the name is reserved, as `feature:weight`.
    """
    if _PREFIXED_OR_RESERVED.fullmatch(name):
        return FEATURE + name
    return name


def feature_hint(name: str) -> str:
    """Return a sentence on how to send a feature that is called `weight`, `target` or the like."""
    return f"If {name} is a feature, call its Arrow column {FEATURE}{name}, or read a file with --as {name}=feature."


def feature_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the feature columns, each under its feature's name.

    The columns of targets, weights and ids are left out. Raises SchemaMismatch if no feature is
    left, or if a column is an index of pandas.
    """
    names = [name for name in batch.schema.names if name not in EXTRA_COLUMNS]
    if not names:
        raise SchemaMismatch("the batch has no features: send features, or indices and values, or numeric columns.")
    refuse_pandas_index(names)

    # The column of a feature with a reserved name, such as `weight`, has the name `feature:weight`.
    # Remove the prefix from such names only. Other names may begin with the same letters.
    features = []
    for name in names:
        if _PREFIXED_OR_RESERVED.fullmatch(name):
            name = name.removeprefix(FEATURE)
        features.append(name)
    return batch.select(names).rename_columns(features)


def prefix_features(batch: pa.RecordBatch, stream_features: Sequence[str], to_learn: bool) -> pa.RecordBatch:
    """Return a batch whose features of reserved names have the prefix `feature:`.

    A column `weight` may be a feature, or have the weights of the rows. It is a feature, and
    becomes `feature:weight`, if the stream has a feature `weight` and the batch has no column
    `feature:weight`. Lists are not renamed, because no feature is a list.

    to_learn: True if the rows will be learned. SchemaMismatch is then raised instead of renaming,
        because the model would learn wrong rows if the column had the weights after all.
    """
    renamed = {}
    for field in batch.schema:
        name = field.name
        is_feature = name in stream_features and not pa.types.is_nested(field.type)
        prefixed_name = column_of_feature(name)
        # A name that is not reserved gets no prefix, and so is a name of the batch.
        if not is_feature or prefixed_name in batch.schema.names:
            continue
        if to_learn:
            raise SchemaMismatch(f"this stream has a feature called {name}. {feature_hint(name)}", column=name)
        renamed[name] = prefixed_name
    return batch.rename_columns([renamed.get(name, name) for name in batch.schema.names])


def is_shard_layout(column_names: Sequence[str]) -> bool:
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

    # A batch with one column for each feature has none of these columns, and always fits.
    present = [name for name in ("features", "indices", "values") if name in column_names]
    if not present:
        return
    # The hint is for a caller whose column `features`, `indices` or `values` is itself a feature.
    hint = feature_hint(present[0])
    # `needed` are the columns with the rows. Dense rows are in `features`, sparse rows in two.
    needed = ["indices", "values"]
    if "features" in present:
        needed = ["features"]
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
    # X stays None if the column has no lists of numbers.
    X = None
    kind = column.type
    if is_vector_type(kind):
        refuse_nulls(column, "features")
        if column.values.null_count:
            _refuse_null_entries(column)
        if is_number_type(kind.value_type):
            X = number_array(column, "features")
    # Refuse lists of length 0, which would be rows without a feature. A batch without rows is
    # allowed, because the length of its lists is not known.
    if X is None or (X.shape[1] == 0 and len(X)):
        message = f"column features is {kind}; it must be a list of numbers a row. {feature_hint('features')}"
        raise SchemaMismatch(message, column="features")
    return X


def _refuse_null_entries(lists: pa.Array) -> None:
    """Raise InvalidRows for the first null in a list of the column `features`.

    lists: column without a null row.
    """
    flat, indptr = _flatten_lists(lists)
    if not flat.null_count:
        return
    at = first_null_index(flat)
    row = row_of_entry(indptr, at)
    feature = at - int(indptr[row])
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
    # Row i has the entries from indptr[i] up to indptr[i + 1], in both columns.
    # So the first offset that differs is the end of the first row whose lists differ in length.
    indices, indptr = _sparse_entries(batch, "indices")
    values, value_indptr = _sparse_entries(batch, "values")
    differing = np.flatnonzero(indptr != value_indptr)
    if len(differing):
        row = int(differing[0]) - 1
        raise InvalidRows(f"row {row} has different numbers of indices and values; send one value an index.", row=row)
    if not pa.types.is_integer(indices.type):
        raise SchemaMismatch(f"column indices holds {indices.type}; it must be list<int32>.", column="indices")

    numbers = None
    if is_number_type(values.type):
        numbers = number_array(values, "values")
    if numbers is None:
        raise SchemaMismatch(f"column values holds {values.type}; it must hold float or double.", column="values")
    return checked_csr(numbers, view_of_numbers(indices), indptr, declared_width)


def arrow_feature_columns(block: Block) -> dict[str, pa.Array]:
    """Return the features of a Block as named Arrow columns.

    Dense rows with feature names are copied. Sparse rows and dense rows without names share the
    Block's memory.
    """
    # `column_of_feature` adds the prefix "feature:" to reserved names, such as `weight`.
    if block.sparse:
        offsets = pa.array(block.X.indptr.astype(np.int32, copy=False))
        indices = pa.array(block.X.indices.astype(np.int32, copy=False))
        values = pa.array(block.X.data)
        return {
            "indices": pa.ListArray.from_arrays(offsets, indices),
            "values": pa.ListArray.from_arrays(offsets, values),
        }
    if block.table:
        columns = columns_to_write(block.X)
        return {column_of_feature(name): column for name, column in columns.items()}
    if block.names is None:
        return {"features": vector_column(block.X)}

    columns = {}
    for i, name in enumerate(block.names):
        values = np.ascontiguousarray(block.X[:, i])
        columns[column_of_feature(name)] = pa.array(values)
    return columns


def _check_list_type(arrow_type: pa.DataType, column_name: str, hint: str) -> None:
    """Raise SchemaMismatch unless a column has lists."""
    # hint: end of the error message.
    if not (pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)):
        message = f"column {column_name} is {arrow_type}; it must be a list a row. {hint}"
        raise SchemaMismatch(message, column=column_name)


def _flatten_lists(lists: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Return the values of all lists, and their offsets (rows + 1,) from 0.

    Row i has the values from indptr[i] up to indptr[i + 1]. A null has no values.
    """
    # Arrow's lists of no rows may have no offsets, and `flatten` would read them.
    if len(lists):
        flat = lists.flatten()
    else:
        flat = lists.values.slice(0, 0)
    lengths = pc.list_value_length(lists).fill_null(0)
    indptr = np.append(0, lengths).cumsum()
    return flat, indptr


def _sparse_entries(batch: pa.RecordBatch, name: str) -> tuple[pa.Array, np.ndarray]:
    """Return the values and offsets of the lists of sparse rows.

    Raises SchemaMismatch if the column has no lists, and InvalidRows for a null.
    """
    column = batch.column(name)
    _check_list_type(column.type, name, feature_hint(name))
    refuse_nulls(column, name)

    # Row i has the values from indptr[i] up to indptr[i + 1]. If the column is a slice of a longer
    # array, indptr[0] may be larger than 0. The values are then cut, and indptr starts from 0.
    # No Arrow kernel is used, because a kernel is slow for a batch of one row.
    # A column without rows may lack the offset 0.
    if len(column):
        indptr = view_of_numbers(column.offsets)
    else:
        indptr = np.zeros(1, np.int32)
    first = int(indptr[0])
    flat = column.values.slice(first, int(indptr[-1]) - first)
    if first:
        indptr = indptr - first
    if flat.null_count:
        row = row_of_entry(indptr, first_null_index(flat))
        raise InvalidRows(f"row {row} has a null in column {name}; leave the entry out.", row=row)
    return flat, indptr


_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)

EventBatches: TypeAlias = Sequence[pa.RecordBatch] | pa.RecordBatch | pa.Table
"""Arrow record batches or an Arrow table with all rows of one event of the log."""


class ValidatedBatches(list[pa.RecordBatch]):
    """List of record batches that passed all checks of `read_arrow`."""


def read_arrow(stream_or_file: BytesLike, max_unpacked_bytes: int | None = None) -> ValidatedBatches:
    """Return the checked record batches of Arrow data.

    The data are a stream or a file in Arrow's IPC format. If the stream has no record batch, one
    batch without rows is returned. Only buffers that are compressed or misaligned are copied.

    Raises
    ------
    MalformedInput
        The bytes are no valid Arrow stream, or are truncated, or other bytes follow the stream.
    SchemaMismatch
        A column has a type that is not supported.
    LimitExceeded
        The stream is larger than `max_unpacked_bytes` after decompression.

    Parameters
    ----------
    stream_or_file : bytes-like
        The whole stream or file. The record batches point into these bytes, so they must not be
        changed afterwards.
    max_unpacked_bytes : int or None
        Limit on the size after decompression, see `read_checked_messages`. None means no limit.
    """
    # A file is a stream between a header and a footer, which are removed. Check the messages first.
    # Their list is not needed, because pyarrow reads the bytes again.
    view = strip_file_header_footer(memoryview(stream_or_file).cast("B"))
    read_checked_messages(view, max_unpacked_bytes)

    try:
        with pa.ipc.open_stream(pa.py_buffer(view), options=_READ_OPTIONS) as reader:
            refuse_unsupported_types(reader.schema)
            # `ValidatedBatches` is a list. Its type says that the batches passed all checks, of
            # which the last ones follow below.
            batches = ValidatedBatches(reader)
            if not batches:
                batches.append(pa.RecordBatch.from_pylist([], schema=reader.schema))
    except (pa.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError) as e:
        raise MalformedInput(f"the bytes are not a valid Arrow stream ({first_message_line(e)}); write it anew.") from e

    refuse_invalid_batches(batches, max_unpacked_bytes)
    return batches


def checked_row_counts(arrow_file: BytesLike) -> tuple[int, ...]:
    """Check an Arrow file and count each record batch's rows.

    After this check of the messages and the footer, pyarrow can safely read the file by its
    footer. Returns the number of rows of each record batch, in the order of the footer.

    arrow_file: the whole file, in Arrow's IPC file format.

    Raises MalformedInput or SchemaMismatch.
    """
    view = memoryview(arrow_file).cast("B")
    messages = read_checked_messages(strip_file_header_footer(view))
    return checked_footer_row_counts(view, messages)


def write_arrow(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return record batches as one uncompressed Arrow IPC stream.

    batches: at least one record batch. All must have the same schema.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def block_from_arrow(
    batches: EventBatches,
    declared_n_features: int | None = None,
    stream_features: Sequence[str] = (),
    to_learn: bool = False,
) -> Block:
    """Return all rows of one event as a Block.

    An event is an entry of the log. The number of features of sparse rows is declared by the
    parameter `declared_n_features`, or by the entry "n_features" of the schema's metadata. If
    neither declares the number, it is the largest index + 1, and the Block's `width_stated` is
    False.

    Raises SchemaMismatch, InvalidRows, NotFinite, InvalidIndex, WidthMismatch, InvalidTargets,
    InvalidWeights or MalformedInput.

    Parameters
    ----------
    batches : record batches or a table
        Rows of the event. All record batches must have the same schema.
    declared_n_features : int or None
        Number of features that a setting or a manifest declares, or None.
    stream_features : sequence of str
        Names of the stream's features, if they are known. A column `weight` has the weights of the
        rows, unless one of these names is `weight`. It is then the feature of this name.
    to_learn : bool
        True if the rows will be learned. A column that could be either is then refused, because
        the model would learn wrong rows if the guess were wrong.
    """
    batch = _join_batches(batches)
    if stream_features:
        # Rename a feature `weight` to `feature:weight`, so that it is not read as rows' weights.
        batch = prefix_features(batch, stream_features, to_learn)
    block = _read_feature_columns(batch, declared_n_features)
    check_finite(block.X)

    return block._replace(y=targets_from_arrow(batch), weights=_read_weight_column(batch), ids=_read_id_column(batch))


def _read_feature_columns(batch: pa.RecordBatch, declared_n_features: int | None) -> Block:
    """Read the features of the rows from a record batch.

    A batch has one of three layouts:

    - Dense rows are vectors in the column `features`.
    - Sparse rows are lists in the columns `indices` and `values`.
    - A batch without these columns has one column for each feature.

    declared_n_features: number of features that a setting or a manifest declares, or None.

    Raises SchemaMismatch if the columns fit none of the layouts. Raises WidthMismatch if the
    number of features of dense rows or of a table is not the declared number.
    """
    # The metadata of the batch's schema may also declare the number of features.
    columns = batch.schema.names
    check_columns_fit_layout(columns)
    declared_width = _reconcile_n_features(batch.schema, declared_n_features)

    if "indices" in columns:
        X = sparse_rows(batch, declared_width)
        return Block(X, width_stated=declared_width is not None)

    # Read dense rows from the column `features`. Without this column, each column is a feature.
    # These columns become an array if all are numbers without nulls, and a table otherwise.
    names: tuple[str, ...] | None = None
    if "features" in columns:
        X = dense_rows(batch.column("features"))
    else:
        named = feature_columns(batch)
        only_numbers = all(is_numeric_type(column.type) and not column.null_count for column in named.columns)
        if only_numbers:
            X, names = as_matrix(named)
        else:
            X = table_from_arrow(named)
            names = tuple(X.schema.names)

    if declared_width is not None and X.shape[1] != declared_width:
        message = f"the batch has {X.shape[1]} features; {declared_width} are stated. Send {declared_width}."
        raise WidthMismatch(message, n_features=declared_width)
    return Block(X, names=names)


def arrow_from_block(block: Block) -> pa.RecordBatch:
    """Return a Block as a record batch.

    `block_from_arrow` converts the record batch back to the same Block. Dense rows with feature
    names are copied into one column for each feature. Other rows are not copied. If the number
    of features of sparse rows was declared, it is stored in the entry "n_features" of the schema's
    metadata.
    """
    columns = arrow_feature_columns(block)
    if block.y is not None:
        # A caller's own source may give targets that are not parsed yet.
        if isinstance(block.y, Targets):
            targets = block.y
        else:
            targets = parse_targets(block.y, block.rows, KINDS)
        name, column = arrow_from_targets(targets)
        columns[name] = column
    if block.weights is not None:
        columns["weight"] = pa.array(block.weights)
    if block.ids is not None:
        columns["id"] = id_array(block.ids)

    batch = pa.record_batch(columns)
    if block.sparse and block.width_stated:
        batch = batch.replace_schema_metadata({"n_features": str(block.features)})
    return batch


def _join_batches(batches: EventBatches) -> pa.RecordBatch:
    """Validate the record batches of an event and join them.

    Record batches that `read_arrow` has validated are not validated again.

    Raises SchemaMismatch if there is no record batch, if a column has an unsupported type, or if
    the record batches have different columns. Raises MalformedInput if a record batch is invalid, or
    if joining fails.
    """
    # A table without rows may have no record batch, so one without rows is made.
    if isinstance(batches, pa.Table):
        batches = batches.to_batches() or pa.RecordBatch.from_pylist([], schema=batches.schema)
    if isinstance(batches, pa.RecordBatch):
        batches = [batches]
    if not batches:
        raise SchemaMismatch("no record batch was given; an event holds at least one, of any number of rows.")

    # `read_arrow` has validated its batches, and returns them with the type ValidatedBatches.
    if not isinstance(batches, ValidatedBatches):
        for part in batches:
            refuse_unsupported_types(part.schema)
        refuse_invalid_batches(batches)
    if len(batches) == 1:
        return batches[0]
    if any(part.schema != batches[0].schema for part in batches):
        raise SchemaMismatch("the record batches of one event have different columns; send one schema.")
    try:
        return pa.concat_batches(batches)
    except (pa.ArrowException, MemoryError) as e:
        raise MalformedInput(f"the record batches cannot be joined ({e}); send fewer rows a request.") from e


def _reconcile_n_features(schema: pa.Schema, known_n_features: int | None) -> int | None:
    """Return the declared number of features, or None.

    The entry "n_features" of the schema's metadata may declare the number too.

    known_n_features: number of features that a setting or a manifest declares, or None.

    Raises WidthMismatch if the two numbers differ, and SchemaMismatch if the metadata is no
    positive integer.
    """
    text = (schema.metadata or {}).get(b"n_features")
    if text is None:
        return known_n_features
    # A long text is refused first, because its conversion would take time.
    n_features = 0
    if len(text) <= 10 and text.isdigit():
        n_features = int(text)
    if not 0 < n_features <= MAX_WIDTH:
        raise SchemaMismatch(f"schema metadata n_features is {text[:40]!r}; it must be a positive integer.")
    if known_n_features is not None and n_features != known_n_features:
        raise WidthMismatch(
            f"the batch states {n_features} features; {known_n_features} are stated for the stream. Send "
            f"{known_n_features}.",
            n_features=known_n_features,
        )
    return n_features


def _read_weight_column(batch: pa.RecordBatch) -> np.ndarray | None:
    if "weight" not in batch.schema.names:
        return None
    column = batch.column("weight")
    if not is_number_type(column.type):
        raise SchemaMismatch(f"column weight is {column.type}; it must be double.", column="weight")
    refuse_nulls(column, "weight")

    # numpy warns when it casts a signalling NaN. `as_weights` refuses NaN.
    with np.errstate(invalid="ignore"):
        weights = number_array(column, "weight")
        return as_weights(weights, batch.num_rows)


def id_array(row_ids: Ids) -> pa.Array:
    """Return ids as an Arrow array of int64 or string."""
    kind = pa.string()
    if row_ids and isinstance(row_ids[0], int):
        kind = pa.int64()
    return pa.array(row_ids, kind)


def _read_id_column(batch: pa.RecordBatch) -> Ids | None:
    if "id" not in batch.schema.names:
        return None
    column = batch.column("id")
    kind = column.type
    # uint64 is refused, because its largest integers are no int64.
    is_id_type = is_string_type(kind) or pa.types.is_integer(kind)
    if not is_id_type or kind == pa.uint64():
        raise SchemaMismatch(f"column id is {column.type}; it must be string or int64.", column="id")
    refuse_nulls(column, "id")
    ids: Ids = column.to_pylist()
    return ids


def declared_categories(file: pq.ParquetFile) -> set[str]:
    """Return the names of a file's columns that were written dictionary-encoded."""
    encoded = (file.metadata.metadata or {}).get(b"ARROW:schema")
    if encoded is None:
        return set()
    buffer = pa.py_buffer(base64.b64decode(encoded))
    schema = pa.ipc.read_schema(buffer)
    return {field.name for field in schema if pa.types.is_dictionary(field.type)}


def encode_categories(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Return a batch whose named columns are dictionary-encoded."""
    for name in names:
        index = batch.schema.get_field_index(name)
        column = batch.column(name).dictionary_encode()
        batch = batch.set_column(index, name, column)
    return batch
