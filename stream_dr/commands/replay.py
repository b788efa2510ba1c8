"""`stream-dr replay`: shards through models, into a directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stream_dr.commands.output import Bar, result, say
from stream_dr.commands.specs import SkipDamaged, parse_spec
from stream_dr.errors import StreamDRError

if TYPE_CHECKING:
    from stream_dr.engine.directory import Directory


def replay(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SRC…", help="Shards (Arrow IPC or Parquet), or folders of them.")
    ],
    dir: Annotated[Path, typer.Option("--dir", help="The directory: log, models, snapshots. Made if it is not there.")],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME=KEY[:param=value,…]", help="A model; may be given several times."),
    ] = None,
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
) -> None:
    """Replay shards into a directory and advance its models.

    Given again after an interruption of any kind, the same command goes on and ends with the same states. Shards that were
    moved since are found again by replaying them from where they are now.

        stream-dr replay shards/ --model lda=lda:n_components=9 --model pca=ccipca:n_components=20 --dir D
    """
    from stream_dr.engine.directory import Directory
    from stream_dr.engine.replay import Progress, ReplaySettings
    from stream_dr.engine.replay import replay as run
    from stream_dr.engine.warm_up import warm_up
    from stream_dr.shards.dataset import open_dataset

    specs = [parse_spec(text) for text in model or []]
    dataset = open_dataset(sources, skip_damaged=skip_damaged)
    _check(specs, dir)
    settings = ReplaySettings(loops, again, shuffle_shards, skip_damaged, snapshot_rows)
    with Directory(dir, n_features=dataset.n_features) as directory, _made(directory, specs):
        if not directory.models:
            raise _no_model(dir)
        warm_up([kept.estimator for kept in directory.models.values()], say)
        with Bar("replay", dataset.rows) as bar:

            def show(p: Progress) -> None:
                bar.show(p.rows, p.total_rows, f"{p.shards} of {p.total_shards} shards", p.phase)

            report = run(directory, dataset, settings, show)
        for text in report.skipped:
            say(f"skipped: {text}")
        result(
            f"{report.rows} rows of {report.events} batches appended and learned, {report.caught_up} caught up, in "
            f"{report.seconds:.2f} s ({report.rows / max(report.seconds, 1e-9):,.0f} rows/s); position {directory.position}"
        )
        for name, kept in directory.models.items():
            result(f"{name}: {kept.rows} rows, position {kept.position}, {kept.spec.estimator}")


def _check(specs: list[tuple[str, str, dict[str, Any]]], dir: Path) -> None:
    """Raise what is wrong with the models that are named, before the directory is made."""
    from stream_dr.engine.directory import check_name
    from stream_dr.estimators import make

    for name, key, params in specs:
        check_name(name)
        make(key, params)
    if not specs and not dir.exists():
        raise _no_model(dir)


def _no_model(dir: Path) -> typer.BadParameter:
    return typer.BadParameter(f"{dir} has no model yet; name one with --model NAME=KEY.", param_hint="--model")


@contextmanager
def _made(directory: "Directory", specs: list[tuple[str, str, dict[str, Any]]]) -> Iterator[None]:
    """The models there for a replay; if it is refused, those it made go again unless an event has reached them."""
    new = []
    try:
        for name, key, params in specs:
            model, made = directory.add_model(name, key, params)
            new += [model] if made else []
        yield
    except StreamDRError:
        for model in new:
            if model.position < model.start and model.failure is None:
                directory.remove_model(model.name)
        raise
