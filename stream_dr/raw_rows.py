"""raw_rows: rows as a table has them, before a feature map makes numbers of them: categories, texts, dates, gaps.

A column is numbers, NaN where a value is missing, or texts: codes into the distinct ones, −1 where one is missing.
`Block.X` may be RawRows; only estimators whose feature map is `table` or `text` learn from them.

Cost: 8 bytes a number, 4 a text and each distinct text once.

Why this way: numerics know no Arrow; what a map asks of a column (its distinct texts, which values are missing) is at hand.
"""

from typing import Any, NamedTuple, NoReturn

import numpy as np

from stream_dr.errors import InvalidRows, NotFinite, SchemaMismatch

LARGEST = 1e100
"""Values beyond this size are refused: their squares would not be finite."""

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
        """The rows of those numbers, slice or mask."""
        return self._replace(values=self.values[rows])


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

    def column(self, name: str) -> RawColumn | None:
        """The column of that name, or None."""
        return self.columns[self.names.index(name)] if name in self.names else None


def refuse_raw(rows: RawRows) -> NoReturn:
    """Raise what rows of a table are told where only numbers are learned: InvalidRows for gaps, else SchemaMismatch."""
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
    """Dense rows (rows, features) as columns of numbers, called x0, x1 … where they have no names. Raises InvalidRows."""
    if hasattr(X, "indptr"):
        raise InvalidRows("sparse rows are no table; pass columns, or take them without the feature map.")
    names = names or places(X)
    kind = {"b": "boolean", "i": "integer", "u": "integer"}.get(X.dtype.kind, "number")
    columns = tuple(RawColumn(kind, np.ascontiguousarray(X[:, i], dtype=np.float64)) for i in range(len(names)))
    return RawRows(names, columns, X.shape[0])


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
