"""Command `stream-dr convert`, which writes files as shards."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import ProgressBar, print_result
from stream_dr.commands.reading import ReadOptions, add_file_options
from stream_dr.shards.manifest import Manifest

Sources = Annotated[
    list[Path],
    typer.Argument(metavar="SRC…", help="Files to convert. .gz, .bz2, .xz and archive.zip!member are decompressed."),
]


@add_file_options
def convert(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the shards. It is created if missing.")],
    read_as: ReadOptions,
    rows_per_shard: Annotated[int, typer.Option(min=1, help="Number of rows of a shard.")] = 100_000,
    rows_per_batch: Annotated[
        int, typer.Option(min=1, help="Number of rows of a batch. A replay logs each batch as one event.")
    ] = 1_000,
) -> None:
    """Convert files to shards with a manifest.

    A shard is an Arrow file of batches. The manifest has the number of rows, the number of
    columns, the labels, and the sha256 of each shard. Tables are csv, jsonl, parquet, arrow,
    sqlite and duckdb files. All columns of a table must be numbers, except labels and ids. Files
    of any size can be converted, but a MATLAB file must fit into memory.

        stream-dr convert train.svm --out shards/
        stream-dr convert yeast-train.arff --labels yeast.xml --out yeast/
        stream-dr convert vectors.dat.gz --format rcv1 --topics rcv1-v2.topics.qrels --out rcv1/
    """
    from stream_dr.datasets.convert import convert as run

    with ProgressBar("convert", None) as bar:
        manifest = run(
            list(sources),
            read_as.format,
            out,
            read_as.options,
            rows_per_shard=rows_per_shard,
            rows_per_batch=rows_per_batch,
            progress=lambda rows: bar.show(rows, rows),
        )
    print_result(describe_shards(str(out), manifest))


def describe_shards(folder: str, manifest: Manifest) -> str:
    """Return a line of text that describes a shard folder.

    folder: path of the folder.
    manifest: manifest of the folder.
    """
    kind = manifest.target_kind
    labels = len(manifest.labels)
    targets = "no targets" if kind is None else f"{kind} targets" + (f", {labels} labels" if labels else "")
    return f"{folder}: {manifest.rows} rows × {manifest.width} features, {targets}, {len(manifest.shards)} shards"
