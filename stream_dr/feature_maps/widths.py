"""widths: how many columns may be made of a table's, and how many hashed words a text gets of them.

Cost: O(columns).
"""

from collections.abc import Sequence

from stream_dr.checks import EXACT_WIDTH
from stream_dr.errors import TooManyFeatures
from stream_dr.feature_maps.columns import LEFT_OUT, MOST_ONE_HOT, MOST_WORDS, Making, TableColumn
from stream_dr.feature_maps.taken_for import Wishes

MOST_WORDS_BESIDE, LEAST_WORDS = 2048, 32
"""Hashed words of a text that is not all there is."""


def words_of(making: Making, columns: Sequence[TableColumn], begins: dict[str, str]) -> int:
    """Hashed words of each text that begins. begins: kinds of the columns, by name, that do."""
    if making.words.n_features:
        return making.words.n_features
    kinds = {column.name: begins.get(column.name, column.kind) for column in columns}
    if [kind for kind in kinds.values() if kind not in LEFT_OUT] == ["text"]:
        return MOST_WORDS

    texts = [name for name, kind in begins.items() if kind == "text"]
    others = sum(_most_of(column, kinds[column.name], making) for column in columns if column.name not in texts)
    room = (EXACT_WIDTH - others) // max(1, len(texts)) - 1
    return min(MOST_WORDS_BESIDE, 1 << max(LEAST_WORDS, room).bit_length() - 1)


def most_columns(making: Making, columns: Sequence[TableColumn]) -> int:
    """Columns that there may ever be of the columns there are."""
    return sum(_most_of(column, column.kind, making) for column in columns)


def _most_of(column: TableColumn, kind: str, making: Making) -> int:
    """Columns that may be made of a column that is of this kind."""
    return len(column.places) + 1 if column.kind == "text" else _most(column.name, kind, making)


def check_most_columns(making: Making, wishes: Wishes, kinds: dict[str, str], widest: int) -> None:
    """Raise TooManyFeatures where more than `widest` columns may ever be made of a table's. kinds: a RawColumn's, or "", by
    name."""
    most = _most_each(making, wishes, kinds)
    if (total := sum(most.values())) > widest:
        name = max(most, key=most.__getitem__)
        raise TooManyFeatures(
            f"up to {total} columns may be made of this table's {len(most)} (of {name} {most[name]}), and exact scatter is "
            f'kept of up to {widest}. Lower max_categories, n_hashed or n_words of the map, or take scatter="diagonal".',
            needed=total,
            limit=widest,
        )


def most_of_kinds(making: Making, wishes: Wishes, kinds: dict[str, str]) -> int:
    """Columns that may ever be made of a table's, at most; a column that may be a text may be all there is. kinds: a
    RawColumn's, or "", by name."""
    said = _said(wishes)
    texts = any(said.get(name, kind) in ("text", "") for name, kind in kinds.items())
    only = MOST_WORDS + len(kinds) if texts and not making.words.n_features else 0
    return max(only, sum(_most_each(making, wishes, kinds).values()))


def _most_each(making: Making, wishes: Wishes, kinds: dict[str, str]) -> dict[str, int]:
    """Columns that may be made of each, by name."""
    said = _said(wishes)
    known = {"text": "", "integer": "number", "boolean": "number", "date": "time"}  # dates of a family may have times
    return {name: _most(name, said.get(name, known.get(kind, kind)), making) for name, kind in kinds.items()}


def _said(wishes: Wishes) -> dict[str, str]:
    """Kinds of columns, by name, that are said."""
    return dict.fromkeys(wishes.categories, "category") | dict(wishes.kinds) | dict.fromkeys(wishes.drop, "dropped")


def _most(name: str, kind: str, making: Making) -> int:
    """Columns that may be made of a column, the indicator of gaps among them; "": of a kind not known yet."""
    categories = MOST_ONE_HOT if name in making.one_hot else making.max_categories
    sizes = {"number": 1, "date": 5, "time": 7, "text": making.words.n_features or LEAST_WORDS}
    sizes |= {"category": categories + making.n_hashed}
    sizes[""] = max(sizes.values())
    return sizes[kind] + 1 if kind in sizes else 0
