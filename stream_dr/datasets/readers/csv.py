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
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from typing import IO, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.arrow_stream import open_for_arrow, read_head
from stream_dr.datasets.readers.columns import Roles, blanks_to_nulls, blocks_of, needs_raw, type_of
from stream_dr.datasets.readers.lines import BLOCK_ROWS, LONGEST, MARK, open_bytes
from stream_dr.errors import MalformedInput, NotFinite, SchemaMismatch, StreamDRError
from stream_dr.rows.block import LARGEST, Block

PIECE = 1 << 20
"""Number of bytes parsed at a time, at least."""

MOST_COLUMNS = 50_000
"""Maximum number of columns of a table.

Each takes some 6 kB of memory in objects of its own, however few rows it has.
"""

_SEARCHED_FIELDS = 200_000
"""Number of fields that are parsed together in the search for a bad one."""

GAPS = frozenset(pacsv.ConvertOptions().null_values)
"""Texts that stand for a missing number."""

_TYPE_WORDS = {
    pa.float64(): "number (finite, at most 1e100 in size); name the column as label or drop it",
    pa.int64(): "whole number, as the first ones are; say --as COLUMN=number or category",
    pa.bool_(): "true or false, as the first ones are",
}
"""Ends of the message for a field that is not of its column's type."""


class CsvFormat(NamedTuple):
    """Format of a file.

    Attributes
    ----------
    delimiter : str
        Character between fields.
    header : bool or None
        True if the first line names the columns. If None, it does, and a line of numbers is
        refused, because it looks like a row.
    decimal : str
        Character before a number's fraction.
    encoding : str
        Encoding of the text, as Python names it.
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
    head_only: bool = False,
) -> Iterator[Block]:
    """Yield blocks of dense float64 rows, or of a table's rows.

    Without a header, columns are called f0, f1 and so on.

    Parameters
    ----------
    path : path
        File to read, plain or packed.
    roles : Roles
        Roles of the columns.
    delimiter, header, decimal, encoding
        As in `CsvFormat`.
    rows : int
        Maximum number of rows in a block.
    head_only : bool
        Read only the first rows and no more.

    Raises SourceMissing, SchemaMismatch for a named column that does not exist, and MalformedInput
    that names file, line and column.
    """
    file = CsvFile(path, CsvFormat(delimiter, header, decimal, encoding))
    features = roles.features(file.names)
    file.refuse_unnamed(features)
    file.refuse_decimal_commas([name for name in features if name not in dict(roles.kinds)])
    roles = roles._replace(raw=needs_raw(file.first, features, roles))
    file.has_gaps = bool(roles.raw)
    types = _column_types(file, features, roles)
    text_columns = {name for name in features if types[name] == pa.string()}

    # The last column is read even if it is dropped, because a quote that does not end shows in it.
    columns = [name for name in file.names if name not in roles.drop or name == file.names[-1]]
    if columns[-1] in roles.drop:
        types[columns[-1]] = pa.string()

    line = file.first_line
    ids_are_integers: bool | None = None

    def fail(error: StreamDRError, rows_before: int) -> None:
        file.raise_located(error, types, line + rows_before)

    with closing(file.batches(types, columns, head_only)) as batches:
        for batch in batches:
            if roles.id is not None and ids_are_integers is not False:
                fail_at_line = partial(file.raise_located, types=types, line=line)
                batch, ids_are_integers = _with_integer_ids(batch, roles.id, ids_are_integers, fail_at_line)
            yield from blocks_of(_blanks_to_nulls(batch, text_columns), features, roles, rows, fail)
            line += batch.num_rows


def _column_types(file: "CsvFile", features: list[str], roles: Roles) -> dict[str, pa.DataType]:
    """Return the types in which to read the columns that have a role."""
    types = dict.fromkeys((*features, *roles.number_columns()), pa.float64())
    if roles.raw:
        types |= {name: type_of(file.first.column(name), dict(roles.kinds).get(name)) for name in features}
    types |= {name: pa.string() for name in (roles.id, roles.label) if name is not None}

    # Labels have the type of the first ones. Floats are labels as they are written.
    if roles.label is not None:
        label_type = file.first.schema.field(roles.label).type
        if not pa.types.is_floating(label_type):
            types[roles.label] = pa.string() if pa.types.is_null(label_type) else label_type
    return types


def _with_integer_ids(
    batch: pa.RecordBatch, name: str, are_integers: bool | None, fail: Callable[[StreamDRError], NoReturn]
) -> tuple[pa.RecordBatch, bool]:
    """Return the batch with ids as integers if they are, and True if so.

    Ids such as 007 stay texts. The first batch decides.

    are_integers: True if those of earlier batches are. None for the first batch.
    """
    texts = batch.column(name)
    try:
        integers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        integers = None

    if integers is None or not integers.cast(pa.string()).equals(texts):
        if are_integers:
            fail(
                SchemaMismatch(
                    f"ids of column {name!r} are no longer whole numbers, as the first ones are.", column=name
                )
            )
        return batch, False
    return batch.set_column(batch.schema.get_field_index(name), name, integers), True


def _blanks_to_nulls(batch: pa.RecordBatch, text_columns: set[str]) -> pa.RecordBatch:
    """Return the batch with null for empty texts in these columns."""
    columns = [
        blanks_to_nulls(column) if name in text_columns else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class CsvFile:
    """A delimited text file.

    Attributes
    ----------
    names : list of str
        Names of the columns.
    first : RecordBatch
        The first piece, of the types that Arrow infers from it.
    first_line : int
        Number of the line of the first row.
    has_gaps : bool
        True if numbers may be missing.
    """

    def __init__(self, path: FileName, form: CsvFormat) -> None:
        self.path = str(path)
        self.form = form
        number, record = next(self._records(), (1, []))
        self.names = self._column_names(record, number)
        self.first_line = number + 1 if form.header is not False else 1
        self.has_gaps = False

        # A piece must hold some rows of a wide file, and a row has about the length of the first.
        piece = max(PIECE, min(LONGEST, 4 * sum(len(field) + 3 for field in record)))
        self._read = pacsv.ReadOptions(block_size=piece, column_names=self.names, skip_rows=self.first_line - 1)
        self._parse = pacsv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
        with self._opened({}, None, head_only=True) as reader:
            self.first = next(reader, None) or pa.RecordBatch.from_pylist([], schema=reader.schema)

        # Arrow infers bytes for text that is not UTF-8.
        if any(pa.types.is_binary(field.type) for field in self.first.schema):
            self._raise_for_first_bad_line({})

    def batches(
        self, types: dict[str, pa.DataType], columns: list[str], head_only: bool
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows, with columns of these types.

        head_only: yield only the first piece.

        Raises MalformedInput that names the line that does not parse.
        """
        with self._opened(types, columns, head_only) as reader:
            batch = None
            for batch in itertools.islice(reader, 1 if head_only else None):
                yield batch
            if batch is not None and not head_only:
                self._check_last_field(batch)

    @contextmanager
    def _opened(
        self, types: dict[str, pa.DataType], columns: list[str] | None, head_only: bool = False
    ) -> Iterator[pa.RecordBatchReader]:
        """Yield Arrow's reader of the file, or of its first bytes only."""
        convert = pacsv.ConvertOptions(column_types=types, include_columns=columns, decimal_point=self.form.decimal)
        encoding = self.form.encoding
        try:
            source: AbstractContextManager[pa.NativeFile]
            if head_only:
                source = nullcontext(read_head(self.path, encoding, 2 * self._read.block_size))
            else:
                source = open_for_arrow(self.path, encoding)
            with source as stream, pacsv.open_csv(stream, self._read, self._parse, convert) as reader:
                yield reader

        except (pa.ArrowException, UnicodeError, OSError, EOFError) as e:
            self._raise_for_first_bad_line(types)
            raise MalformedInput(f"{self.path}: {e}", file=self.path) from e

    def _check_last_field(self, batch: pa.RecordBatch) -> None:
        """Raise MalformedInput if the last field has an open quote.

        Such a field takes in the rest of the file, line breaks and all.
        """
        last = batch.column(batch.num_columns - 1)
        if pa.types.is_string(last.type) and "\n" in (last[-1].as_py() or ""):
            self._refuse_open_quote()

    def refuse_decimal_commas(self, names: list[str]) -> None:
        """Raise MalformedInput if a column's texts are numbers with a decimal comma."""
        for name in names if self.form.decimal == "." else ():
            column = self.first.column(name)
            if pa.types.is_string(column.type):
                texts = column.filter(pc.not_equal(column, ""))
                are_numbers = pc.all(pc.match_substring_regex(texts, r"^\s*[-+]?\d[\d.]*(,\d+)?\s*$")).as_py()
                if are_numbers and pc.any(pc.match_substring(texts, ",")).as_py():
                    self._raise_for_first_bad_line({name: pa.float64()})

    def _refuse_open_quote(self) -> None:
        """Raise MalformedInput if the last row has an open quote."""
        start = 1
        end = 0
        record = [""]
        for line, fields in self._records():
            start = end + 1
            end = line
            record = fields
        if end > start or record[-1].endswith("\n"):
            self._fail(start, "a quote begins in this row that does not end; close or remove it.")

    def raise_located(self, error: StreamDRError, types: dict[str, pa.DataType], line: int) -> NoReturn:
        """Raise the error of a block as MalformedInput that names its line.

        line: number of the block's first line, about.
        """
        if isinstance(error, SchemaMismatch | NotFinite):
            self._raise_for_first_bad_line(types)
        raise MalformedInput(f"{self.path}, after line {line - 1}: {error}", file=self.path, line=line) from error

    def _column_names(self, first: list[str], line: int) -> list[str]:
        """Return the columns' names by the first record.

        line: number of the line in which the record ends.

        Raises MalformedInput if they are not distinct or are no names.
        """
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

        if self.form.header is None and all(map(_is_number, first)) and not _are_default_names(first):
            self._fail(
                line, f"the columns' names are numbers ({first[0]}, …), as of a row; say --no-header or --header."
            )
        return [name or f"Unnamed: {j}" for j, name in enumerate(first)]

    def refuse_unnamed(self, features: list[str]) -> None:
        """Raise MalformedInput if a feature has no name.

        It is probably the rows' index, as pandas writes it.
        """
        feature_set = set(features)
        for j, name in enumerate(self.names, 1):
            if name in feature_set and name == f"Unnamed: {j - 1}":
                self._fail(
                    self.first_line - 1,
                    f"column {j} has no name, as an index that pandas wrote; leave it out (--drop {name!r}), or take it for "
                    f"the rows' ids (--id {name!r}).",
                    j,
                )

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield (line, fields) of each row.

        The line is the one in which the row ends. Raises MalformedInput.
        """
        with open_bytes(self.path) as file:
            lines = self._utf8_lines(file) if self.form.encoding == "utf-8" else self._decoded_lines(file)
            size = 0
            line = 0

            def limited() -> Iterator[str]:
                nonlocal size
                for text in lines:
                    size += len(text)
                    if size > LONGEST:
                        self._fail(line + 1, f"a row begins here of more than {LONGEST} bytes; is a quote left open?")
                    yield text

            reader = csv.reader(limited(), delimiter=self.form.delimiter)
            try:
                for fields in reader:
                    size = 0
                    line = reader.line_num
                    if fields:
                        yield line, fields
            except csv.Error as e:
                self._fail(line + 1, f"a row begins here that does not end well ({e}); is a quote left open?")

    def _utf8_lines(self, file: IO[bytes]) -> Iterator[str]:
        """Yield the lines of a file in UTF-8."""
        try:
            for number, line in enumerate(iter(partial(file.readline, LONGEST + 1), b""), 1):
                if len(line) > LONGEST:
                    self._fail(number, f"longer than {LONGEST} bytes; is this a text file?")
                if b"\0" in line or (number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff"))):
                    self._fail(number, "a NUL byte; this is no text, or text in UTF-16: say --encoding utf-16.")
                yield (line.removeprefix(MARK) if number == 1 else line).decode()

        except UnicodeDecodeError as e:
            position = f"byte 0x{line[e.start]:02x} at {e.start + 1} is no UTF-8"
            self._fail(number, f"{position}; say the file's encoding, such as --encoding latin-1.")
        except (OSError, EOFError) as e:
            raise MalformedInput(f"{self.path} cannot be unpacked ({e}).", file=self.path) from e

    def _decoded_lines(self, file: IO[bytes]) -> Iterator[str]:
        """Yield the lines of a file in another encoding.

        Bytes that do not decode are replaced.
        """
        with io.TextIOWrapper(file, encoding=self.form.encoding, errors="replace", newline="") as text:
            yield from iter(partial(text.readline, LONGEST // 4), "")

    def _raise_for_first_bad_line(self, types: dict[str, pa.DataType]) -> None:
        """Raise MalformedInput for the first row that cannot be parsed.

        It is ragged, or has a field that is not of its column's type.
        """
        records = itertools.islice(self._records(), int(self.form.header is not False), None)
        checked = [
            (j, name, types[name]) for j, name in enumerate(self.names) if name in types and types[name] != pa.string()
        ]

        # A group of good rows is passed by its columns, which is much faster than by its rows.
        group_rows = max(1, _SEARCHED_FIELDS // len(self.names))
        while group := list(itertools.islice(records, group_rows)):
            is_rectangular = all(len(fields) == len(self.names) for _, fields in group)
            if is_rectangular and all(
                self._all_parse([fields[j] for _, fields in group], kind) for j, _, kind in checked
            ):
                continue
            for line, fields in group:
                self._check_record(line, fields, checked)

    def _check_record(self, line: int, fields: list[str], checked: list[tuple[int, str, pa.DataType]]) -> None:
        """Raise MalformedInput if a row cannot be parsed.

        It is ragged, or a field is not of its column's type.

        checked: number, name and type of each column that is not text.
        """
        if len(fields) != len(self.names):
            self._fail(line, f"{len(fields)} fields where {len(self.names)} are needed.")
        for j, name, kind in checked:
            if not fields[j].strip() or (self.has_gaps and fields[j] in GAPS):
                if kind == pa.float64() and not self.has_gaps:
                    self._fail(line, f"column {name!r} has no value; fill it or leave the row out.", j + 1)
            elif not self._all_parse([fields[j]], kind):
                self._fail(line, f"{fields[j]!r} in column {name!r} is no {_type_hint(fields[j], kind)}.", j + 1)

    def _all_parse(self, fields: list[str], kind: pa.DataType) -> bool:
        """Return True if all fields are of this type or may be missing."""
        texts = [field.strip().replace(self.form.decimal, ".") for field in fields]
        gaps = GAPS if self.has_gaps else frozenset({""}) - ({""} if kind == pa.float64() else set())
        try:
            values = pa.array([text for text in texts if text not in gaps], pa.string()).cast(kind)
        except pa.ArrowException:
            return False
        return kind != pa.float64() or bool((np.abs(values.to_numpy(zero_copy_only=False)) <= LARGEST).all())

    def _fail(self, line: int, message: str, column: int | None = None) -> NoReturn:
        raise MalformedInput(f"{self.path}, line {line}: {message}", file=self.path, line=line, column=column)


def _type_hint(field: str, kind: pa.DataType) -> str:
    """Return the end of the message for a field that is not of this type."""
    if kind == pa.float64() and _is_number(field.replace(",", ".")):
        return "number; where a comma stands before the fraction, say --decimal ,"
    return _TYPE_WORDS.get(kind, str(kind))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _are_default_names(names: list[str]) -> bool:
    """Return True if names are those that programs give unnamed columns.

    They are 0, 1, 2 …, or years.
    """
    return all(name.isdigit() for name in names) and all(int(b) == int(a) + 1 for a, b in itertools.pairwise(names))
