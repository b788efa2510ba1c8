"""Colours, layout, plain text and file writing for all figures."""

import html
import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.disk import check_parent_folder_exists
from stream_dr.errors import InvalidParameter, StreamDRError
from stream_dr.projection import Linear, Mapped
from stream_dr.uncertainty import ComponentSpread

COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
)
"""Colours of classes and models, in order.

They can be distinguished on white and on black pages, also by most people who are colour-blind.
"""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")
"""Symbols of classes, in order.

The first classes have the first symbol and different colours. When all colours are used, the next
classes have the next symbol and the same colours again.
"""

MAX_TEXT = 60
"""Maximum number of characters of a name that are shown."""

PICTURES = (".png", ".svg", ".pdf", ".webp", ".jpg")
"""Suffixes of the picture files that `write_figure` can write."""

Numbers = Sequence[Any] | np.ndarray

Trace = JsonDict
"""A trace as a dict. A trace is a line, bars or points with one legend entry in plotly."""

# Making a plotly Figure takes ten times as long as making a dict. So the dashboard uses dicts.
FigureDict = JsonDict
"""A figure as a dict {"data": traces, "layout": layout}, from which plotly makes a Figure."""


LEGEND_ABOVE = {"orientation": "h", "y": 1.08, "x": 0}
"""Position of a legend above the plot."""


def plotly_escaped_text(value: object) -> str:
    """Return text that plotly shows unchanged.

    Characters that plotly would interpret as markup are escaped. Texts longer than MAX_TEXT are
    cut.

    value: a name, a label or an error.
    """
    words = str(value).split()
    line = " ".join(words) or "(empty)"
    if len(line) > MAX_TEXT:
        line = line[: MAX_TEXT - 1] + "…"
    return html.escape(line, quote=False)


def title_of_model(figure_name: str, model: object) -> str:
    """Return a figure's default title, such as "Spectrum of LDA"."""
    return f"{figure_name} of {plotly_escaped_text(type(model).__name__)}"


def scatter_trace(legend_text: str, x: Numbers, y: Numbers, mode: str = "lines+markers", **options: object) -> Trace:
    """Return a plotly trace of a line, of markers, or of both.

    legend_text: text in the legend, which may have plotly's markup. The caller escapes text that
        is not markup, such as a model's name, by `plotly_escaped_text`.
    mode: "lines", "markers" or "lines+markers".
    options: plotly's options of the trace, such as `line` and `marker`.
    """
    return {"type": "scatter", "mode": mode, "name": legend_text, "x": x, "y": y, **options}


def figure_dict(traces: Sequence[Trace], title: str, **layout: object) -> FigureDict:
    """Return a figure as a dict, with the common layout.

    traces: lines, bars or points of the figure.
    title: text that may have plotly's markup. The caller escapes text that is not markup, such as
        a model's name, by `plotly_escaped_text`.
    layout: plotly's layout options, which replace options of the common layout.
    """
    defaults = {
        "title": {"text": title, "x": 0, "xref": "paper", "font": {"size": 15}},
        "template": "plotly_white",
        "colorway": COLOURS,
        "margin": {"l": 60, "r": 20, "t": 60, "b": 50},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hoverlabel": {"namelength": -1},
        "legend": {"itemsizing": "constant"},
        # With a constant "uirevision", the user's zoom does not change when new data are drawn.
        "uirevision": "kept",
    }
    return {"data": list(traces), "layout": defaults | layout}


def empty_figure(title: str, reason: str) -> FigureDict:
    """Return a figure that shows why there are no data.

    reason: the reason, which is shown as text in the middle of the figure.
    """
    note = {"text": plotly_escaped_text(reason), "showarrow": False}
    note |= {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    hidden = {"visible": False}
    return figure_dict([], title, annotations=[note], xaxis=hidden, yaxis=hidden)


def titled_axis(axis_title: str, **options: object) -> JsonDict:
    """Return plotly's options of an axis with a title."""
    return {"title": {"text": axis_title}, **options}


def whole_number_axis(axis_title: str, n_values: int) -> JsonDict:
    """Return plotly's options of an axis with whole numbers.

    The axis has ticks only at whole numbers.

    axis_title: title of the axis.
    n_values: number of whole numbers on the axis.
    """
    axis = titled_axis(axis_title, tickformat="d")
    if n_values <= 20:
        axis["dtick"] = 1
    return axis


def unmapped_projection(model: Any) -> Any:
    """Return a model's projection without its feature map.

    If the model has a feature map, the result is the projection that is applied to mapped rows. If
    the model has no feature map, the result is the model's projection. An object of another
    library is returned unchanged.

    model: fitted estimator or projection.
    """
    projection = model
    if hasattr(model, "projection"):
        projection = model.projection()
    if isinstance(projection, Mapped):
        return projection.inner
    return projection


def component_spread_or_none(model: Any) -> ComponentSpread | None:
    """Return the uncertainty of a model's components.

    The result is None if the uncertainty is not known. This is the case without folds, with too
    few rows in the folds, and for a refined projection.

    model: fitted estimator or projection.
    """
    # An estimator with folds computes the uncertainty when `angles_` is read, and stores it in its
    # projection. Errors mean that there is no uncertainty, which is checked below.
    with suppress(AttributeError, StreamDRError):
        model.angles_  # noqa: B018
    projection = unmapped_projection(model)
    if isinstance(projection, Linear):
        return projection.spread
    return None


def projection_array(model: Any, array_name: Literal["loadings", "eigenvalues"]) -> np.ndarray | None:
    """Return the loadings or the eigenvalues of a model.

    The result is None if the model does not have the array.

    model: fitted estimator or projection.
    array_name: name of the array to return.
    """
    # If the model has a feature map, the arrays are those of the projection of mapped rows.
    values = getattr(unmapped_projection(model), array_name, None)
    # Estimators of scikit-learn have other names for the arrays. Their `components_` are
    # (components, features), and loadings are (features, components).
    if values is None and array_name == "eigenvalues":
        values = getattr(model, "explained_variance_", None)
    elif values is None and hasattr(model, "components_"):
        values = np.transpose(model.components_)
    if values is None:
        return None
    return np.asarray(values, dtype=np.float64)


def check_can_write_figure(path: Path) -> None:
    """Raise an error if no figure can be written to a path.

    InvalidParameter is raised if the suffix is unknown, or if a picture needs the package kaleido
    and it is not installed. SourceMissing is raised if the folder does not exist.
    """
    if path.suffix not in (".html", *PICTURES):
        raise InvalidParameter(f"{path} ends in {path.suffix!r}; name a file in .html, {', '.join(PICTURES)}.")
    if path.suffix in PICTURES and importlib.util.find_spec("kaleido") is None:
        raise InvalidParameter(f"{path.suffix} needs kaleido: pip install 'stream-dr[plot]', or name a file in .html.")
    check_parent_folder_exists(path)


def write_figure(figure: go.Figure, path: Path, width: int = 900, height: int = 560) -> None:
    """Write a figure in the format of the file's suffix.

    An .html file contains the script of plotly, so it can be shown without a network. A picture
    has width × height pixels.

    Raises the errors of `check_can_write_figure`, and InvalidParameter if no browser can be started
    to draw the picture.
    """
    check_can_write_figure(path)
    if path.suffix == ".html":
        figure.write_html(path, include_plotlyjs=True)
        return

    from kaleido.errors import ChromeNotFoundError

    try:
        figure.write_image(path, width=width, height=height)
    except (ChromeNotFoundError, RuntimeError) as e:
        raise InvalidParameter(
            f"{path.suffix} is drawn by Chromium or Chrome, which could not be started ({type(e).__name__}): install "
            "one of them, or name a file in .html."
        ) from e
