"""Reading: command options that say how files are read."""

import functools
import inspect
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import typer

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.rows import Source
from stream_dr.commands.output import say
from stream_dr.errors import StreamDRError
from stream_dr.shards.dataset import Dataset, are_shards_or_missing, open_dataset
from stream_dr.shards.file import RemotePath

if TYPE_CHECKING:
    from stream_dr.datasets.sources import FileSource, Options


@dataclass
class _ChainedSources:
    """Source that yields the batches of several sources, one source after the other."""

    parts: Sequence[Source]

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield batches as pairs (number, Block).

        Batches are numbered from 0. The numbers go on from one source to the next. Only batches
        with after < number ≤ until are yielded. If `until` is None, all later batches are yielded.
        """
        number = -1
        for part in self.parts:
            for _, block in part.events():
                number += 1
                if until is not None and number > until:
                    return
                if number > after:
                    yield number, block


AsClasses = Annotated[
    bool,
    typer.Option("--as-classes", help="Read the label column as classes, even if its values look like numbers or ids."),
]


class ReadOptions(NamedTuple):
    """Options that say how a command reads its files.

    Attributes
    ----------
    format : str or None
        Format of all files. None: the suffix of each file's name decides.
    options : Options
        Options of the file formats' readers.
    map : dict
        Parameters of the feature map `table`, which encodes the columns of tables as numbers.
    """

    format: str | None
    options: "Options"
    map: JsonDict = {}

    def with_options(self, **options: Any) -> Self:
        """Return a copy in which some reader options are replaced."""
        return self._replace(options=self.options._replace(**options))

    def table_map_spec(self) -> JsonDict:
        """Return the command's options as parameters of the feature map `table`."""
        spec: JsonDict = {"map": "table"}
        # The kind "feature" concerns the readers of files only: the column is no weight or id.
        kinds = {name: kind for name, kind in self.options.kinds if kind != "feature"}
        if kinds:
            spec["as_"] = kinds
        return spec | self.map

    def suggest_map_spec(self, files: dict[Path, "FileSource"]) -> JsonDict:
        """Return parameters of a feature map that suits these files.

        The feature map is `text` if all columns are prose, and `table` otherwise.

        files: opened files by path.
        """
        from stream_dr.feature_maps.column_report import suitable_map_spec

        # `rows` is None if no file is read as a table.
        rows = first_table_block(files)
        if rows is None:
            return self.table_map_spec()
        return suitable_map_spec(rows.X, self.table_map_spec())

    def reads_as_shards(self, path: Path) -> bool:
        """True if a path is read as shards.

        Other paths are read as files of another format.

        - The folder that `convert` has written, its manifest, and a URI are read as shards.
        - Any other folder is read as shards if each of its files is a shard.
        - A single shard is read as a shard only if the user gave no option that says how to read
          a file, such as --format or --label.
        """
        from stream_dr.datasets.sources import Options, files_of_folder

        if isinstance(path, RemotePath):
            return True
        # For a path that is no folder of files, `files_of_folder` returns the path itself.
        files = files_of_folder(path)
        if files != [path]:
            return all(self.reads_as_shards(Path(file)) for file in files)
        if not are_shards_or_missing(path):
            return False
        # A path that is no file is a folder of shards, and a .json file is a manifest of shards.
        plain = self.format is None and self.options == Options()
        return plain or not path.is_file() or path.suffix == ".json"

    def refuse_unsupported_options(self, sources: Sequence[Path]) -> None:
        """Raise an error for options that a file's format lacks.

        No row is read.
        """
        for path in sources:
            if not self.reads_as_shards(path):
                # Open the file only to check the options. With `raw` set (read as a table), opening
                # a file reads no rows. Without `raw`, the first rows are read to decide it.
                self.with_options(raw=True).open_files_as_one([path])

    def open_all_but_shards(self, sources: Sequence[Path]) -> dict[Path, "FileSource"]:
        """Open and return sources that are not shards, by path.

        All files are read as tables if one file has columns that are not numbers, or if the
        command has options of a feature map. Otherwise all files are read as rows of numbers.
        """
        # With raw=True, a file is read as a table. With None, its first rows decide. The map spec
        # has the key "map", and one more key for each option of the user.
        read_as = self.with_options(raw=None)
        if len(self.table_map_spec()) > 1:
            read_as = self.with_options(raw=True)
        paths = [path for path in sources if not self.reads_as_shards(path)]
        opened = {path: read_as.open_files_as_one([path]) for path in paths}
        if any(source.raw for source in opened.values()):
            as_table = self.with_options(raw=True)
            return {path: as_table.open_files_as_one([path]) for path in paths}
        return opened

    def open_files_as_one(self, sources: Sequence[Path]) -> "FileSource":
        """Open several files as one source, which yields their rows in this order."""
        from stream_dr.datasets.sources import open_source

        return open_source(list(sources), self.format, self.options)

    def read_fractional_labels(self, sources: Sequence[Path]) -> Self:
        """Return options that read fractional labels as numeric targets.

        If the labels in the first rows of the files have no fraction, `self` is returned.
        """
        label = self.options.label
        numbers = self.with_options(label=None, targets=label)
        if label is not None and any(map(numbers.has_fractional_targets, sources)):
            return numbers
        return self

    def has_fractional_targets(self, path: Path) -> bool:
        """True if some of a file's first targets have fractions."""
        # Targets that are words raise an error here, so the answer is False.
        # An error in the file itself is raised again when the file's rows are learned.
        try:
            if self.reads_as_shards(path):
                return False
            first = self.open_files_as_one([path]).first
        except StreamDRError:
            return False
        if first is None or first.y is None or first.y.values is None:
            return False
        numbers = first.y.values.ravel().tolist()
        return not all(number.is_integer() for number in numbers)

    def likely_id_column(self, files: dict[Path, "FileSource"]) -> str | None:
        """Return the name of a column that looks like ids.

        Only columns of the first file are examined. The result is None if no column looks like
        ids, or if the options already name the column of ids.

        files: opened files by path.
        """
        from stream_dr.feature_maps.widths import likely_id_column

        # `first` of a file is its first batch. Batches of numbers may have no column names.
        first = None
        if files and self.options.id is None:
            first = next(iter(files.values())).first
        if first is None or first.names is None:
            return None
        return likely_id_column(first.X, first.names)

    def open_as_one_source(self, sources: Sequence[Path], skip_damaged: bool = False) -> Source:
        """Open shards and files of any formats as one source.

        The source yields the rows of one path after the other. If `skip_damaged` is true, damaged
        shards are skipped with a message. If it is false, they raise an error.
        """
        files = self.open_all_but_shards(sources)
        if not files:
            return self.open_shards_as_one(sources, skip_damaged)
        # Paths that are not in `files` are shards.
        opened = [files.get(path) or self.open_shards_as_one([path], skip_damaged) for path in sources]
        return _ChainedSources(opened)

    def refuse_other_than_shards(self, sources: Sequence[Path]) -> None:
        """Raise typer.BadParameter unless all sources are shards.

        Folders of shards are allowed, too.
        """
        files = [str(path) for path in sources if not self.reads_as_shards(path)]
        if files:
            message = f"workers read shards alone, and {', '.join(files)} hold none; make some with convert."
            raise typer.BadParameter(message, param_hint="SRC")

    def open_shards_as_one(self, sources: Sequence[Path], skip_damaged: bool = False) -> Dataset:
        """Open shards as one data set.

        skip_damaged: True to skip damaged shards. A message is printed for each damaged shard.

        Raises typer.BadParameter if one of the sources is not a shard or a folder of shards.
        """
        self.refuse_other_than_shards(sources)
        dataset = open_dataset(list(sources), skip_damaged=skip_damaged)
        for text in dataset.skipped:
            say(f"skipped: {text}")
        return dataset


def refuse_unlikely_labels(files: dict[Path, "FileSource"], command_words: list[str]) -> None:
    """Raise typer.BadParameter if labels look like numbers or ids.

    The error proposes other commands.

    files: opened files by path.
    command_words: words of the command line. The proposed commands are made of these words.
    """
    from stream_dr.batch.parsing import are_probably_measurements

    # `first` is the first batch of a file. Files without rows or labels are not checked.
    for path, source in files.items():
        first = source.first
        column = source.options.label
        if first is None or first.y is None:
            continue
        # Measurements and ids have many different values, classes have few.
        if not are_probably_measurements(first.y.kind, len(first.y.labels), first.rows):
            continue

        # The message asks which of two commands is meant. For example:
        #     price has 900 values in the first 1000 rows of a.csv. Are they
        #       numbers to predict: stream-dr learn a.csv --targets price
        #       classes: stream-dr learn a.csv --label price --as-classes
        # Strings may be ids. Numbers may be measurements.
        if isinstance(first.y.labels[0], str):
            id_options = f"--id {column} --label COLUMN …"
            other = f"ids, and another column holds the classes: stream-dr {command_words[0]} {path} {id_options}"
        else:
            # Propose the same command with --targets in place of --label. A word may be --label=y.
            words = []
            for word in command_words:
                option, equals, value = word.partition("=")
                if option == "--label":
                    option = "--targets"
                words.append(option + equals + value)
            other = f"numbers to predict: stream-dr {shlex.join(words)}"
        classes = f"classes: stream-dr {shlex.join([*command_words, '--as-classes'])}"
        values = f"{len(first.y.labels)} values in the first {first.rows} rows of {path}"
        raise typer.BadParameter(
            f"{column} has {values}. Are they\n  {other}\n  {classes}",
            param_hint="--label",
        )


def first_table_block(files: dict[Path, "FileSource"]) -> Block | None:
    """Return the first rows of the first table file.

    A table file is a file that is read as a table. None if all files are read as numbers.

    files: opened files by path.
    """
    source = next((source for source in files.values() if source.raw), None)
    if source is None:
        return None
    return source.first or next(source.blocks(), None)


Texts = list[str] | None
"""Values of an option that may be repeated, or None if it is not given."""


class _FileOptions(NamedTuple):
    """Command-line options of all commands that read files."""

    format: Annotated[
        str | None,
        typer.Option(
            help="csv, jsonl, parquet, arrow, libsvm, vw, rcv1, arff, mat, npy, npz, sqlite or duckdb. Default: by the "
            "file's name."
        ),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(help="Tables, arff, npz: column, attribute or array of the class."),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            help="Tables: columns of 0 and 1, one for each label, separated by commas; or one column with lists of "
            "labels. arff: MULAN's XML file. mat, npz: variable of the labels. npy, npz: .npy file of the labels."
        ),
    ] = None
    separator: Annotated[str | None, typer.Option(help="Tables: text between the labels of one column.")] = None
    targets: Annotated[str | None, typer.Option(help="Tables: columns of numeric targets, separated by commas.")] = None
    weight: Annotated[str | None, typer.Option(help="Tables: column of weights.")] = None
    id: Annotated[str | None, typer.Option(help="Tables: column of ids.")] = None
    drop: Annotated[Texts, typer.Option(help="Tables: columns to leave out, separated by commas. May be repeated.")] = (
        None
    )
    as_: Annotated[
        Texts,
        typer.Option(
            "--as",
            metavar="COLUMN=KIND",
            help="Tables: kind of a column: number, date, time, category or text, or feature for a column that is "
            "called weight, id or the like and is a feature. May be repeated.",
        ),
    ] = None
    target: Annotated[
        str, typer.Option(help="libsvm, vw, npy, npz: class, multilabel or continuous. auto decides by the first rows.")
    ] = "auto"
    zero_based: Annotated[bool, typer.Option("--zero-based", help="libsvm: column numbers start at 0.")] = False
    one_based: Annotated[bool, typer.Option("--one-based", help="vw: column numbers start at 1.")] = False
    n_features: Annotated[
        int | None, typer.Option(min=1, help="libsvm, vw, rcv1: number of columns, if it is known.")
    ] = None
    topics: Annotated[Path | None, typer.Option(metavar="FILE", help="rcv1: topics file.")] = None
    features: Annotated[
        str | None, typer.Option(help="mat, npz: variable of the rows. Default: fea (mat), X (npz).")
    ] = None
    subset: Annotated[
        str | None, typer.Option(help="mat: variable with the row numbers to read, such as trainIdx.")
    ] = None


class _CsvOptions(NamedTuple):
    """Command-line options of reading CSV files."""

    delimiter: Annotated[str, typer.Option(help="csv: separator of fields. \\t is a tab.")] = ","
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="csv: whether the first line names the columns. Default: yes, and a line of numbers is refused.",
        ),
    ] = None
    decimal: Annotated[str, typer.Option(help="csv: decimal separator of numbers.")] = "."
    encoding: Annotated[str, typer.Option(help="csv: encoding of the file, such as latin-1 or utf-16.")] = "utf-8"
    missing: Annotated[
        Texts,
        typer.Option(
            metavar="WORD",
            help="csv: word that stands for a missing value, beside NA, NaN, null and the like in numbers. An empty one "
            "switches those off. May be repeated.",
        ),
    ] = None


class _MapOptions(NamedTuple):
    """Command-line options of encoding a table's columns as numbers."""

    one_hot: Annotated[
        Texts,
        typer.Option(metavar="COLUMN", help="Tables: column whose categories are never hashed. May be repeated."),
    ] = None
    hash: Annotated[
        Texts,
        typer.Option(metavar="COLUMN", help="Tables: column whose categories are all hashed. May be repeated."),
    ] = None
    keep: Annotated[
        Texts,
        typer.Option(
            metavar="COLUMN", help="Tables: column to use even if it looks like an id or a constant. May be repeated."
        ),
    ] = None
    text: Annotated[Texts, typer.Option(metavar="COLUMN", help="Tables: column of texts. May be repeated.")] = None
    impute: Annotated[str, typer.Option(help="Tables: value of missing numbers. It is mean or a number.")] = "mean"


def add_file_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with options for reading files.

    `command` receives these options as the argument `read_as`.
    """
    return _add_options(command, _FileOptions, _CsvOptions)


def add_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with options for files and feature maps.

    `command` receives these options as the argument `read_as`.
    """
    return _add_options(command, _FileOptions, _CsvOptions, _MapOptions)


def _add_options(command: Callable[..., None], *declarations: type) -> Callable[..., None]:
    """Return a command with a command-line option for each field of `declarations`.

    command: function with a parameter `read_as`. The returned command calls it with the values of
        these options as one ReadOptions object.
    declarations: NamedTuples whose fields are the options.
    """
    # Parameters that become options, by name.
    shared: dict[str, inspect.Parameter] = {}
    for declaration in declarations:
        shared |= inspect.signature(declaration).parameters

    @functools.wraps(command)
    def run_with_read_as(**arguments: Any) -> None:
        from stream_dr.feature_maps import feature_map

        options = {name: arguments.pop(name) for name in shared}
        read_as = _parse_options(options)
        # Make a feature map now, because an invalid option must fail before the command runs.
        feature_map(read_as.table_map_spec())
        command(**arguments, read_as=read_as)

    # Typer makes a command's options from its signature and annotations. The parameter `read_as` of
    # `command` is replaced by one parameter for each option.
    parameters = [p for name, p in inspect.signature(command).parameters.items() if name != "read_as"]
    parameters += shared.values()
    run_with_read_as.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_with_read_as.__annotations__ = {p.name: p.annotation for p in parameters}
    return run_with_read_as


def _parse_options(options: JsonDict) -> ReadOptions:
    """Convert the values of a command's options to ReadOptions.

    options: values of the options by name. This function changes the dict. The options of the
        feature map, such as "one_hot", may be missing.
    """
    from stream_dr.datasets.sources import Options

    # The feature map gets the options that differ from its defaults.
    map_options = {}
    for name in ("one_hot", "hash", "keep"):
        columns = options.pop(name, None)
        if columns:
            map_options[name] = columns
    impute = options.pop("impute", "mean")
    if impute != "mean":
        try:
            map_options["impute"] = float(impute)
        except ValueError as e:
            raise typer.BadParameter(f"{impute!r}; give mean or a number.", param_hint="--impute") from e

    # The remaining options are those of the file readers. `kinds` are pairs (column, kind).
    # A user types a tab as the two characters \t. Readers take the columns to drop as one text.
    kinds = list(map(_parse_column_kind, options.pop("as_") or ()))
    kinds += [(name, "text") for name in options.pop("text", None) or ()]
    options["kinds"] = tuple(kinds)
    options["drop"] = ",".join(options["drop"] or ()) or None
    options["missing"] = tuple(options["missing"] or ())
    options["delimiter"] = options["delimiter"].replace("\\t", "\t")
    return ReadOptions(options.pop("format"), Options(**options), map_options)


def _parse_column_kind(option: str) -> tuple[str, str]:
    """Split an option COLUMN=KIND into the column and the kind.

    Kinds are "number", "date", "feature" and others. Raises typer.BadParameter if the kind is unknown.
    """
    from stream_dr.feature_maps.widths import AS

    column, sign, kind = option.rpartition("=")
    kinds = (*AS, "feature")
    if not sign or kind not in kinds:
        raise typer.BadParameter(f"{option!r}; give COLUMN=KIND, of {', '.join(kinds)}.", param_hint="--as")
    return column, kind
