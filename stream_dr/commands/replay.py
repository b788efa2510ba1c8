"""Command `stream-dr replay`, which lets models learn shards."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dr.commands.learn import print_column_kinds, store_and_learn_files
from stream_dr.commands.output import say
from stream_dr.commands.reading import ReadOptions, add_file_options
from stream_dr.commands.replaying import replay_and_report
from stream_dr.commands.specs import Dir, Models, ModelSpecs, SkipDamaged, Sources, has_models, parse_model_specs

if TYPE_CHECKING:
    from stream_dr.distributed.parts import PlanRunner
    from stream_dr.running.replay import ReplaySettings


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
    snapshot_rows: Annotated[
        int | None, typer.Option(min=1, help="Write snapshots after this many rows, in addition to once a minute.")
    ] = None,
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
    from stream_dr.shards.dataset import open_dataset

    specs = parse_model_specs(model)
    if workers is not None or scheduler is not None:
        read_as.refuse_paths_other_than_shards(sources)
    read_as.refuse_unsupported_options(sources)

    dataset = open_dataset(sources, skip_damaged=skip_damaged) if all(map(read_as.reads_as_shards, sources)) else None
    if not specs and not has_models(dir):
        raise typer.BadParameter(f"{dir} has no model yet; name one with --model NAME=KEY.", param_hint="--model")

    run = RunSettings(snapshot_rows=snapshot_rows)
    settings = ReplaySettings(loops, again, shuffle_shards, skip_damaged, run, test=True)
    if dataset is None:
        _learn_as_files(read_as, dir, sources, specs, settings)
        return
    replay_and_report(dir, dataset, specs, settings, None, _plan_runner(workers, scheduler))


def _learn_as_files(
    read_as: ReadOptions, dir: Path, sources: list[Path], specs: ModelSpecs, settings: "ReplaySettings"
) -> None:
    files = read_as.open_all_but_shards(sources)
    note = f"{', '.join(map(str, files))} hold no shards; they are learned as `stream-dr learn` does"
    say(f"note: {note}, which has more options for a table's columns.")
    print_column_kinds(files, read_as.text_or_table_map_spec(files), with_hints=False)
    store_and_learn_files(dir, sources, files, specs, read_as, settings)


def _plan_runner(n_threads: int | None, scheduler: str | None) -> "PlanRunner | None":
    from stream_dr.distributed.cluster import dask_plan_runner
    from stream_dr.distributed.local import thread_plan_runner

    if scheduler is not None:
        return dask_plan_runner(scheduler)
    return None if n_threads is None else thread_plan_runner(n_threads)
