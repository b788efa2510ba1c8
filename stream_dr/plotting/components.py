"""Figures of a projection's loadings, eigenvalues and cross-validation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from scipy.special import stdtrit

from stream_dr.aliases import JsonDict
from stream_dr.errors import InvalidParameter
from stream_dr.plotting.figure import (
    COLOURS,
    LEGEND_ABOVE,
    FigureDict,
    Trace,
    component_spread_or_none,
    empty_figure,
    figure_dict,
    line_trace,
    loadings_or_eigenvalues,
    plotly_escaped_text,
    strip_feature_map_if_any,
    title_of_model,
    whole_number_axis,
)
from stream_dr.projection import Columns, Linear, Mapped
from stream_dr.uncertainty import MAX_ERROR_BAR_ANGLE, ComponentSpread, number_text


def loadings(
    model: Any, component: int = 0, *, most: int = 20, names: Sequence[object] | None = None, title: str | None = None
) -> go.Figure:
    """Draw the largest loadings of a component as horizontal bars.

    If the model selects features, the scores of the selected features are drawn. If the rows are
    in folds, the loadings have error bars of 95 %. If the uncertainty of the component is an angle
    above 30°, the title states the angle, and there are no error bars.

    Parameters
    ----------
    model : fitted estimator or projection
    component : int
        Number of the component, from 0.
    most : int
        Maximum number of features to draw.
    names : sequence or None
        Names of the features. None means the names that the estimator has learned.

    Raises InvalidParameter if there is no such component.

    Examples
    --------
    >>> import stream_dr
    >>> pca = stream_dr.PCA(1).fit([[1.0, 2.0], [3.0, 1.0], [2.0, 5.0]])
    >>> list(stream_dr.plotting.loadings(pca, names=["age", "fare"]).data[0].y)
    ['age', 'fare']
    """
    title = title or title_of_model("Loadings", model)
    return go.Figure(loadings_figure_dict(model, component, most, names, title))


def loadings_figure_dict(
    model: Any,
    component: int,
    max_features: int,
    feature_names: Sequence[object] | None,
    title: str,
    feature_deviations: np.ndarray | None = None,
) -> FigureDict:
    """Return a component's largest loadings as a figure dict.

    Raises InvalidParameter if there is no such component.

    model: fitted estimator or projection.
    component: number of the component, from 0.
    max_features: maximum number of features to draw.
    feature_names: names of the features. None means the names that the estimator has learned.
    feature_deviations: standard deviations (features,) by which the loadings are multiplied, or
        None. A feature that hardly varies has little effect, even if its loading is large.
    """
    # Choose the values to draw: scores of selected features, or loadings of the component.
    projection = strip_feature_map_if_any(model)
    half_widths = None
    if isinstance(projection, Columns):
        features = projection.columns
        values = projection.scores
        label = "score"
    else:
        matrix = loadings_or_eigenvalues(model, "loadings")
        if matrix is None or not matrix.shape[1]:
            reason = "no component yet" if matrix is not None else "no loadings: it projects by similar rows"
            return empty_figure(title, reason)
        if not 0 <= component < matrix.shape[1]:
            raise InvalidParameter(f"component={component}; there are 0 … {matrix.shape[1] - 1}.")

        features = np.arange(len(matrix))
        values = matrix[:, component]
        label = "loading"
        note, half_widths = _title_note_and_half_widths(model, component)
        title += f" · component {component + 1}{note}"
        if feature_deviations is not None:
            values = values * feature_deviations
            half_widths = None if half_widths is None else half_widths * feature_deviations
            label = "loading × standard deviation"

    # Draw the largest values as bars, in reversed order. Plotly draws the first bar at the bottom.
    largest = np.argsort(-np.abs(values), kind="stable")[:max_features][::-1]
    colours = [COLOURS[0] if value >= 0 else COLOURS[2] for value in values[largest]]
    bars = {"type": "bar", "orientation": "h", "x": values[largest], "marker": {"color": colours}, "hoverinfo": "x+y"}
    bars["y"] = _distinct_feature_labels(
        features[largest].tolist(), _given_or_stored_names_or_empty(model, feature_names)
    )
    if half_widths is not None:
        bars["error_x"] = {"type": "data", "array": half_widths[largest], "thickness": 1.5, "color": COLOURS[9]}
    axis = {"automargin": True, "type": "category", "dtick": 1, "tickfont": {"size": 10}}
    return figure_dict([bars], title, xaxis={"title": {"text": label}}, yaxis=axis, showlegend=False)


def _title_note_and_half_widths(model: Any, component: int) -> tuple[str, np.ndarray | None]:
    """Return a title note and the error bars of loadings.

    The note is text for the title, or "". The error bars are half the widths (features,) of 95 %
    intervals, or None in two cases:

    - The uncertainty is not known.
    - The direction of the component is too uncertain. `ComponentSpread.angles` has the typical
      angle between the component and the component that infinitely many rows would give. If this
      angle is above MAX_ERROR_BAR_ANGLE, error bars would be too short, so the note states it.
    """
    spread = component_spread_or_none(model)
    if spread is None:
        return "", None
    angle = spread.angles[component]
    if angle > MAX_ERROR_BAR_ANGLE:
        return f" · known to {angle:.0f}° only", None
    return "", _confidence_half_widths(spread.components_std[component], spread)


def _confidence_half_widths(standard_errors: np.ndarray, spread: ComponentSpread) -> np.ndarray:
    """Return half the widths of 95 % intervals.

    standard_errors: standard error of each value.
    spread: uncertainty of the components, which has the number of folds.
    """
    return np.asarray(stdtrit(spread.folds - 1, 0.975) * standard_errors)


def _given_or_stored_names_or_empty(model: Any, feature_names: Sequence[object] | None) -> Sequence[object]:
    """Return the names of the features of a model.

    The result is `feature_names` if it is not None, and () if the features have no names.

    model: fitted estimator or projection.
    """
    if feature_names is not None:
        return feature_names
    projection = model.projection() if hasattr(model, "projection") else model
    if isinstance(projection, Mapped):
        return projection.feature_names or ()
    return list(getattr(model, "feature_names_in_", ()))


def _distinct_feature_labels(feature_indices: list[int], all_names: Sequence[object]) -> list[str]:
    """Return a distinct text for each feature.

    The text is the feature's name. If several features have one name, the number of the feature is
    added to the name. The text of a feature without a name is "feature" and its number.

    feature_indices: numbers of the features.
    all_names: names of all features.
    """
    labels = [plotly_escaped_text(all_names[i]) if i < len(all_names) else f"feature {i}" for i in feature_indices]
    pairs = zip(feature_indices, labels, strict=True)
    return [f"{name} ({i})" if labels.count(name) > 1 else name for i, name in pairs]


def spectrum(model: Any, *, title: str | None = None) -> go.Figure:
    """Draw eigenvalues as bars, and cumulative shares as a line.

    The share of a component is its entry of `explained_variance_ratio_` if the estimator has this
    attribute. If not, the share is the component's part of the sum of the drawn eigenvalues, where
    negative eigenvalues count as 0.

    If the rows are in folds, marks show the eigenvalues without their bias. The error bars of the
    marks are 95 % intervals.

    model: a fitted estimator or a projection.

    >>> import stream_dr
    >>> pca = stream_dr.PCA(1).fit([[1.0, 2.0], [3.0, 1.0], [2.0, 5.0]])
    >>> stream_dr.plotting.spectrum(pca).layout.title.text
    'Spectrum of PCA'
    """
    return go.Figure(spectrum_figure_dict(model, title or title_of_model("Spectrum", model)))


def spectrum_figure_dict(model: Any, title: str, cumulative_shares: np.ndarray | None = None) -> FigureDict:
    """Return a figure of a model's eigenvalues as a dict.

    model: fitted estimator or projection.
    cumulative_shares: (components,). Entry i is the share of all variance that components 0 to i
        capture together. None means that the share is computed as in `spectrum`.
    """
    # Compute the cumulative shares of the eigenvalues.
    values = loadings_or_eigenvalues(model, "eigenvalues")
    if values is None or not len(values):
        return empty_figure(title, "no eigenvalues: " + ("no component yet" if values is not None else "it has none"))

    ratio = getattr(model, "explained_variance_ratio_", None)
    positive = np.maximum(values, 0.0)
    total = positive.sum()
    shares = np.asarray(ratio) if ratio is not None else positive / total if total else positive
    number = np.arange(1, len(values) + 1)
    shares = np.cumsum(shares) if cumulative_shares is None else cumulative_shares
    of = "all variance" if ratio is not None or cumulative_shares is not None else "these components"

    # One bar alone would fill the figure.
    width = min(0.8, 0.2 * len(values))
    bars = {
        "type": "bar",
        "x": number,
        "y": values,
        "name": "eigenvalue",
        "marker": {"color": COLOURS[0]},
        "width": width,
    }
    line = line_trace(f"captured share of {of}", number[: len(shares)], shares, color=COLOURS[2])

    traces = [bars, line | {"yaxis": "y2"}]
    spread = component_spread_or_none(model)
    if spread is not None:
        traces.append(_eigenvalue_interval_trace(number, spread))

    ticks = {"tickformat": ".0%", "dtick": 0.25, "tickmode": "linear"}
    return figure_dict(
        traces,
        title,
        xaxis=whole_number_axis("component", len(values)) | {"range": [0.5, len(values) + 0.5]},
        yaxis={"title": {"text": "eigenvalue"}},
        yaxis2={"overlaying": "y", "side": "right", "automargin": True, "range": [0, 1.05], "showgrid": False} | ticks,
        legend=LEGEND_ABOVE,
    )


def _eigenvalue_interval_trace(component_numbers: np.ndarray, spread: ComponentSpread) -> Trace:
    """Return a plotly trace of eigenvalues with error bars.

    The marks show the eigenvalues minus their estimated bias.

    component_numbers: (components,) number of each component, from 1.
    spread: uncertainty of the components.
    """
    marks = {"type": "scatter", "mode": "markers", "x": component_numbers, "y": spread.eigenvalues}
    error_bars = {"type": "data", "array": _confidence_half_widths(spread.eigenvalues_std, spread), "thickness": 1.5}
    return marks | {"name": "95 % interval", "error_y": error_bars, "marker": {"color": COLOURS[1]}}


def regularisation(model: Any, *, title: str | None = None) -> go.Figure:
    """Draw the cross-validated error for each value of a parameter.

    The parameter is the ridge `gamma` or the number of components. Error bars are one standard
    error. A mark shows the chosen value. If the model has no parameter with the value "cv", the
    figure is empty.

    model: a fitted estimator or a projection.

    >>> import numpy as np
    >>> import stream_dr
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> opls = stream_dr.OPLS(gamma="cv").fit(X, X[:, 0] + np.random.default_rng(1).normal(size=60))
    >>> [trace.name for trace in stream_dr.plotting.regularisation(opls).data][0]
    'error, with its standard error'
    """
    return go.Figure(regularisation_figure_dict(model, title or title_of_model("Regularisation", model)))


def regularisation_figure_dict(model: Any, title: str) -> FigureDict:
    """Return a figure of cross-validated errors as a dict.

    model: fitted estimator or projection.
    """
    projection = strip_feature_map_if_any(model)
    choice = projection.choice if isinstance(projection, Linear) else None
    if choice is None:
        return empty_figure(title, "no parameter was chosen by cross-validation")
    x, axis = choice.values, whole_number_axis("number of components", len(choice.values))
    if choice.parameter == "gamma":
        x, axis = _ridge_positions_and_axis(choice.values)

    texts = [f"{choice.parameter} = {number_text(value)}" for value in choice.values]
    at = [choice.chosen]
    line = line_trace("error, with its standard error", x, choice.mean, color=COLOURS[0])
    error_bars = {"type": "data", "array": choice.std_error, "thickness": 1}
    line |= {"error_y": error_bars, "text": texts, "hoverinfo": "text+y"}
    mark = {"type": "scatter", "mode": "markers", "x": x[at], "y": choice.mean[at], "hoverinfo": "name+y"}
    mark["name"] = f"chosen: {texts[choice.chosen]}"
    mark["marker"] = {"color": COLOURS[2], "size": 12, "symbol": "diamond"}
    return figure_dict([line, mark], title, xaxis=axis, yaxis={"title": {"text": "error"}}, legend=LEGEND_ABOVE)


def _ridge_positions_and_axis(ridges_from_zero: np.ndarray) -> tuple[np.ndarray, JsonDict]:
    """Return the positions and the axis options of ridges.

    The axis is logarithmic. The first ridge is 0, which has no logarithm. It is drawn at the left
    end of the axis, where the tick has the text 0.

    ridges_from_zero: the ridges, ascending from 0.
    """
    # All ridges are 0 if no column varies.
    smallest = ridges_from_zero[1] or 1.0
    x = np.maximum(ridges_from_zero, smallest / 10)
    powers = np.arange(np.ceil(np.log10(smallest)), np.log10(x[-1]) + 1e-9)
    names = ["0", *(f"10<sup>{power:.0f}</sup>" for power in powers)]
    ticks = {"tickvals": [x[0], *10.0**powers], "ticktext": names}
    return x, {"type": "log", "title": {"text": "gamma"}, **ticks}
