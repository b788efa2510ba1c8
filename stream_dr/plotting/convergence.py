"""Convergence: residual and angle by pass of a refine."""

from typing import Any

import plotly.graph_objects as go

from stream_dr.models.schema import Facts
from stream_dr.plotting.figure import COLOURS, Plain, Trace, nothing, plain, text, whole_numbers
from stream_dr.plotting.recorded import recorded, records_of

_DASHES = ("solid", "dash", "dot", "dashdot")


def convergence(source: Any, model: str | None = None, *, title: str = "Convergence of refine") -> go.Figure:
    """Relative residual, and largest principal angle (radians) to the pass before, by pass; on a logarithmic axis.

    source: what `refine` reported (`estimator.refine_report_`), or a directory, or its path, or its records, of which
    the last refine of each model is shown. model: of that one alone.
    """
    runs = {"": [p._asdict() for p in source.passes]} if hasattr(source, "passes") else _last(records_of(source), model)
    return go.Figure(_passes(runs, title))


def convergence_of(facts: list[Facts], model: str, title: str) -> Plain:
    """What `convergence` draws of a model's records."""
    return _passes(_last(facts, model), title)


def _passes(runs: dict[str, list[Facts]], title: str) -> Plain:
    if not runs:
        return nothing(title, "no refine has been recorded")
    traces = [
        t for i, (name, passes) in enumerate(runs.items()) for t in _lines(name, passes, _DASHES[i % len(_DASHES)])
    ]
    axis = {"type": "log", "exponentformat": "power"}
    return plain(traces, title, xaxis=whole_numbers("pass", max(map(len, runs.values()))), yaxis=axis)


def _last(facts: list[Facts], model: str | None) -> dict[str, list[Facts]]:
    """Each model's passes from the last first one on."""
    runs: dict[str, list[Facts]] = {}
    for found in recorded(facts, "pass", model):
        number, before = found["pass"], runs.get(found["model"], [])
        begun = bool(before) and number > before[-1]["number"]
        runs[found["model"]] = [*(before if begun else []), {**found, "number": number}]
    return runs


def _lines(name: str, passes: list[Facts], dash: str) -> list[Trace]:
    numbers = [p["number"] for p in passes]
    return [
        {
            "type": "scatter", "mode": "lines+markers", "x": numbers, "y": [p[what] or None for p in passes],
            "name": f"{text(name)}: {told}" if name else told, "line": {"color": COLOURS[i * 2], "dash": dash},
        }
        for i, (what, told) in enumerate((("residual", "residual"), ("angle", "angle (radians)")))
    ]  # fmt: skip
