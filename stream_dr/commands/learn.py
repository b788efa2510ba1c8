"""`stream-dr learn`: files of any format through models, into a directory."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stream_dr.commands.output import Bar, say
from stream_dr.commands.reading import ReadAs, reads_files
from stream_dr.commands.replaying import replay_into
from stream_dr.commands.specs import SAVED, Dir, Models, Sources, Specs, check_specs, parse_spec
from stream_dr.errors import SchemaMismatch

if TYPE_CHECKING:
    from stream_dr.datasets.sources import FileSource
    from stream_dr.running.replay import ReplaySettings

Names = list[str] | None


@reads_files
def learn(
    sources: Sources,
    read_as: ReadAs,
    dir: Dir | None = None,
    model: Models = None,
    check: Annotated[bool, typer.Option("--check", help="Only tell what the columns are taken for.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="OUT", help="Project the rows, too, into a .parquet or .arrow file."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What one file is kept as, where its own name is taken.")] = None,
    one_hot: Annotated[
        Names, typer.Option(metavar="COLUMN", help="Tables: a column whose categories are never hashed.")
    ] = None,
    hash: Annotated[
        Names, typer.Option(metavar="COLUMN", help="Tables: a column whose categories are all hashed.")
    ] = None,
    keep: Annotated[
        Names, typer.Option(metavar="COLUMN", help="Tables: a column taken though it looks like an id or constant.")
    ] = None,
    text: Annotated[Names, typer.Option(metavar="COLUMN", help="Tables: a column of texts.")] = None,
    impute: Annotated[str, typer.Option(help="Tables: what a missing number is: mean, or a number.")] = "mean",
    loops: Annotated[int, typer.Option(min=1, help="Passes over the rows to reach.")] = 1,
) -> None:
    """Learn files: tell what each column is taken for, keep the rows as shards in the directory, replay them through models.

    Given again, the same command goes on where it was stopped and learns nothing twice. A table of numbers is learned as it
    is; one with words, dates or gaps through feature_map=table, whose options these are: --one-hot, --hash, --keep, --text,
    --as, --impute. The report goes to stderr before anything is written.

        stream-dr learn data.csv --label y --dir D --model lda=lda -o projected.parquet
        stream-dr serve --dir D
    """
    from stream_dr.running.replay import ReplaySettings

    if dir is None and not check:
        raise typer.BadParameter("say which directory learns the rows.", param_hint="--dir")
    read_as = read_as.with_options(kinds=(*read_as.options.kinds, *((name, "text") for name in text or ())))
    spec = _table_spec(read_as, one_hot, hash, keep, impute)
    files = read_as.files(sources, said=len(spec) > 1)
    if name is not None and (len(files) != 1 or len(sources) != 1):
        raise typer.BadParameter("one file is called so, and there are others.", param_hint="--name")
    report_files(files, spec)
    if dir is not None and not check:
        specs = [parse_spec(told) for told in model or []]
        learn_files(dir, sources, files, specs, spec, ReplaySettings(loops), name, out)


def learn_files(
    dir: Path,
    sources: list[Path],
    files: dict[Path, "FileSource"],
    specs: Specs,
    table: dict[str, Any],
    settings: "ReplaySettings",
    name: str | None = None,
    out: Path | None = None,
) -> None:
    """Keep the files as shards in the directory, and replay those and the shards among the sources.

    table: the feature map of models without one, where a file is a table of more than numbers.
    """
    from stream_dr.shards.dataset import open_dataset

    if any(source.raw for source in files.values()):
        specs = [(n, key, p if key.endswith(SAVED) else {"feature_map": table} | p) for n, key, p in specs]
    check_specs(specs, dir)
    with _made(dir):
        kept = _keep(dir, files, name)
        dataset = open_dataset([kept.get(path, path) for path in sources], settings.skip_damaged)
        replay_into(dir, dataset, specs, settings, out)


def _table_spec(read_as: ReadAs, one_hot: Names, hash: Names, keep: Names, impute: str) -> dict[str, Any]:
    """The spec of the feature map that the options say. Raises typer.BadParameter."""
    spec = read_as.table() | {k: v for k, v in {"one_hot": one_hot, "hash": hash, "keep": keep}.items() if v}
    if impute == "mean":
        return spec
    try:
        return spec | {"impute": float(impute)}
    except ValueError as e:
        raise typer.BadParameter(f"{impute!r}; give mean or a number.", param_hint="--impute") from e


def report_files(files: dict[Path, "FileSource"], spec: dict[str, Any], hints: bool = True) -> None:
    """Say what the columns of each file are taken for. hints: and which options would have them taken for something else.
    Raises SchemaMismatch with all that would refuse a file's rows."""
    for path, source in files.items():
        _report(path, source, spec, hints)


def _report(path: Path, source: "FileSource", spec: dict[str, Any], hints: bool) -> None:
    from stream_dr.feature_maps.report import describe

    first = source.first or next(source.blocks())  # which refuses a file without a row
    if source.raw:
        report = describe(first.X, spec)
        columns = tuple(
            c._replace(options=tuple(map(_on_the_line, c.options if hints else ()))) for c in report.columns
        )
        say(
            f"{path} ({source.format}), by its first {first.rows} rows:\n{report._replace(columns=columns, problems=())}"
        )
        if report.problems:
            raise SchemaMismatch(f"{path}: {'; '.join(report.problems)}.")
        return
    names = f": {', '.join(first.names[:8])}{' …' if len(first.names) > 8 else ''}" if first.names else ""
    kind = "no targets" if first.y is None else f"{first.y.kind} targets"
    rows = "sparse" if first.sparse else "all numbers"
    say(f"{path} ({source.format}): {first.features} features, {rows}{names}; {kind}")


def _on_the_line(option: str) -> str:
    """as_=age:category as --as age=category."""
    name, _, value = option.partition("=")
    column, colon, kind = value.rpartition(":") if name == "as_" else (value, "", "")
    return f"--{name.rstrip('_').replace('_', '-')} {shlex.quote(f'{column}={kind}' if colon else column)}"


def _keep(dir: Path, files: dict[Path, "FileSource"], name: str | None) -> dict[Path, Path]:
    """The folders of shards of the files, those that are new written now."""
    from stream_dr.directory.sources import keep_as_shards
    from stream_dr.disk import DirectoryLock

    kept = {}
    with DirectoryLock(dir), Bar("read", None) as bar:
        for path, source in files.items():
            kept[path] = keep_as_shards(dir, source, name, lambda rows: bar.show(rows, rows))
    return kept


@contextmanager
def _made(dir: Path) -> Iterator[None]:
    """The directory there; if nothing could be learned into one made now, it goes again."""
    there = dir.exists()
    dir.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if not there and not (dir / "log").exists():
            rmtree(dir)
        raise
