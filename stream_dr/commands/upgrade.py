"""Command `stream-dr upgrade`, which checks the format of a directory."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import say


def upgrade(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="The directory.")],
) -> None:
    """Say whether a directory has the format of this release.

    Directories of format 3, the first that was released, are opened as they are. Additions of a
    later release are made when they are first opened for writing. A directory of another format
    is refused, and nothing is changed.
    """
    from stream_dr.errors import DirectoryMissing
    from stream_dr.log.index import LOG_FORMAT
    from stream_dr.log.log import Log

    if not (directory / "log").is_dir():
        raise DirectoryMissing(f"{directory} holds no log; name a directory that `replay` or `serve` has made.")

    # Opening the log raises the error of another format.
    with Log(directory / "log", writable=False):
        say(f"{directory} has format {LOG_FORMAT} already; nothing was changed.")
