"""Files: writes a figure as an HTML page or as a picture."""

import importlib.util
from pathlib import Path

import plotly.graph_objects as go

from stream_dr.disk import check_folder
from stream_dr.errors import InvalidParameter

PICTURES = (".png", ".svg", ".pdf", ".webp", ".jpg")


def check_figure_path(path: Path) -> None:
    """Raise an error if a figure cannot be written to `path`.

    Raises InvalidParameter for an unknown suffix or without kaleido, SourceMissing without a
    folder.
    """
    if path.suffix not in (".html", *PICTURES):
        raise InvalidParameter(f"{path} ends in {path.suffix!r}; name a file in .html, {', '.join(PICTURES)}.")
    if path.suffix in PICTURES and importlib.util.find_spec("kaleido") is None:
        raise InvalidParameter(f"{path.suffix} needs kaleido: pip install 'stream-dr[plot]', or name a file in .html.")
    check_folder(path)


def write(figure: go.Figure, path: Path, width: int = 900, height: int = 560) -> None:
    """Write a figure in the format of the file's suffix.

    An .html file needs no network. A picture has width × height pixels.

    Raises as `check_figure_path`, and InvalidParameter if no browser can draw the picture.
    """
    check_figure_path(path)
    if path.suffix == ".html":
        figure.write_html(path, include_plotlyjs=True)
        return

    from kaleido.errors import ChromeNotFoundError

    try:
        figure.write_image(path, width=width, height=height)
    except (ChromeNotFoundError, RuntimeError) as e:
        raise InvalidParameter(
            f"{path.suffix} is drawn by Chromium or Chrome, which could not be started ({type(e).__name__}): install one of "
            "them, or name a file in .html."
        ) from e
