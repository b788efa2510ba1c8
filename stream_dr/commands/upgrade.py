"""`stream-dr upgrade`: bring a directory of an older release over."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, say


def upgrade(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="The directory.")],
) -> None:
    """Bring a directory whose log has format 2 over to format 3, which this release reads and writes.

    Nothing may be using the directory. Until the end it is as it was, also when it is interrupted, and an error leaves it
    so. The release that wrote it cannot read it afterwards: keep a copy where that matters.
    """
    from stream_dr.disk import DirectoryLock
    from stream_dr.errors import DirectoryMissing
    from stream_dr.log.upgrade import upgrade as bring_over

    if not (directory / "log").is_dir():
        raise DirectoryMissing(f"{directory} holds no log; name a directory that `replay` or `serve` has made.")
    with DirectoryLock(directory), Bar("upgrading", None, "segments") as bar:
        done = bring_over(directory / "log", bar.show)
    say(f"{directory} has format 3 now." if done else f"{directory} has format 3 already; nothing was changed.")
