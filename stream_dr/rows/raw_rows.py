"""RawRows: table columns that are not yet numbers.

A feature map turns the columns into numbers. A column has numbers or texts. A missing number is
NaN. Texts are stored as integer codes, which are indices into the distinct texts of the column.
The code of a missing text is −1. Only estimators with the feature map `table` or `text` can learn
from RawRows.

A number takes 8 bytes, and a text 4 bytes. Each distinct text is stored once in addition.

Feature maps need the distinct texts and the missing values of a column. An Arrow table would have
both, but the numeric code does not depend on Arrow. So RawRows store them in numpy arrays and
tuples.

The family of a column is "number", "date" or "text", or "" if all of its values are missing.
Columns of one family can be compared, even if their kinds differ:

* The kinds "number", "integer" and "boolean" are of the family "number".
* The kinds "date" and "time" are of the family "date".
* The kinds "text" and "category" are of the family "text". A column is a category if its type says so.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from stream_dr.errors import InvalidRows, NotFinite, SchemaMismatch, no_common_columns_error
from stream_dr.rows.interfaces import Shaped
from stream_dr.rows.sparse_rows import is_sparse

LARGEST = 1e100
"""Largest allowed absolute value of a number. Squares of larger numbers might overflow."""

Index = np.ndarray | slice
"""Index of rows: integers, a mask of booleans or a slice."""

JsonValue = str | float | bool | None
"""A value of a column, as it is written in JSON."""

_ISO_PATTERN = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?")
"""Pattern of dates and times in the ISO format."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Start of day 0 of dates and times."""

NUMBERS = ("number", "integer", "boolean", "date", "time")
"""Kinds of columns whose values are float64.

Dates and times are stored as days since 1970-01-01 (UTC).
"""


class RawColumn(NamedTuple):
    """One column of a table.

    Attributes
    ----------
    kind : one of NUMBERS, "text" or "category"
        Kind of the values. Dates and times are days since 1970-01-01 (UTC).
    values : ndarray (rows,)
        Value of each row. Numbers and dates are float64, NaN if missing. Texts are int32 indices
        into `labels`, −1 if missing.
    labels : tuple of str
        Distinct texts. Empty for numbers and dates.
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
        return self.values < 0 if self.has_texts else np.isnan(self.values)

    def take(self, row_index: Index) -> "RawColumn":
        """Return the values of some rows as a column.

        Texts that do not occur in these rows are dropped from `labels`.

        row_index: integers, a mask or a slice.
        """
        values = self.values[row_index]
        if not self.has_texts:
            return self._replace(values=values)

        used, codes = np.unique(values, return_inverse=True)
        # `used` is sorted, so the code −1 of missing texts comes first.
        any_missing = int(used[:1].sum() < 0)
        labels = tuple(self.labels[i] for i in used[any_missing:].tolist())
        return RawColumn(self.kind, (codes - any_missing).astype(np.int32), labels)

    def json_values(self) -> list[JsonValue]:
        """Return the column's values for JSON, with None if missing."""
        rows = zip(self.values.tolist(), self.missing, strict=True)
        return [None if missing else self._json_value(value) for value, missing in rows]

    def _json_value(self, value: float) -> JsonValue:
        """Return one value of the column for JSON.

        value: a number, or the index of a text in `labels`.
        """
        if self.has_texts:
            return self.labels[int(value)]
        if self.kind == "boolean":
            return value != 0.0
        if self.kind in ("number", "integer"):
            return value if self.kind == "number" else int(value)
        return number_or_date_as_text(self.kind, value)


class RawRows:
    """Rows of a table, stored column by column.

    The arrays must not be written to. The constructor raises InvalidRows if two columns have the
    same name. It raises NotFinite for a number that is infinite or too large.

    Attributes
    ----------
    names : tuple of str
        Name of each column.
    columns : tuple of RawColumn
        The columns.
    rows : int
        Number of rows.
    """

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, names: tuple[str, ...], columns: tuple[RawColumn, ...], rows: int | None = None) -> None:
        self.names = names
        self.columns = columns
        self.rows = rows if rows is not None else len(columns[0].values) if columns else 0
        if repeated := repeated_name_error(names):
            raise repeated
        for name, column in zip(names, columns, strict=True):
            _refuse_infinite_or_huge_numbers(name, column)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return self.rows, len(self.names)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the values and distinct texts."""
        return sum(c.values.nbytes + sum(map(len, c.labels)) for c in self.columns)

    def __getitem__(self, rows: Index) -> "RawRows":
        """Return some of the rows.

        rows: integers, a mask or a slice.
        """
        chosen = np.arange(self.rows)[rows]
        return RawRows(self.names, tuple(c.take(chosen) for c in self.columns), len(chosen))

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column by name.

        The kinds are "text", "category", "number", "integer", "boolean", "date" and "time".
        """
        return {name: column.kind for name, column in zip(self.names, self.columns, strict=True)}

    def column(self, name: str) -> RawColumn | None:
        """Return the column with this name, or None."""
        if name in self.names:
            return self.columns[self.names.index(name)]
        return None

    def reorder_convert_and_add_columns(self, families: dict[str, str]) -> "RawRows":
        """Return the rows with columns in the order of `families`.

        The columns are also converted to the families that `families` gives. Columns that
        `families` names and the rows do not have are added, with missing values. Columns that
        `families` does not name come last, without conversion.

        families: family of each column by name, in the order of the result. A family is "number",
            "date" or "text", or "" for a column that is not converted.

        Raises SchemaMismatch if the rows have none of the named columns, or if a value cannot be
        converted.
        """
        others = {name: column for name, column in zip(self.names, self.columns, strict=True) if name not in families}
        if len(others) == len(self.names) and self.rows:
            raise no_common_columns_error(tuple(families), self.names)

        # Add columns that are only in `families`, with missing values.
        # To save memory, added columns of one family ("number", "date" or "text") share one array.
        absent = {kind for name, kind in families.items() if name not in self.names}
        missing = {kind: column_of_missing_values(kind, self.rows) for kind in absent}

        columns = {}
        for name, kind in families.items():
            column = self.column(name)
            columns[name] = missing[kind] if column is None else convert_column(name, column, kind) if kind else column
        columns |= others
        return RawRows(tuple(columns), tuple(columns.values()), self.rows)

    def to_dicts(self) -> list[dict[str, JsonValue]]:
        """Return each row as a dict for JSON.

        Dates are ISO texts. A missing value is None.
        """
        columns = [column.json_values() for column in self.columns]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]


def repeated_name_error(names: Sequence[str]) -> InvalidRows | None:
    """Return an error if two columns have the same name.

    The error is returned and not raised. The result is None if all names differ.
    """
    if len(set(names)) == len(names):
        return None
    repeated = next(name for i, name in enumerate(names) if name in names[:i])
    return InvalidRows(f"two columns are called {repeated!r}; give every column a name of its own.")


def row_of_missing_values(families: dict[str, str]) -> RawRows:
    """Return RawRows of one row with only missing values.

    families: family of each column by name ("number", "date" or "text").
    """
    return RawRows(tuple(families), tuple(column_of_missing_values(kind, 1) for kind in families.values()))


def fill_unknown_families(known_families: dict[str, str], rows: RawRows) -> dict[str, str]:
    """Return each column's family, completed by some rows.

    The families are a dict by column name. If the family of a column is not yet known, it becomes
    the family of the column in `rows`. The family is "number", "date" or "text", or "" if it is
    still unknown. If all texts of a column are ISO dates or times, its family is "date". Raises
    SchemaMismatch if a value cannot be converted to the known family of its column.

    known_families: known family of each column by name, "" if not yet known. All columns of `rows`
        must be named.
    """
    families = dict(known_families)
    for name, column in zip(rows.names, rows.columns, strict=True):
        if families[name]:
            convert_column(name, column, families[name])
        else:
            families[name] = "date" if _has_only_iso_texts(column) else column_family(column)
    return families


def parse_date_columns(rows: RawRows) -> RawRows:
    """Return table rows with ISO texts converted to dates.

    A column is converted only if all of its texts are ISO dates or times.
    """
    columns = zip(rows.names, rows.columns, strict=True)
    parsed = [convert_column(name, c, "date") if _has_only_iso_texts(c) else c for name, c in columns]
    return RawRows(rows.names, tuple(parsed), rows.rows)


def _has_only_iso_texts(column: RawColumn) -> bool:
    """True if a column has only ISO dates or times."""
    if column.kind != "text" or not column.labels or not all(map(_ISO_PATTERN.fullmatch, column.labels)):
        return False
    # The pattern also accepts dates that do not exist, such as the 31st of February.
    try:
        _ = [_parse_iso_date_as_days(text) for text in column.labels]
    except ValueError:
        return False
    return True


def raise_if_raw_rows(rows: object) -> None:
    """Raise an error if rows are RawRows (columns of a table).

    Callers that need numbers call this function. If the rows have a column of texts or dates, the
    error is SchemaMismatch and names the column. If all columns have numbers, the error is
    InvalidRows.

    rows: rows of any type.
    """
    if not isinstance(rows, RawRows):
        return

    way = 'Take feature_map={"map": "table"} (stream_dr.table()), encode it, or leave it out.'
    for name, column in zip(rows.names, rows.columns, strict=True):
        if column.has_texts or column.kind in ("date", "time"):
            raise SchemaMismatch(f"column {name} is {column.kind}; features are numbers. {way}", column=name)
    for name, column in zip(rows.names, rows.columns, strict=True):
        if column.missing.any():
            row = int(column.missing.argmax())
            raise InvalidRows(f"column {name} is null in row {row}; send a value. {way}", row=row, column=name)
    raise InvalidRows(f"the rows are a table's columns, and this model learns numbers. {way}")


def fill_masked(X: Any) -> Any:
    """Return a masked array with NaN for masked values.

    A list of masked rows is a masked array, too. Any other X is returned unchanged.
    """
    if isinstance(X, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.array(X)
    if not isinstance(X, np.ma.MaskedArray):
        return X
    if X.dtype.kind in "biu":
        X = X.astype(np.float64)
    elif X.dtype.kind not in "fc":
        X = X.astype(object)
    return X.filled(np.nan)


def default_column_names(X: Shaped) -> tuple[str, ...]:
    """Return the names x0, x1, … for unnamed columns.

    X: (rows, features).
    """
    return tuple(f"x{i}" for i in range(X.shape[1]))


def raw_from_array(X: Any, names: tuple[str, ...] | None = None) -> RawRows:
    """Return dense rows (rows, features) as RawRows.

    RawRows are returned unchanged. Raises InvalidRows for sparse rows.

    X: ndarray of numbers, or RawRows.
    names: names of the columns. If None, the names are x0, x1, …
    """
    if isinstance(X, RawRows):
        return X
    if is_sparse(X):
        raise InvalidRows("sparse rows are no table; pass columns, or take them without the feature map.")

    # The kind of a column is "integer" if all numbers are whole and none is missing.
    names = names or default_column_names(X)
    columns = []
    for i in range(len(names)):
        values = np.ascontiguousarray(X[:, i], dtype=np.float64)
        whole = bool(np.all(values == np.rint(values)))
        columns.append(RawColumn("integer" if whole else "number", values))
    return RawRows(names, tuple(columns), X.shape[0])


def column_family(column: RawColumn) -> str:
    """Return the family of a column: "number", "date" or "text".

    Values of one family can be compared. "" is returned if all values are missing, except for a
    category.
    """
    if column.kind == "category":
        return "text"
    if column.missing.all():
        return ""
    return {"date": "date", "time": "date", "text": "text"}.get(column.kind, "number")


def column_of_missing_values(family: str, n_rows: int) -> RawColumn:
    """Return a column in which every value is missing.

    family: "number", "date" or "text". Any other family means "number".
    n_rows: number of rows.
    """
    if family == "text":
        return RawColumn("text", np.full(n_rows, -1, np.int32))
    return RawColumn("time" if family == "date" else "number", np.full(n_rows, np.nan))


def convert_column(name: str, column: RawColumn, family: str) -> RawColumn:
    """Return a column converted to a family, without loss.

    For example, 3 can be converted to "3" and back, and a day to its ISO text and back. If a value
    cannot be converted, SchemaMismatch is raised, which names the column and the row.

    name: name of the column, for the error message.
    family: family of the result, "number", "date" or "text".
    """
    # Handle the conversions for which no text is parsed.
    own_family = column_family(column)
    if own_family == family:
        return column
    if not own_family and "text" in (family, column.kind):
        return column_of_missing_values(family, len(column.values))
    if not own_family:
        return RawColumn("time" if family == "date" else "number", column.values)
    if family == "text":
        distinct, codes = np.unique(column.values, return_inverse=True)
        codes = np.where(column.missing, -1, codes).astype(np.int32)
        texts = tuple(number_or_date_as_text(column.kind, v) for v in distinct[~np.isnan(distinct)].tolist())
        return RawColumn("text", codes, texts)
    if own_family != "text":
        raise _wrong_family_error(name, column, int(np.flatnonzero(~column.missing)[0]), family)

    # Parse each distinct text once.
    # The last number stays NaN: the code −1 of missing texts is its index.
    parse = _parse_iso_date_as_days if family == "date" else _parse_number_or_boolean
    numbers = np.full(len(column.labels) + 1, np.nan)
    for i, text in enumerate(column.labels):
        try:
            numbers[i] = parse(text) if text.strip() else np.nan
        except ValueError as e:
            rows = np.flatnonzero(column.values == i)
            if len(rows):
                raise _wrong_family_error(name, column, int(rows[0]), family) from e

    if family == "number":
        return RawColumn("number", numbers[column.values])

    # A column of times is of the kind "date" if all of its values are whole days.
    whole = np.all(np.isnan(numbers) | (numbers == np.rint(numbers)))
    return RawColumn("date" if whole else "time", numbers[column.values])


def number_or_date_as_text(kind: str, value: float) -> str:
    """Return a number or date as text.

    kind: kind of the value's column. It is not "text".
    value: a number. For dates and times, the number of days since 1970-01-01 (UTC).
    """
    if kind == "date":
        return str(np.datetime64(int(value), "D"))
    if kind == "time":
        return str(np.datetime64(round(value * 86_400_000_000), "us"))
    return str(int(value)) if value.is_integer() else repr(value)


def _parse_number_or_boolean(text: str) -> float:
    """Return the number that a text represents.

    The text "true" is 1, and "false" is 0. Raises ValueError for any other text that is no number,
    for NaN, and for a number whose absolute value is above 1e100.
    """
    truth = {"true": 1.0, "false": 0.0}.get(text.strip().lower())
    value = float(text) if truth is None else truth
    if not abs(value) <= LARGEST:
        raise ValueError(text)
    return value


def _parse_iso_date_as_days(text: str) -> float:
    """Return an ISO date or time as days since 1970-01-01.

    Days are counted in UTC. A time without a zone is read as UTC. Raises ValueError if the text
    is no date or time.
    """
    # The conversion to UTC overflows for the first or last day of the calendar in some time zones.
    try:
        when = datetime.fromisoformat(text.strip())
        return ((when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) / timedelta(days=1)
    except OverflowError as e:
        raise ValueError(text) from e


def _wrong_family_error(name: str, column: RawColumn, row: int, family: str) -> SchemaMismatch:
    """Return the error for a value that cannot be converted.

    name: name of the column.
    row: index of the value's row.
    family: family that the column must have, "number", "date" or "text".
    """
    value = column.values[row]
    shown = column.labels[value] if column.has_texts else number_or_date_as_text(column.kind, float(value))
    return SchemaMismatch(
        f"row {row}, column {name} is {shown[:40]!r} ({column.kind}), not a {family} as that column is. Send one, or null, "
        f"or start a new stream with as_={{{name!r}: 'category'}} in its map.",
        row=row,
        column=name,
    )


def _refuse_infinite_or_huge_numbers(name: str, column: RawColumn) -> None:
    """Raise NotFinite for a number that is infinite or too large."""
    if column.has_texts:
        return
    with np.errstate(invalid="ignore"):
        too_large = np.flatnonzero(np.abs(column.values) > LARGEST)
    if len(too_large):
        row = int(too_large[0])
        raise NotFinite(
            f"row {row}, column {name} is {column.values[row]:g}; values must be at most 1e100 in size. Replace it.",
            row=row,
            column=name,
        )
