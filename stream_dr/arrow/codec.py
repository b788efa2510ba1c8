"""codec: bytes ↔ Arrow record batches ↔ Block, with nothing believed before it is checked.

`read_arrow` looks at the messages first (messages.py), then at the types of the columns; pyarrow then reads the batches
without a copy, and every one is checked in full (sound.py). A file (magic ARROW1) is read as the stream inside it, because a
hostile footer may list one batch a million times.

Dense rows are `features: fixed_size_list<float|double, d>` or plain numeric columns (names kept); sparse rows are
`indices: list<integer>` + `values: list<float|double>`; columns with nulls, strings or dates are a table's (raw.py). Beside
them at most one of `label`, `labels`, `target`, and `weight` and `id`. Anything else is refused by name.

Cost: a batch whose numbers lie as a Block wants them (one record batch, int32 indices, sorted) is not copied: the Block
points into the Arrow buffers, which are read-only. Checks read each number once.

Why this way: a body from the network, an event of the log and a shard's batch are the same bytes and pass the same
gate, so a Block that exists has finite values and sorted, distinct, non-negative indices. An event of several record
batches is joined first, so that the rest knows only one. Integer lists are taken as well as float ones, cast.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stream_dr.arrow.json_rows import block_from_json, json_rows
from stream_dr.arrow.messages import check_footer, check_messages, stream_in
from stream_dr.arrow.rows import (
    BESIDE,
    WIDEST,
    check_columns,
    dense_rows,
    feature_columns,
    numeric,
    plain_rows,
    refuse_null,
    sparse_rows,
)
from stream_dr.arrow.sound import check_batches, check_types, first_line
from stream_dr.arrow.targets import arrow_from_targets, targets_from_arrow
from stream_dr.errors import LimitExceeded, MalformedInput, SchemaMismatch, WidthMismatch
from stream_dr.rows.block import Block, Ids, as_weights, check_finite
from stream_dr.rows.table_rows import is_text, raw_from_arrow
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS, Targets

__all__ = [
    "arrow_from_block",
    "block_from_arrow",
    "block_from_json",
    "check_file",
    "id_array",
    "json_rows",
    "read_arrow",
    "write_arrow",
]

_READ = pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


class Validated(list[pa.RecordBatch]):
    """Record batches that have been checked in full."""


def read_arrow(data: Any, max_bytes: int | None = None) -> Validated:
    """The record batches of an IPC stream or file held in a bytes-like object; at least one, of no rows if there is none.

    max_bytes bounds what the body unpacks to, as `check_messages` tells (None: no bound). Buffers point into `data`, which
    must not be changed afterwards. Raises MalformedInput (not Arrow, truncated, invalid, bytes after the end),
    SchemaMismatch (a type that no layout has) or LimitExceeded.
    Cost: O(messages) plus full validation; no copy unless compressed or misaligned.
    """
    view = stream_in(memoryview(data).cast("B"))
    check_messages(view, max_bytes)
    try:
        with pa.ipc.open_stream(pa.py_buffer(view), options=_READ) as reader:
            check_types(reader.schema)
            batches = Validated(reader) or Validated([pa.RecordBatch.from_pylist([], schema=reader.schema)])
    except (pa.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError) as e:
        raise MalformedInput(f"the bytes are not a valid Arrow stream ({first_line(e)}); write it anew.") from e
    check_batches(batches, max_bytes)
    return batches


def check_file(data: Any) -> tuple[int, ...]:
    """Rows of each batch of an IPC file that pyarrow may then read by its footer. Raises what `read_arrow` does of one."""
    view = memoryview(data).cast("B")
    return check_footer(view, check_messages(stream_in(view)))


def write_arrow(batches: Sequence[pa.RecordBatch]) -> bytes:
    """One uncompressed IPC stream of the batches (at least one, all of one schema)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def block_from_arrow(
    batches: Sequence[pa.RecordBatch] | pa.RecordBatch | pa.Table,
    n_features: int | None = None,
    max_features: int | None = None,
) -> Block:
    """One Block of all rows of one event's record batches.

    n_features: the width a setting or manifest states; else schema metadata `n_features` states a sparse batch's width;
    else it is the largest index + 1 and `width_stated` is False. max_features: refuse wider batches.
    Raises SchemaMismatch, InvalidRows, NotFinite, InvalidIndex, WidthMismatch, LimitExceeded, InvalidTargets,
    InvalidWeights, MalformedInput.
    """
    batch = _joined(batches)
    schema = batch.schema
    columns = schema.names
    dense, sparse = "features" in columns, "indices" in columns or "values" in columns
    check_columns(columns, dense, sparse)
    stated = _stated_width(schema, n_features)
    names = None
    if sparse:
        X = sparse_rows(batch, stated, max_features)
    elif dense:
        X = dense_rows(batch.column("features"))
    elif numeric(batch):
        X, names = plain_rows(batch)
    else:
        X = raw_from_arrow(batch, BESIDE)
        names = X.names
    if not sparse and stated is not None and X.shape[1] != stated:
        raise WidthMismatch(
            f"the batch has {X.shape[1]} features; {stated} are stated. Send {stated}.", n_features=stated
        )
    _check_width(X.shape[1], max_features)
    check_finite(X)
    y = targets_from_arrow(batch)
    weights = _weights(batch) if "weight" in columns else None
    ids = _ids(batch) if "id" in columns else None
    width_stated = not sparse or stated is not None
    return Block(X, y, weights, ids, names, width_stated, checked=True)


def arrow_from_block(block: Block) -> pa.RecordBatch:
    """The record batch that says what the Block does; `block_from_arrow` inverts it.

    Dense rows with names become plain columns; a stated sparse width goes into schema metadata `n_features`. Numbers are
    not copied (plain columns are). Raises SchemaMismatch when a feature's name is one the layout uses itself.
    """
    columns = feature_columns(block)
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


def _joined(batches: Sequence[pa.RecordBatch] | pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    """All batches as one, checked in full."""
    if not isinstance(batches, Validated):
        batches = _checked(batches)
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


def _checked(batches: Sequence[pa.RecordBatch] | pa.RecordBatch | pa.Table) -> Sequence[pa.RecordBatch]:
    """A caller's own batches, at least one, checked as those that were read are."""
    if isinstance(batches, pa.Table):
        batches = batches.to_batches() or pa.RecordBatch.from_pylist([], schema=batches.schema)
    parts = [batches] if isinstance(batches, pa.RecordBatch) else batches
    if not parts:
        raise SchemaMismatch("no record batch was given; an event holds at least one, of any number of rows.")
    for part in parts:
        check_types(part.schema)
    check_batches(parts)
    return parts


def _stated_width(schema: pa.Schema, n_features: int | None) -> int | None:
    """The width the setting or the schema's metadata states, or None."""
    text = (schema.metadata or {}).get(b"n_features")
    if text is None:
        return n_features
    if not (len(text) <= 10 and text.isdigit() and 0 < int(text) <= WIDEST):
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
    with np.errstate(invalid="ignore"):  # a signalling NaN warns when it is cast; it is refused in any case
        return as_weights(column.to_numpy(zero_copy_only=False), batch.num_rows)


def id_array(ids: Ids) -> pa.Array:
    """Ids as a column: int64 or string."""
    return pa.array(ids, pa.int64() if ids and isinstance(ids[0], int) else pa.string())


def _ids(batch: pa.RecordBatch) -> Ids:
    column = batch.column("id")
    if not (is_text(column.type) or pa.types.is_integer(column.type)) or column.type == pa.uint64():
        raise SchemaMismatch(f"column id is {column.type}; it must be string or int64.", column="id")
    refuse_null(column, "id")
    ids: Ids = column.to_pylist()
    return ids
