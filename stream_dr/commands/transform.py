"""`stream-dr transform`: shards through a model's projection into a file."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, result, say
from stream_dr.commands.reading import ReadAs, reads_files
from stream_dr.commands.specs import path_or_uri


@reads_files
def transform(
    directory: Annotated[Path, typer.Argument(metavar="D", help="The directory.")],
    source: Annotated[
        Path, typer.Argument(metavar="SRC", parser=path_or_uri, help="A shard, a folder of shards, or a file.")
    ],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Whose projection.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", parser=path_or_uri, help="A .parquet, .arrow, .csv or .npz file."),
    ],
    read_as: ReadAs,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Project shards on a Dask cluster, into a folder OUT of parts."),
    ] = None,
) -> None:
    """Project rows and write id, label (where given), z0, z1 … to a file; also while D is being served.

    An npz file has them as arrays z, id and label, and is held in memory until it is written. Of a table, columns that the
    stream does not have are left out, and those that the file does not have are missing.
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.distributed.transform import transform_on
    from stream_dr.models.schema import columns_missing
    from stream_dr.running.projected_file import check_out
    from stream_dr.running.query import project
    from stream_dr.shards.dataset import Dataset

    if scheduler is None:
        check_out(out)
    with Directory(directory, writable=False) as opened, Bar("transform", None) as bar:
        projected_by = opened.model(model)
        if scheduler is not None:
            rows = transform_on(scheduler, opened, projected_by, read_as.shards([source]), str(out))
            result(f"{rows} rows written to {out}")
            return
        given = read_as.open([source])
        if not isinstance(given, Dataset):
            given, left_out = given.only(opened.schema.names)
            if left_out:
                say(f"note: columns that the stream does not have are left out: {', '.join(left_out)}")
            missing = columns_missing(given.first, opened.schema) if given.first is not None else ()
            if missing:
                say(f"note: columns that the file does not have are taken as missing: {', '.join(missing)}")
        total = given.rows if isinstance(given, Dataset) else 0
        rows = project(opened, projected_by, given, out, lambda done: bar.show(done, total))
    result(f"{rows} rows written to {out}")
