"""Common code of all figures: colours, margins, escaped text, and files of figures."""

import html
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.disk import check_folder
from stream_dr.errors import InvalidParameter
from stream_dr.projection import Mapped

COLOURS = (
    *("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951"),
    *("#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0"),
)
"""Colours of classes and models, in order.

They differ on white and on black, and for most people who are colour-blind.
"""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")
"""Symbols, in order.

The next one is used each time that all colours are used up.
"""

MAX_TEXT = 60
"""Maximum number of characters of a name that are shown."""

PICTURES = (".png", ".svg", ".pdf", ".webp", ".jpg")
"""Suffixes of files of pictures."""

Trace = JsonDict

# Making a plotly Figure takes ten times as long as the dict, and the dashboard needs no Figure.
FigureDict = JsonDict
"""Description of a figure, {"data": traces, "layout"}, as plotly's Figure takes it."""


def plain_text(value: object) -> str:
    """Return a name, a label or an error as plotly must get it.

    What plotly would read as markup is escaped. Long texts are cut.
    """
    line = " ".join(str(value).split()) or "(empty)"
    return html.escape(line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…", quote=False)


def line_trace(name: str, x: Sequence[Any] | np.ndarray, y: Sequence[Any] | np.ndarray, **line: str) -> Trace:
    """Describe a line with markers. The name may hold markup.

    line: style of the line, such as `color` and `dash`.
    """
    return {"type": "scatter", "mode": "lines+markers", "name": name, "x": x, "y": y, "line": line}


def figure_dict(traces: Sequence[Trace], title: str, **layout: object) -> FigureDict:
    """Return the figure of these traces. The title may hold markup."""
    defaults = {
        "title": {"text": title, "x": 0, "xref": "paper", "font": {"size": 15}},
        "template": "plotly_white",
        "colorway": COLOURS,
        "margin": {"l": 60, "r": 20, "t": 60, "b": 50},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hoverlabel": {"namelength": -1},
        "legend": {"itemsizing": "constant"},
        # Keeps the reader's zoom when the figure is drawn again.
        "uirevision": "kept",
    }
    return {"data": list(traces), "layout": defaults | layout}


def empty_figure(title: str, why: str) -> FigureDict:
    """Return a figure that says why it is empty."""
    note = {"text": plain_text(why), "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    hidden = {"visible": False}
    return figure_dict([], title, annotations=[note], xaxis=hidden, yaxis=hidden)


def whole_number_axis(name: str, count: int) -> dict[str, object]:
    """Describe an axis of `count` whole numbers, without ticks between them."""
    return {"title": {"text": name}, "tickformat": "d", **({"dtick": 1} if count <= 20 else {})}


def without_feature_map_of(model: Any) -> Any:
    """Return a fitted estimator's projection without its feature map, or the model itself."""
    projection = model.projection() if hasattr(model, "projection") else model
    return projection.inner if isinstance(projection, Mapped) else projection


def projection_array(model: Any, name: str) -> np.ndarray | None:
    """Return an array of a model's projection, or None if it has none.

    name: "loadings" or "eigenvalues". Other libraries' estimators have them under scikit-learn's
    names.
    """
    values = getattr(without_feature_map_of(model), name, None)
    if values is None and name == "loadings" and hasattr(model, "components_"):
        values = np.asarray(model.components_).T
    if values is None and name == "eigenvalues":
        values = getattr(model, "explained_variance_", None)
    return None if values is None else np.asarray(values, dtype=np.float64)


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


def write_figure(figure: go.Figure, path: Path, width: int = 900, height: int = 560) -> None:
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
