"""Loadings: which features a component is made of, the largest by name, with their signs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stream_dr.errors import InvalidParameter
from stream_dr.plotting.figure import COLOURS, Plain, array, inner, nothing, plain, text


def loadings(
    model: Any, component: int = 0, *, most: int = 20, names: Sequence[object] | None = None, title: str | None = None
) -> go.Figure:
    """The largest loadings of a component, from 0, as bars to either side.

    model: a fitted estimator, or a projection. names: of the features, where the estimator does not know them. Chosen
    features are shown with their scores. Raises InvalidParameter for a component that is not there.
    """
    return go.Figure(loadings_of(model, component, most, names, title or f"Loadings of {text(type(model).__name__)}"))


def loadings_of(
    model: Any,
    component: int,
    most: int,
    names: Sequence[object] | None,
    title: str,
    deviations: np.ndarray | None = None,
) -> Plain:
    """What `loadings` draws. deviations: of the features (features,), which loadings are multiplied by: of one that hardly
    varies a large loading says little."""
    chosen = inner(model)
    if hasattr(chosen, "columns"):
        at, values, what = chosen.columns, chosen.scores, "score"
    else:
        found = array(model, "loadings")
        if found is None or not found.shape[1]:
            return nothing(
                title, "no component yet" if found is not None else "no loadings: it projects by similar rows"
            )
        if not 0 <= component < found.shape[1]:
            raise InvalidParameter(f"component={component}; there are 0 … {found.shape[1] - 1}.")
        at, values, what = np.arange(len(found)), found[:, component], "loading"
        title += f" · component {component + 1}"
        if deviations is not None:
            values, what = values * deviations, "loading × standard deviation"
    largest = np.argsort(-np.abs(values), kind="stable")[:most][::-1]
    colours = [COLOURS[0] if value >= 0 else COLOURS[2] for value in values[largest]]
    bars = {"type": "bar", "orientation": "h", "x": values[largest], "marker": {"color": colours}, "hoverinfo": "x+y"}
    bars |= {"y": _distinct([int(i) for i in at[largest]], _names(model, names))}
    axis = {"automargin": True, "type": "category", "dtick": 1, "tickfont": {"size": 10}}
    return plain([bars], title, xaxis={"title": {"text": what}}, yaxis=axis, showlegend=False)


def _names(model: Any, names: Sequence[object] | None) -> Sequence[object]:
    if names is not None:
        return names
    projection = model.projection() if hasattr(model, "projection") else model
    if getattr(projection, "kind", "") == "mapped":
        return getattr(projection, "feature_names", None) or ()
    return list(getattr(model, "feature_names_in_", ()))


def _distinct(at: list[int], names: Sequence[object]) -> list[str]:
    """Each feature's name as plotly shows it, or its number; two that would look alike are told apart by it."""
    told = [text(names[i]) if i < len(names) else f"feature {i}" for i in at]
    return [f"{name} ({i})" if told.count(name) > 1 else name for i, name in zip(at, told, strict=True)]
