"""raw_rows: rows as a table has them, before a feature map makes numbers of them: categories, texts, dates, gaps.

A column is numbers, NaN where a value is missing, or texts: codes into the distinct ones, −1 where one is missing.
`Block.X` may be RawRows; only estimators whose feature map is `table` or `text` learn from them.

Cost: 8 bytes a number, 4 a text and each distinct text once.

Why this way: numerics know no Arrow; what a map asks of a column (its distinct texts, which values are missing) is at hand.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from stream_dr.errors import InvalidRows, NotFinite, SchemaMismatch, other_table
from stream_dr.rows.sparse_rows import is_sparse

LARGEST = 1e100
"""Values beyond this size are refused: their squares would not be finite."""

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?")
"""Dates and times as JSON has them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NUMBERS = ("number", "integer", "boolean", "date", "time")
"""Kinds of columns whose values are float64; dates and times are days since 1970-01-01 (UTC)."""


class RawColumn(NamedTuple):
    """One column.

    kind: one of NUMBERS, or "text". values: (rows,) float64 with NaN where missing; text: int32 codes, −1 where missing.
    labels: the distinct texts that codes point into.
    """

    kind: str
    values: np.ndarray
    labels: tuple[str, ...] = ()

    @property
    def missing(self) -> np.ndarray:
        """(rows,) bool."""
        return self.values < 0 if self.kind == "text" else np.isnan(self.values)

    def take(self, rows: Any) -> "RawColumn":
        """The rows of those numbers, slice or mask, and of the texts those that they have."""
        values = self.values[rows]
        if self.kind != "text":
            return self._replace(values=values)
        used, codes = np.unique(values, return_inverse=True)
        gaps = int(used[:1].sum() < 0)  # −1 is the first of them
        labels = tuple(self.labels[i] for i in used[gaps:].tolist())
        return RawColumn("text", (codes - gaps).astype(np.int32), labels)

    def values_said(self) -> list[Any]:
        """Values (rows,) in JSON's types."""
        return [None if gap else self._said(v) for v, gap in zip(self.values.tolist(), self.missing, strict=True)]

    def _said(self, value: Any) -> Any:
        if self.kind == "text":
            return self.labels[value]
        if self.kind == "boolean":
            return value != 0.0
        return value if self.kind == "number" else int(value) if self.kind == "integer" else said(self.kind, value)


class RawRows:
    """names: the columns' names, each once. columns: one a name. Raises InvalidRows or NotFinite. Not to be written to."""

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, names: tuple[str, ...], columns: tuple[RawColumn, ...], rows: int | None = None) -> None:
        self.names, self.columns = names, columns
        self.rows = rows if rows is not None else len(columns[0].values) if columns else 0
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise InvalidRows(f"two columns are called {twice!r}; give every column a name of its own.")
        for name, column in zip(names, columns, strict=True):
            _check(name, column)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows, len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes of values and texts."""
        return sum(c.values.nbytes + sum(map(len, c.labels)) for c in self.columns)

    def __getitem__(self, rows: Any) -> "RawRows":
        """The rows of those numbers, slice or mask."""
        chosen = np.arange(self.rows)[rows]
        return RawRows(self.names, tuple(c.take(chosen) for c in self.columns), len(chosen))

    @property
    def kinds(self) -> dict[str, str]:
        """Each column's kind, by its name."""
        return {name: column.kind for name, column in zip(self.names, self.columns, strict=True)}

    def column(self, name: str) -> RawColumn | None:
        """The column of that name, or None."""
        return self.columns[self.names.index(name)] if name in self.names else None

    def arranged(self, kinds: dict[str, str]) -> "RawRows":
        """The columns of `kinds` in its order and of its families, gaps where there is no such column; others come last.

        kinds: a family by name, "" for any. Raises SchemaMismatch where none of them is there, or a value is of another.
        """
        others = {name: column for name, column in zip(self.names, self.columns, strict=True) if name not in kinds}
        if len(others) == len(self.names) and self.rows:
            raise other_table(tuple(kinds), self.names)

        lacking = {kind for name, kind in kinds.items() if name not in self.names}
        missing = {kind: gaps(kind, self.rows) for kind in lacking}  # shared: columns that lack may be many
        columns = {}
        for name, kind in kinds.items():
            column = self.column(name)
            columns[name] = missing[kind] if column is None else converted(name, column, kind) if kind else column
        columns |= others
        return RawRows(tuple(columns), tuple(columns.values()), self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Rows as dicts of JSON's types: dates as ISO texts, None where a value is missing."""
        columns = [column.values_said() for column in self.columns]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]


def missing_row(kinds: dict[str, str]) -> RawRows:
    """A row of columns of these families, by name, in which all is missing."""
    return RawRows(tuple(kinds), tuple(gaps(kind, 1) for kind in kinds.values()))


def kinds_with(kinds: dict[str, str], rows: RawRows) -> dict[str, str]:
    """Families of columns by name, "" where none is known yet, after these rows, whose columns are among them.

    Raises SchemaMismatch for a value of another family.
    """
    given = dict(zip(rows.names, rows.columns, strict=True))
    for name, column in given.items():
        if kinds[name]:
            converted(name, column, kinds[name])
    return {name: kind or (_begun_as(given[name]) if name in given else "") for name, kind in kinds.items()}


def dated(rows: RawRows) -> RawRows:
    """The rows with every column of texts that all say dates, or times, as dates."""
    columns = zip(rows.names, rows.columns, strict=True)
    made = (converted(name, column, "date") if _says_dates(column) else column for name, column in columns)
    return RawRows(rows.names, tuple(made), rows.rows)


def _begun_as(column: RawColumn) -> str:
    """The family of a column that begins with these values."""
    return "date" if _says_dates(column) else family_of(column)


def _says_dates(column: RawColumn) -> bool:
    """Whether a column is of texts that are all ISO dates or times."""
    if column.kind != "text" or not column.labels:
        return False
    if not all(map(_ISO.fullmatch, column.labels)):
        return False
    try:
        _ = [_days(text) for text in column.labels]
    except ValueError:  # the 31st of February
        return False
    return True


def refuse_table(rows: Any) -> None:
    """Where rows are a table's columns, raise what they are told where only numbers are learned: InvalidRows for gaps, else
    SchemaMismatch."""
    if not isinstance(rows, RawRows):
        return
    way = 'Take feature_map={"map": "table"} (stream_dr.table()), encode it, or leave it out.'
    for name, column in zip(rows.names, rows.columns, strict=True):
        if column.kind in ("text", "date", "time"):
            raise SchemaMismatch(f"column {name} is {column.kind}; features are numbers. {way}", column=name)
    for name, column in zip(rows.names, rows.columns, strict=True):
        if column.missing.any():
            row = int(column.missing.argmax())
            raise InvalidRows(f"column {name} is null in row {row}; send a value. {way}", row=row, column=name)
    raise InvalidRows(f"the rows are a table's columns, and this model learns numbers. {way}")


def places(X: Any) -> tuple[str, ...]:
    """What the columns of rows (rows, features) are called that have no names: x0, x1 …"""
    return tuple(f"x{i}" for i in range(X.shape[1]))


def raw_of(X: Any, names: tuple[str, ...] | None = None) -> RawRows:
    """Dense rows (rows, features) as columns of numbers, called x0, x1 … where they have no names; a table's columns as they
    are. Raises InvalidRows for sparse rows."""
    if isinstance(X, RawRows):
        return X
    if is_sparse(X):
        raise InvalidRows("sparse rows are no table; pass columns, or take them without the feature map.")
    names = names or places(X)
    columns = tuple(_numbers(np.ascontiguousarray(X[:, i], dtype=np.float64)) for i in range(len(names)))
    return RawRows(names, columns, X.shape[0])


def _numbers(values: np.ndarray) -> RawColumn:
    whole = bool(np.all(values == np.rint(values)))
    return RawColumn("integer" if whole else "number", values)


def family_of(column: RawColumn) -> str:
    """ "number", "date" or "text": columns of one family are taken for one another; "" where no value is there."""
    if column.missing.all():
        return ""
    return {"date": "date", "time": "date", "text": "text"}.get(column.kind, "number")


def gaps(family: str, rows: int) -> RawColumn:
    """A column of that family without a value."""
    if family == "text":
        return RawColumn("text", np.full(rows, -1, np.int32))
    return RawColumn("time" if family == "date" else "number", np.full(rows, np.nan))


def converted(name: str, column: RawColumn, family: str) -> RawColumn:
    """The column as one of that family, where nothing is lost: 3 and "3", a day and its ISO text.

    Raises SchemaMismatch naming column and row.
    """
    mine = family_of(column)
    if mine == family:
        return column
    if not mine and "text" in (family, column.kind):
        return gaps(family, len(column.values))
    if not mine:
        return RawColumn("time" if family == "date" else "number", column.values)
    if family == "text":
        return _as_text(column)
    if mine != "text":
        raise _other_type(name, column, int(np.flatnonzero(~column.missing)[0]), family)
    found = np.full(len(column.labels) + 1, np.nan)
    for i, text in enumerate(column.labels):
        try:
            found[i] = (_days if family == "date" else _number)(text) if text.strip() else np.nan
        except ValueError as e:
            rows = np.flatnonzero(column.values == i)
            if len(rows):
                raise _other_type(name, column, int(rows[0]), family) from e
    if family == "number":
        return RawColumn("number", found[column.values])
    whole = np.all(np.isnan(found) | (found == np.rint(found)))
    return RawColumn("date" if whole else "time", found[column.values])


def _as_text(column: RawColumn) -> RawColumn:
    """Numbers and dates as the texts that say them: 3.0 and true as "3" and "1", a day as 2024-02-29."""
    distinct, codes = np.unique(column.values, return_inverse=True)
    codes = np.where(column.missing, -1, codes).astype(np.int32)
    return RawColumn("text", codes, tuple(said(column.kind, v) for v in distinct[~np.isnan(distinct)].tolist()))


def said(kind: str, value: float) -> str:
    """A number or date as text."""
    if kind == "date":
        return str(np.datetime64(int(value), "D"))
    if kind == "time":
        return str(np.datetime64(round(value * 86_400_000_000), "us"))
    return str(int(value)) if value.is_integer() else repr(value)


def _number(text: str) -> float:
    """A text as the finite number it says; true is 1 and false 0, as booleans are among numbers."""
    truth = {"true": 1.0, "false": 0.0}.get(text.strip().lower())
    value = float(text) if truth is None else truth
    if not abs(value) <= LARGEST:
        raise ValueError(text)
    return value


def _days(text: str) -> float:
    """An ISO date or time as days since 1970, UTC where it names no other zone."""
    try:
        when = datetime.fromisoformat(text.strip())
        return ((when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) / timedelta(days=1)
    except OverflowError as e:  # the first day there is, in another zone
        raise ValueError(text) from e


def _other_type(name: str, column: RawColumn, row: int, family: str) -> SchemaMismatch:
    given = column.labels[column.values[row]] if column.kind == "text" else said(column.kind, float(column.values[row]))
    return SchemaMismatch(
        f"row {row}, column {name} is {given[:40]!r} ({column.kind}), not a {family} as that column is. Send one, or null, "
        f"or start a new stream with as_={{{name!r}: 'category'}} in its map.",
        row=row,
        column=name,
    )


def _check(name: str, column: RawColumn) -> None:
    """Raise NotFinite for a number that is infinite or too large."""
    if column.kind == "text":
        return
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(np.abs(column.values) > LARGEST)
    if len(bad):
        row = int(bad[0])
        raise NotFinite(
            f"row {row}, column {name} is {column.values[row]:g}; values must be at most 1e100 in size. Replace it.",
            row=row,
            column=name,
        )
