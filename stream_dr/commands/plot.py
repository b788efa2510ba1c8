"""Command `stream-dr plot`, which draws one figure of a directory."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import print_result


def plot(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory with the models.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="File to write: .html, .png, .svg or .pdf.")],
    kind: Annotated[
        str,
        typer.Option(
            help="Figure: projection, spectrum, loadings, regularisation, accuracy, progress, convergence, drift, "
            "confusion."
        ),
    ] = "projection",
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to draw. accuracy and progress show all models.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=100_000, help="projection: number of newest rows to show.")] = 10_000,
    dimensions: Annotated[int, typer.Option(min=2, max=3, help="projection: number of axes, 2 or 3.")] = 2,
    component: Annotated[int, typer.Option(min=1, help="loadings: number of the component, from 1.")] = 1,
    width: Annotated[int, typer.Option(min=100, help="Width of a picture, in pixels.")] = 900,
    height: Annotated[int, typer.Option(min=100, help="Height of a picture, in pixels.")] = 560,
) -> None:
    """Draw one figure of a directory's models.

    A service may use the directory at the same time. An .html page can be opened in any browser,
    without other files. To write a picture (.png, .svg or .pdf), install the extra `plot` and
    Chromium or Chrome.

        stream-dr plot D --model lda -o lda.html
        stream-dr plot D --model lda --kind loadings --component 2 -o lda.svg
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.plotting.directory_figures import FigureOptions, draw_directory_figure
    from stream_dr.plotting.figure import check_can_write_figure, write_figure

    check_can_write_figure(out)
    with Directory(directory, writable=False) as opened:
        shown_model = None if model is None else opened.model(model)
        figure = draw_directory_figure(opened, kind, shown_model, FigureOptions(rows, dimensions, component - 1))
    write_figure(figure, out, width, height)
    print_result(f"{kind} written to {out}")
