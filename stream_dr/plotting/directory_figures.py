"""Figures and report of the models of a directory.

`draw_directory_figure` draws a figure once. `LiveFigures` draws the figures of the dashboard again
and again while the models learn. `write_report` writes one HTML page with all figures and tables
of the models' state, which can be read without a network.

Figures are drawn from the published projections, the newest rows of the log, and the records of
the directory.
"""

import base64
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.directory.newest import NewestRows, newest_rows
from stream_dr.directory.records import RecordsTail
from stream_dr.disk import write_atomically
from stream_dr.errors import InvalidParameter, StreamDRError, did_you_mean
from stream_dr.models.model import Model
from stream_dr.plotting.figure import FigureDict, empty_figure, plotly_escaped_text, unmapped_projection
from stream_dr.plotting.projection_figures import (
    loadings_figure_dict,
    projected_rows_figure,
    regularisation_figure_dict,
    spectrum_figure_dict,
)
from stream_dr.plotting.record_figures import (
    accuracy_figure_dict,
    best_models,
    confusion_figure_dict,
    convergence_figure_dict,
    drift_figure_dict,
    last_refine_passes,
    progress_figure_dict,
    score_or_minus_infinity,
)
from stream_dr.projection import Linear, Projection, canonical_projection, linear_part_or_none
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

    kind: kind of the figure, one of KINDS.
    model: model to draw. It may be None for the kinds in OF_ALL, which show all models.
    newest: newest rows of the log. None means that the log is read.
    records: records of the directory. None means that the records are read.

    Raises the errors of `draw_directory_figure`.
    """
    if kind not in KINDS:
        raise InvalidParameter(f"there is no figure {kind!r}{did_you_mean(kind, KINDS)}; there are {', '.join(KINDS)}.")

    # `history` has the records of the directory. Only kinds in FROM_RECORDS use it, so the records
    # are not read for other kinds.
    history = list(records or [])
    if records is None and kind in FROM_RECORDS:
        history = directory.records.read()
    if kind == "progress":
        return progress_figure_dict(history, max_records=600, title="Progress")
    if kind == "accuracy":
        return accuracy_figure_dict(history, directory.models, "Accuracy on rows not learned yet")

    # All other figures are of one model.
    if model is None:
        raise InvalidParameter(f"figure {kind!r} is of one model; name it.")
    name = plotly_escaped_text(model.name)
    if kind == "convergence":
        return convergence_figure_dict(last_refine_passes(history, model.name), f"{name}: convergence of refine")
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

    projection = canonical_projection(published.projection)
    if kind == "regularisation":
        return regularisation_figure_dict(projection, f"{name}: regularisation")

    if newest is None:
        newest = newest_rows(directory, options.rows)
    if kind == "projection":
        title = f"{name}: version {published.version}"
        projected = newest.project(projection)
        max_rows = max(1, options.rows)
        return projected_rows_figure(projected, newest.targets, options.dimensions, max_rows, seed=0, title=title)

    # Figures of eigenvalues or loadings. `unmapped` is the projection without feature map. If it is
    # linear and has components, the variance of the newest rows (if any) is drawn, too.
    unmapped = unmapped_projection(projection)
    shows_variance = unmapped.kind == "linear" and projection.n_components and newest.blocks
    if kind == "spectrum":
        captured = newest.cumulative_variance_shares(projection) if shows_variance else None
        return spectrum_figure_dict(projection, f"{name}: spectrum", captured)

    # A projection with a feature map has other columns than the stream, and names them itself.
    names = directory.schema.names if projection.kind != "mapped" else None
    deviations = newest.input_column_deviations(projection) if shows_variance else None
    component = _existing_component(projection, options.component)
    max_features = 20
    return loadings_figure_dict(projection, component, max_features, names, f"{name}: loadings", deviations)


def _existing_component(projection: Projection, component: int) -> int:
    """Return `component`, or the last component if there are fewer.

    The newest version of a model may have fewer components than the version that the caller saw.
    """
    # Components are counted from 0. Without loadings (features, components), any number will do.
    loadings = getattr(unmapped_projection(projection), "loadings", None)
    if loadings is None:
        return 0
    last: int = max(0, loadings.shape[1] - 1)
    return min(component, last)


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
    if linear is None:
        return []
    return uncertainty_sentences(linear.choice, linear.spread)


def _published_linear_projection(model: Model) -> Linear | None:
    """Return the linear projection that a model has published.

    A projection with a feature map contains one, for the mapped rows. Returns None if the model has
    published nothing, or a projection that is not linear.
    """
    published = model.published
    if published is None:
        return None
    return linear_part_or_none(published.projection)


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
        that can be written as JSON. `draw_as_page_json` returns it under the key "told".

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
        - "best": the fields of BestModels (the models with the best scores), or None.

        model_name: name of the model. If it is None or unknown, only figures of all models are
            returned.
        options: options of the figures.
        tags_in_browser: tags of the figures that the browser already has. These figures are
            returned as the tag only.
        extra_keys: keys and values that are added to the JSON object. They say what the browser
            may do.
        """
        # `orjson.Fragment` inserts text that is JSON already, without parsing it.
        page: JsonDict = {}
        model = self._directory.models.get(model_name or "")
        with self._lock:
            if time.monotonic() - self._status_at >= REFRESH_SECONDS:
                self._status_at = time.monotonic()
                self._status_json = orjson.dumps(self._status())
            page["told"] = orjson.Fragment(self._status_json)
            best = best_models(self._records.newest_records(), self._directory.models)
            # The figures of all models need no rows of the log.
            newest = NewestRows(-1)
            counts = Counts()
            if model is not None:
                newest, counts = self._newest_labelled_rows(options.rows)
            kinds = [kind for kind in LIVE_KINDS if is_figure_on_page(kind, model)]
            drawn_figures = {kind: self._cached_figure(kind, model, options, newest) for kind in kinds}

        # Leave out figures that the browser already has.
        figures: dict[str, JsonDict] = {}
        for kind, drawn in drawn_figures.items():
            figures[kind] = {"tag": drawn.tag}
            if drawn.tag not in tags_in_browser:
                figures[kind]["figure"] = orjson.Fragment(drawn.figure)

        page |= {"figures": figures, "counts": counts}
        page["sentences"] = model_uncertainty_sentences(model) if model is not None else []
        page["best"] = best._asdict() if best is not None else None
        return orjson.dumps(page | extra_keys)

    def _newest_labelled_rows(self, max_rows: int) -> tuple[NewestRows, Counts]:
        """Return the log's newest rows, and their label counts.

        A label count is a pair (label, number of rows with this label). The log is read again only
        if it has changed, and at most every REFRESH_SECONDS. Unlearned rows are left out.

        max_rows: maximum number of rows.
        """
        # `_newest` has (time of reading, rows, label counts) by `max_rows`. The default of `get` is
        # always too old: its position −2 is no position of a log.
        read_at, newest, counts = self._newest.get(max_rows, (0.0, NewestRows(-2), []))
        recently_read = time.monotonic() - read_at < REFRESH_SECONDS
        if recently_read or newest.position == self._directory.position:
            return newest, counts

        try:
            newest = newest_rows(self._directory, max_rows)
        # The log is damaged or a shard is missing. The status of the models shows the error, so
        # this page only shows no rows.
        except StreamDRError:
            newest = NewestRows(self._directory.position)
        counts = _count_rows_by_label(newest)

        # Remember the rows of the last two values of `max_rows`.
        self._newest.pop(max_rows, None)
        self._newest[max_rows] = (time.monotonic(), newest, counts)
        if len(self._newest) > 2:
            oldest = next(iter(self._newest))
            del self._newest[oldest]
        return newest, counts

    def _cached_figure(
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
        shown_model = None
        model_id = None
        version = 0
        if model is not None and kind not in OF_ALL:
            shown_model = model
            model_id = model.id
            version = model.published_version

        # `position` and `version` change when rows are learned. The choices are the user's.
        # `key` is equal for all states of a figure, and `tag` is different for each state.
        # Figures of one model have its version in the tag.
        records: list[JsonDict] = []
        position = None
        choices = []
        if kind in FROM_RECORDS:
            records = self._records.newest_records()
            position = self._records.seen
        elif kind != "regularisation":
            position = newest.position
            choices.append(options.rows)
        if kind == "projection":
            choices.append(options.dimensions)
        elif kind == "loadings":
            choices.append(options.component)
        key = (kind, model_id, *choices)
        tag = ".".join(map(str, (self._process_tag, kind, model_id, version, position, *choices)))

        # Draw the figure if it is not in the cache, or if its data have changed.
        drawn = self._drawn.get(key)
        now = time.monotonic()
        if drawn is None or (drawn.tag != tag and now - drawn.drawn_at >= REFRESH_SECONDS):
            try:
                figure = directory_figure_dict(self._directory, kind, shown_model, options, newest, records)
            except StreamDRError as e:
                figure = empty_figure(kind, str(e))
            # The page sets its own colours and fonts.
            figure["layout"].pop("template")
            drawn = CachedFigure(tag, orjson.dumps(figure, default=_numpy_to_json_types), now)

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

    # A code is an index into `labels`, −1 without a label. `rows` has the number of rows by code.
    labels = targets.labels
    codes = targets.codes[targets.codes >= 0]
    rows = np.bincount(codes, minlength=len(labels))
    descending = np.argsort(-rows, kind="stable")
    # Leave out labels without a row. `labels` may be those of a larger batch.
    descending = descending[rows[descending] > 0]
    frequent = descending[:MAX_LABELS].tolist()
    others = descending[MAX_LABELS:]

    counts = []
    for code in sorted(frequent, key=lambda code: labels[code]):
        counts.append((str(labels[code]), int(rows[code])))
    if len(others):
        counts.append((f"{len(others)} other labels", int(rows[others].sum())))
    return counts


def _numpy_to_json_types(value: object) -> object:
    """Convert a numpy array or number to JSON types.

    An array (n,) of numbers is converted to plotly's binary format, a dict of type and data.
    """
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iuf":
        # plotly's binary format has no 64-bit integers.
        array = value.astype(np.int32) if value.dtype.kind in "iu" else value
        encoded = base64.b64encode(array.tobytes())
        return {"dtype": array.dtype.str[1:], "bdata": encoded.decode()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a figure holds a {type(value).__name__}")


HOW = {
    "projection": "The newest rows of the log that are still learned, projected by the version that is published; crosses "
    "are the means of each label's rows among them. Components keep sign and order from version to version.",
    "spectrum": "The eigenvalues of the published solution, and the share of the variance of all features in the newest "
    "rows that lies along the first components. Marks with error bars are the eigenvalues without the bias of a small "
    "sample, with intervals of 95 % from the folds.",
    "loadings": "The features whose weight in the published component, times their standard deviation in the newest rows, "
    "is largest; those without a name are numbered. Error bars are intervals of 95 % from the folds.",
    "regularisation": "Error of the predicted targets on the rows of each fold, by models of the other folds, for each "
    "compared value of the parameter. Error bars are one standard error. The value of the least error is chosen, or a "
    "simpler one within one standard error.",
    "accuracy": "Share of rows that were predicted right before they were learned, by the nearest class mean, over the "
    "newest 2,000 tested. With several labels a row, one of them must be predicted. R² of least squares on the components "
    "where targets are numbers.",
    "progress": "Recorded once a second while models learned. The dotted line is the accuracy of always answering the "
    "label of the row before.",
    "convergence": "Of the last refine: the relative residual of the equations solved, and the largest principal angle to "
    "the pass before.",
    "confusion": "Of the rows with a label that were tested last, the share that was given each.",
    "drift": "Principal angles between the components of each recorded version and those of the one recorded before it.",
}
"""Text below each kind of figure, which explains the figure's numbers."""

_STYLE = """:root{color-scheme:light dark}body{color:CanvasText;background:Canvas}
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top;font-weight:400}
th,.how{opacity:.75}.how{max-width:60rem}h2{border-top:1px solid #8886;padding-top:1rem}td{overflow-wrap:anywhere}"""

_DARK = """const draw=()=>{const text=getComputedStyle(document.body).color;
for(const plot of document.querySelectorAll(".js-plotly-plot")){
const colours={paper_bgcolor:"#0000",plot_bgcolor:"#0000","font.color":text};
for(const axis of Object.keys(plot.layout).filter(n=>/^[xy]axis\\d*$/.test(n)))
Object.assign(colours,{[axis+".gridcolor"]:"#8884",[axis+".zerolinecolor"]:"#8888",[axis+".linecolor"]:"#8888"});
Plotly.relayout(plot,colours);if(plot.data[0].type==="heatmap")Plotly.restyle(plot,{"textfont.color":text})}};
draw();matchMedia("(prefers-color-scheme: dark)").addEventListener("change",draw);"""
"""Script that sets the colours of the figures to the colours of the page."""


def write_report(
    directory: Directory,
    path: Path,
    max_rows: int = 5_000,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
) -> None:
    """Write the report of a directory.

    path: path of the HTML file.
    max_rows: maximum number of rows in figures of projected rows. The newest rows are drawn.
    on_progress: function that is called before each model is drawn. Its arguments are the number
        of models drawn so far and the number of all models.

    Raises the errors of reading the log.
    """
    page = "".join(_report_html_parts(directory, max_rows, on_progress))
    write_atomically(path, lambda file: file.write(page.encode()))


def _report_html_parts(directory: Directory, max_rows: int, on_progress: Callable[[int, int], None]) -> Iterator[str]:
    """Yield the HTML of the report, in parts.

    max_rows: maximum number of rows in figures of projected rows.
    on_progress: function that is called before each model is drawn, with the number of models
        drawn so far and the number of all models.
    """
    # Read the rows and records once, because most figures need them.
    newest = newest_rows(directory, max_rows)
    records = directory.records.read()

    # Yield the head of the page, the summary, and the figures of all models. _STYLE is CSS, and
    # _DARK is a script that gives the figures the colours of the page.
    name = escape(directory.path.name)
    yield "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    yield f"<title>stream_dr: {name}</title><style>{_STYLE}</style>"
    yield f"<script>{get_plotlyjs()}</script></head><body><h1>{name}</h1>"
    yield from _summary_section(directory, records)
    yield from _stream_section(directory)

    for kind in OF_ALL:
        figure = draw_directory_figure(directory, kind, records=records)
        yield from _figure_section(kind, figure)

    # Yield a section for each model.
    for number, model in enumerate(_models_by_score(directory)):
        on_progress(number, len(directory.models))
        yield from _model_section(directory, model)
        yield from _model_figures(directory, model, max_rows, newest, records)
    yield f"<script>{_DARK}</script></body></html>\n"


def _model_figures(
    directory: Directory, model: Model, max_rows: int, newest: NewestRows, records: list[JsonDict]
) -> Iterator[str]:
    """Yield the HTML of all figures of one model.

    max_rows: maximum number of rows to draw.
    newest: newest rows of the log.
    records: records of the directory, oldest first.
    """
    options = FigureOptions(max_rows)
    for kind in KINDS:
        if kind not in OF_ALL and is_figure_on_page(kind, model):
            figure = draw_directory_figure(directory, kind, model, options, newest, records)
            yield from _figure_section(kind, figure)


def _summary_section(directory: Directory, records: list[JsonDict]) -> Iterator[str]:
    """Yield the HTML of the summary.

    The summary has a sentence on the best models, a sentence on each model that is no better than
    the most frequent label, and a table of all models. The model with the best score is in the
    first row of the table.

    records: records of the directory, oldest first.
    """
    # A sentence on the best models, with the scores of the first of them. `since` is the time at
    # which the first of them became the best.
    scores_by_id = directory.records.newest_scores()
    best = best_models(records, directory.models)
    if best is not None:
        first = directory.models[best.models[0]]
        scores = scores_by_id.get(first.id, {})
        names = " and ".join(f"<b>{escape(name)}</b>" for name in best.models)
        verb = "is best" if len(best.models) == 1 else "are best, within two standard errors"
        score = f"{_accuracy_or_r2_text(scores)} on {scores.get('tested', 0):,} rows before they were learned"
        yield f"<p>{names} {verb}, since {_utc_text(best.since)}: {score}. "
        yield f"{directory.rows:,} rows, {len(directory.schema.labels):,} labels.</p>"

    # "weakness" is a text if the model is no better than the most frequent label.
    models = _models_by_score(directory)
    for model in models:
        weakness = scores_by_id.get(model.id, {}).get("weakness")
        if weakness:
            yield f"<p><b>{escape(model.name)}</b> is {weakness}.</p>"

    # A table of all models.
    yield "<table><tr>" + "".join(f"<th scope=col>{head}" for head in _SUMMARY_HEADS)
    for model in models:
        described = model.describe(directory.position)
        cells = _summary_cells(described, scores_by_id.get(model.id, {}))
        yield "<tr>" + "".join(f"<td>{escape(str(cell))}" for cell in cells)
    yield "</table>"


_SUMMARY_HEADS = (
    "model",
    "accuracy",
    "previous label",
    "most frequent label",
    "rows tested",
    "tested at",
    "method",
    "rows",
    "components",
    "solution",
    "state",
)
"""Heads of the columns of the summary's table."""


def _summary_cells(described: JsonDict, scores: JsonDict) -> list[object]:
    """Return a model's cells in the order of _SUMMARY_HEADS.

    described: description of the model, as `Model.describe` returns it.
    scores: last scores of the model, empty if it was not tested.
    """
    # The baselines predict the label of the row before ("baseline"), or the most frequent label.
    # Accuracies are shown in per cent, R² as numbers.
    cells = [described["name"], _accuracy_or_r2_text(scores)]
    form = ".1%" if "accuracy" in scores else ".3f"
    for baseline in ("baseline", "most_frequent"):
        text = "–"
        if scores.get(baseline) is not None:
            text = format(scores[baseline], form)
        cells.append(text)

    if scores:
        cells += [f"{scores['tested']:,}", _utc_text(scores["tested_at"])]
    else:
        cells += ["–", "–"]
    cells += [described["estimator"], f"{described['rows']:,}", described["components"]]
    state = described["state"].replace("_", " ")
    return [*cells, described["solution"] or "–", state]


def _accuracy_or_r2_text(scores: JsonDict) -> str:
    """Return the text of a model's score.

    The text has the accuracy and its standard error. For continuous targets it has R².

    scores: last scores of the model, empty if it was not tested.
    """
    if not scores:
        return "not measured"
    if "accuracy" in scores:
        return f"{scores['accuracy']:.1%} ± {scores['error']:.1%}"
    return f"R² {scores['r2']:.3f}"


def _utc_text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _models_by_score(directory: Directory) -> list[Model]:
    """Return the models sorted by their last scores.

    The model with the best score comes first. Models that were not tested come last.
    """
    tested = directory.records.newest_scores()
    return sorted(directory.models.values(), key=lambda m: -score_or_minus_infinity(tested.get(m.id, {})))


def _stream_section(directory: Directory) -> Iterator[str]:
    """Yield an HTML table of the log's size and the rows' schema."""
    schema = directory.schema
    layout = schema.layout or "none yet"
    rows = f"{layout}, {schema.features:,} features"
    if schema.names:
        rows += f" ({_shortened_list(schema.names, 20)})"
    labels = "none"
    if schema.labels:
        labels = f"{len(schema.labels)}: {_shortened_list(sorted(schema.labels), 50)}"
    # `schema.weighted` is None before the first batch.
    weights = {None: "none yet", True: "yes", False: "no"}

    yield "<h2>The stream</h2>" + _html_key_value_table(
        ("log", f"positions {directory.log.first} to {directory.position}, {directory.rows:,} rows"),
        ("rows", rows),
        ("targets", schema.target_kind or "none yet"),
        ("labels", labels),
        ("weights", weights[schema.weighted]),
    )


def _shortened_list(values: Sequence[object], max_values: int) -> str:
    text = ", ".join(map(str, values[:max_values]))
    if len(values) > max_values:
        text += " …"
    return text


def _model_section(directory: Directory, model: Model) -> Iterator[str]:
    """Yield the HTML of a model's heading and table."""
    # "lag" is the number of events of the log that the model has not learned. "stale_rows" is the
    # number of learned rows that the published version does not include.
    described = model.describe(directory.position)
    params = ", ".join(f"{name}={value!r}" for name, value in described["params"].items())
    solution = described["solution"] or "no solution"

    table_rows = [
        ("method", f"{described['estimator']}({params})"),
        ("state", f"{described['state']}, {described['lag']} events behind the log"),
        ("rows", f"{described['rows']:,} learned, {described['rows_skipped']:,} without a target left out"),
        ("published", f"version {described['version']}, {described['components']} components, {solution}"),
        ("not in it", f"{described['stale_rows']:,} rows"),
        ("state's size", f"{described['bytes']:,} bytes"),
    ]
    failure = model.failure
    if failure is not None:
        table_rows.append(("failed", f"at position {failure.position} ({failure.code}): {failure.message}"))
    yield f"<h2>{escape(model.name)}</h2>" + _html_key_value_table(*table_rows)
    sentences = model_uncertainty_sentences(model)
    if sentences:
        yield f"<p>{' '.join(sentences)}</p>"


def _html_key_value_table(*rows: tuple[str, object]) -> str:
    """Return the HTML of a table of pairs (name, value)."""
    cells = (f"<tr><th scope=row>{name}<td>{escape(str(value))}" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _figure_section(kind: str, figure: go.Figure) -> Iterator[str]:
    """Yield the HTML of a figure and its explanation.

    If the figure is empty, only the reason is yielded.

    kind: kind of the figure, a key of HOW.
    """
    # An empty figure has its reason as an annotation.
    if not figure.data:
        yield f"<p class=how>{escape(kind)}: {figure.layout.annotations[0].text}</p>"
        return
    # Remove plotly's template of 7 kB from each figure, because the page sets its own colours.
    figure.layout.template = {}
    yield figure.to_html(full_html=False, include_plotlyjs=False, default_height="420px", config={"responsive": True})
    yield f"<p class=how>{HOW[kind]}</p>"
