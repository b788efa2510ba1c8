"""Figures of a projection's loadings and of its eigenvalues."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from scipy.special import stdtrit

from stream_dr.errors import InvalidParameter
from stream_dr.plotting.figure import (
    COLOURS,
    FigureDict,
    Trace,
    component_spread_of,
    empty_figure,
    figure_dict,
    line_trace,
    plain_text,
    projection_array,
    whole_number_axis,
    without_feature_map_of,
)
from stream_dr.projection import Columns, Mapped
from stream_dr.uncertainty import WIDEST_ANGLE, ComponentSpread


def loadings(
    model: Any, component: int = 0, *, most: int = 20, names: Sequence[object] | None = None, title: str | None = None
) -> go.Figure:
    """Draw the largest loadings of a component as horizontal bars.

    If the model selects features, the scores of the selected features are drawn. If the rows are in
    folds, the loadings have error bars of 95 %. If the component is known to more than 30° only,
    the title says so instead.

    Parameters
    ----------
    model : fitted estimator or projection
    component : int
        Number of the component, from 0.
    most : int
        Maximum number of features to draw.
    names : sequence or None
        Names of the features. None means the estimator's own names of the features.

    Raises InvalidParameter if there is no such component.

    Examples
    --------
    >>> import stream_dr
    >>> pca = stream_dr.PCA(1).fit([[1.0, 2.0], [3.0, 1.0], [2.0, 5.0]])
    >>> list(stream_dr.plotting.loadings(pca, names=["age", "fare"]).data[0].y)
    ['age', 'fare']
    """
    return go.Figure(
        loadings_figure_of(model, component, most, names, title or f"Loadings of {plain_text(type(model).__name__)}")
    )


def loadings_figure_of(
    model: Any,
    component: int,
    most: int,
    names: Sequence[object] | None,
    title: str,
    deviations: np.ndarray | None = None,
) -> FigureDict:
    """Return the figure of `loadings` as a dict. The parameters are explained there.

    deviations: standard deviations (features,) by which the loadings are multiplied, or None. A
        feature that hardly varies has little effect, even if its loading is large.
    """
    projection = without_feature_map_of(model)
    half_widths = None
    if isinstance(projection, Columns):
        features = projection.columns
        values = projection.scores
        label = "score"
    else:
        matrix = projection_array(model, "loadings")
        if matrix is None or not matrix.shape[1]:
            return empty_figure(
                title, "no component yet" if matrix is not None else "no loadings: it projects by similar rows"
            )
        if not 0 <= component < matrix.shape[1]:
            raise InvalidParameter(f"component={component}; there are 0 … {matrix.shape[1] - 1}.")

        features = np.arange(len(matrix))
        values = matrix[:, component]
        label = "loading"
        note, half_widths = _loading_uncertainty(model, component)
        title += f" · component {component + 1}{note}"
        if deviations is not None:
            values = values * deviations
            half_widths = None if half_widths is None else half_widths * deviations
            label = "loading × standard deviation"

    largest = np.argsort(-np.abs(values), kind="stable")[:most][::-1]
    colours = [COLOURS[0] if value >= 0 else COLOURS[2] for value in values[largest]]
    bars = {"type": "bar", "orientation": "h", "x": values[largest], "marker": {"color": colours}, "hoverinfo": "x+y"}
    bars |= {"y": _distinct([int(i) for i in features[largest]], _names(model, names))}
    if half_widths is not None:
        bars["error_x"] = {"type": "data", "array": half_widths[largest], "thickness": 1.5, "color": COLOURS[9]}
    axis = {"automargin": True, "type": "category", "dtick": 1, "tickfont": {"size": 10}}
    return figure_dict([bars], title, xaxis={"title": {"text": label}}, yaxis=axis, showlegend=False)


def _loading_uncertainty(model: Any, component: int) -> tuple[str, np.ndarray | None]:
    """Return a note for the title, and half the width (features,) of each loading's error bar.

    The error bars are None if the uncertainty is not known. They are also None if the angle of the
    component (`ComponentSpread.angles`) is above WIDEST_ANGLE. Error bars would then be shorter
    than the uncertainty. In this case the note states the angle.
    """
    spread = component_spread_of(model)
    if spread is None:
        return "", None
    angle = spread.angles[component]
    if angle > WIDEST_ANGLE:
        return f" · known to {angle:.0f}° only", None
    return "", _half_widths(spread.components_std[component], spread)


def _half_widths(std: np.ndarray, spread: ComponentSpread) -> np.ndarray:
    """Return half the width of the 95 % interval of each value with this standard error."""
    return np.asarray(stdtrit(spread.folds - 1, 0.975) * std)


def _names(model: Any, names: Sequence[object] | None) -> Sequence[object]:
    """Return the names of the features, or () if the features have no names."""
    if names is not None:
        return names
    projection = model.projection() if hasattr(model, "projection") else model
    if isinstance(projection, Mapped):
        return projection.feature_names or ()
    return list(getattr(model, "feature_names_in_", ()))


def _distinct(features: list[int], names: Sequence[object]) -> list[str]:
    """Return a distinct text for each feature.

    The text is the feature's name. If several features have the same text, each one's number is
    added. A feature without a name is called by its number.

    features: numbers of the features.
    names: names of all features.
    """
    labels = [plain_text(names[i]) if i < len(names) else f"feature {i}" for i in features]
    return [f"{name} ({i})" if labels.count(name) > 1 else name for i, name in zip(features, labels, strict=True)]


def spectrum(model: Any, *, title: str | None = None) -> go.Figure:
    """Draw eigenvalues as bars and their cumulative share as a line.

    The share is the sum of `explained_variance_ratio_` if the estimator has this attribute.
    Otherwise it is the share in the sum of the eigenvalues that are drawn, where negative
    eigenvalues count as 0.

    If the rows are in folds, marks show the eigenvalues without their bias, with error bars of 95 %.

    model: a fitted estimator or a projection.

    >>> import stream_dr
    >>> pca = stream_dr.PCA(1).fit([[1.0, 2.0], [3.0, 1.0], [2.0, 5.0]])
    >>> stream_dr.plotting.spectrum(pca).layout.title.text
    'Spectrum of PCA'
    """
    return go.Figure(spectrum_of(model, title or f"Spectrum of {plain_text(type(model).__name__)}"))


def spectrum_of(model: Any, title: str, captured: np.ndarray | None = None) -> FigureDict:
    """Return the figure of `spectrum` as a dict.

    captured: (components,). Entry i is the share of all variance that components 0 to i capture
        together. None means that the share is computed as in `spectrum`.
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
    line = line_trace(f"captured share of {of}", number[: len(shares)], shares, color=COLOURS[2])

    spread = component_spread_of(model)
    return figure_dict(
        [bars, line | {"yaxis": "y2"}, *([] if spread is None else [_interval_trace(number, spread)])],
        title,
        xaxis=whole_number_axis("component", len(values)),
        yaxis={"title": {"text": "eigenvalue"}},
        yaxis2={
            "overlaying": "y",
            "side": "right",
            "automargin": True,
            "range": [0, 1.05],
            "tickformat": ".0%",
            "showgrid": False,
            "dtick": 0.25,
            "tickmode": "linear",
        },
        legend={"orientation": "h", "y": 1.08, "x": 0},
    )


def _interval_trace(number: np.ndarray, spread: ComponentSpread) -> Trace:
    """Return the plotly trace of the eigenvalues without their bias, with error bars.

    number: (components,) number of each component, from 1.
    """
    marks = {
        "type": "scatter",
        "mode": "markers",
        "x": number,
        "y": spread.eigenvalues,
        "marker": {"color": COLOURS[1]},
    }
    error_bars = {"type": "data", "array": _half_widths(spread.eigenvalues_std, spread), "thickness": 1.5}
    return marks | {"name": "95 % interval", "error_y": error_bars}
