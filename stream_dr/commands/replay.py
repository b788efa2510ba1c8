"""`stream-dr replay`: shards through models, into a directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dr.commands.learn import learn_files, open_files, report_files
from stream_dr.commands.output import say
from stream_dr.commands.reading import ReadAs, reads_files
from stream_dr.commands.replaying import replay_into
from stream_dr.commands.specs import Dir, Models, SkipDamaged, check_specs, parse_spec

if TYPE_CHECKING:
    from stream_dr.distributed.parts import Run


@reads_files
def replay(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SRC…", help="Shards (Arrow IPC or Parquet), or folders of them.")
    ],
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
) -> None:
    """Replay shards into a directory and advance its models.

    --workers and --scheduler give the same bits, whatever their number; without, they differ by rounding.

    Given again after an interruption of any kind, the same command goes on and ends with the same states. Shards that were
    moved since are found again by replaying them from where they are now. Other files are learned as `learn` does.

        stream-dr replay shards/ --model lda=lda:n_components=9 --model pca=ccipca:n_components=20 --dir D
    """
    from stream_dr.engine.replay import ReplaySettings
    from stream_dr.shards.dataset import open_dataset

    specs = [parse_spec(text) for text in model or []]
    settings = ReplaySettings(loops, again, shuffle_shards, skip_damaged, snapshot_rows)
    table = read_as.table()
    if files := open_files(sources, read_as, table):
        say(
            f"note: {', '.join(map(str, files))} hold no shards; they are learned as `stream-dr learn` does, which has more "
            "options for a table's columns."
        )
        report_files(files, table, hints=False)
        learn_files(dir, sources, files, specs, table, settings)
        return
    dataset = open_dataset(sources, skip_damaged=skip_damaged)
    check_specs(specs, dir)
    replay_into(dir, dataset, specs, settings, parts=_parts(workers, scheduler))


def _parts(workers: int | None, scheduler: str | None) -> "Run | None":
    from stream_dr.distributed.cluster import workers_of
    from stream_dr.distributed.local import threads

    if scheduler is not None:
        return workers_of(scheduler)
    return None if workers is None else threads(workers)
