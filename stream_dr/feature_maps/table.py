"""table: rows of mixed columns (numbers, booleans, dates, categories, texts, gaps) to numbers, and texts to weighted words.

What a column is taken for is decided from the first batch that has a value of it, and kept; `describe` tells it beforehand.
Running statistics (categories met, means, documents' frequencies) are part of a model's state: a batch is first added to
them, then mapped by them; a published projection holds them as they were then.

- A category never met is zero in all of its columns, and counted as unseen; a column that is gone is missing; one that
  nobody has met is left out, its values counted as unseen; a value of another type is refused or, where nothing is lost
  (3 for "3", "2.5" for 2.5), read as what the column is.
- States merge: columns by name, categories by value. What was hashed in one part stays hashed there.
- Rows can be unlearned exactly unless a mean filled them or the idf of `text` weighed them, for those of their time are not
  kept: such rows are refused, and a directory's models are rebuilt from the log. With a constant `impute`, or idf=False, all
  can be.

Cost a row: O(columns), and O(words) of a text. Why this way: everything that is remembered is a sum, so parts agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import MOST_ROWS, WIDEST, within, wrong
from stream_dr.errors import CannotMerge, InvalidParameter, InvalidRows
from stream_dr.feature_maps.columns import (
    MOST_ONE_HOT,
    SIZES,
    WORDS_IN_ALL,
    Making,
    TableColumn,
    begun,
    entries,
    feature_names,
    learned,
    merged,
    places_of,
    read_as,
)
from stream_dr.feature_maps.draws import finite_number
from stream_dr.feature_maps.feature_map import FeatureMap
from stream_dr.feature_maps.taken_for import AS, Wishes, taken_for
from stream_dr.feature_maps.widths import words_of
from stream_dr.feature_maps.words import Words
from stream_dr.rows.raw_rows import RawRows, refuse_table

ENTRIES_AT_ONCE = 1 << 19
"""Numbers of a table's mapped rows that are held at a time, with their places in some copies."""


class TableState(NamedTuple):
    """rows: learned. width: columns made so far. columns: what is remembered of each column, in order of appearance. mixed:
    whether a merge has brought together parts that hashed other categories."""

    rows: int = 0
    width: int = 0
    columns: tuple[TableColumn, ...] = ()
    mixed: bool = False

    def check(self, spec: "Table | Text") -> None:
        """Raise DamagedFile unless its columns make `width` ones, each once."""
        within(self, 0, MOST_ROWS, "rows")
        within(self, 0, WIDEST, "width")
        if len(set(self.names)) != len(self.names) or (isinstance(spec, Text) and len(self.names) != 1):
            raise wrong(self, "columns", f"{len(self.names)} columns", "of distinct names, and one of a map of texts")
        making = spec.making()
        for column in self.columns:
            column.check(making, (None if isinstance(spec, Table) else ("", "text")))
        places = np.concatenate([np.zeros(0, dtype=np.int64), *(column.made_at(making) for column in self.columns)])
        if len(places) != self.width or not np.array_equal(np.sort(places), np.arange(self.width)):
            raise wrong(self, "width", f"{self.width}", f"the {len(places)} columns that are made, each once")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' own names."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class Table(FeatureMap):
    """Rows of mixed columns.

    max_categories: categories of a column with a column of their own; further ones share n_hashed hashed ones. n_words:
    hashed words of a text. one_hot, hash: columns whose categories are not hashed (up to 1,000), or all are. drop, keep:
    columns left out, or taken though they look like ids or constants. as_: column → "number", "date", "time", "category" or
    "text". impute: "mean", or the number that stands for a missing one. n_words None: an equal share of 1,024.
    """

    max_categories: int = 32
    n_hashed: int = 8
    n_words: int | None = None
    one_hot: Sequence[str] = ()
    hash: Sequence[str] = ()
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    as_: dict[str, str] | None = None
    impute: str | float = "mean"

    by_name: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    learns: ClassVar[bool] = True

    def out_features(self, width: int) -> int:
        """Columns that are made at most of so many, whatever they hold."""
        most = max(7, self.max_categories + self.n_hashed, self.n_words or 0, MOST_ONE_HOT if self.one_hot else 0)
        return width * (most + 1) + (WORDS_IN_ALL if width and not self.n_words else 0)

    def check(self) -> None:
        """Raise InvalidParameter when a value is outside its range."""
        for name in ("max_categories", "n_hashed", "n_words"):
            value, least = getattr(self, name), 0 if name == "max_categories" else 1
            if name == "n_words" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 2**20:
                raise InvalidParameter(f"{name}={value!r} of table; it must be an integer from {least} to 1,048,576.")
        for name in ("one_hot", "hash", "drop", "keep"):
            given = getattr(self, name)
            if not isinstance(given, list | tuple) or not all(isinstance(v, str) for v in given):
                raise InvalidParameter(f"{name}={given!r} of table; it must be a list of columns' names.")
        kinds = self.as_ or {}
        if not isinstance(kinds, dict) or not all(kind in AS for kind in kinds.values()):
            raise InvalidParameter(
                f"as_={kinds!r} of table; it must be a dict of columns' names to one of {', '.join(AS)}."
            )
        if self.impute != "mean" and not finite_number(self.impute):
            raise InvalidParameter(f"impute={self.impute!r} of table; it must be 'mean' or a finite number.")

    def making(self) -> Making:
        """What is made of columns."""
        one_hot, hashed = tuple(self.one_hot), tuple(self.hash)
        return Making(self.max_categories, self.n_hashed, Words(self.n_words or 0), self.impute, one_hot, hashed)

    def begin(self, rows: RawRows) -> TableState:
        """The state that knows the names of these rows' columns."""
        return TableState(columns=tuple(TableColumn(name) for name in rows.names))

    def wishes(self) -> Wishes:
        """What is said of columns by name."""
        named = (tuple(self.drop), tuple(self.keep), (*self.one_hot, *self.hash))
        return Wishes(*named, tuple((self.as_ or {}).items()))

    def bytes(self, width: int) -> int:
        """Categories' names and counts, and documents of hashed words."""
        return 64 * self.out_features(width)


@dataclass(frozen=True)
class Text(FeatureMap):
    """Texts: one column of strings, as hashed words or n-grams.

    column: its name; None: the only column of strings, or "text". The others are scikit-learn's, `idf` TfidfVectorizer's.
    """

    n_features: int = 65536
    ngram_range: Sequence[int] = (1, 1)
    analyzer: str = "word"
    lowercase: bool = True
    stop_words: str | None = None
    alternate_sign: bool = False
    sublinear_tf: bool = False
    norm: str | None = "l2"
    idf: bool = True
    column: str | None = None

    by_name: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    learns: ClassVar[bool] = True

    def out_features(self, width: int) -> int:
        """Hashed words, and one for rows without a text."""
        return self.n_features + 1

    def check(self) -> None:
        """Raise InvalidParameter when a value is outside its range."""
        if not isinstance(self.ngram_range, list | tuple):
            raise InvalidParameter(
                f"ngram_range={self.ngram_range!r} of text; it must be two integers, 1 ≤ least ≤ most."
            )
        self.making().words.check()
        if self.column is not None and not isinstance(self.column, str):
            raise InvalidParameter(f"column={self.column!r} of text; it must be a column's name, or None.")

    def making(self) -> Making:
        """What is made of the column."""
        settings = dict(vars(self))
        del settings["column"]
        return Making(0, 1, Words(**settings | {"ngram_range": tuple(self.ngram_range)}), "mean")

    def begin(self, rows: RawRows) -> TableState:
        """The state of the column of texts among these rows'. Raises InvalidRows."""
        texts = [name for name, kind in rows.kinds.items() if kind == "text"]
        name = self.column or ("text" if "text" in texts else texts[0] if len(texts) == 1 else None)
        if name not in rows.names:
            raise InvalidRows(
                f"the rows have no one column of texts ({', '.join(rows.names[:5])} …); name it: text(column=…)."
            )
        return TableState(columns=(TableColumn(str(name)),))

    def wishes(self) -> Wishes:
        """The column is a text, whatever it looks like."""
        return Wishes(kinds=((self.column or "text", "text"),))

    def bytes(self, width: int) -> int:
        """Documents of each hashed word."""
        return 16 * self.n_features


def add(spec: Table | Text, state: TableState | None, rows: RawRows, sign: int = 1) -> TableState:
    """The state with rows learned or, with sign −1, taken out. Raises SchemaMismatch, InvalidRows or CannotUnlearn."""
    state, making, wishes = state or spec.begin(rows), spec.making(), spec.wishes()
    begins: dict[str, str] = {}
    for name in (column.name for column in state.columns if not column.kind):
        if (values := rows.column(name)) is not None:
            begins[name] = "text" if isinstance(spec, Text) else taken_for(name, values, wishes).kind
    words = words_of(making, state.columns, begins)

    width, columns = state.width, []
    for column in state.columns:
        if begins.get(column.name):
            column, width = begun(column, begins[column.name], words, width)
        if column.made:
            values = read_as(column, rows.column(column.name), rows.rows)
            column, width = learned(column, values, making, width, sign)
        columns.append(column)
    return TableState(state.rows + sign * rows.rows, width, tuple(columns), state.mixed)


def columns_by_kind(state: TableState, making: Making) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of the columns made of numbers and dates, of categories, and of gaps.

    Each array is int64. Columns of words are in none of them.
    """
    none = np.zeros(0, dtype=np.int64)
    gaps = np.array([c.missing for c in state.columns if c.missing >= 0], dtype=np.int64)
    categories = [c.made_at(making) for c in state.columns if c.kind == "category"]
    numbers = [c.places for c in state.columns if c.kind in SIZES]
    return np.concatenate([none, *numbers]), np.setdiff1d(np.concatenate([none, *categories]), gaps), gaps


def emptied(state: TableState) -> TableState:
    """The same columns with nothing learned: to learn the same rows anew."""
    nothing = [c._replace(present=0, total=0.0, counts=np.zeros_like(c.counts)) for c in state.columns]
    return state._replace(rows=0, columns=tuple(nothing))


def check_columns(spec: Any, rows: RawRows) -> None:
    """Raise what keeps a map (None: none) from learning such columns: SchemaMismatch or InvalidRows."""
    if not isinstance(spec, Table | Text):
        refuse_table(rows)
    elif isinstance(spec, Text):
        spec.begin(rows)
    else:
        for name, kind in (spec.as_ or {}).items():
            read_as(TableColumn(name, kind), rows.column(name), rows.rows)


def table_parts(made: Any, table: TableState, rows: RawRows) -> list[slice]:
    """The rows of a table that are mapped at a time: fewer where columns are many or texts long, for a row has each word."""
    longest = (max(map(len, column.labels), default=0) for column in rows.columns)
    most = made.making().words.n_features or WORDS_IN_ALL
    entries = 7 * len(table.columns) + sum(min(most, letters // 2) for letters in longest)
    step = max(1, min(4096, ENTRIES_AT_ONCE // max(1, entries)))
    return [slice(start, start + step) for start in range(0, rows.rows, step)]


def mapped_rows(spec: Table | Text, state: TableState, rows: RawRows) -> sp.csr_matrix:
    """Return rows (rows, state.width), float64 CSR, mapped by the state's statistics.

    Raises SchemaMismatch.
    """
    making = spec.making()
    made = [c for c in state.columns if c.made]
    parts = [entries(c, read_as(c, rows.column(c.name), rows.rows), making) for c in made]
    shape = (rows.rows, state.width)
    if not parts:
        return sp.csr_matrix(shape)
    at, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    X = sp.csr_matrix((values, (at, columns)), shape=shape)
    X.eliminate_zeros()
    X.sort_indices()
    return X


def unseen(spec: Table | Text, state: TableState, rows: RawRows) -> int:
    """Values of which nothing is made: of categories never met, and in columns that the first batch did not have."""
    making, known = spec.making(), {c.name: c for c in state.columns}
    count = 0
    for name, values in zip(rows.names, rows.columns, strict=True):
        column = known.get(name)
        if column is None and not isinstance(spec, Text):
            count += int(np.count_nonzero(~values.missing))
        elif column is not None and column.kind == "category":
            texts = read_as(column, values, rows.rows)
            place = places_of(column, texts.labels, making)[texts.values]
            count += int(np.count_nonzero((place < 0) & ~texts.missing))
    return count


def feature_names_of(spec: Table | Text, state: TableState) -> tuple[str, ...]:
    """Names (state.width,) of the columns made: `age`, `age missing`, `sex=female`, `cabin #5`."""
    names: dict[int, str] = {}
    for column in state.columns:
        names |= feature_names(column, spec.making()) if column.made else {}
    return tuple(names[i] for i in range(state.width))


def lasting(spec: Table | Text, state: TableState, rows: RawRows) -> bool:
    """Whether these rows are mapped to the same numbers at any time: no mean fills them, no idf weighs them."""
    making = spec.making()
    if state.mixed:
        return False
    for column in state.columns:
        values = rows.column(column.name)
        if column.kind == "text" and making.words.idf and (values is None or not values.missing.all()):
            return False
        filled = column.kind in ("number", "date", "time") and making.impute == "mean"
        if filled and (values is None or values.missing.any()):
            return False
    return True


def depends_on_others(spec: Table | Text, state: TableState) -> bool:
    """Whether how some rows were mapped hangs on others: a mean has filled a gap, idf has weighed words, or parts that
    hashed other categories were merged."""
    making = spec.making()
    filled = making.impute == "mean" and any(
        column.kind in ("number", "date", "time") and column.present < state.rows for column in state.columns
    )
    weighed = making.words.idf and any(column.kind == "text" and column.present for column in state.columns)
    return state.mixed or filled or weighed


def joined(spec: Table | Text, a: TableState, b: TableState) -> tuple[TableState, np.ndarray]:
    """Both states as one, and where each of b's columns goes (b.width,) int64. Raises CannotMerge."""
    making, width = spec.making(), a.width
    theirs = {column.name: column for column in b.columns}
    if set(theirs) != set(a.names):
        extra = min(set(theirs) ^ set(a.names))
        raise CannotMerge(f"only one of the states has a column {extra!r}: learn both with the same columns.")
    goes, columns, mixed = np.zeros(b.width, dtype=np.int64), [], a.mixed or b.mixed
    for column in a.columns:
        mixed |= (
            column.kind == "category"
            and set(column.categories) != set(theirs[column.name].categories)
            and (column.hashed >= 0 or theirs[column.name].hashed >= 0)
        )
        column, places, width = merged(column, theirs[column.name], making, width)
        goes[list(places)] = list(places.values())
        columns.append(column)
    return TableState(a.rows + b.rows, width, tuple(columns), mixed), goes
