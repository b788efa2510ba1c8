"""`stream-dr evaluate`: test-then-train over shards."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, result, say
from stream_dr.commands.specs import SkipDamaged, parse_spec


def evaluate(
    sources: Annotated[list[Path], typer.Argument(metavar="SRC…", help="Shards, or folders of them.")],
    models: Annotated[
        list[str] | None,
        typer.Option("--models", "--model", metavar="NAME=KEY[:param=value,…]", help="A model; several times."),
    ] = None,
    probes: Annotated[str, typer.Option(help="Classifiers, by comma: mean, knn, linear.")] = "mean,knn,linear",
    full: Annotated[bool, typer.Option("--full", help="Also classify the rows themselves, unprojected.")] = False,
    reservoir: Annotated[int, typer.Option(min=2, help="Rows sampled, on which classifiers are fitted.")] = 2_000,
    neighbours: Annotated[int, typer.Option(min=1, help="Neighbours of knn.")] = 5,
    first: Annotated[int, typer.Option(min=1, help="Rows learned before the first test, whole batches.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample.")] = 0,
    skip_damaged: SkipDamaged = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Test each batch with what was learned before it, then learn it; print one line a model and classifier.

    accuracy, micro F1, macro F1; for several labels a row also the area under the ROC curve, averaged over labels, and
    accuracy means all labels of a row right. Figures are in the order of the stream; nothing is kept.

        stream-dr evaluate shards/ --models lda=lda:gamma=1.0 --models pca=ccipca:n_components=20 --full
    """
    from stream_dr.estimators import make
    from stream_dr.evaluation.test_then_train import EvaluateSettings
    from stream_dr.evaluation.test_then_train import evaluate as run
    from stream_dr.shards.dataset import open_dataset

    made = {name: make(key, params) for name, key, params in (parse_spec(text) for text in models or [])}
    if not made and not full:
        raise typer.BadParameter("name at least one model with --models NAME=KEY, or --full.", param_hint="--models")
    dataset = open_dataset(list(sources), skip_damaged=skip_damaged)
    for text in dataset.skipped:
        say(f"skipped: {text}")
    chosen = tuple(name.strip() for name in probes.split(",") if name.strip())
    settings = EvaluateSettings(
        first=first, reservoir=reservoir, neighbours=neighbours, probes=chosen, full=full, seed=seed
    )
    with Bar("evaluate", dataset.rows) as bar:
        scores = run(dataset, made, settings, lambda rows: bar.show(rows, dataset.rows))
    if not any(s.figures["rows"] for s in scores):
        say(
            f"warning (nothing_tested): all {dataset.rows} rows came in batches that --first={first} learns before the "
            "first test; give a smaller --first, or smaller batches (convert --rows-per-batch)."
        )
    if as_json:
        result(json.dumps([{**s._asdict(), "figures": _in_json(s.figures), **_in_json(s.figures)} for s in scores]))
        return
    result(f"{'model':<16} {'classifier':<10} components  accuracy  micro F1  macro F1     AUC      rows")
    for s in scores:
        f = s.figures
        auc = f"{f['auc']:7.4f}" if "auc" in f else f"{'-':>7}"
        result(
            f"{s.model:<16} {s.probe:<10} {s.components:>10} {f['accuracy']:9.4f} {f['micro_f1']:9.4f} {f['macro_f1']:9.4f} "
            f"{auc} {int(f['rows']):>9}"
        )


def _in_json(figures: dict[str, float]) -> dict[str, float | None]:
    """Figures as JSON can say them: null for those that nothing was tested for."""
    return {name: None if math.isnan(value) else value for name, value in figures.items()}
