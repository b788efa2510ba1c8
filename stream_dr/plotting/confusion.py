"""Confusion: which labels the rows of each were given, in the tests of a model on rows that it had not learned."""

import numpy as np

from stream_dr.models.schema import Facts
from stream_dr.plotting.figure import Plain, nothing, plain, text

_SHADES = [[0.0, "rgba(66, 105, 208, 0.04)"], [1.0, "rgba(66, 105, 208, 0.75)"]]
"""Of a share from 0 to 1, on white and on black."""


def confusion_of(facts: list[Facts], id: int, title: str) -> Plain:
    """Shares of each label's rows that were given each label, as its records told last of the model with this id: the row of
    a label adds up to 1, but for those given a label that is rarer than those shown."""
    tested = [f["confusion"] for f in facts if f["kind"] == "tested" and f["id"] == id and f["confusion"] is not None]
    if not tested:
        return nothing(title, "not tested yet: rows with one label each are, before they are learned")
    labels = [text(label) for label in tested[-1]["labels"]]
    counts, rows = np.array(tested[-1]["counts"], dtype=np.float64), np.array(tested[-1]["rows"], dtype=np.float64)
    shares = counts / np.maximum(rows, 1.0)[:, None]
    cells = {
        "type": "heatmap", "x": labels, "y": labels, "z": shares.tolist(), "zmin": 0, "zmax": 1, "colorscale": _SHADES,
        "text": [[f"{share:.0%}" if share else "" for share in row] for row in shares.tolist()], "texttemplate": "%{text}",
        "customdata": counts.astype(int).tolist(), "showscale": False, "xgap": 1, "ygap": 1,
        "hovertemplate": "%{y} given %{x}: %{customdata} rows, %{z:.1%}<extra></extra>",
    }  # fmt: skip
    axis = {"type": "category", "automargin": True, "dtick": 1, "tickfont": {"size": 10}}
    given, true = axis | {"title": {"text": "given"}}, axis | {"title": {"text": "true"}, "autorange": "reversed"}
    return plain([cells], title, xaxis=given, yaxis=true)
