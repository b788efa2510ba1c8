"""Write a data set's projected rows, by tasks on Dask.

The projected rows are a new data set. Each task writes one Parquet file. The files are written to
a folder or URI that all workers can reach. The manifest of the new data set is written last, so a
folder with a manifest is complete. After an interruption, the command `transform` writes all files
again.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from stream_dr.directory.directory import Directory
from stream_dr.directory.references import references_to_batches
from stream_dr.distributed.cluster import check_workers, connect_to_scheduler, gather_results, submit_checked
from stream_dr.distributed.parts import read_batch
from stream_dr.distributed.task_plan import Task, divide_into_tasks_of_minimum_size
from stream_dr.errors import InvalidParameter, OutputExists
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema
from stream_dr.projection import Projection
from stream_dr.running.query import id_and_target_types, project_to_arrow_batch, published_or_raise
from stream_dr.shards.dataset import Dataset
from stream_dr.shards.manifest import MANIFEST_NAME, UNFINISHED, Manifest, ShardEntry, encode_manifest
from stream_dr.shards.uri import open_filesystem_and_path, write_file_atomically


def project_rows_on_cluster(
    scheduler_address: str, directory: Directory, model: Model, dataset: Dataset, output_folder: str
) -> int:
    """Write the projected rows of a data set on Dask.

    The rows become a new data set, with one file for each task.

    Returns the number of rows of the new data set.

    scheduler_address: address of the Dask scheduler, tcp://host:port.
    model: model whose published projection is applied.
    dataset: rows to project.
    output_folder: folder or URI of the new data set.

    In addition to the errors of `running.query.project`, these errors are raised:

    - OutputExists if `output_folder` already has a manifest.
    - InvalidParameter if the data set has no rows.
    - ClusterError if the cluster cannot be used.
    """
    if not dataset.rows:
        raise InvalidParameter("the source has no rows; nothing was written.")
    output_folder = output_folder if "://" in output_folder else str(Path(output_folder).absolute())
    system, folder = open_filesystem_and_path(output_folder)
    if system.get_file_info(f"{folder}/{MANIFEST_NAME}").type != fs.FileType.NotFound:
        raise OutputExists(f"{output_folder} holds a data set already; name a new folder, or delete that one.")

    # Divide the data set into tasks of about equal size.
    projection = published_or_raise(model).projection
    schema = directory.schema
    sized = [
        (r, shard.bytes / shard.rows * r.rows) for shard in dataset.shards for r in references_to_batches(shard, 1)
    ]
    tasks = divide_into_tasks_of_minimum_size(sized, total_state_bytes=0)

    # Let the workers write the files. UNFINISHED marks the folder until the manifest is written.
    write_file_atomically(output_folder, UNFINISHED, b"")
    with connect_to_scheduler(scheduler_address) as client:
        check_workers(client)
        context = _TaskContext(projection, schema, id_and_target_types(dataset), output_folder)
        sent = client.scatter(context, broadcast=True)
        files = [submit_checked(client, _write_projected_file, t, n, sent) for n, t in enumerate(tasks)]
        entries = gather_results(client, files)

    rows: int = sum(entry.rows for entry in entries)
    manifest = Manifest(rows, projection.n_components, schema.target_kind, schema.labels, tuple(entries))
    write_file_atomically(output_folder, MANIFEST_NAME, encode_manifest(manifest))
    system.delete_file(f"{folder}/{UNFINISHED}")
    return rows


class _TaskContext(NamedTuple):
    """Values that all tasks of a transform use.

    projection: projection that is applied to the rows.
    schema: the stream's schema, which has the order of the columns.
    fields: Arrow type of each column that is copied from the data set unprojected, by name.
    out: folder or URI of the new data set.
    """

    projection: Projection
    schema: Schema
    fields: dict[str, pa.DataType]
    out: str


def _write_projected_file(task: Task, file_number: int, context: _TaskContext) -> ShardEntry:
    """Write the projected rows of a task as a file.

    The file is a Parquet file with one row group for each batch. Returns the manifest's entry for
    the file.

    file_number: index of the task, which is part of the file's name.
    """
    name = f"part-{file_number:05d}.parquet"
    sink = pa.BufferOutputStream()
    batches = (
        project_to_arrow_batch(read_batch(r), context.projection, context.schema, context.fields)[0]
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
