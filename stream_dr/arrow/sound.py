"""Validation of record batches, so that no array points outside its own buffers.

Arrow's full validation accepts an array of no rows whatever its one offset is, and its kernels
crash the process on such an array. So offsets are checked here first. Many string views may show
the same bytes, and Arrow reads these for each view. So the lengths of all views are added up
first.

Cost: one pass over offsets and views, then Arrow's full validation of UTF-8, dictionary indices
and null counts.
"""

import mmap
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from stream_dr.arrow.messages import unsupported_type
from stream_dr.errors import LimitExceeded, MalformedInput

BytesLike: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | pa.Buffer
"""An object whose memory can be read without a copy."""

_MAX_VIEW_BYTES = 64 << 20
"""Maximum number of bytes that the views of a batch show, if the caller sets no limit."""

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_NUMBERS = (*_INTEGERS, pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null())

# Ids of Arrow types, with the dtype of the offsets if the type has offsets.
_STRING_OFFSETS = {pa.string().id: np.int32, pa.large_string().id: np.int64}
_LIST_OFFSETS = {pa.list_(pa.null()).id: np.int32, pa.large_list(pa.null()).id: np.int64}
_FIXED_SIZE_LIST = pa.list_(pa.null(), 1).id
_DICTIONARY = pa.dictionary(pa.int8(), pa.null()).id
_STRING_VIEW = pa.string_view().id
_NUMERIC = {kind.id for kind in (*_NUMBERS, pa.date32(), pa.date64(), pa.timestamp("s"))}
_SCALAR = {*_NUMERIC, *_STRING_OFFSETS, _STRING_VIEW}


def check_types(schema: pa.Schema) -> None:
    """Raise SchemaMismatch if no layout has the type of a column.

    The error names the first such column.
    """
    for field in schema:
        kind = field.type
        if kind.id in _LIST_OFFSETS or kind.id == _FIXED_SIZE_LIST:
            kind = kind.value_type
        if kind.id == _DICTIONARY:
            kind = kind.value_type
        if kind.id not in _SCALAR:
            raise unsupported_type(field.name, field.type)


def check_batches(batches: Sequence[pa.RecordBatch], max_bytes: int | None = None) -> None:
    """Validate batches in full.

    `check_types` must have accepted their types. Raises MalformedInput if an array points outside
    its buffers or is invalid, and LimitExceeded.

    Parameters
    ----------
    batches : sequence of RecordBatch
    max_bytes : int or None
        Limit of the bytes that all string views show together. None: 64 MiB for each batch.
    """
    try:
        for batch in batches:
            batch.validate()
        _check_views(batches, _MAX_VIEW_BYTES * len(batches) if max_bytes is None else max_bytes)

        for batch in batches:
            for name, array in _arrays(batch):
                _check_offsets(array, name)
            batch.validate(full=True)
    except (pa.ArrowException, MemoryError) as e:
        raise MalformedInput(
            f"the record batches are not valid Arrow ({first_message_line(e)}); write them anew."
        ) from e


def first_message_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 200 characters."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _arrays(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield column name and array of each array that is not numeric.

    Arrays nested in others are included.
    """
    for number, field in enumerate(batch.schema):
        if field.type.id in _NUMERIC:
            continue
        array = batch.column(number)
        while True:
            yield field.name, array
            if array.type.id in _LIST_OFFSETS or array.type.id == _FIXED_SIZE_LIST:
                array = array.values
            elif array.type.id == _DICTIONARY:
                array = array.dictionary
            else:
                break


def _check_views(batches: Sequence[pa.RecordBatch], limit: int) -> None:
    """Raise LimitExceeded if string views show more than `limit` bytes in all.

    Bytes that several views show count for each of them.
    """
    total = 0
    for batch in batches:
        for name, array in _arrays(batch):
            if array.type.id == _STRING_VIEW and len(array):
                # The length is the first of the four int32 of a view.
                lengths = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)[::4]
                total += int(np.maximum(lengths, 0).sum(dtype=np.int64))
                if total > limit:
                    raise LimitExceeded(
                        f"the strings of column {name} have more than {limit} bytes; send fewer rows a request.",
                        limit=limit,
                    )


def _check_offsets(array: pa.Array, name: str) -> None:
    """Raise MalformedInput unless offsets ascend and lie within the values."""
    kind = array.type.id
    buffers = array.buffers()
    if kind not in _STRING_OFFSETS and kind not in _LIST_OFFSETS:
        return

    # Arrow lets an array of no rows lack its one offset.
    buffer = buffers[1]
    if not len(array) and (buffer is None or not buffer.size):
        return

    dtype = np.dtype(_STRING_OFFSETS.get(kind) or _LIST_OFFSETS[kind])
    if buffer is None or buffer.size < (array.offset + len(array) + 1) * dtype.itemsize:
        raise MalformedInput(f"column {name} has fewer offsets than rows; write it anew.")

    offsets = np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)
    size = len(array.values) if kind in _LIST_OFFSETS else buffers[2].size if buffers[2] is not None else 0
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise MalformedInput(f"column {name} has offsets that fall, or lie outside its values; write it anew.")
