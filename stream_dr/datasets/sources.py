"""Sources: read files as a repeatable stream of Blocks.

Each file format has a reader in datasets/readers. This module chooses the reader by the suffix of
a file's name, and checks that the reader knows the caller's options.

Most readers have only one block of rows in memory. The exceptions are MATLAB files, and numpy
arrays that are sparse or stored by column, which are read as a whole.
"""

import codecs
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from stream_dr.aliases import FileName, JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.targets import KINDS
from stream_dr.datasets.readers.columns import ColumnRoles
from stream_dr.datasets.readers.csv import read_csv
from stream_dr.datasets.readers.jsonl import read_jsonl
from stream_dr.datasets.readers.libsvm import read_libsvm, read_vw
from stream_dr.datasets.readers.lines import PACKED, check_file_exists
from stream_dr.datasets.readers.matrices import read_matlab, read_npy, read_npz
from stream_dr.datasets.readers.mulan import read_arff
from stream_dr.datasets.readers.rcv1 import read_lyrl2004
from stream_dr.datasets.readers.tables import read_arrow_ipc, read_duckdb, read_parquet, read_sqlite
from stream_dr.errors import InvalidParameter, InvalidTargets, MalformedInput, did_you_mean, error_for_unknown_parameter
from stream_dr.first_bytes import describe_other_format
from stream_dr.shards.file import refuse_url
from stream_dr.shards.folder import MANIFEST_NAME, UNFINISHED


class Options(NamedTuple):
    """Options of reading a file.

    The formats of an option are in parentheses. For other formats the option must have its default
    value. "tables" stands for the formats csv, jsonl, parquet, arrow, sqlite and duckdb.

    Attributes
    ----------
    target : str
        Kind of targets, or "auto" to infer the kind (libsvm, vw, npy, npz).
    zero_based : bool
        True if the file numbers columns from 0 (libsvm).
    one_based : bool
        True if the file numbers columns from 1 (vw).
    n_features : int or None
        Number of columns of sparse rows. None: the rows decide (libsvm, vw, rcv1).
    topics : path or None
        Path of the topics file (rcv1).
    labels : str or None
        Where the labels are. Its meaning depends on the format:

        - arff: path of MULAN's XML file of label names.
        - mat: name of a variable.
        - npy: path of a .npy file.
        - npz: name of an array, or path of a .npy file.
        - tables: names of columns with 0 and 1, one for each label, as in `drop`. Or the
          name of one column with several labels in each row: lists, or texts that are JSON lists.
    separator : str or None
        Text between the labels of a row, if one column of `labels` has several (tables).
    label : str or None
        Name of the column or array with one label for each row (arff, npz, tables).
    targets : str, sequence of str or None
        Names of the columns with numeric targets, as in `drop` (tables).
    weight : str or None
        Name of the column with the rows' weights (tables).
    id : str or None
        Name of the column with the rows' ids (tables).
    drop : str, sequence of str or None
        Names of columns that are not read. A str has names separated by commas (tables).
    features : str or None
        Name of the variable or array with the rows (mat, npz).
    subset : str or None
        Name of the variable with the numbers of the rows to read (mat).
    delimiter, header, decimal, encoding, missing
        Format of the text, as in `CsvFormat` (csv).
    raw, kinds
        Types of the features, as in `ColumnRoles` (tables). In addition, the kind "feature" says
        that a column with a reserved name, such as "weight", is a feature.
    """

    target: str = "auto"
    zero_based: bool = False
    one_based: bool = False
    n_features: int | None = None
    topics: FileName | None = None
    labels: str | Sequence[str] | None = None
    label: str | None = None
    targets: str | Sequence[str] | None = None
    weight: str | None = None
    id: str | None = None
    drop: str | Sequence[str] | None = None
    features: str | None = None
    subset: str | None = None
    delimiter: str = ","
    header: bool | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: str | Sequence[str] = ()
    raw: bool | None = None
    kinds: tuple[tuple[str, str], ...] = ()
    separator: str | None = None


def _chosen_options(options: Options) -> JsonDict:
    """Return the options that differ from their defaults, except `raw`."""
    defaults = Options._field_defaults
    given = options._asdict()
    del given["raw"]
    return {name: value for name, value in given.items() if value != defaults[name]}


_TABLE_OPTIONS = ("label", "labels", "targets", "weight", "id", "drop", "raw", "kinds", "separator")
"""Names of the options that all formats of tables have."""

_READERS: dict[str, tuple[Callable[..., Iterator[Block]], tuple[str, ...]]] = {
    "libsvm": (read_libsvm, ("target", "zero_based", "n_features")),
    "vw": (read_vw, ("target", "one_based", "n_features")),
    "rcv1": (read_lyrl2004, ("topics", "n_features")),
    "arff": (read_arff, ("labels", "label")),
    "mat": (read_matlab, ("labels", "features", "subset")),
    "csv": (read_csv, (*_TABLE_OPTIONS, "delimiter", "header", "decimal", "encoding", "missing")),
    "jsonl": (read_jsonl, _TABLE_OPTIONS),
    "parquet": (read_parquet, _TABLE_OPTIONS),
    "arrow": (read_arrow_ipc, _TABLE_OPTIONS),
    "npy": (read_npy, ("labels", "target")),
    "npz": (read_npz, ("features", "labels", "label", "target")),
    "sqlite": (read_sqlite, _TABLE_OPTIONS),
    "duckdb": (read_duckdb, _TABLE_OPTIONS),
}
"""For each format, the function that reads a file and the names of the format's options."""

FORMATS = tuple(_READERS)
"""Names of the file formats."""


DATABASES = ("sqlite", "duckdb")
"""Formats of databases, whose files have several tables. A table's path is FILE!TABLE."""

TABLES = ("csv", "jsonl", "parquet", "arrow", *DATABASES)
"""Formats with named columns. Options say which columns are labels, weights, ids and so on."""

_SUFFIXES = {
    ".svm": "libsvm", ".svmlight": "libsvm", ".libsvm": "libsvm", ".vw": "vw", ".arff": "arff", ".mat": "mat",
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".arrows": "arrow", ".ipc": "arrow", ".feather": "arrow",
    ".npy": "npy", ".npz": "npz", ".db": "sqlite", ".db3": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite",
    ".duckdb": "duckdb", ".ddb": "duckdb",
}  # fmt: skip
"""Suffix of a file's name → format of the file."""


def infer_format_from_suffix(path: FileName) -> str:
    """Return the format that a file's suffix shows.

    A suffix of compression, such as .gz, is ignored. If the path is FILE!TABLE, the suffix of FILE
    decides. Raises InvalidParameter if the suffix is unknown.
    """
    archive, _, member = str(path).partition("!")
    # The path is FILE!TABLE for a database, and ARCHIVE!MEMBER for a file in an archive. The suffix
    # of FILE or of MEMBER names the format.
    if (format := _SUFFIXES.get(Path(archive).suffix.lower())) in DATABASES:
        return str(format)

    suffix = _suffix_of(Path(member or archive))
    if suffix not in _SUFFIXES:
        raise InvalidParameter(
            f"{path}: its name does not say which format it has; give --format (format=), one of {', '.join(FORMATS)}."
        )
    return _SUFFIXES[suffix]


def _suffix_of(name: Path) -> str:
    """Return the suffix of a file's name, without a suffix of compression."""
    if name.suffix.lower() in PACKED:
        name = name.with_suffix("")
    return name.suffix.lower()


class FileSource:
    """Rows of several files, read one file after the other.

    Attributes
    ----------
    paths : tuple of Path
        Files to read, in this order.
    format : str
        Format of all files.
    options : Options
        Options of reading the files. `raw` is the option that makes X a table. If it is None, the
        constructor sets it from the first rows of the first file.

    The constructor raises InvalidParameter if the format does not have an option or an option has
    a wrong value. It raises InvalidTargets if the options name two kinds of targets. It also
    raises the errors of reading the first rows of a table.
    """

    def __init__(self, paths: Sequence[FileName], format: str, options: Options = Options()) -> None:
        if format not in FORMATS:
            meant = did_you_mean(format, FORMATS)
            raise InvalidParameter(f"there is no format {format!r}{meant}; formats are {', '.join(FORMATS)}.")
        self.paths = tuple(Path(path) for path in paths)
        self.format = format
        self._reader, self._option_names = _READERS[format]

        # `_chosen_options` returns the options that the caller has set, except `raw`.
        for name in _chosen_options(options):
            if name not in self._option_names:
                raise InvalidParameter(f"option {name} says nothing about {format} files; leave it out.")
        if format == "rcv1" and options.topics is None:
            raise InvalidParameter("rcv1 vector files need their topics file (rcv1-v2.topics.qrels); give topics.")
        _check_option_values(format, options)

        # The suffix .tsv (or .tsv.gz) means that the delimiter is a tab, unless the caller set one.
        if format == "csv" and options.delimiter == "," and all(".tsv" in path.suffixes for path in self.paths):
            options = options._replace(delimiter="\t")
        # The option `raw` says whether features keep their types, as a table's columns do. Without
        # it, the first rows decide. `self.first` reads them by `self.options`, and so comes second.
        self.options = options
        if format in TABLES and options.raw is None:
            self.options = options._replace(raw=self.first is not None and self.first.table)

    @cached_property
    def first(self) -> Block | None:
        """First block of rows.

        None if the first file has no rows. Raises the errors of reading the block.
        """
        # `read_csv` needs an argument to read only the start of the file.
        # Other readers read only as many rows as are taken from their iterator.
        more_arguments = {}
        if self.format == "csv":
            more_arguments = {"head_only": True}
        return next(self._read_file_blocks(self.paths[0], **more_arguments), None)

    @property
    def raw(self) -> bool:
        """True if features are read as columns of any type.

        False if all features are read as numbers.
        """
        return bool(self.options.raw)

    def blocks(self) -> Generator[Block, None, None]:
        """Yield the rows of all files in blocks.

        Each call reads the files from the start. Raises SourceMissing and the errors of the
        reader. Raises MalformedInput if no file has a row, or if a file changed during the
        reading.
        """
        rows = 0
        for path in self.paths:
            before = _size_and_change_time(path)
            for block in self._read_file_blocks(path):
                rows += block.rows
                yield block
            if _size_and_change_time(path) != before:
                message = f"{path} was written to while it was read; read it again once it is whole."
                raise MalformedInput(message, file=str(path))
        if rows == 0:
            raise MalformedInput(f"{', '.join(map(str, self.paths))}: no row in it. Give a file that holds rows.")

    def only(self, feature_names: Sequence[str] | None) -> tuple["FileSource", list[str]]:
        """Return a source that reads only some feature columns.

        Also returns the names of the feature columns that the new source does not read.

        feature_names: names of the feature columns to read. None: all columns.
        """
        # Only tables have named columns, which are known from the first rows.
        # `extra` has the names of the columns that the file has and the caller does not want.
        extra = []
        if self.format in TABLES and feature_names and self.first is not None:
            extra = [name for name in self.first.names or () if name not in feature_names]
        if not extra:
            return self, []

        # Drop the extra columns. With raw=None, the first rows decide again whether the columns
        # that remain are read as a table or as numbers.
        drop = (*_split_column_names(self.options.drop), *extra)
        return FileSource(self.paths, self.format, self.options._replace(drop=drop, raw=None)), extra

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield numbered blocks of rows, as pairs (number, block).

        The number of a block is its index in the source, from 0. The blocks whose numbers are in
        after < number ≤ until are yielded. If `until` is None, there is no upper limit.
        """
        for number, block in enumerate(self.blocks()):
            if until is not None and number > until:
                return
            if number > after:
                yield number, block

    def _read_file_blocks(self, path: Path, **reader_arguments: bool) -> Iterator[Block]:
        """Yield the rows of one file in blocks.

        reader_arguments: arguments for the format's reader in addition to the options.
        """
        # Readers of tables receive the table options together, as the argument `roles`.
        arguments = _chosen_options(self.options)
        if self.format in TABLES:
            arguments = {name: value for name, value in arguments.items() if name not in _TABLE_OPTIONS}
            arguments["roles"] = _roles_from_options(self.options)
        try:
            yield from self._reader(path, **arguments, **reader_arguments)
        except MalformedInput as e:
            # `actual` names the format that the first bytes show, or is None if none is known.
            actual = describe_other_format(_first_bytes(path), self.format)
            if actual is None:
                raise
            raise MalformedInput(f"{e} By its first bytes {path} is {actual}.", **e.details) from e


def open_source(
    paths: FileName | Sequence[FileName], format: str | None = None, options: Options | None = None, **more_options: Any
) -> FileSource:
    r"""Return a source of the rows of files.

    Rows are read when the source is iterated.

    The formats are csv, jsonl, parquet, arrow, libsvm, vw, rcv1, arff, mat, npy and npz. These
    files may be compressed as gz, bz2, xz or in a zip archive. Tables of SQLite and DuckDB
    databases can be read, too. The path of a table is FILE!TABLE, for example shop.db!orders.

    Parameters
    ----------
    paths : path or sequence of paths
        Files to read, in this order.
    format : str or None
        Format of all files. None: the suffix of the first file's name decides.
    options : Options or None
        Options of reading. None: the default options.
    **more_options
        Fields of Options by name, such as label="y" or drop="a,b". They replace values in
        `options`.

    Raises InvalidParameter, SourceMissing, MalformedInput.

    Examples
    --------
    >>> from pathlib import Path
    >>> import stream_dr
    >>> _ = Path("rows.csv").write_text("a,b,y\n1,2,u\n2,1,u\n5,6,v\n")
    >>> source = stream_dr.open_source("rows.csv", label="y")
    >>> [block.rows for _, block in source.events()]
    [3]
    """
    if isinstance(paths, str | os.PathLike):
        path_list = [paths]
    else:
        path_list = list(paths)
    if not path_list:
        raise InvalidParameter("no file is named; name one or several.")
    path_list = [file for path in path_list for file in files_of_folder(path)]
    for path in path_list:
        refuse_url(str(path))
    if error := error_for_unknown_parameter("reading a file", more_options, Options._fields):
        raise error
    options = (options or Options())._replace(**more_options)
    return FileSource(path_list, format or infer_format_from_suffix(path_list[0]), options)


def files_of_folder(path: FileName) -> list[FileName]:
    """Return the paths of a folder's data files, in order of their names.

    Data files have a suffix that names a format, and a name that does not begin with "_" or ".".
    The result is only the path itself in these cases:

    - The path is no folder.
    - The folder has a manifest or unfinished shards.
    - The folder has no data files.
    """
    folder = Path(path)
    if not folder.is_dir() or (folder / MANIFEST_NAME).exists() or (folder / UNFINISHED).exists():
        return [path]
    shown = [file for file in sorted(folder.iterdir()) if file.name[0] not in "_."]
    return [file for file in shown if _suffix_of(file) in _SUFFIXES] or [path]


def _check_option_values(format: str, options: Options) -> None:
    """Raise an error if an option has a wrong value.

    The error is InvalidParameter or InvalidTargets.
    """
    # Called only for its checks, for example that only one kind of targets is named.
    if format in TABLES:
        _roles_from_options(options).non_feature_columns()
    if options.target not in ("auto", *KINDS):
        raise InvalidTargets(f"target={options.target!r}; it must be auto, {', '.join(KINDS)}.")
    for name, value in (("delimiter", options.delimiter), ("decimal", options.decimal)):
        if len(value.encode()) != 1:
            raise InvalidParameter(f"{name}={value!r}; it must be one character of ASCII.")
    try:
        codecs.lookup(options.encoding)
    except LookupError as e:
        raise InvalidParameter(f"encoding={options.encoding!r}; name one that Python knows, such as latin-1.") from e


def _first_bytes(path: Path) -> bytes:
    """Return the first 16 bytes of a file, or b"" if it is compressed."""
    if path.suffix.lower() in PACKED or not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(16)


def _size_and_change_time(path: Path) -> tuple[int, int]:
    """Return the size in bytes of a file, and its change time in ns.

    If the path is of a member of an archive (ARCHIVE!MEMBER), the values are those of the archive.
    """
    # The caller compares them before and after reading, to see whether the file has changed.
    check_file_exists(path)
    status = Path(str(path).partition("!")[0]).stat()
    return status.st_size, status.st_mtime_ns


def _roles_from_options(options: Options) -> ColumnRoles:
    """Return which columns the options call labels, targets, weights, ids and features."""
    labels, target, drop = map(_split_column_names, (options.labels, options.targets, options.drop))
    # The kind "feature" only says that a column is no target, weight or id.
    feature = tuple(name for name, kind in options.kinds if kind == "feature")
    kinds = tuple((name, kind) for name, kind in options.kinds if kind != "feature")
    return ColumnRoles(
        label=options.label,
        labels=labels,
        target=target,
        weight=options.weight,
        id=options.id,
        drop=drop,
        raw=options.raw,
        kinds=kinds,
        feature=feature,
        separator=options.separator,
    )


def _split_column_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return column names as a tuple, from a text with commas, a sequence or None."""
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(","))
    return tuple(names or ())
