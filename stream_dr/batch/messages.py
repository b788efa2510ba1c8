"""Check an Arrow stream before pyarrow reads it, and its record batches afterwards.

`read_checked_messages` checks the messages:

- The stream is complete, up to its end-of-stream marker.
- Each message begins with the marker of Arrow 0.15 and later.
- Each column has a supported type (`_SUPPORTED`).
- No dictionary is a delta (an addition to an earlier dictionary).
- The sum of the unpacked sizes of all buffers is within a limit. Nothing is unpacked before this
  check.

pyarrow alone would not be safe:

- If a stream is cut between two messages, pyarrow reads it as a shorter stream. So a truncated
  upload would be learned in part.
- pyarrow joins delta dictionaries again for every record batch.
- A few kilobytes of zstd can unpack to gigabytes.
- A small schema that refers to one field or one name thousands of times takes gigabytes.

The metadata of messages is a flatbuffer, which is read by `FlatbufferTable`. pyarrow's own
MessageReader cannot be used, because it copies everything that a message refers to, and shows
neither buffers nor deltas. This costs O(messages + columns of the schema). The contents of buffers
are not read, except the few bytes of a compressed buffer that state its unpacked size.

`refuse_invalid_batches` checks two things before Arrow's own full validation:

- Offsets. An array without rows has one offset. Arrow's full validation accepts any value there,
  and a wrong value crashes the process in Arrow's kernels.
- The sum of the lengths of all string views. Many views may refer to the same bytes, and Arrow
  reads these bytes for each view.

This costs one pass over offsets and views, then Arrow's full validation of UTF-8, dictionary
indices and null counts.
"""

import mmap
import struct
import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from stream_dr.errors import LimitExceeded, MalformedInput, SchemaMismatch

MAX_BATCHES = 1_000
"""Maximum number of record batches and dictionaries of a stream."""

MAX_COLUMNS_AND_ENTRIES = 1 << 17
"""Maximum number of columns and metadata entries of a stream, counted together.

A metadata entry is a pair of key and value. A column counts in the schema and again in each record
batch. pyarrow takes a few hundred bytes of memory for each column or entry.
"""

MAX_EXTRA_VALUES = 1 << 21
"""Number of values that any stream may have.

Two more values are allowed for each byte of the stream's buffers. The limit is needed because a
null or a boolean takes a bit or nothing in the stream, but eight bytes in memory.
"""

_CONTINUATION = 0xFFFFFFFF
_MAGIC = b"ARROW1"
FIRST_BYTES = (b"\xff\xff\xff\xff", _MAGIC)
"""First bytes of an Arrow stream and of an Arrow file. No JSON text begins with them."""

# Codes of types of messages, from the union MessageHeader in Arrow's Message.fbs.
_SCHEMA, _DICTIONARY, _RECORD_BATCH = 1, 2, 3
# Code of this machine's byte order, from the enum Endianness in Arrow's Schema.fbs.
_NATIVE = 0 if sys.byteorder == "little" else 1
# Codes of types of columns, from 1, in the order of the union Type in Arrow's Schema.fbs.
_Type = IntEnum(
    "_Type",
    "null int float binary string bool decimal date time timestamp interval list struct union fixed_size_binary "
    "fixed_size_list map duration large_binary large_string large_list run_end_encoded binary_view string_view list_view "
    "large_list_view",
)
_LISTS = ("list", "large_list", "fixed_size_list")
_SCALARS = ("null", "int", "float", "decimal", "bool", "date", "timestamp", "string", "large_string", "string_view")
_SUPPORTED = (*_SCALARS, *_LISTS)


class FlatbufferTable:
    """Reader of one table of a flatbuffer.

    The metadata of Arrow messages are flatbuffers. A flatbuffer has tables, and a table has
    fields. In all methods, `field` is the index of a field in the table's definition in Arrow's
    .fbs files, from 0. A read outside the buffer raises struct.error.

    buffer: bytes of the flatbuffer.
    table_offset: offset of the table in the buffer.
    """

    def __init__(self, buffer: memoryview, table_offset: int) -> None:
        # A table begins with its distance from its vtable, which comes before it in the buffer.
        # The vtable begins with its own size in bytes, and has the offset of each field.
        self._buffer = buffer
        self._table_offset = table_offset
        self._vtable = table_offset - struct.unpack_from("<i", buffer, table_offset)[0]
        if self._vtable < 0:
            raise struct.error("a table points before its buffer")
        self._size = struct.unpack_from("<H", buffer, self._vtable)[0]

    @classmethod
    def root(cls, buffer: memoryview) -> "FlatbufferTable":
        """Return the root table of a flatbuffer."""
        return cls(buffer, struct.unpack_from("<I", buffer, 0)[0])

    def number_or_zero(self, field_index: int, struct_format: str) -> int:
        """Return the number in a field of this table, or 0 if the field is absent.

        field_index: index of the field in the table's definition (.fbs file).
        struct_format: format of the number for `struct.unpack`, such as "<q".
        """
        at = self._field(field_index)
        if at:
            return int(struct.unpack_from(struct_format, self._buffer, at)[0])
        return 0

    def table(self, field_index: int) -> "FlatbufferTable | None":
        """Return the table in a field.

        If the field is absent, None is returned.
        """
        at = self._field(field_index)
        if at:
            return FlatbufferTable(self._buffer, self._follow_reference(at))
        return None

    def vector_of_tables(self, field_index: int) -> Iterator["FlatbufferTable"]:
        """Yield the tables of the vector in a field.

        A hostile vector may refer to one table several times. The table is then yielded several
        times.
        """
        # Each element of the vector is a reference of 4 bytes to a table.
        at, count = self._vector_place(field_index)
        for place in range(at, at + 4 * count, 4):
            yield FlatbufferTable(self._buffer, self._follow_reference(place))

    def text(self, field_index: int) -> memoryview:
        """Return the bytes of the string in a field.

        If the field is absent, no bytes are returned.
        """
        at, count = self._vector_place(field_index)
        return self._buffer[at : at + count]

    def structs_as_int64(self, field_index: int, words_per_struct: int) -> np.ndarray:
        """Return a field that is a list of structs as int64 (structs, words_per_struct).

        For example, a struct of an offset and a length, both int64, has two words.

        words_per_struct: size of a struct in words of 8 bytes. If several smaller numbers share a
            word, they stay together in one int64.
        """
        at, count = self._vector_place(field_index)
        if at + 8 * words_per_struct * count > len(self._buffer):
            raise struct.error("a vector is longer than its buffer")
        words = np.frombuffer(self._buffer, "<i8", words_per_struct * count, at)
        return words.reshape(count, words_per_struct)

    def _field(self, field_index: int) -> int:
        """Return the offset of a field's value in the buffer, 0 if it is absent."""
        # After 4 bytes of sizes, the vtable has an entry of 2 bytes for each field. An entry is the
        # offset of the value in the table, or 0. Fields after the end of the vtable are absent.
        entry = 4 + 2 * field_index
        if entry + 2 > self._size:
            return 0
        offset: int = struct.unpack_from("<H", self._buffer, self._vtable + entry)[0]
        if not offset:
            return 0
        return self._table_offset + offset

    def _follow_reference(self, reference_offset: int) -> int:
        """Return the place in the buffer to which the reference at a place points."""
        # A reference is a number in the buffer, the distance from its own place to its target.
        return reference_offset + int(struct.unpack_from("<I", self._buffer, reference_offset)[0])

    def _vector_place(self, field_index: int) -> tuple[int, int]:
        """Return where the vector in a field starts, and its number of elements.

        The start is an offset in bytes in this table's buffer. Both are 0 if the field is absent.

        field_index: index of the field in the table's definition (.fbs file).
        """
        at = self._field(field_index)
        if not at:
            return 0, 0

        # Follow the reference to the vector, which starts with its length.
        at = self._follow_reference(at)
        return at + 4, int(struct.unpack_from("<I", self._buffer, at)[0])


class Message(NamedTuple):
    """Message of an Arrow stream.

    Attributes
    ----------
    begin : int
        Offset of the message in the stream, in bytes.
    kind : int
        Type of the message: _SCHEMA, _DICTIONARY or _RECORD_BATCH.
    header : FlatbufferTable
        Metadata of the schema, dictionary or record batch.
    root : FlatbufferTable
        Metadata of the message as a whole. `header` is one of its fields.
    size : int
        Number of bytes of the metadata.
    body : memoryview
        Buffers of the message.
    """

    begin: int
    kind: int
    header: FlatbufferTable
    root: FlatbufferTable
    size: int
    body: memoryview


def strip_file_header_footer(stream_or_file: memoryview) -> memoryview:
    """Return the Arrow stream of an Arrow file or stream.

    An Arrow file is an Arrow stream between a header and a footer. Bytes that are already a stream
    are returned unchanged.

    stream_or_file: bytes of an Arrow file or an Arrow stream.

    Raises MalformedInput if the footer of a file is damaged.
    """
    if bytes(stream_or_file[:6]) == _MAGIC:
        return stream_or_file[8 : _footer_offset(stream_or_file)]
    return stream_or_file


def read_checked_messages(stream: memoryview, max_unpacked_bytes: int | None = None) -> list[Message]:
    """Check the messages of an Arrow stream and return them.

    The first message is the schema. Dictionaries and record batches follow.

    Parameters
    ----------
    stream : memoryview
        The stream, which must end with an end-of-stream marker.
    max_unpacked_bytes : int or None
        Limit on the number of unpacked bytes. Each value counts as at least four bytes. A
        dictionary (the distinct texts of a column) counts once for each record batch that uses it.
        If `max_unpacked_bytes` is not None, the limits MAX_BATCHES, MAX_COLUMNS_AND_ENTRIES and
        MAX_EXTRA_VALUES of this module apply too. None means no limits, for trusted files.

    Raises
    ------
    MalformedInput
        The stream is truncated or damaged.
    SchemaMismatch
        A column has an unsupported type, or a dictionary is a delta (an addition to an earlier
        dictionary).
    LimitExceeded
        The stream exceeds a limit.
    """
    checker = _MessageChecker(max_unpacked_bytes)
    messages: list[Message] = []
    try:
        for message in _messages(stream):
            # The first message must be the schema, and later ones must be data.
            # The checker raises an error if a type is not supported or a limit is exceeded.
            expected: tuple[int, ...] = (_SCHEMA,)
            if messages:
                expected = (_DICTIONARY, _RECORD_BATCH)
            if message.kind not in expected:
                raise MalformedInput("an Arrow stream is one schema, then dictionaries and batches; write it anew.")
            checker.check_message(message)
            messages.append(message)
    except struct.error as e:
        raise MalformedInput(
            f"{len(stream)} bytes are not a whole Arrow stream: it ends before its end-of-stream marker. Close the "
            "writer and send everything it wrote."
        ) from e

    if not messages:
        raise MalformedInput("the Arrow stream holds no schema; write it anew.")
    return messages


def checked_footer_row_counts(arrow_file: memoryview, messages: list[Message]) -> tuple[int, ...]:
    """Check the footer of an Arrow file.

    Returns the number of rows of each record batch, in the order of the footer's list.

    arrow_file: bytes of the file.
    messages: messages of the stream in the file, from `read_checked_messages`.

    Raises MalformedInput if the footer is damaged, or if it does not list exactly the stream's
    record batches and dictionaries. Raises SchemaMismatch if a column in the footer's schema has
    an unsupported type.
    """
    # The footer has the offsets of messages in the file. `m.begin` is the offset of a message in
    # the stream, which starts at byte 8 of the file.
    begin = _footer_offset(arrow_file)
    expected_dictionaries = [m.begin + 8 for m in messages if m.kind == _DICTIONARY]
    # `rows` has the number of rows (field 0 of a record batch) by offset, in order of offsets.
    rows = {m.begin + 8: m.header.number_or_zero(0, "<q") for m in messages if m.kind == _RECORD_BATCH}

    # Read the footer's schema and its lists of dictionaries and record batches.
    # The last 10 bytes of the file are the footer's length and the marker ARROW1.
    # Numbers of fields (4, 1, 2 and 3) are those of the table Footer in Arrow's File.fbs.
    # An element of the lists has 3 words of 8 bytes. The first word is the offset of a message.
    checker = _MessageChecker(max_unpacked_bytes=None)
    try:
        footer = FlatbufferTable.root(arrow_file[begin:-10])
        # The checker refuses texts that are longer than all metadata, here the footer.
        checker.metadata_bytes = len(arrow_file) - 10 - begin
        checker.check_metadata(footer, 4)
        footer_schema = footer.table(1)
        if footer_schema is not None:
            checker.check_schema(footer_schema)
        dictionaries = footer.structs_as_int64(2, 3)[:, 0].tolist()
        batches = footer.structs_as_int64(3, 3)[:, 0].tolist()
    except struct.error as e:
        raise MalformedInput("the footer of the Arrow file is damaged; write it anew.") from e

    # The footer may list the record batches in another order than the stream has them.
    if sorted(batches) != list(rows) or sorted(dictionaries) != expected_dictionaries:
        raise MalformedInput("the footer of the Arrow file tells of other batches than it holds; write it anew.")
    return tuple(rows[place] for place in batches)


def _footer_offset(arrow_file: memoryview) -> int:
    """Return the offset of an Arrow file's footer, in bytes.

    Raises MalformedInput if the file is truncated or the offset is wrong.
    """
    # A file has a header of 8 bytes, a stream, a footer, the footer's length (4 bytes), and ARROW1
    # (6 bytes). The footer has at least 4 bytes, so a file has at least 22.
    if len(arrow_file) < 22 or bytes(arrow_file[-6:]) != _MAGIC:
        raise MalformedInput("an Arrow file without its footer: it is truncated. Send it whole.")
    begin = len(arrow_file) - 10 - int(struct.unpack("<i", arrow_file[-10:-6])[0])
    if not 8 <= begin <= len(arrow_file) - 10:
        raise MalformedInput("an Arrow file whose footer length is wrong: it is damaged. Write it anew.")
    return begin


def _messages(stream: memoryview) -> Iterator[Message]:
    """Yield the messages of an Arrow stream.

    The stream ends at its end-of-stream marker. Raises struct.error or MalformedInput if the
    stream is truncated. Raises MalformedInput for the format before Arrow 0.15.
    """
    at = 0
    while True:
        begin = at
        # Since Arrow 0.15, a message begins with a continuation marker, and then its length. Older
        # messages, which begin with the length, are refused.
        marker, length = struct.unpack_from("<II", stream, at)
        at += 8
        if marker != _CONTINUATION:
            raise MalformedInput(
                f"no Arrow message begins at byte {begin}: it lacks the marker ffffffff of Arrow 0.15 and later. Write "
                "the stream with such a version, without its legacy format."
            )
        if length == 0:
            break

        # A message has metadata of `length` bytes, then a body of `size` bytes. The metadata are a
        # table Message of Arrow's Message.fbs: field 1 is the type, 2 the header, 3 the size.
        # If the stream is cut within the metadata, the slice is shorter than `length`.
        metadata = stream[at : at + length]
        at += length
        root = FlatbufferTable.root(metadata)
        header = root.table(2)
        size = root.number_or_zero(3, "<q")
        if header is None or len(metadata) < length or not 0 <= size <= len(stream) - at:
            raise MalformedInput("the Arrow stream is truncated: a message is longer than what is left. Send it whole.")
        kind = root.number_or_zero(1, "<B")
        body = stream[at : at + size]
        yield Message(begin, kind, header, root, length, body)
        at += size

    # Bytes of zero after the end are padding.
    if any(stream[at:]):
        raise MalformedInput(f"{len(stream) - at} bytes follow the end of the Arrow stream; send one stream a request.")


class _MessageChecker:
    """Checker of the messages of one Arrow stream.

    The checker raises an error for an unsupported type of column. It also adds up sizes and counts
    over all messages, and compares the totals with the limits after each message.

    max_unpacked_bytes: limit on the number of unpacked bytes. None disables all limits.

    The attribute `metadata_bytes` is the number of bytes of all metadata so far.
    """

    def __init__(self, max_unpacked_bytes: int | None) -> None:
        # Totals over all messages so far. Parts are columns and metadata entries, and `_text_bytes`
        # are the bytes that the metadata needs for them. `_values` is the number of values in all
        # columns, and `_buffer_bytes` the unpacked size of their buffers. `_bytes` is the memory
        # that pyarrow needs, which may be larger.
        self._max_bytes = max_unpacked_bytes
        self.metadata_bytes = 0
        self._messages = 0
        self._batches = 0
        self._bytes = 0
        self._parts = 0
        self._text_bytes = 0
        self._values = 0
        self._buffer_bytes = 0
        # Name of the column, and unpacked number of bytes, by the id of the dictionary.
        self._column_of_dictionary: dict[int, str] = {}
        self._dictionaries: dict[int, int] = {}

    def check_message(self, message: Message) -> None:
        """Check the next message, and count its bytes and values.

        The counts of all messages so far are compared with the limits of the stream.

        Raises MalformedInput, SchemaMismatch or LimitExceeded.
        """
        # The root of a message has metadata entries in field 4.
        header = message.header
        size = 0
        self.metadata_bytes += message.size
        self.check_metadata(message.root, 4)

        # Set `size` to the bytes that pyarrow takes to unpack the message (0 without rows).
        if message.kind == _SCHEMA:
            self.check_schema(header)
        elif message.kind == _DICTIONARY:
            # Fields of the table DictionaryBatch: 0 is the id, 1 the values, 2 True for a delta.
            dictionary_id = header.number_or_zero(0, "<q")
            rows = header.table(1)
            if header.number_or_zero(2, "<B"):
                name = self._column_of_dictionary.get(dictionary_id, "")
                raise SchemaMismatch(f"column {name} has a delta dictionary; send whole ones.", column=name)
            if rows is not None:
                size = self._count_unpacked_bytes(rows, message.body)
            self._dictionaries[dictionary_id] = size
        # Any other message is a record batch.
        else:
            size = self._count_unpacked_bytes(header, message.body)
            # pyarrow copies all dictionaries again for each record batch after the first, so their
            # bytes count again.
            if self._batches:
                size += sum(self._dictionaries.values())
            self._batches += 1

        # Add the message to the totals, and compare the totals with the limits.
        # `_values` and `_buffer_bytes` already include the message, by `_count_unpacked_bytes`.
        self._messages += 1
        # The schema is a message too, so one more message than MAX_BATCHES is allowed.
        self._enforce_limit(self._messages, MAX_BATCHES + 1, "record batches and dictionaries; join them")
        self._bytes += size
        self._enforce_limit(self._bytes, self._max_bytes, "bytes once unpacked; send fewer rows a request")
        # Values take more than half a byte, except nulls and booleans. So allow two values a byte,
        # and MAX_EXTRA_VALUES more.
        small = f"values in {self._buffer_bytes} bytes, most of them null or boolean; send fewer rows a request"
        self._enforce_limit(self._values, 2 * self._buffer_bytes + MAX_EXTRA_VALUES, small)

    def check_schema(self, schema_table: FlatbufferTable) -> None:
        """Check the byte order, metadata and columns of a schema.

        Raises MalformedInput, SchemaMismatch for an unsupported type, or LimitExceeded.

        schema_table: metadata of the schema message.
        """
        # Fields of the table Schema in Arrow's Schema.fbs: 0 is the byte order, 1 the fields (the
        # columns), 2 the metadata.
        if schema_table.number_or_zero(0, "<h") != _NATIVE:
            raise MalformedInput("the Arrow stream is of the other byte order; write it in this machine's.")
        self.check_metadata(schema_table, 2)
        for field in schema_table.vector_of_tables(1):
            self._check_field(field)

    def check_metadata(self, parent_table: FlatbufferTable, field_index: int) -> bool:
        """Check the metadata in a field of a table.

        The metadata are (key, value) pairs of strings. Their number and bytes are added to those of
        the whole message. An error is raised if these are too large.

        Returns True if one of the keys says that a column is of an Arrow extension type.
        """
        extended = False
        for entry in parent_table.vector_of_tables(field_index):
            key = entry.text(0)
            self._count_entries(1, len(key) + len(entry.text(1)))
            extended |= key == b"ARROW:extension:name"
        return extended

    def _check_field(self, field: FlatbufferTable, enclosing_column: str | None = None) -> None:
        """Check a field of a schema and its nested fields.

        A field is a column, or describes the elements of a column of lists.

        field: metadata of the field.
        enclosing_column: name of the column that `field` is nested in. None if `field` is itself a
            column.

        Raises SchemaMismatch if the field's type is not supported.
        """
        # Fields of the table Field in Arrow's Schema.fbs: 0 is the name, 2 the code of the type,
        # 4 the dictionary encoding, 5 the nested fields, 6 the metadata.
        text = field.text(0)
        self._count_entries(1, len(text))
        try:
            column = str(text, "utf8")
        except UnicodeDecodeError as e:
            raise MalformedInput("the name of an Arrow column is not UTF-8; write the stream anew.") from e

        # `kind` is the name of the type. A description in its place is refused as no such name.
        code = field.number_or_zero(2, "<B")
        kind = "of an unknown type"
        if 0 < code <= len(_Type):
            kind = _Type(code).name
        if self.check_metadata(field, 6):
            kind = "of an extension type"

        # Read up to two nested fields, because a supported type has at most one: a list has one,
        # for its elements, and other types have none. The elements of a list are no lists.
        inner = list(islice(field.vector_of_tables(5), 2))
        n_needed = 1 if kind in _LISTS else 0
        is_supported = kind in _SUPPORTED and len(inner) == n_needed
        shown = kind
        if enclosing_column is not None:
            column = enclosing_column
            shown = f"of lists of {kind}"
            is_supported = is_supported and not inner
        if not is_supported:
            raise unsupported_type_error(column, shown)

        # If the column is dictionary-encoded, store its name under the id of the dictionary.
        # The error messages of `check_message` need the name of the column.
        encoding = field.table(4)
        if encoding is not None:
            self._column_of_dictionary[encoding.number_or_zero(0, "<q")] = column
        for child in inner:
            self._check_field(child, column)

    def _count_entries(self, n_parts: int, n_text_bytes: int) -> None:
        """Count columns or metadata entries, and check the totals.

        A metadata entry is a pair of key and value.

        n_parts: number of columns or entries to add.
        n_text_bytes: number of bytes of all names and values of these columns or entries.

        Raises LimitExceeded if there are more than MAX_COLUMNS_AND_ENTRIES. Raises MalformedInput
        if the metadata has fewer bytes than these columns and entries need.
        """
        self._parts += n_parts
        parts = "columns, counted in each record batch, and entries of metadata; send fewer"
        self._enforce_limit(self._parts, MAX_COLUMNS_AND_ENTRIES, parts)
        # Each column, and each pair of key and value, takes at least 16 bytes plus its texts. If
        # these sum to more than the bytes of the metadata, several of them refer to the same bytes.
        # A few bytes could so be read as gigabytes.
        self._text_bytes += 16 * n_parts + n_text_bytes
        if self._text_bytes > self.metadata_bytes:
            raise MalformedInput("the Arrow schema refers to one of its parts more than once; write it anew.")

    def _count_unpacked_bytes(self, batch_metadata: FlatbufferTable, message_body: memoryview) -> int:
        """Count a message's values and the unpacked bytes of its buffers.

        Both are added to the totals of the stream, `_values` and `_buffer_bytes`. Returns the bytes
        that the message takes in memory, at least four for each value: nulls and booleans take less
        in the stream than in memory.

        batch_metadata: metadata of a record batch. The values of a dictionary are a record batch
            too.
        message_body: the buffers of the message.

        Raises MalformedInput if a buffer lies outside `message_body` or a size is negative.
        """
        # Fields of the table RecordBatch in Arrow's Message.fbs: 1 has the lengths of columns
        # (`nodes`), 2 the offsets and lengths of buffers, 3 the compression.
        nodes = batch_metadata.structs_as_int64(1, 2)[:, 0].tolist()
        buffers = batch_metadata.structs_as_int64(2, 2).tolist()
        self._count_entries(len(nodes), 0)

        # `packed` is True if the message's buffers are compressed.
        # Each buffer then starts with its unpacked size, or with −1 if that buffer is not packed.
        packed = batch_metadata.table(3) is not None
        total = 0
        if min(nodes, default=0) < 0:
            raise MalformedInput("an Arrow message states a negative length; write the stream anew.")
        for offset, length in buffers:
            if offset < 0 or length < 0 or offset + length > len(message_body):
                raise MalformedInput("a buffer lies outside its Arrow message; write the stream anew.")
            # A buffer of less than 8 bytes has no room for an unpacked size.
            size: int = length
            if packed and length >= 8:
                size = struct.unpack_from("<q", message_body, offset)[0]
            if size == -1:
                size = length
            if size < 0:
                raise MalformedInput("a compressed buffer states a negative size; write the stream anew.")
            total += size

        values: int = sum(nodes)
        self._values += values
        self._buffer_bytes += total
        return max(total, 4 * values)

    def _enforce_limit(self, count: int, limit: int | None, counted_noun: str) -> None:
        """Raise LimitExceeded if a count exceeds a limit."""
        # limit: the limit. None means no limit. Nothing is raised if the checker has no limits.
        # counted_noun: word for the counted things in the error message.
        # Without a limit on bytes (`_max_bytes` is None), no other limit applies.
        if self._max_bytes is not None and limit is not None and count > limit:
            raise LimitExceeded(f"the batch holds more than {limit} {counted_noun}.", limit=limit)


def unsupported_type_error(column_name: str, type_description: object) -> SchemaMismatch:
    """Return the error for a column with an unsupported type.

    type_description: the type, in words or as Arrow prints it.
    """
    message = (
        f"column {column_name} is {type_description}, which is not taken; send numbers, strings, bools, dates, "
        "timestamps, lists of these, or dictionaries of labels."
    )
    return SchemaMismatch(message, column=column_name)


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
_DICTIONARY_TYPE = pa.dictionary(pa.int8(), pa.null()).id
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
        if kind.id == _DICTIONARY_TYPE:
            kind = kind.value_type
        if kind.id not in _SCALAR and not pa.types.is_decimal(kind):
            raise unsupported_type_error(field.name, field.type)


def refuse_invalid_batches(batches: Sequence[pa.RecordBatch], max_view_bytes: int | None = None) -> None:
    """Raise MalformedInput or LimitExceeded for invalid record batches.

    MalformedInput means that an array points outside its buffers or does not pass Arrow's full
    validation. LimitExceeded means that all string views together are longer than
    `max_view_bytes`.

    Parameters
    ----------
    batches : sequence of RecordBatch
        Batches whose column types `refuse_unsupported_types` has accepted.
    max_view_bytes : int or None
        Limit on the sum of the lengths of all string views, in bytes. None means 64 MiB for each
        batch.
    """
    if max_view_bytes is None:
        max_view_bytes = _MAX_VIEW_BYTES * len(batches)
    try:
        # Check the sizes of buffers by Arrow's quick validation. The next checks rely on them.
        # `validate` raises pa.ArrowInvalid, which becomes MalformedInput below.
        for batch in batches:
            batch.validate()
        _limit_string_view_bytes(batches, max_view_bytes)

        # Check offsets first: full validation accepts a wrong offset of an array without rows.
        for batch in batches:
            for name, array in _non_numeric_arrays(batch):
                _check_array_offsets(array, name)
            batch.validate(full=True)
    except (pa.ArrowException, MemoryError) as e:
        message = f"the record batches are not valid Arrow ({first_message_line(e)}); write them anew."
        raise MalformedInput(message) from e


def first_message_line(error: BaseException) -> str:
    """Return the first line of an error's message.

    At most 200 characters are returned.
    """
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:200]


def _non_numeric_arrays(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield (column name, array) for each non-numeric array.

    Non-numeric arrays are arrays of strings, lists and dictionaries. Columns of numbers, bools,
    dates and nulls are skipped. For a column of lists, the array of all list elements is also
    yielded. For a dictionary-encoded column, the dictionary is also yielded.
    """
    for number, field in enumerate(batch.schema):
        if field.type.id in _NUMERIC:
            continue
        # Yield the column, and then the elements or the dictionary inside, as long as there are
        # any.
        array = batch.column(number)
        while True:
            yield field.name, array
            if array.type.id in _LIST_OFFSETS or array.type.id == _FIXED_SIZE_LIST:
                array = array.values
            elif array.type.id == _DICTIONARY_TYPE:
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
        for name, array in _non_numeric_arrays(batch):
            if array.type.id != _STRING_VIEW or not len(array):
                continue
            total += int(_view_lengths(array).sum(dtype=np.int64))
            if total > max_view_bytes:
                message = (
                    f"the strings of column {name} have more than {max_view_bytes} bytes; send fewer rows a request."
                )
                raise LimitExceeded(message, limit=max_view_bytes)


def _view_lengths(array: pa.Array) -> np.ndarray:
    """Return the length of each string of a string-view array, in bytes."""
    # A view has four int32 (16 bytes), of which the first is the length. A negative length counts
    # as 0 here, and is refused later, when Arrow validates the batch.
    views = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)
    return np.maximum(views[::4], 0)


def _check_array_offsets(array: pa.Array, column_name: str) -> None:
    """Raise MalformedInput unless an array's offsets are valid.

    Offsets must ascend and lie within the array's values. Arrays without offsets are ignored.

    column_name: name of the column, for the error message.
    """
    kind = array.type.id
    if kind not in _STRING_OFFSETS and kind not in _LIST_OFFSETS:
        return

    # Buffer 1 has the offsets, and buffer 2 the bytes of strings.
    # Arrow allows an array without rows to have an empty buffer of offsets.
    buffers = array.buffers()
    buffer = buffers[1]
    if not len(array) and (buffer is None or not buffer.size):
        return

    # An array has one offset more than rows, of numpy's type `dtype`. If the array is a slice, its
    # first row is the row `array.offset` of the buffers.
    dtype = np.dtype(_STRING_OFFSETS.get(kind) or _LIST_OFFSETS[kind])
    needed = (array.offset + len(array) + 1) * dtype.itemsize
    if buffer is None or buffer.size < needed:
        raise MalformedInput(f"column {column_name} has fewer offsets than rows; write it anew.")

    # Compare the offsets with the size of the array's values.
    # Offsets of lists count elements, and offsets of strings count bytes.
    offsets = np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)
    size = 0
    if kind in _LIST_OFFSETS:
        size = len(array.values)
    elif buffers[2] is not None:
        size = buffers[2].size
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise MalformedInput(f"column {column_name} has offsets that fall, or lie outside its values; write it anew.")
