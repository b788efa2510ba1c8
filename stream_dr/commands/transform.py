"""Command `stream-dr transform`, which projects rows into a file."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import ProgressBar, print_result, say
from stream_dr.commands.reading import ReadOptions, add_file_options
from stream_dr.commands.specs import path_or_uri

ModelName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the model. Not needed if there is only one.")
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
) -> None:
    """Project rows and write them to a file.

    The written file has a column for each component, z0, z1 and so on. If the rows have ids or
    labels, the columns id and label come first. An .npz file has the components as the array z,
    and the arrays id and label. It must fit into memory. A service may use the directory at the
    same time.

    SRC may be a table. Columns that the models have not learned are then ignored. If SRC lacks a
    column that the models have learned, every value of this column counts as missing. Rows with
    unseen words or categories are counted, unless the column hashes its categories.

        stream-dr transform D new.csv --out projected.parquet
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.models.schema import table_columns_missing_in_batch
    from stream_dr.running.projected_file import check_output_path
    from stream_dr.running.query import project
    from stream_dr.shards.dataset import Dataset

    check_output_path(out)
    with Directory(directory, writable=False) as opened, ProgressBar("transform", None) as bar:
        projected_by = opened.model(model)
        # A file may have other columns than the stream, so select the columns of the stream.
        # Shards always have the columns of the stream.
        data = read_as.open_shards_or_files([source])
        if not isinstance(data, Dataset):
            data, left_out = data.only(opened.schema.names)
            if left_out:
                say(f"note: columns that the stream does not have are left out: {', '.join(left_out)}")
            missing = table_columns_missing_in_batch(data.first, opened.schema) if data.first is not None else ()
            if missing:
                say(f"note: columns that the file does not have are taken as missing: {', '.join(missing)}")

        total = data.rows if isinstance(data, Dataset) else 0
        rows, unseen = project(opened, projected_by, data, out, lambda done: bar.show(done, total))
    if unseen:
        say(f"note: {unseen} of {rows} rows have a category, word or column that was never seen, which is left out.")
    print_result(f"{rows} rows written to {out}")
