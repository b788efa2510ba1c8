"""Commands that write rows: as shards, or projected into a file."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.adapters.scikit_learn import EXPORT_FORMATS
from stream_dr.batch.rows import Source
from stream_dr.commands.output import ProgressBar, print_result, say
from stream_dr.commands.reading import ReadOptions, add_file_options
from stream_dr.commands.specs import path_or_uri
from stream_dr.shards.folder import Manifest

Sources = Annotated[
    list[Path],
    typer.Argument(metavar="SRC…", help="Files to convert. .gz, .bz2, .xz and archive.zip!member are decompressed."),
]
ShardsFolder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder for the shards. It is created if missing.")
]
ShardRows = Annotated[int, typer.Option(min=1, help="Number of rows of a shard.")]


@add_file_options
def convert(
    sources: Sources,
    out: ShardsFolder,
    read_as: ReadOptions,
    rows_per_shard: ShardRows = 100_000,
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

    with ProgressBar("convert") as bar:
        manifest = run(
            list(sources),
            read_as.format,
            out,
            read_as.options,
            rows_per_shard=rows_per_shard,
            rows_per_batch=rows_per_batch,
            progress=bar.show,
        )
    print_result(describe_shards(str(out), manifest))


def describe_shards(folder: str, manifest: Manifest) -> str:
    """Return a line of text that describes a shard folder.

    folder: path of the folder.
    manifest: manifest of the folder.
    """
    targets = "no targets"
    if manifest.target_kind is not None:
        targets = f"{manifest.target_kind} targets"
        if manifest.labels:
            targets += f", {len(manifest.labels)} labels"
    return f"{folder}: {manifest.rows} rows × {manifest.width} features, {targets}, {len(manifest.shards)} shards"


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="rcv1, news20, openml:NAME or openml:NAME:VERSION.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Folder for the shards. news20 is written to DIR/train and DIR/test."
        ),
    ],
) -> None:
    """Download a public data set and write it as shards.

    scikit-learn downloads the data set. The download needs internet access, unless the cache of
    scikit-learn has the data set. Use `stream-dr convert` for files on this machine.

        stream-dr fetch rcv1 --out rcv1/
    """
    from stream_dr.datasets.convert import fetch as run

    with ProgressBar("fetch") as bar:
        manifests = run(name, out, progress=bar.show)
    for folder, manifest in manifests.items():
        print_result(describe_shards(folder, manifest))


def generate(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Kind of rows. rcv1-like has the shape of Reuters RCV1-v2.")
    ],
    out: ShardsFolder,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows. RCV1 has 804,414.")] = 804_414,
    targets: Annotated[
        str, typer.Option(help="topics gives each row several of 103 labels. top4 gives each row one of four labels.")
    ] = "topics",
    seed: Annotated[int, typer.Option(min=0, help="Seed. The same seed gives the same rows.")] = 0,
    rows_per_shard: ShardRows = 100_000,
) -> None:
    """Generate shards of made-up documents.

    The documents resemble the data set RCV1. There are 47,236 words, whose frequencies follow
    Zipf's law. A row has 76 nonzeros on average, which are log-tf-idf weights, and norm 1. Topics
    are as frequent as in RCV1. Do not report results on these rows as results on RCV1.

        stream-dr generate rcv1-like --rows 10000 --targets top4 --out shards/
    """
    from stream_dr.datasets.generate import write_rcv1_like_shards
    from stream_dr.errors import InvalidParameter

    if kind != "rcv1-like":
        raise InvalidParameter(f"there is no generator {kind!r}; there is rcv1-like.")

    with ProgressBar("generate", rows) as bar:
        manifest = write_rcv1_like_shards(out, rows, targets, seed, rows_per_shard, bar.show)
    print_result(describe_shards(str(out), manifest))


ModelName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the model. Not needed if there is only one.")
]
ReleaseName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Release of the model. Default: what it has published last.")
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="OUT", parser=path_or_uri, help="File to write: .parquet, .arrow, .csv or .npz."
    ),
]


@add_file_options
def transform(
    directory: Annotated[Path, typer.Argument(metavar="D", help="Directory with the model.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC", parser=path_or_uri, help="Rows to project: a shard, a folder of shards, or a file."
        ),
    ],
    out: Out,
    read_as: ReadOptions,
    model: ModelName = None,
    release: ReleaseName = None,
) -> None:
    """Project rows and write them to a file.

    The written file has a column for each component, z0, z1 and so on. If the rows have ids or
    labels, the columns id and label come first. An .npz file has the components as the array z,
    and the arrays id and label. It must fit into memory. A service may use the directory at the
    same time.

    SRC may be a table. Columns that the models have not learned are then ignored. If SRC lacks a
    column that the models have learned, every value of this column counts as missing. Rows with
    unseen words or categories are counted in a message, unless the column hashes its categories.

        stream-dr transform D new.csv --out projected.parquet
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.running.projected_file import check_output_path
    from stream_dr.running.query import project

    check_output_path(out)
    with Directory(directory, writable=False) as opened, ProgressBar("transform") as bar:
        projected_by = opened.model(model)
        # `total` is the number of rows, for the progress bar. It is 0 (unknown) for files.
        # A file may have other columns than the stream, so select the columns of the stream.
        # Shards always have the columns of the stream.
        data: Source
        total = 0
        if read_as.reads_as_shards(source):
            shards = read_as.open_shards_as_one([source])
            total = shards.rows
            data = shards
        else:
            data, left_out = read_as.open_files_as_one([source]).only(opened.schema.names)
            if left_out:
                say(f"note: columns that the stream does not have are left out: {', '.join(left_out)}")
            missing = opened.schema.missing_columns(data.first)
            if missing:
                say(f"note: columns that the file does not have are taken as missing: {', '.join(missing)}")

        rows, unseen = project(opened, projected_by, data, out, lambda done: bar.show(done, total), release)
    if unseen:
        say(f"note: {unseen} of {rows} rows have a category, word or column that was never seen, which is left out.")
    print_result(f"{rows} rows written to {out}")


def export(
    directory: Annotated[Path, typer.Argument(metavar="D", help="Directory with the model.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write.")],
    model: ModelName = None,
    release: ReleaseName = None,
    file_format: Annotated[
        str, typer.Option("--format", metavar="|".join(EXPORT_FORMATS), help="onnx needs the extra stream-dr[onnx].")
    ] = "sklearn",
) -> None:
    """Write a model as a file that needs no stream_dr.

    The file sklearn is a pickle of scikit-learn's own estimator, as to_sklearn returns it. ONNX has
    the same estimator, for rows of float64. The file npz has mean, components and eigenvalues: a
    projected row is (x - mean) @ components.T. A service may use the directory at the same time.

        stream-dr export D --model lda --format onnx -o lda.onnx
    """
    from stream_dr.adapters.scikit_learn import write_export
    from stream_dr.directory.directory import Directory

    with Directory(directory, writable=False) as opened:
        served = opened.releases.served(opened.model(model), release)
        write_export(served, file_format, out)
    print_result(f"version {served.published.version} of {served.model} written to {out}")
