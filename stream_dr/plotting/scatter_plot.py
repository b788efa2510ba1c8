"""Figure of projected rows, coloured by label or target, with class means."""

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.errors import InvalidParameter
from stream_dr.plotting.figure import (
    COLOURS,
    SYMBOLS,
    FigureDict,
    Trace,
    empty_figure,
    figure_dict,
    plotly_escaped_text,
)
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS, Targets

MAX_POINTS = 100_000
"""Default for the maximum number of rows to draw."""

MAX_CLASSES = 30
"""Maximum number of classes with a colour of their own.

If there are more, the smallest classes share one colour.
"""

MAX_SVG_POINTS = 2_000
"""Number of points up to which points are drawn in SVG.

More points are drawn by WebGL, which is faster. SVG stays sharp when it is enlarged.
"""

MANY = 20_000
"""Number of points above which points are drawn smaller.

Many large points would hide each other.
"""

CROWDED = 50_000
"""Number of points above which points are drawn as small as possible."""

_OTHERS = "#9aa0a6"
"""Colour of rows without a label, and of rows whose class has no colour."""


def projection(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    dimensions: int = 2,
    most: int = MAX_POINTS,
    seed: int = 0,
    title: str | None = None,
) -> go.Figure:
    """Draw rows on the first components of a model.

    The figure has two or three components. A single component is drawn as a histogram.

    Parameters
    ----------
    model : fitted estimator or projection
    X : rows (rows, features)
    y : targets or None
        Targets that colour the rows. Each label has its own colour. A row with several labels has
        the colour of its first label. Continuous targets are shown on a colour scale, by their
        first column.
    dimensions : 2 or 3
        Number of components to draw.
    most : int
        Maximum number of rows to draw. If there are more, a random sample is drawn, and the title
        says so.
    seed : int
        Seed of the random sample.

    Raises InvalidParameter for other `dimensions`, and the errors of projecting the rows.

    Examples
    --------
    >>> import stream_dr
    >>> X, y = [[1.0, 2.0, 0.0], [3.0, 1.0, 1.0], [2.0, 5.0, 0.0], [4.0, 0.0, 2.0]], ["a", "b", "a", "b"]
    >>> pca = stream_dr.PCA(2).fit(X)
    >>> len(stream_dr.plotting.projection(pca, X, y).data) > 0
    True
    """
    z = model.apply(X) if hasattr(model, "apply") else model.transform(X)
    z = np.asarray(z, dtype=np.float64)
    targets = None if y is None else parse_targets(y, len(z), KINDS)
    title = title or f"Projection by {plotly_escaped_text(type(model).__name__)}"
    return go.Figure(projected_rows_figure(z, targets, dimensions, most, seed, title))


def projected_rows_figure(
    projected_rows: np.ndarray, targets: Targets | None, dimensions: int, max_rows: int, seed: int, title: str
) -> FigureDict:
    """Return a figure of projected rows as a dict.

    Raises InvalidParameter if `dimensions` is not 2 or 3.

    projected_rows: projected rows (rows, components).
    targets: targets that colour the rows, or None.
    dimensions: number of components to draw, 2 or 3.
    max_rows: maximum number of rows to draw. If there are more, a random sample is drawn.
    seed: seed of the random sample.
    """
    if dimensions not in (2, 3):
        raise InvalidParameter(f"dimensions={dimensions}; a projection is drawn in 2 or 3.")
    if not projected_rows.size:
        return empty_figure(title, "no rows yet" if not len(projected_rows) else "no component yet")

    # Compute the class means before sampling, so that they include the rows that are not drawn.
    means = _means_by_first_label_code(projected_rows, targets)
    rows = len(projected_rows)
    if rows > max_rows:
        drawn = np.sort(np.random.default_rng(seed).choice(rows, max_rows, replace=False))
        projected_rows = projected_rows[drawn]
        targets = None if targets is None else targets.take(drawn)
        title += f" · {max_rows:,} of {rows:,} rows, drawn at random"
    else:
        title += f" · {rows:,} rows"

    # Draw a histogram for one component, and points for several components.
    if projected_rows.shape[1] == 1:
        return _histogram_figure(projected_rows[:, 0], targets, title)
    axes = "xyz"[: min(dimensions, projected_rows.shape[1])]
    if targets is not None and targets.kind == "continuous":
        traces = _continuous_traces(projected_rows, targets, axes)
    else:
        traces = _class_traces(projected_rows, targets, axes, means)
    titles = {f"{axis}axis": {"title": {"text": f"component {i + 1}"}} for i, axis in enumerate(axes)}
    return figure_dict(traces, title, **({"scene": titles} if len(axes) == 3 else titles))


ClassMeans = dict[int, np.ndarray]
"""Mean of the projected rows of each class, by the code of its label."""


class _ColourGroup(NamedTuple):
    """Rows that are drawn with one colour and symbol.

    name: text in the legend, already escaped for plotly.
    rows: indices of the rows.
    colour: colour of the points.
    symbol: plotly's symbol of the points.
    mean: mean (components,) of the rows, or None if the mean is not drawn.
    """

    name: str
    rows: np.ndarray
    colour: str
    symbol: str = "circle"
    mean: np.ndarray | None = None


def _first_label_codes(targets: Targets) -> np.ndarray:
    """Return the code of each row's first label.

    The result is (rows,). The code of a row without labels is −1.
    """
    if targets.indptr is None:
        codes = targets.codes
    else:
        counts = np.diff(targets.indptr)
        codes = np.full(len(counts), -1)
        codes[counts > 0] = targets.codes[targets.indptr[:-1][counts > 0]]
    return np.asarray(codes if targets.present is None else np.where(targets.present, codes, -1))


def _means_by_first_label_code(projected_rows: np.ndarray, targets: Targets | None) -> ClassMeans:
    """Return the mean of each label's rows, by code.

    A mean is (components,). For a row with several labels, only the first label counts. The result
    is empty without targets and for continuous targets.

    projected_rows: projected rows (rows, components).
    """
    if targets is None or targets.kind == "continuous":
        return {}
    codes = _first_label_codes(targets)
    return {int(code): projected_rows[codes == code].mean(axis=0) for code in np.unique(codes) if code >= 0}


def _group_rows_by_colour(targets: Targets | None, n_rows: int, class_means: ClassMeans) -> list[_ColourGroup]:
    """Return the rows in groups of one colour and symbol.

    Each of the MAX_CLASSES largest classes is a group. These groups come first, in order of their
    labels. The next group has the rows of all other classes. The last group has the rows without a
    label. Without classes, all rows are one group.

    n_rows: number of rows.
    class_means: mean of each class, by the label's code.
    """
    if targets is None or targets.kind == "continuous":
        return [_ColourGroup("rows", np.arange(n_rows), COLOURS[0])]

    # One group for each of the largest classes.
    codes = _first_label_codes(targets)
    sizes = np.bincount(codes[codes >= 0], minlength=len(targets.labels))
    largest = np.argsort(-sizes, kind="stable")[:MAX_CLASSES]
    coloured = sorted((int(c) for c in largest if sizes[c]), key=lambda c: targets.labels[c])
    groups = []
    for i, code in enumerate(coloured):
        name = plotly_escaped_text(targets.labels[code])
        colour = COLOURS[i % len(COLOURS)]
        symbol = SYMBOLS[i // len(COLOURS) % len(SYMBOLS)]
        groups.append(_ColourGroup(name, np.flatnonzero(codes == code), colour, symbol, class_means.get(code)))

    # One group for the other classes, and one for rows without a label.
    others = np.flatnonzero((codes >= 0) & ~np.isin(codes, coloured))
    if len(others):
        groups.append(_ColourGroup(f"{len(np.unique(codes[others]))} other labels", others, _OTHERS))
    unlabelled = np.flatnonzero(codes < 0)
    return [*groups, _ColourGroup("no label", unlabelled, _OTHERS, "circle-open")] if len(unlabelled) else groups


def _class_traces(
    projected_rows: np.ndarray, targets: Targets | None, axes: str, class_means: ClassMeans
) -> list[Trace]:
    """Return the plotly traces of rows that have labels.

    Each group of rows with one colour has a trace. The class means have one more trace.

    projected_rows: projected rows (rows, components).
    axes: axes to draw: "xy" or "xyz".
    class_means: mean of each class, by the label's code.
    """
    groups = _group_rows_by_colour(targets, len(projected_rows), class_means)
    kind = _marker_trace_type(axes, len(projected_rows))
    size = _marker_size(axes, len(projected_rows))
    traces = []
    for g in groups:
        marker: JsonDict = {"color": g.colour, "size": size, "opacity": 0.7, "symbol": _marker_symbol(g, axes)}
        points = _coordinates_by_axis(projected_rows[g.rows], axes)
        traces.append(kind | points | {"name": g.name, "marker": marker})

    # Add the trace of the class means.
    centred = [g for g in groups if g.mean is not None]
    if centred:
        marker = {"color": [g.colour for g in centred], "size": _marker_size(axes, 0) + 6, "symbol": "x"}
        # No colour is set for the outline, so the page can set it to the colour of its text.
        marker["line"] = {"width": 1.5}
        points = _coordinates_by_axis(np.array([g.mean for g in centred]), axes)
        named = {"text": [g.name for g in centred], "hoverinfo": "text", "name": "class means"}
        # Draw the means like the rows: plotly puts WebGL above SVG, which would hide SVG means.
        traces.append(kind | points | named | {"marker": marker})
    return traces


def _continuous_traces(projected_rows: np.ndarray, targets: Targets, axes: str) -> list[Trace]:
    """Return the plotly trace of rows that have continuous targets.

    The first column of the targets gives the colours.

    projected_rows: projected rows (rows, components).
    axes: axes to draw: "xy" or "xyz".
    """
    assert targets.values is not None
    values = targets.values[:, 0]
    if targets.present is not None:
        values = np.where(targets.present, values, np.nan)

    scale = {"colorscale": "Viridis", "showscale": True, "colorbar": {"title": {"text": "target"}}}
    marker = {"color": values, "size": _marker_size(axes, len(projected_rows)), "opacity": 0.8} | scale
    points = _coordinates_by_axis(projected_rows, axes)
    return [_marker_trace_type(axes, len(projected_rows)) | points | {"name": "rows", "marker": marker}]


def _histogram_figure(projected_rows: np.ndarray, targets: Targets | None, title: str) -> FigureDict:
    """Return a histogram of one component as a dict.

    The bars are coloured by label.

    projected_rows: (rows,), values of the component.
    """
    bars = {"type": "histogram", "opacity": 0.6}
    groups = _group_rows_by_colour(targets, len(projected_rows), {})
    traces = [bars | {"x": projected_rows[g.rows], "name": g.name, "marker": {"color": g.colour}} for g in groups]
    axis = {"title": {"text": "component 1"}}
    return figure_dict(traces, title, barmode="overlay", xaxis=axis, yaxis={"title": {"text": "rows"}})


def _marker_trace_type(axes: str, n_rows: int) -> Trace:
    """Return the type and mode of a plotly point trace.

    Many points are drawn by WebGL, and few points in SVG.

    axes: axes to draw: "xy" or "xyz".
    n_rows: number of points in the figure.
    """
    if len(axes) == 3:
        return {"type": "scatter3d", "mode": "markers"}
    return {"type": "scattergl" if n_rows > MAX_SVG_POINTS else "scatter", "mode": "markers"}


def _coordinates_by_axis(points: np.ndarray, axes: str) -> Trace:
    """Return the coordinates of points by axis, as float32.

    points: points (points, components).
    axes: axes to draw: "xy" or "xyz".
    """
    return {axis: np.ascontiguousarray(points[:, i], dtype=np.float32) for i, axis in enumerate(axes)}


def _marker_size(axes: str, n_rows: int) -> int:
    """Return the size of a point in pixels.

    axes: axes to draw: "xy" or "xyz".
    n_rows: number of points in the figure. Many points are drawn smaller.
    """
    if len(axes) == 3:
        return 3
    return 2 if n_rows > CROWDED else 3 if n_rows > MANY else 5


def _marker_symbol(group: _ColourGroup, axes: str) -> str:
    """Return the plotly symbol of a group's points."""
    # plotly has no triangle in 3-D plots.
    return "circle" if len(axes) == 3 and group.symbol == "triangle-up" else group.symbol
