"""Commands that keep a directory safe: `backup`, `restore` and `verify`."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import ProgressBar, print_result, say


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


def verify(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory to check.")],
) -> None:
    """Check a directory's log, shards, models and snapshots.

    The command lists the result of each check and changes nothing. If something is damaged or
    missing, the exit status is 1, and the first error is printed on stderr.
    """
    from stream_dr.directory.verify import verify as check

    first = None
    for finding in check(directory):
        print_result(f"{finding.what}: {f'{finding.error.code}: {finding.error}' if finding.error else 'ok'}")
        first = first or finding.error
    if first is not None:
        raise first
