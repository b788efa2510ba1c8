"""`stream-dr backup`: a copy of a directory, also while it is served."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, say


def backup(
    directory: Annotated[Path, typer.Argument(metavar="D", help="The directory.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The copy; it must not exist yet.")],
) -> None:
    """Copy a directory as it is at one moment, also while it is being served, and check the copy.

    The copy is a directory like any other: `verify`, `inspect`, `serve` and `restore` take it. It is whole or not there.
    Rows that were unlearned and overwritten are not in it; shards that the log refers to are not
    copied, unless `learn` has written them into D: keep them.
    """
    from stream_dr.directory.backup import backup as copy

    with Bar("copying", None, "bytes") as bar:
        copy(directory, out, bar.show)
    say(f"{out} is a copy of {directory}.")
