"""Feature maps `table` for mixed columns and `text` for texts.

The kind of a column (number, date, category, text and so on) is inferred from the first batch that
has a value in this column. The kind does not change afterwards. `describe` reports the kinds
before anything is learned.

The maps have running statistics of the columns (categories, means, document frequencies). A batch
is first added to the statistics and then mapped. A published projection contains the statistics at
the time of publication.

- A new category in a row to project is encoded as zeros, and is counted as unseen.
- If a batch does not have a column, all values of this column are missing.
- If the first batch did not have a column, values of this column are skipped and counted as
  unseen.
- A value of another type is converted if the conversion is exact, as from "3" to 3. If it is not
  exact, an error is raised.
- States can be merged. Columns are matched by name, and categories by value. If one state has
  hashed a category, the merged state hashes it, too.
- Rows can be unlearned, with two exceptions. The first is rows with missing values that were
  filled with a mean. The second is texts that were weighted by inverse document frequency. The
  statistics at the time of learning are not stored, so unlearning such rows raises an error. With
  a constant `impute` and idf=False, all rows can be unlearned.

Mapping a row costs O(columns), and O(words) for texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from stream_dr.batch.table import (
    column_values,
    columns_by_name,
    find_column,
    refuse_table,
    table_kinds,
)
from stream_dr.checks import FEATURE_COUNT_LIMIT, ROW_COUNT_LIMIT, check_within, field_error
from stream_dr.errors import CannotMerge, InvalidParameter, InvalidRows
from stream_dr.feature_maps import table_columns
from stream_dr.feature_maps.feature_map import FeatureMap, is_finite_number
from stream_dr.feature_maps.table_columns import MOST_ONE_HOT, SIZES, WORDS_IN_ALL, TableColumn, TableMap, Words
from stream_dr.feature_maps.widths import AS, hashed_columns_per_text, kind_and_reason

ENTRIES_AT_ONCE = 1 << 19
"""Largest number of entries of mapped rows in memory at a time."""


class TableState(NamedTuple):
    """Running statistics of a table's columns.

    Attributes
    ----------
    rows : int
        Number of rows learned.
    width : int
        Number of columns of mapped rows so far.
    columns : tuple of TableColumn
        Statistics of each column, in order of appearance.
    mixed : bool
        True if two states were merged that had encoded a category in different ways, one hashed
        and the other one-hot.
    """

    rows: int = 0
    width: int = 0
    columns: tuple[TableColumn, ...] = ()
    mixed: bool = False

    def check(self, table_map: TableMap) -> None:
        """Raise DamagedFile unless the statistics are valid.

        The statistics must be consistent and fit the map. Each of the `width` columns of mapped
        rows must encode exactly one column of the table.

        table_map: the map.
        """
        check_within(self, 0, ROW_COUNT_LIMIT, "rows")
        check_within(self, 0, FEATURE_COUNT_LIMIT, "width")
        names = self.names
        repeated = len(set(names)) < len(names)
        if repeated or (isinstance(table_map, Text) and len(names) != 1):
            actual = f"{len(names)} columns"
            raise field_error(self, "columns", actual, "of distinct names, and one of a map of texts")

        # The column of a map of texts has the kind "text", or "" before its first value.
        kinds = None
        if isinstance(table_map, Text):
            kinds = ("", "text")

        # The indices of all mapped columns together must be 0 to width − 1, each once.
        indices: list[int] = []
        for column in self.columns:
            column.check(table_map, kinds)
            indices += column.mapped_column_indices(table_map).tolist()
        if len(indices) != self.width or sorted(indices) != list(range(self.width)):
            raise field_error(self, "width", f"{self.width}", f"the {len(indices)} columns that are made, each once")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class Table(TableMap):
    """Map of rows with mixed columns to numbers.

    Attributes
    ----------
    max_categories : int
        Largest number of one-hot categories of a column. A one-hot category has its own column of
        0 and 1.
    n_hashed : int
        Number of columns to which all further categories of a column are hashed.
    n_words : int or None
        Number of columns to which the words of a text column are hashed. None means that all text
        columns of the table share 1,024 columns equally.
    one_hot : sequence of str
        Names of columns that may have up to 1,000 one-hot categories.
    hash : sequence of str
        Names of columns whose categories are all hashed.
    drop : sequence of str
        Names of columns to skip.
    keep : sequence of str
        Names of columns to encode even if they look like ids or constants.
    as_ : dict of str to str, or None
        Kinds of columns by name, "number", "date", "time", "category" or "text". The kinds of
        other columns are inferred.
    impute : "mean" or float
        Replacement of missing numbers.
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

    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return the largest number of columns of mapped rows.

        The number is an upper bound, whatever kinds the table's columns have.

        n_input_columns: number of columns of the table.
        """
        # A column of times has 7 mapped columns: the number, and sine and cosine of 3 cycles.
        most_of_column = max(7, self.max_categories + self.n_hashed, self.n_words or 0)
        # A column in `one_hot` may have more categories than others.
        if self.one_hot:
            most_of_column = max(most_of_column, MOST_ONE_HOT)
        # Each column may have one more, which marks missing values.
        total = n_input_columns * (most_of_column + 1)
        # Without n_words, all columns of texts together share WORDS_IN_ALL hashed words.
        if n_input_columns and not self.n_words:
            total += WORDS_IN_ALL
        return total

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        for name, least in (("max_categories", 0), ("n_hashed", 1), ("n_words", 1)):
            value = getattr(self, name)
            if name == "n_words" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 2**20:
                raise InvalidParameter(f"{name}={value!r} of table; it must be an integer from {least} to 1,048,576.")
        for name in ("one_hot", "hash", "drop", "keep"):
            names = getattr(self, name)
            if not isinstance(names, list | tuple) or not all(isinstance(v, str) for v in names):
                raise InvalidParameter(f"{name}={names!r} of table; it must be a list of columns' names.")

        kinds = self.as_ or {}
        if not isinstance(kinds, dict) or not all(kind in AS for kind in kinds.values()):
            raise InvalidParameter(
                f"as_={kinds!r} of table; it must be a dict of columns' names to one of {', '.join(AS)}."
            )
        if self.impute != "mean" and not is_finite_number(self.impute):
            raise InvalidParameter(f"impute={self.impute!r} of table; it must be 'mean' or a finite number.")

    @property
    def words(self) -> Words:
        """Settings by which texts are encoded as hashed words."""
        return Words(self.n_words or 0)

    def column_names(self, rows: pa.RecordBatch) -> Sequence[str]:
        """Return the names of all columns of a table.

        rows: rows of the table.
        """
        names: list[str] = rows.schema.names
        return names

    def declared_kind(self, name: str) -> str | None:
        """Return the kind that the user has declared for a column, or None.

        The kind of a column in `drop` is "dropped". Columns in `one_hot` and `hash` are categories,
        unless `as_` has another kind.

        name: name of the column.
        """
        if name in self.drop:
            return "dropped"
        if self.as_ and name in self.as_:
            return self.as_[name]
        if name in self.one_hot or name in self.hash:
            return "category"
        return None

    def bytes(self, n_input_columns: int) -> int:
        """Return an estimate of the statistics' memory in bytes.

        n_input_columns: number of columns of the table.
        """
        return 64 * self.max_mapped_columns(n_input_columns)


@dataclass(frozen=True)
class Text(Words, TableMap):
    """Map of texts to hashed words or n-grams.

    The attributes except `idf` and `column` are parameters of scikit-learn's HashingVectorizer or
    TfidfVectorizer, under the names that scikit-learn uses.

    Attributes
    ----------
    idf : bool
        True if words are weighted by inverse document frequency, as in TfidfVectorizer.
    column : str or None
        Name of the column of texts. None means the column "text". If there is no such column, None
        means the only column of strings.
    """

    n_features: int = 65536
    idf: bool = True
    column: str | None = None

    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return the number of columns of mapped rows.

        Words are hashed to `n_features` columns. One more column marks missing texts.

        n_input_columns: not used, because the rows have only one column, of texts.
        """
        return self.n_features + 1

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        if not isinstance(self.ngram_range, list | tuple):
            raise InvalidParameter(
                f"ngram_range={self.ngram_range!r} of text; it must be two integers, 1 ≤ least ≤ most."
            )
        self.words.check()
        if self.column is not None and not isinstance(self.column, str):
            raise InvalidParameter(f"column={self.column!r} of text; it must be a column's name, or None.")

    @property
    def words(self) -> Words:
        """Settings by which texts are encoded as hashed words."""
        settings = dict(vars(self))
        del settings["column"]
        settings["ngram_range"] = tuple(self.ngram_range)
        return Words(**settings)

    def column_names(self, rows: pa.RecordBatch) -> Sequence[str]:
        """Return the name of the column of texts.

        Raises InvalidRows if the column of texts cannot be found.

        rows: rows of the table that has the column.
        """
        # Unless the user names the column, it is the column "text", or the only column of strings.
        # Strings have the kind "text" or, if the column's Arrow type says so, "category".
        texts = [name for name, kind in table_kinds(rows).items() if kind in ("text", "category")]
        name = self.column
        if not name and "text" in texts:
            name = "text"
        elif not name and len(texts) == 1:
            name = texts[0]
        if name not in rows.schema.names:
            names = ", ".join(rows.schema.names[:5])
            raise InvalidRows(f"the rows have no one column of texts ({names} …); name it: text(column=…).")
        return (str(name),)

    def declared_kind(self, name: str) -> str:
        """Return "text", because the map `text` reads its one column as texts."""
        return "text"

    def bytes(self, n_input_columns: int) -> int:
        """Return an estimate of the statistics' memory in bytes.

        n_input_columns: not used.
        """
        return 16 * self.n_features


def update_statistics(table_map: TableMap, state: TableState | None, rows: pa.RecordBatch, sign: int = 1) -> TableState:
    """Return statistics with a batch added or removed.

    For a column whose first value is in this batch, the kind (number, category, …) is inferred.
    Raises SchemaMismatch, InvalidRows or CannotUnlearn.

    table_map: the map.
    state: statistics so far, or None before the first batch.
    rows: the batch.
    sign: 1 to add the batch, −1 to remove it.
    """
    if state is None:
        names = table_map.column_names(rows)
        state = TableState(columns=tuple(map(TableColumn, names)))

    # Infer all kinds first, because the columns of texts share a number of hashed words.
    kinds = [_kind_after_batch(column, rows, table_map) for column in state.columns]
    n_words = hashed_columns_per_text(table_map, kinds)

    # A column that has just got its kind first gets its mapped columns.
    # `width` is the number of mapped columns so far.
    width = state.width
    columns = []
    for column, kind in zip(state.columns, kinds, strict=True):
        if kind != column.kind:
            column, width = table_columns.start_column(column, kind, n_words, width)
        # Dropped and constant columns, and ids, are not encoded.
        if column.is_encoded:
            converted = table_columns.read_column(column, rows)
            column, width = table_columns.update_column_statistics(column, converted, table_map, width, sign)
        columns.append(column)
    n_rows = state.rows + sign * rows.num_rows
    return TableState(n_rows, width, tuple(columns), state.mixed)


def _kind_after_batch(column: TableColumn, rows: pa.RecordBatch, table_map: TableMap) -> str:
    """Return the kind of a column, inferred from a batch if not yet known."""
    if column.kind:
        return column.kind
    values = find_column(rows, column.name)
    if values is None:
        return ""
    kind, _ = kind_and_reason(column.name, values, table_map)
    return kind


def mapped_columns_by_kind(state: TableState, table_map: TableMap) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the columns of mapped rows, grouped by what they encode.

    Returns three values:

    - Columns that encode numbers, dates and times.
    - Columns that encode categories.
    - Columns that mark missing values.

    Columns that encode words are in none of the arrays (int64).

    state: statistics of the table.
    table_map: the map.
    """
    # `places` of a column has the indices of the mapped columns that encode its values.
    # `missing` is the index of the mapped column that marks missing values, −1 if there is none.
    # SIZES has the kinds number, date and time.
    # Each list starts with an empty array, because np.concatenate needs at least one.
    none = np.zeros(0, dtype=np.int64)
    numbers = [none]
    categories = [none]
    gaps = []
    for column in state.columns:
        if column.kind in SIZES:
            numbers.append(column.places)
        elif column.kind == "category":
            categories.append(column.mapped_column_indices(table_map))
        if column.missing >= 0:
            gaps.append(column.missing)

    # The columns of categories include the columns that mark their missing values.
    marks = np.array(gaps, dtype=np.int64)
    return np.concatenate(numbers), np.setdiff1d(np.concatenate(categories), marks), marks


def clear_counts_keep_columns(state: TableState) -> TableState:
    """Return the statistics with all counts set to 0, as if no row had been learned.

    The mapped columns of each category and word stay, so rows that are learned again are mapped to
    the same columns as before.
    """
    columns = []
    for column in state.columns:
        counts = np.zeros_like(column.counts)
        columns.append(column._replace(present=0, total=0.0, counts=counts))
    return state._replace(rows=0, columns=tuple(columns))


def check_map_can_learn(feature_map: FeatureMap | None, rows: pa.RecordBatch) -> None:
    """Raise an error if the map cannot learn these rows.

    - Other maps than those below, and estimators without a map, cannot learn rows of a table.
    - The map `text` must find the column of texts.
    - The map `table` must be able to convert the values of columns whose kind is declared.

    Raises SchemaMismatch or InvalidRows.

    feature_map: the feature map, or None if there is no feature map.
    rows: rows of a table, whose columns may have any types.
    """
    if not isinstance(feature_map, Table | Text):
        refuse_table(rows)
    elif isinstance(feature_map, Text):
        # It raises an error if there is no column of texts. The name is not needed.
        feature_map.column_names(rows)
    else:
        # Converting raises the error. The converted values are not needed.
        for name, kind in (feature_map.as_ or {}).items():
            table_columns.read_column(TableColumn(name, kind), rows)


def is_category(feature_map: FeatureMap | None, state: TableState | None, name: str, values: pa.Array) -> bool:
    """Return True if the feature map takes a table's column as categories.

    The kind of the column is the learned one. If no value was learned so far, the kind is declared,
    or inferred from these values.
    """
    if not isinstance(feature_map, Table):
        return False
    if state:
        for column in state.columns:
            if column.name == name and column.kind:
                return column.kind == "category"
    kind, _ = kind_and_reason(name, values, feature_map)
    return kind == "category"


def slices_within_memory_limit(table_map: TableMap, state: TableState, rows: pa.RecordBatch) -> list[slice]:
    """Return slices of rows that limit the memory of mapping.

    The rows of one slice are mapped at a time. A slice has fewer rows if the table has many
    columns or long texts, because each word takes memory.
    """
    # A slice has about ENTRIES_AT_ONCE nonzero mapped values, and from 1 to 4,096 rows.
    # A column without texts gives at most 7 nonzero values a row (a time gives 7).
    entries = 7 * len(state.columns) + sum(_max_words(column, table_map) for column in rows.columns)
    step = ENTRIES_AT_ONCE // max(1, entries)
    step = max(1, min(4096, step))
    return [slice(start, start + step) for start in range(0, rows.num_rows, step)]


def _max_words(column: pa.Array, table_map: TableMap) -> int:
    """Return an upper bound on the hashed words of a value, 0 if it is no text."""
    # Texts are stored as indices into a dictionary of the distinct texts.
    if not isinstance(column, pa.DictionaryArray):
        return 0
    longest = max(map(len, column.dictionary.to_pylist()), default=0)
    # A word has at least one letter and one space. If the map does not set the number of hashed
    # words (0), there are at most WORDS_IN_ALL.
    return min(table_map.words.n_features or WORDS_IN_ALL, longest // 2)


def map_table_rows(table_map: TableMap, state: TableState, rows: pa.RecordBatch) -> sp.csr_matrix:
    """Encode the rows of a table as numbers, a CSR matrix (rows, state.width) of float64.

    table_map: feature map of the table.
    state: statistics of the learned rows, by which the values are encoded. They are not changed.
    rows: the rows to encode.

    Raises SchemaMismatch.
    """
    parts = []
    for column in state.columns:
        if column.is_encoded:
            values = table_columns.read_column(column, rows)
            parts.append(table_columns.encode_values_as_entries(column, values, table_map))
    shape = (rows.num_rows, state.width)
    if not parts:
        return sp.csr_matrix(shape)

    # Each part has the row indices, the mapped columns and the values of a column's entries.
    row_indices, columns, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
    X = sp.csr_matrix((numbers, (row_indices, columns)), shape=shape)
    X.eliminate_zeros()
    X.sort_indices()
    return X


def count_unseen_by_row(table_map: TableMap, state: TableState, rows: pa.RecordBatch) -> np.ndarray:
    """Count the values of each row that were never learned.

    The result is (rows,). Categories and words count if no learned row has them. All values of a
    column count if the first batch did not have the column.
    """
    known = {c.name: c for c in state.columns}
    counts = np.zeros(rows.num_rows, dtype=np.int64)
    for name, values in columns_by_name(rows).items():
        if name in known:
            counts += _count_unseen_in_column(known[name], rows, table_map)
        elif not isinstance(table_map, Text):
            # The map Text ignores all columns but one.
            counts += ~column_values(values).missing
    return counts


def _count_unseen_in_column(column: TableColumn, rows: pa.RecordBatch, table_map: TableMap) -> np.ndarray | int:
    """Count the unseen words or categories of each row in a column, 0 if it has none."""
    if column.kind not in ("category", "text"):
        return 0
    # `labels` are the distinct texts, and `values` has the index of each row's text.
    texts = table_columns.read_column(column, rows)
    unseen_by_text = table_columns.count_unseen(column, texts.labels, table_map)
    return unseen_by_text[texts.values] * ~texts.missing  # type: ignore[no-any-return]


def mapped_column_names(table_map: TableMap, state: TableState) -> tuple[str, ...]:
    """Return the names of the columns of mapped rows.

    There are `state.width` names. Examples are `age`, `age missing`, `sex=female` and `cabin #5`.
    A number is added to a name that an earlier column has, as in `sex=female (2)`.
    """
    names: dict[int, str] = {}
    for column in state.columns:
        if column.is_encoded:
            names |= table_columns.mapped_names_by_index(column, table_map)

    # Number the names that an earlier column has.
    unique: dict[str, None] = {}
    for i in range(state.width):
        name = names[i]
        number = 2
        while name in unique:
            name = f"{names[i]} ({number})"
            number += 1
        unique[name] = None
    return tuple(unique)


def maps_without_statistics(table_map: TableMap, state: TableState, rows: pa.RecordBatch) -> bool:
    """Return True if mapping the rows uses no learned statistics.

    The mapping of `rows` depends on the statistics if a missing value is filled with a mean or a
    word is weighted by inverse document frequency. False is also returned if two merged states had
    encoded a category in different ways.
    """
    if state.mixed:
        return False
    for column in state.columns:
        # A column that the batch lacks counts as if it used statistics.
        values = find_column(rows, column.name)
        has_text = values is None or values.null_count < len(values)
        has_gap = values is None or values.null_count > 0
        if column.kind == "text" and table_map.words.idf and has_text:
            return False
        # SIZES has the kinds of numbers and dates, whose missing values are filled.
        if column.kind in SIZES and table_map.impute == "mean" and has_gap:
            return False
    return True


def can_unlearn_exactly(feature_map: FeatureMap | None, state: TableState | None) -> bool:
    """Return True if rows can be unlearned exactly.

    Exactly means that the state is as if the rows had never been learned. It is not possible if
    the mapping of a row depended on other rows, after one of these events:

    * A missing value was filled with a mean.
    * Words were weighted by inverse document frequency.
    * Two states were merged that had encoded a category in different ways.

    feature_map: the feature map, or None if there is no feature map.
    state: statistics of the learned table, if any.
    """
    if not isinstance(feature_map, TableMap) or state is None:
        return True
    if state.mixed:
        return False
    # `present` counts the rows with a value in the column. SIZES has the kinds of numbers and
    # dates, whose missing values are filled.
    for column in state.columns:
        has_gaps = column.present < state.rows
        if feature_map.impute == "mean" and column.kind in SIZES and has_gaps:
            return False
        if column.kind == "text" and column.present and feature_map.words.idf:
            return False
    return True


def merge_table_states(table_map: TableMap, a: TableState, b: TableState) -> tuple[TableState, np.ndarray]:
    """Merge the statistics of two tables.

    Returns two values:

    - The merged statistics.
    - Array (b.width,). The map encodes the columns of a table as mapped columns, columns of
      numbers. Entry j is the index of b's mapped column j after the merge. The indices of a's
      mapped columns do not change.

    Raises CannotMerge if the tables have different columns.

    table_map: the map.
    a, b: statistics of the two tables.
    """
    width = a.width
    columns_of_b = {column.name: column for column in b.columns}
    if set(columns_of_b) != set(a.names):
        # Name the first column, in alphabetical order, that only one of the tables has.
        extra = min(set(columns_of_b) ^ set(a.names))
        raise CannotMerge(f"only one of the states has a column {extra!r}: learn both with the same columns.")

    # `mixed` is True if a category may be hashed in one of the tables, but have a mapped column of
    # its own in the other.
    new_index = np.zeros(b.width, dtype=np.int64)
    columns = []
    mixed = a.mixed or b.mixed
    for column in a.columns:
        other = columns_of_b[column.name]
        categories_differ = column.kind == "category" and set(column.categories) != set(other.categories)
        some_hashed = column.hashed >= 0 or other.hashed >= 0
        mixed |= categories_differ and some_hashed
        merged_column, new_by_old, width = table_columns.merge_column_statistics(column, other, table_map, width)
        new_index[list(new_by_old)] = list(new_by_old.values())
        columns.append(merged_column)
    merged = TableState(a.rows + b.rows, width, tuple(columns), mixed)
    return merged, new_index
