"""sound: record batches of types that a layout has, whose arrays nowhere point outside themselves.

Cost: one pass over offsets and views, then Arrow's own full validation (UTF-8, indices of dictionaries, counts of nulls).

Why this way: Arrow's full validation passes an array of no rows whatever its one offset is, and its kernels end the process
over it. Views may all show the same bytes, which Arrow looks through once for each of them: they are added up first.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from stream_dr.arrow.messages import not_taken
from stream_dr.errors import LimitExceeded, MalformedInput

_LONGEST = 64 << 20
"""Bytes that the views of a batch may show, those that several show counted for each, where no other bound is given."""

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_NUMBERS = (*_INTEGERS, pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null())
_OFFSETS = {pa.string().id: np.int32, pa.large_string().id: np.int64}
_LISTS = {pa.list_(pa.null()).id: np.int32, pa.large_list(pa.null()).id: np.int64}
_FIXED, _CODED, _VIEWS = pa.list_(pa.null(), 1).id, pa.dictionary(pa.int8(), pa.null()).id, pa.string_view().id
_PLAIN = {kind.id for kind in (*_NUMBERS, pa.date32(), pa.date64(), pa.timestamp("s"))}
_SINGLE = {*_PLAIN, *_OFFSETS, _VIEWS}


def check_types(schema: pa.Schema) -> None:
    """Raise SchemaMismatch naming the first column of a type that no layout has."""
    for field in schema:
        kind = field.type
        if kind.id in _LISTS or kind.id == _FIXED:
            kind = kind.value_type
        if kind.id == _CODED:
            kind = kind.value_type
        if kind.id not in _SINGLE:
            raise not_taken(field.name, field.type)


def check_batches(batches: Sequence[pa.RecordBatch], max_bytes: int | None = None) -> None:
    """Refuse batches, of types that a layout has, with arrays that point outside themselves or are not valid.

    max_bytes: what the views of all batches may show together; None: LONGEST for each batch.
    Raises MalformedInput or LimitExceeded.
    """
    try:
        for batch in batches:
            batch.validate()
        _check_views(batches, _LONGEST * len(batches) if max_bytes is None else max_bytes)
        for batch in batches:
            for name, array in _parts(batch):
                _check_offsets(array, name)
            batch.validate(full=True)
    except (pa.ArrowException, MemoryError) as e:
        raise MalformedInput(f"the record batches are not valid Arrow ({first_line(e)}); write them anew.") from e


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Every array of a batch, and within its arrays, that is not of numbers, and the column it belongs to."""
    for number, field in enumerate(batch.schema):
        if field.type.id in _PLAIN:
            continue
        array = batch.column(number)
        while True:
            yield field.name, array
            if array.type.id in _LISTS or array.type.id == _FIXED:
                array = array.values
            elif array.type.id == _CODED:
                array = array.dictionary
            else:
                break


def _check_views(batches: Sequence[pa.RecordBatch], most: int) -> None:
    """Raise LimitExceeded for views that show more bytes together than they may: many may show the same ones."""
    total = 0
    for batch in batches:
        for name, array in _parts(batch):
            if array.type.id == _VIEWS and len(array):
                lengths = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)[::4]
                total += int(np.maximum(lengths, 0).sum(dtype=np.int64))
                if total > most:
                    raise LimitExceeded(
                        f"the strings of column {name} have more than {most} bytes; send fewer rows a request.",
                        limit=most,
                    )


def _check_offsets(array: pa.Array, name: str) -> None:
    """Raise MalformedInput unless offsets ascend from 0 or more to no more than what they are offsets into."""
    kind, buffers = array.type.id, array.buffers()
    if kind not in _OFFSETS and kind not in _LISTS:
        return
    offsets = buffers[1]
    if not len(array) and (offsets is None or not offsets.size):
        return  # Arrow lets an array of no rows be without the one offset that is due
    dtype = np.dtype(_OFFSETS.get(kind) or _LISTS[kind])
    if offsets is None or offsets.size < (array.offset + len(array) + 1) * dtype.itemsize:
        raise MalformedInput(f"column {name} has fewer offsets than rows; write it anew.")
    found = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * dtype.itemsize)
    size = len(array.values) if kind in _LISTS else buffers[2].size if buffers[2] is not None else 0
    if found[0] < 0 or found[-1] > size or (found[1:] < found[:-1]).any():
        raise MalformedInput(f"column {name} has offsets that fall, or lie outside its values; write it anew.")
