"""Commands that compare methods before a directory has any."""

import csv
import io
import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dr.batch.rows import Source
from stream_dr.commands.learn import print_column_kinds
from stream_dr.commands.output import ProgressBar, print_result, say
from stream_dr.commands.reading import (
    AsClasses,
    ReadOptions,
    add_file_options,
    add_table_options,
    first_table_block,
    refuse_unlikely_labels,
)
from stream_dr.commands.specs import (
    ModelSpecs,
    SkipDamaged,
    Sources,
    complete_specs,
    format_spec,
    parse_model_specs,
    path_or_uri,
)

if TYPE_CHECKING:
    from stream_dr.evaluation.comparison import Comparison
    from stream_dr.evaluation.test_then_train import EvaluateSettings, Point, Score


EvaluatedModels = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        "--model",
        metavar="NAME=KEY[:param=value,…]",
        help="Name and estimator of a model. May be repeated.",
    ),
]
SampledRows = Annotated[int, typer.Option(min=2, help="Number of sampled rows that the classifiers are fitted on.")]
CurveFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the accuracy on each batch to this .csv file.")
]
FirstRows = Annotated[
    int, typer.Option(min=1, help="Number of rows learned before the first test, rounded up to whole batches.")
]
TestSources = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="SRC",
        parser=path_or_uri,
        help="Test with these rows, after all rows of SRC are learned. May be repeated.",
    ),
]


@add_table_options
def evaluate(
    sources: Sources,
    read_as: ReadOptions,
    models: EvaluatedModels = None,
    probes: Annotated[str, typer.Option(help="Classifiers, separated by commas.")] = "mean,knn,linear",
    full: Annotated[bool, typer.Option("--full", help="Also classify the rows without a projection.")] = False,
    reservoir: SampledRows = 2_000,
    neighbours: Annotated[int, typer.Option(min=1, help="Number of neighbours of knn.")] = 5,
    first: FirstRows = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample and of --shuffle.")] = 0,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Use the rows in random order. All rows are held in memory.")
    ] = False,
    test: TestSources = None,
    curve: CurveFile = None,
    skip_damaged: SkipDamaged = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Test models on each batch before they learn it.

    Each model projects the rows, and small classifiers predict the labels of the projected rows.
    The command prints the accuracy, micro F1 and macro F1 of each model and classifier. If rows
    have several labels, it also prints the area under the ROC curve (AUC), averaged over labels.
    The accuracy is then of rows, and counts a row only if all its labels are right. F1 is of
    labels. A model whose accuracy is not two standard errors above the share of the most frequent
    label is called no better than this label. Nothing is stored.

    The line "no change" always predicts the label of the previous row. Its score is high if rows
    with the same label arrive one after the other. Tables are read as in `learn`. Files of several
    formats are read as one stream.

        stream-dr evaluate shards/ --models lda=lda:gamma=1.0 --full
        stream-dr evaluate shards/ --models lda=lda --models pca=ccipca:n_components=20
    """
    from stream_dr.evaluation.test_then_train import EvaluateSettings

    specs = parse_model_specs(models)
    if not specs and not full:
        raise typer.BadParameter("name at least one model with --models NAME=KEY, or --full.", param_hint="--models")

    classifiers = tuple(filter(None, map(str.strip, probes.split(","))))
    # A model is solved again when the number of learned rows has grown by the factor 1.2.
    settings = EvaluateSettings(first, 1.2, reservoir, neighbours, classifiers, full, seed, baseline=True)
    settings.check()
    test = test or []
    read_as.refuse_unsupported_options([*sources, *test])

    if curve is not None and not curve.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {curve.parent}; make it first.", param_hint="--curve")

    read_as, specs = _map_tables(read_as, [*sources, *test], specs)
    source = read_as.open_as_one_source(sources, skip_damaged)
    test_source = read_as.open_as_one_source(test, skip_damaged) if test else None
    points: list[Point] = []
    scores = _evaluate(source, test_source, shuffle, specs, settings, points.append)
    if curve is not None:
        _write_points(curve, points)

    _print_warnings(scores, first, shuffle)
    _print_scores(scores, as_json)


def _map_tables(read_as: ReadOptions, sources: list[Path], specs: ModelSpecs) -> tuple[ReadOptions, ModelSpecs]:
    """Return options and specs for tables, if the sources are tables.

    Each model then gets a feature map, which encodes columns as numbers. The columns are then read
    unchanged (`raw`). If no source is a table, `read_as` and `specs` are returned unchanged.
    """
    files = read_as.open_all_but_shards(sources)
    first = first_table_block(files)
    if first is None:
        return read_as, specs
    feature_map = read_as.suggest_map_spec(files)
    specs = complete_specs(specs, first, feature_map, read_as.table_map_spec())
    print_column_kinds(files, feature_map)
    return read_as.with_options(raw=True), specs


def _evaluate(
    source: Source,
    test: Source | None,
    shuffle: bool,
    specs: ModelSpecs,
    settings: "EvaluateSettings",
    on_point: "Callable[[Point], object]",
) -> list["Score"]:
    """Test models on each batch before they learn it, and return scores.

    source: rows to learn.
    test: rows to test instead of the learned rows, or None.
    shuffle: True to use the rows of `source` in random order.
    on_point: function that gets the accuracy of each model on each batch.
    """
    from stream_dr.estimators import make
    from stream_dr.evaluation.test_then_train import ShuffledSource, evaluate
    from stream_dr.running.warm_up import warm_up

    models = {name: make(key, params) for name, key, params in specs}
    # Compile numba functions first, so that the progress bar does not count the compilation. Those
    # for JSON rows are not needed. The number of rows is known only for shards.
    warm_up(models.values(), say, json=False)
    with ProgressBar("evaluate", getattr(source, "rows", 0)) as bar:
        stream = ShuffledSource(source, settings.seed) if shuffle else source
        return evaluate(stream, models, settings, bar.show, test, on_point)


def _print_scores(scores: list["Score"], as_json: bool) -> None:
    """Print the scores as a table, or as a JSON list.

    The figures of a score, such as the accuracy, are in the JSON twice: as fields of the score, and
    together in the field "figures".
    """
    if as_json:
        described = []
        for score in scores:
            figures: dict[str, float | None] = {}
            for name, value in score.figures.items():
                figures[name] = value
                # JSON has no NaN. A score is NaN if no rows were tested.
                if math.isnan(value):
                    figures[name] = None
            described.append({**score._asdict(), "figures": figures, **figures})
        print_result(json.dumps(described))
        return

    # Scores have an AUC if rows have several labels. The accuracy then counts a row only if all its
    # labels are right.
    head = "accuracy of rows" if "auc" in scores[0].figures else "accuracy"
    print_result(f"{'model':<16} {'classifier':<10} components  {head}  micro F1  macro F1     AUC      rows")
    for score in scores:
        print_result(_score_line(score, len(head)))


def _score_line(score: "Score", accuracy_width: int) -> str:
    """Return the line of one model and classifier in the table of scores.

    accuracy_width: number of characters of the accuracy's column.
    """
    from stream_dr.evaluation.scores import weakness

    figures = score.figures
    rows = int(figures["rows"])
    accuracy = f"{figures['accuracy']:{accuracy_width}.4f}"
    f1 = f"{figures['micro_f1']:9.4f} {figures['macro_f1']:9.4f}"
    auc = "-"
    if "auc" in figures:
        auc = f"{figures['auc']:.4f}"

    # `most_frequent` is the accuracy of always predicting the most frequent label. `weak` says in
    # words if the accuracy is not better, and is "" otherwise.
    weak = ""
    if rows and "most_frequent" in figures:
        weak = weakness(figures["accuracy"], rows, figures["most_frequent"])
    line = f"{score.model:<16} {score.probe:<10} {score.components:>10}  {accuracy} {f1} {auc:>7} {rows:>9}  {weak}"
    return line.rstrip()


def _print_warnings(scores: list["Score"], first: int, shuffled: bool) -> None:
    """Print warnings about the meaning of the scores.

    Rows seem sorted by label if the label changes from one row to the next less than a tenth as
    often as it would in random order.

    first: option --first, the number of rows to learn before the first test.
    shuffled: True if the rows were used in random order. They are not sorted then.
    """
    # The last score is of the baseline "no change", which predicts the label of the row before.
    baseline = scores[-1].figures
    unlabelled = baseline["unlabelled"]
    if unlabelled:
        say(f"note: {unlabelled} rows have no label, and are left out.")

    if not shuffled and "unchanged" in baseline:
        # Shares of the rows with the label of the row before: as they are, and in random order.
        unchanged = baseline["unchanged"]
        by_chance = baseline["by_chance"]
        if 1 - unchanged < 0.1 * (1 - by_chance):
            share = f"{unchanged:.1%} of rows have the label of the row before"
            say(
                f"warning (labels_sorted): {share}, and {by_chance:.1%} would in random order. Figures are of rows unlike "
                "those learned; --shuffle tests them in random order."
            )
    if not any(score.figures["rows"] for score in scores):
        say(
            f"warning (nothing_tested): all rows came in batches that --first={first} learns before the first test; "
            "give a smaller --first, or smaller batches (convert --rows-per-batch)."
        )


def _write_points(csv_path: Path, points: list["Point"]) -> None:
    """Write the points of learning curves to a CSV file."""
    from stream_dr.disk import write_atomically
    from stream_dr.evaluation.test_then_train import Point

    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(Point._fields)
    lines.writerows(points)
    write_atomically(csv_path, lambda file: file.write(text.getvalue().encode()))


@add_file_options
def suggest(
    ctx: typer.Context,
    sources: Sources,
    read_as: ReadOptions,
    as_classes: AsClasses = False,
    time: Annotated[
        bool, typer.Option("--time", help="Hold out the last rows of the file instead of random rows.")
    ] = False,
) -> None:
    """Compare methods on a file, and print the best command.

    The printed command uses the best method. No command is printed if the best method is no better
    than the most frequent label: its accuracy is not two standard errors higher.

    The methods are fitted on a random sample of the file and scored by cross-validation. The score
    is the accuracy if the targets are labels, and R2 if the targets are numbers. The number after
    +- is the standard deviation over the folds.

    Three baselines are scored too:

    - scikit-learn's linear classifier or linear regression,
    - this linear method on ten principal components,
    - the most frequent label, or the mean of the numbers.

    A method that cannot predict is scored by the linear method on its projected rows. The sample
    has at most 20,000 rows and 64 MiB. No further method is fitted after 60 seconds.

        stream-dr suggest data.csv --label y
    """
    from stream_dr.evaluation.comparison import suggest as compare

    read_as.refuse_unsupported_options(sources)
    if not as_classes:
        read_as = read_as.read_fractional_labels(sources)
    files = read_as.open_all_but_shards(sources)

    # If a column looks like ids, do not use it as a feature.
    column = read_as.likely_id_column(files)
    if column is not None:
        say(f"note: {column} looks like an id, by which rows can be unlearned; it is taken for one and for no feature.")
        read_as = read_as.with_options(id=column)
    if not as_classes:
        refuse_unlikely_labels(files, ctx.obj)

    source = read_as.open_as_one_source(sources)
    target = "class" if as_classes else "auto"
    with ProgressBar("suggest") as bar:
        # The column of ids may be known only now, so open the files again.
        feature_map = read_as.suggest_map_spec(read_as.open_all_but_shards(sources))

        def show(title: str, n_done: int, total: int | None) -> None:
            bar.show(n_done, total, title=title)

        comparison = compare(source, target=target, time=time, feature_map=feature_map, progress=show)
    print_result(str(comparison))

    _propose_learn(comparison, column, ctx.obj)


def _propose_learn(comparison: "Comparison", id_column: str | None, arguments: list[str]) -> None:
    """Print a command line of `stream-dr learn` that uses the best method.

    It has the files and options with which the user has called `stream-dr suggest`.

    id_column: column that this command has taken for ids without the option --id, or None.
    arguments: arguments of this process.
    """
    # `lines` are the results, highest score first. The note says, for example, that the method is
    # not better than the most frequent label.
    best = comparison.best
    if best is None:
        top = comparison.lines[0]
        say(f"no method is proposed: {top.method} is {comparison.weakness(top)}.")
        return
    # Replace the word "suggest" by "learn". `learn` has no option --time, which says here which
    # rows are held out.
    start = arguments.index("suggest")
    learn = [*arguments[:start], "learn"]
    learn += [word for word in arguments[start + 1 :] if word != "--time"]
    if id_column is not None:
        learn += ["--id", id_column]
    # The proposed model has the key of its estimator as name, too.
    spec = format_spec(name=best.key, key=best.key, params=best.params)
    learn += ["--dir", "D", "--model", spec]
    say("the best of the methods, learned from all rows into the directory D:")
    print_result(f"stream-dr {shlex.join(learn)}")
