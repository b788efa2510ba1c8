"""CSV: delimited text by column, through Arrow's incremental reader.

Unpacks gz, bz2, xz and zip members. Features that are numbers are read as float64. The first piece
of the file decides the types of other columns: words, dates, booleans. Labels may be whole
numbers. Memory: one piece (1 MiB, or a few lines of a wide file) and its parsed columns.

Why this way: Arrow guesses types from the first piece and fails if a later one disagrees (0, then
0.5). So the file is opened twice, and the second time every feature is declared a float. Arrow's
errors name no line. After an error the file is read again to find it.
"""

import csv
import io
import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from stream_dr.datasets.readers.arrow_stream import open_for_arrow, read_head
from stream_dr.datasets.readers.columns import Roles, blocks_of, needs_raw, type_of, without_blanks
from stream_dr.datasets.readers.lines import BLOCK_ROWS, LONGEST, MARK, open_bytes
from stream_dr.disk import FileName
from stream_dr.errors import MalformedInput, NotFinite, SchemaMismatch, StreamDRError
from stream_dr.rows.block import LARGEST, Block

PIECE = 1 << 20
"""Bytes parsed at a time, at least."""

MOST_COLUMNS = 50_000
"""Number of columns of a table. Each takes some 6 kB of memory in objects of its own, however few rows it has."""

_LOOKED_AT = 200_000
"""Fields that are looked at together when a bad one is searched."""

GAPS = frozenset(pacsv.ConvertOptions().null_values)
"""Texts that stand for a missing number."""

_WORDS = {
    pa.float64(): "number (finite, at most 1e100 in size); name the column as label or drop it",
    pa.int64(): "whole number, as the first ones are; say --as COLUMN=number or category",
    pa.bool_(): "true or false, as the first ones are",
}


class Form(NamedTuple):
    """Format of a file.

    header: True if the first line names the columns. None takes it as names, and refuses it if
    they are numbers, as those of a row. decimal: character before a number's fraction.
    """

    delimiter: str = ","
    header: bool | None = None
    decimal: str = "."
    encoding: str = "utf-8"


def read_csv(
    path: FileName,
    roles: Roles = Roles(),
    *,
    delimiter: str = ",",
    header: bool | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    rows: int = BLOCK_ROWS,
    some: bool = False,
) -> Iterator[Block]:
    """Yield blocks of dense float64 rows, or of rows of a table, with names.

    Without a header, columns are called f0, f1 and so on.

    some: read only the first rows and no more.

    Raises SourceMissing, SchemaMismatch for a named column that does not exist, and MalformedInput
    that names file, line and column.
    """
    file = CsvFile(path, Form(delimiter, header, decimal, encoding))
    features = roles.features(file.names)
    file.check_named(features)
    file.check_commas([name for name in features if name not in dict(roles.kinds)])
    roles = roles._replace(raw=needs_raw(file.first, features, roles))
    types = dict.fromkeys((*features, *roles.numbers()), pa.float64())
    if roles.raw:
        types |= {name: type_of(file.first.column(name), dict(roles.kinds).get(name)) for name in features}
    types |= {name: pa.string() for name in (roles.id, roles.label) if name is not None}
    if roles.label is not None and not pa.types.is_floating(kind := file.first.schema.field(roles.label).type):
        types[roles.label] = pa.string() if pa.types.is_null(kind) else kind
    line = file.first_line

    def fail(error: StreamDRError, at: int) -> None:
        file.blame(error, types, line + at)

    file.gaps = bool(roles.raw)
    texts = [name for name in features if types[name] == pa.string()]
    whole: bool | None = None
    # The last column is read though it is dropped: a quote that does not end shows in it.
    columns = [name for name in file.names if name not in roles.drop or name == file.names[-1]]
    if columns[-1] in roles.drop:
        types[columns[-1]] = pa.string()
    with closing(file.batches(types, columns, some)) as batches:
        for batch in batches:
            if roles.id is not None and whole is not False:
                batch, whole = _with_whole_ids(batch, roles.id, whole, partial(file.blame, types=types, line=line))
            yield from blocks_of(_without_blanks(batch, texts), features, roles, rows, fail)
            line += batch.num_rows


def _with_whole_ids(
    batch: pa.RecordBatch, name: str, known: bool | None, fail: Callable[[StreamDRError], NoReturn]
) -> tuple[pa.RecordBatch, bool]:
    """Return the batch with ids as integers if they are, and True if so.

    Ids such as 007 stay texts. The first batch decides.
    """
    texts = batch.column(name)
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = None
    if numbers is None or not numbers.cast(pa.string()).equals(texts):
        if known:
            fail(
                SchemaMismatch(
                    f"ids of column {name!r} are no longer whole numbers, as the first ones are.", column=name
                )
            )
        return batch, False
    return batch.set_column(batch.schema.get_field_index(name), name, numbers), True


def _without_blanks(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The batch with null where a text is empty."""
    texts, every = set(names), zip(batch.schema.names, batch.columns, strict=True)
    columns = [without_blanks(column) if name in texts else column for name, column in every]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class CsvFile:
    """A delimited text file. names: its columns. first: its first piece, of the types that suggests. first_line: the number
    of its first row's line. gaps: whether numbers may be missing."""

    def __init__(self, path: FileName, form: Form) -> None:
        self.path, self.form = str(path), form
        number, first = next(self._records(), (1, []))
        self.names = self._names(first, number)
        self.first_line = number + 1 if form.header is not False else 1
        piece = max(PIECE, min(LONGEST, 4 * sum(len(field) + 3 for field in first)))
        self._read = pacsv.ReadOptions(block_size=piece, column_names=self.names, skip_rows=self.first_line - 1)
        self._parse = pacsv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
        with self._opened({}, None, some=True) as reader:
            self.first = next(reader, None) or pa.RecordBatch.from_pylist([], schema=reader.schema)
        self.gaps = False
        binary = next((f.name for f in self.first.schema if pa.types.is_binary(f.type)), None)
        if binary is not None:
            self._name_the_line({})  # where it is no UTF-8

    def batches(
        self, types: dict[str, pa.DataType], columns: list[str], some: bool
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows, columns of these types, or only some of the first.

        Raises MalformedInput naming the line that does not parse.
        """
        with self._opened(types, columns, some) as reader:
            batch = None
            for batch in itertools.islice(reader, 1 if some else None):
                yield batch
            if batch is not None and not some:
                self._check_last_field(batch)

    @contextmanager
    def _opened(
        self, types: dict[str, pa.DataType], columns: Any, some: bool = False
    ) -> Iterator[pa.RecordBatchReader]:
        """Yield Arrow's reader of the file, or of its first bytes only."""
        convert = pacsv.ConvertOptions(column_types=types, include_columns=columns, decimal_point=self.form.decimal)
        encoding = self.form.encoding
        try:
            if some:
                source: Any = nullcontext(read_head(self.path, encoding, 2 * self._read.block_size))
            else:
                source = open_for_arrow(self.path, encoding)
            with source as stream, pacsv.open_csv(stream, self._read, self._parse, convert) as reader:
                yield reader
        except (pa.ArrowException, UnicodeError, OSError, EOFError) as e:
            self._name_the_line(types)
            raise MalformedInput(f"{self.path}: {e}", file=self.path) from e

    def _check_last_field(self, batch: pa.RecordBatch) -> None:
        """Raise MalformedInput if the last field of the file has a quote that does not end.

        Such a field takes in the rest of the file, line breaks and all.
        """
        last = batch.column(batch.num_columns - 1)
        if pa.types.is_string(last.type) and "\n" in (last[-1].as_py() or ""):
            self._refuse_open_quote()

    def check_commas(self, names: list[str]) -> None:
        """Raise MalformedInput where a column's texts are numbers with a comma before the fraction."""
        for name in names if self.form.decimal == "." else ():
            column = self.first.column(name)
            if pa.types.is_string(column.type):
                texts = column.filter(pc.not_equal(column, ""))
                numbers = pc.all(pc.match_substring_regex(texts, r"^\s*[-+]?\d[\d.]*(,\d+)?\s*$")).as_py()
                if numbers and pc.any(pc.match_substring(texts, ",")).as_py():
                    self._name_the_line({name: pa.float64()})

    def _refuse_open_quote(self) -> None:
        """Raise MalformedInput where the last row is within quotes that do not end."""
        begins, ends, fields = 1, 0, [""]
        for line, record in self._records():
            begins, ends, fields = ends + 1, line, record
        if ends > begins or fields[-1].endswith("\n"):
            self._fail(begins, "a quote begins in this row that does not end; close or remove it.")

    def blame(self, error: StreamDRError, types: dict[str, pa.DataType], line: int) -> NoReturn:
        """Raise what is wrong with a block whose first row is about at this line, naming its line."""
        if isinstance(error, SchemaMismatch | NotFinite):
            self._name_the_line(types)
        raise MalformedInput(f"{self.path}, after line {line - 1}: {error}", file=self.path, line=line) from error

    def _names(self, first: list[str], line: int) -> list[str]:
        """The columns' names. Raises MalformedInput where they cannot be told apart or are no names."""
        if not first:
            self._fail(1, "no row in it. Give a file that holds rows.")
        if len(first) > MOST_COLUMNS:
            self._fail(
                line,
                f"{len(first)} columns, and at most {MOST_COLUMNS} are read from a table. Write rows that wide as libsvm.",
            )
        if self.form.header is False:
            return [f"f{j}" for j in range(len(first))]
        seen: dict[str, int] = {}
        for j, name in enumerate(first, 1):
            if not name.strip() and "" in seen:
                self._fail(line, f"columns {seen['']} and {j} have no name; give them names.", j)
            if name in seen:
                self._fail(line, f"columns {seen[name]} and {j} are both called {name!r}; rename one.", j)
            seen[name] = j
        if self.form.header is None and all(map(_is_number, first)) and not _count_up(first):
            self._fail(
                line, f"the columns' names are numbers ({first[0]}, …), as of a row; say --no-header or --header."
            )
        return [name or f"Unnamed: {j}" for j, name in enumerate(first)]

    def check_named(self, features: list[str]) -> None:
        """Raise MalformedInput where a feature has no name: it is probably the rows' index, as pandas writes it."""
        wanted = set(features)
        for j, name in enumerate(self.names, 1):
            if name in wanted and name == f"Unnamed: {j - 1}":
                self._fail(
                    self.first_line - 1,
                    f"column {j} has no name, as an index that pandas wrote; leave it out (--drop {name!r}), or take it for "
                    f"the rows' ids (--id {name!r}).",
                    j,
                )

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Each row's fields, and the number of the line it ends in. Raises MalformedInput."""
        with open_bytes(self.path) as file:
            lines = self._lines(file) if self.form.encoding == "utf-8" else self._decoded(file)
            size, line = 0, 0

            def counted() -> Iterator[str]:
                nonlocal size
                for text in lines:
                    size += len(text)
                    if size > LONGEST:
                        self._fail(line + 1, f"a row begins here of more than {LONGEST} bytes; is a quote left open?")
                    yield text

            reader = csv.reader(counted(), delimiter=self.form.delimiter)
            try:
                for fields in reader:
                    size, line = 0, reader.line_num
                    if fields:
                        yield line, fields
            except csv.Error as e:
                self._fail(line + 1, f"a row begins here that does not end well ({e}); is a quote left open?")

    def _lines(self, file: Any) -> Iterator[str]:
        try:
            for number, line in enumerate(iter(partial(file.readline, LONGEST + 1), b""), 1):
                if len(line) > LONGEST:
                    self._fail(number, f"longer than {LONGEST} bytes; is this a text file?")
                if b"\0" in line or (number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff"))):
                    self._fail(number, "a NUL byte; this is no text, or text in UTF-16: say --encoding utf-16.")
                yield (line.removeprefix(MARK) if number == 1 else line).decode()
        except UnicodeDecodeError as e:
            odd = f"byte 0x{line[e.start]:02x} at {e.start + 1} is no UTF-8"
            self._fail(number, f"{odd}; say the file's encoding, such as --encoding latin-1.")
        except (OSError, EOFError) as e:
            raise MalformedInput(f"{self.path} cannot be unpacked ({e}).", file=self.path) from e

    def _decoded(self, file: Any) -> Iterator[str]:
        with io.TextIOWrapper(file, encoding=self.form.encoding, errors="replace", newline="") as text:
            yield from iter(partial(text.readline, LONGEST // 4), "")

    def _name_the_line(self, types: dict[str, pa.DataType]) -> None:
        """Raise MalformedInput for the first row that cannot be parsed.

        It is ragged, or has a field that is not of its column's type.
        """
        records = itertools.islice(self._records(), int(self.form.header is not False), None)
        places = [
            (j, name, types[name]) for j, name in enumerate(self.names) if name in types and types[name] != pa.string()
        ]
        while some := list(itertools.islice(records, max(1, _LOOKED_AT // len(self.names)))):
            whole = all(len(fields) == len(self.names) for _, fields in some)
            if whole and all(self._parse_all([fields[j] for _, fields in some], kind) for j, _, kind in places):
                continue
            for line, fields in some:
                if len(fields) != len(self.names):
                    self._fail(line, f"{len(fields)} fields where {len(self.names)} are needed.")
                for j, name, kind in places:
                    if not fields[j].strip() or (self.gaps and fields[j] in GAPS):
                        if kind == pa.float64() and not self.gaps:
                            self._fail(line, f"column {name!r} has no value; fill it or leave the row out.", j + 1)
                    elif not self._parse_all([fields[j]], kind):
                        self._fail(line, f"{fields[j]!r} in column {name!r} is no {_word(fields[j], kind)}.", j + 1)

    def _parse_all(self, fields: list[str], kind: pa.DataType) -> bool:
        texts = [field.strip().replace(self.form.decimal, ".") for field in fields]
        gaps = GAPS if self.gaps else frozenset({""}) - ({""} if kind == pa.float64() else set())
        try:
            values = pa.array([text for text in texts if text not in gaps], pa.string()).cast(kind)
        except pa.ArrowException:
            return False
        return kind != pa.float64() or bool((np.abs(values.to_numpy(zero_copy_only=False)) <= LARGEST).all())

    def _fail(self, line: int, why: str, column: int | None = None) -> NoReturn:
        raise MalformedInput(f"{self.path}, line {line}: {why}", file=self.path, line=line, column=column)


def _word(field: str, kind: pa.DataType) -> str:
    if kind == pa.float64() and _is_number(field.replace(",", ".")):
        return "number; where a comma stands before the fraction, say --decimal ,"
    return _WORDS.get(kind, str(kind))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _count_up(names: list[str]) -> bool:
    """Return True if names are those that programs give unnamed columns.

    They are 0, 1, 2 …, or years.
    """
    return all(name.isdigit() for name in names) and all(int(b) == int(a) + 1 for a, b in itertools.pairwise(names))
