"""Accuracy: of models on rows that they had not learned yet, by rows learned."""

from collections.abc import Collection

from stream_dr.aliases import JsonDict
from stream_dr.plotting.figure import COLOURS, FigureDict, Trace, empty_figure, figure_dict, plain_text


def accuracy_of(records: list[JsonDict], models: Collection[str], title: str) -> FigureDict:
    """Describe the figure of the last recorded curve of each of these models."""
    last = {f["model"]: f for f in records if f["kind"] == "tested" and f["model"] in models and f["curve"]}
    if not last:
        return empty_figure(title, "not tested yet: rows with a target are, before they are learned")

    traces = [
        _curve_trace(name, last[name]["curve"], COLOURS[i % len(COLOURS)])
        for i, name in enumerate(models)
        if name in last
    ]
    newest = max(last.values(), key=lambda f: f["time"])
    if newest["most_frequent"] is not None:
        rows = [rows for f in last.values() for rows, _ in f["curve"]]
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": "always the most frequent label",
                "x": [min(rows), max(rows)], "y": [newest["most_frequent"]] * 2, "line": {"dash": "dot", "color": "#888"},
            }
        )  # fmt: skip

    percent = {"tickformat": ".0%", "range": [0, 1.02]} if newest["most_frequent"] is not None else {}
    return figure_dict(
        traces,
        title,
        xaxis={"title": {"text": "rows learned"}, "type": "log", "dtick": "D2", "tickformat": "~s"},
        yaxis={"title": {"text": "accuracy" if percent else "R²"}, **percent},
    )


def _curve_trace(name: str, curve: list[tuple[int, float]], colour: str) -> Trace:
    rows, scores = zip(*curve, strict=True)
    return {
        "type": "scatter", "mode": "lines+markers", "name": plain_text(name),
        "x": rows, "y": scores, "line": {"color": colour},
    }  # fmt: skip
