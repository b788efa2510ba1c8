"""Reading: the options that say how a file is read, the same ones in every command that reads files."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from stream_dr.commands.output import say

if TYPE_CHECKING:
    from stream_dr.datasets.sources import FileSource, Options
    from stream_dr.shards.dataset import Dataset


class ReadAs(NamedTuple):
    """format: None: by the name. options: what was said of the file, by name."""

    format: str | None
    options: "Options"

    def with_options(self, **said: Any) -> "ReadAs":
        """With other options."""
        return self._replace(options=self.options._replace(**said))

    def table(self) -> dict[str, Any]:
        """The spec of the feature map that a table is learned through where nothing else is said."""
        kinds = self.options.kinds
        return {"map": "table"} | ({"as_": dict(kinds)} if kinds else {})

    def takes_shards(self, path: Path) -> bool:
        """Whether a path is to be read as shards: where nothing is said of how a file is read, any file of shards."""
        from stream_dr.datasets.sources import Options, are_shards
        from stream_dr.shards.uri import RemotePath

        if isinstance(path, RemotePath):
            return True
        plain = self.format is None and self.options == Options()
        return are_shards(path) and (plain or not path.is_file() or path.suffix == ".json")

    def files(self, sources: Sequence[Path], said: bool) -> dict[Path, "FileSource"]:
        """The sources that are no shards; where one is a table of more than numbers, or options say so, all are read so."""
        table = self.with_options(raw=said or None)
        found = {path: table.file([path]) for path in sources if not self.takes_shards(path)}
        if any(source.raw for source in found.values()):
            return {path: table.with_options(raw=True).file([path]) for path in found}
        return found

    def file(self, sources: Sequence[Path]) -> "FileSource":
        """Files as one source."""
        from stream_dr.datasets.sources import open_source

        return open_source(list(sources), self.format, self.options)

    def open(self, sources: Sequence[Path], skip_damaged: bool = False) -> "Dataset | FileSource":
        """Shards or files, as one source."""
        from stream_dr.shards.dataset import open_dataset

        if all(map(self.takes_shards, sources)):
            dataset = open_dataset(list(sources), skip_damaged=skip_damaged)
            for text in dataset.skipped:
                say(f"skipped: {text}")
            return dataset
        return self.file(sources)


def _file_options(
    format: Annotated[
        str | None,
        typer.Option(help="csv, jsonl, parquet, arrow, libsvm, vw, rcv1, arff or mat; by default the name says it."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Tables, arff: the column or attribute that holds the class.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Tables: indicator columns, by comma. arff: MULAN's XML. mat: the labels' variable."),
    ] = None,
    targets: Annotated[str | None, typer.Option(help="Tables: columns of continuous targets, by comma.")] = None,
    weight: Annotated[str | None, typer.Option(help="Tables: the column of weights.")] = None,
    id: Annotated[str | None, typer.Option(help="Tables: the column of ids.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Tables: columns to leave out, by comma or one by one.")
    ] = None,
    as_: Annotated[
        list[str] | None,
        typer.Option(
            "--as", metavar="COLUMN=KIND", help="Tables: number, date, time, category or text; several times."
        ),
    ] = None,
    delimiter: Annotated[str, typer.Option(help="csv: what stands between fields; \\t for a tab.")] = ",",
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="csv: the first line names the columns.")
    ] = None,
    decimal: Annotated[str, typer.Option(help="csv: what stands before a number's fraction.")] = ".",
    encoding: Annotated[str, typer.Option(help="csv: of its characters, such as latin-1 or utf-16.")] = "utf-8",
    target: Annotated[
        str, typer.Option(help="libsvm, vw: class, multilabel or continuous; auto asks the first rows.")
    ] = "auto",
    zero_based: Annotated[bool, typer.Option("--zero-based", help="libsvm: columns are numbered from 0.")] = False,
    one_based: Annotated[bool, typer.Option("--one-based", help="vw: columns are numbered from 1.")] = False,
    n_features: Annotated[int | None, typer.Option(min=1, help="Width of sparse rows, where it is known.")] = None,
    topics: Annotated[Path | None, typer.Option(metavar="FILE", help="rcv1: the topics file.")] = None,
    features: Annotated[str | None, typer.Option(help="mat: the variable of rows (fea).")] = None,
    subset: Annotated[str | None, typer.Option(help="mat: the variable of row numbers to take, say trainIdx.")] = None,
) -> None:
    """What every command takes that reads files."""


def reads_files(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that say how files are read; it gets them as its argument `read_as`."""
    shared = inspect.signature(_file_options).parameters

    def run(**given: Any) -> None:
        from stream_dr.datasets.sources import Options

        said = {name: given.pop(name) for name in shared}
        said["drop"] = ",".join(said["drop"] or ()) or None
        said["kinds"] = tuple(map(_kind, said.pop("as_") or ()))
        said["delimiter"] = said["delimiter"].replace("\\t", "\t")
        command(**given, read_as=ReadAs(said.pop("format"), Options(**said)))

    own = [p for p in inspect.signature(command).parameters.values() if p.name != "read_as"]
    run.__signature__ = inspect.Signature([*own, *shared.values()])  # type: ignore[attr-defined]
    run.__doc__, run.__name__, run.__module__ = command.__doc__, command.__name__, command.__module__
    run.__annotations__ = {p.name: p.annotation for p in (*own, *shared.values())}
    return run


def _kind(told: str) -> tuple[str, str]:
    column, sign, kind = told.rpartition("=")
    if not sign:
        raise typer.BadParameter(f"{told!r}; give COLUMN=KIND.", param_hint="--as")
    return column, kind
