"""Arrow streams taken apart into dicts and lists, and put together again from any: what pyarrow's writer would never write.

    stream = unpacked(body)                     # [{"header": {"table": "Schema", …}, "body": b""}, …]
    stream[1]["header"]["nodes"][0][0] = -1     # a negative length
    packed(stream)

A table is a dict of its fields by name, and of "table", which it is; fields that are left out keep their defaults. A dict or
bytes that stands in several places is written once and referred to several times where flatbuffers allow (forward).
"""

import struct
from typing import Any

Part = dict[str, Any]

LARGEST = 1 << 24
"""Bytes after which no further message is written."""

_NUMBERS = {"bool": "<B", "byte": "<b", "ubyte": "<B", "short": "<h", "int": "<i", "long": "<q"}
_HEADERS = (None, "Schema", "DictionaryBatch", "RecordBatch", "Tensor", "SparseTensor")
TYPES = (
    None,
    *(
        "Null",
        "Int",
        "FloatingPoint",
        "Binary",
        "Utf8",
        "Bool",
        "Decimal",
        "Date",
        "Time",
        "Timestamp",
        "Interval",
        "List",
    ),
    *(
        "Struct",
        "Union",
        "FixedSizeBinary",
        "FixedSizeList",
        "Map",
        "Duration",
        "LargeBinary",
        "LargeUtf8",
        "LargeList",
    ),
    *("RunEndEncoded", "BinaryView", "Utf8View", "ListView", "LargeListView"),
)
"""Types of fields, by their number in Arrow's Schema.fbs."""

TABLES: dict[str, dict[str, str]] = {
    "Message": {"version": "short", "header": "union", "bodyLength": "long", "custom_metadata": "[KeyValue]"},
    "Schema": {"endianness": "short", "fields": "[Field]", "custom_metadata": "[KeyValue]", "features": "[long]"},
    "Field": {
        "name": "string",
        "nullable": "bool",
        "type": "union",
        "dictionary": "DictionaryEncoding",
        "children": "[Field]",
        "custom_metadata": "[KeyValue]",
    },
    "DictionaryEncoding": {"id": "long", "indexType": "Int", "isOrdered": "bool", "dictionaryKind": "short"},
    "KeyValue": {"key": "string", "value": "string"},
    "RecordBatch": {
        "length": "long",
        "nodes": "[pair]",
        "buffers": "[pair]",
        "compression": "BodyCompression",
        "variadicBufferCounts": "[long]",
    },
    "DictionaryBatch": {"id": "long", "data": "RecordBatch", "isDelta": "bool"},
    "BodyCompression": {"codec": "byte", "method": "byte"},
    "Int": {"bitWidth": "int", "is_signed": "bool"},
    "FloatingPoint": {"precision": "short"},
    "FixedSizeList": {"listSize": "int"},
    "FixedSizeBinary": {"byteWidth": "int"},
    "Decimal": {"precision": "int", "scale": "int", "bitWidth": "int"},
    "Date": {"unit": "short"},
    "Time": {"unit": "short", "bitWidth": "int"},
    "Timestamp": {"unit": "short", "timezone": "string"},
    "Interval": {"unit": "short"},
    "Duration": {"unit": "short"},
    "Map": {"keysSorted": "bool"},
    "Union": {"mode": "short"},
}
"""Fields of each table of Arrow's Message.fbs and Schema.fbs; those that are not named have none."""


def _unions(table: str) -> tuple[str | None, ...]:
    return _HEADERS if table == "Message" else TYPES


def unpacked(data: bytes) -> list[Part]:
    """The messages of a well-formed stream: {"header": table, "body": bytes, "version": …}."""
    at, messages = 0, []
    while (size := struct.unpack_from("<I", data, at + 4)[0]) != 0:
        message = _read(data[at + 8 : at + 8 + size], struct.unpack_from("<I", data, at + 8)[0], "Message")
        at += 8 + size
        length = message.pop("bodyLength", 0)
        messages.append(message | {"body": data[at : at + length]})
        at += length
    return messages


def packed(messages: list[Part], end: bool = True) -> bytes:
    """The stream of these messages; the bodies' lengths are their own unless "bodyLength" says others."""
    data = bytearray()
    for message in messages:
        if len(data) > LARGEST:
            break
        body = message["body"]
        told = {"table": "Message", "bodyLength": len(body)} | {k: v for k, v in message.items() if k != "body"}
        metadata = _written(told)
        data += struct.pack("<II", 0xFFFFFFFF, len(metadata)) + metadata + body
    return bytes(data) + (struct.pack("<II", 0xFFFFFFFF, 0) if end else b"")


def _read(data: bytes, at: int, table: str) -> Part:
    """The table at a place."""
    vtable = at - struct.unpack_from("<i", data, at)[0]
    size, found, place = struct.unpack_from("<H", data, vtable)[0], {"table": table}, 4
    for name, kind in TABLES.get(table, {}).items():
        chosen = kind
        for part in ("which", "what") if kind == "union" else ("what",):
            offset = struct.unpack_from("<H", data, vtable + place)[0] if place < size else 0
            place += 2
            if offset and part == "which":
                chosen = _unions(table)[data[at + offset]] or "Null"
            elif offset:
                found[name] = _value(data, at + offset, chosen)
    return found


def _value(data: bytes, at: int, kind: str) -> Any:
    if kind in _NUMBERS:
        return struct.unpack_from(_NUMBERS[kind], data, at)[0]
    at += struct.unpack_from("<I", data, at)[0]
    if kind == "string":
        return data[at + 4 : at + 4 + struct.unpack_from("<I", data, at)[0]]
    if not kind.startswith("["):
        return _read(data, at, kind)
    count, at = struct.unpack_from("<I", data, at)[0], at + 4
    if kind == "[pair]":
        return [list(struct.unpack_from("<qq", data, at + 16 * n)) for n in range(count)]
    if kind == "[long]":
        return list(struct.unpack_from(f"<{count}q", data, at))
    return [_value(data, at + 4 * n, kind[1:-1]) for n in range(count)]


class _Writer:
    """A flatbuffer being written: the bytes so far, where which parts are, and where they are still to be referred to."""

    def __init__(self) -> None:
        self.data, self.places, self.due = bytearray(4), dict[int, int](), list[tuple[int, Any, str]]()

    def align(self, to: int = 0) -> None:
        self.data += bytes((to - len(self.data)) % 8)

    def refer(self, at: int, part: Any, kind: str) -> None:
        """Fill in a reference; the part is written unless it was already, further on."""
        place = self.places.get(id(part), 0)
        if place <= at:
            place = self.vector(part, kind) if kind[0] == "[" or kind == "string" else self.table(part)
            self.places[id(part)] = place
        struct.pack_into("<I", self.data, at, place - at)

    def vector(self, part: Any, kind: str) -> int:
        self.align(4)
        at = len(self.data)
        self.data += struct.pack("<I", len(part))
        if kind == "string":
            self.data += part + b"\0"
        elif kind == "[pair]":
            self.data += b"".join(struct.pack("<qq", *pair) for pair in part)
        elif kind == "[long]":
            self.data += struct.pack(f"<{len(part)}q", *part)
        else:
            for one in part:
                self.due.append((len(self.data), one, kind[1:-1]))
                self.data += bytes(4)
        return at

    def table(self, part: Part) -> int:
        """Write a table; what it refers to is due."""
        slots: list[tuple[str, Any]] = []
        for name, kind in TABLES.get(part["table"], {}).items():
            value = part.get(name)
            if kind == "union":
                code = _unions(part["table"]).index(value["table"]) if value is not None else 0
                slots.append(("ubyte", part.get(f"{name}_type", code)))
                kind = value["table"] if value is not None else ""
            slots.append((kind, value))
        self.align()
        vtable = len(self.data)
        offsets = [4 + 8 * n if value is not None else 0 for n, (_, value) in enumerate(slots)]
        self.data += struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), 4 + 8 * len(slots), *offsets)
        self.align(4)
        at = len(self.data)
        self.data += struct.pack("<i", at - vtable) + bytes(8 * len(slots))
        for (kind, value), offset in zip(slots, offsets, strict=True):
            if value is not None and kind in _NUMBERS:
                struct.pack_into(_NUMBERS[kind], self.data, at + offset, value)
            elif value is not None:
                self.due.append((at + offset, value, kind))
        return at


def _written(part: Part) -> bytes:
    writer = _Writer()
    writer.due.append((0, part, "Message"))
    for due in writer.due:  # grows
        writer.refer(*due)
    writer.align()
    return bytes(writer.data)
