"""Transform on Dask: writes the projected rows of a data set as a new data set.

Each task writes one Parquet file. The files are in a folder that all workers can reach, or under a
URI. The manifest of the new data set is written last, so a folder with a manifest is complete.
After an interruption the command writes all files again.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference
from stream_dr.directory.references import references
from stream_dr.distributed.cluster import check_workers, connect, gather_results, submit
from stream_dr.distributed.task_plan import Task, tasks_of
from stream_dr.errors import InvalidParameter, OutputExists
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema
from stream_dr.projection import Projection
from stream_dr.rows.block import Block
from stream_dr.running.query import batch_of_projected_rows, id_and_target_types, published_or_raise
from stream_dr.shards.dataset import Dataset, open_shard
from stream_dr.shards.manifest import MANIFEST_NAME, UNFINISHED, Manifest, ShardEntry, encode_manifest
from stream_dr.shards.uri import open_filesystem, write_file_atomically


def transform_on(address: str, directory: Directory, model: Model, dataset: Dataset, out: str) -> int:
    """Write the projected rows of a data set as a new data set.

    address: address of the Dask scheduler.
    model: model whose published projection is applied.
    out: folder or URI of the new data set.

    Returns the number of rows. Raises OutputExists if `out` has a manifest, InvalidParameter if
    the data set has no rows, ClusterError, and the errors of `running.query.project`.
    """
    if not dataset.rows:
        raise InvalidParameter("the source has no rows; nothing was written.")
    out = out if "://" in out else str(Path(out).absolute())
    system, folder = open_filesystem(out)
    if system.get_file_info(f"{folder}/{MANIFEST_NAME}").type != fs.FileType.NotFound:
        raise OutputExists(f"{out} holds a data set already; name a new folder, or delete that one.")

    projection = published_or_raise(model).projection
    schema = directory.schema
    sized = [(reference, shard.bytes / shard.rows) for shard in dataset.shards for reference in references(shard, 1)]
    tasks = tasks_of([r for r, _ in sized], [size * r.rows for r, size in sized], 0)

    write_file_atomically(out, UNFINISHED, b"")
    with connect(address) as client:
        check_workers(client)
        context = client.scatter(_TaskContext(projection, schema, id_and_target_types(dataset), out), broadcast=True)
        entries = gather_results(client, [submit(client, _write_file, t, n, context) for n, t in enumerate(tasks)])

    rows: int = sum(entry.rows for entry in entries)
    manifest = Manifest(rows, projection.n_components, schema.target_kind, schema.labels, tuple(entries))
    write_file_atomically(out, MANIFEST_NAME, encode_manifest(manifest))
    system.delete_file(f"{folder}/{UNFINISHED}")
    return rows


class _TaskContext(NamedTuple):
    """Values that all tasks of a transform use.

    fields: name and type of each column that is copied unprojected from the data set.
    out: folder or URI of the new data set.
    """

    projection: Projection
    schema: Schema
    fields: dict[str, pa.DataType]
    out: str


def _write_file(task: Task, number: int, context: _TaskContext) -> ShardEntry:
    """Write the projected rows of a task as one Parquet file.

    The file has one row group for each batch.

    number: index of the task, which is part of the file's name.
    """
    name = f"part-{number:05d}.parquet"
    sink = pa.BufferOutputStream()
    batches = (
        batch_of_projected_rows(_read_batch(r), context.projection, context.schema, context.fields)
        for r in task.references
    )

    first = next(batches)
    with pq.ParquetWriter(sink, first.schema, write_page_checksum=True) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)

    content = sink.getvalue().to_pybytes()
    write_file_atomically(context.out, name, content)
    rows = tuple(r.rows for r in task.references)
    return ShardEntry(name, sum(rows), rows, len(content), hashlib.sha256(content).hexdigest())


def _read_batch(reference: Reference) -> Block:
    return open_shard(reference.uri, reference.sha256).read(reference.batch)
