"""Command `stream-dr verify`, which checks all files of a directory."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import print_result


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
