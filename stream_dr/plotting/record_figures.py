"""Figures of progress, accuracy, confusion, convergence and drift.

The figures are drawn from the records of a directory. A directory writes a record each time a
model is tested, published or refined, or fails.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.directory.records import RECORDS, Records
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.refining import RefineReport
from stream_dr.plotting.figure import (
    COLOURS,
    FigureDict,
    Trace,
    empty_figure,
    figure_dict,
    plotly_escaped_text,
    scatter_trace,
    titled_axis,
    unmapped_projection,
    whole_number_axis,
)
from stream_dr.solve.orientation import principal_angles

PANELS = (("score", "accuracy or R²", "y3"), ("rate", "rows/s", "y2"), ("lag", "lag (events)", "y"))
"""Panels of the figure `progress`, from top to bottom.

Each panel is (key of the panel's value in a model's part of a record, title, plotly's name of the
y-axis). The key "score" stands for accuracy or R².
"""

FEW = 20
"""Number of records up to which a line has a marker for each record.

A line through a single point would not be visible without a marker.
"""

MARKS = {"version": ("triangle-up", 6), "refined": ("diamond", 10), "failed": ("x", 11)}
"""Symbol and size of the marks for new versions, refined versions and failures."""

BASELINE = {"color": "#888", "dash": "dot"}
"""Style of a line that shows the score of a baseline."""

_DASHES = ("solid", "dash", "dot", "dashdot")
"""Line styles of the models in the figure `convergence`, in order."""

_SHADES = [[0.0, "rgba(66, 105, 208, 0.04)"], [1.0, "rgba(66, 105, 208, 0.75)"]]
"""Colour scale for shares from 0 to 1. Text on it is readable on white and on black pages."""


def load_records(directory_or_records: Any) -> list[JsonDict]:
    """Return the records of a directory, oldest first.

    directory_or_records: a Directory, the path of a directory, or records. Records are returned as
        a list.
    """
    if isinstance(directory_or_records, str | Path):
        return Records(Path(directory_or_records) / RECORDS).read()
    if isinstance(directory_or_records, Directory):
        return directory_or_records.records.read()
    return list(directory_or_records)


def select_records(records: Sequence[JsonDict], kind: str, model_name: str | None = None) -> list[JsonDict]:
    """Return a directory's records of one kind, such as "progress".

    model_name: name of a model. If not None, only the records of this model are returned.
    """
    selected = [record for record in records if record["kind"] == kind]
    if model_name is None:
        return selected
    return [record for record in selected if record.get("model") == model_name]


def record_time_for_plotly(record: JsonDict) -> str:
    """Return the time of a record (UTC) in plotly's format."""
    return datetime.fromtimestamp(record["time"], UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def progress(source: Any, *, most: int = 600, title: str = "Progress") -> go.Figure:
    """Draw accuracy, rows/s and lag of all models over time.

    The accuracy is measured by test-then-train, on rows before they are learned. Labels are
    predicted by the nearest class mean. The accuracy is over the rows tested last. The dotted line
    is the accuracy of a baseline that always predicts the label of the row before.

    source: a directory, its path, or its records.
    most: maximum number of records to draw. If there are more, only every n-th record is drawn.

    >>> import stream_dr
    >>> stream_dr.plotting.progress([]).layout.annotations[0].text
    'no records yet: they are written while models learn'
    """
    return go.Figure(progress_figure_dict(load_records(source), most, title))


def progress_figure_dict(records: list[JsonDict], max_records: int, title: str) -> FigureDict:
    """Return accuracy, rows/s and lag as a figure dict.

    records: records of the directory, oldest first.
    max_records: maximum number of records to draw. If there are more, only every n-th record is
        drawn.
    """
    progress_records = select_records(records, "progress")
    if not progress_records:
        return empty_figure(title, "no records yet: they are written while models learn")
    progress_records = _thin_records(progress_records, max_records)

    # A record of progress has the values of each model in the dict "models", by name of the model.
    # `names` are the models in order of first appearance.
    traces = list(_baseline_line(progress_records))
    names = dict.fromkeys(name for record in progress_records for name in record["models"])
    for i, name in enumerate(names):
        colour = COLOURS[i % len(COLOURS)]
        traces += _model_lines(progress_records, name, colour)
        traces += _event_marks(records, progress_records, name, colour, max_records)
    return figure_dict(traces, title, hovermode="x", dragmode="pan", **_progress_axes(progress_records))


def _baseline_line(progress_records: list[JsonDict]) -> Iterator[Trace]:
    """Yield the line of the baseline, if it was tested.

    The baseline always predicts the label of the row before.
    """
    # All models of a record have one baseline, so the first value in the record is drawn.
    values = []
    for record in progress_records:
        baselines = [scores.get("baseline") for scores in record["models"].values()]
        known = [value for value in baselines if value is not None]
        values.append(next(iter(known), None))
    if all(value is None for value in values):
        return

    # A line through one point is not visible. The axis y3 is that of accuracy.
    times = list(map(record_time_for_plotly, progress_records))
    mode = "lines" if len(times) > 1 else "markers"
    yield scatter_trace("always the last label", times, values, mode, line=BASELINE, yaxis="y3")


def _progress_axes(progress_records: list[JsonDict]) -> JsonDict:
    """Return plotly's layout options for the axes of the figure `progress`.

    The keys of the dict are plotly's names of the axes, such as "xaxis" and "yaxis2".
    """
    # PANELS are listed from top to bottom. A domain is the part of the figure's height that a panel
    # takes, from 0 (bottom) to 1, with a gap of 0.06 between panels.
    height = 1 / len(PANELS)
    axes: JsonDict = {}
    for i, (_, label, axis) in enumerate(reversed(PANELS)):
        domain = [i * height + 0.03, (i + 1) * height - 0.03]
        # Lines refer to an axis as "y2", and the layout calls the same axis "yaxis2".
        axes["yaxis" + axis[1:]] = titled_axis(label, domain=domain, anchor="x")

    # The axes are y3 for accuracy, y2 for rows/s, and y for the lag, a number of events. Small lags
    # have a tick at each whole number.
    axes["yaxis3"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    axes["yaxis2"] |= {"rangemode": "tozero", "exponentformat": "SI"}
    axes["yaxis"] |= {"rangemode": "tozero", "tickformat": ",d", "dtick": None}
    lags = [scores["lag"] for record in progress_records for scores in record["models"].values()]
    if max(lags, default=0) <= 5:
        axes["yaxis"]["dtick"] = 1

    # All panels have one time axis. It is a minute long if there is a single record.
    time_axis = titled_axis("time (UTC)", type="date", anchor="y", rangeslider={"thickness": 0.06})
    if len(progress_records) == 1:
        time = progress_records[0]["time"]
        ends = [{"time": time - 30}, {"time": time + 30}]
        time_axis["range"] = list(map(record_time_for_plotly, ends))
    axes["xaxis"] = time_axis
    return axes


class BestModels(NamedTuple):
    """The models with the best scores.

    models: names of models, best score first. These are the model with the highest score, and all
        models whose scores are within two standard errors of it.
    score: the highest score, which is accuracy or R².
    since: time at which the first of these models became the best, in seconds since 1970.
    """

    models: tuple[str, ...]
    score: float
    since: float


def best_models(records: list[JsonDict], model_names: Collection[str]) -> BestModels | None:
    """Return the models with the best scores.

    Models that are no better than the most frequent label do not count. The result is None if no
    other model was tested.

    records: records of the directory, oldest first.
    model_names: names of the models to compare.
    """
    # Read all records to find since when the same model has been the best.
    best = None
    for record in select_records(records, "progress"):
        measured = record["models"]
        tested = [name for name in measured if name in model_names and measured[name].get("tested")]
        # "weakness" is a text if the model is no better than the most frequent label.
        good = [name for name in tested if not measured[name].get("weakness")]
        # If all tested models are weak, no model is the best any more. If none was tested, the
        # record says nothing.
        if not good:
            if tested:
                best = None
            continue

        # Models within two standard errors of the highest score count as equally good.
        scores = {name: score_or_minus_infinity(measured[name]) for name in good}
        ranked = sorted(good, key=lambda name: -scores[name])
        first = ranked[0]
        error = measured[first].get("error") or 0.0
        lowest = scores[first] - 2 * error
        close = tuple(name for name in ranked if scores[name] >= lowest)
        # If the first model was the first in the record before, it has been the best since then.
        since = record["time"]
        if best is not None and best.models[0] == first:
            since = best.since
        best = BestModels(close, scores[first], since)
    return best


def score_or_minus_infinity(scores: JsonDict) -> float:
    """Return a model's accuracy or R².

    The score is R² if the targets are continuous. If the model was not tested, the result is -inf.

    scores: the model's part of a record, with the key "accuracy" or "r2".
    """
    score: float | None = scores.get("accuracy", scores.get("r2"))
    if score is None:
        return -math.inf
    return score


def _thin_records(records: list[JsonDict], max_records: int) -> list[JsonDict]:
    """Return the last record and every n-th one before it, at most `max_records`."""
    if len(records) <= max_records:
        return records
    step = len(records) // max_records + 1
    newest_first = records[::-step]
    return newest_first[::-1]


def _model_lines(progress_records: list[JsonDict], model_name: str, colour: str) -> Iterator[Trace]:
    """Yield the lines of a model in the figure `progress`.

    Each panel has one line, unless the model has no values for the panel.

    progress_records: records of the kind "progress", oldest first.
    model_name: name of the model.
    """
    # `own_scores` has the model's values in each record that names the model.
    own_records = [record for record in progress_records if model_name in record["models"]]
    times = list(map(record_time_for_plotly, own_records))
    own_scores = [record["models"][model_name] for record in own_records]
    name = plotly_escaped_text(model_name)
    mode = "lines+markers" if len(own_records) <= FEW else "lines"

    # `field` is the key of the panel's value, and `axis` plotly's name of the panel's y-axis. The
    # key "score" stands for accuracy or R². There is none before rows were tested.
    for field, _, axis in PANELS:
        values = []
        for scores in own_scores:
            value = scores.get(field)
            if field == "score" and scores.get("tested"):
                value = score_or_minus_infinity(scores)
            values.append(value)
        if all(value is None for value in values):
            continue

        # The lines of a model in all panels share one entry in the legend. It is the entry of the
        # panel of rows/s.
        legend = {"legendgroup": name, "showlegend": field == "rate"}
        yield scatter_trace(name, times, values, mode, line={"color": colour}, yaxis=axis) | legend


def _event_marks(
    records: list[JsonDict], progress_records: list[JsonDict], model_name: str, colour: str, max_marks: int
) -> Iterator[Trace]:
    """Yield the marks of a model in the figure `progress`.

    The marks show new versions, refined versions and failures. They are drawn at the bottom of the
    lowest panel.

    records: records of the directory, oldest first.
    progress_records: records of the kind "progress", oldest first. Versions and failures before
        the first of these records are left out.
    model_name: name of the model.
    max_marks: maximum number of marks for new versions.
    """
    start = progress_records[0]["time"]
    # Refined versions have marks of their own.
    published = [r for r in select_records(records, "published", model_name) if r["time"] >= start]
    refined = [r for r in published if r["solution"] == "refined"]
    versions = [r for r in published if r["solution"] != "refined"]
    failed = [r for r in select_records(records, "failed", model_name) if r["time"] >= start]
    records_of_mark = {"version": _thin_records(versions, max_marks), "refined": refined, "failed": failed}

    # Make a trace of the marks of each type. They are at the value 0 of the axis y, which is the
    # bottom of the lowest panel.
    name = plotly_escaped_text(model_name)
    for mark, marked in records_of_mark.items():
        if not marked:
            continue
        symbol, size = MARKS[mark]
        marker = {"symbol": symbol, "size": size, "color": colour}
        texts = [f"version {record.get('version')}" for record in marked]
        if mark == "failed":
            marker["color"] = "#c00"
            texts = [f"failed: {plotly_escaped_text(record['code'])}" for record in marked]
        times = list(map(record_time_for_plotly, marked))
        points = scatter_trace(f"{name}: {mark}", times, [0] * len(marked), "markers", marker=marker, yaxis="y")
        # New versions are frequent and have no entry in the legend. "cliponaxis" False draws marks
        # whole, although they lie on the edge of the panel.
        points |= {"legendgroup": name, "showlegend": mark != "version"}
        points |= {"text": texts, "hoverinfo": "x+text+name", "cliponaxis": False}
        yield points


def accuracy_figure_dict(records: list[JsonDict], model_names: Collection[str], title: str) -> FigureDict:
    """Return a figure of accuracy by number of learned rows.

    The figure is a dict. It has one line for each model. Accuracy is measured on rows that the
    model has not learned yet. For continuous targets, R² is drawn in place of accuracy. A record
    has the whole line up to its time, so only each model's newest record is used.

    records: records of the directory, oldest first.
    model_names: names of the models to draw.
    """
    # `last` has the newest record of each model, because later records replace earlier ones.
    last = {}
    for record in select_records(records, "tested"):
        if record["model"] in model_names and record["curve"]:
            last[record["model"]] = record
    if not last:
        return empty_figure(title, "not tested yet: rows with a target are, before they are learned")

    traces = []
    points = []
    for i, name in enumerate(model_names):
        if name in last:
            curve = last[name]["curve"]
            points += curve
            learned, scores = zip(*curve, strict=True)
            line = {"color": COLOURS[i % len(COLOURS)]}
            traces.append(scatter_trace(plotly_escaped_text(name), learned, scores, line=line))

    # The axis is longer than the curves, so that it has ticks even if there is a single point.
    rows, values = np.transpose(points)
    left = max(0.9, rows.min() / 2)
    right = max(10.0, 2 * rows.max())
    ends = [left, right]
    rows_axis = titled_axis("rows learned", type="log", range=np.log10(ends).tolist(), tickformat="~s")
    # Ticks ("D2") are at 1, 2, 5, 10 and so on, or at powers of ten (1) if these would overlap.
    rows_axis["dtick"] = 1
    if right < 200 * left:
        rows_axis["dtick"] = "D2"

    # Draw the baseline, which always predicts the most frequent label.
    score_axis = titled_axis("R²", range=[min(0.0, values.min()), 1.02])
    newest = max(last.values(), key=lambda record: record["time"])
    most_frequent = newest["most_frequent"]
    if most_frequent is not None:
        constant = [most_frequent, most_frequent]
        traces.append(scatter_trace("always the most frequent label", ends, constant, "lines", line=BASELINE))
        score_axis |= titled_axis("accuracy", tickformat=".0%")
    return figure_dict(traces, title, xaxis=rows_axis, yaxis=score_axis)


def confusion_figure_dict(records: list[JsonDict], model_id: int, title: str) -> FigureDict:
    """Return a model's confusion matrix as a figure dict.

    The matrix of the model's newest record is drawn. The matrix has a row for each true label and
    a column for each predicted label. A cell is the share of the true label's rows that were
    predicted as the column's label. The rows were tested before the model learned them. A row of
    the matrix adds up to less than 1 if some predicted labels are too rare to be shown.

    records: records of the directory, oldest first.
    model_id: id of the model.
    """
    confusion = None
    for record in select_records(records, "tested"):
        if record["id"] == model_id and record["confusion"]:
            confusion = record["confusion"]
    if confusion is None:
        return empty_figure(title, "not tested yet: rows with one label each are, before they are learned")

    labels = list(map(plotly_escaped_text, confusion["labels"]))
    # `counts` (labels, labels) has numbers of rows by true and predicted label. `rows` (labels,)
    # has the number of rows of each true label.
    counts = np.array(confusion["counts"])
    rows = np.array(confusion["rows"])
    shares = counts / np.maximum(rows, 1)[:, None]
    texts = [list(map(_percent_or_empty, row)) for row in shares.tolist()]

    # Draw the shares as a heat map. "customdata" are the numbers of rows, which are shown under the
    # mouse pointer. The axis "given" has the predicted labels.
    cells = {"type": "heatmap", "x": labels, "y": labels, "z": shares.tolist(), "text": texts}
    cells |= {"zmin": 0, "zmax": 1, "colorscale": _SHADES, "showscale": False, "xgap": 1, "ygap": 1}
    cells["customdata"] = counts.astype(int).tolist()
    cells["texttemplate"] = "%{text}"
    cells["hovertemplate"] = "%{y} given %{x}: %{customdata} rows, %{z:.1%}<extra></extra>"
    axis = {"type": "category", "automargin": True, "dtick": 1, "tickfont": {"size": 10}}
    predicted_axis = titled_axis("given") | axis
    true_axis = titled_axis("true", autorange="reversed") | axis
    return figure_dict([cells], title, xaxis=predicted_axis, yaxis=true_axis)


def _percent_or_empty(share: float) -> str:
    if not share:
        return ""
    return f"{share:.0%}"


def convergence(source: Any, model: str | None = None, *, title: str = "Convergence of refine") -> go.Figure:
    """Draw how a refined solution converged.

    The residual and the angle of each pass are drawn. The residual is relative. The angle is the
    largest principal angle (radians) between the components of a pass and of the pass before. The
    axis is logarithmic.

    Parameters
    ----------
    source : RefineReport, Directory, path or list of records
        Report of an estimator (`refine_report_`), or a directory, its path or its records. For a
        directory, the passes of each model's last refine are drawn.
    model : str or None
        Name of the only model to draw. None means all models.

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
    # `runs` has the passes by the name of the model. The report of an estimator has no name.
    if isinstance(source, RefineReport):
        runs = {"": [p._asdict() for p in source.passes]}
    else:
        runs = last_refine_passes(load_records(source), model)
    return go.Figure(convergence_figure_dict(runs, title))


def convergence_figure_dict(passes_by_model: dict[str, list[JsonDict]], title: str) -> FigureDict:
    """Return a figure dict of how models converged while they were refined.

    To refine a model is to compute its exact solution by passes over the log. The figure shows two
    lines for each model: the relative residual of the equations after each pass, and the largest
    principal angle between the components after this pass and after the pass before.

    passes_by_model: name of a model → records of the passes by which the model was refined.
    """
    if not passes_by_model:
        return empty_figure(title, "no refine has been recorded")
    # The report of an estimator has "" in the place of a model's name.
    traces = []
    for i, (name, passes) in enumerate(passes_by_model.items()):
        prefix = f"{plotly_escaped_text(name)}: " if name else ""
        numbers = [p["number"] for p in passes]
        # A logarithmic axis has no place for 0, so None leaves a gap.
        residuals = [p["residual"] or None for p in passes]
        angles = [p["angle"] or None for p in passes]
        line = {"color": COLOURS[0], "dash": _DASHES[i % len(_DASHES)]}
        traces.append(scatter_trace(f"{prefix}residual", numbers, residuals, line=line))
        line = line | {"color": COLOURS[2]}
        traces.append(scatter_trace(f"{prefix}angle (radians)", numbers, angles, line=line))
    axis = whole_number_axis("pass", max(map(len, passes_by_model.values())))
    return figure_dict(traces, title, xaxis=axis, yaxis={"type": "log", "exponentformat": "power"})


def last_refine_passes(records: list[JsonDict], only_model: str | None) -> dict[str, list[JsonDict]]:
    """Return the records of the last refine of each model.

    A refine has one record for each pass. The result is a dict from the name of a model to the
    records of its passes.

    records: records of the directory, oldest first.
    only_model: name of the only model to return. None means all models.
    """
    runs: dict[str, list[JsonDict]] = {}
    for record in select_records(records, "pass", only_model):
        name = record["model"]
        number = record["pass"]
        passes = runs.setdefault(name, [])
        # The passes of a refine are numbered in ascending order. If the number of a pass is not
        # larger than the number before, the pass begins another refine.
        if passes and number <= passes[-1]["number"]:
            passes.clear()
        # Passes in the report of an estimator have this number under the key "number", too.
        passes.append({**record, "number": number})
    return runs


def drift(source: Any, model: str | None = None, *, title: str = "Drift") -> go.Figure:
    """Draw how much components change from version to version.

    The figure has the largest and the median principal angle (degrees) between the components of
    each version and the version before.

    Parameters
    ----------
    source : list of estimators or projections, Directory, path or list of records
        A list of estimators or projections must have the oldest first.
    model : str or None
        Name of the model. Needed if `source` is a directory, its path or its records.

    Examples
    --------
    >>> import numpy as np
    >>> import stream_dr
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> older, newer = stream_dr.PCA(2).fit(X[:30]), stream_dr.PCA(2).fit(X)
    >>> [line.name for line in stream_dr.plotting.drift([older, newer]).data]
    ['largest angle', 'median angle']
    """
    if model is not None:
        return go.Figure(drift_figure_dict(load_records(source), model, title))
    # A directory, its path and its records (dicts) may concern several models, so a name is needed.
    if isinstance(source, str | Path | Directory) or any(isinstance(record, dict) for record in source):
        raise InvalidParameter("model=None; it must be the name of the model whose records are drawn.")

    projections = map(unmapped_projection, source)
    angles_by_version = []
    # The first projection is version 1. `angles` is None if a projection is not linear.
    for version, (older, newer) in enumerate(pairwise(projections), 2):
        angles = principal_angles(older, newer)
        if angles is not None:
            angles_by_version.append((version, angles.tolist()))
    return go.Figure(_drift_figure(angles_by_version, title))


def drift_figure_dict(records: list[JsonDict], model_name: str, title: str) -> FigureDict:
    """Return a figure dict of the angles between a model's successive versions.

    records: records of the directory, oldest first.
    model_name: name of the model.
    """
    angles_by_version = []
    for record in select_records(records, "published", model_name):
        if record.get("angles"):
            angles_by_version.append((record["version"], record["angles"]))
    return _drift_figure(angles_by_version, title)


def _drift_figure(angles_by_version: list[tuple[int, list[float]]], title: str) -> FigureDict:
    """Return principal angles by version as a figure dict.

    angles_by_version: pairs (version number, principal angles in radians to the version before).
    """
    if not angles_by_version:
        return empty_figure(title, "no two versions of a linear projection yet")

    numbers = [version for version, _ in angles_by_version]
    degrees = [np.degrees(angles) for _, angles in angles_by_version]
    largest = [angles.max() for angles in degrees]
    median = list(map(np.median, degrees))
    largest_line = scatter_trace("largest angle", numbers, largest, line={"color": COLOURS[0]})
    median_line = scatter_trace("median angle", numbers, median, line={"color": COLOURS[2]})
    # Principal angles are at most 90 degrees.
    version_axis = whole_number_axis("version", len(numbers))
    angle_axis = titled_axis("degrees to the version before", range=[0, 92])
    return figure_dict([largest_line, median_line], title, xaxis=version_axis, yaxis=angle_axis)
