"""Upper bounds on the number of a table's numeric columns.

Encoding turns each column of a table into one or more numeric columns. Cost: O(columns).
"""

from collections.abc import Sequence

from stream_dr.checks import MAX_EXACT_WIDTH
from stream_dr.errors import TooManyFeatures
from stream_dr.feature_maps.table_columns import MOST_ONE_HOT, WORDS_IN_ALL, EncodingSpec, TableColumn
from stream_dr.feature_maps.taken_for import ColumnOverrides


def hashed_columns_per_text(encoding: EncodingSpec, columns: Sequence[TableColumn], new_kinds: dict[str, str]) -> int:
    """Return the number of hashed columns of a text column.

    The number in the map's settings is returned. If the settings have no number, the text columns
    share 1,024 columns equally.

    encoding: settings of the map.
    columns: the columns of the table.
    new_kinds: kind of each column whose kind is inferred from the current batch, by name.
    """
    texts = sum(new_kinds.get(column.name, column.kind) == "text" for column in columns)
    return encoding.words.n_features or max(1, WORDS_IN_ALL // max(1, texts))


def max_mapped_columns_of_table(encoding: EncodingSpec, columns: Sequence[TableColumn]) -> int:
    """Return the largest possible width of encoded rows.

    A feature map encodes each column of the table as one or several numeric columns.

    encoding: settings of the map.
    columns: statistics of the table's columns.
    """
    return sum(_max_mapped_columns_of(column, encoding) for column in columns)


def _max_mapped_columns_of(column: TableColumn, encoding: EncodingSpec) -> int:
    """Return the largest possible width of a column's encoding.

    The width is the number of numeric columns that encode the column.

    column: statistics of the column.
    """
    if column.kind == "text":
        return len(column.places) + 1
    return _max_mapped_columns_of_kind(column.name, column.kind, encoding)


def check_max_encoded_columns(encoding: EncodingSpec, overrides: ColumnOverrides, kinds: dict[str, str]) -> None:
    """Raise TooManyFeatures if a table may get too many columns.

    The columns are the numeric columns that encode the table.

    overrides: settings for single columns.
    kinds: kind of each column of the table by name, "" for a column without a value so far.
    """
    total = max_mapped_columns_of_kinds(encoding, overrides, kinds)
    if total > MAX_EXACT_WIDTH:
        message = _table_too_wide_message(total, _max_mapped_columns_by_name(encoding, overrides, kinds))
        raise TooManyFeatures(f'{message}, or take scatter="diagonal".', needed=total, limit=MAX_EXACT_WIDTH)


def reason_if_only_diagonal_stored(encoding: EncodingSpec, columns: Sequence[TableColumn]) -> str:
    """Return the reason why only a diagonal is stored.

    The diagonal is the diagonal of the scatter matrix. The only possible reason is that the table
    may be encoded in too many columns. "" means that the whole scatter matrix is stored.

    columns: the columns of the table.
    """
    most = {column.name: _max_mapped_columns_of(column, encoding) for column in columns}
    total = sum(most.values())
    if total <= MAX_EXACT_WIDTH:
        return ""
    return f"{_table_too_wide_message(total, most)}, else only its diagonal is stored."


def _table_too_wide_message(max_width: int, max_by_column: dict[str, int]) -> str:
    """Return the message that a table may be too wide.

    The columns are the numeric columns that encode the table. The message names the column of the
    table with the most numeric columns.

    max_width: largest possible number of numeric columns of the table.
    max_by_column: largest possible number of numeric columns of each column, by name.
    """
    name = max(max_by_column, key=max_by_column.__getitem__)
    return (
        f"up to {max_width} columns may be made of this table's {len(max_by_column)} (of {name} {max_by_column[name]}), and "
        f"exact scatter is kept of up to {MAX_EXACT_WIDTH}. Lower max_categories, n_hashed or n_words of the map"
    )


def max_mapped_columns_of_kinds(encoding: EncodingSpec, overrides: ColumnOverrides, kinds: dict[str, str]) -> int:
    """Return the largest possible width of encoded rows.

    A feature map encodes each column of the table as one or several numeric columns. The width
    may be exceeded if the first value of a text column comes in a later batch.

    overrides: settings for single columns.
    kinds: kind of each column of the table by name, "" for a column without a value so far.
    """
    declared = _declared_kinds(overrides)
    texts = any(declared.get(name, kind) == "text" for name, kind in kinds.items())
    shared = WORDS_IN_ALL if texts and not encoding.words.n_features else 0
    return shared + sum(_max_mapped_columns_by_name(encoding, overrides, kinds).values())


def _max_mapped_columns_by_name(
    encoding: EncodingSpec, overrides: ColumnOverrides, kinds: dict[str, str]
) -> dict[str, int]:
    """Return the largest possible width of each column's encoding.

    A feature map encodes each column of the table as one or several numeric columns. The result is
    a dict from the name of each column of the table to the largest number of its numeric columns.
    Hashed words that text columns share are not counted.

    overrides: settings for single columns.
    kinds: kind of each column of the table by name, "" for a column without a value so far.
    """
    declared = _declared_kinds(overrides)
    # The final kind of a column is not known yet, for example strings become categories or texts.
    # Take, for each kind of values, the kind of column that has the most numeric columns.
    raw = {"text": "string", "integer": "number", "boolean": "number", "date": "time"}
    return {
        name: _max_mapped_columns_of_kind(name, declared.get(name, raw.get(kind, kind)), encoding)
        for name, kind in kinds.items()
    }


def _declared_kinds(overrides: ColumnOverrides) -> dict[str, str]:
    """Return the kinds that a map's settings declare.

    The result is a dict from the name of a column to its kind.
    """
    categories, dropped = dict.fromkeys(overrides.categories, "category"), dict.fromkeys(overrides.drop, "dropped")
    return categories | dict(overrides.kinds) | dropped


def _max_mapped_columns_of_kind(name: str, kind: str, encoding: EncodingSpec) -> int:
    """Return the largest possible width of a column's encoding.

    The width is the number of numeric columns that encode the column. The numeric column that
    marks missing values is included.

    name: name of the column.
    kind: kind of the column. "" for a column without a value so far, which counts as a category.
    """
    categories = (MOST_ONE_HOT if name in encoding.one_hot else encoding.max_categories) + encoding.n_hashed
    words = encoding.words.n_features
    sizes = {"number": 1, "date": 5, "time": 7, "text": words, "category": categories, "": categories}
    sizes["string"] = max(categories, words)
    return sizes[kind] + 1 if kind in sizes else 0
