"""columns: what a map of tables remembers of each column, and the numbers it makes of the column's values.

- number, boolean: the value; a missing one is the mean so far (or the constant given), beside the indicator `age missing`.
- date, time: years since 2000, with sine and cosine of the year, the week and, of times, the day; missing as a number is.
- category: `sex=female`, one column each in order of appearance while there are few; beyond that `cabin #5`, hashed.
- text: hashed words, `name #5`.

Columns come as they are needed, behind those that are there: of a category when it is met, an indicator with the first gap.

Cost a row: O(columns) and the words of a text; memory: each category's name and count, 8 bytes a hashed word.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import MOST_ROWS, WIDEST, one_of, shaped, within, wrong
from stream_dr.errors import CannotMerge, CannotUnlearn
from stream_dr.feature_maps.words import Words, counted, weighted
from stream_dr.rows.raw_rows import RawColumn, convert, missing_column

LEFT_OUT = ("dropped", "id", "constant")
"""Kinds of columns of which nothing is made."""

SIZES = {"number": 1, "date": 5, "time": 7}
"""Columns made of a value, whatever it is, by kind."""

_EPOCH, _YEAR = 10957.0, 365.2425
_CYCLES = {"date": (("year", _YEAR), ("week", 7.0)), "time": (("year", _YEAR), ("week", 7.0), ("day", 1.0))}

MOST_ONE_HOT = 1_000
"""Categories of a column named in `one_hot` that have columns of their own."""

WORDS_IN_ALL = 1_024
"""Hashed words that the texts of a table share equally, unless a map says a number of each."""

FREQUENT = 0.01
"""Share of a batch's rows from which a category has a column of its own where there is no room for all."""

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row numbers, column numbers, values."""


class Making(NamedTuple):
    """What a map says of all columns. words: of texts; a column's own number of them is in its state. one_hot: columns whose
    categories are never hashed; hash: always."""

    max_categories: int
    n_hashed: int
    words: Words
    impute: str | float
    one_hot: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()


class TableColumn(NamedTuple):
    """One column.

    name. kind: "number", "date", "time", "category", "text", one of LEFT_OUT, or "" until it has a value. present: rows with
    a value. total: their sum (years of dates). categories: those met, in the order of their columns. counts: int64 rows of
    each; of a text, documents of each hashed word. places: int64 numbers of the columns made of values. missing, hashed:
    number of the indicator, and of the first hashed column; −1 while there is none.
    """

    name: str
    kind: str = ""
    present: int = 0
    total: float = 0.0
    categories: tuple[str, ...] = ()
    counts: np.ndarray = np.zeros(0, dtype=np.int64)
    places: np.ndarray = np.zeros(0, dtype=np.int64)
    missing: int = -1
    hashed: int = -1

    def check(self, making: Making, kinds: tuple[str, ...] | None) -> None:
        """Raise DamagedFile unless counts and places are those of its kind, which is one of `kinds` (None: any)."""
        one_of(self, "kind", kinds or ("", *SIZES, "category", "text", *LEFT_OUT))
        within(self, 0, MOST_ROWS, "present")
        within(self, -1, WIDEST, "missing", "hashed")
        if len(set(self.categories)) != len(self.categories) or (self.categories and self.kind != "category"):
            raise wrong(self, "categories", f"{len(self.categories)} categories", "distinct, of a column of categories")
        texts = len(self.places) if self.kind == "text" else 0
        if self.kind == "text" and not 1 <= texts <= (making.words.n_features or WORDS_IN_ALL):
            raise wrong(self, "places", f"{texts} words", f"from 1 to {making.words.n_features or WORDS_IN_ALL}")
        size = SIZES.get(self.kind, texts or len(self.categories))
        shaped(self, np.int64, counts=(texts or len(self.categories),), places=(size,))
        within(self, 0, MOST_ROWS, "counts")
        if (self.hashed >= 0 and self.kind != "category") or (self.missing >= 0 and not self.made):
            raise wrong(self, "hashed", f"{self.hashed}, and missing {self.missing}", f"-1 where kind is {self.kind!r}")

    def made_at(self, making: Making) -> np.ndarray:
        """Numbers (columns,) int64 of all columns that are made of it."""
        hashed = range(self.hashed, self.hashed + making.n_hashed) if self.hashed >= 0 else ()
        missing = (self.missing,) if self.missing >= 0 else ()
        return np.array([*self.places.tolist(), *hashed, *missing], dtype=np.int64)

    def words(self, making: Making) -> Words:
        """How its texts become columns."""
        return making.words._replace(n_features=len(self.places))

    @property
    def mean(self) -> float:
        """Mean of the values so far; 0 where there is none."""
        return self.total / self.present if self.present else 0.0

    @property
    def made(self) -> bool:
        """Whether anything is made of it."""
        return self.kind not in ("", *LEFT_OUT)


def begun(column: TableColumn, kind: str, words: int, width: int) -> tuple[TableColumn, int]:
    """The column as one of that kind, its first columns from `width` on, and the width behind them. words: hashed ones of a
    text."""
    size = (SIZES | {"text": words}).get(kind, 0)
    counts = np.zeros(size if kind == "text" else 0, dtype=np.int64)
    return column._replace(kind=kind, places=np.arange(width, width + size), counts=counts), width + size


def learned(
    column: TableColumn, values: RawColumn, making: Making, width: int, sign: int = 1
) -> tuple[TableColumn, int]:
    """The column with a batch's values (of its own kind: `read_as`) added, or with sign −1 taken out, and the width.

    Raises CannotUnlearn where more would go than was learned.
    """
    gaps = values.missing
    present = int(len(gaps) - gaps.sum())
    if sign < 0 and present > column.present:
        raise CannotUnlearn(f"column {column.name} has {column.present} values; {present} cannot be taken out.")
    column = column._replace(present=column.present + sign * present)
    if column.missing < 0 and present < len(gaps) and sign > 0:
        column, width = column._replace(missing=width), width + 1
    if column.kind == "category":
        return _categories(column, values, making, width, sign)
    if column.kind == "text":
        with_word = (counted(column.words(making), values.labels) != 0).T @ np.bincount(
            values.values[~gaps], minlength=len(values.labels)
        )
        return column._replace(counts=column.counts + sign * with_word.astype(np.int64)), width
    return column._replace(
        total=column.total + sign * float(values.values[~gaps].sum()) if column.present else 0.0
    ), width


def entries(column: TableColumn, values: RawColumn, making: Making) -> Entries:
    """What the column's columns hold for a batch's values, of its own kind."""
    gaps = values.missing
    at = np.flatnonzero(gaps) if column.missing >= 0 else np.zeros(0, dtype=np.int64)
    parts: list[Entries] = [(at, np.full(len(at), column.missing), np.ones(len(at)))]
    if column.kind == "category":
        place = places_of(column, values.labels, making)[values.values]
        at = np.flatnonzero(~gaps & (place >= 0))
        parts.append((at, place[at], np.ones(len(at))))
    elif column.kind == "text":
        at = np.flatnonzero(~gaps)
        words = column.words(making)
        rows = weighted(words, counted(words, values.labels), column.counts, column.present)
        rows = sp.coo_matrix(rows[values.values[at]])
        parts.append((at[rows.row], column.places[rows.col], rows.data))
    else:
        fill = column.mean if making.impute == "mean" else float(making.impute)
        every = np.arange(len(gaps))
        parts.append((every, np.full(len(every), column.places[0]), np.where(gaps, fill, values.values)))
        at = np.flatnonzero(~gaps)
        for i, (_, days) in enumerate(_CYCLES.get(column.kind, ())):
            angle = 2.0 * np.pi * (values.values[at] * _YEAR + _EPOCH) / days
            for wave, place in ((np.sin, column.places[1 + 2 * i]), (np.cos, column.places[2 + 2 * i])):
                parts.append((at, np.full(len(at), place), wave(angle)))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]


def places_of(column: TableColumn, labels: tuple[str, ...], making: Making) -> np.ndarray:
    """The column's number (labels + 1,) of each text, −1 where it was never met; the last is −1, for missing values."""
    known = dict(zip(column.categories, column.places.tolist(), strict=True))
    found = [known.get(label, -1) for label in labels]
    if column.hashed >= 0:
        found = [column.hashed + bucket(t, making) if p < 0 else p for p, t in zip(found, labels, strict=True)]
    return np.array([*found, -1], dtype=np.int64)


def bucket(text: str, making: Making) -> int:
    """Which of the hashed columns a category falls into."""
    from sklearn.utils import murmurhash3_32

    return int(murmurhash3_32(text, positive=True) % making.n_hashed)


def feature_names(column: TableColumn, making: Making) -> dict[int, str]:
    """The names of the columns made of this one, by number."""
    name, places = column.name, column.places.tolist()
    if column.kind == "category":
        names = {p: f"{name}={category}" for p, category in zip(places, column.categories, strict=True)}
    elif column.kind == "text":
        names = {p: f"{name} #{i}" for i, p in enumerate(places)}
    else:
        waves = [f"{name} {cycle} {wave}" for cycle, _ in _CYCLES.get(column.kind, ()) for wave in ("sin", "cos")]
        names = dict(zip(places, [name, *waves], strict=False))
    if column.hashed >= 0:
        names |= {column.hashed + i: f"{name} #{i}" for i in range(making.n_hashed)}
    return names | ({column.missing: f"{name} missing"} if column.missing >= 0 else {})


def read_as(column: TableColumn, values: RawColumn | None, rows: int) -> RawColumn:
    """A batch's values as the column's kind has them, where nothing is lost by that; all missing where values is None.

    Raises SchemaMismatch naming column and row.
    """
    family = {"category": "text", "text": "text", "date": "date", "time": "date"}.get(column.kind, "number")
    given = missing_column(family, rows) if values is None else convert(column.name, values, family)
    return RawColumn("number", (given.values - _EPOCH) / _YEAR) if family == "date" else given


def merged(a: TableColumn, b: TableColumn, making: Making, width: int) -> tuple[TableColumn, dict[int, int], int]:
    """Both columns as one, where each of b's columns goes, and the width behind those that are new. Raises CannotMerge."""
    if not (a.kind and b.kind):
        a, width = (a, width) if a.kind or not b.kind else begun(a, b.kind, len(b.places), width)
    elif a.kind != b.kind:
        raise CannotMerge(f"column {a.name} is {a.kind} in one state and {b.kind} in the other; give its kind (as_).")
    if a.kind == b.kind == "text" and len(a.places) != len(b.places):
        raise CannotMerge(
            f"column {a.name} is hashed to {len(a.places)} words in one state and to {len(b.places)} in the other; give the "
            "number of them (n_words)."
        )
    goes: dict[int, int] = {}
    for name, size in (("missing", 1), ("hashed", making.n_hashed)):
        theirs = getattr(b, name)
        if theirs >= 0:
            if getattr(a, name) < 0:
                fresh = {name: width}
                a, width = (
                    a._replace(missing=fresh.get("missing", a.missing), hashed=fresh.get("hashed", a.hashed)),
                    width + size,
                )
            goes |= {theirs + i: getattr(a, name) + i for i in range(size)}
    known = dict(zip(a.categories, a.places.tolist(), strict=False)) if a.kind == "category" else {}
    new = [c for c in b.categories if c not in known]
    counts = a.counts
    if a.kind == "category":
        known |= {c: width + i for i, c in enumerate(new)}
        goes |= {p: known[c] for c, p in zip(b.categories, b.places.tolist(), strict=True)}
        at = {c: i for i, c in enumerate((*a.categories, *new))}
        counts = np.append(a.counts, np.zeros(len(new), dtype=np.int64))
        np.add.at(counts, [at[c] for c in b.categories], b.counts)
        a = a._replace(categories=(*a.categories, *new), places=np.append(a.places, np.arange(width, width + len(new))))
    elif b.kind:
        goes |= dict(zip(b.places.tolist(), a.places.tolist(), strict=True))
        counts = a.counts + b.counts
    a = a._replace(present=a.present + b.present, total=a.total + b.total, counts=counts)
    return a, goes, width + len(new)


def _categories(
    column: TableColumn, values: RawColumn, making: Making, width: int, sign: int
) -> tuple[TableColumn, int]:
    """The column with categories met, the most frequent of a batch's new ones first. When there is room for all no more,
    the frequent ones have the last columns, and what is new from then on is hashed."""
    rows = np.bincount(values.values[~values.missing], minlength=len(values.labels))
    met = {label: int(n) for label, n in zip(values.labels, rows.tolist(), strict=True) if n}
    new = sorted((label for label in met if label not in set(column.categories)), key=lambda label: -met[label])
    most = (MOST_ONE_HOT if column.name in making.one_hot else making.max_categories) - len(column.categories)
    closed = column.hashed >= 0 or column.name in making.hash or sign < 0
    own = (
        new
        if len(new) <= most
        else [label for label in new[: max(0, most)] if met[label] >= FREQUENT * len(values.values)]
    )
    own = [] if closed else own
    if len(own) < len(new) and column.hashed < 0:
        if sign < 0:
            raise CannotUnlearn(f"column {column.name} never had the value {new[0]!r}; it cannot be taken out.")
        column, width = column._replace(hashed=width), width + making.n_hashed
    names = (*column.categories, *own)
    counts = np.append(column.counts, np.zeros(len(own), dtype=np.int64))
    counts = counts + sign * np.array([met.get(name, 0) for name in names], dtype=np.int64)
    if sign < 0 and counts.min(initial=0) < 0:
        at = int(counts.argmin())
        raise CannotUnlearn(f"column {column.name} has fewer rows of {names[at]!r} than would be taken out.")
    places = np.append(column.places, np.arange(width, width + len(own)))
    return column._replace(categories=names, counts=counts, places=places), width + len(own)
