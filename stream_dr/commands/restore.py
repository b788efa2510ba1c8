"""Command `stream-dr restore`, which creates a directory from a backup."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import ProgressBar, say


def restore(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Backup to read. It is not changed.")],
    directory: Annotated[Path, typer.Argument(metavar="D", help="Directory to create. It must not exist yet.")],
) -> None:
    """Create a directory from a backup, and check every byte.

    If the backup is damaged, no directory is created. The log may refer to shards that are missing
    on this machine. The command lists the missing shards. Without these shards, models can learn
    and project rows, but cannot be rebuilt or refined.

        stream-dr restore copy D
    """
    from stream_dr.directory.backup import backup as copy
    from stream_dr.directory.verify import verify_shards_of_log

    with ProgressBar("copying", None, "bytes") as bar:
        copy(out, directory, bar.show)
    for finding in verify_shards_of_log(directory):
        if finding.error is not None:
            say(f"{finding.what}: {finding.error.code}: {finding.error}")
    say(f"{directory} is a copy of {out}.")
