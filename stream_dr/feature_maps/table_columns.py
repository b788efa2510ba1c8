"""Statistics of a table's columns, and encoding of their values.

A map of tables encodes a column by its kind:

- number, boolean: one column with the value. A missing value is filled with the mean so far or
  with a constant. A second column, such as `age missing`, is 1 for missing values.
- date, time: one column with the years since 2000, and columns with the sine and cosine of the
  position in the year and in the week. A time also has the position in the day. Missing values are
  filled as for numbers.
- category: a column of 0 and 1, such as `sex=female`, for each of the first categories. Further
  categories are hashed to columns such as `cabin #5`.
- text: columns such as `name #5`, to which words are hashed.

Columns of mapped rows are added when they are needed, after the existing columns. For example, a
category gets its column when the category first appears.

Mapping a row costs O(columns), and O(words) for texts. The statistics take the name and count of
each category, and 8 bytes for each column of hashed words.

Words and n-grams are hashed and counted by scikit-learn's HashingVectorizer. Weights are equal to
the weights of scikit-learn's TfidfVectorizer. The inverse document frequency of a hashed column is
ln((1 + n) / (1 + df)) + 1. Here n is the number of documents so far, and df is the number of
documents that have a word in this column. Each distinct text of a batch is hashed one time.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from stream_dr.batch.table import (
    ColumnValues,
    column_values,
    convert_column,
    family_of_kind,
    find_column,
    missing_column,
)
from stream_dr.checks import (
    FEATURE_COUNT_LIMIT,
    ROW_COUNT_LIMIT,
    check_dtype_and_shapes,
    check_one_of,
    check_within,
    field_error,
)
from stream_dr.errors import CannotMerge, CannotUnlearn, InvalidParameter
from stream_dr.feature_maps.feature_map import FeatureMap

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import HashingVectorizer


@dataclass(frozen=True)
class Words:
    """Settings for the encoding of texts as weighted words.

    `sublinear_tf` and `idf` are the parameters `sublinear_tf` and `use_idf` of scikit-learn's
    TfidfVectorizer. The other fields are parameters of scikit-learn's HashingVectorizer. If
    n_features is 0, the text columns of a table share 1,024 hashed columns equally.
    """

    n_features: int = 0
    ngram_range: Sequence[int] = (1, 1)
    analyzer: str = "word"
    lowercase: bool = True
    stop_words: str | None = None
    alternate_sign: bool = False
    sublinear_tf: bool = False
    norm: str | None = "l2"
    idf: bool = False

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        n = self.n_features
        grams = self.ngram_range
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n < 2**31:
            raise InvalidParameter(f"n_features={n!r} of words; it must be an integer ≥ 1 and below 2³¹.")
        if len(grams) != 2 or not all(isinstance(g, int) for g in grams) or not 1 <= grams[0] <= grams[1]:
            raise InvalidParameter(f"ngram_range={grams!r}; it must be two integers, 1 ≤ least ≤ most.")
        for name, allowed in (("analyzer", ("word", "char", "char_wb")), ("norm", ("l1", "l2", None))):
            value = getattr(self, name)
            if value not in allowed:
                raise InvalidParameter(f"{name}={value!r}; it must be one of {allowed}.")
        if self.stop_words not in (None, "english"):
            raise InvalidParameter(f"stop_words={self.stop_words!r}; it must be None or 'english'.")


def count_hashed_words(settings: Words, texts: tuple[str, ...]) -> sp.csr_matrix:
    """Count each text's words by the hash of the word.

    The result is CSR (texts, settings.n_features) float64. The hash of a word is its column.
    """
    if not texts:
        return sp.csr_matrix((0, settings.n_features))
    plain = replace(settings, norm=None, idf=False, sublinear_tf=False)
    return _cached_vectorizer(plain).transform(texts)


def weight_word_counts(
    settings: Words, counts: sp.csr_matrix, document_frequencies: np.ndarray, n_documents: int
) -> sp.csr_matrix:
    """Return weighted counts of hashed words.

    The result is CSR and has the shape of `counts`. The settings decide whether counts are
    replaced by their logarithms, whether they are multiplied by the inverse document frequency,
    and whether rows are scaled to length 1.

    counts: (texts, columns), counts of hashed words.
    document_frequencies: (columns,), number of documents so far that have a word in each
        column.
    n_documents: number of documents so far.
    """
    from sklearn.preprocessing import normalize

    # Counts may be negative, because words may be hashed with a sign. With `sublinear_tf`, a count
    # c becomes ln |c| + 1 with the sign of c. `rows.indices` has the column of each count.
    rows = counts.copy()
    if settings.sublinear_tf:
        rows.data = np.sign(rows.data) * (np.log(np.abs(rows.data)) + 1.0)
    if settings.idf:
        inverse = np.log((1.0 + n_documents) / (1.0 + document_frequencies)) + 1.0
        rows.data *= inverse[rows.indices]
    if settings.norm and rows.shape[0]:
        return normalize(rows, norm=settings.norm, copy=False)
    return rows


@lru_cache(maxsize=16)
def _cached_vectorizer(settings: Words) -> "HashingVectorizer":
    from sklearn.feature_extraction.text import HashingVectorizer

    parameters = {name: value for name, value in vars(settings).items() if name not in ("idf", "sublinear_tf")}
    return HashingVectorizer(**parameters)


LEFT_OUT = ("dropped", "id", "constant")
"""Kinds of columns that are not encoded."""

SIZES = {"number": 1, "date": 5, "time": 7}
"""Number of mapped columns that encode a column, by the kind of the column."""

_EPOCH, _YEAR = 10957.0, 365.2425
"""Number of days from 1970 to 2000, and mean number of days in a year."""

_CYCLES = {"date": (("year", _YEAR), ("week", 7.0)), "time": (("year", _YEAR), ("week", 7.0), ("day", 1.0))}
"""Cycles that are encoded by sine and cosine, by the kind of the column.

Each cycle has a name and a length in days.
"""

MOST_ONE_HOT = 1_000
"""Largest number of one-hot categories of a column named in `one_hot`.

A one-hot category has a column of 0 and 1.
"""

MAX_NAME = 1_000
"""Largest number of characters of a one-hot category. Longer categories are hashed."""

WORDS_IN_ALL = 1_024
"""Number of hashed words that all text columns of a table share equally.

This number applies if the map does not set the number of words for each text column.
"""

FREQUENT = 0.01
"""Smallest share of a batch's rows with which a new category counts as frequent.

If a batch has more new categories than may be one-hot (have their own column of 0 and 1), only
frequent categories become one-hot. The other new categories are hashed.
"""

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row indices, column indices and values of the entries of a sparse matrix."""


class TableMap(FeatureMap):
    """Feature map with running statistics of a table's columns.

    Attributes
    ----------
    max_categories : int
        Largest number of categories of a table column that are encoded one-hot, each as a mapped
        column of zeros and ones.
    n_hashed : int
        Number of columns that all further categories of a column share.
    impute : "mean" or float
        Replacement of missing numbers.
    one_hot : sequence of str
        Columns of which up to `MOST_ONE_HOT` categories are one-hot.
    hash : sequence of str
        Columns whose categories are all hashed.
    keep : sequence of str
        Columns to encode even if they look like ids or constants.
    """

    by_name = True
    sparse = True
    learns = True

    max_categories: int = 0
    n_hashed: int = 1
    impute: str | float = "mean"
    one_hot: Sequence[str] = ()
    hash: Sequence[str] = ()
    keep: Sequence[str] = ()

    @property
    @abstractmethod
    def words(self) -> Words:
        """Settings by which texts are encoded as hashed words.

        The number of hashed words of a column is stored in `TableColumn`.
        """

    @abstractmethod
    def declared_kind(self, name: str) -> str | None:
        """Return the kind that the user has declared for a column, or None.

        The kind of a column to skip is "dropped".

        name: name of the column.
        """

    @abstractmethod
    def column_names(self, rows: pa.RecordBatch) -> Sequence[str]:
        """Return the names of a table's columns that the map encodes.

        rows: rows of the table.
        """


class TableColumn(NamedTuple):
    """Statistics of one column of a table.

    Mapped columns are the columns of numbers that the map returns. They encode the table's columns.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : str
        "number", "date", "time", "category", "text", or one of LEFT_OUT. "" until the column has a
        value.
    present : int
        Number of rows with a value.
    total : float
        Sum of the values. Dates count in years.
    categories : tuple of str
        Categories that have their own mapped column, in the order of these mapped columns.
    counts : ndarray
        int64 number of rows with each category in `categories`. For a text, number of documents
        that have a word in each hashed column.
    places : ndarray
        int64 indices of the mapped columns that encode values.
    missing : int
        Index of the mapped column that marks missing values. −1 if there is no such column.
    hashed : int
        Index of the first mapped column for hashed categories. −1 if there is no such column.
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

    def check(self, table_map: TableMap, kinds: tuple[str, ...] | None) -> None:
        """Raise DamagedFile unless the categories, counts and indices fit the column's kind.

        table_map: the map.
        kinds: kinds that the column may have. None for any kind.
        """
        # The kinds are "" before the first value, number, date and time (the keys of SIZES),
        # category, text, and those of columns that are not encoded (LEFT_OUT).
        check_one_of(self, "kind", kinds or ("", *SIZES, "category", "text", *LEFT_OUT))
        check_within(self, 0, ROW_COUNT_LIMIT, "present")
        check_within(self, -1, FEATURE_COUNT_LIMIT, "missing", "hashed")
        repeated = len(set(self.categories)) < len(self.categories)
        if repeated or (self.categories and self.kind != "category"):
            actual = f"{len(self.categories)} categories"
            raise field_error(self, "categories", actual, "distinct, of a column of categories")

        # Each category or hashed word has a count. SIZES has the number of mapped columns
        # (`places`) of a number, date or time.
        n_counts = len(self.categories)
        if self.kind == "text":
            n_counts = self._check_words(table_map)
        n_places = SIZES.get(self.kind, n_counts)
        check_dtype_and_shapes(self, np.int64, counts=(n_counts,), places=(n_places,))
        check_within(self, 0, ROW_COUNT_LIMIT, "counts")

        # Only categories are hashed, and only encoded columns mark missing values.
        hashed_wrong = self.hashed >= 0 and self.kind != "category"
        missing_wrong = self.missing >= 0 and not self.is_encoded
        if hashed_wrong or missing_wrong:
            actual = f"{self.hashed}, and missing {self.missing}"
            raise field_error(self, "hashed", actual, f"-1 where kind is {self.kind!r}")

    def _check_words(self, table_map: TableMap) -> int:
        """Return the number of hashed words of a text, or raise DamagedFile."""
        # If the map sets no number (0), all columns of texts share WORDS_IN_ALL hashed words.
        n_words = len(self.places)
        most_words = table_map.words.n_features or WORDS_IN_ALL
        if not 1 <= n_words <= most_words:
            raise field_error(self, "places", f"{n_words} words", f"from 1 to {most_words}")
        return n_words

    def mapped_column_indices(self, table_map: TableMap) -> np.ndarray:
        """Return the mapped columns that encode this column.

        Mapped columns are the columns of numbers that the map returns. The result has their indices
        (int64). It includes the columns of hashed categories and the column that marks missing
        values.
        """
        indices = self.places.tolist()
        if self.hashed >= 0:
            indices += range(self.hashed, self.hashed + table_map.n_hashed)
        if self.missing >= 0:
            indices.append(self.missing)
        return np.array(indices, dtype=np.int64)

    def words(self, table_map: TableMap) -> Words:
        """Return the settings by which the texts of this column become hashed words.

        They are the map's settings, with the column's own number of hashed words.
        """
        return replace(table_map.words, n_features=len(self.places))

    @property
    def mean(self) -> float:
        """Mean of the values so far, 0 without values."""
        if self.present:
            return self.total / self.present
        return 0.0

    @property
    def is_encoded(self) -> bool:
        """True if the column is encoded as mapped columns.

        It is not if it has had no value so far, or is skipped, as an id or a constant is.
        """
        return self.kind not in ("", *LEFT_OUT)


def start_column(column: TableColumn, kind: str, n_hashed_words: int, width_so_far: int) -> tuple[TableColumn, int]:
    """Set the kind of a table's column, and assign its mapped columns.

    Returns the column, and the new number of mapped columns of the whole table. Mapped columns are
    the columns of numbers that the map returns. Each category gets its own later, when it occurs.

    column: column without a kind.
    kind: kind of the column.
    n_hashed_words: number of hashed words, if the kind is "text".
    width_so_far: number of mapped columns of the whole table so far.
    """
    # SIZES has the number of mapped columns of a number, date or time. Categories get theirs later.
    # A text has one for each hashed word, and a count of the documents with the word.
    n_counts = 0
    size = SIZES.get(kind, 0)
    if kind == "text":
        n_counts = n_hashed_words
        size = n_hashed_words
    width = width_so_far + size
    counts = np.zeros(n_counts, dtype=np.int64)
    places = np.arange(width_so_far, width)
    return column._replace(kind=kind, places=places, counts=counts), width


def update_column_statistics(
    column: TableColumn, values: ColumnValues, table_map: TableMap, width_so_far: int, sign: int = 1
) -> tuple[TableColumn, int]:
    """Return a column with a batch's values added or removed.

    The new number of mapped columns is returned, too. Mapped columns are the columns of numbers
    that the map returns. New categories may need new ones. Raises CannotUnlearn if more values
    would be removed than were learned.

    values: values of the batch, converted to the kind of the column by `read_column`.
    table_map: the map.
    width_so_far: number of mapped columns of the whole table so far.
    sign: 1 to add the values, −1 to remove them.
    """
    # `column.present` is the number of values learned so far.
    is_missing = values.missing
    n_missing = int(is_missing.sum())
    n_present = len(is_missing) - n_missing
    if sign < 0 and n_present > column.present:
        raise CannotUnlearn(f"column {column.name} has {column.present} values; {n_present} cannot be taken out.")

    # Rows without a value have 1 in a mapped column of their own, which the first such row creates.
    # `column.missing` is the index of this column, −1 if there is none yet.
    column = column._replace(present=column.present + sign * n_present)
    if column.missing < 0 and n_missing and sign > 0:
        column = column._replace(missing=width_so_far)
        width_so_far += 1

    # Update the statistics of the column's kind.
    if column.kind == "category":
        return _update_category_statistics(column, values, table_map, width_so_far, sign)
    if column.kind == "text":
        rows_with_word = _count_rows_with_words(values, column.words(table_map))
        return column._replace(counts=column.counts + sign * rows_with_word), width_so_far

    # A column without values has exactly the sum 0, without rounding errors of removed values.
    total = 0.0
    if column.present:
        batch_sum = float(values.values[~is_missing].sum())
        total = column.total + sign * batch_sum
    return column._replace(total=total), width_so_far


def encode_values_as_entries(column: TableColumn, values: ColumnValues, table_map: TableMap) -> Entries:
    """Encode a batch's values as entries of the mapped rows.

    The result has row indices, column indices and values of a sparse matrix.

    column: statistics of the column.
    values: values of the batch, converted to the kind of the column by `read_column`.
    table_map: the map.
    """
    # Missing values are marked by 1 in a mapped column of their own. `column.missing` is its index,
    # −1 if there is none. `values.missing` is True for the rows without a value.
    parts: list[Entries] = []
    if column.missing >= 0:
        at = np.flatnonzero(values.missing)
        parts.append((at, np.full(len(at), column.missing), np.ones(len(at))))

    # The other entries depend on the kind of the column.
    if column.kind == "category":
        parts.append(_category_entries(column, values, table_map))
    elif column.kind == "text":
        parts.append(_word_entries(column, values, table_map))
    else:
        parts += _number_entries(column, values, table_map)
    rows, columns, numbers = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(numbers)


def _category_entries(column: TableColumn, values: ColumnValues, table_map: TableMap) -> Entries:
    """Return the entries of a sparse matrix that encode a column's categories.

    The matrix has the rows of the batch, and the columns of numbers that encode the table (mapped
    columns). Entries are row indices, column indices and values. A row has an entry 1 in the column
    of its category, and no entry if the category has no column.
    """
    # `labels` are the distinct categories of the batch, and `values` has the index of each row's.
    places = category_places(column, values.labels, table_map)[values.values]
    at = np.flatnonzero(~values.missing & (places >= 0))
    return at, places[at], np.ones(len(at))


def _word_entries(column: TableColumn, values: ColumnValues, table_map: TableMap) -> Entries:
    """Return the entries of the weighted words of each row's text.

    Entries are the row indices, column indices and values of a sparse matrix.
    """
    # Each distinct text (`labels`) is hashed and weighted once. `values` has the index of the text
    # of each row.
    settings = column.words(table_map)
    counts = count_hashed_words(settings, values.labels)
    weights = weight_word_counts(settings, counts, column.counts, column.present)

    at = np.flatnonzero(~values.missing)
    words = sp.coo_matrix(weights[values.values[at]])
    return at[words.row], column.places[words.col], words.data


def _number_entries(column: TableColumn, values: ColumnValues, table_map: TableMap) -> list[Entries]:
    """Return the entries of numbers, dates or times, with missing values filled.

    Entries are the row indices, column indices and values of a sparse matrix.
    """
    # The first mapped column has the number itself, in every row.
    missing = values.missing
    if table_map.impute == "mean":
        fill = column.mean
    else:
        fill = float(table_map.impute)
    every = np.arange(len(missing))
    filled = np.where(missing, fill, values.values)
    parts = [(every, np.full(len(every), column.places[0]), filled)]

    # The other mapped columns are pairs, the sine and cosine of each cycle of a date (year, week,
    # …). Values are years since 2000. `date` is in days since 1970. A year has _YEAR days, and
    # _EPOCH is the number of days from 1970 to 2000. A missing date has no cycles.
    at = np.flatnonzero(~missing)
    date = values.values[at] * _YEAR + _EPOCH
    for i, (_, days) in enumerate(_CYCLES.get(column.kind, ())):
        angle = 2.0 * np.pi * date / days
        sine, cosine = column.places[1 + 2 * i : 3 + 2 * i]
        parts.append((at, np.full(len(at), sine), np.sin(angle)))
        parts.append((at, np.full(len(at), cosine), np.cos(angle)))
    return parts


def category_places(column: TableColumn, categories: tuple[str, ...], table_map: TableMap) -> np.ndarray:
    """Return the index of the mapped column that encodes each category.

    Codes of rows are indices into the result (categories + 1,). An unknown category has the index
    of a column that hashed categories share, or −1 if there is none. The last entry is −1, for
    missing values, whose code −1 selects it.

    column: statistics of a table column.
    categories: categories of the rows to map.
    table_map: the map.
    """
    # Categories with a mapped column of their own are known. `hashed` is the index of the first
    # column of hashed categories, or −1.
    known = dict(zip(column.categories, column.places.tolist(), strict=True))
    places = []
    for category in categories:
        place = known.get(category, -1)
        if place < 0 and column.hashed >= 0:
            place = column.hashed + hashed_category_index(category, table_map)
        places.append(place)
    return np.array([*places, -1], dtype=np.int64)


def count_unseen(column: TableColumn, texts: tuple[str, ...], table_map: TableMap) -> np.ndarray:
    """Return the number of unknown categories or words in each text.

    The result (texts + 1,) has one more entry for missing values, which have code −1.

    column: statistics of a column of categories or texts.
    """
    if column.kind == "category":
        return category_places(column, texts, table_map) < 0
    # A hashed word is unknown if no learned text has a word with the same hash (its column).
    words = count_hashed_words(column.words(table_map), texts)
    unknown = words[:, column.counts == 0]
    return np.append(np.diff(unknown.indptr), 0)


def hashed_category_index(category: str, table_map: TableMap) -> int:
    """Return the index of the hashed column to which a category belongs.

    Categories without a column of their own share `table_map.n_hashed` hashed columns, numbered
    from 0. The hash of the category decides which one.
    """
    from sklearn.utils import murmurhash3_32

    return int(murmurhash3_32(category, positive=True) % table_map.n_hashed)


def _count_rows_with_words(values: ColumnValues, settings: Words) -> np.ndarray:
    """Return the number of a batch's rows with each hashed word (words,)."""
    # `labels` are the distinct texts, and `values` has the index of each row's text.
    rows_with_text = np.bincount(values.values[~values.missing], minlength=len(values.labels))
    has_word = count_hashed_words(settings, values.labels) != 0
    return (has_word.T @ rows_with_text).astype(np.int64)  # type: ignore[no-any-return]


def mapped_names_by_index(column: TableColumn, table_map: TableMap) -> dict[int, str]:
    """Return the names of the mapped columns that encode a table's column.

    Mapped columns are the columns of numbers that the map returns. The result is a dict from their
    indices to their names.
    """
    # A column that is not encoded has a name, but no places (so strict=False).
    # `hashed` and `missing` are −1 if there is no such mapped column.
    names = dict(zip(column.places.tolist(), _value_names(column), strict=False))
    if column.hashed >= 0:
        names |= {column.hashed + i: f"{column.name} #{i}" for i in range(table_map.n_hashed)}
    if column.missing >= 0:
        names[column.missing] = f"{column.name} missing"
    return names


def _value_names(column: TableColumn) -> list[str]:
    """Return the names of the mapped columns that encode a column's values."""
    name = column.name
    if column.kind == "category":
        return [f"{name}={category}" for category in column.categories]
    if column.kind == "text":
        return [f"{name} #{i}" for i in range(len(column.places))]
    # A date or time has the number itself, and sine and cosine of each cycle, such as "year".
    names = [name]
    for cycle, _ in _CYCLES.get(column.kind, ()):
        names += [f"{name} {cycle} sin", f"{name} {cycle} cos"]
    return names


def read_column(column: TableColumn, rows: pa.RecordBatch) -> ColumnValues:
    """Return a batch's values, converted to the kind of the column.

    All values are missing if the batch does not have the column. Raises SchemaMismatch if a value
    cannot be converted exactly.

    column: column with its kind.
    rows: the batch.
    """
    # Kinds of one family are read alike: date and time as "date", text and category as "text", all
    # other kinds as "number".
    family = family_of_kind(column.kind)
    values = find_column(rows, column.name)
    if values is None:
        values = missing_column(family, rows.num_rows)
    read = column_values(convert_column(column.name, values, family))
    if family == "date":
        # Convert days since 1970 to years since 2000.
        return ColumnValues("number", (read.values - _EPOCH) / _YEAR)
    return read


def merge_column_statistics(
    a: TableColumn, b: TableColumn, table_map: TableMap, width_so_far: int
) -> tuple[TableColumn, dict[int, int], int]:
    """Merge two states' statistics of one column of a table.

    Returns three values:

    - The merged statistics.
    - Dict from the index of each mapped column in b to its index after the merge. Indices in a do
      not change.
    - Number of mapped columns of the whole table after the merge of this column.

    Mapped columns, which encode the column, are added at the end if only b has them. Raises
    CannotMerge if a and b differ in kind or number of words.

    a, b: statistics of the column in the two states.
    table_map: the map.
    width_so_far: number of mapped columns of the whole encoded table before this merge.
    """
    if b.kind and not a.kind:
        a, width_so_far = start_column(a, b.kind, len(b.places), width_so_far)
    elif b.kind and a.kind != b.kind:
        raise CannotMerge(f"column {a.name} is {a.kind} in one state and {b.kind} in the other; give its kind (as_).")
    if a.kind == b.kind == "text" and len(a.places) != len(b.places):
        raise CannotMerge(
            f"column {a.name} is hashed to {len(a.places)} words in one state and to {len(b.places)} in the other; give the "
            "number of them (n_words)."
        )

    # Give the column of `b` that marks missing values the place of the same column of `a`.
    # Do the same for the columns of hashed categories.
    new_index: dict[int, int] = {}
    if b.missing >= 0:
        if a.missing < 0:
            a = a._replace(missing=width_so_far)
            width_so_far += 1
        new_index[b.missing] = a.missing
    if b.hashed >= 0:
        if a.hashed < 0:
            a = a._replace(hashed=width_so_far)
            width_so_far += table_map.n_hashed
        new_index |= {b.hashed + i: a.hashed + i for i in range(table_map.n_hashed)}

    # Match columns of mapped rows by category for columns of categories, otherwise by order.
    if a.kind == "category":
        a, places, width_so_far = _merge_categories(a, b, width_so_far)
        new_index |= places
    elif b.kind:
        new_index |= dict(zip(b.places.tolist(), a.places.tolist(), strict=True))
        a = a._replace(counts=a.counts + b.counts)
    a = a._replace(present=a.present + b.present, total=a.total + b.total)
    return a, new_index, width_so_far


def _merge_categories(a: TableColumn, b: TableColumn, width_so_far: int) -> tuple[TableColumn, dict[int, int], int]:
    """Merge the categories of a table's column in two states, `a` and `b`.

    Only categories with a mapped column of their own, a column of numbers that the map returns, are
    merged. Categories that only `b` has get new mapped columns. Returns three values:

    - Column `a` with the categories and counts of both.
    - Dict from the index of each mapped column in `b` to its index after the merge.
    - Number of mapped columns of the whole table after the merge.

    width_so_far: number of mapped columns of the whole table so far.
    """
    # Categories that only `b` has get new mapped columns, after all others.
    known = set(a.categories)
    new = [category for category in b.categories if category not in known]
    width = width_so_far + len(new)
    categories = (*a.categories, *new)
    places = np.append(a.places, np.arange(width_so_far, width))

    # Add the counts of `b` to the counts of the same categories.
    index_of = {category: i for i, category in enumerate(categories)}
    indices_of_b = [index_of[category] for category in b.categories]
    counts = np.append(a.counts, np.zeros(len(new), dtype=np.int64))
    np.add.at(counts, indices_of_b, b.counts)

    new_index = dict(zip(b.places.tolist(), places[indices_of_b].tolist(), strict=True))
    return a._replace(categories=categories, counts=counts, places=places), new_index, width


def _update_category_statistics(
    column: TableColumn, values: ColumnValues, table_map: TableMap, width_so_far: int, sign: int
) -> tuple[TableColumn, int]:
    """Count a batch's values of a categorical column.

    Each new category gets a mapped column of its own in the mapped rows. If there are more new
    categories than allowed, only the most frequent ones get a column of their own. The others, and
    all new categories of later batches, are hashed.

    Returns the updated statistics and the new number of columns of the mapped rows. Raises
    CannotUnlearn if more values would be removed than were learned.

    values: the batch's values.
    table_map: the map.
    width_so_far: number of columns of the mapped rows before the batch, for the whole table.
    sign: 1 to add the values, −1 to remove them.
    """
    # Count the batch's rows of each category. The most frequent new category comes first.
    present = values.values[~values.missing]
    rows = np.bincount(present, minlength=len(values.labels)).tolist()
    row_counts = {label: n for label, n in zip(values.labels, rows, strict=True) if n}
    known = set(column.categories)
    new = [label for label in row_counts if label not in known]
    new.sort(key=row_counts.__getitem__, reverse=True)

    # `own` has the new categories that get their own column. The others are hashed.
    own: list[str] = []
    if sign > 0 and column.hashed < 0 and column.name not in table_map.hash:
        least = FREQUENT * len(values.values)
        own = _one_hot_categories(column, new, row_counts, least, table_map)
    if len(own) < len(new) and column.hashed < 0:
        if sign < 0:
            raise CannotUnlearn(f"column {column.name} never had the value {new[0]!r}; it cannot be taken out.")
        column = column._replace(hashed=width_so_far)
        width_so_far += table_map.n_hashed

    # Update the counts of the categories that have their own column.
    names = (*column.categories, *own)
    counts = np.append(column.counts, np.zeros(len(own), dtype=np.int64))
    changes = [row_counts.get(name, 0) for name in names]
    counts = counts + sign * np.array(changes, dtype=np.int64)
    if sign < 0 and counts.min(initial=0) < 0:
        at = int(counts.argmin())
        raise CannotUnlearn(f"column {column.name} has fewer rows of {names[at]!r} than would be taken out.")
    width = width_so_far + len(own)
    places = np.append(column.places, np.arange(width_so_far, width))
    return column._replace(categories=names, counts=counts, places=places), width


def _one_hot_categories(
    column: TableColumn, new: list[str], row_counts: dict[str, int], least: float, table_map: TableMap
) -> list[str]:
    """Return the new categories that get a mapped column of their own.

    Mapped columns are the columns of numbers that the map returns. A table's column has a limited
    number of them, for example `max_categories` of the map. All other categories are hashed.

    new: new categories of a batch, the most frequent first.
    row_counts: number of the batch's rows with each category.
    least: number of rows that a category needs to get a column, if not all new ones can get one.
    """
    most = table_map.max_categories
    if column.name in table_map.one_hot:
        most = MOST_ONE_HOT
    room = max(0, most - len(column.categories))

    # Long categories are hashed, because the state does not store long names.
    short = [label for label in new if len(label) <= MAX_NAME]
    if len(short) <= room:
        return short
    # There is not room for all short ones. Take the most frequent ones, unless these are rare, too.
    return [label for label in short[:room] if row_counts[label] >= least]
