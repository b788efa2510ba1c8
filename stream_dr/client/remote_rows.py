"""Convert rows and ids to Arrow, and Arrow responses to arrays.

A response becomes a ServedArray, which names the model that computed it.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import orjson
import pyarrow as pa

from stream_dr import errors
from stream_dr.aliases import JsonDict
from stream_dr.arrow.codec import arrow_from_block, write_arrow
from stream_dr.rows.block import Block, Ids, Rows
from stream_dr.rows.kinds import COLUMNAR, Kind, rows_kind
from stream_dr.rows.number_rows import as_rows
from stream_dr.rows.table_rows import raw_rows


def sendable_rows_and_names(X: Any) -> tuple[Rows, tuple[str, ...] | None]:
    """Convert rows for sending, and return rows and column names.

    Rows of numbers become an array. Texts, and tables that have other values than numbers, are
    sent with the types of their columns, because the service encodes the values. The names are
    None if the columns have no names.
    """
    try:
        return as_rows(X)
    except (errors.NotNumeric, errors.NotFinite, errors.InvalidRows):
        if rows_kind(X) not in (Kind.TEXTS, Kind.DICTS, *COLUMNAR):
            raise
    raw = raw_rows(X)
    return raw, raw.names


def arrow_stream_bytes(block: Block) -> bytes:
    """Return a block of rows as an Arrow stream."""
    return bytes(write_arrow([arrow_from_block(block)]))


def checked_ids(ids: Sequence[str] | Sequence[int], n_rows: int) -> Ids:
    """Return the ids as a list, if they are valid.

    Valid ids are a string for each row, or a 64-bit integer for each row. Raises InvalidRows for
    other ids.

    n_rows: number of rows.
    """
    values = as_list("ids", ids)
    if len(values) != n_rows:
        raise errors.InvalidRows(f"{len(values)} ids are given for {n_rows} rows; give one a row.")
    if values and all(isinstance(id, int | np.integer) and -(2**63) <= id < 2**63 for id in values):
        return [int(id) for id in values]

    # If not all ids are integers of 64 bits, all ids must be strings.
    for row, id in enumerate(values):
        if not isinstance(id, str) or not is_valid_unicode(id):
            raise errors.InvalidRows(
                f"the id of row {row} is {id!r}; ids are strings of Unicode characters, or integers of 64 bits.",
                row=row,
            )
    return values


def as_list(name: str, values: Any) -> list[Any]:
    """Return a sequence as a list.

    Raises InvalidParameter for a single value or a string.

    name: name of the values in the error message.
    """
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise errors.InvalidParameter(f"{name}={values!r}; give a list of them.")
    return list(values)


def is_valid_unicode(text: str) -> bool:
    """Return True if a text can be encoded in UTF-8.

    A text with half of a surrogate pair cannot be encoded.
    """
    return all(not "\ud800" <= character <= "\udfff" for character in text)


def read_metadata(table: pa.Table) -> JsonDict:
    """Return the metadata of an Arrow table as a dict.

    The fields in `_NUMBER_FIELDS` have numbers or None as values. Other fields have strings.
    """
    texts = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
    return {name: orjson.loads(value) if name in _NUMBER_FIELDS else value for name, value in texts.items()}


_NUMBER_FIELDS = ("version", "newest", "position", "rows", "refined_at", "residual", "map_residual", "unseen")
"""Fields of the metadata whose values are numbers."""


def array_of_only_row(column: pa.Array) -> np.ndarray:
    """Return the array in the only row of an Arrow column of arrays."""
    # The service sends an array as a tensor, or as a list if the array is empty.
    if isinstance(column, pa.FixedShapeTensorArray):
        return np.asarray(column.to_numpy_ndarray()[0])
    return np.asarray(column[0].as_py(), dtype=np.float64)


class ServedArray(np.ndarray):
    """An ndarray with the model and version that computed it.

    Slices of the array, and arrays computed from the array, have equal attributes.

    Attributes
    ----------
    model : str
        Name of the model.
    version : int
        Version of the model's projection. Projected rows can be compared only if their versions
        are equal. `Client.projection` shows how to convert rows from an older version.
    position : int
        Log position of the last event that the projection includes.
    solution : str
        How the projection was computed: "exact", "diagonal", "refined" or "recurrence".
    unseen : int
        Number of values in the rows whose feature the model has not learned. These values have no
        effect on the result.

    Examples
    --------
    >>> import stream_dr
    >>> with stream_dr.Client(url) as client:  # a running service, as "http://127.0.0.1:8000"
    ...     _ = client.put_model("pca", "pca", n_components=1)
    ...     _ = client.partial_fit([[1.0, 2.0], [3.0, 1.0]], wait=True)
    ...     z = client.transform([[1.0, 2.0]], model="pca")
    >>> z.model, z.shape
    ('pca', (1, 1))
    """

    model: str = ""
    version: int = 0
    position: int = -1
    solution: str = ""
    unseen: int = 0

    @classmethod
    def from_response(cls, values: Any, response: JsonDict) -> Self:
        """Return `values` with fields of a response as attributes.

        If `values` is an array, the result shares its memory.

        response: response of the service, with the fields "model", "version", "position",
            "solution" and "unseen".
        """
        array = np.asarray(values).view(cls)
        array.model = str(response["model"])
        array.solution = str(response["solution"])
        array.version = int(response["version"])
        array.position = int(response["position"])
        array.unseen = int(response["unseen"])
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Copy the attributes of `source`, from which numpy made this array."""
        if isinstance(source, ServedArray):
            vars(self).update(vars(source))
