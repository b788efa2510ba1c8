"""Command `stream-dr fetch`, which writes public data sets as shards."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.convert import describe_shards
from stream_dr.commands.output import ProgressBar, print_result


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
    from stream_dr.datasets.fetch import fetch as run

    with ProgressBar("fetch", None) as bar:
        manifests = run(name, out, progress=lambda rows: bar.show(rows, rows))
    for folder, manifest in manifests.items():
        print_result(describe_shards(folder, manifest))
