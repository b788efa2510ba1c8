"""Files: a figure as a page of its own, or as a picture."""

import importlib.util
from pathlib import Path

import plotly.graph_objects as go

from stream_dr.errors import InvalidParameter

PICTURES = (".png", ".svg", ".pdf", ".webp", ".jpg")


def write(figure: go.Figure, path: Path, width: int = 900, height: int = 560) -> None:
    """Write a figure by the file's suffix: .html, which needs no network, or a picture of width × height pixels.

    Raises InvalidParameter for another suffix, and where a picture needs what is not installed.
    """
    if path.suffix == ".html":
        figure.write_html(path, include_plotlyjs=True)
        return
    if path.suffix not in PICTURES:
        raise InvalidParameter(f"{path} ends in {path.suffix!r}; name a file in .html, {', '.join(PICTURES)}.")
    if importlib.util.find_spec("kaleido") is None:
        raise InvalidParameter(f"{path.suffix} needs kaleido: pip install 'stream-dr[plot]', or name a file in .html.")
    from kaleido.errors import ChromeNotFoundError

    try:
        figure.write_image(path, width=width, height=height)
    except (ChromeNotFoundError, RuntimeError) as e:
        raise InvalidParameter(
            f"{path.suffix} is drawn by Chromium or Chrome, which could not be started ({type(e).__name__}): install one of "
            "them, or name a file in .html."
        ) from e
