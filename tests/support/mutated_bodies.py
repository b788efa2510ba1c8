"""Bodies that are nearly right: Arrow streams changed in their structure, JSON in its values, and bytes of either.

`bases` are well-formed bodies of every layout; `body(whole, seed, number)` is one of them, changed up to four times: numbers
of tables, types and nesting of fields, parts referred to many times, lengths and null counts, buffers and what is in them,
compression, dictionaries, metadata, order of messages.
"""

import copy
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import scipy.sparse as sp

from stream_dr.batch.arrow import arrow_from_block, block_from_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.json_rows import json_from_block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from tests.support.arrow_bodies import TABLES, TYPES, Part, packed, unpacked

NUMBERS = (*range(-3, 10), 64, 127, 128, 255, 2**15 - 1, 2**16, 2**24, 2**30, 2**31 - 1, -(2**31), 2**33, 2**40)
NUMBERS = (*NUMBERS, 2**62, 2**63 - 1, -(2**63))
VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 2**31, 2**63, 1e308, -0.0, "", "a", "\x00", "é" * 99, [], {}, [[]], [None], {"a": 1}),
    *([1.0, 2.0], {"indices": [0], "values": [1.0]}, 1.5),
)
Draw = np.random.Generator


def bases(draw: Draw) -> list[bytes]:
    """Well-formed bodies: sparse, dense, named rows and a table's, every kind of target, every type that is taken; JSON."""
    rows, names = 7, list("abcdefg")
    long = [f"{name} is a label of more than twelve bytes" for name in names]
    X = sp.random(rows, 50, density=0.1, format="csr", random_state=int(draw.integers(1 << 30)))
    blocks = [
        Block(X, class_targets(names), width_stated=False),
        Block(X.astype(np.float32), multilabel_targets([[n, "z"] for n in names]), weights=np.ones(rows)),
        Block(draw.normal(size=(rows, 4)), continuous_targets(draw.normal(size=(rows, 2))), ids=names),
        Block(draw.normal(size=(rows, 3)).astype(np.float32), class_targets([True, False, None] * 2 + [True])),
        Block(draw.normal(size=(rows, 2)), class_targets(range(rows)), names=("price", "size")),
    ]
    batches = [arrow_from_block(block) for block in blocks]
    plain = {
        "x": pa.array(draw.normal(size=rows)),
        "n": pa.array(range(rows), pa.uint8()),
        "b": pa.array([True] * rows),
    }
    coded = pa.array(names).dictionary_encode()
    lists = pa.array([long[:2], [], None, ["a"], long, [], ["b"]], pa.list_(pa.string()))
    offsets = pa.array([0, 2, 2, 3, 5, 5, 6, 7], pa.int32())
    targets: list[tuple[str, pa.Array]] = [
        ("label", coded),
        ("label", pa.array(long, pa.string_view())),
        ("label", pa.DictionaryArray.from_arrays(coded.indices.cast(pa.uint32()), pa.array(long, pa.string_view()))),
        ("label", pa.nulls(rows)),
        ("labels", lists.cast(pa.large_list(pa.string_view()))),
        ("labels", pa.ListArray.from_arrays(offsets, coded)),
        ("target", pa.array([1.5, None] * 3 + [2.0], pa.float16())),
    ]
    batches += [pa.record_batch({**plain, name: column, "id": pa.array(long)}) for name, column in targets]
    wide = {
        name: batches[0].column(name).cast(pa.large_list(kind))
        for name, kind in (("indices", pa.int64()), ("values", pa.float32()))
    }
    batches.append(pa.record_batch(wide))
    days = pa.array([0, None, 20_000, 3, None, 5, -1], pa.int32())
    table = {
        "age": pa.array([1.5, None] * 3 + [2.0]),
        "sex": pa.array(["a", None, "é", "a", "b", "", "c"]),
        "town": pa.array(long, pa.string_view()),
        "born": days.cast(pa.date32()),
        "when": days.cast(pa.int64()).cast(pa.timestamp("ns", "UTC")),
        "code": pa.DictionaryArray.from_arrays(coded.indices, pa.array(range(rows))),
        "none": pa.nulls(rows),
        "label": coded,
    }
    batches.append(pa.record_batch(table))
    bodies = [_stream([batch]) for batch in batches] + [
        _stream([batch.slice(2, 3), batch.slice(5)]) for batch in batches
    ]
    bodies += [_stream([batch], kind) for batch in batches for kind in ("lz4", "zstd")]
    bodies += [_stream([batch.slice(0, 0)]) for batch in batches]
    blocks.append(block_from_arrow(pa.record_batch(table)))
    return [*bodies, *(orjson.dumps(json_from_block(block)) for block in blocks)]


def body(whole: list[bytes], seed: int, number: int) -> bytes:
    """Body `number` of a seed: one of `whole`, changed."""
    draw = np.random.default_rng((seed, number))
    data = whole[int(draw.integers(len(whole)))]
    if data[:1] == b"{":
        data = _json(draw, data)
    elif draw.random() < 0.9:
        with suppress(RecursionError):  # of this mutator: nested too deep to be changed again
            data = _changed(draw, data, whole)
    return _bytes(draw, data) if draw.random() < 0.15 else data


def _changed(draw: Draw, data: bytes, whole: list[bytes]) -> bytes:
    stream = unpacked(data)
    for _ in range(int(draw.integers(1, 5))):
        _CHANGES[int(draw.integers(len(_CHANGES)))](draw, stream, whole)
    return packed(stream, end=draw.random() < 0.98)


def _stream(batches: list[pa.RecordBatch], compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _tables(stream: list[Part]) -> list[Part]:
    """Every table of a stream, once."""
    found: dict[int, Part] = {}
    due: list[Any] = list(stream)
    while due:
        part = due.pop()
        if isinstance(part, list):
            due += part if part and isinstance(part[0], dict) else []
        elif isinstance(part, dict) and id(part) not in found:
            found[id(part)] = part
            due += part.values()
    return list(found.values())


def _pick(draw: Draw, of: Any) -> Any:
    return of[int(draw.integers(len(of)))]


def _one(draw: Draw, stream: list[Part], kind: str) -> Part:
    """A table of a kind; an empty one, which is nowhere, if there is none."""
    found = [table for table in _tables(stream) if table["table"] == kind]
    return _pick(draw, found) if found else {"table": kind}


def _number(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """Any number of any table."""
    table = _pick(draw, _tables(stream))
    bounds = {
        "bool": (0, 255),
        "ubyte": (0, 255),
        "byte": (-128, 127),
        "short": (-(2**15), 2**15 - 1),
        "int": (-(2**31), 2**31 - 1),
    }
    fields = {name: kind for name, kind in TABLES.get(table["table"], {}).items() if kind in (*bounds, "long")}
    if fields:
        name = _pick(draw, list(fields))
        low, high = bounds.get(fields[name], (-(2**63), 2**63 - 1))
        table[name] = min(max(_pick(draw, NUMBERS), low), high)


def _type(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """Another type, with as many children as it had or fewer."""
    field = _one(draw, stream, "Field")
    kind = _pick(draw, TYPES[1:])
    field["type"] = {"table": kind} | {
        name: int(_pick(draw, (0, 1, 2, 3, 8, 16, 32, 64))) for name in TABLES.get(kind, ())
    }
    field["type"].pop("timezone", None)
    if draw.random() < 0.1:
        field["type_type"] = int(draw.integers(256))
    if draw.random() < 0.5:
        field["children"] = field.get("children", [])[:1] * int(draw.integers(3))


def _nest(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """A field within another, once or often, alone or several times over."""
    field = _one(draw, stream, "Field")
    for _ in range(int(_pick(draw, (1, 1, 2, 70, 200)))):
        kind = {"table": _pick(draw, ("List", "LargeList", "FixedSizeList", "Struct", "ListView")), "listSize": 2}
        inner = dict(field)
        field.clear()
        field |= {"table": "Field", "name": b"n", "type": kind, "children": [inner] * int(_pick(draw, (1, 1, 2)))}


def _share(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """One field, or one entry of metadata, many times over."""
    times = int(_pick(draw, (2, 50, 5_000)))
    table = _pick(draw, [t for t in _tables(stream) if t["table"] in ("Schema", "Field", "Message")] or [{}])
    if draw.random() < 0.5 and table.get("fields"):
        table["fields"] = [_pick(draw, table["fields"])] * times
    elif table:
        entry = {"table": "KeyValue", "key": b"key", "value": b"v" * int(_pick(draw, (1, 100_000)))}
        table["custom_metadata"] = [entry] * times


def _metadata(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """An entry that means something, or a name that is no text."""
    table = _pick(draw, [t for t in _tables(stream) if t["table"] in ("Schema", "Field", "Message")] or [{}])
    key = _pick(draw, (b"n_features", b"ARROW:extension:name", b"ARROW:extension:metadata", b"pandas", b"\xff"))
    value = _pick(draw, (b"60", b"9" * 5_000, b"-1", b"arrow.bool8", b"arrow.uuid", b"pandas.period", b"\xff", b""))
    table.setdefault("custom_metadata", []).append({"table": "KeyValue", "key": key, "value": value})
    if draw.random() < 0.3:
        _one(draw, stream, "Field")["name"] = _pick(
            draw, (b"", b"\xff", b"label", b"id", b"x", b"weight", b"x" * 200_000)
        )


def _node(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """A length or a null count; too few or too many of them."""
    nodes = _one(draw, stream, "RecordBatch").setdefault("nodes", [])
    if nodes and draw.random() < 0.8:
        _pick(draw, nodes)[int(draw.integers(2))] = int(_pick(draw, NUMBERS))
    elif draw.random() < 0.5:
        nodes.append([int(_pick(draw, NUMBERS)), 0])
    elif nodes:
        del nodes[int(draw.integers(len(nodes)))]


def _buffer(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """A buffer's place or length: elsewhere, that of another, none; too few or too many of them."""
    buffers = _one(draw, stream, "RecordBatch").setdefault("buffers", [])
    if buffers and draw.random() < 0.4:
        buffer = _pick(draw, buffers)
        at = int(draw.integers(2))
        buffer[at] = int(_pick(draw, (0, 1, 4, 8, buffer[at] + 8, buffer[at] - 8, buffer[at] // 2, *NUMBERS[-6:])))
        buffer[at] = min(max(buffer[at], -(2**63)), 2**63 - 1)
    elif buffers and draw.random() < 0.6:
        buffers[int(draw.integers(len(buffers)))][:] = _pick(draw, buffers)
    elif draw.random() < 0.5:
        buffers.insert(int(draw.integers(len(buffers) + 1)), [0, int(_pick(draw, (0, 8)))])
    elif buffers:
        del buffers[int(draw.integers(len(buffers)))]


def _content(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """A number within a buffer: an offset, a view's length, a code, the size that a compressed one states."""
    message = _pick(draw, stream)
    rows = message["header"].get("data", message["header"])
    content, buffers = bytearray(message["body"]), [b for b in rows.get("buffers", []) if b[1] > 0]
    if not buffers:
        return
    begin, length = _pick(draw, buffers)
    width = int(_pick(draw, (4, 4, 8)))
    at = begin + width * int(_pick(draw, (0, int(draw.integers(max(1, length // width))), max(0, length // width - 1))))
    if 0 <= at <= len(content) - width:
        number = min(max(_pick(draw, NUMBERS), -(2 ** (8 * width - 1))), 2 ** (8 * width - 1) - 1)
        content[at : at + width] = int(number).to_bytes(width, "little", signed=True)
    message["body"] = bytes(content)


def _compression(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """Said to be compressed, or not."""
    rows = _one(draw, stream, "RecordBatch")
    if rows.pop("compression", None) is None or draw.random() < 0.5:
        rows["compression"] = {
            "table": "BodyCompression",
            "codec": int(draw.integers(-1, 3)),
            "method": int(draw.random() < 0.1),
        }


def _dictionary(draw: Draw, stream: list[Part], _: list[bytes]) -> None:
    """Coded by a dictionary, or not; a delta; another's."""
    field = _one(draw, stream, "Field")
    if draw.random() < 0.5 and field.pop("dictionary", None) is None:
        kind = {"table": "Int", "bitWidth": int(_pick(draw, (8, 16, 32, 64))), "is_signed": int(draw.integers(2))}
        field["dictionary"] = {"table": "DictionaryEncoding", "id": int(draw.integers(3)), "indexType": kind}
    else:
        one = _one(draw, stream, "DictionaryBatch")
        one |= {"isDelta": int(draw.integers(2)), "id": int(_pick(draw, (0, 0, 1, 2**40, -1)))}


def _message(draw: Draw, stream: list[Part], whole: list[bytes]) -> None:
    """Messages left out, doubled, exchanged, of another stream, or many times over; one that lies about its length."""
    at, other = int(draw.integers(len(stream))), int(draw.integers(len(stream)))
    match int(draw.integers(7)):
        case 0 if len(stream) > 1:
            del stream[at]
        case 1:
            stream.insert(other, copy.deepcopy(stream[at]))
        case 2:
            stream[at], stream[other] = stream[other], stream[at]
        case 3:
            foreign = _pick(draw, [data for data in whole if data[:1] != b"{"])
            stream.insert(at + 1, _pick(draw, unpacked(foreign)))
        case 4:
            stream += [stream[-1]] * int(_pick(draw, (5, 1_500)))
        case 5:
            stream[at]["bodyLength"] = int(_pick(draw, (*NUMBERS, len(stream[at]["body"]) - 8)))
        case _:
            stream[at]["version"] = int(draw.integers(-1, 6))


_CHANGES = (_number, _type, _nest, _share, _metadata, _node, _buffer, _buffer, _content, _content, _content)
_CHANGES = (*_CHANGES, _compression, _dictionary, _message)


def _json(draw: Draw, data: bytes) -> bytes:
    """Values anywhere in an object replaced, left out or added."""
    told = orjson.loads(data)
    if draw.random() < 0.1 and told["rows"]:
        _many(draw, told)
    for _ in range(int(draw.integers(1, 5))):
        part: Any = told
        for _ in range(int(draw.integers(0, 4))):
            inner = [v for v in (part.values() if isinstance(part, dict) else part) if isinstance(v, dict | list) and v]
            part = _pick(draw, inner) if inner else part
        value = copy.deepcopy(_pick(draw, VALUES))
        if isinstance(part, dict):
            part[_pick(draw, [*part, "rows", "labels", "target", "weights", "ids", "n_features", "x"])] = value
        elif draw.random() < 0.3:
            part.append(value)
        else:
            part[int(draw.integers(len(part)))] = value
    return orjson.dumps(told)


def _many(draw: Draw, told: dict[str, Any]) -> None:
    """Many rows, with keys of their own, or targets of which few are there."""
    count = int(_pick(draw, (100, 3_000, 40_000)))
    row = told["rows"][0]
    for name in ("labels", "weights", "ids"):
        told.pop(name, None)
    own = isinstance(row, dict) and "indices" not in row
    told["rows"] = [{f"{name}{i}": value for name, value in row.items()} if own else row for i in range(count)]
    if draw.random() < 0.5:
        told["target"] = [[1.0] * int(_pick(draw, (1, 500, 10_000))), *[None] * (count - 1)]


def _bytes(draw: Draw, data: bytes) -> bytes:
    """Bytes flipped, set to extremes, cut, doubled or moved."""
    changed = bytearray(data)
    for _ in range(int(draw.integers(1, 4))):
        if not changed:
            break
        at, length = int(draw.integers(len(changed))), int(draw.integers(1, 65))
        match int(draw.integers(5)):
            case 0:
                changed[at] ^= 1 << int(draw.integers(8))
            case 1:
                changed[at] = int(_pick(draw, (0, 1, 127, 128, 255)))
            case 2:
                changed[at : at + 8] = int(_pick(draw, NUMBERS)).to_bytes(8, "little", signed=True)
            case 3:
                del changed[at : at + length]
            case _:
                changed[at:at] = changed[at : at + length]
    return bytes(changed)
