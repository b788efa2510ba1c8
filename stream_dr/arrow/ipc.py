"""ipc: bytes of an Arrow stream or file ↔ record batches, with nothing believed before it is checked.

`read_arrow` walks the messages first (about 5 µs each, no body is touched): the framing must be whole up to the
end-of-stream marker, and what compressed buffers say they will unpack to is added up before anything is allocated. Then
pyarrow reads them without a copy and every batch is validated in full (offsets, null counts, UTF-8, dictionary indices).

Why this way: pyarrow takes a stream cut between two messages for a shorter stream, so a truncated upload would be learned
in part; and a few kilobytes of zstd unpack to gigabytes. A file (magic ARROW1) is read as the stream inside it, because a
hostile footer may list one batch a million times. Only the five flatbuffer tables needed are parsed here, bounds checked
by `struct`. A stream of one record batch, as most requests are, is not read by pyarrow's stream reader, which parses the
schema each time; schemas come again and again, and are kept. That took 25 µs, and 0.1 ms beside other threads.
"""

import struct
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from stream_dr.errors import LimitExceeded, MalformedInput

_CONTINUATION = 0xFFFFFFFF
_MAGIC = b"ARROW1"
_SCHEMA, _DICTIONARY, _RECORD_BATCH = 1, 2, 3  # MessageHeader in Arrow's Message.fbs
_NATIVE = 0 if sys.byteorder == "little" else 1  # Endianness in Arrow's Schema.fbs
_SHORT = 16 << 10  # bytes of the longest schema that is kept
_READ = pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


class Validated(list[pa.RecordBatch]):
    """Record batches that have been validated in full."""


def read_arrow(data: Any, max_bytes: int | None = None) -> Validated:
    """The record batches of an IPC stream or file held in a bytes-like object; at least one, of no rows if there is none.

    max_bytes bounds the size in bytes after decompression (None: no bound). Buffers point into `data`, which must not be
    changed afterwards. Raises MalformedInput (not Arrow, truncated, invalid, bytes after the end) or LimitExceeded.
    Cost: O(messages) plus full validation; no copy unless compressed or misaligned.
    """
    view = _stream_in(memoryview(data).cast("B"))
    try:
        messages = _framing(view, max_bytes)
        batches, schema = _one_batch(view, messages) or _all_batches(view)
        for batch in batches:
            batch.validate(full=True)
        return batches or Validated([pa.RecordBatch.from_pylist([], schema=schema)])
    except struct.error as e:
        raise MalformedInput(
            f"{len(view)} bytes are not a whole Arrow stream: it ends before its end-of-stream marker. "
            "Close the writer and send everything it wrote."
        ) from e
    except (pa.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError) as e:
        raise MalformedInput(f"the bytes are not a valid Arrow stream ({_first_line(e)}); write it anew.") from e


def write_arrow(batches: Sequence[pa.RecordBatch]) -> bytes:
    """One uncompressed IPC stream of the batches (at least one, all of one schema)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _stream_in(view: memoryview) -> memoryview:
    """The stream inside a file, or the stream itself."""
    if bytes(view[:6]) != _MAGIC:
        return view
    if len(view) < 22 or bytes(view[-6:]) != _MAGIC:
        raise MalformedInput("an Arrow file without its footer: it is truncated. Send it whole.")
    footer = struct.unpack("<i", view[-10:-6])[0]
    end = len(view) - 10 - footer
    if footer < 0 or end < 8:
        raise MalformedInput("an Arrow file whose footer length is wrong: it is damaged. Write it anew.")
    return view[8:end]


class _Message(NamedTuple):
    """Where a message begins in the stream, what it is, its metadata's root table; where its body begins, and the body."""

    begin: int
    kind: int
    table: "_Table"
    start: int
    body: memoryview


def _one_batch(view: memoryview, messages: Sequence[_Message]) -> tuple[Validated, pa.Schema] | None:
    """The batch and schema of a stream that has one batch; None where there are others, where it is to be unpacked, its
    numbers to be aligned or their bytes turned round first, and where something is wrong with it."""
    if [message.kind for message in messages] != [_SCHEMA, _RECORD_BATCH] or messages[1].begin > _SHORT:
        return None
    stream = pa.py_buffer(view)
    if (stream.address + messages[1].start) % 8 or messages[0].body:
        return None
    try:
        described, rows = messages[0].table.table(2), messages[1].table.table(2)
        if described is None or described.number(0, "<h") != _NATIVE or rows is None or rows.table(3) is not None:
            return None
        schema = _schema(bytes(view[: messages[1].begin]))
        return Validated([pa.ipc.read_record_batch(stream.slice(messages[1].begin), schema)]), schema
    except (pa.ArrowException, UnicodeDecodeError, struct.error, MalformedInput):
        return None


def _all_batches(view: memoryview) -> tuple[Validated, pa.Schema]:
    """The batches and the schema of any stream."""
    with pa.ipc.open_stream(pa.py_buffer(view), options=_READ) as reader:
        batches = Validated(reader)
        return batches, _legible(reader.schema)


@lru_cache(maxsize=64)
def _schema(message: bytes) -> pa.Schema:
    """The schema in a message, legible."""
    return _legible(pa.ipc.read_schema(pa.py_buffer(message)))


def _legible(schema: pa.Schema) -> pa.Schema:
    """A schema whose names are UTF-8 and whose columns pyarrow can read. Raises UnicodeDecodeError, MalformedInput."""
    for number, name in enumerate(schema.names):
        kind = schema.field(number).type
        if _unreadable(kind):
            raise MalformedInput(f"column {name} is {kind}, which pyarrow {pa.__version__} cannot read; leave it out.")
    return schema


def _unreadable(kind: pa.DataType) -> bool:
    """Whether a type is, or holds, one that pyarrow knows and has no arrays of: asked for one, it raises a KeyError."""
    within = [kind.field(number).type for number in range(kind.num_fields)]
    if pa.types.is_dictionary(kind):
        within.append(kind.value_type)
    return kind.id == pa.lib.Type_INTERVAL_MONTHS or any(map(_unreadable, within))


def _framing(view: memoryview, max_bytes: int | None) -> list[_Message]:
    """The messages up to the end-of-stream marker; adds up their sizes after decompression."""
    messages, total = [], 0
    for message in _messages(view):
        messages.append(message)
        total += _unpacked_size(message)
        if max_bytes is not None and total > max_bytes:
            raise LimitExceeded(
                f"the batch holds more than {max_bytes} bytes once unpacked; send fewer rows a request.",
                limit=max_bytes,
            )
    return messages


def _messages(view: memoryview) -> Iterator[_Message]:
    """Each message."""
    at = 0
    while True:
        begin = at
        length = struct.unpack_from("<I", view, at)[0]
        at += 4
        if length == _CONTINUATION:  # absent in streams written before Arrow 0.15
            length = struct.unpack_from("<I", view, at)[0]
            at += 4
        if length == 0:
            break
        metadata = view[at : at + length]
        at += length
        table = _Table.root(metadata)
        size = table.number(3, "<q")
        if len(metadata) < length or size < 0 or at + size > len(view):
            raise MalformedInput("the Arrow stream is truncated: a message is longer than what is left. Send it whole.")
        yield _Message(begin, table.number(1, "<B"), table, at, view[at : at + size])
        at += size
    if any(view[at:]):
        raise MalformedInput(f"{len(view) - at} bytes follow the end of the Arrow stream; send one stream a request.")


def _unpacked_size(message: _Message) -> int:
    """Bytes the message's buffers take once decompressed (its body's length when they are not compressed)."""
    kind, body = message.kind, message.body
    if kind not in (_DICTIONARY, _RECORD_BATCH):
        return len(body)
    table = message.table.table(2)
    if table is not None and kind == _DICTIONARY:
        table = table.table(1)
    if table is None or table.table(3) is None:
        return len(body)
    total = 0
    for offset, length in table.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise MalformedInput("a compressed buffer lies outside its Arrow message; write the stream anew.")
        size = struct.unpack_from("<q", body, offset)[0] if length >= 8 else length
        if size < -1:
            raise MalformedInput("a compressed buffer states a negative size; write the stream anew.")
        total += length if size == -1 else size
    return total


class _Table:
    """A flatbuffer table: where its fields are. Every read outside the buffer is a struct.error."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._vtable = at - struct.unpack_from("<i", buffer, at)[0]
        if self._vtable < 0:
            raise MalformedInput("an Arrow message's metadata points outside itself; write the stream anew.")
        self._size = struct.unpack_from("<H", buffer, self._vtable)[0]

    @classmethod
    def root(cls, buffer: memoryview) -> "_Table":
        return cls(buffer, struct.unpack_from("<I", buffer, 0)[0])

    def _field(self, index: int) -> int:
        entry = 4 + 2 * index
        if entry + 2 > self._size:
            return 0
        offset = struct.unpack_from("<H", self._buffer, self._vtable + entry)[0]
        return self._at + offset if offset else 0

    def number(self, index: int, code: str) -> int:
        at = self._field(index)
        return int(struct.unpack_from(code, self._buffer, at)[0]) if at else 0

    def table(self, index: int) -> "_Table | None":
        at = self._field(index)
        return _Table(self._buffer, at + struct.unpack_from("<I", self._buffer, at)[0]) if at else None

    def pairs(self, index: int) -> Iterator[tuple[int, ...]]:
        """A vector of structs of two int64."""
        at = self._field(index)
        if not at:
            return
        at += struct.unpack_from("<I", self._buffer, at)[0]
        count = struct.unpack_from("<I", self._buffer, at)[0]
        for i in range(count):
            yield struct.unpack_from("<qq", self._buffer, at + 4 + 16 * i)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
