"""CSV: read delimited text with Arrow's incremental reader.

Files may be compressed (.gz, .bz2, .xz, or archive.zip!member). Arrow reads a file in pieces of
1 MiB, or of a few lines if lines are long. One piece and its parsed columns are in memory.

The file is opened twice:

1. The first piece is read, and Arrow infers the type of each column.
2. The whole file is read with these types. Whole numbers in features are the exception. They are
   read as floats, because a column may have 0 in the first piece and 0.5 in a later piece. Labels
   and ids are read as texts, and are integers if all of the first ones are.

Arrow's errors do not name a line. After an error, the file is read once more to find the line.
"""

import csv
import io
import itertools
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import IO, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from stream_dr.aliases import FileName
from stream_dr.batch.block import LARGEST, Block
from stream_dr.datasets.readers.columns import (
    ColumnRoles,
    choose_column_types,
    must_read_as_table,
    split_batches_into_blocks,
    split_labels,
)
from stream_dr.datasets.readers.lines import (
    BLOCK_ROWS,
    LONGEST,
    open_decompressed,
    open_text_for_arrow,
    raise_at_line,
    read_first_text,
    read_raw_lines,
)
from stream_dr.errors import InvalidRows, MalformedInput, NotFinite, SchemaMismatch, StreamDRError

PIECE = 1 << 20
"""Smallest number of bytes that Arrow parses at a time."""

MOST_COLUMNS = 50_000
"""Maximum number of columns of a table.

Each column takes about 6 kB of memory, even if it has no rows.
"""

_SEARCHED_FIELDS = 50_000
"""Number of fields that are checked together in the search for the line with an error."""

GAPS = frozenset(pacsv.ConvertOptions().null_values)
"""Strings, such as "NA", that stand for a missing number."""

_THOUSANDS = r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?"
"""Pattern of numbers with commas between thousands."""

_TYPE_WORDS = {
    pa.float64(): "number (finite, at most 1e100 in size); name the column as label or drop it",
    pa.int64(): "whole number, as the first ones are; say --as COLUMN=number or category",
    pa.bool_(): "true or false, as the first ones are",
}
"""Type of a column → end of the error message "… is no" for a field of another type."""


Record = tuple[int, list[str]]
"""Line at which a row ends, and the fields of the row."""


class CsvFormat(NamedTuple):
    """Format of a CSV file.

    Attributes
    ----------
    delimiter : str
        Character between fields.
    header : bool or None
        True if the first line has the names of the columns. False if the first line is a row. None
        is like True, but an error is raised if all names are numbers, because the line is then
        probably a row.
    decimal : str
        Decimal separator of numbers, "." or ",".
    encoding : str
        Python's name of the text encoding.
    missing : tuple of str
        Words that stand for a missing value in any column, in addition to an empty field and, in
        columns of numbers, to GAPS. If "" is among the words, GAPS are not used.
    """

    delimiter: str = ","
    header: bool | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()

    @property
    def gaps(self) -> frozenset[str]:
        """Strings that stand for a missing number."""
        words = frozenset({"", *self.missing})
        if "" in self.missing:
            return words
        return words | GAPS


def read_csv(
    path: FileName,
    roles: ColumnRoles = ColumnRoles(),
    *,
    delimiter: str = ",",
    header: bool | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    missing: str | Sequence[str] = (),
    rows_per_block: int = BLOCK_ROWS,
    head_only: bool = False,
) -> Iterator[Block]:
    """Yield the rows of a CSV file in blocks.

    Rows are dense float64, or a table if `roles.raw` is set. Columns without names are f0, f1, ….

    Parameters
    ----------
    path : path
        File to read, which may be compressed (.gz, .bz2, .xz, archive.zip!member).
    roles : ColumnRoles
        Role of each column: label, target, weight, id or feature.
    delimiter, header, decimal, encoding, missing
        Format of the file, as in `CsvFormat`. `missing` may also be a single word.
    rows_per_block : int
        Maximum number of rows in a block.
    head_only : bool
        True to read only the first rows of the file.

    Raises SourceMissing, SchemaMismatch if a column with a role does not exist, and MalformedInput,
    which names the file, the line and the column.
    """
    missing = (missing,) if isinstance(missing, str) else tuple(missing)
    file = CsvFile(path, CsvFormat(delimiter, header, decimal, encoding, missing))
    features = roles.features(file.names)
    file.refuse_unnamed_features(features)
    file.refuse_decimal_commas([name for name in features if name not in dict(roles.kinds)])
    roles = roles._replace(raw=must_read_as_table(file.first, features, roles))
    file.has_gaps = bool(roles.raw)
    # Ids and labels are read as texts first, because integers would lose zeros, as of 007.
    code_columns = roles.code_columns(file.first.schema)
    types = choose_column_types(file.first, features, roles) | dict.fromkeys(code_columns, pa.string())

    # The last column is read even if it is dropped: after an open quote it has the rest of the
    # file.
    columns = [name for name in file.names if name not in roles.drop or name == file.names[-1]]
    types.setdefault(columns[-1], pa.string())

    feature_set = set(features)

    def raise_with_line(error: StreamDRError, row: int) -> None:
        file.raise_malformed_with_line(error, types, file.first_line + row)

    with closing(file.batches(types, columns, head_only)) as batches:
        prepared = (file.prepare(batch, feature_set, roles) for batch in batches)
        yield from split_batches_into_blocks(path, prepared, features, roles, rows_per_block, raise_with_line)


class CsvFile:
    """CSV file with its column names and first rows.

    Attributes
    ----------
    names : list of str
        Names of the columns.
    first : RecordBatch
        First rows of the file, with the types that Arrow infers from these rows.
    first_line : int
        Line number of the first row, from 1.
    has_gaps : bool
        True if numbers may be missing in the file. False if a missing number is an error.
    """

    def __init__(self, path: FileName, form: CsvFormat) -> None:
        self.path = str(path)
        self.form = form
        # `record` has the fields of the first record, `number` is the line at which it ends. The
        # first record is the header with the column names, unless the user has said that there is
        # none (`form.header` is False).
        number, record = next(self._read_records(), (1, []))
        self.names = self._parse_column_names(record, number)
        self.first_line = number + 1 if form.header is not False else 1
        # The caller sets `has_gaps` to True if numbers may be missing, as in a table.
        self.has_gaps = False
        # Column of ids or labels → True if it has integers. The first values of a column are added.
        self._has_integers: dict[str, bool] = {}

        # Arrow parses blocks of `block_size` bytes, at least PIECE and at most LONGEST. A block
        # should have at least four rows. They are assumed to be as long as the first record, in
        # which each field has 3 bytes more, for quotes and a delimiter.
        record_bytes = sum(len(field) + 3 for field in record)
        block_size = max(PIECE, min(LONGEST, 4 * record_bytes))
        self._read = pacsv.ReadOptions(block_size=block_size, column_names=self.names, skip_rows=self.first_line - 1)
        self._parse = pacsv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
        # Read the first batch: all columns (None), whose types Arrow infers ({}).
        first = next(self.batches({}, None, first_batch_only=True), None)
        # A file without rows has columns without values.
        if first is None:
            empty = pa.schema(dict.fromkeys(self.names, pa.null()))
            first = pa.RecordBatch.from_pylist([], schema=empty)
        self.first = first

        # Arrow infers a binary type if a column is not valid UTF-8. Such a file is refused by the
        # error for its first bad record.
        if any(pa.types.is_binary(field.type) for field in self.first.schema):
            self._refuse_bad_record({})

    def batches(
        self, type_by_column: dict[str, pa.DataType], column_names: list[str] | None, first_batch_only: bool
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of the file in Arrow batches.

        type_by_column: Arrow types by name of the column. The type of any other column is
            inferred.
        column_names: names of the columns to read. None: all columns.
        first_batch_only: True to read only the first bytes of the file, and yield only one batch.

        Raises MalformedInput, which names the line with the error.
        """
        form = self.form
        convert = pacsv.ConvertOptions(
            column_types=type_by_column,
            include_columns=column_names,
            decimal_point=form.decimal,
            null_values=sorted(form.gaps),
        )
        batch = None
        try:
            source: AbstractContextManager[pa.NativeFile]
            # A text of twice the size of a block is enough for the first batch.
            if first_batch_only:
                source = nullcontext(read_first_text(self.path, form.encoding, 2 * self._read.block_size))
            else:
                source = open_text_for_arrow(self.path, form.encoding)
            with source as stream, pacsv.open_csv(stream, self._read, self._parse, convert) as reader:
                n_batches = 1 if first_batch_only else None
                for batch in itertools.islice(reader, n_batches):
                    yield batch
        # `_refuse_bad_record` raises an error that names the line, if it finds the line.
        except (pa.ArrowException, UnicodeError, OSError, EOFError) as e:
            self._refuse_bad_record(type_by_column)
            raise MalformedInput(f"{self.path}: {e}", file=self.path) from e

        # The end of the file was not read, or there are no rows in it.
        if batch is None or first_batch_only:
            return
        # A field with an open quote includes the rest of the file.
        # So only the last field of the file can have one, and it then has line breaks.
        last = batch.column(batch.num_columns - 1)
        if pa.types.is_string(last.type) and "\n" in (last[-1].as_py() or ""):
            self._refuse_open_quote()

    def prepare(self, batch: pa.RecordBatch, features: set[str], roles: ColumnRoles) -> pa.RecordBatch:
        """Return a batch with converted ids, labels and texts.

        Ids and labels become integers if all are whole numbers. Texts of features that stand for a
        missing value become null.
        """
        # For texts, an empty field and the strings of the option `missing` mean a missing value.
        gaps = pa.array(["", *self.form.missing], pa.string())
        code_columns = roles.code_columns(self.first.schema)
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in code_columns:
                column = self._read_codes(column, name, roles)
            elif pa.types.is_string(column.type) and name in features:
                column = pc.if_else(pc.is_in(column, gaps), None, column)
            columns.append(column)
        return pa.record_batch(columns, batch.schema.names)

    def _read_codes(self, texts: pa.Array, column_name: str, roles: ColumnRoles) -> pa.Array:
        """Return a column of ids or labels as integers or texts.

        If rows have several labels, the result has a list of integers or texts for each row.

        texts: the column's values in one batch.
        """
        # Labels may be missing, ids must not. `gaps` are the texts that stand for a missing label.
        if column_name != roles.id:
            gaps = pa.array(sorted(self.form.gaps))
            texts = pc.if_else(pc.is_in(pc.utf8_trim_whitespace(texts), gaps), None, texts)
        if column_name not in roles.labels:
            return self._integers_or_texts(texts, column_name, roles)
        # Without a separator, texts are JSON lists, which are read later.
        if roles.separator is None:
            return texts

        # Convert the labels of all lists, and put them into the lists again.
        lists = split_labels(texts, column_name, roles.separator)
        codes = self._integers_or_texts(lists.flatten(), column_name, roles)
        return pa.ListArray.from_arrays(lists.offsets, codes, mask=lists.is_null())

    def _integers_or_texts(self, texts: pa.Array, column_name: str, roles: ColumnRoles) -> pa.Array:
        """Return ids or labels as integers, or unchanged if the column has texts.

        The first batch with a value decides for the whole file. The column has integers if all of
        its values are integers. Raises MalformedInput, which names the line, if the column has
        integers and a later value is none.
        """
        integers = self._as_integers(texts, are_ids=column_name == roles.id)
        has_value = texts.null_count < len(texts)
        if has_value:
            self._has_integers.setdefault(column_name, integers is not None)
        if not self._has_integers.get(column_name):
            return texts
        if integers is None:
            self._raise_not_whole(column_name, roles)
        return integers

    def _as_integers(self, texts: pa.Array, are_ids: bool = False) -> pa.Array | None:
        """Return texts as integers, or None if one is no integer.

        A text such as 007 or +1 is no integer, because the integers 7 and 1 would be written in
        another way.

        are_ids: True for ids, False for labels. The label 2.00 is the integer 2. The id 2.00 is no
            integer.
        """
        # Remove blanks and the zeros after the decimal separator from labels such as " 2.00".
        if not are_ids:
            pattern = rf"^\s*(-?\d+)({re.escape(self.form.decimal)}0+)?\s*$"
            texts = pc.replace_substring_regex(texts, pattern, r"\1")
        try:
            integers = texts.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
        if integers.cast(pa.string()).equals(texts):
            return integers
        return None

    def _raise_not_whole(self, column_name: str, roles: ColumnRoles) -> NoReturn:
        """Raise MalformedInput for the first value that is no whole number.

        column_name: name of a column of ids or labels that has such a value.
        """
        j = self.names.index(column_name)
        separator = None
        if column_name in roles.labels:
            separator = roles.separator

        # True if all values of the column are whole numbers or missing in these records.
        # `_first_bad_record` checks groups of records, and then each record of the first bad group.
        def are_whole(records: list[Record]) -> bool:
            codes = [fields[j] for _, fields in records]
            if separator is not None:
                codes = [code for field in codes for code in field.split(separator)]
            present = [code for code in codes if code.strip() not in self.form.gaps]
            texts = pa.array(present, pa.string())
            return self._as_integers(texts, are_ids=column_name == roles.id) is not None

        # `found` is the first record with another value than integers. There is one, unless the
        # file was changed meanwhile.
        found = self._first_bad_record(are_whole)
        if found is None:
            raise MalformedInput(f"{self.path}: column {column_name!r} changed while it was read.", file=self.path)
        line, fields = found
        message = f"{fields[j]!r} in column {column_name!r} is no whole number, as the first values are."
        advice = "Correct it, or put a row with a text first: all values are then texts."
        self._raise_malformed(line, f"{message} {advice}", j + 1)

    def refuse_decimal_commas(self, column_names: list[str]) -> None:
        """Raise MalformedInput if numbers have a decimal comma.

        Numbers such as 0,5 would be read as strings. Only the first rows are checked. Nothing is
        checked if the caller has set another decimal separator than ".".

        column_names: names of the columns to check.
        """
        if self.form.decimal != ".":
            return
        # Numbers with a decimal comma, or with commas between thousands.
        pattern = rf"^\s*([-+]?\d[\d.]*(,\d+)?|{_THOUSANDS})\s*$"
        for name in column_names:
            # Arrow has read numbers without commas as numbers, so only texts are checked.
            column = self.first.column(name)
            if not pa.types.is_string(column.type):
                continue
            # The column has decimal commas if all its texts match the pattern and one has a comma.
            texts = column.filter(pc.not_equal(column, ""))
            are_numbers = pc.all(pc.match_substring_regex(texts, pattern)).as_py()
            if are_numbers and pc.any(pc.match_substring(texts, ",")).as_py():
                # Raise the error for the first record whose field cannot be parsed as a float.
                self._refuse_bad_record({name: pa.float64()})

    def _refuse_open_quote(self) -> None:
        """Raise MalformedInput if the file ends within a quote.

        The error names the line at which the last row begins.
        """
        start = 1
        end = 0
        record = [""]
        for line, fields in self._read_records():
            start = end + 1
            end = line
            record = fields
        if end > start or record[-1].endswith("\n"):
            self._raise_malformed(start, "a quote begins in this row that does not end; close or remove it.")

    def raise_malformed_with_line(
        self, error: StreamDRError, type_by_column: dict[str, pa.DataType], approximate_line: int
    ) -> NoReturn:
        """Raise MalformedInput that names the file's line with an error.

        error: error that was raised when the rows of a block were converted. It names no line.
        type_by_column: Arrow types by name of the column. They are needed to find the line.
        approximate_line: approximate line number of the block's first row. MalformedInput names
            this line if the exact line is not found.
        """
        # For these errors, read the file again to find the exact line. If a bad record is found,
        # `_refuse_bad_record` raises an error that names its line.
        if isinstance(error, InvalidRows | SchemaMismatch | NotFinite):
            self._refuse_bad_record(type_by_column)
        message = f"{self.path}, after line {approximate_line - 1}: {error}"
        raise MalformedInput(message, file=self.path, line=approximate_line) from error

    def _parse_column_names(self, first_record: list[str], record_line: int) -> list[str]:
        """Return the names of the columns.

        first_record: fields of the first record of the file.
        record_line: line number at which the first record ends.

        Raises MalformedInput if there are no columns or too many, if a name occurs twice, or if
        all names look like numbers.
        """
        if not first_record:
            self._raise_malformed(1, "no row in it. Give a file that holds rows.")
        if len(first_record) > MOST_COLUMNS:
            self._raise_malformed(
                record_line,
                f"{len(first_record)} columns, and at most {MOST_COLUMNS} are read from a table. Write rows that wide "
                "as libsvm.",
            )
        if self.form.header is False:
            return [f"f{j}" for j in range(len(first_record))]

        # If there is one column, its name may have the real delimiter: ; or a tab or |.
        other = max(";\t|", key=first_record[0].count)
        if len(first_record) == 1 and first_record[0].count(other):
            option = {"\t": "\\t"}.get(other, f"'{other}'")
            self._raise_malformed(
                record_line,
                f"one column, and {other!r} in its name; if that separates fields, say --delimiter {option}.",
            )

        seen: dict[str, int] = {}
        for j, name in enumerate(first_record, 1):
            if not name.strip() and "" in seen:
                self._raise_malformed(record_line, f"columns {seen['']} and {j} have no name; give them names.", j)
            if name in seen:
                self._raise_malformed(
                    record_line, f"columns {seen[name]} and {j} are both called {name!r}; rename one.", j
                )
            seen[name] = j

        are_numbers = self.form.header is None and all(map(_is_float, first_record))
        if are_numbers and not _are_consecutive(first_record):
            self._raise_malformed(
                record_line,
                f"the columns' names are numbers ({first_record[0]}, …), as of a row; say --no-header or --header.",
            )
        return [name or f"Unnamed: {j}" for j, name in enumerate(first_record)]

    def refuse_unnamed_features(self, feature_names: list[str]) -> None:
        """Raise MalformedInput if a feature column has no name.

        pandas writes the index of the rows as a column without a name.

        feature_names: names of the feature columns.
        """
        feature_set = set(feature_names)
        # Columns are counted from 1. A column without a name was called "Unnamed: " and its index.
        for j, name in enumerate(self.names, 1):
            if name in feature_set and name == f"Unnamed: {j - 1}":
                message = (
                    f"column {j} has no name, as an index that pandas wrote; leave it out (--drop {name!r}), or take "
                    f"it for the rows' ids (--id {name!r})."
                )
                # The header is on the line before the first row.
                self._raise_malformed(self.first_line - 1, message, j)

    def _read_records(self) -> Iterator[Record]:
        """Yield the line number and the fields of each record.

        A record is a row or the header. The line number is the number of the line at which the
        record ends. The records are read with Python's csv module.

        Raises MalformedInput if a record is too long or has a quote that is not closed.
        """
        with open_decompressed(self.path) as file:
            if self.form.encoding == "utf-8":
                lines = self._decode_utf8_lines(file)
            else:
                # Limit the characters of a line, of which each takes at most 4 bytes.
                text_file = io.TextIOWrapper(file, encoding=self.form.encoding, errors="replace", newline="")
                lines = iter(partial(text_file.readline, LONGEST // 4), "")
            # `size` is the number of characters of the current record so far, and `line` the last
            # line of the record before. `csv.reader` takes lines from the function below until a
            # record is complete.
            size = 0
            line = 0

            def lines_within_record_limit() -> Iterator[str]:
                nonlocal size
                for text in lines:
                    size += len(text)
                    if size > LONGEST:
                        message = f"a row begins here of more than {LONGEST} bytes; is a quote left open?"
                        self._raise_malformed(line + 1, message)
                    yield text

            reader = csv.reader(lines_within_record_limit(), delimiter=self.form.delimiter)
            try:
                for fields in reader:
                    size = 0
                    line = reader.line_num
                    # A blank line is a record without fields.
                    if fields:
                        yield line, fields
            except csv.Error as e:
                message = f"a row begins here that does not end well ({e}); is a quote left open?"
                self._raise_malformed(line + 1, message)

    def _decode_utf8_lines(self, file: IO[bytes]) -> Iterator[str]:
        """Yield the lines of a UTF-8 file as strings.

        Raises MalformedInput if a line is too long or is not valid UTF-8.
        """
        try:
            for number, line in enumerate(read_raw_lines(self.path, file), 1):
                if b"\0" in line or (number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff"))):
                    message = "a NUL byte; this is no text, or text in UTF-16: say --encoding utf-16."
                    self._raise_malformed(number, message)
                yield line.decode()
        except UnicodeDecodeError as e:
            position = f"byte 0x{line[e.start]:02x} at {e.start + 1} is no UTF-8"
            self._raise_malformed(number, f"{position}; say the file's encoding, such as --encoding latin-1.")

    def _refuse_bad_record(self, type_by_column: dict[str, pa.DataType]) -> None:
        """Raise MalformedInput for the first row with an error.

        The error names the line. A row has an error if its number of fields is wrong, or if a
        field does not have its column's type. Nothing is raised if no row has an error.

        type_by_column: Arrow types by name of the column.
        """
        # `checked` has the types of the columns that are not texts, by index of the column.
        checked = {}
        for j, name in enumerate(self.names):
            kind = type_by_column.get(name, pa.string())
            if kind != pa.string():
                checked[j] = kind

        # `_first_bad_record` calls this function with groups of records, and then with each record
        # of the first group for which it returns False.
        def can_parse(records: list[Record]) -> bool:
            if any(len(fields) != len(self.names) for _, fields in records):
                return False
            for j, kind in checked.items():
                values = [fields[j] for _, fields in records]
                if not self._can_parse_all_fields(values, kind):
                    return False
            return True

        found = self._first_bad_record(can_parse)
        if found is None:
            return
        # Raise an error for the number of fields, or for field j, the first that cannot be parsed.
        line, fields = found
        if len(fields) != len(self.names):
            self._raise_malformed(line, f"{len(fields)} fields where {len(self.names)} are needed.")
        j = next(j for j, kind in checked.items() if not self._can_parse_all_fields([fields[j]], kind))
        field = fields[j]
        name = self.names[j]
        if not field.strip():
            self._raise_malformed(line, f"column {name!r} has no value; fill it or leave the row out.", j + 1)
        expected = _describe_expected_type(field, checked[j])
        self._raise_malformed(line, f"{field!r} in column {name!r} is no {expected}.", j + 1)

    def _first_bad_record(self, are_good: Callable[[list[Record]], bool]) -> Record | None:
        """Return the first row with an error, or None.

        are_good: function that returns True if no row of a list has an error.
        """
        # Leave out the header, if there is one.
        records = itertools.islice(self._read_records(), int(self.form.header is not False), None)
        # Many rows are checked at once, which is fast.
        # The rows of a group are checked one by one only if the group has an error.
        group_rows = max(1, _SEARCHED_FIELDS // len(self.names))
        while group := list(itertools.islice(records, group_rows)):
            if not are_good(group):
                return next(record for record in group if not are_good([record]))
        return None

    def _allowed_gaps(self, arrow_type: pa.DataType) -> frozenset[str]:
        """Return the texts that may stand for a missing value of a column."""
        if self.has_gaps:
            return self.form.gaps
        # Numbers of a matrix must not be missing. Other columns, such as texts, may have empty
        # fields.
        if arrow_type == pa.float64():
            return frozenset()
        return frozenset({""})

    def _can_parse_all_fields(self, fields: list[str], arrow_type: pa.DataType) -> bool:
        """Return True if all fields can be parsed.

        A field that stands for a missing value can be parsed if missing values are allowed.

        fields: fields of one column.
        arrow_type: Arrow type of the column.
        """
        gaps = self._allowed_gaps(arrow_type)
        # A field may be a gap as it is, or after blanks are removed.
        texts = [field.strip().replace(self.form.decimal, ".") for field in fields if field not in gaps]
        present = [text for text in texts if text not in gaps]
        try:
            values = pa.array(present, pa.string()).cast(arrow_type)
        except pa.ArrowException:
            return False
        if arrow_type != pa.float64():
            return True
        # NaN and infinite numbers are not at most LARGEST, so they are refused, too.
        absolute = np.abs(values.to_numpy(zero_copy_only=False))
        return bool((absolute <= LARGEST).all())

    def _raise_malformed(self, line: int, message: str, column_number: int | None = None) -> NoReturn:
        raise_at_line(self.path, line, message, column=column_number)


def _describe_expected_type(field: str, arrow_type: pa.DataType) -> str:
    """Return words for an expected type, for an error message.

    The message begins with "FIELD in column NAME is no".

    field: field that does not have the type.
    arrow_type: Arrow type that the field should have.
    """
    number = field.strip()
    if arrow_type != pa.float64():
        return _TYPE_WORDS.get(arrow_type, str(arrow_type))

    # Say why the field is no number: commas or points of thousands, a decimal comma, an infinite
    # number, or a number that is too large. A single comma may be of thousands or decimal.
    if re.fullmatch(_THOUSANDS, number):
        or_decimal = ""
        if number.count(",") == 1:
            or_decimal = ", or say --decimal , if it stands before the fraction"
        return f"number; leave out the comma of thousands{or_decimal}"
    if "," in number and _is_float(number.replace(".", "").replace(",", ".")):
        points = ""
        if "." in number:
            points = "leave out the points of thousands and "
        return f"number; where a comma stands before the fraction, {points}say --decimal ,"
    if number.lower().strip("+-") in ("inf", "infinity"):
        return f"number, it is infinite; leave the row out, or say --missing {number}"
    if _is_float(number) and abs(float(number)) > LARGEST:
        return "number of at most 1e100 in size; write the column in a larger unit"
    return _TYPE_WORDS.get(arrow_type, str(arrow_type))


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _are_consecutive(names: list[str]) -> bool:
    """Return True if column names are consecutive whole numbers."""
    # Such a line is probably a header. Programs write 0, 1, 2 … for columns without names, and
    # columns may be named by years.
    if not all(name.isdigit() for name in names):
        return False
    numbers = list(map(int, names))
    return all(b == a + 1 for a, b in itertools.pairwise(numbers))
