"""Figures of a projection: its loadings, eigenvalues, cross-validation and projected rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from scipy.special import stdtrit

from stream_dr.aliases import JsonDict
from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.targets import KINDS, Targets
from stream_dr.errors import InvalidParameter
from stream_dr.plotting.figure import (
    COLOURS,
    LEGEND_ABOVE,
    SYMBOLS,
    FigureDict,
    Trace,
    component_spread_or_none,
    empty_figure,
    figure_dict,
    plotly_escaped_text,
    projection_array,
    scatter_trace,
    title_of_model,
    titled_axis,
    unmapped_projection,
    whole_number_axis,
)
from stream_dr.projection import Columns, Linear, Mapped
from stream_dr.uncertainty import MAX_ERROR_BAR_ANGLE, number_text


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
    projection = unmapped_projection(model)
    # A projection of the class Columns selects features. Others have a matrix of loadings.
    half_widths = None
    if isinstance(projection, Columns):
        features = projection.columns
        values = projection.scores
        label = "score"
    else:
        matrix = projection_array(model, "loadings")
        if matrix is None:
            return empty_figure(title, "no loadings: it projects by similar rows")
        n_features, n_components = matrix.shape
        if not n_components:
            return empty_figure(title, "no component yet")
        if not 0 <= component < n_components:
            raise InvalidParameter(f"component={component}; there are 0 … {n_components - 1}.")

        features = np.arange(n_features)
        values = matrix[:, component]
        label = "loading"
        note, half_widths = _error_bars(model, component)
        title += f" · component {component + 1}{note}"
        if feature_deviations is not None:
            values = values * feature_deviations
            label = "loading × standard deviation"
            if half_widths is not None:
                half_widths = half_widths * feature_deviations

    names = _feature_names(model, feature_names)
    bars = _feature_bars(features, values, names, max_features, half_widths)
    axis = {"automargin": True, "type": "category", "dtick": 1, "tickfont": {"size": 10}}
    return figure_dict([bars], title, xaxis=titled_axis(label), yaxis=axis, showlegend=False)


def _feature_bars(
    features: np.ndarray,
    values: np.ndarray,
    names: Sequence[object],
    max_features: int,
    half_widths: np.ndarray | None,
) -> Trace:
    """Return the largest values as horizontal bars.

    features: index of the feature of each value.
    half_widths: half the width of each value's error bar, or None.
    names: names of all features.
    """
    # `largest` are the indices of the largest values. Plotly draws the first bar at the bottom, so
    # the largest value comes last.
    descending = np.argsort(-np.abs(values), kind="stable")
    largest = descending[:max_features][::-1]
    # Positive and negative values have different colours.
    shown = values[largest]
    colours = np.where(shown >= 0, COLOURS[0], COLOURS[2])
    labels = _distinct_feature_labels(features[largest].tolist(), names)

    bars = {"type": "bar", "orientation": "h", "x": shown, "y": labels, "hoverinfo": "x+y"}
    bars["marker"] = {"color": colours.tolist()}
    if half_widths is not None:
        bars["error_x"] = {"type": "data", "array": half_widths[largest], "thickness": 1.5, "color": COLOURS[9]}
    return bars


def _error_bars(model: Any, component: int) -> tuple[str, np.ndarray | None]:
    """Return a title note and the error bars of loadings.

    The note is text for the title, or "". The error bars are half the widths (features,) of 95 %
    intervals, or None in two cases:

    - The uncertainty is not known.
    - The direction of the component is too uncertain for error bars. The note then has the typical
      angle between the component and the component that infinitely many rows would give.
    """
    spread = component_spread_or_none(model)
    if spread is None:
        return "", None
    angle = spread.angles[component]
    # Error bars of a component that is known less well would be too short.
    if angle > MAX_ERROR_BAR_ANGLE:
        return f" · known to {angle:.0f}° only", None
    return "", _confidence_half_widths(spread.components_std[component], spread.folds)


def _confidence_half_widths(standard_errors: np.ndarray, n_folds: int) -> np.ndarray:
    """Return half the widths of 95 % confidence intervals."""
    # standard_errors: standard error of each value, estimated from `n_folds` folds of the rows.
    # Student's t distribution with folds − 1 degrees of freedom. 2.5 % are above the interval.
    return np.asarray(stdtrit(n_folds - 1, 0.975) * standard_errors)


def _feature_names(model: Any, feature_names: Sequence[object] | None) -> Sequence[object]:
    """Return the names of the features of a model.

    The result is `feature_names` if it is not None, and () if the features have no names.

    model: fitted estimator or projection.
    """
    # A projection with a feature map (Mapped) names the columns of mapped rows.
    if feature_names is not None:
        return feature_names
    projection = model
    if hasattr(model, "projection"):
        projection = model.projection()
    if isinstance(projection, Mapped):
        return projection.feature_names or ()
    return list(getattr(model, "feature_names_in_", ()))


def _distinct_feature_labels(feature_indices: list[int], all_names: Sequence[object]) -> list[str]:
    """Return a distinct text for each feature.

    The text is the feature's name. If several features have one name, the number of the feature is
    added to the name. The text of a feature without a name is "feature" and its number.

    feature_indices: indices of the features to name.
    all_names: names of all features.
    """
    labels = []
    for i in feature_indices:
        label = plotly_escaped_text(all_names[i]) if i < len(all_names) else f"feature {i}"
        labels.append(label)

    distinct = []
    for i, label in zip(feature_indices, labels, strict=True):
        if labels.count(label) > 1:
            label = f"{label} ({i})"
        distinct.append(label)
    return distinct


def spectrum(model: Any, *, title: str | None = None) -> go.Figure:
    """Draw eigenvalues as bars, and cumulative shares as a line.

    The share of a component is its entry of `explained_variance_ratio_` if the estimator has this
    attribute. If not, the share is the component's part of the sum of the drawn eigenvalues, where
    negative eigenvalues count as 0.

    If the estimator divides its rows into folds for cross-validation, marks show the eigenvalues
    without the bias that comes from the finite number of rows. Error bars are 95 % intervals.

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
        capture together. None: the shares are computed from `explained_variance_ratio_` or from
        the eigenvalues.
    """
    values = projection_array(model, "eigenvalues")
    if values is None:
        return empty_figure(title, "no eigenvalues: it has none")
    if not len(values):
        return empty_figure(title, "no eigenvalues: no component yet")

    numbers = np.arange(1, len(values) + 1)
    bars: Trace = {
        "type": "bar",
        "x": numbers,
        "y": values,
        "name": "eigenvalue",
        "marker": {"color": COLOURS[0]},
        # One bar alone would fill the figure.
        "width": min(0.8, 0.2 * len(values)),
    }
    traces = [bars, _share_line(model, values, cumulative_shares)]

    # `spread` has standard errors of the eigenvalues. It is None if the rows are not in folds.
    spread = component_spread_or_none(model)
    if spread is not None:
        # The marks show the eigenvalues minus their estimated bias.
        half_widths = _confidence_half_widths(spread.eigenvalues_std, spread.folds)
        error_bars = {"type": "data", "array": half_widths, "thickness": 1.5}
        marker = {"color": COLOURS[1]}
        traces.append(
            scatter_trace("95 % interval", numbers, spread.eigenvalues, "markers", error_y=error_bars, marker=marker)
        )

    number_axis = whole_number_axis("component", len(values)) | {"range": [0.5, len(values) + 0.5]}
    # The shares have an axis of their own at the right, over the axis of the eigenvalues.
    share_axis: JsonDict = {
        "overlaying": "y",
        "side": "right",
        "automargin": True,
        "showgrid": False,
        "range": [0, 1.05],
        "tickformat": ".0%",
        "dtick": 0.25,
        "tickmode": "linear",
    }
    return figure_dict(
        traces, title, xaxis=number_axis, yaxis=titled_axis("eigenvalue"), yaxis2=share_axis, legend=LEGEND_ABOVE
    )


def _share_line(model: Any, eigenvalues: np.ndarray, cumulative_shares: np.ndarray | None) -> Trace:
    """Return the line of the share of the first k components, for each k.

    cumulative_shares: (components,) shares of all variance. None: compute them from the model's
        `explained_variance_ratio_`, or if it has none, as parts of the sum of the eigenvalues.
    """
    # Negative eigenvalues count as 0. `whole` says in the legend of what the shares are parts. The
    # axis y2 is that of the shares.
    shares = cumulative_shares
    whole = "all variance"
    if shares is None:
        ratio = getattr(model, "explained_variance_ratio_", None)
        if ratio is None:
            whole = "these components"
            ratio = np.maximum(eigenvalues, 0.0)
            total = ratio.sum()
            if total:
                ratio = ratio / total
        shares = np.cumsum(ratio)

    numbers = np.arange(1, len(shares) + 1)
    line = {"color": COLOURS[2]}
    return scatter_trace(f"captured share of {whole}", numbers, shares, line=line, yaxis="y2")


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
    # `choice` has the compared values of a parameter, the mean error and standard error of each
    # value, and the index of the chosen value.
    projection = unmapped_projection(model)
    choice = None
    if isinstance(projection, Linear):
        choice = projection.choice
    if choice is None:
        return empty_figure(title, "no parameter was chosen by cross-validation")
    if choice.parameter == "gamma":
        x, axis = _ridge_positions(choice.values)
    else:
        x = choice.values
        axis = whole_number_axis("number of components", len(x))

    texts = [f"{choice.parameter} = {number_text(value)}" for value in choice.values]
    error_bars = {"type": "data", "array": choice.std_error, "thickness": 1}
    style = {"color": COLOURS[0]}
    line = scatter_trace("error, with its standard error", x, choice.mean, line=style, error_y=error_bars)
    line |= {"text": texts, "hoverinfo": "text+y"}

    # A trace needs arrays, so the index of the chosen value is put in a list.
    chosen = [choice.chosen]
    name = f"chosen: {texts[choice.chosen]}"
    mark = scatter_trace(name, x[chosen], choice.mean[chosen], "markers", hoverinfo="name+y")
    mark["marker"] = {"color": COLOURS[2], "size": 12, "symbol": "diamond"}
    return figure_dict([line, mark], title, xaxis=axis, yaxis=titled_axis("error"), legend=LEGEND_ABOVE)


def _ridge_positions(ridges_from_zero: np.ndarray) -> tuple[np.ndarray, JsonDict]:
    """Return the x positions and the axis options of ridges, the values of `gamma`.

    The axis is logarithmic. The first ridge is 0, which has no logarithm. It is drawn at the left
    end of the axis, where the tick has the text 0.

    ridges_from_zero: the ridges, ascending from 0.
    """
    # The ridge 0 is drawn at a tenth of the next ridge.
    smallest = ridges_from_zero[1]
    # All ridges are 0 if no column of the rows varies. Any scale will do then.
    if smallest == 0.0:
        smallest = 1.0
    x = np.maximum(ridges_from_zero, smallest / 10)

    # The ticks are at the ridge 0, and at the powers of ten from the next ridge to the largest one.
    first = np.ceil(np.log10(smallest))
    # The last power of ten may be the largest ridge, in spite of rounding.
    last = np.log10(x[-1]) + 1e-9
    powers = np.arange(first, last)
    ticks = [x[0], *10.0**powers]
    names = ["0", *(f"10<sup>{power:.0f}</sup>" for power in powers)]
    return x, titled_axis("gamma", type="log", tickvals=ticks, ticktext=names)


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
    # A projection has the method `apply`, and an estimator has `transform`. KINDS are all kinds of
    # targets.
    z = model.apply(X) if hasattr(model, "apply") else model.transform(X)
    z = np.asarray(z, dtype=np.float64)
    targets = parse_targets(y, len(z), KINDS) if y is not None else None
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
    if not len(projected_rows):
        return empty_figure(title, "no rows yet")
    rows, components = projected_rows.shape
    if not components:
        return empty_figure(title, "no component yet")

    # `means` has the mean of each class, by the code of its label.
    # Compute the class means before sampling, so that they include the rows that are not drawn.
    means = _class_means(projected_rows, targets)
    if rows > max_rows:
        title += f" · {max_rows:,} of {rows:,} rows, drawn at random"
        drawn = np.random.default_rng(seed).choice(rows, max_rows, replace=False)
        drawn.sort()
        projected_rows = projected_rows[drawn]
        if targets is not None:
            targets = targets.take(drawn)
    else:
        title += f" · {rows:,} rows"

    if components == 1:
        return _histogram(projected_rows[:, 0], targets, title)
    axes = "xyz"[: min(dimensions, components)]
    if targets is not None and targets.kind == "continuous":
        traces = [_continuous_trace(projected_rows, targets, axes)]
    else:
        traces = _class_traces(projected_rows, targets, axes, means)
    titles = {f"{axis}axis": titled_axis(f"component {i + 1}") for i, axis in enumerate(axes)}
    # plotly has the axes of a figure in 3-D in its option `scene`.
    if len(axes) == 3:
        return figure_dict(traces, title, scene=titles)
    return figure_dict(traces, title, **titles)


ClassMeans = dict[int, np.ndarray]
"""Mean of the projected rows of each class, by the code of its label."""


def _class_means(projected_rows: np.ndarray, targets: Targets | None) -> ClassMeans:
    """Return the mean (components,) of each class, by label code.

    A row with several labels counts only for its first label.
    """
    means: ClassMeans = {}
    if targets is None or targets.kind == "continuous":
        return means
    codes = _first_label_codes(targets)
    for code in np.unique(codes[codes >= 0]).tolist():
        rows = projected_rows[codes == code]
        means[code] = rows.mean(axis=0)
    return means


def _histogram(values: np.ndarray, targets: Targets | None, title: str) -> FigureDict:
    """Return a histogram of a component's values, as a figure dict.

    values: (rows,), value of each row in the component.
    targets: targets that colour the rows, or None.
    """
    # A histogram shows no class means.
    traces = []
    for group in _group_rows_by_colour(targets, len(values), class_means={}):
        bars = {"type": "histogram", "opacity": 0.6, "x": values[group.rows], "name": group.name}
        bars["marker"] = {"color": group.colour}
        traces.append(bars)
    value_axis = titled_axis("component 1")
    return figure_dict(traces, title, barmode="overlay", xaxis=value_axis, yaxis=titled_axis("rows"))


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
    # Without `indptr`, each row has one label or none (the code −1).
    if targets.indptr is None:
        return targets.codes

    # The codes of row i are codes[indptr[i] : indptr[i + 1]], so the first is codes[indptr[i]].
    starts = targets.indptr[:-1]
    labelled = np.diff(targets.indptr) > 0
    codes = np.full(len(starts), -1)
    codes[labelled] = targets.codes[starts[labelled]]
    return codes


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

    # One group for each of the largest classes. `codes` (rows,) are indices into the labels, and
    # `sizes` (labels,) are numbers of rows.
    codes = _first_label_codes(targets)
    sizes = np.bincount(codes[codes >= 0], minlength=len(targets.labels))
    descending = np.argsort(-sizes, kind="stable")
    largest = [code for code in descending[:MAX_CLASSES].tolist() if sizes[code]]
    coloured = sorted(largest, key=lambda code: targets.labels[code])
    groups = []
    for i, code in enumerate(coloured):
        name = plotly_escaped_text(targets.labels[code])
        rows = np.flatnonzero(codes == code)
        # After the last colour, the next symbol is taken with the same colours.
        colour = COLOURS[i % len(COLOURS)]
        symbol = SYMBOLS[i // len(COLOURS) % len(SYMBOLS)]
        groups.append(_ColourGroup(name, rows, colour, symbol, class_means.get(code)))

    # One group for the other classes, and one for rows without a label.
    is_other = (codes >= 0) & ~np.isin(codes, coloured)
    others = np.flatnonzero(is_other)
    if len(others):
        n_labels = len(np.unique(codes[others]))
        groups.append(_ColourGroup(f"{n_labels} other labels", others, _OTHERS))
    unlabelled = np.flatnonzero(codes < 0)
    if len(unlabelled):
        groups.append(_ColourGroup("no label", unlabelled, _OTHERS, "circle-open"))
    return groups


def _class_traces(
    projected_rows: np.ndarray, targets: Targets | None, axes: str, class_means: ClassMeans
) -> list[Trace]:
    """Return the plotly traces of rows that have labels.

    Each group of rows with one colour has a trace. The class means have one more trace.

    projected_rows: projected rows (rows, components).
    axes: axes to draw: "xy" or "xyz".
    class_means: mean of each class, by the label's code.
    """
    n_rows = len(projected_rows)
    groups = _group_rows_by_colour(targets, n_rows, class_means)
    size = _marker_size(axes, n_rows)
    traces = []
    for group in groups:
        symbol = group.symbol
        # plotly has no triangle in 3-D plots.
        if symbol == "triangle-up" and len(axes) == 3:
            symbol = "circle"
        marker: JsonDict = {"color": group.colour, "size": size, "opacity": 0.7, "symbol": symbol}
        points = projected_rows[group.rows]
        traces.append(_points_trace(group.name, points, axes, n_rows, marker))

    # Add the trace of the class means.
    with_mean = [group for group in groups if group.mean is not None]
    if with_mean:
        means = np.array([group.mean for group in with_mean])
        colours = [group.colour for group in with_mean]
        # No colour is set for the outline, so the page can set it to the colour of its text.
        # The marks are 6 pixels larger than the points of a figure with few points.
        marker = {"color": colours, "size": _marker_size(axes, 0) + 6, "symbol": "x", "line": {"width": 1.5}}
        # Draw the means like the rows: plotly puts WebGL above SVG, which would hide SVG means.
        trace = _points_trace("class means", means, axes, n_rows, marker)
        trace["text"] = [group.name for group in with_mean]
        trace["hoverinfo"] = "text"
        traces.append(trace)
    return traces


def _continuous_trace(projected_rows: np.ndarray, targets: Targets, axes: str) -> Trace:
    """Return the plotly trace of rows that have continuous targets.

    The first column of the targets gives the colours.

    projected_rows: projected rows (rows, components).
    axes: axes to draw: "xy" or "xyz".
    """
    assert targets.values is not None
    values = targets.values[:, 0]
    # `present` is True for rows that have a target. Rows without a target get no colour.
    if targets.present is not None:
        values = np.where(targets.present, values, np.nan)

    n_rows = len(projected_rows)
    marker = {"color": values, "size": _marker_size(axes, n_rows), "opacity": 0.8}
    marker |= {"colorscale": "Viridis", "showscale": True, "colorbar": {"title": {"text": "target"}}}
    return _points_trace("rows", projected_rows, axes, n_rows, marker)


def _points_trace(name: str, points: np.ndarray, axes: str, n_rows: int, marker: JsonDict) -> Trace:
    """Return a plotly trace of points.

    If the figure has many points, they are drawn by WebGL, and few points in SVG.

    points: points (points, components). They are drawn as float32.
    axes: axes to draw: "xy" or "xyz".
    n_rows: number of points in the figure.
    """
    kind = "scatter"
    if len(axes) == 3:
        kind = "scatter3d"
    elif n_rows > MAX_SVG_POINTS:
        kind = "scattergl"
    trace = {"type": kind, "mode": "markers", "name": name, "marker": marker}
    for i, axis in enumerate(axes):
        trace[axis] = np.ascontiguousarray(points[:, i], dtype=np.float32)
    return trace


def _marker_size(axes: str, n_rows: int) -> int:
    """Return the size of a point in pixels.

    axes: axes to draw: "xy" or "xyz".
    n_rows: number of points in the figure. Many points are drawn smaller.
    """
    if len(axes) == 3:
        return 3
    if n_rows > CROWDED:
        return 2
    if n_rows > MANY:
        return 3
    return 5
