"""Confusion: true and predicted labels of rows that a model had not learned yet."""

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.plotting.figure import FigureDict, empty_figure, figure_dict, plain_text

_SHADES = [[0.0, "rgba(66, 105, 208, 0.04)"], [1.0, "rgba(66, 105, 208, 0.75)"]]
"""Colours of a share from 0 to 1, readable on white and on black."""


def confusion_of(records: list[JsonDict], id: int, title: str) -> FigureDict:
    """Return the confusion matrix of the last record of the model with this id.

    Each row of the matrix has the shares of a true label's rows by predicted label. It adds up to
    1 unless some rows were given a label that is too rare to be shown.
    """
    tested = [f["confusion"] for f in records if f["kind"] == "tested" and f["id"] == id and f["confusion"] is not None]
    if not tested:
        return empty_figure(title, "not tested yet: rows with one label each are, before they are learned")

    labels = [plain_text(label) for label in tested[-1]["labels"]]
    counts = np.array(tested[-1]["counts"], dtype=np.float64)
    rows = np.array(tested[-1]["rows"], dtype=np.float64)
    shares = counts / np.maximum(rows, 1.0)[:, None]

    cells = {
        "type": "heatmap", "x": labels, "y": labels, "z": shares.tolist(), "zmin": 0, "zmax": 1, "colorscale": _SHADES,
        "text": [[f"{share:.0%}" if share else "" for share in row] for row in shares.tolist()], "texttemplate": "%{text}",
        "customdata": counts.astype(int).tolist(), "showscale": False, "xgap": 1, "ygap": 1,
        "hovertemplate": "%{y} given %{x}: %{customdata} rows, %{z:.1%}<extra></extra>",
    }  # fmt: skip
    axis = {"type": "category", "automargin": True, "dtick": 1, "tickfont": {"size": 10}}
    predicted_axis = axis | {"title": {"text": "given"}}
    true_axis = axis | {"title": {"text": "true"}, "autorange": "reversed"}
    return figure_dict([cells], title, xaxis=predicted_axis, yaxis=true_axis)
