"""`stream-dr convert`: files in the field's formats to Arrow shards."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, result
from stream_dr.shards.manifest import Manifest

Sources = Annotated[
    list[Path], typer.Argument(metavar="SRC…", help="Files; .gz, .bz2, .xz and archive.zip!member are unpacked.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="csv, jsonl, parquet, arrow, libsvm, vw, rcv1, arff or mat; by the first file's name."
    ),
]
Target = Annotated[str, typer.Option(help="libsvm, vw: class, multilabel or continuous; auto asks the first rows.")]
Labels = Annotated[
    str | None,
    typer.Option(help="arff: MULAN's XML. mat: labels' variable. Tables: indicator columns, by comma."),
]
Label = Annotated[str | None, typer.Option(help="arff, tables: the attribute or column that holds the class.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="csv: the first line names the columns.")]
Decimal = Annotated[str, typer.Option(help="csv: what stands before a number's fraction.")]
Encoding = Annotated[str, typer.Option(help="csv: how its characters are encoded, such as latin-1 or utf-16.")]
Tfidf = Annotated[bool, typer.Option("--tfidf", help="Weight raw counts; reads the files once more to count.")]
TfidfFrom = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Weight raw counts by another conversion's tfidf.safetensors.")
]


def convert(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the shards; made if it is not there.")],
    format: Format = None,
    target: Target = "auto",
    zero_based: Annotated[bool, typer.Option("--zero-based", help="libsvm: columns are numbered from 0.")] = False,
    one_based: Annotated[bool, typer.Option("--one-based", help="vw: columns are numbered from 1.")] = False,
    n_features: Annotated[int | None, typer.Option(min=1, help="Width of sparse rows, where it is known.")] = None,
    topics: Annotated[Path | None, typer.Option(metavar="FILE", help="rcv1: the topics file.")] = None,
    labels: Labels = None,
    label: Label = None,
    targets: Annotated[str | None, typer.Option(help="Tables: columns of continuous targets, by comma.")] = None,
    weight: Annotated[str | None, typer.Option(help="Tables: the column of weights.")] = None,
    id: Annotated[str | None, typer.Option(help="Tables: the column of ids.")] = None,
    drop: Annotated[str | None, typer.Option(help="Tables: columns to leave out, by comma.")] = None,
    features: Annotated[str | None, typer.Option(help="mat: the variable of rows (fea).")] = None,
    subset: Annotated[str | None, typer.Option(help="mat: the variable of row numbers to take, say trainIdx.")] = None,
    delimiter: Annotated[str, typer.Option(help="csv: what stands between fields; \\t for a tab.")] = ",",
    header: Header = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    tfidf: Tfidf = False,
    tfidf_from: TfidfFrom = None,
    rows_per_shard: Annotated[int, typer.Option(min=1, help="Rows a file.")] = 100_000,
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Rows a batch, which is an event of the log.")] = 1_000,
) -> None:
    """Convert files to Arrow shards with a manifest (rows, width, labels, a sha256 per shard).

    Tables are csv, jsonl, parquet and arrow files, whose columns, but for labels and ids, hold numbers.

    Memory does not grow with the file, except that MATLAB's format hands over whole variables.

        stream-dr convert train.svm --format libsvm --out shards/
        stream-dr convert lyrl2004_vectors_*.dat.gz --format rcv1 --topics rcv1-v2.topics.qrels --out rcv1/
        stream-dr convert yeast-train.arff --format arff --labels yeast.xml --out yeast/
    """
    from stream_dr.datasets.convert import convert as run
    from stream_dr.datasets.sources import Options

    options = Options(
        target, zero_based, one_based, n_features, topics, labels, label, targets, weight, id, drop, features, subset,
        delimiter.replace("\\t", "\t"), header, decimal, encoding,
    )  # fmt: skip
    with Bar("convert", None) as bar:
        manifest = run(
            list(sources),
            format,
            out,
            options,
            rows_per_shard=rows_per_shard,
            rows_per_batch=rows_per_batch,
            tfidf=tfidf,
            tfidf_from=tfidf_from,
            progress=lambda rows: bar.show(rows, rows),
        )
    result(summary(str(out), manifest))


def summary(folder: str, manifest: Manifest) -> str:
    """One line on what a folder of shards holds."""
    kind, labels = manifest.target_kind, len(manifest.labels)
    told = "no targets" if kind is None else f"{kind} targets" + (f", {labels} labels" if labels else "")
    return f"{folder}: {manifest.rows} rows × {manifest.width} features, {told}, {len(manifest.shards)} shards"
