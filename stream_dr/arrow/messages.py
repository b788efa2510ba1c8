"""messages: what the messages of an Arrow stream say of themselves, looked at before pyarrow sees any of them.

The framing must be whole up to the end-of-stream marker, types those of the layout, dictionaries whole; what buffers unpack
to is added up before anything is allocated.

Cost: O(messages + columns of the schema); no body is touched, but for the sizes of compressed buffers.

Why this way: pyarrow takes a stream cut between two messages for a shorter one, so that a truncated upload would be learned
in part; it joins delta dictionaries anew for every batch; a few kilobytes of zstd unpack to gigabytes, and so does a schema
that refers to one field, or one name, thousands of times. pyarrow's own MessageReader copies what a message refers to when
it opens it, and tells neither buffers nor deltas: hence Table.
"""

import struct
import sys
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

import numpy as np

from stream_dr.errors import LimitExceeded, MalformedInput, SchemaMismatch

MOST_BATCHES = 1_000
"""Record batches and dictionaries of a body."""

MOST_PARTS = 1 << 17
"""Columns of a body, counted in its schema and again in each record batch, and entries of metadata: each is a few hundred
bytes in pyarrow."""

SMALL_VALUES = 1 << 21
"""Nulls and booleans of a body, which take eight bytes each once read, whatever they take in the body; other values take a
byte of it at least, of which two may be such."""

_CONTINUATION = 0xFFFFFFFF
_MAGIC = b"ARROW1"
_SCHEMA, _DICTIONARY, _RECORD_BATCH = 1, 2, 3  # MessageHeader in Arrow's Message.fbs
_NATIVE = 0 if sys.byteorder == "little" else 1  # Endianness in Arrow's Schema.fbs
_Type = IntEnum(
    "_Type",
    "null int float binary string bool decimal date time timestamp interval list struct union fixed_size_binary "
    "fixed_size_list map duration large_binary large_string large_list run_end_encoded binary_view string_view list_view "
    "large_list_view",
)  # Type in Arrow's Schema.fbs
_LISTS = ("list", "large_list", "fixed_size_list")
_TAKEN = ("null", "int", "float", "bool", "date", "timestamp", "string", "large_string", "string_view", *_LISTS)


class Table:
    """A flatbuffer's table, of which Arrow's metadata is made: where its fields are, by their place in the schema language's
    table, from 0. Every read outside the buffer is a struct.error."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._vtable = at - struct.unpack_from("<i", buffer, at)[0]
        if self._vtable < 0:
            raise struct.error("a table points before its buffer")
        self._size = struct.unpack_from("<H", buffer, self._vtable)[0]

    @classmethod
    def root(cls, buffer: memoryview) -> "Table":
        """The table that a buffer is of."""
        return cls(buffer, struct.unpack_from("<I", buffer, 0)[0])

    def number(self, field: int, code: str) -> int:
        """A number of struct's format `code`; 0 where it is left out."""
        at = self._field(field)
        return int(struct.unpack_from(code, self._buffer, at)[0]) if at else 0

    def table(self, field: int) -> "Table | None":
        """A table, or None."""
        at = self._field(field)
        return Table(self._buffer, self._follow(at)) if at else None

    def tables(self, field: int) -> Iterator["Table"]:
        """A vector of tables, one by one: several may be the same one."""
        at, count = self._vector(field)
        for place in range(at, at + 4 * count, 4):
            yield Table(self._buffer, self._follow(place))

    def text(self, field: int) -> memoryview:
        """The bytes of a string."""
        at, count = self._vector(field)
        return self._buffer[at : at + count]

    def structs(self, field: int, words: int) -> np.ndarray:
        """A vector of structs of so many int64 (count, words); smaller numbers share a word."""
        at, count = self._vector(field)
        if at + 8 * words * count > len(self._buffer):
            raise struct.error("a vector is longer than its buffer")
        return np.frombuffer(self._buffer, "<i8", words * count, at if count else 0).reshape(count, words)

    def _field(self, field: int) -> int:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        offset = struct.unpack_from("<H", self._buffer, self._vtable + entry)[0]
        return self._at + offset if offset else 0

    def _follow(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self._buffer, at)[0])

    def _vector(self, field: int) -> tuple[int, int]:
        """Where a vector's first element is, and how many it has."""
        at = self._field(field)
        if not at:
            return 0, 0
        at = self._follow(at)
        return at + 4, int(struct.unpack_from("<I", self._buffer, at)[0])


class Message(NamedTuple):
    """Where a message begins in the stream, its kind, what it says of itself, in how many bytes; its body."""

    begin: int
    kind: int
    header: Table
    root: Table
    size: int
    body: memoryview


def stream_in(view: memoryview) -> memoryview:
    """The stream inside a file, or the stream itself. Raises MalformedInput."""
    return view[8 : _footer(view)] if bytes(view[:6]) == _MAGIC else view


def check_messages(view: memoryview, max_bytes: int | None = None) -> list[Message]:
    """The messages of a stream up to its end-of-stream marker; the first is its schema.

    max_bytes bounds the bytes once unpacked, where a value counts as four at least and dictionaries count again for each
    record batch but the first; with it go MOST_BATCHES, MOST_PARTS and SMALL_VALUES. None: no bound, for files.
    Raises MalformedInput, SchemaMismatch (a type that is not the layout's, a delta dictionary) or LimitExceeded.
    """
    seen, messages = _Seen(max_bytes), list[Message]()
    try:
        for message in _messages(view):
            if (message.kind == _SCHEMA) == bool(messages) or message.kind not in (_SCHEMA, _DICTIONARY, _RECORD_BATCH):
                raise MalformedInput("an Arrow stream is one schema, then dictionaries and batches; write it anew.")
            seen.message(message)
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
    """Rows of each record batch in the order of a file's footer; `messages`: those of the file.

    Raises MalformedInput where the footer tells of others, and what a schema may raise.
    """
    begin = _footer(view)
    seen, coded = _Seen(None), [m.begin + 8 for m in messages if m.kind == _DICTIONARY]
    rows = {m.begin + 8: m.header.number(0, "<q") for m in messages if m.kind == _RECORD_BATCH}
    try:
        footer = Table.root(view[begin:-10])
        seen.metadata_bytes = len(view) - 10 - begin
        seen.entries(footer, 4)
        schema = footer.table(1)
        if schema is not None:
            seen.schema(schema)
        dictionaries, batches = (footer.structs(field, 3)[:, 0].tolist() for field in (2, 3))
    except struct.error as e:
        raise MalformedInput("the footer of the Arrow file is damaged; write it anew.") from e
    if sorted(batches) != list(rows) or sorted(dictionaries) != coded:
        raise MalformedInput("the footer of the Arrow file tells of other batches than it holds; write it anew.")
    return tuple(rows[place] for place in batches)


def _footer(view: memoryview) -> int:
    """Where a file's footer begins."""
    if len(view) < 22 or bytes(view[-6:]) != _MAGIC:
        raise MalformedInput("an Arrow file without its footer: it is truncated. Send it whole.")
    begin = len(view) - 10 - int(struct.unpack("<i", view[-10:-6])[0])
    if not 8 <= begin <= len(view) - 10:
        raise MalformedInput("an Arrow file whose footer length is wrong: it is damaged. Write it anew.")
    return begin


def _messages(view: memoryview) -> Iterator[Message]:
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
        root = Table.root(metadata)
        header, size = root.table(2), root.number(3, "<q")
        if header is None or len(metadata) < length or not 0 <= size <= len(view) - at:
            raise MalformedInput("the Arrow stream is truncated: a message is longer than what is left. Send it whole.")
        yield Message(begin, root.number(1, "<B"), header, root, length, view[at : at + size])
        at += size
    if any(view[at:]):
        raise MalformedInput(f"{len(view) - at} bytes follow the end of the Arrow stream; send one stream a request.")


class _Seen:
    """What the messages looked at so far add up to. metadata_bytes: what their metadata takes."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes, self.metadata_bytes = max_bytes, 0
        self._messages = self._batches = self._bytes = self._parts = self._told = self._values = self._sent = 0
        self._coded: dict[int, str] = {}
        self._dictionaries: dict[int, int] = {}

    def message(self, message: Message) -> None:
        """Look at the next message."""
        header, size = message.header, 0
        self.metadata_bytes += message.size
        self.entries(message.root, 4)
        if message.kind == _SCHEMA:
            self.schema(header)
        elif message.kind == _DICTIONARY:
            number, rows = header.number(0, "<q"), header.table(1)
            if header.number(2, "<B"):
                name = self._coded.get(number, "")
                raise SchemaMismatch(f"column {name} has a delta dictionary; send whole ones.", column=name)
            self._dictionaries[number] = size = 0 if rows is None else self._unpacked(rows, message.body)
        else:
            size = self._unpacked(header, message.body)
            size += sum(self._dictionaries.values()) if self._batches else 0
            self._batches += 1
        self._messages += 1
        self._bound(self._messages, MOST_BATCHES + 1, "record batches and dictionaries; join them")
        self._bytes += size
        self._bound(self._bytes, self._max_bytes, "bytes once unpacked; send fewer rows a request")
        small = f"values in {self._sent} bytes, most of them null or boolean; send fewer rows a request"
        self._bound(self._values, 2 * self._sent + SMALL_VALUES, small)

    def schema(self, schema: Table) -> None:
        """Look at a schema."""
        if schema.number(0, "<h") != _NATIVE:
            raise MalformedInput("the Arrow stream is of the other byte order; write it in this machine's.")
        self.entries(schema, 2)
        for field in schema.tables(1):
            self._field(field)

    def entries(self, table: Table, field: int) -> bool:
        """Look at the entries of metadata in a field; whether one tells of an extension type."""
        extended = False
        for entry in table.tables(field):
            key = entry.text(0)
            self._count(1, len(key) + len(entry.text(1)))
            extended |= key == b"ARROW:extension:name"
        return extended

    def _field(self, field: Table, column: str | None = None) -> None:
        """Look at a field of a schema and, with the name of its column, at what is within it."""
        self._count(1, len(field.text(0)))
        within, name = column is not None, _utf8(field.text(0))
        column = name if column is None else column
        code = field.number(2, "<B")
        kind = _Type(code).name if 0 < code <= len(_Type) else "of an unknown type"
        if self.entries(field, 6):
            kind = "of an extension type"
        inner = list(islice(field.tables(5), 2))
        if kind not in _TAKEN or len(inner) != (kind in _LISTS) or (within and inner):
            raise not_taken(column, f"of lists of {kind}" if within else kind)
        coding = field.table(4)
        if coding is not None:
            self._coded[coding.number(0, "<q")] = column
        for child in inner:
            self._field(child, column)

    def _count(self, parts: int, told: int) -> None:
        """Count columns or entries, in which so many bytes of text are told."""
        self._parts += parts
        self._bound(
            self._parts, MOST_PARTS, "columns, counted in each record batch, and entries of metadata; send fewer"
        )
        self._told += 16 * parts + told
        if self._told > self.metadata_bytes:
            raise MalformedInput("the Arrow schema refers to one of its parts more than once; write it anew.")

    def _unpacked(self, rows: Table, body: memoryview) -> int:
        """Bytes that the buffers of a record batch or dictionary take once unpacked."""
        nodes, buffers = rows.structs(1, 2)[:, 0].tolist(), rows.structs(2, 2).tolist()
        self._count(len(nodes), 0)
        packed, total = rows.table(3) is not None, 0
        if min(nodes, default=0) < 0:
            raise MalformedInput("an Arrow message states a negative length; write the stream anew.")
        for offset, length in buffers:
            if offset < 0 or length < 0 or offset + length > len(body):
                raise MalformedInput("a buffer lies outside its Arrow message; write the stream anew.")
            size = struct.unpack_from("<q", body, offset)[0] if packed and length >= 8 else length
            if size < -1:
                raise MalformedInput("a compressed buffer states a negative size; write the stream anew.")
            total += length if size == -1 else size
        self._values += sum(nodes)
        self._sent += total
        return max(total, 4 * sum(nodes))

    def _bound(self, count: int, most: int | None, what: str) -> None:
        if self._max_bytes is not None and most is not None and count > most:
            raise LimitExceeded(f"the batch holds more than {most} {what}.", limit=most)


def _utf8(text: memoryview) -> str:
    try:
        return str(text, "utf8")
    except UnicodeDecodeError as e:
        raise MalformedInput("the name of an Arrow column is not UTF-8; write the stream anew.") from e


def not_taken(column: str, kind: object) -> SchemaMismatch:
    """The error for a column of a type that no layout has."""
    return SchemaMismatch(
        f"column {column} is {kind}, which is not taken; send numbers, strings, bools, dates, timestamps, lists of these, "
        "or dictionaries of labels.",
        column=column,
    )
