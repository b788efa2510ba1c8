"""Drift: how far a model's components turn from version to version."""

from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.models.schema import Facts
from stream_dr.plotting.figure import COLOURS, Plain, inner, nothing, plain, whole_numbers
from stream_dr.plotting.recorded import recorded, records_of
from stream_dr.solve.principal_angles import principal_angles


def drift(source: Any, model: str | None = None, *, title: str = "Drift") -> go.Figure:
    """Principal angles (degrees) between the spans of one version's components and the next one's: the largest, and the
    median.

    source: estimators or projections, oldest first; or a directory, or its path, or its records, with the model's name.
    """
    if model is not None:
        return go.Figure(drift_of(records_of(source), model, title))
    found = [principal_angles(inner(a), inner(b)) for a, b in pairwise(source)]
    return go.Figure(_angles([(i + 2, angles.tolist()) for i, angles in enumerate(found) if angles is not None], title))


def drift_of(facts: list[Facts], model: str, title: str) -> Plain:
    """What `drift` draws of a model's records."""
    published = recorded(facts, "published", model)
    return _angles([(f["version"], f["angles"]) for f in published if f.get("angles")], title)


def _angles(told: list[tuple[int, list[float]]], title: str) -> Plain:
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
    return plain(traces, title, xaxis=whole_numbers("version", len(versions)), yaxis=axis)
