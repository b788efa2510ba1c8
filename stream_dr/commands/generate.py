"""Command `stream-dr generate`, which writes made-up rows of a known shape as shards."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.convert import summary
from stream_dr.commands.output import Bar, print_result


def generate(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="rcv1-like: rows shaped like Reuters RCV1-v2.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the shards; made if it is not there.")],
    rows: Annotated[int, typer.Option(min=1, help="How many rows; RCV1 has 804,414.")] = 804_414,
    targets: Annotated[
        str, typer.Option(help="top4: one of four top topics a row; topics: 103 labels, several a row.")
    ] = "topics",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 0,
    rows_per_shard: Annotated[int, typer.Option(min=1, help="Rows a file.")] = 100_000,
) -> None:
    """Generate shards of made-up documents.

    They have 47,236 terms, 76 nonzeros a row, unit-norm log-tf-idf, Zipf frequencies and RCV1's
    topic shares. The text is made up, so results on these rows are never RCV1 results.
    """
    from stream_dr.datasets.generate import write_rcv1_like
    from stream_dr.errors import InvalidParameter

    if kind != "rcv1-like":
        raise InvalidParameter(f"there is no generator {kind!r}; there is rcv1-like.")

    with Bar("generate", rows) as bar:
        manifest = write_rcv1_like(out, rows, targets, seed, rows_per_shard, lambda done: bar.show(done, rows))
    print_result(summary(str(out), manifest))
