"""Figures of a directory's models.

They are drawn from the published projection, the newest rows of the log, and the records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.directory.newest import Newest, newest_rows
from stream_dr.errors import InvalidParameter, did_you_mean
from stream_dr.models.model import Model
from stream_dr.plotting.accuracy import accuracy_of
from stream_dr.plotting.confusion import confusion_of
from stream_dr.plotting.convergence import convergence_of
from stream_dr.plotting.drift import drift_of
from stream_dr.plotting.figure import FigureDict, empty_figure, plain_text, without_feature_map_of
from stream_dr.plotting.loadings import loadings_figure_of
from stream_dr.plotting.progress import progress_of
from stream_dr.plotting.scatter_plot import points_figure
from stream_dr.plotting.spectrum import spectrum_of

KINDS = ("projection", "spectrum", "loadings", "accuracy", "progress", "convergence", "drift", "confusion")

OF_ALL = ("accuracy", "progress")
"""Kinds of figures that show all models."""


class FigureOptions(NamedTuple):
    """Options of a figure.

    rows: maximum number of newest rows to draw.
    dimensions: 2 or 3.
    component: number of the component to draw, from 0.

    >>> import stream_dr
    >>> stream_dr.FigureOptions(rows=500)
    FigureOptions(rows=500, dimensions=2, component=0)
    """

    rows: int = 10_000
    dimensions: int = 2
    component: int = 0


def figure_of(
    directory: Directory,
    kind: str,
    model: Model | None = None,
    options: FigureOptions = FigureOptions(),
    newest: Newest | None = None,
    records: Sequence[JsonDict] | None = None,
) -> go.Figure:
    """Draw a figure of a model, or of all models for kinds in OF_ALL.

    kind: one of KINDS.

    newest, records: pass them if they were read already.

    Raises InvalidParameter (unknown kind, or no model given), and what reading the log raises.
    """
    return go.Figure(figure_dict_of(directory, kind, model, options, newest, records))


def figure_dict_of(
    directory: Directory,
    kind: str,
    model: Model | None,
    options: FigureOptions,
    newest: Newest | None = None,
    records: Sequence[JsonDict] | None = None,
) -> FigureDict:
    """Return what `figure_of` draws."""
    if kind not in KINDS:
        raise InvalidParameter(f"there is no figure {kind!r}{did_you_mean(kind, KINDS)}; there are {', '.join(KINDS)}.")

    history: list[JsonDict] = list(directory.records.read() if records is None and kind in KINDS[3:] else records or [])
    if kind == "progress":
        return progress_of(history, 600, "Progress")
    if kind == "accuracy":
        return accuracy_of(history, directory.models, "Accuracy on rows not learned yet")

    if model is None:
        raise InvalidParameter(f"figure {kind!r} is of one model; name it.")
    name = plain_text(model.name)
    if kind == "convergence":
        return convergence_of(history, model.name, f"{name}: convergence of refine")
    if kind == "drift":
        return drift_of(history, model.name, f"{name}: drift")
    if kind == "confusion":
        return confusion_of(history, model.id, f"{name}: given label by true one")
    return _projection_figure(directory, kind, model, options, newest)


def _projection_figure(
    directory: Directory, kind: str, model: Model, options: FigureOptions, newest: Newest | None
) -> FigureDict:
    """Return a figure of the published projection and the newest rows."""
    published = model.published
    name = plain_text(model.name)
    if published is None:
        return empty_figure(f"{name}: {kind}", "nothing is published yet")

    projection = published.projection
    title = f"{name}: version {published.version}"
    rows = newest if newest is not None else newest_rows(directory, options.rows)
    linear = (
        projection
        if without_feature_map_of(projection).kind == "linear" and projection.n_components and rows.blocks
        else None
    )

    if kind == "spectrum":
        captured = None if linear is None else rows.captured_shares(linear)
        return spectrum_of(projection, f"{name}: spectrum", captured)
    if kind == "loadings":
        width = getattr(getattr(without_feature_map_of(projection), "loadings", None), "shape", (0, 0))[1]
        # This version may have fewer components than the one that the caller has seen.
        component = min(options.component, max(0, width - 1))
        names = directory.schema.names if projection.kind != "mapped" else None
        deviations = None if linear is None else rows.deviations(linear)
        return loadings_figure_of(projection, component, 20, names, f"{name}: loadings", deviations)
    return points_figure(rows.project(projection), rows.targets, options.dimensions, max(1, options.rows), 0, title)
