"""remote_rows: rows and ids as a client sends them, and what it is answered in Arrow as arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from stream_dr import errors
from stream_dr.arrow.codec import arrow_from_block, write_arrow
from stream_dr.rows.block import Block, Ids, Rows
from stream_dr.rows.kinds import COLUMNAR, Kind, kind_of
from stream_dr.rows.number_rows import as_rows
from stream_dr.rows.table_rows import raw_rows


def rows_of(X: Any) -> tuple[Rows, tuple[str, ...] | None]:
    """Numbers and the columns' names; a table of more than numbers, or texts, as they are for a feature map there."""
    try:
        return as_rows(X)
    except (errors.NotNumeric, errors.NotFinite, errors.InvalidRows):
        if kind_of(X) not in (Kind.TEXTS, Kind.DICTS, *COLUMNAR):
            raise
    raw = raw_rows(X)
    return raw, raw.names


def bytes_of(block: Block) -> bytes:
    """A block as an Arrow stream."""
    return bytes(write_arrow([arrow_from_block(block)]))


def ids_of(ids: Sequence[str] | Sequence[int], rows: int) -> Ids:
    """One string a row, or one integer of 64 bits a row. Raises InvalidRows."""
    given = several("ids", ids)
    if len(given) != rows:
        raise errors.InvalidRows(f"{len(given)} ids are given for {rows} rows; give one a row.")
    if given and all(isinstance(id, int | np.integer) and -(2**63) <= id < 2**63 for id in given):
        return [int(id) for id in given]
    for row, id in enumerate(given):
        if not isinstance(id, str) or not is_unicode(id):
            raise errors.InvalidRows(
                f"the id of row {row} is {id!r}; ids are strings of Unicode characters, or integers of 64 bits.",
                row=row,
            )
    return given


def several(name: str, given: Any) -> list[Any]:
    """A sequence as a list; a string is one value, not its letters. Raises InvalidParameter."""
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise errors.InvalidParameter(f"{name}={given!r}; give a list of them.")
    return list(given)


def is_unicode(text: str) -> bool:
    """False for text with half a surrogate pair, which no encoding can say."""
    return all(not "\ud800" <= character <= "\udfff" for character in text)


def metadata_of(table: pa.Table) -> dict[str, Any]:
    """What an answer in Arrow tells beside its rows; numbers as numbers."""
    told = {name.decode(): fact.decode() for name, fact in (table.schema.metadata or {}).items()}
    return {name: orjson.loads(fact) if name in _NUMBERS else fact for name, fact in told.items()}


_NUMBERS = ("version", "newest", "position", "rows", "refined_at", "residual", "map_residual", "unseen")


def array_of(column: pa.Array) -> np.ndarray:
    """The one array that a column holds; what has no entry is a list."""
    if isinstance(column, pa.FixedShapeTensorArray):
        return column.to_numpy_ndarray()[0]
    return np.asarray(column[0].as_py(), dtype=np.float64)
