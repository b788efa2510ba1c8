"""taken_for: what a column of a table is taken for, and why, from its first values.

Fewer than 20 rows do not make a column an id or a constant, but for whole numbers that all differ and are named so.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_dr.rows.raw_rows import RawColumn, RawRows

AS = ("number", "date", "time", "category", "text")
"""What a column can be declared to be."""

ENOUGH = 20
"""Rows with a value from which ids and constants are told."""

WORDS = 3.0
"""Texts of so many words on average, most of them different, are texts and not categories."""

_ID = re.compile(r"((.*[_\-. ])?(id|uuid|guid|key|rowid|index|pk))|(unnamed: ?\d+)", re.IGNORECASE)
_CAMEL = re.compile(r".*[a-z](Id|ID|Key)")


class Wishes(NamedTuple):
    """What a spec says of columns by name."""

    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()


class TakenFor(NamedTuple):
    """kind: one of AS, "dropped", "id", "constant", or "" while nothing tells. why: in words."""

    kind: str
    why: str


def taken_for(name: str, column: RawColumn, wishes: Wishes) -> TakenFor:
    """What a column is taken for. O(rows), and for texts O(distinct texts)."""
    declared = dict(wishes.kinds).get(name)
    if name in wishes.drop:
        return TakenFor("dropped", "named in drop")
    if declared is not None or name in wishes.categories:
        return TakenFor(declared or "category", "declared")
    present = column.values[~column.missing]
    if not len(present):
        return TakenFor("", "no value so far")
    distinct = len(np.unique(present))
    if name not in wishes.keep:
        if distinct == 1 and len(present) == len(column.values) >= ENOUGH:
            return TakenFor("constant", "one value in every row")
        if distinct == len(present) and _is_id(name, column, distinct):
            return TakenFor("id", "another value in every row")
    if column.kind != "text":
        return TakenFor({"date": "date", "time": "time"}.get(column.kind, "number"), _kinds(column.kind))
    words = _words(column)
    if words >= WORDS and distinct > len(present) / 2:
        return TakenFor("text", f"{words:.0f} words on average, mostly different")
    return TakenFor("category", f"{distinct} distinct")


def likely_id(X: Any, names: Sequence[str]) -> str | None:
    """The first of the columns of rows X, raw or (rows, features), that probably says whose row it is."""
    columns = X.columns if isinstance(X, RawRows) else [RawColumn("number", values) for values in X.T]
    return next((name for name, column in zip(names, columns, strict=True) if _looks_like_id(name, column)), None)


def _looks_like_id(name: str, column: RawColumn) -> bool:
    """Whether a column probably says whose row it is: one in every row that is named so, of which more than a tenth differ,
    or one word, another in every row."""
    if column.missing.any() or column.kind not in ("text", "integer", "number"):
        return False
    distinct, rows = len(np.unique(column.values)), len(column.values)
    if not _is_named_so(name):
        return distinct == rows and _is_id(name, column, distinct)
    whole = column.kind == "text" or bool(np.all(column.values == np.floor(column.values)))
    return whole and distinct > max(1, rows / 10)


def _is_named_so(name: str) -> bool:
    return bool(_ID.fullmatch(name) or _CAMEL.fullmatch(name))


def _is_id(name: str, column: RawColumn, distinct: int) -> bool:
    """Whether a column whose values all differ numbers its rows, rather than telling something of them."""
    named = _is_named_so(name)
    if column.kind == "text":
        return distinct >= ENOUGH and (named or _words(column) < 2.0)
    return column.kind == "integer" and named and distinct > 1


def _words(column: RawColumn) -> float:
    """Words of a distinct text, on average."""
    return sum(len(text.split()) for text in column.labels) / len(column.labels)


def _kinds(kind: str) -> str:
    return {"boolean": "true or false", "integer": "whole numbers", "date": "dates", "time": "times"}.get(
        kind, "numbers"
    )
