"""Convert bytes to Arrow record batches and Blocks, and back.

A Block has the rows of one batch with their targets, weights and ids.

`read_arrow` checks bytes in this order, before they are used:

1. the messages of the stream (messages.py),
2. the types of the columns,
3. every record batch, with Arrow's full validation (sound.py).

pyarrow reads the record batches without a copy. If the bytes are an Arrow file, only the stream in
the file is read. The footer of the file is not used, because a hostile footer may list one batch a
million times.

Layouts of rows:

dense
    `features`, a column of lists of one length, or plain numeric columns with names.
sparse
    `indices: list<integer>` and `values: list<float|double>`.
table
    Columns with nulls, strings or dates (rows/raw_rows.py).

In addition, a batch may have a column `weight`, a column `id`, and one of the columns `label`,
`labels` and `target`. A feature with one of these names has the column `feature:weight`, and so
on. In the dense layout with `features` and in the sparse layout, any other
column raises an error, which names the column. Lists of integers are cast to float64.

Payloads from the network, events of the log and batches of a shard have the same format and pass
the same checks. So each Block has finite values, and the indices of sparse rows are sorted,
distinct and not negative. If an event has several record batches, the record batches are joined to
one Block.

If an event has one record batch, its values are not copied. The Block points into the read-only
Arrow buffers. For sparse rows, this also requires sorted int32 indices. The checks read each
number once.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from stream_dr.arrow.messages import checked_footer_row_counts, read_checked_messages, strip_file_header_footer
from stream_dr.arrow.rows import (
    MAX_WIDTH,
    arrow_feature_columns,
    check_columns_fit_layout,
    dense_rows,
    feature_columns,
    numeric_no_nulls,
    prefix_features,
    sparse_rows,
)
from stream_dr.arrow.sound import BytesLike, first_message_line, refuse_invalid_batches, refuse_unsupported_types
from stream_dr.arrow.target_columns import arrow_from_targets, targets_from_arrow
from stream_dr.errors import MalformedInput, SchemaMismatch, WidthMismatch
from stream_dr.rows.block import Block, Ids, as_weights, check_finite
from stream_dr.rows.matrix import as_matrix, is_number_type, number_array, refuse_nulls
from stream_dr.rows.table_rows import is_string_type, raw_from_arrow
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS, Targets

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
    view = strip_file_header_footer(memoryview(stream_or_file).cast("B"))
    read_checked_messages(view, max_unpacked_bytes)

    try:
        with pa.ipc.open_stream(pa.py_buffer(view), options=_READ_OPTIONS) as reader:
            refuse_unsupported_types(reader.schema)
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
    return checked_footer_row_counts(view, read_checked_messages(strip_file_header_footer(view)))


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
        Names of the stream's features, if they are known. A column `weight` is then the feature
        of this name, if there is one. In all other cases it has the weights of the rows.
    to_learn : bool
        True to refuse a column `weight` if the stream has a feature `weight`.
    """
    batch = _validate_and_join(batches)
    if stream_features:
        batch = prefix_features(batch, stream_features, to_learn)
    block = _read_feature_columns(batch, declared_n_features)
    check_finite(block.X)

    y = targets_from_arrow(batch)
    return block._replace(y=y, weights=_read_weight_column(batch), ids=_read_id_column(batch))


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
    columns = batch.schema.names
    check_columns_fit_layout(columns)
    declared_width = _reconcile_n_features(batch.schema, declared_n_features)

    if "indices" in columns:
        X = sparse_rows(batch, declared_width)
        return Block(X, width_stated=declared_width is not None)

    # Read dense rows from the column `features`; without this column, each column is a feature.
    # Columns of plain numbers then become an array, and any other columns become a table.
    names: tuple[str, ...] | None = None
    if "features" in columns:
        X = dense_rows(batch.column("features"))
    else:
        named = feature_columns(batch)
        if numeric_no_nulls(named):
            X, names = as_matrix(named)
        else:
            X = raw_from_arrow(named)
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
        targets = block.y if isinstance(block.y, Targets) else parse_targets(block.y, block.rows, KINDS)
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


def _validate_and_join(batches: EventBatches) -> pa.RecordBatch:
    """Validate the record batches of an event and join them.

    Record batches that `read_arrow` has validated are not validated again.

    Raises SchemaMismatch if there is no record batch, or if the record batches have different
    columns. Raises MalformedInput if a record batch is invalid, or if joining fails.
    """
    if not isinstance(batches, ValidatedBatches):
        batches = _validate_batches(batches)
    if len(batches) == 1:
        return batches[0]

    # Make one table. Arrow raises an error if the record batches have different schemas.
    try:
        table = pa.Table.from_batches(batches)
    except pa.ArrowException as e:
        raise SchemaMismatch("the record batches of one event have different columns; send one schema.") from e
    try:
        joined = table.combine_chunks().to_batches()
    except (pa.ArrowException, MemoryError) as e:
        raise MalformedInput(f"the record batches cannot be joined ({e}); send fewer rows a request.") from e
    return joined[0] if joined else batches[0]


def _validate_batches(batches: EventBatches) -> Sequence[pa.RecordBatch]:
    """Validate record batches that did not come from `read_arrow`.

    Returns at least one record batch. Raises SchemaMismatch if there is no record batch, or if a
    column has an unsupported type. Raises MalformedInput if a record batch is invalid.
    """
    if isinstance(batches, pa.Table):
        batches = batches.to_batches() or pa.RecordBatch.from_pylist([], schema=batches.schema)
    parts = [batches] if isinstance(batches, pa.RecordBatch) else batches
    if not parts:
        raise SchemaMismatch("no record batch was given; an event holds at least one, of any number of rows.")

    for part in parts:
        refuse_unsupported_types(part.schema)
    refuse_invalid_batches(parts)
    return parts


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
    if not (len(text) <= 10 and text.isdigit() and 0 < int(text) <= MAX_WIDTH):
        raise SchemaMismatch(f"schema metadata n_features is {text[:40]!r}; it must be a positive integer.")
    if known_n_features is not None and int(text) != known_n_features:
        raise WidthMismatch(
            f"the batch states {int(text)} features; {known_n_features} are stated for the stream. Send "
            f"{known_n_features}.",
            n_features=known_n_features,
        )
    return int(text)


def _read_weight_column(batch: pa.RecordBatch) -> np.ndarray | None:
    if "weight" not in batch.schema.names:
        return None
    column = batch.column("weight")
    if not is_number_type(column.type):
        raise SchemaMismatch(f"column weight is {column.type}; it must be double.", column="weight")
    refuse_nulls(column, "weight")

    # numpy warns when it casts a signalling NaN. `as_weights` refuses NaN.
    with np.errstate(invalid="ignore"):
        return as_weights(number_array(column, "weight"), batch.num_rows)


def id_array(row_ids: Ids) -> pa.Array:
    """Return ids as an Arrow array of int64 or string."""
    return pa.array(row_ids, pa.int64() if row_ids and isinstance(row_ids[0], int) else pa.string())


def _read_id_column(batch: pa.RecordBatch) -> Ids | None:
    if "id" not in batch.schema.names:
        return None
    column = batch.column("id")
    if not (is_string_type(column.type) or pa.types.is_integer(column.type)) or column.type == pa.uint64():
        raise SchemaMismatch(f"column id is {column.type}; it must be string or int64.", column="id")
    refuse_nulls(column, "id")
    ids: Ids = column.to_pylist()
    return ids
