"""Inference of a table column's kind from its first values.

The kinds are number, date, time, category and text. A column that looks like an id or is constant
is not encoded. At least 20 values are needed to recognise ids and constants. A column of distinct
integers whose name is usual for ids is recognised with fewer values.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_dr.rows.raw_rows import RawColumn, RawRows

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


class ColumnOverrides(NamedTuple):
    """Settings of a map for single columns.

    Attributes
    ----------
    drop : tuple of str
        Columns to skip.
    keep : tuple of str
        Columns to encode even if they look like ids or constants.
    categories : tuple of str
        Columns to read as categories.
    kinds : tuple of (str, str)
        Columns with a declared kind, as pairs (name, kind).
    """

    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()


class InferredKind(NamedTuple):
    """Kind of a column, with the reason for it.

    Attributes
    ----------
    kind : str
        A kind of AS, or "dropped", "id" or "constant". "" while the column has no value.
    why : str
        Reason in words.
    """

    kind: str
    why: str


def declared_or_inferred_kind(name: str, first_values: RawColumn, overrides: ColumnOverrides) -> InferredKind:
    """Return the kind of a column, and the reason.

    If the user has declared a kind, this kind is returned. Without a declared kind, the kind is
    inferred from the values. Cost: O(rows), and for texts O(distinct texts).

    name: name of the column.
    first_values: first values of the column.
    overrides: settings by the user for single columns.
    """
    declared = dict(overrides.kinds).get(name)
    if name in overrides.drop:
        return InferredKind("dropped", "named in drop")
    if declared is not None or name in overrides.categories:
        return InferredKind(declared or "category", "declared")

    if first_values.kind == "category":
        return InferredKind("category", "a category by its type")

    # Recognise ids and constants.
    present = first_values.values[~first_values.missing]
    if not len(present):
        return InferredKind("", "no value so far")
    distinct = len(np.unique(present))
    if name not in overrides.keep:
        if distinct == 1 and len(present) == len(first_values.values) >= ENOUGH:
            return InferredKind("constant", "one value in every row")
        if distinct == len(present) and _is_id_given_all_distinct(name, first_values, distinct):
            return InferredKind("id", "another value in every row")

    # Strings are texts if they have many words and few repetitions.
    if first_values.kind != "text":
        kind = {"date": "date", "time": "time"}.get(first_values.kind, "number")
        values = {"boolean": "true or false", "integer": "whole numbers", "date": "dates", "time": "times"}
        return InferredKind(kind, values.get(first_values.kind, "numbers"))
    words = _mean_words_per_distinct_text(first_values)
    if words >= WORDS and distinct > len(present) / 2:
        return InferredKind("text", f"{words:.0f} words on average, mostly different")
    return InferredKind("category", _note_on_number_words(first_values) or f"{distinct} distinct")


def _note_on_number_words(texts: RawColumn) -> str:
    """Return a note if a column of texts is mostly numbers.

    The other texts, at most `MOST_WORDS`, may be words for missing values, such as "?". The note
    proposes to declare them with --missing. It is "" for any other column.
    """
    words = [text for text in texts.labels if not _is_number(text)]
    if not 0 < len(words) <= MOST_WORDS or len(words) == len(texts.labels):
        return ""

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


def likely_id_column(X: RawRows | np.ndarray, names: Sequence[str]) -> str | None:
    """Return the first column that looks like an id.

    The result is the column's name, or None if no column looks like an id. An id is a number or
    name that identifies the subject of a row.

    X: RawRows or an array (rows, features).
    names: names of the columns.
    """
    columns = X.columns if isinstance(X, RawRows) else [RawColumn("number", values) for values in X.T]
    return next((name for name, column in zip(names, columns, strict=True) if _looks_like_id(name, column)), None)


def _looks_like_id(name: str, column: RawColumn) -> bool:
    """Return True if a column is probably an id.

    An id identifies the subject of a row. The column must not have a missing value. In addition,
    one of two conditions must hold:

    - The column's name is usual for ids, the values are whole numbers or strings, and the number
      of distinct values is more than a tenth of the number of rows.
    - All values differ, and `_is_id_given_all_distinct` returns True.
    """
    if column.missing.any() or column.kind not in ("text", "integer", "number"):
        return False
    distinct = len(np.unique(column.values))
    rows = len(column.values)
    if not _has_id_name(name):
        return distinct == rows and _is_id_given_all_distinct(name, column, distinct)
    whole = column.kind == "text" or bool(np.all(column.values == np.floor(column.values)))
    return whole and distinct > max(1, rows / 10)


def _has_id_name(name: str) -> bool:
    """Return True if a column name is usual for ids."""
    return bool(_ID.fullmatch(name) or _CAMEL.fullmatch(name))


def _is_id_given_all_distinct(name: str, column: RawColumn, n_distinct: int) -> bool:
    """Return True if a column is an id.

    The caller has checked that all values of the column differ. There are two cases:

    - A column of strings is an id if it has at least 20 distinct values, and if the strings are
      single words or the column's name is usual for ids.
    - A column of whole numbers is an id if the column's name is usual for ids and there are at
      least two values.

    n_distinct: number of distinct values.
    """
    named = _has_id_name(name)
    if column.kind == "text":
        return n_distinct >= ENOUGH and (named or _mean_words_per_distinct_text(column) < 2.0)
    return column.kind == "integer" and named and n_distinct > 1


def _mean_words_per_distinct_text(column: RawColumn) -> float:
    """Return the mean word count of a column's distinct texts."""
    return sum(len(text.split()) for text in column.labels) / len(column.labels)
