"""Report: an HTML page on the models of a directory.

The page has all figures of the models, and tables of their state. The page is one file, which can
be read without a network.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.directory.newest import newest_rows
from stream_dr.disk import write_atomically
from stream_dr.models.model import Model
from stream_dr.plotting.directory_figures import (
    KINDS,
    OF_ALL,
    FigureOptions,
    draw_directory_figure,
    is_figure_on_page,
    model_uncertainty_sentences,
)
from stream_dr.plotting.record_figures import best_models, score_or_minus_infinity

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
    newest = newest_rows(directory, max_rows)
    records = directory.records.read()
    options = FigureOptions(max_rows)

    # Yield the head of the page, the summary, and the figures of all models.
    yield "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    yield f"<title>stream_dr: {escape(directory.path.name)}</title><style>{_STYLE}</style>"
    yield f"<script>{get_plotlyjs()}</script></head><body><h1>{escape(directory.path.name)}</h1>"
    yield from _summary_section(directory, records)
    yield from _stream_section(directory)

    for kind in OF_ALL:
        yield from _figure_section(kind, draw_directory_figure(directory, kind, records=records))

    # Yield a section for each model.
    for number, model in enumerate(_models_by_score(directory)):
        on_progress(number, len(directory.models))
        yield from _model_section(directory, model)
        for kind in KINDS:
            if kind not in OF_ALL and is_figure_on_page(kind, model):
                figure = draw_directory_figure(directory, kind, model, options, newest, records)
                yield from _figure_section(kind, figure)
    yield f"<script>{_DARK}</script></body></html>\n"


def _summary_section(directory: Directory, records: list[JsonDict]) -> Iterator[str]:
    """Yield the HTML of the summary.

    The summary is a sentence on the best models, one on each model that is no better than the most
    frequent label, and a table of all models. The model with the best
    score is in the first row of the table.

    records: records of the directory, oldest first.
    """
    # A sentence on the best models.
    tested = directory.records.last_scores_by_model_id()
    best = best_models(records, directory.models.keys())
    if best is not None:
        scores = tested.get(directory.models[best.models[0]].id, {})
        names = " and ".join(f"<b>{escape(name)}</b>" for name in best.models)
        verb = "is best" if len(best.models) == 1 else "are best, within two standard errors"
        score = f"{_accuracy_or_r2_text(scores)} on {scores.get('tested', 0):,} rows before they were learned"
        yield f"<p>{names} {verb}, since {_utc_text(best.since)}: {score}. "
        yield f"{directory.rows:,} rows, {len(directory.schema.labels):,} labels.</p>"

    for model in _models_by_score(directory):
        if weakness := tested.get(model.id, {}).get("weakness"):
            yield f"<p><b>{escape(model.name)}</b> is {weakness}.</p>"

    # A table of all models.
    scores_heads = ("accuracy", "previous label", "most frequent label", "rows tested", "tested at")
    heads = ("model", *scores_heads, "method", "rows", "components", "solution", "state")
    yield "<table><tr>" + "".join(f"<th scope=col>{head}" for head in heads)
    for model in _models_by_score(directory):
        described = model.describe(directory.position)
        scores = tested.get(model.id, {})
        baselines = [_baseline_score_text(scores.get(name), scores) for name in ("baseline", "most_frequent")]
        when = (f"{scores['tested']:,}", _utc_text(scores["tested_at"])) if scores else ("–", "–")
        rows = f"{described['rows']:,}"
        solution = (described["components"], described["solution"] or "–", described["state"].replace("_", " "))
        cells = (model.name, _accuracy_or_r2_text(scores), *baselines, *when, described["estimator"], rows, *solution)
        yield "<tr>" + "".join(f"<td>{escape(str(cell))}" for cell in cells)
    yield "</table>"


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


def _baseline_score_text(value: float | None, scores: JsonDict) -> str:
    """Return a baseline's score as text.

    The text is "–" if there is no score.

    scores: scores of the model, which show if the score is an accuracy or R².
    """
    if value is None:
        return "–"
    return f"{value:.1%}" if "accuracy" in scores else f"{value:.3f}"


def _utc_text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _models_by_score(directory: Directory) -> list[Model]:
    """Return the models sorted by their last scores.

    The model with the best score comes first. Models that were not tested come last.
    """
    tested = directory.records.last_scores_by_model_id()
    return sorted(directory.models.values(), key=lambda m: -score_or_minus_infinity(tested.get(m.id, {})))


def _stream_section(directory: Directory) -> Iterator[str]:
    """Yield the HTML of the section on the stream.

    The section is a table of the stream's log and schema.
    """
    schema = directory.schema
    names = f" ({', '.join(schema.names[:20])}{' …' if len(schema.names) > 20 else ''})" if schema.names else ""
    labels = ", ".join(map(str, sorted(schema.labels)[:50])) + (" …" if len(schema.labels) > 50 else "")
    yield "<h2>The stream</h2>" + _html_key_value_table(
        ("log", f"positions {directory.log.first} to {directory.position}, {directory.rows:,} rows"),
        ("rows", f"{schema.layout or 'none yet'}, {schema.features:,} features{names}"),
        ("targets", schema.target_kind or "none yet"),
        ("labels", f"{len(schema.labels)}: {labels}" if schema.labels else "none"),
        ("weights", {None: "none yet", True: "yes", False: "no"}[schema.weighted]),
    )


def _model_section(directory: Directory, model: Model) -> Iterator[str]:
    """Yield the HTML of a model's heading and table."""
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
    if (failure := model.failure) is not None:
        table_rows.append(("failed", f"at position {failure.position} ({failure.code}): {failure.message}"))
    yield f"<h2>{escape(model.name)}</h2>" + _html_key_value_table(*table_rows)
    if sentences := model_uncertainty_sentences(model):
        yield f"<p>{' '.join(sentences)}</p>"


def _html_key_value_table(*rows: tuple[str, object]) -> str:
    """Return the HTML of a table of names and values.

    rows: pairs (name, value).
    """
    cells = (f"<tr><th scope=row>{name}<td>{escape(str(value))}" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _figure_section(kind: str, figure: go.Figure) -> Iterator[str]:
    """Yield the HTML of a figure and its explanation.

    If the figure is empty, only the reason is yielded.

    kind: kind of the figure, a key of HOW.
    """
    if not figure.data:
        yield f"<p class=how>{escape(kind)}: {figure.layout.annotations[0].text}</p>"
        return
    # Remove plotly's template of 7 kB from each figure, because the page sets its own colours.
    figure.layout.template = {}
    yield figure.to_html(full_html=False, include_plotlyjs=False, default_height="420px", config={"responsive": True})
    yield f"<p class=how>{HOW[kind]}</p>"
