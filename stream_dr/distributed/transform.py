"""Transform on Dask: shards through a projection, a Parquet part a task, into a folder that is a data set itself.

Parts are written by workers into a folder that all see, or under a URI; the manifest comes last, so a folder that has one is
whole. Given again after an interruption, the command writes all parts anew.
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
from stream_dr.distributed.cluster import check_workers, connected, gathered, submit
from stream_dr.distributed.plan import Task, tasks_of
from stream_dr.errors import InvalidParameter, OutputExists
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema
from stream_dr.projection import Projection
from stream_dr.rows.block import Block
from stream_dr.running.query import carried_fields, projected_batch, require_published
from stream_dr.shards.dataset import Dataset, open_shard
from stream_dr.shards.manifest import MANIFEST_NAME, UNFINISHED, Manifest, ShardEntry, manifest_bytes
from stream_dr.shards.uri import filesystem, write_whole


def transform_on(address: str, directory: Directory, model: Model, dataset: Dataset, out: str) -> int:
    """Write the projected rows of a data set into a folder or under a URI; their number. Raises OutputExists where there is
    a manifest, ClusterError, and what `running.query.project` raises."""
    if not dataset.rows:
        raise InvalidParameter("the source has no rows; nothing was written.")
    out = out if "://" in out else str(Path(out).absolute())
    system, folder = filesystem(out)
    if system.get_file_info(f"{folder}/{MANIFEST_NAME}").type != fs.FileType.NotFound:
        raise OutputExists(f"{out} holds a data set already; name a new folder, or delete that one.")
    projection, schema = require_published(model).projection, directory.schema
    each = [(reference, shard.bytes / shard.rows) for shard in dataset.shards for reference in references(shard, 1)]
    tasks = tasks_of([r for r, _ in each], [size * r.rows for r, size in each], 0)
    write_whole(out, UNFINISHED, b"")
    with connected(address) as client:
        check_workers(client)
        sent = client.scatter(_Given(projection, schema, carried_fields(dataset), out), broadcast=True)
        entries = gathered(client, [submit(client, _part, t, n, sent) for n, t in enumerate(tasks)])
    rows = sum(entry.rows for entry in entries)
    manifest = Manifest(rows, projection.n_components, schema.target_kind, schema.labels, tuple(entries))
    write_whole(out, MANIFEST_NAME, manifest_bytes(manifest))
    system.delete_file(f"{folder}/{UNFINISHED}")
    return rows


class _Given(NamedTuple):
    """What every task is given."""

    projection: Projection
    schema: Schema
    fields: dict[str, pa.DataType]
    out: str


def _part(task: Task, number: int, given: _Given) -> ShardEntry:
    """A task's rows as a Parquet file, a row group a batch."""
    name, sink = f"part-{number:05d}.parquet", pa.BufferOutputStream()
    batches = (projected_batch(_block(r), given.projection, given.schema, given.fields) for r in task.references)
    first = next(batches)
    with pq.ParquetWriter(sink, first.schema, write_page_checksum=True) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    write_whole(given.out, name, content)
    rows = tuple(r.rows for r in task.references)
    return ShardEntry(name, sum(rows), rows, len(content), hashlib.sha256(content).hexdigest())


def _block(reference: Reference) -> Block:
    return open_shard(reference.uri, reference.sha256).read(reference.batch)
