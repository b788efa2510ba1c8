"""Command `stream-dr report`, which writes all plots on one page."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import ProgressBar, print_result


def report(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory with the models.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="File to write. It must end in .html.")],
    rows: Annotated[int, typer.Option(min=1, max=100_000, help="Number of newest rows to project.")] = 5_000,
) -> None:
    """Write one page with every figure of every model.

    The page also shows the schema, the state of the log, and where each number comes from. The
    page can be read without other files and without a network. A service may use the directory at
    the same time.

        stream-dr report D --out report.html
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.disk import check_parent_folder_exists
    from stream_dr.errors import InvalidParameter
    from stream_dr.plotting.report import write_report

    if out.suffix != ".html":
        raise InvalidParameter(f"{out} ends in {out.suffix!r}; a report is a file in .html.")
    check_parent_folder_exists(out)
    with Directory(directory, writable=False) as opened, ProgressBar("report", len(opened.models), "models") as bar:
        write_report(opened, out, rows, bar.show)
    print_result(f"report written to {out}")
