"""Convergence: residual and angle by pass of a refine."""

from typing import Any

import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.estimators.fitting.refining import RefineReport
from stream_dr.plotting.figure import (
    COLOURS,
    FigureDict,
    Trace,
    empty_figure,
    figure_dict,
    plain_text,
    whole_number_axis,
)
from stream_dr.plotting.recorded import recorded, records_of

_DASHES = ("solid", "dash", "dot", "dashdot")


def convergence(source: Any, model: str | None = None, *, title: str = "Convergence of refine") -> go.Figure:
    """Draw residual and angle of each pass of a refine, on a logarithmic axis.

    They are the relative residual, and the largest principal angle (radians) to the pass before.

    Parameters
    ----------
    source : RefineReport, Directory, path or list of records
        Report of a refine (`estimator.refine_report_`). Otherwise the last refine of each model of
        the directory is drawn.
    model : str or None
        Draw only this model.

    Examples
    --------
    >>> import numpy as np
    >>> import stream_dr
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> y = X[:, 0] > 0
    >>> lda = stream_dr.LDA(scatter="diagonal").fit(X, y).refine((X, y))
    >>> stream_dr.plotting.convergence(lda.refine_report_).layout.title.text
    'Convergence of refine'
    """
    runs = (
        {"": [p._asdict() for p in source.passes]}
        if isinstance(source, RefineReport)
        else _last_refines(records_of(source), model)
    )
    return go.Figure(_convergence_figure(runs, title))


def convergence_of(records: list[JsonDict], model: str, title: str) -> FigureDict:
    """Return what `convergence` draws from a model's records."""
    return _convergence_figure(_last_refines(records, model), title)


def _convergence_figure(runs: dict[str, list[JsonDict]], title: str) -> FigureDict:
    if not runs:
        return empty_figure(title, "no refine has been recorded")
    traces = [
        t
        for i, (name, passes) in enumerate(runs.items())
        for t in _pass_traces(name, passes, _DASHES[i % len(_DASHES)])
    ]
    axis = {"type": "log", "exponentformat": "power"}
    return figure_dict(traces, title, xaxis=whole_number_axis("pass", max(map(len, runs.values()))), yaxis=axis)


def _last_refines(records: list[JsonDict], model: str | None) -> dict[str, list[JsonDict]]:
    """Return the passes of each model's last refine."""
    runs: dict[str, list[JsonDict]] = {}
    for record in recorded(records, "pass", model):
        number = record["pass"]
        passes = runs.get(record["model"], [])
        # A number that does not grow begins another refine.
        continued = bool(passes) and number > passes[-1]["number"]
        runs[record["model"]] = [*(passes if continued else []), {**record, "number": number}]
    return runs


def _pass_traces(name: str, passes: list[JsonDict], dash: str) -> list[Trace]:
    numbers = [p["number"] for p in passes]
    return [
        {
            "type": "scatter", "mode": "lines+markers", "x": numbers, "y": [p[field] or None for p in passes],
            "name": f"{plain_text(name)}: {label}" if name else label, "line": {"color": COLOURS[i * 2], "dash": dash},
        }
        for i, (field, label) in enumerate((("residual", "residual"), ("angle", "angle (radians)")))
    ]  # fmt: skip
