"""Figures of the models of a directory.

`draw_directory_figure` draws a figure once. `LiveFigures` draws the figures of the dashboard again
and again while the models learn. Figures are drawn from the published projections, the newest rows
of the log, and the records of the directory.
"""

import base64
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
import orjson
import plotly.graph_objects as go

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.directory.newest import NewestRows, newest_rows
from stream_dr.directory.records import RecordsTail
from stream_dr.errors import InvalidParameter, StreamDRError, did_you_mean
from stream_dr.models.model import Model
from stream_dr.plotting.components import loadings_figure_dict, regularisation_figure_dict, spectrum_figure_dict
from stream_dr.plotting.figure import FigureDict, empty_figure, plotly_escaped_text, strip_feature_map_if_any
from stream_dr.plotting.record_figures import (
    accuracy_figure_dict,
    best_models,
    confusion_figure_dict,
    drift_figure_dict,
    last_refine_passes,
    progress_figure_dict,
    residual_and_angle_figure_dict,
)
from stream_dr.plotting.scatter_plot import projected_rows_figure
from stream_dr.projection import Linear, linear_part_or_none
from stream_dr.uncertainty import uncertainty_sentences

FROM_RECORDS = ("accuracy", "progress", "convergence", "drift", "confusion")
"""Kinds of figures that are drawn from the records of a directory."""

KINDS = ("projection", "spectrum", "loadings", "regularisation", *FROM_RECORDS)
"""All kinds of figures."""

LIVE_KINDS = ("projection", "spectrum", "loadings", "regularisation", "accuracy", "progress", "confusion")
"""Kinds of figures on the dashboard, in their order."""

OF_ALL = ("accuracy", "progress")
"""Kinds of figures that show all models."""

CACHE_SIZE = 32
"""Maximum number of figures in the cache. The least recently used figure is dropped first."""

REFRESH_SECONDS = 2.0
"""Minimum number of seconds before the same data are read or the same figure is drawn again."""

MAX_LABELS = 50
"""Number of labels, the most frequent ones, whose rows are counted for each label.

The rows of all other labels are counted together.
"""

Counts = list[tuple[str, int]]
"""Pairs (label, number of rows with this label)."""


class FigureOptions(NamedTuple):
    """Options of a figure.

    rows: maximum number of rows to draw, which are the newest rows of the log.
    dimensions: number of axes of a figure of projected rows, 2 or 3.
    component: number of the component whose loadings are drawn, from 0.

    >>> import stream_dr
    >>> stream_dr.FigureOptions(rows=500)
    FigureOptions(rows=500, dimensions=2, component=0)
    """

    rows: int = 10_000
    dimensions: int = 2
    component: int = 0


def draw_directory_figure(
    directory: Directory,
    kind: str,
    model: Model | None = None,
    options: FigureOptions = FigureOptions(),
    newest: NewestRows | None = None,
    records: Sequence[JsonDict] | None = None,
) -> go.Figure:
    """Draw a figure of one model or of all models.

    kind: kind of the figure, one of KINDS.
    model: model to draw. It may be None for the kinds in OF_ALL, which show all models.
    options: options of the figure.
    newest: newest rows of the log. None means that the log is read.
    records: records of the directory. None means that the records are read.

    Raises InvalidParameter if the kind is unknown, or if `model` is None for a figure of one
    model. Raises the errors of reading the log.
    """
    return go.Figure(directory_figure_dict(directory, kind, model, options, newest, records))


def directory_figure_dict(
    directory: Directory,
    kind: str,
    model: Model | None,
    options: FigureOptions,
    newest: NewestRows | None = None,
    records: Sequence[JsonDict] | None = None,
) -> FigureDict:
    """Return the figure of `draw_directory_figure` as a dict.

    The parameters and the errors are those of `draw_directory_figure`.
    """
    if kind not in KINDS:
        raise InvalidParameter(f"there is no figure {kind!r}{did_you_mean(kind, KINDS)}; there are {', '.join(KINDS)}.")

    # Figures that are drawn from records.
    history = list(directory.records.read() if records is None and kind in FROM_RECORDS else records or [])
    if kind == "progress":
        return progress_figure_dict(history, 600, "Progress")
    if kind == "accuracy":
        return accuracy_figure_dict(history, directory.models, "Accuracy on rows not learned yet")

    if model is None:
        raise InvalidParameter(f"figure {kind!r} is of one model; name it.")
    name = plotly_escaped_text(model.name)
    if kind == "convergence":
        return residual_and_angle_figure_dict(last_refine_passes(history, model.name), f"{name}: convergence of refine")
    if kind == "drift":
        return drift_figure_dict(history, model.name, f"{name}: drift")
    if kind == "confusion":
        return confusion_figure_dict(history, model.id, f"{name}: given label by true one")
    return _projection_figure(directory, kind, model, options, newest)


def _projection_figure(
    directory: Directory, kind: str, model: Model, options: FigureOptions, newest: NewestRows | None
) -> FigureDict:
    """Return a figure of a model's published projection.

    kind: "projection", "spectrum", "loadings" or "regularisation". The kind "projection" shows the
        newest rows of the log, projected by the published projection.
    newest: newest rows of the log. None means that the log is read.
    """
    published = model.published
    name = plotly_escaped_text(model.name)
    if published is None:
        return empty_figure(f"{name}: {kind}", "nothing is published yet")

    projection = published.projection
    if kind == "regularisation":
        return regularisation_figure_dict(projection, f"{name}: regularisation")

    # The newest rows show the variance along the components of a linear projection.
    # `linear` is None for other projections, without components, and without rows.
    title = f"{name}: version {published.version}"
    rows = newest if newest is not None else newest_rows(directory, options.rows)
    is_linear = strip_feature_map_if_any(projection).kind == "linear"
    linear = projection if is_linear and projection.n_components and rows.blocks else None

    if kind == "spectrum":
        captured = None if linear is None else rows.cumulative_variance_shares(linear)
        return spectrum_figure_dict(projection, f"{name}: spectrum", captured)
    if kind == "loadings":
        width = getattr(getattr(strip_feature_map_if_any(projection), "loadings", None), "shape", (0, 0))[1]
        # The newest version may have fewer components than the caller's `component` needs.
        component = min(options.component, max(0, width - 1))
        names = directory.schema.names if projection.kind != "mapped" else None
        deviations = None if linear is None else rows.input_column_deviations(linear)
        return loadings_figure_dict(projection, component, 20, names, f"{name}: loadings", deviations)
    projected = rows.project(projection)
    return projected_rows_figure(projected, rows.targets, options.dimensions, max(1, options.rows), 0, title)


def is_figure_on_page(kind: str, model: Model | None) -> bool:
    """Return True if a page has this kind of figure.

    kind: kind of the figure, one of KINDS.
    model: model of the page. None means the page of all models.
    """
    if model is None:
        return kind in OF_ALL
    if kind != "regularisation":
        return True
    linear = _published_linear_projection(model)
    return linear is not None and linear.choice is not None


def model_uncertainty_sentences(model: Model) -> list[str]:
    """Return sentences on the uncertainty of a model's published projection."""
    linear = _published_linear_projection(model)
    return [] if linear is None else uncertainty_sentences(linear.choice, linear.spread)


def _published_linear_projection(model: Model) -> Linear | None:
    """Return the linear part of a model's published projection.

    The result is None if nothing is published or the projection has no linear part.
    """
    published = model.published
    return linear_part_or_none(published.projection if published is not None else None)


class CachedFigure(NamedTuple):
    """A figure in the cache.

    tag: text that is different for each state of the figure.
    figure: the figure as JSON.
    drawn_at: time at which the figure was drawn (time.monotonic).
    """

    tag: str
    figure: bytes
    drawn_at: float


class LiveFigures:
    """Draws the dashboard's figures, and draws them again after the models have learned rows.

    All threads may call `draw_as_page_json`. Only one thread draws at a time.

    directory: directory of the stream and the models.
    status: function that returns the status of the stream and its models. The status is a dict
        that can be written as JSON. `draw_as_page_json` returns the status with the figures.

    The example uses `directory` from the example of Running.

    >>> import stream_dr
    >>> figures = stream_dr.LiveFigures(directory, status=dict)
    >>> figures.draw_as_page_json("lda", stream_dr.FigureOptions(), [], {})[:9]
    b'{"told":{'
    """

    def __init__(self, directory: Directory, status: Callable[[], JsonDict]) -> None:
        self._directory = directory
        self._records = RecordsTail(directory.records)
        self._status = status
        self._status_json = b""
        self._status_at = 0.0
        # Tags begin with this text, so that the tags of two processes are never equal.
        self._process_tag = uuid.uuid4().hex[:8]

        self._lock = threading.Lock()
        self._drawn: OrderedDict[tuple[object, ...], CachedFigure] = OrderedDict()
        self._newest: dict[int, tuple[float, NewestRows, Counts]] = {}

    def draw_as_page_json(
        self, model_name: str | None, options: FigureOptions, tags_in_browser: Collection[str], extra_keys: JsonDict
    ) -> bytes:
        """Return a model's status and figures as JSON.

        The JSON object has the keys of `extra_keys` and these keys:

        - "told": the status of the stream and its models, which the function `status` returns,
        - "figures": {kind: {"tag", "figure"}}, where a tag identifies the state of a figure,
        - "counts": pairs [label, number of rows] of the newest rows,
        - "sentences": sentences on the uncertainty of the model's components,
        - "best": the models with the best scores (a Leader), or None.

        model_name: name of the model. If it is None or unknown, only figures of all models are
            returned.
        options: options of the figures.
        tags_in_browser: tags of the figures that the browser already has. These figures are
            returned as the tag only.
        extra_keys: keys and values that are added to the JSON object. They say what the browser
            may do.
        """
        # Read the data and draw the figures.
        model = self._directory.models.get(model_name or "")
        with self._lock:
            if time.monotonic() - self._status_at >= REFRESH_SECONDS:
                self._status_at = time.monotonic()
                self._status_json = orjson.dumps(self._status())
            status = self._status_json
            best = best_models(self._records.newest_records(), self._directory.models.keys())
            newest, counts = NewestRows(-1), Counts()
            if model is not None:
                newest, counts = self._newest_rows_and_label_counts(options.rows)
            kinds = [kind for kind in LIVE_KINDS if is_figure_on_page(kind, model)]
            drawn_figures = {kind: self._cached_or_new_figure(kind, model, options, newest) for kind in kinds}

        # Leave out figures that the browser already has.
        figures: dict[str, JsonDict] = {}
        for kind, drawn in drawn_figures.items():
            figures[kind] = {"tag": drawn.tag}
            if drawn.tag not in tags_in_browser:
                figures[kind]["figure"] = orjson.Fragment(drawn.figure)

        return orjson.dumps(
            {
                "told": orjson.Fragment(status),
                "figures": figures,
                "counts": counts,
                "sentences": [] if model is None else model_uncertainty_sentences(model),
                "best": best and best._asdict(),
                **extra_keys,
            }
        )

    def _newest_rows_and_label_counts(self, max_rows: int) -> tuple[NewestRows, Counts]:
        """Return the log's newest rows, and their label counts.

        A label count is a pair (label, number of rows with this label). The log is read again only
        if it has changed, and at most every REFRESH_SECONDS. Unlearned rows are left out.

        max_rows: maximum number of rows.
        """
        read_at, newest, counts = self._newest.get(max_rows, (0.0, NewestRows(-2), []))
        if newest.position != self._directory.position and time.monotonic() - read_at >= REFRESH_SECONDS:
            try:
                newest = newest_rows(self._directory, max_rows)
            # The log is damaged or a shard is missing. The status of the models shows the error.
            except StreamDRError:
                newest = NewestRows(self._directory.position)
            counts = _count_rows_by_label(newest)

            others = {k: v for k, v in self._newest.items() if k != max_rows}
            self._newest = {max_rows: (time.monotonic(), newest, counts), **others}
            while len(self._newest) > 2:
                self._newest.popitem()
        return newest, counts

    def _cached_or_new_figure(
        self, kind: str, model: Model | None, options: FigureOptions, newest: NewestRows
    ) -> CachedFigure:
        """Return a figure from the cache, or draw the figure.

        A figure in the cache is drawn again if its data have changed, but at most every
        REFRESH_SECONDS. If drawing raises an error, the figure shows the error.

        kind: kind of the figure, one of LIVE_KINDS.
        model: model to draw. It is not used for the kinds in OF_ALL.
        options: options of the figure.
        newest: newest rows of the log.
        """
        shown_model = model if kind not in OF_ALL else None
        version = shown_model.published_version if shown_model is not None else 0
        records = self._records.newest_records() if kind in FROM_RECORDS else ()

        # Collect the inputs of the figure. Only the first input changes when rows are learned.
        inputs: tuple[object, ...] = {
            "projection": (newest.position, options.rows, options.dimensions),
            "loadings": (newest.position, options.rows, options.component),
            "spectrum": (newest.position, options.rows),
        }.get(kind, (self._records.seen,) if kind in FROM_RECORDS else ())
        key = (kind, shown_model.id if shown_model is not None else None, *inputs[1:])
        tag = f"{self._process_tag}.{kind}." + ".".join(map(str, (key[1], version, *inputs)))

        # Draw the figure if it is not in the cache, or if its data have changed.
        drawn = self._drawn.get(key)
        now = time.monotonic()
        if drawn is None or (drawn.tag != tag and now - drawn.drawn_at >= REFRESH_SECONDS):
            try:
                figure = directory_figure_dict(self._directory, kind, shown_model, options, newest, records)
            except StreamDRError as e:
                figure = empty_figure(kind, str(e))
            drawn = CachedFigure(tag, figure_json_without_template(figure), now)

        # Put the figure at the end of the cache, and drop the least recently used figures.
        self._drawn[key] = drawn
        self._drawn.move_to_end(key)
        while len(self._drawn) > CACHE_SIZE:
            self._drawn.popitem(last=False)
        return drawn


def _count_rows_by_label(newest: NewestRows) -> Counts:
    """Return the number of rows with each label.

    The result is a list of pairs (label, number of rows) in order of the labels. The MAX_LABELS
    most frequent labels have a pair each. All other labels share the last pair. Rows without a
    label are left out.
    """
    targets = newest.targets
    if targets is None or targets.kind == "continuous":
        return []

    rows = np.bincount(targets.codes[targets.codes >= 0], minlength=len(targets.labels))
    order = np.argsort(-rows, kind="stable")
    frequent = sorted(order[:MAX_LABELS].tolist(), key=lambda code: targets.labels[code])
    counts = [(str(targets.labels[i]), int(rows[i])) for i in frequent if rows[i]]
    rest = int(rows[order[MAX_LABELS:]].sum())
    return counts + ([(f"{len(order) - MAX_LABELS} other labels", rest)] if rest else [])


def figure_json_without_template(figure: FigureDict) -> bytes:
    """Return a figure as JSON for the dashboard.

    Arrays are in plotly's binary format.
    """
    # Leave out the figure's template, because the page sets its own colours and fonts.
    layout = {name: value for name, value in figure["layout"].items() if name != "template"}
    return orjson.dumps({"data": figure["data"], "layout": layout}, default=_numpy_to_json_types)


def _numpy_to_json_types(value: object) -> object:
    """Convert a numpy array or number to JSON types.

    An array (n,) of numbers is converted to plotly's binary format, a dict of type and data.
    """
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iuf":
        array = value.astype(np.int32) if value.dtype.kind in "iu" else value
        return {"dtype": array.dtype.str[1:], "bdata": base64.b64encode(array.tobytes()).decode()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a figure holds a {type(value).__name__}")
