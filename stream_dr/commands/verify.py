"""`stream-dr verify`: check every byte a directory relies on."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import result


def verify(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="The directory.")],
) -> None:
    """Read and check a directory's log, the shards it refers to, its models and their snapshots; change nothing.

    Exit status 1 with the first error's code when anything is damaged or missing; all findings are listed.
    """
    from stream_dr.directory.verify import verify as check

    first = None
    for finding in check(directory):
        result(f"{finding.what}: {f'{finding.error.code}: {finding.error}' if finding.error else 'ok'}")
        first = first or finding.error
    if first is not None:
        raise first
