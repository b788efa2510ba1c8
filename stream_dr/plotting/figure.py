"""Figure: what all figures share: colours, margins, and text that is no markup."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

COLOURS = (
    *("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951"),
    *("#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0"),
)
"""Of classes and models, in order; told apart on white and on black, also by most who are colour-blind."""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")
"""The next of them where the colours begin anew."""

LONGEST = 60
"""Characters of a name that are shown."""

Trace = dict[str, Any]

Plain = dict[str, Any]
"""A figure before it is one: {"data": traces, "layout"}, as plotly's Figure takes it. Making a Figure costs ten times
what describing it does, and the dashboard, which draws all the time, needs none."""


def text(value: object) -> str:
    """A name, a label or an error as plotly shows it: as it is, where plotly would read <b>, <a href=…> or &amp; as markup;
    shortened where it is long."""
    told = " ".join(str(value).split()) or "(empty)"
    return html.escape(told if len(told) <= LONGEST else told[: LONGEST - 1] + "…", quote=False)


def plain(traces: Sequence[Trace], title: str, **layout: Any) -> Plain:
    """The figure of these traces under a title, which is markup already."""
    chosen = {
        "title": {"text": title, "x": 0, "xref": "paper", "font": {"size": 15}},
        "template": "plotly_white",
        "colorway": COLOURS,
        "margin": {"l": 60, "r": 20, "t": 60, "b": 50},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hoverlabel": {"namelength": -1},
        "legend": {"itemsizing": "constant"},
        "uirevision": "kept",  # where a reader has moved to stays when the figure is drawn again
    }
    return {"data": list(traces), "layout": chosen | layout}


def nothing(title: str, why: str) -> Plain:
    """A figure that says why there is nothing in it."""
    said = {"text": text(why), "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    hidden = {"visible": False}
    return plain([], title, annotations=[said], xaxis=hidden, yaxis=hidden)


def whole_numbers(name: str, count: int) -> dict[str, Any]:
    """Describe an axis of `count` whole numbers, without ticks between them."""
    return {"title": {"text": name}, "tickformat": "d", **({"dtick": 1} if count <= 20 else {})}


def inner(model: Any) -> Any:
    """The projection of a fitted estimator, or what a projection that maps rows first holds, or the model itself."""
    projection = model.projection() if hasattr(model, "projection") else model
    return getattr(projection, "inner", projection)


def array(model: Any, name: str) -> np.ndarray | None:
    """An array of a model's projection by its name, "loadings" or "eigenvalues"; of an estimator that is not ours, what
    it has under scikit-learn's names. None where there is none."""
    found = getattr(inner(model), name, None)
    if found is None and name == "loadings" and hasattr(model, "components_"):
        found = np.asarray(model.components_).T
    if found is None and name == "eigenvalues":
        found = getattr(model, "explained_variance_", None)
    return None if found is None else np.asarray(found, dtype=np.float64)
