"""`stream-dr transform`: shards through a model's projection into a file."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, result


def transform(
    directory: Annotated[Path, typer.Argument(metavar="D", help="The directory.")],
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A shard, or a folder of shards.")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Whose projection.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="A .parquet or .arrow file.")],
) -> None:
    """Project rows and write id, label (where given), z0, z1 … to a Parquet or Arrow file; also while D is being
    served."""
    from stream_dr.engine.directory import Directory
    from stream_dr.engine.query import project
    from stream_dr.shards.dataset import open_dataset

    dataset = open_dataset([source])
    with Directory(directory, writable=False) as opened, Bar("transform", dataset.rows) as bar:
        rows = project(opened, opened.model(model), dataset, out, lambda done: bar.show(done, dataset.rows))
    result(f"{rows} rows written to {out}")
