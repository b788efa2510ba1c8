"""ipc: bytes of an Arrow stream or file ↔ record batches, with nothing believed before it is checked.

`read_arrow` looks at the messages first (messages.py), then at the types of the columns; pyarrow then reads the batches
without a copy, and every one is checked in full (sound.py). A file (magic ARROW1) is read as the stream inside it, because a
hostile footer may list one batch a million times.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from stream_dr.arrow.messages import check_footer, check_messages, stream_in
from stream_dr.arrow.sound import check_batches, check_types, first_line
from stream_dr.errors import MalformedInput

_READ = pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


class Validated(list[pa.RecordBatch]):
    """Record batches that have been checked in full."""


def read_arrow(data: Any, max_bytes: int | None = None) -> Validated:
    """The record batches of an IPC stream or file held in a bytes-like object; at least one, of no rows if there is none.

    max_bytes bounds what the body unpacks to, as `check_messages` tells (None: no bound). Buffers point into `data`, which
    must not be changed afterwards. Raises MalformedInput (not Arrow, truncated, invalid, bytes after the end),
    SchemaMismatch (a type that no layout has) or LimitExceeded.
    Cost: O(messages) plus full validation; no copy unless compressed or misaligned.
    """
    view = stream_in(memoryview(data).cast("B"))
    check_messages(view, max_bytes)
    try:
        with pa.ipc.open_stream(pa.py_buffer(view), options=_READ) as reader:
            check_types(reader.schema)
            batches = Validated(reader) or Validated([pa.RecordBatch.from_pylist([], schema=reader.schema)])
    except (pa.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError) as e:
        raise MalformedInput(f"the bytes are not a valid Arrow stream ({first_line(e)}); write it anew.") from e
    check_batches(batches, max_bytes)
    return batches


def check_file(data: Any) -> tuple[int, ...]:
    """Rows of each batch of an IPC file that pyarrow may then read by its footer. Raises what `read_arrow` does of one."""
    view = memoryview(data).cast("B")
    return check_footer(view, check_messages(stream_in(view)))


def write_arrow(batches: Sequence[pa.RecordBatch]) -> bytes:
    """One uncompressed IPC stream of the batches (at least one, all of one schema)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())
