"""Progress: accuracy, rows a second and lag of all models over time.

New versions, refines and failures are marks.
"""

import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.plotting.figure import COLOURS, FigureDict, Trace, empty_figure, figure_dict, plain_text
from stream_dr.plotting.recorded import plotly_time, recorded, records_of

PANELS = (("score", "accuracy or R²", "y3"), ("rate", "rows/s", "y2"), ("lag", "lag (events)", "y"))
"""Panels from above: field of a model's record, title, and axis."""

FEW = 20
"""Number of records up to which each is marked, because a line through one point shows nothing."""

MARKS = {"version": ("triangle-up", 6), "refined": ("diamond", 10), "failed": ("x", 11)}
"""Symbol and size of the marks."""


def progress(source: Any, *, most: int = 600, title: str = "Progress") -> go.Figure:
    """Draw test-then-train accuracy, rows/s and lag of all models.

    Accuracy is that of the nearest class mean over the rows tested last. The dotted line is the
    accuracy of always answering the last label.

    source: a directory, its path, or its records.
    most: maximum number of records to draw. More are thinned out.

    >>> import stream_dr
    >>> stream_dr.plotting.progress([]).layout.annotations[0].text
    'no records yet: they are written while models learn'
    """
    return go.Figure(progress_of(records_of(source), most, title))


def progress_of(records: list[JsonDict], most: int, title: str) -> FigureDict:
    """Return what `progress` draws from records."""
    ticks = recorded(records, "progress")
    if not ticks:
        return empty_figure(title, "no records yet: they are written while models learn")
    ticks = _thin_records(ticks, most)

    names = list(dict.fromkeys(name for tick in ticks for name in tick["models"]))
    traces = [] if not (base := _baseline_line(ticks)) else [base]
    for i, name in enumerate(names):
        traces += _model_lines(ticks, name, COLOURS[i % len(COLOURS)])
        traces += _model_marks(records, ticks, name, COLOURS[i % len(COLOURS)], most)

    height = 1 / len(PANELS)
    axes: JsonDict = {
        "yaxis" + axis[1:]: {
            "title": {"text": label},
            "domain": [i * height + 0.03, (i + 1) * height - 0.03],
            "anchor": "x",
        }
        for i, (_, label, axis) in enumerate(reversed(PANELS))
    }
    axes["yaxis3"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    axes["yaxis2"] |= {"rangemode": "tozero", "tickformat": "~s"}
    largest_lag = max((m["lag"] for tick in ticks for m in tick["models"].values()), default=0)
    axes["yaxis"] |= {"rangemode": "tozero", "tickformat": ",d", "dtick": 1 if largest_lag <= 5 else None}
    time = {"type": "date", "anchor": "y", "title": {"text": "time (UTC)"}, "rangeslider": {"thickness": 0.06}}
    return figure_dict(traces, title, xaxis=time, hovermode="x", dragmode="pan", **axes)


class Leader(NamedTuple):
    """The best models.

    models: the model with the highest score, then those within two standard errors of it.
    score: score of the first.
    since: time from which on the first has been the best, in seconds since 1970.
    """

    models: tuple[str, ...]
    score: float
    since: float


def best_models(records: list[JsonDict], models: Collection[str]) -> Leader | None:
    """Return which of these models are best, or None if none was tested.

    records: oldest first.
    """
    best = None
    for tick in recorded(records, "progress"):
        tested = {m: scores for m, scores in tick["models"].items() if m in models and scores.get("tested")}
        ranked = sorted(tested, key=lambda m: -score_of(tested[m]))
        if ranked:
            top = score_of(tested[ranked[0]])
            error = tested[ranked[0]].get("error") or 0.0
            close = tuple(m for m in ranked if score_of(tested[m]) >= top - 2 * error)
            since = best.since if best is not None and best.models[0] == ranked[0] else tick["time"]
            best = Leader(close, top, since)
    return best


def score_of(scores: JsonDict) -> float:
    """Return the accuracy in a model's scores, or R² for continuous targets.

    -inf if the model was not tested.
    """
    score = scores.get("accuracy", scores.get("r2"))
    return -math.inf if score is None else score


def _thin_records(records: list[JsonDict], most: int) -> list[JsonDict]:
    """Return every n-th record, counted from the last, so that at most `most` are left."""
    return records[:: -1 if len(records) <= most else -(len(records) // most + 1)][::-1]


def _model_lines(ticks: list[JsonDict], name: str, colour: str) -> Iterator[Trace]:
    """Yield the lines of a model, one for each panel that it has values for."""
    own_ticks = [tick for tick in ticks if name in tick["models"]]
    for field, _, axis in PANELS:
        values = [_recorded_value(tick["models"][name], field) for tick in own_ticks]
        if all(value is None for value in values):
            continue

        legend = {
            "name": plain_text(name),
            "legendgroup": plain_text(name),
            "showlegend": field == "rate",
            "yaxis": axis,
        }
        yield legend | {
            "type": "scatter",
            "mode": "lines+markers" if len(own_ticks) <= FEW else "lines",
            "x": [plotly_time(t) for t in own_ticks],
            "y": values,
            "line": {"color": colour},
        }


def _recorded_value(model: JsonDict, name: str) -> float | None:
    if name != "score":
        return model.get(name)
    return score_of(model) if model.get("tested") else None


def _baseline_line(ticks: list[JsonDict]) -> Trace | None:
    """Return the line of the baseline, or None if there is none.

    The baseline belongs to the stream, so that of any model will do.
    """
    values = [next((m["baseline"] for m in t["models"].values() if m.get("baseline") is not None), None) for t in ticks]
    if all(value is None for value in values):
        return None

    line = {"dash": "dot", "color": "#888"}
    named = {"name": "always the last label", "yaxis": "y3", "line": line}
    return {"type": "scatter", "mode": "lines", "x": [plotly_time(t) for t in ticks], "y": values} | named


def _model_marks(records: list[JsonDict], ticks: list[JsonDict], name: str, colour: str, most: int) -> Iterator[Trace]:
    """Yield the marks of new versions, refines and failures of a model, on the lowest axis."""
    start = ticks[0]["time"]
    published = [r for r in recorded(records, "published", name) if r["time"] >= start]
    records_of_mark = {
        "version": _thin_records([r for r in published if r["solution"] != "refined"], most),
        "refined": [r for r in published if r["solution"] == "refined"],
        "failed": [r for r in recorded(records, "failed", name) if r["time"] >= start],
    }

    for mark, marked in records_of_mark.items():
        if not marked:
            continue
        symbol, size = MARKS[mark]
        legend = {
            "name": f"{plain_text(name)}: {mark}",
            "legendgroup": plain_text(name),
            "showlegend": mark != "version",
            "yaxis": "y",
        }
        texts = [f"version {r['version']}" if "version" in r else f"failed: {plain_text(r['code'])}" for r in marked]
        marker = {"symbol": symbol, "size": size, "color": "#c00" if mark == "failed" else colour}
        points = {
            "x": [plotly_time(r) for r in marked],
            "y": [0] * len(marked),
            "text": texts,
            "hoverinfo": "x+text+name",
        }
        yield legend | points | {"type": "scatter", "mode": "markers", "marker": marker, "cliponaxis": False}
