"""Columns of a table that are not yet numbers.

A table is a `pa.RecordBatch` that `table_batch` has made. A feature map turns its columns into
numbers. Only estimators with the feature map `table` or `text` can learn from a table. The schema
of a table has the metadata MARK, and each column has one of these types:

==================================== ========== ========
Arrow type                           kind       family
==================================== ========== ========
double                               number     number
int64                                integer    number
bool                                 boolean    number
date32                               date       date
timestamp[s, ms, us or ns]           time       date
dictionary<int32, string, ordered>   text       text
dictionary<int32, string>            category   text
==================================== ========== ========

A missing value is null. A number is never NaN, infinite or above 1e100. Times have no time zone,
and are in UTC. Texts are dictionary-encoded once, because feature maps need each distinct text. Each
text of a dictionary is distinct and occurs in some row. The flag `ordered` only tells texts from
categories. A column is a category if its type in the caller's table says so.

Columns of one family can be compared, even if their kinds differ. If all values of a column are
missing, its family is not known, and "" stands for it.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dr.batch.sparse import is_sparse
from stream_dr.errors import InvalidRows, NotFinite, SchemaMismatch, no_common_columns_error

LARGEST = 1e100
"""Largest allowed absolute value of a number. Squares of larger numbers might overflow."""

MARK = {b"stream_dr": b"table"}
"""Metadata of the schema of a table. Other record batches may have any types."""

CATEGORY = pa.dictionary(pa.int32(), pa.string())
TEXT = pa.dictionary(pa.int32(), pa.string(), ordered=True)

_KINDS = {
    pa.float64().id: "number",
    pa.int64().id: "integer",
    pa.bool_().id: "boolean",
    pa.date32().id: "date",
    pa.timestamp("us").id: "time",
}
"""Kind of a column, by the id of its Arrow type. Texts and categories have one id."""

_FAMILIES = {"date": "date", "time": "date", "text": "text", "category": "text"}
"""Family of a kind of columns. All other kinds are of the family "number"."""

_MISSING_TYPES = {"text": TEXT, "date": pa.timestamp("us")}
"""Arrow type of a column of missing values, by family. All other families have float64."""

_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
"""Number of units of time in a day, by the name of the unit."""

_INTEGERS = 2.0**63
"""Smallest number that is too large for int64."""

_ISO_PATTERN = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?")
"""Pattern of dates and times in the ISO format."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Start of day 0 of dates and times."""


class ColumnValues(NamedTuple):
    """Values of a table's column as numbers, or as codes of texts.

    Attributes
    ----------
    kind : str
        Kind of the column: "number", "integer", "boolean", "date", "time", "text" or
        "category".
    values : ndarray (rows,)
        Value of each row. Numbers and days since 1970-01-01 (UTC) are float64, NaN if missing.
        Texts are int32 indices into `labels`, −1 if missing. The array must not be written to.
    labels : tuple of str
        Distinct texts, each of which occurs in some row. Empty for numbers and dates.
    """

    kind: str
    values: np.ndarray
    labels: tuple[str, ...] = ()

    @property
    def has_texts(self) -> bool:
        """True if the values are indices into `labels`."""
        return self.kind in ("text", "category")

    @property
    def missing(self) -> np.ndarray:
        """Mask (rows,) that is True where a value is missing."""
        if self.has_texts:
            return self.values < 0
        return np.isnan(self.values)  # type: ignore[no-any-return]


def table_batch(columns: Sequence[tuple[str, pa.Array]], n_rows: int) -> pa.RecordBatch:
    """Return named columns as a table in the form for feature maps.

    It is a record batch. The entry "stream_dr" of its schema's metadata (MARK) tells it from record
    batches that were not checked.

    columns: name and values of each column, of a type that a table may have.
    n_rows: number of rows.

    Raises InvalidRows if two columns have the same name. Raises NotFinite for a number that is
    infinite or too large.
    """
    if not columns:
        # A record batch without columns has a number of rows only if it is made of empty structs.
        empty = pa.array([{}] * n_rows, pa.struct([]))
        return pa.RecordBatch.from_struct_array(empty).replace_schema_metadata(MARK)
    names, arrays = zip(*columns, strict=True)
    refuse_repeated_names(names)
    # Only floats can be infinite or too large.
    for name, column in columns:
        if column.type == pa.float64() and column.null_count < len(column):
            _refuse_huge_numbers(name, column.to_numpy(zero_copy_only=False))
    return pa.RecordBatch.from_arrays(list(arrays), names=names, metadata=MARK)


def is_table(X: object) -> bool:
    """True if rows are a table that `table_batch` has made."""
    return isinstance(X, pa.RecordBatch) and X.schema.metadata == MARK


def columns_by_name(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of a table by name."""
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def find_column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return the column of a table with this name, or None."""
    index = rows.schema.get_field_index(name)
    if index >= 0:
        return rows.column(index)
    return None


def table_kinds(rows: pa.RecordBatch) -> dict[str, str]:
    """Return the kind of each column by name, such as "number", "date" or "category"."""
    return {field.name: column_kind(field.type) for field in rows.schema}


def drop_unused_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a table without the texts that no row has.

    rows: table whose columns of texts are dictionary-encoded. After rows were selected from a
        larger table, the dictionaries still have the texts of the other rows.
    """
    for i, (name, column) in enumerate(columns_by_name(rows).items()):
        if isinstance(column, pa.DictionaryArray):
            # `used` are the codes of texts that some row has, and their positions are the new
            # codes.
            used = column.indices.unique().drop_null().sort()
            codes = pc.index_in(column.indices, used)
            texts = column.dictionary.take(used)
            smaller = pa.DictionaryArray.from_arrays(codes, texts, ordered=column.type.ordered)
            rows = rows.set_column(i, name, smaller)
    return rows


def column_kind(arrow_type: pa.DataType) -> str:
    """Return the kind of a table's column from its Arrow type."""
    if isinstance(arrow_type, pa.DictionaryType):
        if arrow_type.ordered:
            return "text"
        return "category"
    return _KINDS[arrow_type.id]


def family_of_kind(kind: str) -> str:
    """Return the family of a column's kind: "number", "date" or "text".

    Values of one family can be compared. For example, dates and times are one family.
    """
    return _FAMILIES.get(kind, "number")


def column_values(column: pa.Array) -> ColumnValues:
    """Return the numbers of a table's column, or the codes of its texts.

    Costs one pass over the values.
    """
    # Texts and categories are dictionary-encoded. A missing one has the code −1.
    kind = column_kind(column.type)
    if isinstance(column, pa.DictionaryArray):
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(-1)
        return ColumnValues(kind, indices.to_numpy(), tuple(column.dictionary.to_pylist()))

    # A date is stored as int32 days, and a time as int64 units since 1970, which become days.
    # Arrow returns NaN for a null of numbers, and None for a null of booleans. Both become NaN.
    numbers = column
    if kind == "date":
        numbers = column.view(pa.int32())
    elif kind == "time":
        numbers = column.view(pa.int64())
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    if kind == "time":
        values = values / _UNITS_PER_DAY[column.type.unit]
    return ColumnValues(kind, values)


def missing_column(family: str, n_rows: int) -> pa.Array:
    """Return a column in which every value is missing.

    family: "number", "date" or "text". Any other family means "number".
    """
    return pa.nulls(n_rows, _MISSING_TYPES.get(family, pa.float64()))


def conform_table(rows: pa.RecordBatch, families: dict[str, str]) -> pa.RecordBatch:
    """Return a table with columns in the order of `families`.

    The columns are also converted to the families that `families` gives. Columns that
    `families` names and the rows do not have are added, with missing values. Columns that
    `families` does not name come last, without conversion.

    families: family of each column by name, in the order of the result. A family is "number",
        "date" or "text", or "" for a column that is not converted.

    Raises SchemaMismatch if the rows have none of the named columns, or if a value cannot be
    converted.
    """
    # Each column that is used is taken out of `given`, so that the columns without a family remain.
    given = columns_by_name(rows)
    if rows.num_rows and given and not given.keys() & families.keys():
        raise no_common_columns_error(tuple(families), tuple(given))

    columns = {}
    for name, family in families.items():
        column = given.pop(name, None)
        if column is None:
            column = missing_column(family, rows.num_rows)
        elif family:
            column = convert_column(name, column, family)
        columns[name] = column
    return table_batch(list((columns | given).items()), rows.num_rows)


def table_to_dicts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return each row of a table as a dict for JSON.

    Dates are ISO texts. A missing value is None.
    """
    # "" leaves a column as it is. Only dates are converted to texts.
    families = dict.fromkeys(rows.schema.names, "")
    for name, column in columns_by_name(rows).items():
        if column_family(column) == "date":
            families[name] = "text"
    dicts: list[dict[str, Any]] = conform_table(rows, families).to_pylist()
    return dicts


def refuse_repeated_names(names: Sequence[str]) -> None:
    """Raise InvalidRows if two columns have the same name."""
    if len(set(names)) < len(names):
        repeated = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidRows(f"two columns are called {repeated!r}; give every column a name of its own.")


def row_of_missing_values(families: dict[str, str]) -> pa.RecordBatch:
    """Return a table of one row with only missing values.

    families: family of each column by name ("number", "date" or "text").
    """
    return conform_table(table_batch((), 1), families)


def fill_unknown_families(known_families: dict[str, str], rows: pa.RecordBatch) -> dict[str, str]:
    """Return each column's family, from `rows` if not yet known.

    The families are a dict by column name. If the family of a column is not yet known, it becomes
    the family of the column in `rows`. The family is "number", "date" or "text", or "" if it is
    still unknown. If all texts of a column are ISO dates or times, its family is "date". Raises
    SchemaMismatch if a value cannot be converted to the known family of its column.

    known_families: known family of each column by name, "" if not yet known. All columns of `rows`
        must be named.
    """
    families = dict(known_families)
    for name, column in columns_by_name(rows).items():
        if families[name]:
            # Called for its error alone.
            convert_column(name, column, families[name])
        elif _has_only_iso_texts(column):
            families[name] = "date"
        else:
            families[name] = column_family(column)
    return families


def parse_date_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a table with ISO texts converted to dates.

    A column is converted only if all of its texts are ISO dates or times.
    """
    for i, (name, column) in enumerate(columns_by_name(rows).items()):
        if _has_only_iso_texts(column):
            rows = rows.set_column(i, name, convert_column(name, column, "date"))
    return rows


def _has_only_iso_texts(column: pa.Array) -> bool:
    """True if a column has only ISO dates or times."""
    # Other columns, also categories, stay as they are.
    texts = []
    if column.type == TEXT:
        texts = column.dictionary.to_pylist()
    if not texts or not all(map(_ISO_PATTERN.fullmatch, texts)):
        return False
    # The pattern also accepts dates that do not exist, such as the 31st of February.
    try:
        convert_column("", column, "date")
    except SchemaMismatch:
        return False
    return True


def refuse_table(rows: object) -> None:
    """Raise an error if rows are a table.

    Callers that need numbers call this function. If the rows have a column of texts or dates, the
    error is SchemaMismatch and names the column. If all columns have numbers, the error is
    InvalidRows.

    rows: rows of any type.
    """
    if not is_table(rows):
        return

    hint = 'Take feature_map={"map": "table"} (stream_dr.table()), encode it, or leave it out.'
    # `_FAMILIES` has the kinds of texts and dates, but not those of numbers.
    for name, kind in table_kinds(rows).items():
        if kind in _FAMILIES:
            raise SchemaMismatch(f"column {name} is {kind}; features are numbers. {hint}", column=name)
    # All columns are numbers. Name the first missing number, if there is one.
    for name, column in columns_by_name(rows).items():
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise InvalidRows(f"column {name} is null in row {row}; send a value. {hint}", row=row, column=name)
    raise InvalidRows(f"the rows are a table's columns, and this model learns numbers. {hint}")


def fill_masked(X: Any) -> Any:
    """Return a masked array with NaN for masked values.

    A list of masked rows is a masked array, too. Any other X is returned unchanged.
    """
    if isinstance(X, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.array(X)
    if not isinstance(X, np.ma.MaskedArray):
        return X
    # NaN needs floats or objects: "biu" are bools and integers, "fc" floats and complex numbers.
    if X.dtype.kind in "biu":
        X = X.astype(np.float64)
    elif X.dtype.kind not in "fc":
        X = X.astype(object)
    return X.filled(np.nan)


def default_column_names(X: Any) -> tuple[str, ...]:
    """Return the names x0, x1, … for unnamed columns.

    X: (rows, features).
    """
    return tuple(f"x{i}" for i in range(X.shape[1]))


def table_from_array(X: Any, names: tuple[str, ...] | None = None) -> pa.RecordBatch:
    """Return dense rows (rows, features) as a table.

    A table is returned unchanged. Raises InvalidRows for sparse rows. Raises NotFinite for a
    number that is infinite or too large.

    X: ndarray of numbers, or a table.
    names: names of the columns. If None, the names are x0, x1, …
    """
    if is_table(X):
        return X
    if is_sparse(X):
        raise InvalidRows("sparse rows are no table; pass columns, or take them without the feature map.")

    # NaN becomes null. A column without NaN becomes int64 if all numbers are whole and fit: from
    # 2^63 (`_INTEGERS`) on they do not. The comparisons are False for NaN.
    columns = []
    for i, name in enumerate(names or default_column_names(X)):
        values = np.ascontiguousarray(X[:, i], dtype=np.float64)
        column = pa.array(values, from_pandas=True)
        if np.all((values == np.rint(values)) & (np.abs(values) < _INTEGERS)):
            column = pa.array(values.astype(np.int64))
        columns.append((name, column))
    return table_batch(columns, X.shape[0])


def column_family(column: pa.Array) -> str:
    """Return the family of a table's column: "number", "date" or "text".

    Values of one family can be compared. If all values are missing, the family is not known, and ""
    is returned. A category is always of the family "text".
    """
    kind = column_kind(column.type)
    if column.null_count == len(column) and kind != "category":
        return ""
    return family_of_kind(kind)


def convert_column(name: str, column: pa.Array, family: str) -> pa.Array:
    """Return a table's column converted to a family, without loss.

    For example, 3 can be converted to "3" and back, and a day to its ISO text and back. If a value
    cannot be converted, SchemaMismatch is raised, which names the column and the row.

    name: name of the column, for the error message.
    family: family of the result, "number", "date" or "text".
    """
    # Handle the conversions for which no text is parsed.
    own_family = column_family(column)
    if own_family == family:
        return column
    if not own_family:
        return missing_column(family, len(column))
    if family == "text":
        # Write each distinct number or date as text once. NaN stands for missing values, and is the
        # last of the distinct values, so its code is masked and does not need a text.
        read = column_values(column)
        distinct, codes = np.unique(read.values, return_inverse=True)
        present = distinct[~np.isnan(distinct)].tolist()
        texts = [value_as_text(read.kind, value) for value in present]
        indices = pa.array(codes.astype(np.int32), mask=read.missing)
        return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()), ordered=True)
    # A number is never a date, nor a date a number. Name the first row with a value.
    if own_family != "text":
        row = column.is_valid().index(True).as_py()
        raise _wrong_family_error(name, column, row, family)

    # Parse each distinct text once. An empty text becomes a missing value.
    # `code` is the index of the text, by which `take` finds the parsed value of each row.
    parse = _parse_number_or_boolean
    if family == "date":
        parse = _parse_iso_date
    parsed: list[Any] = []
    for code, text in enumerate(column.dictionary.to_pylist()):
        value = None
        try:
            if text.strip():
                value = parse(text)
        except ValueError as e:
            row = column.indices.index(code).as_py()
            raise _wrong_family_error(name, column, row, family) from e
        parsed.append(value)

    # A column of times is of the kind "date" if all of its values are whole days.
    if family == "number":
        return pa.array(parsed, pa.float64()).take(column.indices)
    times = pa.array(parsed, pa.timestamp("us")).take(column.indices)
    if any(time % _UNITS_PER_DAY["us"] for time in parsed if time is not None):
        return times
    return times.cast(pa.date32())


def value_as_text(kind: str, value: float) -> str:
    """Return a number or date as text.

    kind: kind of the value's column. It is not "text".
    value: a number. For dates and times, the number of days since 1970-01-01 (UTC).
    """
    if kind == "date":
        return str(np.datetime64(int(value), "D"))
    # A day has 86,400,000,000 microseconds (us).
    if kind == "time":
        return str(np.datetime64(round(value * 86_400_000_000), "us"))
    if value.is_integer():
        return str(int(value))
    return repr(value)


def _parse_number_or_boolean(text: str) -> float:
    """Return the number of a text, 1 for "true" and 0 for "false".

    Raises ValueError for any other text.
    """
    truth = {"true": 1.0, "false": 0.0}.get(text.strip().lower())
    if truth is not None:
        return truth
    value = float(text)
    # The comparison is also False for NaN.
    if not abs(value) <= LARGEST:
        raise ValueError(text)
    return value


def _parse_iso_date(text: str) -> int:
    """Return an ISO date or time as microseconds since 1970-01-01.

    A time without a zone is read as UTC. Raises ValueError if the text is no date or time.
    """
    # The conversion to UTC overflows for the first or last day of the calendar in some time zones.
    try:
        when = datetime.fromisoformat(text.strip())
        if when.tzinfo:
            utc = when.astimezone(UTC)
        else:
            utc = when.replace(tzinfo=UTC)
    except OverflowError as e:
        raise ValueError(text) from e
    return (utc - _EPOCH) // timedelta(microseconds=1)


def _wrong_family_error(name: str, column: pa.Array, row: int, family: str) -> SchemaMismatch:
    """Return the error for a value that cannot be converted.

    name: name of the column.
    column: the column, before the conversion.
    row: index of the value's row.
    family: family that the column must have, "number", "date" or "text".
    """
    kind = column_kind(column.type)
    shown = convert_column(name, column, "text")[row].as_py()
    return SchemaMismatch(
        f"row {row}, column {name} is {shown[:40]!r} ({kind}), not a {family} as that column is. Send one, or null, "
        f"or start a new stream with as_={{{name!r}: 'category'}} in its map.",
        row=row,
        column=name,
    )


def _refuse_huge_numbers(name: str, values: np.ndarray) -> None:
    """Raise NotFinite for a number that is infinite or too large."""
    # NaN, which stands for missing values, is allowed: `fmax` ignores it.
    magnitudes = np.abs(values)
    if np.fmax.reduce(magnitudes, initial=0.0) <= LARGEST:
        return
    row = int(np.argmax(magnitudes > LARGEST))
    raise NotFinite(
        f"row {row}, column {name} is {values[row]:g}; values must be at most 1e100 in size. Replace it.",
        row=row,
        column=name,
    )
