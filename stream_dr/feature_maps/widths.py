"""Kinds of a table's columns, and the number of mapped columns they become.

Encoding turns each column of a table into one or more mapped columns. An upper bound of their
number costs O(columns).

The kind of a column is inferred from its first values. The kinds are number, date, time, category
and text. A column that looks like an id or is constant is not encoded. At least 20 values are
needed to recognise ids and constants. A column of distinct integers whose name is usual for ids is
recognised with fewer values.
"""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from stream_dr.batch.table import ColumnValues, column_values
from stream_dr.checks import MAX_EXACT_WIDTH
from stream_dr.errors import TooManyFeatures
from stream_dr.feature_maps.table_columns import MOST_ONE_HOT, SIZES, WORDS_IN_ALL, TableColumn, TableMap

AS = ("number", "date", "time", "category", "text")
"""Kinds that the user can declare for a column."""

ENOUGH = 20
"""Smallest number of values by which a column is recognised as an id or a constant."""

MOST_WORDS = 3
"""Largest number of words for missing values that are looked for in a column of numbers."""

LEAST_NUMBERS = 0.5
"""Smallest share of numbers in a column with words for missing values."""

WORDS = 3.0
"""Smallest mean number of words with which a column of strings is a column of texts.

If the strings have fewer words, or if at least half of the strings are repetitions, the column is
a column of categories.
"""

_ID = re.compile(r"((.*[_\-. ])?(id|uuid|guid|key|rowid|index|pk))|(unnamed: ?\d+)", re.IGNORECASE)
"""Column names that are usual for ids."""

_CAMEL = re.compile(r".*[a-z](Id|ID|Key)")
"""End of a column name in camel case that is usual for ids."""


def kind_and_reason(name: str, column: pa.Array, table_map: TableMap) -> tuple[str, str]:
    """Return the kind of a column, and the reason in words.

    If the user has declared a kind, this kind is returned. Without a declared kind, the kind is
    inferred from the values. It is "number", "category", "text", "date", "time", "dropped", "id" or
    "constant", or "" while the column has no value. Cost: O(rows), and for texts O(distinct texts).

    name: name of the column.
    column: first values of the column.
    table_map: map with the kinds that the user declares.
    """
    declared = table_map.declared_kind(name)
    if declared is not None:
        why = "declared"
        if declared == "dropped":
            why = "named in drop"
        return declared, why

    first_values = column_values(column)
    if first_values.kind == "category":
        return "category", "a category by its type"

    # Recognise ids and constants, unless the user wants to keep the column.
    present = first_values.values[~first_values.missing]
    if not len(present):
        return "", "no value so far"
    distinct = len(np.unique(present))
    if name not in table_map.keep:
        has_all = len(present) == len(first_values.values)
        if distinct == 1 and has_all and len(present) >= ENOUGH:
            return "constant", "one value in every row"
        if distinct == len(present) and _is_distinct_id(name, first_values, distinct):
            return "id", "another value in every row"

    # Values of other types than strings keep their kind. `values` says in words what they are.
    if first_values.kind != "text":
        kind = "number"
        if first_values.kind in SIZES:
            kind = first_values.kind
        values = {"boolean": "true or false", "integer": "whole numbers", "date": "dates", "time": "times"}
        return kind, values.get(first_values.kind, "numbers")

    # Strings are texts if they have many words and few repetitions.
    words = _mean_word_count(first_values)
    if words >= WORDS and distinct > len(present) / 2:
        return "text", f"{words:.0f} words on average, mostly different"
    return "category", _note_on_number_words(first_values) or f"{distinct} distinct"


def _note_on_number_words(texts: ColumnValues) -> str:
    """Return a note if a column of texts is mostly numbers.

    The other texts, at most `MOST_WORDS`, may be words for missing values, such as "?". The note
    proposes to declare them with --missing. It is "" for any other column.
    """
    # `labels` are the distinct texts. Some must be numbers, and a few must be other words.
    words = [text for text in texts.labels if not _is_number(text)]
    if not 0 < len(words) <= MOST_WORDS or len(words) == len(texts.labels):
        return ""

    # `present` has the index in `labels` of each row's text. A note is, for example:
    # "95 % numbers and the word '?': --missing '?'".
    is_word = np.array([text in words for text in texts.labels])
    present = texts.values[~texts.missing]
    share = 1.0 - float(is_word[present].mean())
    if share < LEAST_NUMBERS:
        return ""
    listed = " and ".join(map(repr, words))
    options = " ".join(f"--missing {word!r}" for word in words)
    return f"{100 * share:.0f} % numbers and the word {listed}: {options}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def likely_id_column(X: pa.RecordBatch | np.ndarray, names: Sequence[str]) -> str | None:
    """Return the first column that looks like an id.

    The result is the column's name, or None if no column looks like an id. An id is a number or
    name that identifies the subject of a row.

    X: a table or an array (rows, features).
    names: names of the columns.
    """
    if isinstance(X, np.ndarray):
        columns = [ColumnValues("number", values) for values in X.T]
    else:
        columns = [column_values(column) for column in X.columns]
    for name, column in zip(names, columns, strict=True):
        if _looks_like_id(name, column):
            return name
    return None


def _looks_like_id(name: str, column: ColumnValues) -> bool:
    """Return True if a column is probably an id.

    An id identifies the subject of a row. The column must not have a missing value. In addition,
    one of two conditions must hold:

    - The column's name is usual for ids, the values are whole numbers or strings, and the number
      of distinct values is more than a tenth of the number of rows.
    - All values differ, and `_is_distinct_id` returns True: there are many, and each is one word.
    """
    if column.missing.any() or column.kind not in ("text", "integer", "number"):
        return False
    values = column.values
    distinct = len(np.unique(values))
    if not _has_id_name(name):
        return distinct == len(values) and _is_distinct_id(name, column, distinct)

    # The values of texts are indices, which are whole numbers, so only numbers are tested for
    # fractions. A column with one distinct value is constant, so it is no id.
    has_fraction = column.kind != "text" and not np.all(values == np.floor(values))
    return not has_fraction and distinct > max(1, len(values) / 10)


def _has_id_name(name: str) -> bool:
    """Return True if a column name is usual for ids."""
    return bool(_ID.fullmatch(name) or _CAMEL.fullmatch(name))


def _is_distinct_id(name: str, column: ColumnValues, n_distinct: int) -> bool:
    """Return True if a column whose values all differ has ids, by name and values."""
    # n_distinct: number of different values.
    named = _has_id_name(name)
    # Strings are ids if they are many, and single words or in a column named like an id.
    if column.kind == "text":
        return n_distinct >= ENOUGH and (named or _mean_word_count(column) < 2.0)
    # Whole numbers are ids if the column is named like an id, and there are at least two.
    return column.kind == "integer" and named and n_distinct > 1


def _mean_word_count(column: ColumnValues) -> float:
    """Return the mean word count of a column's distinct texts."""
    n_words = sum(len(text.split()) for text in column.labels)
    return n_words / len(column.labels)


def hashed_columns_per_text(table_map: TableMap, kinds: Iterable[str]) -> int:
    """Return the number of hashed columns of a text column.

    The number in the map's settings is returned. If the settings have no number, the text columns
    share 1,024 columns equally.

    table_map: the map.
    kinds: kinds of the table's columns.
    """
    texts = list(kinds).count("text")
    return table_map.words.n_features or max(1, WORDS_IN_ALL // max(1, texts))


def max_table_width(table_map: TableMap, columns: Sequence[TableColumn]) -> int:
    """Return the largest possible width of encoded rows.

    A feature map encodes each column of the table as one or several mapped columns.

    table_map: the map.
    columns: statistics of the table's columns.
    """
    return sum(_max_mapped_columns_learned(table_map, columns).values())


def _max_mapped_columns_learned(table_map: TableMap, columns: Sequence[TableColumn]) -> dict[str, int]:
    """Return how many mapped columns each column can have at most, by name."""
    most = {}
    for column in columns:
        if column.kind == "text":
            most[column.name] = len(column.places) + 1
        else:
            most[column.name] = _max_kind_width(column.name, column.kind, table_map)
    return most


def check_max_encoded_columns(table_map: TableMap, kinds: dict[str, str]) -> None:
    """Raise TooManyFeatures if the map may encode a table in too many columns.

    At most MAX_EXACT_WIDTH columns are allowed, because the whole scatter matrix is stored.

    kinds: kind of each column of the table by name, "" for a column without a value so far.
    """
    total = max_width_of_kinds(table_map, kinds)
    if total > MAX_EXACT_WIDTH:
        message = _table_too_wide_message(total, _max_widths(table_map, kinds))
        raise TooManyFeatures(f'{message}, or take scatter="diagonal".', needed=total, limit=MAX_EXACT_WIDTH)


def diagonal_only_reason(table_map: TableMap, columns: Sequence[TableColumn]) -> str:
    """Return why a model stores only the diagonal of the scatter matrix.

    The reason is that the map may encode the table in more than MAX_EXACT_WIDTH columns. The result
    is "" if it does not, so that the whole matrix is stored.

    columns: the columns of the table.
    """
    most = _max_mapped_columns_learned(table_map, columns)
    total = sum(most.values())
    if total <= MAX_EXACT_WIDTH:
        return ""
    return f"{_table_too_wide_message(total, most)}, else only its diagonal is stored."


def _table_too_wide_message(max_width: int, max_by_column: dict[str, int]) -> str:
    """Return the message that a table may need too many mapped columns."""
    # max_width: largest possible number of mapped columns of the whole table.
    # max_by_column: largest possible number for each column of the table, by name.
    # Name the column of the table with the most mapped columns.
    name = max(max_by_column, key=max_by_column.__getitem__)
    return (
        f"up to {max_width} columns may be made of this table's {len(max_by_column)} (of {name} {max_by_column[name]}), and "
        f"exact scatter is kept of up to {MAX_EXACT_WIDTH}. Lower max_categories, n_hashed or n_words of the map"
    )


def max_width_of_kinds(table_map: TableMap, kinds: dict[str, str]) -> int:
    """Return the largest possible number of mapped columns that encode a table.

    The number follows from the kinds that are known so far. Rows may need more mapped columns if
    a column without a value so far turns out to have texts.

    kinds: kind of each column of the table by name, "" for a column without a value so far.
    """
    width = sum(_max_widths(table_map, kinds).values())
    if table_map.words.n_features:
        # Each column of texts has its own hashed words, which are in the sum.
        return width

    # All columns of texts share WORDS_IN_ALL hashed words.
    has_text = any((table_map.declared_kind(name) or kind) == "text" for name, kind in kinds.items())
    if has_text:
        width += WORDS_IN_ALL
    return width


def _max_widths(table_map: TableMap, kinds: dict[str, str]) -> dict[str, int]:
    """Return the largest number of mapped columns that encode each column, by name.

    Hashed words that text columns share are not counted.

    kinds: kind of each column of the table by name, "" for a column without a value so far.
    """
    # The final kind of a column is not known yet, for example strings become categories or texts.
    # Take, for each kind of values, the kind of column that has the most mapped columns.
    widest = {"text": "string", "integer": "number", "boolean": "number", "date": "time"}
    widths = {}
    for name, kind in kinds.items():
        final_kind = table_map.declared_kind(name) or widest.get(kind, kind)
        widths[name] = _max_kind_width(name, final_kind, table_map)
    return widths


def _max_kind_width(name: str, kind: str, table_map: TableMap) -> int:
    """Return the largest number of mapped columns that encode a column.

    The mapped column that marks missing values is included.

    name: name of the column.
    kind: kind of the column. "" for a column without a value so far, which counts as a category.
    """
    one_hot = table_map.max_categories
    if name in table_map.one_hot:
        one_hot = MOST_ONE_HOT
    categories = one_hot + table_map.n_hashed
    # Each column of texts has `words` mapped columns for its words. If `words` is 0, all columns of
    # texts share the same ones, which are not counted here.
    words = table_map.words.n_features
    # A column of strings may turn out to be categories or texts, so take the larger number.
    # SIZES has the numbers of mapped columns of a number, a date and a time.
    sizes = SIZES | {"text": words, "category": categories, "": categories, "string": max(categories, words)}
    if kind in sizes:
        return sizes[kind] + 1
    # A column of another kind is not encoded.
    return 0
