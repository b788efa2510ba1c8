"""Projecting: a data set through a model's projection into one Parquet or Arrow file, batch by batch.

Columns: id and label (labels, target) where any shard has them (null where another has none), then z0, z1 …; written whole
or not at all.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stream_dr.block import Block
from stream_dr.disk import write_atomically
from stream_dr.engine.directory import Directory
from stream_dr.engine.model import Model
from stream_dr.engine.transform import transform
from stream_dr.errors import InvalidParameter, SchemaMismatch
from stream_dr.targets import Targets

SUFFIXES = (".parquet", ".arrow", ".ipc", ".feather")
_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}


def project(
    directory: Directory, model: Model, dataset: Any, out: Path, watch: Callable[[int], None] | None = None
) -> int:
    """Write the projected rows of a data set to `out`; their number.

    Raises InvalidParameter (suffix), NotFitted (no row learned yet), NeedsRefine, and what reading or projecting a batch
    raises.
    """
    if out.suffix not in SUFFIXES:
        raise InvalidParameter(f"{out} ends in {out.suffix!r}; name a .parquet or .arrow file.")
    if not dataset.rows:
        raise InvalidParameter("the source has no rows; nothing was written.")
    if model.published is None and model.rows:
        model.estimator.solve(model.accumulator.freeze())  # what keeps it from an answer is raised here
    given = _given_fields(dataset)
    batches = _batches(directory, model, dataset, given, watch or (lambda rows: None))
    first = next(batches)
    rows = 0

    def write(file: Any) -> None:
        nonlocal rows
        with _writer(file, out.suffix, first.schema) as writer:
            for batch in _chain(first, batches):
                writer.write_batch(batch)
                rows += batch.num_rows

    write_atomically(out, write)
    return rows


def _batches(
    directory: Directory, model: Model, dataset: Any, given: dict[str, pa.DataType], watch: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    done = 0
    for shard in dataset.shards:
        for number in range(len(shard.batch_rows)):
            block = shard.read(number)
            answer = transform(model, block, directory.schema)
            columns = _given(block, given) | {
                f"z{i}": pa.array(np.ascontiguousarray(z)) for i, z in enumerate(answer.z.T)
            }
            done += block.rows
            watch(done)
            if block.rows:
                yield pa.record_batch(list(columns.values()), names=list(columns))


def _given_fields(dataset: Any) -> dict[str, pa.DataType]:
    """Name and type of the id and target columns that any shard has. Raises SchemaMismatch when two shards disagree."""
    found: dict[str, pa.DataType] = {}
    for shard in dataset.shards:
        schema = shard.schema
        for name in (name for name in ("id", *_COLUMN.values()) if name in schema.names):
            told, known = _plain(schema.field(name).type), found.get(name, pa.null())
            if told != known and not pa.types.is_null(told) and not pa.types.is_null(known):
                raise SchemaMismatch(
                    f"{shard.path}: column {name} is {told}; the shards before it have {known}. Project them apart.",
                    column=name,
                )
            found[name] = known if pa.types.is_null(told) else told
    return {name: found[name] for name in ("id", *_COLUMN.values()) if name in found}


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in which a given column is written: that of Python's own values."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 1:
        return _plain(kind.value_type)
    if pa.types.is_nested(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_integer(kind):
        return pa.int64()
    return kind if pa.types.is_boolean(kind) or pa.types.is_null(kind) else pa.string()


def _given(block: Block, fields: dict[str, pa.DataType]) -> dict[str, pa.Array]:
    """The batch's ids and targets as columns of these types; null where it has none."""
    found: dict[str, Any] = {"id": block.ids}
    if isinstance(block.y, Targets):
        rows = block.y.row_labels()
        if block.y.kind == "continuous" and block.y.values is not None and block.y.values.shape[1] == 1:
            rows = [row[0] if row is not None else None for row in rows]
        found[_COLUMN[block.y.kind]] = rows
    return {name: pa.array(found.get(name) or [None] * block.rows, kind) for name, kind in fields.items()}


def _writer(file: Any, suffix: str, schema: pa.Schema) -> Any:
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema)
    return pa.ipc.new_file(file, schema)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
