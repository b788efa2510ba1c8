"""Command `stream-dr fetch`, which writes public data sets as shards."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.convert import summary
from stream_dr.commands.output import Bar, print_result


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="rcv1, news20 or openml:NAME (openml:NAME:VERSION).")],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the shards; news20: DIR/train, DIR/test.")
    ],
) -> None:
    """Fetch a public data set through scikit-learn and write it as shards.

    Needs internet access unless scikit-learn has the set in its cache. For files on this machine
    use `stream-dr convert`.
    """
    from stream_dr.datasets.fetch import fetch as run

    with Bar("fetch", None) as bar:
        manifests = run(name, out, progress=lambda rows: bar.show(rows, rows))
    for folder, manifest in manifests.items():
        print_result(summary(folder, manifest))
