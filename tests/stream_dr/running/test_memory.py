"""What is held in memory is counted as it lies there: a compressed body unpacks to a thousand times its size."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stream_dr import errors
from stream_dr.batch.arrow import arrow_from_block
from stream_dr.batch.block import Block
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, RecentDrafts, rows_draft
from stream_dr.running.advance import EventReader
from stream_dr.running.ingest import Appender
from tests.support.batches import SMALL, dense, draft, opened, put

UNPACKED = 400 * 100 * 8


def compressed(rows: int = 400) -> Draft:
    """A draft of (rows, 100) zeros, sent as zstd."""
    sink = pa.BufferOutputStream()
    batch = arrow_from_block(Block(np.zeros((rows, 100))))
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    made = rows_draft(bytes(sink.getvalue()))
    assert len(made.body) * 100 < made.size == rows * 100 * 8
    return made


def test_a_compressed_batch_counts_in_the_queue_as_unpacked(tmp_path: Path) -> None:
    with Directory(tmp_path, limits=SMALL._replace(max_queue_bytes=3 * UNPACKED)) as directory:
        appender = Appender(directory, lambda receipts: None)
        waiting = [appender.submit(compressed()) for _ in range(3)]
        assert appender.queued_bytes == 3 * UNPACKED
        with pytest.raises(errors.Overloaded, match="wait to be written"):
            appender.submit(compressed())
        appender.start()
        assert [w.result(20).rows for w in waiting] == [400] * 3
        appender.close()
        assert appender.queued_bytes == 0


def test_what_is_held_for_models_counts_as_unpacked() -> None:
    recent = RecentDrafts(2 * UNPACKED)
    for position in range(3):
        recent.put_if_room(position, compressed())
    assert [p for p, _ in recent.consecutive_drafts_after(-1, 10)] == [0, 1]


def test_a_page_of_the_log_ends_where_its_rows_are_many(tmp_path: Path) -> None:
    """A page ends at 64 MiB of rows. A large batch here takes 40 MB."""
    for name, rows, expected in (
        ("small", 400, [[0, 1, 2, 3, 4]]),
        ("large", 50_000, [[0, 1], [2, 3], [4]]),
    ):
        with opened(tmp_path / name) as directory:
            directory.append([compressed(rows) for _ in range(5)])
            reader = EventReader(directory)
            assert [[event.position for event in page] for page in reader.pages(-1, 4)] == expected


def test_a_refused_batch_is_let_go(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, dense(0))
        gc.disable()
        try:
            wrong: Any = draft(dense(1, features=5))
            rows = weakref.ref(wrong.block.X)
            answer = directory.append([wrong])[0]
            del wrong
            assert isinstance(answer, errors.WidthMismatch)
            assert rows() is None
        finally:
            gc.enable()
