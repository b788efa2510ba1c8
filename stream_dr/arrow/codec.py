"""Codec: bytes ↔ Arrow record batches ↔ Block.

Input is checked before it is used.

`read_arrow` checks the messages first (messages.py), then the types of the columns. pyarrow then
reads the batches without a copy, and every batch is validated in full (sound.py). A file (magic
ARROW1) is read as the stream inside it, because a hostile footer may list one batch a million
times.

Layouts of rows:

dense
    `features: fixed_size_list<float|double, d>`, or plain numeric columns with names.
sparse
    `indices: list<integer>` and `values: list<float|double>`.
table
    Columns with nulls, strings or dates (rows/raw_rows.py).

A batch may have one of `label`, `labels` and `target` in addition, and `weight` and `id`. Any
other column is refused by name. Lists of integers are cast to float64.

A body from the network, an event of the log and a batch of a shard are the same bytes and pass the
same checks. So a Block that exists has finite values and sorted, distinct, non-negative indices.
The record batches of one event are joined first, and no other module sees more than one.

Cost: a batch whose numbers lie as a Block needs them (one record batch, int32 indices, sorted) is
not copied. The Block then points into the Arrow buffers, which are read-only. Each number is read
one time by the checks.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from stream_dr.arrow.json_rows import block_from_json, json_rows
from stream_dr.arrow.messages import check_footer, check_messages, ipc_stream
from stream_dr.arrow.rows import (
    EXTRA_COLUMNS,
    MAX_WIDTH,
    check_layout,
    dense_rows,
    has_only_numbers,
    layout_columns,
    plain_rows,
    refuse_null,
    sparse_rows,
)
from stream_dr.arrow.sound import BytesLike, check_batches, check_types, first_message_line
from stream_dr.arrow.target_columns import arrow_from_targets, targets_from_arrow
from stream_dr.errors import LimitExceeded, MalformedInput, SchemaMismatch, WidthMismatch
from stream_dr.rows.block import Block, Ids, Rows, as_weights, check_finite
from stream_dr.rows.table_rows import is_string_type, raw_from_arrow
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS, Targets

__all__ = [
    "arrow_from_block",
    "batch_lengths",
    "block_from_arrow",
    "block_from_json",
    "id_array",
    "json_rows",
    "read_arrow",
    "write_arrow",
]

_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)

EventBatches: TypeAlias = Sequence[pa.RecordBatch] | pa.RecordBatch | pa.Table
"""All rows of one event, as Arrow."""


class Validated(list[pa.RecordBatch]):
    """Record batches that have been validated in full."""


def read_arrow(data: BytesLike, max_bytes: int | None = None) -> Validated:
    """Return the record batches of an IPC stream or file.

    There is at least one. If the stream has none, it has no rows. Buffers point into `data`, which
    must not be changed afterwards. Nothing is copied unless it is compressed or misaligned.

    Raises MalformedInput if the bytes are not Arrow, truncated, invalid or followed by others,
    SchemaMismatch if no layout has the type of a column, and LimitExceeded.

    Parameters
    ----------
    data : bytes-like
        The whole stream or file.
    max_bytes : int or None
        Limit of the unpacked size, see `check_messages`. None: no limit.
    """
    view = ipc_stream(memoryview(data).cast("B"))
    check_messages(view, max_bytes)

    try:
        with pa.ipc.open_stream(pa.py_buffer(view), options=_READ_OPTIONS) as reader:
            check_types(reader.schema)
            batches = Validated(reader) or Validated([pa.RecordBatch.from_pylist([], schema=reader.schema)])
    except (pa.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError) as e:
        raise MalformedInput(f"the bytes are not a valid Arrow stream ({first_message_line(e)}); write it anew.") from e

    check_batches(batches, max_bytes)
    return batches


def batch_lengths(data: BytesLike) -> tuple[int, ...]:
    """Return the number of rows of each batch of an IPC file.

    pyarrow may then read the file by its footer. Raises the same errors as `read_arrow`.
    """
    view = memoryview(data).cast("B")
    return check_footer(view, check_messages(ipc_stream(view)))


def write_arrow(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return one uncompressed IPC stream of the batches.

    There must be at least one, and all must have one schema.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def block_from_arrow(batches: EventBatches, n_features: int | None = None, max_features: int | None = None) -> Block:
    """Return one Block of all rows of one event.

    The width of sparse rows is `n_features`, or else the schema's metadata `n_features`, or else
    the largest index + 1, and then `width_stated` is False.

    Raises SchemaMismatch, InvalidRows, NotFinite, InvalidIndex, WidthMismatch, LimitExceeded,
    InvalidTargets, InvalidWeights or MalformedInput.

    Parameters
    ----------
    batches : record batches or a table
        They must have one schema.
    n_features : int or None
        Width that a setting or a manifest declares.
    max_features : int or None
        Wider batches are refused.
    """
    batch = _joined(batches)
    X, names, sparse, declared_width = _features(batch, n_features, max_features)
    _check_width(X.shape[1], max_features)
    check_finite(X)

    y = targets_from_arrow(batch)
    columns = batch.schema.names
    weights = _weights(batch) if "weight" in columns else None
    ids = _ids(batch) if "id" in columns else None
    width_stated = not sparse or declared_width is not None
    return Block(X, y, weights, ids, names, width_stated, checked=True)


def _features(
    batch: pa.RecordBatch, n_features: int | None, max_features: int | None
) -> tuple[Rows, tuple[str, ...] | None, bool, int | None]:
    """Return the rows and their description.

    The description is the feature names or None, True for sparse rows, and the declared width or
    None. Raises WidthMismatch if dense rows do not have the declared width.
    """
    columns = batch.schema.names
    dense = "features" in columns
    sparse = "indices" in columns or "values" in columns
    check_layout(columns, dense, sparse)
    declared_width = _declared_width(batch.schema, n_features)

    names = None
    if sparse:
        X = sparse_rows(batch, declared_width, max_features)
    elif dense:
        X = dense_rows(batch.column("features"))
    elif has_only_numbers(batch):
        X, names = plain_rows(batch)
    else:
        X = raw_from_arrow(batch, EXTRA_COLUMNS)
        names = X.names

    if not sparse and declared_width is not None and X.shape[1] != declared_width:
        raise WidthMismatch(
            f"the batch has {X.shape[1]} features; {declared_width} are stated. Send {declared_width}.",
            n_features=declared_width,
        )
    return X, names, sparse, declared_width


def arrow_from_block(block: Block) -> pa.RecordBatch:
    """Return the record batch that `block_from_arrow` reads as this Block.

    Dense rows with names become plain columns, which are copied. Other numbers are not copied. A
    declared sparse width goes into the schema's metadata `n_features`.

    Raises SchemaMismatch if a feature has a name that the layout uses itself.
    """
    columns = layout_columns(block)
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


def _joined(batches: EventBatches) -> pa.RecordBatch:
    """Return all batches as one, validated in full."""
    if not isinstance(batches, Validated):
        batches = _validated(batches)
    if len(batches) == 1:
        return batches[0]

    try:
        table = pa.Table.from_batches(batches)
    except pa.ArrowException as e:
        raise SchemaMismatch("the record batches of one event have different columns; send one schema.") from e
    try:
        joined = table.combine_chunks().to_batches()
    except (pa.ArrowException, MemoryError) as e:
        raise MalformedInput(f"the record batches cannot be joined ({e}); send fewer rows a request.") from e
    return joined[0] if joined else batches[0]


def _validated(batches: EventBatches) -> Sequence[pa.RecordBatch]:
    """Validate batches that a caller made itself, and return at least one."""
    if isinstance(batches, pa.Table):
        batches = batches.to_batches() or pa.RecordBatch.from_pylist([], schema=batches.schema)
    parts = [batches] if isinstance(batches, pa.RecordBatch) else batches
    if not parts:
        raise SchemaMismatch("no record batch was given; an event holds at least one, of any number of rows.")

    for part in parts:
        check_types(part.schema)
    check_batches(parts)
    return parts


def _declared_width(schema: pa.Schema, n_features: int | None) -> int | None:
    """Return the width that the setting or the schema's metadata declares, or None."""
    text = (schema.metadata or {}).get(b"n_features")
    if text is None:
        return n_features
    if not (len(text) <= 10 and text.isdigit() and 0 < int(text) <= MAX_WIDTH):
        raise SchemaMismatch(f"schema metadata n_features is {text[:40]!r}; it must be a positive integer.")
    if n_features is not None and int(text) != n_features:
        raise WidthMismatch(
            f"the batch states {int(text)} features; {n_features} are stated for the stream. Send {n_features}.",
            n_features=n_features,
        )
    return int(text)


def _check_width(width: int, max_features: int | None) -> None:
    if max_features is not None and width > max_features:
        raise LimitExceeded(f"the batch has {width} features; at most {max_features} are allowed.", limit=max_features)


def _weights(batch: pa.RecordBatch) -> np.ndarray | None:
    column = batch.column("weight")
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise SchemaMismatch(f"column weight is {column.type}; it must be double.", column="weight")
    refuse_null(column, "weight")

    # Casting a signalling NaN warns. It is refused afterwards.
    with np.errstate(invalid="ignore"):
        return as_weights(column.to_numpy(zero_copy_only=False), batch.num_rows)


def id_array(ids: Ids) -> pa.Array:
    """Return ids as a column of type int64 or string."""
    return pa.array(ids, pa.int64() if ids and isinstance(ids[0], int) else pa.string())


def _ids(batch: pa.RecordBatch) -> Ids:
    column = batch.column("id")
    if not (is_string_type(column.type) or pa.types.is_integer(column.type)) or column.type == pa.uint64():
        raise SchemaMismatch(f"column id is {column.type}; it must be string or int64.", column="id")
    refuse_null(column, "id")
    ids: Ids = column.to_pylist()
    return ids
