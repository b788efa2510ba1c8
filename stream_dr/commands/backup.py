"""Command `stream-dr backup`, which copies a directory."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, say


def backup(
    directory: Annotated[Path, typer.Argument(metavar="D", help="The directory.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The copy; it must not exist yet.")],
) -> None:
    """Copy a directory as it is at one moment, and check the copy.

    The directory may be served meanwhile. The copy is a directory like any other, so `verify`,
    `inspect`, `serve` and `restore` accept it. If the command fails, there is no copy.

    Rows that were unlearned and overwritten are not in the copy. Shards that the log refers to are
    copied only if `learn` has written them into D, so keep the others.
    """
    from stream_dr.directory.backup import backup as copy

    with Bar("copying", None, "bytes") as bar:
        copy(directory, out, bar.show)
    say(f"{out} is a copy of {directory}.")
