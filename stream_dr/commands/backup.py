"""Command `stream-dr backup`, which copies a directory."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, say


def backup(
    directory: Annotated[Path, typer.Argument(metavar="D", help="Directory to copy.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Path of the copy. It must not exist yet.")],
) -> None:
    """Copy a directory as it is now, and check the copy.

    A service may use the directory at the same time. The copy is a directory like any other.
    Commands such as `verify`, `inspect`, `serve` and `restore` accept it. If the command fails,
    there is no copy.

    Shards that were replayed are not copied. Back them up as well. Shards that `learn` has written
    into D are copied. Rows that were unlearned and overwritten are not in the copy.

        stream-dr backup D copy
    """
    from stream_dr.directory.backup import backup as copy

    with Bar("copying", None, "bytes") as bar:
        copy(directory, out, bar.show)
    say(f"{out} is a copy of {directory}.")
