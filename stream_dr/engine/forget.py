"""Forget: the bytes of unlearned rows are overwritten in the log, once every kept snapshot is past their unlearning.

An event whose rows are all gone keeps its position with an empty body; one that lost some is written anew without them,
and its schema metadata says which row numbers those were, so that later events may go on naming rows by their first
numbers. Rows that an event only refers to stay in their shard: that file is not ours.

Cost: an event rewritten once for each unlearning that names it; an unlearning that is done is passed over until the
directory is opened again.

Why this way: no model needs the bytes any more: each has a snapshot in which they are taken out, and none older.
"""

import json
from typing import Any

import numpy as np

from stream_dr.block import Block
from stream_dr.engine.decode import Decoder
from stream_dr.engine.needs import passed
from stream_dr.engine.unlearn import removal_of

GONE = b"stream_dr.gone"
"""Schema metadata key: JSON list of the row numbers that were taken out of a body."""


def forget(directory: Any) -> int:
    """Overwrite what may be forgotten; the number of events written anew. Raises InsufficientStorage.

    A model that is made meanwhile ends it: it may learn the rows, and has to find them when it comes to their unlearning.
    """
    written = _without_unlearned(directory)
    with directory.past:
        directory.log.erase()
    return written


def row_numbers(event: Any, rows: int) -> np.ndarray:
    """The numbers (rows,) that the rows of an event's body had when it was appended."""
    gone = _gone(event)
    return np.setdiff1d(np.arange(rows + len(gone)), np.asarray(gone, dtype=np.int64))


def _gone(event: Any) -> list[int]:
    if event.kind != "rows" or event.checksum is None or not event.body:
        return []
    import pyarrow as pa

    metadata = pa.ipc.open_stream(event.body).schema.metadata or {}
    return [int(number) for number in json.loads(metadata.get(GONE, b"[]"))]


def _without_unlearned(directory: Any) -> int:
    """Write the events anew whose rows every snapshot is past; their number."""
    written = 0
    for event in directory.log.read_kind("unlearn", passed(directory) + 1):
        if event.position <= directory.forgotten:
            continue
        for position, rows in removal_of(event.body).items():
            with directory.past:
                if passed(directory) < event.position:
                    return written
                written += _forget_rows(directory, position, rows)
        directory.forgotten = event.position
    return written


def _forget_rows(directory: Any, position: int, rows: Any) -> bool:
    """Write one event anew without those rows; False where there is nothing to do."""
    if position < directory.log.first:
        return False
    (event,) = directory.log.read(position - 1, position)
    if event.kind != "rows" or not event.body:
        return False
    block = Decoder(directory.limits).block(event, directory.schema)
    numbers = row_numbers(event, block.rows)
    stays = np.zeros(len(numbers), dtype=bool) if rows is None else ~np.isin(numbers, rows)
    if stays.all():
        return False
    gone = [*_gone(event), *numbers[~stays].tolist()]
    left = block.take(np.flatnonzero(stays))
    directory.log.rewrite(position, _body(left, gone) if left.rows else b"", left.rows, erase=False)
    return True


def _body(block: Block, gone: list[int]) -> bytes:
    from stream_dr.arrow.codec import arrow_from_block, write_arrow

    batch = arrow_from_block(block)
    metadata = {**(batch.schema.metadata or {}), GONE: json.dumps(sorted(gone)).encode()}
    return bytes(write_arrow([batch.replace_schema_metadata(metadata)]))
