"""Projecting: a data set through a model's projection into one Parquet or Arrow file, batch by batch.

Columns: id and label (labels, target) where given, then z0, z1 …; written whole or not at all.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stream_dr.block import Block
from stream_dr.engine.directory import Directory
from stream_dr.engine.model import Model
from stream_dr.engine.transform import transform
from stream_dr.errors import InvalidParameter
from stream_dr.streams.disk import write_atomically
from stream_dr.targets import Targets

SUFFIXES = (".parquet", ".arrow", ".ipc", ".feather")
_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}


def project(
    directory: Directory, model: Model, dataset: Any, out: Path, watch: Callable[[int], None] | None = None
) -> int:
    """Write the projected rows of a data set to `out`; their number.

    Raises InvalidParameter (suffix), NotFitted (no row learned yet), and what reading or projecting a batch raises.
    """
    if out.suffix not in SUFFIXES:
        raise InvalidParameter(f"{out} ends in {out.suffix!r}; name a .parquet or .arrow file.")
    batches = _batches(directory, model, dataset, watch or (lambda rows: None))
    first = next(batches, None)
    if first is None:
        raise InvalidParameter("the source has no rows; nothing was written.")
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
    directory: Directory, model: Model, dataset: Any, watch: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    done = 0
    for shard in dataset.shards:
        for number in range(len(shard.batch_rows)):
            block = shard.read(number)
            answer = transform(model, block, directory.schema)
            columns = _given(block) | {f"z{i}": pa.array(np.ascontiguousarray(z)) for i, z in enumerate(answer.z.T)}
            done += block.rows
            watch(done)
            if block.rows:
                yield pa.record_batch(list(columns.values()), names=list(columns))


def _given(block: Block) -> dict[str, pa.Array]:
    """The batch's ids and targets as columns."""
    columns = {} if block.ids is None else {"id": pa.array(block.ids, pa.string())}
    if isinstance(block.y, Targets):
        rows = block.y.row_labels()
        if block.y.kind == "continuous" and block.y.values is not None and block.y.values.shape[1] == 1:
            rows = [row[0] if row is not None else None for row in rows]
        columns[_COLUMN[block.y.kind]] = pa.array(rows)
    return columns


def _writer(file: Any, suffix: str, schema: pa.Schema) -> Any:
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema)
    return pa.ipc.new_file(file, schema)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
