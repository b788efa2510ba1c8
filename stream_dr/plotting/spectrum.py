"""Spectrum: the eigenvalues of a model's components, and the share that they capture."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.plotting.figure import (
    COLOURS,
    FigureDict,
    empty_figure,
    figure_dict,
    plain_text,
    projection_array,
    whole_number_axis,
)


def spectrum(model: Any, *, title: str | None = None) -> go.Figure:
    """Draw eigenvalues as bars and their cumulative share as a line.

    The share comes from the estimator's `explained_variance_ratio_` if it has one. Otherwise it is
    the share of the sum of these components. Negative eigenvalues capture nothing.

    model: a fitted estimator or a projection.

    >>> import stream_dr
    >>> pca = stream_dr.PCA(1).fit([[1.0, 2.0], [3.0, 1.0], [2.0, 5.0]])
    >>> stream_dr.plotting.spectrum(pca).layout.title.text
    'Spectrum of PCA'
    """
    return go.Figure(spectrum_of(model, title or f"Spectrum of {plain_text(type(model).__name__)}"))


def spectrum_of(model: Any, title: str, captured: np.ndarray | None = None) -> FigureDict:
    """Return what `spectrum` draws.

    captured: share (components,) of all variance that the first components capture together.
    """
    values = projection_array(model, "eigenvalues")
    if values is None or not len(values):
        return empty_figure(title, "no eigenvalues: " + ("no component yet" if values is not None else "it has none"))

    ratio = getattr(model, "explained_variance_ratio_", None)
    positive = np.maximum(values, 0.0)
    total = positive.sum()
    shares = np.asarray(ratio) if ratio is not None else positive / total if total else positive
    number = np.arange(1, len(values) + 1)
    shares = np.cumsum(shares) if captured is None else captured
    of = "all variance" if ratio is not None or captured is not None else "these components"

    bars = {"type": "bar", "x": number, "y": values, "name": "eigenvalue", "marker": {"color": COLOURS[0]}}
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": number[: len(shares)],
        "y": shares,
        "yaxis": "y2",
    }
    line |= {"name": f"captured share of {of}", "line": {"color": COLOURS[2]}}

    return figure_dict(
        [bars, line],
        title,
        xaxis=whole_number_axis("component", len(values)),
        yaxis={"title": {"text": "eigenvalue"}},
        yaxis2={
            "overlaying": "y",
            "side": "right",
            "range": [0, 1.05],
            "tickformat": ".0%",
            "showgrid": False,
            "dtick": 0.25,
            "tickmode": "linear",
        },
        legend={"orientation": "h", "y": 1.08, "x": 0},
    )
