"""Check that arrays of record batches stay within their buffers.

Two things are checked before Arrow's own full validation:

- Offsets. An array without rows has one offset. Arrow's full validation accepts any value there,
  and a wrong value crashes the process in Arrow's kernels.
- The sum of the lengths of all string views. Many views may refer to the same bytes, and Arrow
  reads these bytes for each view.

Cost: one pass over offsets and views, then Arrow's full validation of UTF-8, dictionary indices
and null counts.
"""

import mmap
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from stream_dr.arrow.messages import unsupported_type_error
from stream_dr.errors import LimitExceeded, MalformedInput

BytesLike: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | pa.Buffer
"""Types of objects whose bytes can be read without a copy."""

_MAX_VIEW_BYTES = 64 << 20
"""Limit on the sum of the lengths of a batch's string views, in bytes.

The limit applies if the caller sets no other limit.
"""

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_NUMBERS = (*_INTEGERS, pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null())

# numpy type of the offsets of strings and of lists, by the id of the Arrow type.
_STRING_OFFSETS = {pa.string().id: np.int32, pa.large_string().id: np.int64}
_LIST_OFFSETS = {pa.list_(pa.null()).id: np.int32, pa.large_list(pa.null()).id: np.int64}
# Ids of Arrow types, and sets of ids.
_FIXED_SIZE_LIST = pa.list_(pa.null(), 1).id
_DICTIONARY = pa.dictionary(pa.int8(), pa.null()).id
_STRING_VIEW = pa.string_view().id
_NUMERIC = {kind.id for kind in (*_NUMBERS, pa.date32(), pa.date64(), pa.timestamp("s"))}
_SCALAR = {*_NUMERIC, *_STRING_OFFSETS, _STRING_VIEW}


def refuse_unsupported_types(schema: pa.Schema) -> None:
    """Raise SchemaMismatch if a column has an unsupported type.

    The supported types are null, numbers, bools, dates, timestamps and strings, and lists or
    dictionaries of values of these types. The error names the first column of another type.
    """
    for field in schema:
        kind = field.type
        if kind.id in _LIST_OFFSETS or kind.id == _FIXED_SIZE_LIST:
            kind = kind.value_type
        if kind.id == _DICTIONARY:
            kind = kind.value_type
        if kind.id not in _SCALAR and not pa.types.is_decimal(kind):
            raise unsupported_type_error(field.name, field.type)


def refuse_invalid_batches(batches: Sequence[pa.RecordBatch], max_view_bytes: int | None = None) -> None:
    """Raise an error if the record batches are invalid.

    Raises MalformedInput if an array points outside its buffers or does not pass Arrow's full
    validation. Raises LimitExceeded if all string views together are longer than `max_view_bytes`.

    Parameters
    ----------
    batches : sequence of RecordBatch
        Batches whose column types `refuse_unsupported_types` has accepted.
    max_view_bytes : int or None
        Limit on the sum of the lengths of all string views, in bytes. None means 64 MiB for each
        batch.
    """
    try:
        # Check the sizes of buffers by Arrow's quick validation. The next checks rely on them.
        for batch in batches:
            batch.validate()
        _limit_string_view_bytes(batches, _MAX_VIEW_BYTES * len(batches) if max_view_bytes is None else max_view_bytes)

        # Check offsets first: full validation accepts a wrong offset of an array without rows.
        for batch in batches:
            for name, array in _string_list_and_dictionary_arrays(batch):
                _check_array_offsets(array, name)
            batch.validate(full=True)
    except (pa.ArrowException, MemoryError) as e:
        message = f"the record batches are not valid Arrow ({first_message_line(e)}); write them anew."
        raise MalformedInput(message) from e


def first_message_line(error: BaseException) -> str:
    """Return the first line of an error's message.

    At most 200 characters are returned.
    """
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _string_list_and_dictionary_arrays(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield (column name, array) for each non-numeric array.

    Non-numeric arrays are arrays of strings, lists and dictionaries. Columns of numbers, bools,
    dates and nulls are skipped. For a column of lists, the array of all list elements is also
    yielded. For a dictionary-encoded column, the dictionary is also yielded.
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


def _limit_string_view_bytes(batches: Sequence[pa.RecordBatch], max_view_bytes: int) -> None:
    """Raise LimitExceeded if the string views have too many bytes.

    If several views refer to the same bytes, the bytes count for each view.

    max_view_bytes: maximum sum of the lengths of all views of all batches, in bytes.
    """
    total = 0
    for batch in batches:
        for name, array in _string_list_and_dictionary_arrays(batch):
            if array.type.id == _STRING_VIEW and len(array):
                # Arrow's string-view layout has a view of four int32 for each string.
                # Read the first number of each view, which is the length of the string.
                lengths = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)[::4]
                total += int(np.maximum(lengths, 0).sum(dtype=np.int64))
                if total > max_view_bytes:
                    raise LimitExceeded(
                        f"the strings of column {name} have more than {max_view_bytes} bytes; send fewer rows a "
                        "request.",
                        limit=max_view_bytes,
                    )


def _check_array_offsets(array: pa.Array, column_name: str) -> None:
    """Raise MalformedInput unless an array's offsets are valid.

    Offsets must ascend and lie within the array's values. Arrays without offsets are ignored.

    column_name: name of the column, for the error message.
    """
    kind = array.type.id
    if kind not in _STRING_OFFSETS and kind not in _LIST_OFFSETS:
        return

    # Arrow allows an array without rows to have an empty buffer of offsets.
    buffers = array.buffers()
    buffer = buffers[1]
    if not len(array) and (buffer is None or not buffer.size):
        return

    # An array has one offset more than rows.
    dtype = np.dtype(_STRING_OFFSETS.get(kind) or _LIST_OFFSETS[kind])
    if buffer is None or buffer.size < (array.offset + len(array) + 1) * dtype.itemsize:
        raise MalformedInput(f"column {column_name} has fewer offsets than rows; write it anew.")

    # Compare the offsets with the size of the array's values.
    # Offsets of lists count elements, and offsets of strings count bytes.
    offsets = np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)
    size = len(array.values) if kind in _LIST_OFFSETS else buffers[2].size if buffers[2] is not None else 0
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise MalformedInput(f"column {column_name} has offsets that fall, or lie outside its values; write it anew.")
