"""Command `stream-dr convert`, which writes files of many formats as shards."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, print_result
from stream_dr.commands.reading import ReadAs, reads_files
from stream_dr.shards.manifest import Manifest

Sources = Annotated[
    list[Path],
    typer.Argument(metavar="SRC…", help="Files to convert. .gz, .bz2, .xz and archive.zip!member are unpacked."),
]


@reads_files
def convert(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the shards. It is created if missing.")],
    read_as: ReadAs,
    rows_per_shard: Annotated[int, typer.Option(min=1, help="Number of rows of a shard.")] = 100_000,
    rows_per_batch: Annotated[
        int, typer.Option(min=1, help="Number of rows of a batch. A replay logs each batch as one event.")
    ] = 1_000,
) -> None:
    """Convert files to Arrow shards with a manifest.

    The manifest lists the number of rows, the width, the labels, and the sha256 of each shard.
    Tables are csv, jsonl, parquet, arrow, sqlite and duckdb files. All their columns except labels
    and ids must be numbers. Memory does not grow with the file, except for MATLAB files. Their
    variables are read whole.

        stream-dr convert train.svm --out shards/ stream-dr convert lyrl2004_vectors_*.dat.gz
        --format rcv1 --topics rcv1-v2.topics.qrels --out rcv1/ stream-dr convert yeast-train.arff
        --labels yeast.xml --out yeast/
    """
    from stream_dr.datasets.convert import convert as run

    with Bar("convert", None) as bar:
        manifest = run(
            list(sources),
            read_as.format,
            out,
            read_as.options,
            rows_per_shard=rows_per_shard,
            rows_per_batch=rows_per_batch,
            progress=lambda rows: bar.show(rows, rows),
        )
    print_result(summary(str(out), manifest))


def summary(folder: str, manifest: Manifest) -> str:
    """Return a line of text that describes a folder of shards.

    folder: path of the folder.
    manifest: description of the shards.
    """
    kind = manifest.target_kind
    labels = len(manifest.labels)
    targets = "no targets" if kind is None else f"{kind} targets" + (f", {labels} labels" if labels else "")
    return f"{folder}: {manifest.rows} rows × {manifest.width} features, {targets}, {len(manifest.shards)} shards"
