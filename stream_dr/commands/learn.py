"""Commands that let models learn: `learn`, `replay` and `refine`.

`learn` stores files as shards in a directory and replays them, with progress and a report.
`replay` replays shards, and `refine` computes a model's exact projection.
"""

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stream_dr.aliases import JsonDict
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
    AnyDir,
    Dir,
    Models,
    ModelSpecs,
    NamedSpec,
    SkipDamaged,
    Sources,
    add_model,
    check_model_specs,
    complete_specs,
    format_spec,
    has_models,
    parse_model_specs,
)
from stream_dr.disk import DirectoryLock, make_private_folder
from stream_dr.errors import CannotRefine, InvalidParameter, NeedsRefine, SchemaMismatch, StreamDRError
from stream_dr.shards.dataset import Dataset, Shard, open_dataset
from stream_dr.shards.file import RemotePath

if TYPE_CHECKING:
    from stream_dr.batch.block import Block
    from stream_dr.datasets.sources import FileSource
    from stream_dr.directory.directory import Directory
    from stream_dr.distributed.parts import PlanRunner
    from stream_dr.models.model import Model
    from stream_dr.running.replay import Progress, ReplayReport, ReplaySettings


Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="OUT", help="Also project the rows into this .parquet, .arrow, .csv or .npz file."
    ),
]
StoredName = Annotated[str | None, typer.Option(help="Name to store a single file under. Default: the file's name.")]


@add_table_options
def learn(
    ctx: typer.Context,
    sources: Sources,
    read_as: ReadOptions,
    dir: AnyDir = None,
    model: Models = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only print how each column is read. Nothing is learned.")
    ] = False,
    out: Out = None,
    name: StoredName = None,
    loops: Annotated[
        int, typer.Option(min=1, help="Total number of passes over the rows, including earlier runs.")
    ] = 1,
    as_classes: AsClasses = False,
) -> None:
    """Learn rows of files with the models of a directory.

    The command prints how it reads each column, stores the rows as shards in the directory, and
    lets the models learn them. If it was interrupted, the same command continues where it stopped.

    A feature map encodes a table's columns as numbers. A table of numbers needs no feature map. A
    table that has only prose gets feature_map=text. A table with words, dates or missing values
    gets feature_map=table, with the options --one-hot, --hash, --keep, --text, --as and --impute.

    If --model is not given and the directory has no model, the command chooses a model:

    - lda if each row has one label,
    - opls if rows have several labels, or numbers to predict, such as labels with a fraction,
    - pca if rows have no targets.

    A chosen lda or opls may get a ridge. The ridge is gamma=1 for sparse rows or feature_map=text,
    and gamma=20 for tables with a column of prose. lda of rows with 100 or more numbers gets
    shrinkage=.1. One pass over wide rows gives the chosen model only an approximate solution. The
    exact solution takes more passes. It is used if it predicts held-out rows (a random tenth)
    better.

        stream-dr learn data.csv --label y --dir D -o projected.parquet
        stream-dr learn texts.csv --label y --dir D --model lda=lda:feature_map=text
    """
    from stream_dr.running.replay import ReplaySettings

    _check_options(dir, check, out, name, sources, read_as)
    specs = parse_model_specs(model)
    read_as.refuse_unsupported_options(sources)
    if not as_classes:
        read_as = _fractional_label_options(read_as, sources)

    files = read_as.open_all_but_shards(sources)
    feature_map = read_as.suggest_map_spec(files)
    print_column_kinds(files, feature_map)
    _print_id_hint(read_as, files)
    if not as_classes:
        refuse_unlikely_labels(files, ctx.obj)

    if dir is not None and not check:
        if not specs and not has_models(dir):
            specs = [_choose_default_model(sources, files, feature_map)]
        settings = ReplaySettings(loops, test=True)
        store_and_learn_files(dir, sources, files, specs, read_as, settings, name, out, refine_if_better=not model)


def _check_options(
    dir: Path | None, check_only: bool, out: Path | None, name: str | None, sources: list[Path], read_as: ReadOptions
) -> None:
    """Raise an error if directory, output file or name are unusable.

    dir: path of the directory whose models will learn. None is allowed only if `check_only` is
        True.
    check_only: True if nothing will be learned.
    out: file for the projected rows, or None.
    name: name under which a single file is stored, or None.
    """
    from stream_dr.running.projected_file import check_output_path

    if dir is None and not check_only:
        raise typer.BadParameter("say which directory learns the rows.", param_hint="--dir")
    if out is not None:
        check_output_path(out)
    # The name is for the shards of one file. Sources that are shards already are not stored.
    if name is not None and (len(sources) != 1 or read_as.reads_as_shards(sources[0])):
        raise typer.BadParameter("one file is called so, and there are others.", param_hint="--name")


def _fractional_label_options(read_as: ReadOptions, sources: list[Path]) -> ReadOptions:
    """Return options that read fractional labels as numeric targets.

    If the label column has fractions, a message is printed. Otherwise `read_as` is returned.
    """
    numbers = read_as.read_fractional_labels(sources)
    if numbers is not read_as:
        y = read_as.options.label
        say(f"{y} has numbers with a fraction, to be predicted: --targets {y}. --as-classes takes them for labels.")
    return numbers


def _print_id_hint(read_as: ReadOptions, files: dict[Path, "FileSource"]) -> None:
    """Print a hint if a column looks like ids."""
    column = read_as.likely_id_column(files)
    if column is not None:
        option = shlex.quote(column)
        say(f"note: {column} looks like an id. With --id {option} its rows can be unlearned by it; else not.")


def _choose_default_model(
    sources: list[Path], files: dict[Path, "FileSource"], feature_map_spec: JsonDict
) -> NamedSpec:
    """Choose a model by the first rows, and print it to stderr.

    sources: files and shards to learn.
    files: the opened files among `sources`.
    feature_map_spec: parameters of the feature map that encodes the columns of the files.
    """
    from stream_dr.evaluation.comparison import default_estimator_spec
    from stream_dr.feature_maps.column_report import suitable_map_spec

    # Files are open already, and shards are opened here.
    if files:
        first = next(iter(files.values())).first
    else:
        first = next((block for _, block in open_dataset(sources).events()), None)
    if first is None:
        raise typer.BadParameter("the shards have no rows to choose a model by.", param_hint="--model")

    # A table in shards needs a feature map, which the model gets here. A model of files gets
    # `feature_map_spec` later, when the files are learned.
    if first.table and not files:
        feature_map_spec = suitable_map_spec(first.X, feature_map_spec)
        key, params = default_estimator_spec(first, feature_map_spec)
        params = {**params, "feature_map": feature_map_spec}
    else:
        key, params = default_estimator_spec(first, feature_map_spec)

    why = "`stream-dr suggest` compares it with others."
    if first.y is None:
        why = "The rows have no targets. Name their column with --label or --targets to predict it."
    say(f"no --model is named: --model {format_spec(key, key, params)} is taken. {why}")
    # The model has the key of its estimator as name, too.
    return NamedSpec(name=key, key_or_file=key, params=params)


def store_and_learn_files(
    dir: Path,
    sources: list[Path],
    files: dict[Path, "FileSource"],
    specs: ModelSpecs,
    read_as: ReadOptions,
    settings: "ReplaySettings",
    name: str | None = None,
    out: Path | None = None,
    refine_if_better: bool = False,
) -> None:
    """Store files as shards, and let models learn all sources.

    The shards are stored in the directory of the models.

    Parameters
    ----------
    dir : Path
        Path of the directory.
    sources : list of Path
        Files and shards, in the order in which they are learned.
    files : dict of Path to FileSource
        The opened files among `sources`, by path.
    specs : ModelSpecs
        Models to add first.
    read_as : ReadOptions
        Options that say how files are read.
    settings : ReplaySettings
        Settings of the replay that learns the rows, such as the number of passes.
    name : str or None
        Name under which a single file is stored. None: the file's name.
    out : Path or None
        File for the projected rows, or None.
    refine_if_better : bool
        True to compute exact solutions if they predict better than approximate solutions.
    """
    # Models that learn a table need a feature map. `first` is None if no file is a table.
    first = first_table_block(files)
    if first is not None:
        feature_map = read_as.suggest_map_spec(files)
        specs = complete_specs(specs, first, feature_map, read_as.table_map_spec())
    check_model_specs(specs)
    with _create_folder(dir):
        # `shards` has the folder of each file's shards. Sources that are shards stay in place.
        shards = _store_as_shards(dir, files, name)
        paths = [shards.get(path, path) for path in sources]
        dataset = open_dataset(paths, settings.skip_damaged)
        replay_files(dir, dataset, specs, settings, out, refine_if_better=refine_if_better)


def print_column_kinds(files: dict[Path, "FileSource"], feature_map_spec: JsonDict, with_hints: bool = True) -> None:
    """Print each column's inferred kind, such as number or date.

    files: opened files by path.
    feature_map_spec: parameters of the feature map that encodes the columns of tables.
    with_hints: True to print the command options that would change the kinds, too.

    Raises SchemaMismatch if a file has columns that cannot be learned. The error lists these
    columns.
    """
    from stream_dr.feature_maps.column_report import describe

    for path, source in files.items():
        # If the file has no rows, `source.first` is None and `source.blocks` raises an error.
        first = source.first or next(source.blocks())

        # `raw` is True if the file is a table, and False if all columns are numbers.
        if not source.raw:
            say(f"{path} ({source.format}): {_describe_numbers(first)}")
            continue
        report = describe(first.X, feature_map_spec)
        columns = []
        for column in report.columns:
            options: tuple[str, ...] = ()
            if with_hints and column.options:
                options = (" ".join(map(_command_option, column.options)),)
            columns.append(column._replace(options=options))
        # Problems are not printed here, because the error below lists them.
        shown = report._replace(columns=tuple(columns), problems=())
        say(f"{path} ({source.format}), by its first {first.rows} rows:\n{shown}")
        if report.problems:
            raise SchemaMismatch(f"{path}: {'; '.join(report.problems)}.")


def _describe_numbers(block: "Block") -> str:
    """Return a text on the columns and targets of rows of numbers."""
    text = "sparse" if block.sparse else "all numbers"
    if block.names:
        rest = " …" if len(block.names) > 8 else ""
        text += f": {', '.join(block.names[:8])}{rest}"
    kind = block.y.kind if block.y is not None else "no"
    return f"{block.features} features, {text}; {kind} targets"


def _command_option(name_and_json_value: str) -> str:
    """Convert a feature map's option to a command-line option.

    For example, as_={"age": "category"} becomes --as age=category, and drop=["age"] becomes
    --drop age.

    name_and_json_value: the option as NAME=JSON.
    """
    name, _, text = name_and_json_value.partition("=")
    value = json.loads(text)
    # The report on columns proposes each option for one column. So a dict or list has one entry.
    if isinstance(value, dict):
        value = [f"{column}={kind}" for column, kind in value.items()]
    if isinstance(value, list):
        value = value[0]
    option = name.rstrip("_").replace("_", "-")
    return f"--{option} {shlex.quote(str(value))}"


def _store_as_shards(dir: Path, files: dict[Path, "FileSource"], name: str | None) -> dict[Path, Path]:
    """Store files as shards in a directory, unless stored already.

    dir: path of the directory.
    files: opened files by path.
    name: name under which a single file is stored. None means the file's name.

    Returns the folder of each file's shards, by the file's path.
    """
    from stream_dr.directory.learned_sources import write_owned_shards

    # With the lock, no other process writes into the directory at the same time.
    folders = {}
    with DirectoryLock(dir), ProgressBar("read") as bar:
        for path, source in files.items():
            folders[path] = write_owned_shards(dir, source, name, bar.show)
    return folders


@contextmanager
def _create_folder(dir: Path) -> Iterator[None]:
    """Create the folder `dir`, and remove it on failure.

    The failure is an error in the with-block. The folder stays if it existed before, or if it has
    a log when the with-block fails.
    """
    existed = dir.exists()
    make_private_folder(dir)
    try:
        yield
    except BaseException:
        if not existed and not (dir / "log").exists():
            rmtree(dir)
        raise


SnapshotRows = Annotated[
    int | None, typer.Option(min=1, help="Write snapshots after this many rows, in addition to once a minute.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Learn parts of the shards in N threads, and merge the parts.")
]
Again = Annotated[
    bool,
    typer.Option("--again", help="Complete an unfinished pass, or else add a pass. It includes rows unlearned since."),
]


@add_file_options
def replay(
    sources: Sources,
    dir: Dir,
    read_as: ReadOptions,
    model: Models = None,
    snapshot_rows: SnapshotRows = None,
    loops: Annotated[
        int, typer.Option(min=1, help="Total number of passes over the shards, including earlier runs.")
    ] = 1,
    again: Again = False,
    shuffle_shards: Annotated[
        int | None, typer.Option(metavar="SEED", help="Seed to shuffle the order of the shards in each pass.")
    ] = None,
    skip_damaged: SkipDamaged = False,
    workers: Workers = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Learn on a Dask cluster. Needs the extra `distributed`."),
    ] = None,
) -> None:
    """Append shards to a directory's log, and let models learn.

    In the first pass, models are tested on some rows before they learn these rows. With --workers
    or --scheduler, models are not tested. The learned models then do not depend on the number of
    workers. They differ by rounding from models of a replay without workers.

    After an interruption, the same command continues the replay and ends with the same models. If
    the shards were moved in the meantime, give their new path. Files that are not shards are
    learned as in `learn`.

        stream-dr replay shards/ --model lda=lda:n_components=9 --dir D
        stream-dr replay shards/ --model lda=lda --model pca=ccipca:n_components=20 --dir D
    """
    from stream_dr.running.driver import RunSettings
    from stream_dr.running.replay import ReplaySettings

    specs = parse_model_specs(model)
    if workers is not None or scheduler is not None:
        read_as.refuse_other_than_shards(sources)
    read_as.refuse_unsupported_options(sources)

    # If a source is no shard, all sources are learned as `learn` does, and `dataset` stays None.
    dataset = None
    if all(map(read_as.reads_as_shards, sources)):
        dataset = open_dataset(sources, skip_damaged=skip_damaged)
    if not specs and not has_models(dir):
        raise typer.BadParameter(f"{dir} has no model yet; name one with --model NAME=KEY.", param_hint="--model")

    run = RunSettings(snapshot_rows=snapshot_rows)
    settings = ReplaySettings(loops, again, shuffle_shards, skip_damaged, run, test=True)
    if dataset is None:
        _learn_as_files(read_as, dir, sources, specs, settings)
        return
    replay_files(dir, dataset, specs, settings, plan_runner=_plan_runner(scheduler, workers))


def _plan_runner(scheduler: str | None, workers: int | None) -> "PlanRunner | None":
    """Return the function that runs tasks on a cluster or in threads.

    The result is None if neither is asked for. Batches are then learned one after the other.

    scheduler: address of a Dask scheduler, or None.
    workers: number of threads, or None.
    """
    if scheduler is not None:
        # Dask is an extra, and is loaded only if a cluster is used.
        from stream_dr.distributed.cluster import dask_plan_runner

        return dask_plan_runner(scheduler)
    if workers is not None:
        from stream_dr.distributed.parts import thread_plan_runner

        return thread_plan_runner(workers)
    return None


def _learn_as_files(
    read_as: ReadOptions, dir: Path, sources: list[Path], specs: ModelSpecs, settings: "ReplaySettings"
) -> None:
    """Store files as shards in the directory, and let its models learn them."""
    files = read_as.open_all_but_shards(sources)
    note = f"{', '.join(map(str, files))} hold no shards; they are learned as `stream-dr learn` does"
    say(f"note: {note}, which has more options for a table's columns.")
    print_column_kinds(files, read_as.suggest_map_spec(files), with_hints=False)
    store_and_learn_files(dir, sources, files, specs, read_as, settings)


_REFINE_OPTIONS: JsonDict = {"tol": 1e-3, "max_passes": 20}
"""Options with which `learn` refines models: tolerance and maximum number of passes."""

ALLOWED_LABELS = "STREAM_DR_ALLOWED_LABELS"
"""Environment variable with the labels that batches may have."""


def replay_files(
    dir: Path,
    dataset: Dataset,
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
        Function that runs tasks in parallel. None: the batches are learned one by one.
    refine_if_better : bool
        True to refine models that have an approximate solution, if this raises their score.
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.distributed.parts import replay_in_parallel_tasks
    from stream_dr.running.replay import replay as run
    from stream_dr.running.warm_up import warm_up

    _print_repeated_shards(dataset)
    opened = Directory(dir, n_features=dataset.n_features, allowed_labels=_allowed_labels_from_environment())
    with opened as directory, _add_models(directory, specs):
        # Compile numba functions first. Otherwise the progress bar would count this time.
        warm_up([model.estimator for model in directory.models.values()], say, json=False)
        with ProgressBar("replay", dataset.rows) as bar:
            # The replay calls this function after each step.
            def show_replay(p: "Progress") -> None:
                times = {name: model.learning_time for name, model in directory.models.items()}
                rates = "".join(f", {name} {time.rows_per_second:,.0f}/s" for name, time in times.items() if time.rows)
                bar.show(p.rows, p.total_rows, f"{p.shards} of {p.total_shards} shards{rates}", p.phase)

            run_replay = run
            if plan_runner is not None:
                run_replay = partial(replay_in_parallel_tasks, plan_runner)
            report = run_replay(directory, dataset, settings, show_replay)

        _print_replay_report(directory, report)
        if settings.test and report.rows:
            _print_test_scores(directory)
        if refine_if_better:
            _refine_where_it_helps(directory, dataset)
        if out is not None:
            name = next(iter(directory.models))
            if specs:
                name = specs[0].name
            _write_projected(directory, name, dataset, out)


def _write_projected(directory: "Directory", name: str, dataset: Dataset, out: Path) -> None:
    """Project rows by a model, and write them to a file."""
    from stream_dr.running.query import project

    with ProgressBar("transform", dataset.rows) as bar:
        rows, _ = project(directory, directory.model(name), dataset, out, bar.show)
    print_result(f"{rows} rows projected by {name} written to {out}")


def _print_repeated_shards(dataset: Dataset) -> None:
    """Print each shard that has the same bytes as an earlier shard."""
    # First shard with each checksum.
    first: dict[str, Shard] = {}
    for shard in dataset.shards:
        # `original` is the first shard that has this checksum.
        original = first.setdefault(shard.sha256, shard)
        if original is not shard:
            say(f"note: {shard.path} has the same bytes as {original.path}, and counts once.")


def _print_replay_report(directory: "Directory", report: "ReplayReport") -> None:
    """Print what a replay learned, and the state of each model.

    report: numbers of the replay. `caught_up` is the number of rows that were in the log before
        the replay, and that models learned at its start.
    """
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
        # `limit` says in words what limits the number of components.
        if model.rows and model.published and not model.published.projection.n_components:
            say(f"note: {name} has no component yet: {model.estimator.limit}.")


def _print_test_scores(directory: "Directory") -> None:
    """Print each model's score on rows not learned yet."""
    # The scores of each model's last test, by the id of the model. Models without rows to test
    # have no scores.
    tested = directory.records.newest_scores()
    rows = ""
    if directory.schema.target_kind == "multilabel":
        rows = " of rows, by one of their labels"
    for name, model in directory.models.items():
        scores = tested.get(model.id)
        if scores is None:
            continue

        # Only models of numeric targets have no accuracy. The baselines predict without a model.
        # A finished text is, for example: note: lda on 300 rows that it had not learned: accuracy
        # 0.957 ± 0.012 (nearest class mean); the label of the row before 0.323, the most frequent …
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


def _solution_state(model: "Model") -> str:
    """Return "unsolved", "outdated", "diagonal" or "exact".

    - "unsolved": the model has no solution without a refine.
    - "outdated": the solution was refined, and the model has learned rows since.
    - "diagonal": the solution is approximate, from the diagonal of the scatter.
    - "exact": any other solution, or nothing published yet.
    """
    # The error of the last attempt to solve the model.
    if isinstance(model.solving.error, NeedsRefine):
        return "unsolved"
    # `solution` is the way in which the published projection was solved.
    solution = model.published.projection.solution if model.published else ""
    if solution == "refined" and model.stale_rows:
        return "outdated"
    return "diagonal" if solution == "diagonal" else "exact"


def _refine_where_it_helps(directory: "Directory", dataset: Dataset) -> None:
    """Refine models that have only an approximate solution.

    A model's solution is approximate if the model stores only the diagonal of the scatter matrix.
    Refining computes the exact solution of such a model by further passes over the rows.

    - Models with the parameter scatter="diagonal" are not refined, because their user has chosen
      the approximate solution. Other models may use the diagonal because of many features.
    - Models that serve a release are not refined.
    - Models that predict are refined only if this raises their score on held-out rows.
    - Models that do not predict, or have no solution yet, are refined without a score.
    - If shards are in an object store, no model is refined. A message shows the command that
      refines the model.
    """
    from stream_dr.running.refine import publish_unrefined_again

    for name, model in directory.models.items():
        state = _solution_state(model)
        chosen_by_user = model.spec.params.get("scatter") == "diagonal"
        if state == "exact" or chosen_by_user or model.served_release is not None:
            continue
        if any(isinstance(shard.path, RemotePath) for shard in dataset.shards):
            say(f"note: {name} is solved from the diagonal; stream-dr refine {directory.path} --model {name} is exact.")
            continue

        try:
            has_score = hasattr(model.estimator, "predict") and state != "unsolved"
            if not has_score or _refining_helps(directory, model):
                refine_and_print(directory, model, **_REFINE_OPTIONS)
            elif state == "outdated":
                # Refining does not help, so replace the outdated refined solution.
                publish_unrefined_again(directory, model)
        except CannotRefine as e:
            say(f"note: {name} is not refined: {e}")


def _refining_helps(directory: "Directory", model: "Model") -> bool:
    """True if refining a model raises its held-out score.

    The scores before and after refining are printed. The model is not changed.
    """
    from stream_dr.running.refine import held_out_scores

    # A message is, for example: lda: a random tenth of the rows, held out, is predicted with a
    # score of 0.910 from the diagonal, of 0.950 refined. The model is refined.
    before, after = held_out_scores(directory, model, **_REFINE_OPTIONS)
    helps = after > before
    scores = f"{before:.3f} from the diagonal, of {after:.3f} refined"
    if directory.schema.target_kind == "multilabel":
        scores += " (share of rows with all labels right)"
    outcome = "The model is refined" if helps else "The model stays as it is"
    say(f"{model.name}: a random tenth of the rows, held out, is predicted with a score of {scores}. {outcome}.")
    return helps


def _allowed_labels_from_environment() -> list[Any] | None:
    """Return the labels in the environment variable STREAM_DR_ALLOWED_LABELS.

    None if the variable is not set. The service reads the variable, too. Raises InvalidParameter
    if the value is not a JSON list.
    """
    text = os.environ.get(ALLOWED_LABELS)
    if not text:
        return None
    # A text that is not JSON counts as None, which is no list, so the error below is raised.
    try:
        labels = json.loads(text)
    except ValueError:
        labels = None
    if not isinstance(labels, list):
        raise InvalidParameter(f'{ALLOWED_LABELS}={text!r}; it must be a JSON list of labels, such as ["a", "b"].')
    return labels


@contextmanager
def _add_models(directory: "Directory", specs: ModelSpecs) -> Iterator[None]:
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
            if is_new:
                added.append(model)
        yield
    except StreamDRError:
        for model in added:
            # The model has learned no event if its position is before the first event to learn.
            # A failed model stays, so that its error can be looked up.
            if model.position < model.start and model.failure is None:
                directory.remove_model(model.name)
        raise


def refine(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory with the model.")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Name of the model.")],
    tol: Annotated[
        float,
        typer.Option(min=0.0, help="Stop at this relative residual and at this angle between passes, in radians."),
    ] = 1e-6,
    max_passes: Annotated[int, typer.Option(min=1, help="Maximum number of passes.")] = 20,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Number of threads.")] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT", help="Run the passes on a Dask cluster. Needs the extra `distributed`."
        ),
    ] = None,
) -> None:
    """Compute a model's exact projection by passes over the log.

    A model that is behind the log first learns the missing events. The exact projection stays
    published until the next refine. After an interruption, the same command continues with the
    next pass.

        stream-dr refine D --model lda --tol 1e-4
    """
    from stream_dr.directory.directory import Directory

    with Directory(directory) as opened:
        refine_and_print(opened, opened.model(model), tol, max_passes, workers, scheduler)


def refine_and_print(
    directory: "Directory", model: "Model", tol: float, max_passes: int, workers: int = 1, scheduler: str | None = None
) -> None:
    """Refine a model with a progress bar, and print results.

    directory: opened directory of the model.
    tol: relative residual, and angle between passes in radians, at which the passes end.
    max_passes: maximum number of passes.
    workers: number of threads.
    scheduler: address of a Dask cluster that runs the passes. If None, the passes run in this
        process.

    Raises the errors of `refine_model`.
    """
    from stream_dr.estimators.fitting.refining import not_converged_message
    from stream_dr.running.refine import refine_model
    from stream_dr.running.warm_up import warm_up

    # Compile numba functions first, so that the progress bar does not count the compilation.
    warm_up([model.estimator], say, json=False)
    # `last` collects the newest value of each field of the progress.
    last: JsonDict = {}
    with ProgressBar("refine") as bar:

        def show_pass(progress: JsonDict) -> None:
            last.update(progress)
            # Progress with the key "exact" means that no pass is needed.
            if "exact" in progress:
                return
            bar.show(progress["rows"], progress["total_rows"], f"pass {progress['pass']}")
            if "residual" in progress:
                reached = f"residual {progress['residual']:.3g}, angle {progress['angle']:.3g} rad"
                say(f"pass {progress['pass']}: {reached}, {progress['seconds']:.1f} s")

        if scheduler is None:
            published = refine_model(directory, model, tol, max_passes, show_pass, workers)
        else:
            from stream_dr.distributed.cluster import refine_on_cluster

            published = refine_on_cluster(scheduler, directory, model, tol, max_passes, show_pass)

    if not last.get("converged", True):
        say(f"warning (not_converged): {not_converged_message(last['pass'], last['residual'], last['angle'], tol)}")
    if last.get("exact"):
        print_result(f"{model.name}: exact already, from one pass; nothing was changed")
        return
    result = f"version {published.version}, {published.projection.n_components} components"
    print_result(f"{model.name}: refined at position {published.position}, residual {published.residual:.3g}, {result}")
