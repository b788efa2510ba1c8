"""Command `stream-dr backup`, which copies a directory."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import ProgressBar, say


def backup(
    directory: Annotated[Path, typer.Argument(metavar="D", help="Directory to copy.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Path of the copy. It must not exist yet.")],
) -> None:
    """Copy a directory as it is, and check the copy.

    A service may use the directory D at the same time. The copy is a directory like any other, and
    can be used with `verify`, `inspect`, `serve` and `restore`. If the command fails, no copy is
    created.

    The copy includes the shards that `learn` has written into D. The copy does not include shards
    that `replay` has read from other folders, so back up these shards, too. Unlearned rows that
    were erased from D are not in the copy.

        stream-dr backup D copy
    """
    from stream_dr.directory.backup import backup as copy

    with ProgressBar("copying", None, "bytes") as bar:
        copy(directory, out, bar.show)
    say(f"{out} is a copy of {directory}.")
