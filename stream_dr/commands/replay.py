"""`stream-dr replay`: shards through models, into a directory."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dr.commands.learn import learn_files, report_files
from stream_dr.commands.output import say
from stream_dr.commands.reading import ReadAs, reads_files
from stream_dr.commands.replaying import replay_into
from stream_dr.commands.specs import Dir, Models, SkipDamaged, Sources, check_specs, parse_spec

if TYPE_CHECKING:
    from stream_dr.distributed.kept import Kept, Run


@reads_files
def replay(
    sources: Sources,
    dir: Dir,
    read_as: ReadAs,
    model: Models = None,
    snapshot_rows: Annotated[
        int | None, typer.Option(min=1, help="Snapshot after so many rows (and every minute).")
    ] = None,
    loops: Annotated[int, typer.Option(min=1, help="Passes over the shards to reach.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="One pass more, also of rows unlearned since; completes a begun one first.")
    ] = False,
    shuffle_shards: Annotated[
        int | None, typer.Option(metavar="SEED", help="Shuffle the shards' order in each pass.")
    ] = None,
    skip_damaged: SkipDamaged = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Learn parts of the shards side by side in N threads, and merge them."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Learn them on a Dask cluster (extra [distributed]).")
    ] = None,
    task_seconds: Annotated[
        float, typer.Option(min=1, help="With --scheduler: what a part of 50,000 rows may take before it is given up.")
    ] = 600,
    work: Annotated[
        str | None,
        typer.Option(metavar="URI", help="With either: keep finished parts in this folder, or s3://…, to go on from."),
    ] = None,
) -> None:
    """Replay shards into a directory and advance its models.

    --workers and --scheduler give the same bits, whatever their number; without, they differ by rounding.

    Given again after an interruption of any kind, the same command goes on and ends with the same states. Shards that were
    moved since are found again by replaying them from where they are now. Other files are learned as `learn` does.

        stream-dr replay shards/ --model lda=lda:n_components=9 --model pca=ccipca:n_components=20 --dir D
    """
    from stream_dr.running.driver import RunSettings
    from stream_dr.running.replay import ReplaySettings
    from stream_dr.shards.dataset import open_dataset

    specs = [parse_spec(text) for text in model or []]
    settings = ReplaySettings(loops, again, shuffle_shards, skip_damaged, RunSettings(snapshot_rows=snapshot_rows))
    table = read_as.table()
    if files := read_as.files(sources, said=len(table) > 1):
        _say_no_shards(files)
        report_files(files, table, hints=False)
        learn_files(dir, sources, files, specs, table, settings)
        return
    dataset = open_dataset(sources, skip_damaged=skip_damaged)
    check_specs(specs, dir)
    replay_into(
        dir, dataset, specs, settings, None, _parts(workers, scheduler, task_seconds), _kept(work, workers, scheduler)
    )


def _say_no_shards(files: Iterable[Path]) -> None:
    say(
        f"note: {', '.join(map(str, files))} hold no shards; they are learned as `stream-dr learn` does, which has more "
        "options for a table's columns."
    )


def _parts(workers: int | None, scheduler: str | None, task_seconds: float) -> "Run | None":
    from stream_dr.distributed.cluster import workers_of
    from stream_dr.distributed.local import threads

    if scheduler is not None:
        return workers_of(scheduler, task_seconds)
    return None if workers is None else threads(workers)


def _kept(work: str | None, *parted: object) -> "Kept | None":
    from stream_dr.distributed.kept import Kept

    if work is not None and not any(parted):
        raise typer.BadParameter("a replay without --workers or --scheduler has no parts.", param_hint="--work")
    return None if work is None else Kept(work)
