"""Replay shards into a directory, with progress and a report.

The commands `replay` and `learn` share this module.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_dr.aliases import JsonDict
from stream_dr.commands.output import ProgressBar, print_result, say
from stream_dr.commands.refine import refine_and_print
from stream_dr.commands.specs import ModelSpecs, add_model
from stream_dr.errors import CannotRefine, InvalidParameter, NeedsRefine, StreamDRError
from stream_dr.shards.uri import RemotePath

if TYPE_CHECKING:
    from stream_dr.directory.directory import Directory
    from stream_dr.distributed.parts import PlanRunner
    from stream_dr.models.model import Model
    from stream_dr.running.replay import ReplayReport, ReplaySettings
    from stream_dr.shards.dataset import Dataset, Shard

_REFINE_OPTIONS: JsonDict = {"tol": 1e-3, "max_passes": 20}
"""Options with which `learn` refines models: tolerance and maximum number of passes."""

ALLOWED_LABELS = "STREAM_DR_ALLOWED_LABELS"
"""Environment variable with the labels that batches may have."""


def replay_and_report(
    dir: Path,
    dataset: "Dataset",
    specs: ModelSpecs,
    settings: "ReplaySettings",
    out: Path | None = None,
    plan_runner: "PlanRunner | None" = None,
    refine_if_better: bool = False,
) -> None:
    """Let a directory's models learn shards, and print a report.

    Parameters
    ----------
    dir : Path
        Path of the directory.
    dataset : Dataset
        The shards.
    specs : ModelSpecs
        Models to add first.
    settings : ReplaySettings
        Number of passes, tests and so on.
    out : Path or None
        File for the rows, as the first model of `specs` (or else of the directory) projects them.
    plan_runner : PlanRunner or None
        Function that runs tasks in parallel, in threads or on a cluster. None: the batches are
        learned one after the other.
    refine_if_better : bool
        True to refine models that have an approximate solution, if this raises their score.
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.distributed.distributed_replay import replay_in_parallel_tasks
    from stream_dr.running.replay import Progress
    from stream_dr.running.replay import replay as run
    from stream_dr.running.warm_up import warm_up

    _print_repeated_shards(dataset)
    opened = Directory(dir, n_features=dataset.n_features, allowed_labels=_allowed_labels_from_environment())
    with opened as directory, _add_models_or_undo(directory, specs):
        # Compile numba functions first. Otherwise the progress bar would count this time.
        warm_up([model.estimator for model in directory.models.values()], say, json=False)
        with ProgressBar("replay", dataset.rows) as bar:

            def show_replay(p: Progress) -> None:
                note = f"{p.shards} of {p.total_shards} shards{_rows_per_second_text(directory)}"
                bar.show(p.rows, p.total_rows, note, p.phase)

            run_replay = run if plan_runner is None else partial(replay_in_parallel_tasks, plan_runner)
            report = run_replay(directory, dataset, settings, show_replay)

        _print_replay_report(directory, report)
        if settings.test and report.rows:
            _print_test_scores(directory)
        if refine_if_better:
            _refine_where_it_helps(directory, dataset)
        if out is not None:
            name = specs[0].name if specs else next(iter(directory.models))
            _project_into(out, directory, directory.model(name), dataset)


def _print_repeated_shards(dataset: "Dataset") -> None:
    first: dict[str, Shard] = {}
    for shard in dataset.shards:
        original = first.setdefault(shard.sha256, shard)
        if original is not shard:
            say(f"note: {shard.path} has the same bytes as {original.path}, and counts once.")


def _project_into(out: Path, directory: "Directory", model: "Model", dataset: "Dataset") -> None:
    from stream_dr.running.query import project

    with ProgressBar("transform", dataset.rows) as bar:
        rows, _ = project(directory, model, dataset, out, lambda n: bar.show(n, dataset.rows))
    print_result(f"{rows} rows projected by {model.name} written to {out}")


def _print_replay_report(directory: "Directory", report: "ReplayReport") -> None:
    for text in report.skipped:
        say(f"skipped: {text}")
    if report.columns_missing:
        say(f"note: columns that some rows do not have are taken as missing: {', '.join(report.columns_missing)}")

    rows = f"{report.rows} rows of {report.events} batches appended and learned, {report.caught_up} caught up"
    rate = f"{report.rows / max(report.seconds, 1e-9):,.0f} rows/s"
    print_result(f"{rows}, in {report.seconds:.2f} s ({rate}); position {directory.position}")
    for name, model in directory.models.items():
        print_result(f"{name}: {model.rows} rows, position {model.position}, {model.spec.estimator}")
        if model.rows_skipped:
            say(f"note: {name} did not learn {model.rows_skipped} rows that have no label.")
        if model.rows and model.published and not model.published.projection.n_components:
            say(f"note: {name} has no component yet: {model.estimator.limit}.")


def _print_test_scores(directory: "Directory") -> None:
    """Print each model's score on rows not learned yet."""
    tested = directory.records.last_scores_by_model_id()
    rows = ""
    if directory.schema.target_kind == "multilabel":
        rows = " of rows, by one of their labels"
    for name, model in directory.models.items():
        scores = tested.get(model.id)
        if scores is None:
            continue

        # Only models of numeric targets have no accuracy.
        if scores.get("accuracy") is None:
            score = f"R² {scores['r2']:.3f} (least squares on the components)"
            baselines = f"the row before {scores['baseline']:.3f}"
        else:
            score = f"accuracy {scores['accuracy']:.3f} ± {scores['error']:.3f}{rows} (nearest class mean)"
            baselines = f"the label of the row before {scores['baseline']:.3f}, the most frequent label "
            baselines += f"{scores['most_frequent']:.3f}"
            if scores["weakness"]:
                baselines += f". {name} is {scores['weakness']}"

        say(f"note: {name} on {scores['tested']:,} rows that it had not learned: {score}; {baselines}.")


def _refine_where_it_helps(directory: "Directory", dataset: "Dataset") -> None:
    """Refine models that have only an approximate solution.

    A model's solution is approximate if the model stores only the diagonal of the scatter matrix.
    Refining computes the exact solution of such a model by further passes over the rows.

    - Models with the parameter scatter="diagonal" are not refined, because their user has chosen
      the approximate solution. Other models may use the diagonal because of many features.
    - Models that predict are refined only if this raises their score on held-out rows.
    - Models that do not predict, or have no solution yet, are refined without a score.
    - If shards are in an object store, no model is refined. A message shows the command that
      refines the model.
    """
    from stream_dr.running.refine import publish_unrefined_again_and_snapshot

    for name, model in directory.models.items():
        # A refined solution is approximate, too, if the model has learned rows since the refine.
        solution = model.published.projection.solution if model.published else ""
        unsolved = isinstance(model.solving.error, NeedsRefine)
        approximate = unsolved or solution == "diagonal" or (solution == "refined" and model.stale_rows)
        if not approximate or model.spec.params.get("scatter") == "diagonal":
            continue
        if any(isinstance(shard.path, RemotePath) for shard in dataset.shards):
            say(f"note: {name} is solved from the diagonal; stream-dr refine {directory.path} --model {name} is exact.")
            continue

        try:
            if unsolved or not hasattr(model.estimator, "predict") or _refining_helps(directory, model):
                refine_and_print(directory, model, **_REFINE_OPTIONS)
            elif solution == "refined":
                publish_unrefined_again_and_snapshot(directory, model)
        except CannotRefine as e:
            say(f"note: {name} is not refined: {e}")


def _refining_helps(directory: "Directory", model: "Model") -> bool:
    """True if refining a model raises its held-out score.

    The scores before and after refining are printed. The model is not changed.
    """
    from stream_dr.running.refine import held_out_scores_before_and_after

    before, after = held_out_scores_before_and_after(directory, model, **_REFINE_OPTIONS)
    helps = after > before
    scores = f"{before:.3f} from the diagonal, of {after:.3f} refined"
    outcome = "is refined" if helps else "stays as it is"
    if directory.schema.target_kind == "multilabel":
        scores += " (share of rows with all labels right)"
    say(
        f"{model.name}: a random tenth of the rows, held out, is predicted with a score of {scores}. The model {outcome}."
    )
    return helps


def _rows_per_second_text(directory: "Directory") -> str:
    """Return each model's rows per second, for the progress bar."""
    times = {name: model.learning_time for name, model in directory.models.items()}
    return "".join(f", {name} {time.rows_per_second:,.0f}/s" for name, time in times.items() if time.rows)


def _allowed_labels_from_environment() -> list[Any] | None:
    """Return the labels in the environment variable STREAM_DR_ALLOWED_LABELS.

    None if the variable is not set. The service reads the variable, too. Raises InvalidParameter
    if the value is not a JSON list.
    """
    text = os.environ.get(ALLOWED_LABELS)
    if not text:
        return None
    try:
        labels = json.loads(text)
    except ValueError:
        labels = None
    if not isinstance(labels, list):
        raise InvalidParameter(f'{ALLOWED_LABELS}={text!r}; it must be a JSON list of labels, such as ["a", "b"].')
    return labels


@contextmanager
def _add_models_or_undo(directory: "Directory", specs: ModelSpecs) -> Iterator[None]:
    """Add models, and remove them if the with-block fails.

    The with-block fails if it raises a StreamDRError. Even then, a model stays in these cases:

    - The directory had the model before.
    - The model has learned an event.
    - The model has failed.
    """
    added = []
    try:
        for name, key, params in specs:
            model, is_new = add_model(directory, name, key, params)
            added += [model] if is_new else []
        yield
    except StreamDRError:
        for model in added:
            if model.position < model.start and model.failure is None:
                directory.remove_model(model.name)
        raise
