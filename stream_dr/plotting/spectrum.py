"""Spectrum: the eigenvalues of a model's components, and what share of all they capture together."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.plotting.figure import COLOURS, Plain, array, nothing, plain, text, whole_numbers


def spectrum(model: Any, *, title: str | None = None) -> go.Figure:
    """Eigenvalues as bars and their cumulative share as a line.

    model: a fitted estimator, or a projection. The share is of what the estimator's `explained_variance_ratio_` is of,
    where it has that; else of the sum of the components there are. Negative eigenvalues capture nothing.
    """
    return go.Figure(spectrum_of(model, title or f"Spectrum of {text(type(model).__name__)}"))


def spectrum_of(model: Any, title: str, captured: np.ndarray | None = None) -> Plain:
    """What `spectrum` draws. captured: share (components,) of all variance that the first components capture together."""
    values = array(model, "eigenvalues")
    if values is None or not len(values):
        return nothing(title, "no eigenvalues: " + ("no component yet" if values is not None else "it has none"))
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
    return plain(
        [bars, line],
        title,
        xaxis=whole_numbers("component", len(values)),
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
