"""Drift: how far a model's components turn from version to version."""

from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.engine.records import principal_angles
from stream_dr.plotting.figure import COLOURS, figure, inner, nothing
from stream_dr.plotting.recorded import recorded, records_of


def drift(source: Any, model: str | None = None, *, title: str = "Drift") -> go.Figure:
    """Principal angles (degrees) between the spans of one version's components and the next one's: the largest, and the
    median.

    source: estimators or projections, oldest first; or a directory, or its path, or its records, with the model's name.
    """
    told: list[tuple[float, list[float]]]
    if model is None:
        found = [principal_angles(inner(a), inner(b)) for a, b in pairwise(source)]
        told = [(i + 2, angles.tolist()) for i, angles in enumerate(found) if angles is not None]
    else:
        published = recorded(records_of(source), "published", model)
        told = [(f["version"], f["angles"]) for f in published if f.get("angles")]
    if not told:
        return nothing(title, "no two versions of a linear projection yet")
    versions, degrees = [version for version, _ in told], [np.degrees(angles) for _, angles in told]
    shown = {"largest angle": [d.max() for d in degrees], "median angle": [np.median(d) for d in degrees]}
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": versions,
            "y": y,
            "name": name,
            "line": {"color": COLOURS[i * 2]},
        }
        for i, (name, y) in enumerate(shown.items())
    ]
    axis = {"title": {"text": "degrees to the version before"}, "range": [0, 92]}
    return figure(traces, title, xaxis={"title": {"text": "version"}, "tickformat": "d"}, yaxis=axis)
