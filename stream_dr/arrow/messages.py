"""Messages of an Arrow stream, checked before pyarrow reads any of them.

The framing must be complete up to the end-of-stream marker, types must be those of a layout, and
dictionaries must not be deltas. The unpacked sizes of buffers are added up before anything is
allocated.

pyarrow alone would not be safe. It reads a stream cut between two messages as a shorter one, so a
truncated upload would be learned in part. It joins delta dictionaries again for every batch. A few
kilobytes of zstd unpack to gigabytes, and so does a schema that refers to one field or one name
thousands of times. pyarrow's MessageReader copies the parts a message refers to when it opens it,
and reports neither buffers nor deltas. `FlatbufferTable` reads them instead.

Cost: O(messages + columns of the schema). Of the bodies only the sizes of compressed buffers are
read.
"""

import struct
import sys
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

import numpy as np

from stream_dr.errors import LimitExceeded, MalformedInput, SchemaMismatch

MAX_BATCHES = 1_000
"""Maximum number of record batches and dictionaries of a body."""

MAX_PARTS = 1 << 17
"""Maximum number of columns and metadata entries of a body.

Columns count in the schema and again in each record batch. Each takes a few hundred bytes in
pyarrow.
"""

MAX_SMALL_VALUES = 1 << 21
"""Number of values of a body allowed in addition to two for each byte of its buffers.

Nulls and booleans take eight bytes each in memory, however few they take in the body.
"""

_CONTINUATION = 0xFFFFFFFF
_MAGIC = b"ARROW1"
# MessageHeader in Arrow's Message.fbs.
_SCHEMA, _DICTIONARY, _RECORD_BATCH = 1, 2, 3
# Endianness in Arrow's Schema.fbs.
_NATIVE = 0 if sys.byteorder == "little" else 1
# Type in Arrow's Schema.fbs.
_Type = IntEnum(
    "_Type",
    "null int float binary string bool decimal date time timestamp interval list struct union fixed_size_binary "
    "fixed_size_list map duration large_binary large_string large_list run_end_encoded binary_view string_view list_view "
    "large_list_view",
)
_LISTS = ("list", "large_list", "fixed_size_list")
_SUPPORTED = ("null", "int", "float", "bool", "date", "timestamp", "string", "large_string", "string_view", *_LISTS)


class FlatbufferTable:
    """Table of a flatbuffer, the format of Arrow's metadata.

    A field is given by its index in the schema language's table, from 0. Every read outside the
    buffer raises struct.error.
    """

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer = buffer
        self._same_store = at
        self._vtable = at - struct.unpack_from("<i", buffer, at)[0]
        if self._vtable < 0:
            raise struct.error("a table points before its buffer")
        self._size = struct.unpack_from("<H", buffer, self._vtable)[0]

    @classmethod
    def root(cls, buffer: memoryview) -> "FlatbufferTable":
        """Return the root table of a buffer."""
        return cls(buffer, struct.unpack_from("<I", buffer, 0)[0])

    def number(self, field: int, code: str) -> int:
        """Return a number of struct's format `code`, 0 if it is absent."""
        at = self._field(field)
        return int(struct.unpack_from(code, self._buffer, at)[0]) if at else 0

    def table(self, field: int) -> "FlatbufferTable | None":
        """Return a table, or None if it is absent."""
        at = self._field(field)
        return FlatbufferTable(self._buffer, self._follow(at)) if at else None

    def tables(self, field: int) -> Iterator["FlatbufferTable"]:
        """Yield the tables of a vector. Several may be the same one."""
        at, count = self._vector(field)
        for place in range(at, at + 4 * count, 4):
            yield FlatbufferTable(self._buffer, self._follow(place))

    def text(self, field: int) -> memoryview:
        """Return the bytes of a string."""
        at, count = self._vector(field)
        return self._buffer[at : at + count]

    def structs(self, field: int, words: int) -> np.ndarray:
        """Return a vector of structs as int64 (count, words).

        `words` is the number of int64 of a struct. Smaller numbers share a word.
        """
        at, count = self._vector(field)
        if at + 8 * words * count > len(self._buffer):
            raise struct.error("a vector is longer than its buffer")
        return np.frombuffer(self._buffer, "<i8", words * count, at if count else 0).reshape(count, words)

    def _field(self, field: int) -> int:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        offset = struct.unpack_from("<H", self._buffer, self._vtable + entry)[0]
        return self._same_store + offset if offset else 0

    def _follow(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self._buffer, at)[0])

    def _vector(self, field: int) -> tuple[int, int]:
        """Return the offset of a vector's first element, and its length."""
        at = self._field(field)
        if not at:
            return 0, 0
        at = self._follow(at)
        return at + 4, int(struct.unpack_from("<I", self._buffer, at)[0])


class Message(NamedTuple):
    """Message of an Arrow stream.

    Attributes
    ----------
    begin : int
        Offset in the stream, in bytes.
    kind : int
        Type of the header: schema, dictionary or record batch.
    header, root : FlatbufferTable
        Metadata of the kind, and of the message as a whole.
    size : int
        Size of the metadata in bytes.
    body : memoryview
        Buffers of the message.
    """

    begin: int
    kind: int
    header: FlatbufferTable
    root: FlatbufferTable
    size: int
    body: memoryview


def ipc_stream(view: memoryview) -> memoryview:
    """Return the stream inside a file, or the stream itself. Raises MalformedInput."""
    return view[8 : _footer(view)] if bytes(view[:6]) == _MAGIC else view


def check_messages(view: memoryview, max_bytes: int | None = None) -> list[Message]:
    """Check and return the messages of a stream. The first is its schema.

    Parameters
    ----------
    view : memoryview
        The stream, which must end with an end-of-stream marker.
    max_bytes : int or None
        Limit on the unpacked bytes. A value counts as at least four, and dictionaries count again
        for each record batch after the first. MAX_BATCHES, MAX_PARTS and MAX_SMALL_VALUES apply as
        well. None means no limit of any kind, for files.

    Raises
    ------
    MalformedInput
        The stream is truncated or damaged.
    SchemaMismatch
        A type is not of a layout, or a dictionary is a delta.
    LimitExceeded
        The stream exceeds a limit.
    """
    checker = _MessageChecker(max_bytes)
    messages: list[Message] = []
    try:
        for message in _messages(view):
            if (message.kind == _SCHEMA) == bool(messages) or message.kind not in (_SCHEMA, _DICTIONARY, _RECORD_BATCH):
                raise MalformedInput("an Arrow stream is one schema, then dictionaries and batches; write it anew.")
            checker.check_message(message)
            messages.append(message)
    except struct.error as e:
        raise MalformedInput(
            f"{len(view)} bytes are not a whole Arrow stream: it ends before its end-of-stream marker. "
            "Close the writer and send everything it wrote."
        ) from e

    if not messages:
        raise MalformedInput("the Arrow stream holds no schema; write it anew.")
    return messages


def check_footer(view: memoryview, messages: list[Message]) -> tuple[int, ...]:
    """Return the number of rows of each record batch, in the footer's order.

    `messages` are those of the file. Raises MalformedInput if the footer lists other messages, and
    the errors of `check_messages` for its schema.
    """
    begin = _footer(view)
    checker = _MessageChecker(None)
    expected_dictionaries = [m.begin + 8 for m in messages if m.kind == _DICTIONARY]
    rows = {m.begin + 8: m.header.number(0, "<q") for m in messages if m.kind == _RECORD_BATCH}

    try:
        footer = FlatbufferTable.root(view[begin:-10])
        checker.metadata_bytes = len(view) - 10 - begin
        checker.check_entries(footer, 4)
        schema = footer.table(1)
        if schema is not None:
            checker.schema(schema)
        dictionaries, batches = (footer.structs(field, 3)[:, 0].tolist() for field in (2, 3))
    except struct.error as e:
        raise MalformedInput("the footer of the Arrow file is damaged; write it anew.") from e

    if sorted(batches) != list(rows) or sorted(dictionaries) != expected_dictionaries:
        raise MalformedInput("the footer of the Arrow file tells of other batches than it holds; write it anew.")
    return tuple(rows[place] for place in batches)


def _footer(view: memoryview) -> int:
    """Return the offset of a file's footer in bytes."""
    if len(view) < 22 or bytes(view[-6:]) != _MAGIC:
        raise MalformedInput("an Arrow file without its footer: it is truncated. Send it whole.")
    begin = len(view) - 10 - int(struct.unpack("<i", view[-10:-6])[0])
    if not 8 <= begin <= len(view) - 10:
        raise MalformedInput("an Arrow file whose footer length is wrong: it is damaged. Write it anew.")
    return begin


def _messages(view: memoryview) -> Iterator[Message]:
    """Yield each message up to the end-of-stream marker."""
    at = 0
    while True:
        begin = at
        length = struct.unpack_from("<I", view, at)[0]
        at += 4
        # The marker is absent in streams written before Arrow 0.15.
        if length == _CONTINUATION:
            length = struct.unpack_from("<I", view, at)[0]
            at += 4
        if length == 0:
            break

        metadata = view[at : at + length]
        at += length
        root = FlatbufferTable.root(metadata)
        header = root.table(2)
        size = root.number(3, "<q")
        if header is None or len(metadata) < length or not 0 <= size <= len(view) - at:
            raise MalformedInput("the Arrow stream is truncated: a message is longer than what is left. Send it whole.")
        yield Message(begin, root.number(1, "<B"), header, root, length, view[at : at + size])
        at += size

    if any(view[at:]):
        raise MalformedInput(f"{len(view) - at} bytes follow the end of the Arrow stream; send one stream a request.")


class _MessageChecker:
    """Checks of messages one after another, with running totals.

    metadata_bytes: size of all metadata so far.
    """

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self.metadata_bytes = 0
        self._messages = 0
        self._batches = 0
        self._bytes = 0
        self._parts = 0
        self._text_bytes = 0
        self._values = 0
        self._buffer_bytes = 0
        self._column_of_dictionary: dict[int, str] = {}
        self._dictionaries: dict[int, int] = {}

    def check_message(self, message: Message) -> None:
        """Check the next message."""
        header = message.header
        size = 0
        self.metadata_bytes += message.size
        self.check_entries(message.root, 4)
        if message.kind == _SCHEMA:
            self.schema(header)
        elif message.kind == _DICTIONARY:
            number, rows = header.number(0, "<q"), header.table(1)
            if header.number(2, "<B"):
                name = self._column_of_dictionary.get(number, "")
                raise SchemaMismatch(f"column {name} has a delta dictionary; send whole ones.", column=name)
            self._dictionaries[number] = size = 0 if rows is None else self._unpacked_size(rows, message.body)
        else:
            size = self._unpacked_size(header, message.body)
            # pyarrow joins the dictionaries again for each batch after the first.
            size += sum(self._dictionaries.values()) if self._batches else 0
            self._batches += 1

        self._messages += 1
        self._check_bound(self._messages, MAX_BATCHES + 1, "record batches and dictionaries; join them")
        self._bytes += size
        self._check_bound(self._bytes, self._max_bytes, "bytes once unpacked; send fewer rows a request")
        small = f"values in {self._buffer_bytes} bytes, most of them null or boolean; send fewer rows a request"
        self._check_bound(self._values, 2 * self._buffer_bytes + MAX_SMALL_VALUES, small)

    def schema(self, schema: FlatbufferTable) -> None:
        """Check a schema."""
        if schema.number(0, "<h") != _NATIVE:
            raise MalformedInput("the Arrow stream is of the other byte order; write it in this machine's.")
        self.check_entries(schema, 2)
        for field in schema.tables(1):
            self._field(field)

    def check_entries(self, table: FlatbufferTable, field: int) -> bool:
        """Check the metadata entries in a field.

        Return True if one of them names an extension type.
        """
        extended = False
        for entry in table.tables(field):
            key = entry.text(0)
            self._count_parts(1, len(key) + len(entry.text(1)))
            extended |= key == b"ARROW:extension:name"
        return extended

    def _field(self, field: FlatbufferTable, column: str | None = None) -> None:
        """Check a field of a schema and the fields nested in it.

        `column` is the name of the column that a nested field belongs to.
        """
        self._count_parts(1, len(field.text(0)))
        name = _utf8(field.text(0))
        nested = column is not None
        column = name if column is None else column
        code = field.number(2, "<B")
        kind = _Type(code).name if 0 < code <= len(_Type) else "of an unknown type"
        if self.check_entries(field, 6):
            kind = "of an extension type"

        # A supported type has at most one child, so the second is enough to refuse.
        inner = list(islice(field.tables(5), 2))
        if kind not in _SUPPORTED or len(inner) != (kind in _LISTS) or (nested and inner):
            raise unsupported_type(column, f"of lists of {kind}" if nested else kind)

        encoding = field.table(4)
        if encoding is not None:
            self._column_of_dictionary[encoding.number(0, "<q")] = column
        for child in inner:
            self._field(child, column)

    def _count_parts(self, parts: int, text_bytes: int) -> None:
        """Count columns or metadata entries and the bytes of their text."""
        self._parts += parts
        self._check_bound(
            self._parts, MAX_PARTS, "columns, counted in each record batch, and entries of metadata; send fewer"
        )
        # A part takes at least 16 bytes of metadata, unless several references share it.
        self._text_bytes += 16 * parts + text_bytes
        if self._text_bytes > self.metadata_bytes:
            raise MalformedInput("the Arrow schema refers to one of its parts more than once; write it anew.")

    def _unpacked_size(self, rows: FlatbufferTable, body: memoryview) -> int:
        """Return the unpacked size of a record batch's or dictionary's buffers, in bytes."""
        nodes = rows.structs(1, 2)[:, 0].tolist()
        buffers = rows.structs(2, 2).tolist()
        self._count_parts(len(nodes), 0)

        packed = rows.table(3) is not None
        total = 0
        if min(nodes, default=0) < 0:
            raise MalformedInput("an Arrow message states a negative length; write the stream anew.")
        for offset, length in buffers:
            if offset < 0 or length < 0 or offset + length > len(body):
                raise MalformedInput("a buffer lies outside its Arrow message; write the stream anew.")
            size: int = struct.unpack_from("<q", body, offset)[0] if packed and length >= 8 else length
            if size < -1:
                raise MalformedInput("a compressed buffer states a negative size; write the stream anew.")
            # −1 says that a buffer is not compressed.
            total += length if size == -1 else size

        values: int = sum(nodes)
        self._values += values
        self._buffer_bytes += total
        return max(total, 4 * values)

    def _check_bound(self, count: int, limit: int | None, description: str) -> None:
        """Raise LimitExceeded if the count is above the limit."""
        if self._max_bytes is not None and limit is not None and count > limit:
            raise LimitExceeded(f"the batch holds more than {limit} {description}.", limit=limit)


def _utf8(text: memoryview) -> str:
    try:
        return str(text, "utf8")
    except UnicodeDecodeError as e:
        raise MalformedInput("the name of an Arrow column is not UTF-8; write the stream anew.") from e


def unsupported_type(column: str, kind: object) -> SchemaMismatch:
    """Return the error for a column of a type that no layout has."""
    return SchemaMismatch(
        f"column {column} is {kind}, which is not taken; send numbers, strings, bools, dates, timestamps, lists of these, "
        "or dictionaries of labels.",
        column=column,
    )
