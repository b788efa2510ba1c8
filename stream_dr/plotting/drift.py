"""Drift: how far a model's components turn from version to version."""

from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.plotting.figure import (
    COLOURS,
    FigureDict,
    empty_figure,
    figure_dict,
    whole_number_axis,
    without_feature_map_of,
)
from stream_dr.plotting.recorded import recorded, records_of
from stream_dr.solve.principal_angles import principal_angles


def drift(source: Any, model: str | None = None, *, title: str = "Drift") -> go.Figure:
    """Draw the principal angles (degrees) between each version's components and the next one's.

    The largest and the median angle are drawn.

    Parameters
    ----------
    source : list of estimators or projections, Directory, path or list of records
        Estimators and projections are given oldest first.
    model : str or None
        Name of the model, if source is a directory, its path or its records.

    Examples
    --------
    >>> import numpy as np
    >>> import stream_dr
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> older, newer = stream_dr.PCA(2).fit(X[:30]), stream_dr.PCA(2).fit(X)
    >>> [line.name for line in stream_dr.plotting.drift([older, newer]).data]
    ['largest angle', 'median angle']
    """
    if model is not None:
        return go.Figure(drift_of(records_of(source), model, title))
    each = [principal_angles(without_feature_map_of(a), without_feature_map_of(b)) for a, b in pairwise(source)]
    return go.Figure(
        _drift_figure([(i + 2, angles.tolist()) for i, angles in enumerate(each) if angles is not None], title)
    )


def drift_of(records: list[JsonDict], model: str, title: str) -> FigureDict:
    """Return what `drift` draws from a model's records."""
    published = recorded(records, "published", model)
    return _drift_figure([(f["version"], f["angles"]) for f in published if f.get("angles")], title)


def _drift_figure(versions: list[tuple[int, list[float]]], title: str) -> FigureDict:
    """Return the figure of version numbers and their angles (radians) to the version before."""
    if not versions:
        return empty_figure(title, "no two versions of a linear projection yet")

    degrees = [np.degrees(angles) for _, angles in versions]
    lines = {"largest angle": [d.max() for d in degrees], "median angle": [np.median(d) for d in degrees]}
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [version for version, _ in versions],
            "y": y,
            "name": name,
            "line": {"color": COLOURS[i * 2]},
        }
        for i, (name, y) in enumerate(lines.items())
    ]

    axis = {"title": {"text": "degrees to the version before"}, "range": [0, 92]}
    return figure_dict(traces, title, xaxis=whole_number_axis("version", len(versions)), yaxis=axis)
