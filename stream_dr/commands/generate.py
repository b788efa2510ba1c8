"""Command `stream-dr generate`, which writes made-up documents as shards."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.convert import describe_shards
from stream_dr.commands.output import ProgressBar, print_result


def generate(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Kind of rows. rcv1-like has the shape of Reuters RCV1-v2.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the shards. It is created if missing.")],
    rows: Annotated[int, typer.Option(min=1, help="Number of rows. RCV1 has 804,414.")] = 804_414,
    targets: Annotated[
        str, typer.Option(help="topics gives each row several of 103 labels. top4 gives each row one of four labels.")
    ] = "topics",
    seed: Annotated[int, typer.Option(min=0, help="Seed. The same seed gives the same rows.")] = 0,
    rows_per_shard: Annotated[int, typer.Option(min=1, help="Number of rows of a shard.")] = 100_000,
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
        manifest = write_rcv1_like_shards(out, rows, targets, seed, rows_per_shard, lambda done: bar.show(done, rows))
    print_result(describe_shards(str(out), manifest))
