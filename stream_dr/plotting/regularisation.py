"""Figure of the cross-validated error for each value of a parameter."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.plotting.figure import (
    COLOURS,
    LEGEND_ABOVE,
    FigureDict,
    empty_figure,
    figure_dict,
    line_trace,
    strip_feature_map_if_any,
    title_of_model,
    whole_number_axis,
)
from stream_dr.projection import Linear
from stream_dr.uncertainty import number_text


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
