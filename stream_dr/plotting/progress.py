"""Progress: accuracy, rows a second and lag of all models over time, with new versions, refines and failures as marks."""

import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import plotly.graph_objects as go

from stream_dr.models.schema import Facts
from stream_dr.plotting.figure import COLOURS, Plain, Trace, nothing, plain, text
from stream_dr.plotting.recorded import recorded, records_of, when

PANELS = (("score", "accuracy or R²", "y3"), ("rate", "rows/s", "y2"), ("lag", "lag (events)", "y"))
"""What a model's record holds, its name, and its axis, from above."""

FEW = 20
"""Number of records up to which each is marked, because a line through one point shows nothing."""

MARKS = {"version": ("triangle-up", 6), "refined": ("diamond", 10), "failed": ("x", 11)}
"""Symbol and size of what happens to a model."""


def progress(source: Any, *, most: int = 600, title: str = "Progress") -> go.Figure:
    """Test-then-train accuracy, rows/s and lag of all models.

    source: a directory, or its path, or its records. most: records that are drawn; of more every so manyth. Accuracy is
    of the nearest class mean, over the rows tested last; the dotted line is that of always answering the last label.
    """
    return go.Figure(progress_of(records_of(source), most, title))


def progress_of(facts: list[Facts], most: int, title: str) -> Plain:
    """What `progress` draws of records."""
    ticks = recorded(facts, "progress")
    if not ticks:
        return nothing(title, "no records yet: they are written while models learn")
    ticks = _thinned(ticks, most)
    names = list(dict.fromkeys(name for tick in ticks for name in tick["models"]))
    traces = [] if not (base := _baseline(ticks)) else [base]
    for i, name in enumerate(names):
        traces += _lines(ticks, name, COLOURS[i % len(COLOURS)])
        traces += _marks(facts, ticks, name, COLOURS[i % len(COLOURS)], most)
    height = 1 / len(PANELS)
    axes: dict[str, Any] = {
        "yaxis" + axis[1:]: {
            "title": {"text": told},
            "domain": [i * height + 0.03, (i + 1) * height - 0.03],
            "anchor": "x",
        }
        for i, (_, told, axis) in enumerate(reversed(PANELS))
    }
    axes["yaxis3"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    axes["yaxis2"] |= {"rangemode": "tozero", "tickformat": "~s"}
    furthest = max((m["lag"] for tick in ticks for m in tick["models"].values()), default=0)
    axes["yaxis"] |= {"rangemode": "tozero", "tickformat": ",d", "dtick": 1 if furthest <= 5 else None}
    time = {"type": "date", "anchor": "y", "title": {"text": "time (UTC)"}, "rangeslider": {"thickness": 0.06}}
    return plain(traces, title, xaxis=time, hovermode="x", dragmode="pan", **axes)


class Leader(NamedTuple):
    """The best models.

    models: the model with the highest score, then those within two standard errors of it.
    score: score of the first.
    since: time from which on the first has been the best, in seconds since 1970.
    """

    models: tuple[str, ...]
    score: float
    since: float


def leader(facts: list[Facts], models: Collection[str]) -> Leader | None:
    """Return which of these models are best by records, oldest first. None if none was tested."""
    best = None
    for tick in recorded(facts, "progress"):
        tested = {m: scores for m, scores in tick["models"].items() if m in models and scores.get("tested")}
        ranked = sorted(tested, key=lambda m: -score_of(tested[m]))
        if ranked:
            top = score_of(tested[ranked[0]])
            error = tested[ranked[0]].get("error") or 0.0
            close = tuple(m for m in ranked if score_of(tested[m]) >= top - 2 * error)
            since = best.since if best is not None and best.models[0] == ranked[0] else tick["time"]
            best = Leader(close, top, since)
    return best


def score_of(scores: Facts) -> float:
    """Return the accuracy in a model's scores, or R² where targets are numbers. -inf if it was not tested."""
    score = scores.get("accuracy", scores.get("r2"))
    return -math.inf if score is None else score


def _thinned(facts: list[Facts], most: int) -> list[Facts]:
    """Every so manyth, counted from the last."""
    return facts[:: -1 if len(facts) <= most else -(len(facts) // most + 1)][::-1]


def _lines(ticks: list[Facts], name: str, colour: str) -> Iterator[Trace]:
    there = [tick for tick in ticks if name in tick["models"]]
    for fact, _, axis in PANELS:
        values = [_value(tick["models"][name], fact) for tick in there]
        if all(value is None for value in values):
            continue
        told = {"name": text(name), "legendgroup": text(name), "showlegend": fact == "rate", "yaxis": axis}
        yield told | {
            "type": "scatter",
            "mode": "lines+markers" if len(there) <= FEW else "lines",
            "x": [when(t) for t in there],
            "y": values,
            "line": {"color": colour},
        }


def _value(model: Facts, name: str) -> float | None:
    if name != "score":
        return model.get(name)
    return score_of(model) if model.get("tested") else None


def _baseline(ticks: list[Facts]) -> Trace | None:
    """That of the model tested most lately, at each time: it is of the stream, not of a model."""
    found = [next((m["baseline"] for m in t["models"].values() if m.get("baseline") is not None), None) for t in ticks]
    if all(value is None for value in found):
        return None
    line = {"dash": "dot", "color": "#888"}
    named = {"name": "always the last label", "yaxis": "y3", "line": line}
    return {"type": "scatter", "mode": "lines", "x": [when(t) for t in ticks], "y": found} | named


def _marks(facts: list[Facts], ticks: list[Facts], name: str, colour: str, most: int) -> Iterator[Trace]:
    """New versions, refines and failures of a model, on the lowest axis."""
    begun = ticks[0]["time"]
    published = [f for f in recorded(facts, "published", name) if f["time"] >= begun]
    of = {
        "version": _thinned([f for f in published if f["solution"] != "refined"], most),
        "refined": [f for f in published if f["solution"] == "refined"],
        "failed": [f for f in recorded(facts, "failed", name) if f["time"] >= begun],
    }
    for what, found in of.items():
        if not found:
            continue
        symbol, size = MARKS[what]
        told = {
            "name": f"{text(name)}: {what}",
            "legendgroup": text(name),
            "showlegend": what != "version",
            "yaxis": "y",
        }
        said = [f"version {f['version']}" if "version" in f else f"failed: {text(f['code'])}" for f in found]
        marker = {"symbol": symbol, "size": size, "color": "#c00" if what == "failed" else colour}
        at = {"x": [when(f) for f in found], "y": [0] * len(found), "text": said, "hoverinfo": "x+text+name"}
        yield told | at | {"type": "scatter", "mode": "markers", "marker": marker, "cliponaxis": False}
