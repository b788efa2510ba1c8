"""Bytes are an Arrow stream in full, or refused: cut anywhere, doubled, or larger inside than they look."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import fuzz_codec
from stream_dr.arrow import ipc
from stream_dr.arrow.ipc import read_arrow, write_arrow
from stream_dr.errors import LimitExceeded, MalformedInput, StreamDRError

BATCH = pa.record_batch({"price": np.arange(6.0), "label": pa.array(list("abcabc"))})


def stream(batches, compression=None, schema=None):
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def file(batches):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_was_written_is_read(compression):
    assert read_arrow(stream([BATCH, BATCH], compression)) == [BATCH, BATCH]


def test_our_own_writer_is_read():
    assert read_arrow(write_arrow([BATCH, BATCH])) == [BATCH, BATCH]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_bytes_like_object_will_do(kind):
    assert read_arrow(kind(stream([BATCH]))) == [BATCH]


def test_a_file_is_read_as_the_stream_inside_it():
    assert read_arrow(file([BATCH, BATCH])) == [BATCH, BATCH]


def test_a_stream_of_no_batches_is_one_batch_of_no_rows():
    (batch,) = read_arrow(stream([], schema=BATCH.schema))
    assert batch.schema == BATCH.schema
    assert batch.num_rows == 0


def test_bytes_are_not_copied():
    data = stream([BATCH])
    column = read_arrow(data)[0].column("price").to_numpy()
    assert np.shares_memory(column, np.frombuffer(data, dtype=np.uint8))


def test_misaligned_bytes_become_aligned():
    data = b"x" + stream([BATCH])
    column = read_arrow(memoryview(data)[1:])[0].column("price").to_numpy()
    assert column.ctypes.data % 8 == 0
    assert column.tolist() == list(range(6))


@pytest.mark.parametrize("make", [stream, file], ids=["stream", "file"])
def test_cut_anywhere_is_refused(make):
    data = make([BATCH, BATCH])
    for end in range(len(data)):
        with pytest.raises(MalformedInput):
            read_arrow(data[:end])


def test_a_stream_without_its_end_is_not_a_shorter_stream():
    data = stream([BATCH])
    with pytest.raises(MalformedInput, match="end-of-stream"):
        read_arrow(data[:-8])


def test_two_streams_are_not_one():
    with pytest.raises(MalformedInput, match="follow the end"):
        read_arrow(stream([BATCH]) + stream([BATCH]))


@pytest.mark.parametrize(
    "data", [b"", b"x", b"hello world, this is no Arrow", b"\0" * 3, b"\xff" * 64, b"ARROW1", b"ARROW1\0\0" * 9]
)
def test_garbage_is_refused(data):
    with pytest.raises(MalformedInput):
        read_arrow(data)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_size_after_decompression_is_bounded_before_it_is_unpacked(compression):
    batch = pa.record_batch({"price": np.zeros(1_000_000)})
    data = stream([batch], compression)
    assert len(read_arrow(data, max_bytes=9_000_000)) == 1
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(LimitExceeded, match="4000000"):
        read_arrow(data, max_bytes=4_000_000)
    assert pa.default_memory_pool().max_memory() == before


def test_many_small_batches_add_up():
    data = stream([BATCH] * 100, "zstd")
    with pytest.raises(LimitExceeded):
        read_arrow(data, max_bytes=5_000)


def test_invalid_utf8_is_refused():
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(MalformedInput):
        read_arrow(stream([pa.record_batch({"label": broken})]))


def test_offsets_that_run_backwards_are_refused():
    offsets = pa.py_buffer(np.array([0, 3, 1], np.int32))
    values = pa.array(np.arange(3, dtype=np.int32))
    broken = pa.ListArray.from_buffers(pa.list_(pa.int32()), 2, [None, offsets], children=[values])
    with pytest.raises(MalformedInput):
        read_arrow(stream([pa.record_batch({"indices": broken})]))


def read_or_refused(data):
    try:
        batches = read_arrow(data, max_bytes=1 << 20)
        return [(batch.schema, batch.schema.metadata, batch.serialize().to_pybytes()) for batch in batches]
    except StreamDRError as e:
        return type(e)


def test_one_batch_is_read_as_the_stream_reader_reads_it(monkeypatch):
    random = np.random.default_rng(3)
    inputs = [data for data in fuzz_codec.seeds(random) if not data.startswith(b"{")]
    inputs += [
        fuzz_codec.mutated(random, inputs[int(i)]) for i in random.integers(0, len(inputs), 4_000)
    ]  # one big-endian
    short, taken = ipc._one_batch, []

    def noted(*given):
        taken.append(short(*given) is not None)
        return short(*given)

    monkeypatch.setattr(ipc, "_one_batch", noted)
    found = [read_or_refused(data) for data in inputs]
    monkeypatch.setattr(ipc, "_one_batch", lambda *_: None)
    assert found == [read_or_refused(data) for data in inputs]
    assert sum(taken) > 100
    assert sum(isinstance(result, list) for result in found) > 100


def test_the_short_way_copies_nothing_and_leaves_what_is_misaligned_to_the_reader():
    data = bytes(write_arrow([BATCH]))
    view = memoryview(data)
    (batch,), schema = ipc._one_batch(view, ipc._framing(view, None))
    assert (batch, schema) == (BATCH, BATCH.schema)
    assert np.shares_memory(batch.column("price").to_numpy(), np.frombuffer(data, dtype=np.uint8))
    shifted = memoryview(b"x" + data)[1:]
    assert ipc._one_batch(shifted, ipc._framing(shifted, None)) is None
    for others in ([BATCH, BATCH], [BATCH.slice(0, 0)] * 3):
        several = memoryview(stream(others))
        assert ipc._one_batch(several, ipc._framing(several, None)) is None


@pytest.mark.parametrize(
    "kind", [pa.dense_union([pa.field("x", pa.int32())]), pa.list_(pa.dense_union([pa.field("x", pa.int32())]))]
)
def test_no_rows_of_a_type_that_none_can_be_made_of_are_refused(kind):
    with pytest.raises(MalformedInput):
        read_arrow(stream([], schema=pa.schema([("a", kind)])))


MONTHS = bytes.fromhex(
    "ffffffff700000001000000000000a000c000600050008000a000000000104000c000000080008000000040008000000040000000100000014000000"
    "100014000800060007000c0000001000100000000000010b100000001800000004000000000000000100000001000000080006000600000000000200"
    "ffffffff00000000"
)
"""A stream without batches, of one column of months; other writers know that type."""


def test_a_type_that_pyarrow_has_no_arrays_of_is_refused():
    with pytest.raises(MalformedInput, match="month_interval, which pyarrow"):
        read_arrow(MONTHS)
    months = pa.ipc.read_schema(pa.py_buffer(MONTHS)).field(0).type
    for kind in (pa.list_(months), pa.struct([("a", pa.int8()), ("b", months)]), pa.list_(pa.list_(months), 3)):
        assert ipc._unreadable(kind)
    for kind in (pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string()), pa.month_day_nano_interval()):
        assert not ipc._unreadable(kind)


def test_a_damaged_schema_is_said_to_be_one_and_one_with_a_body_is_refused():
    data = bytearray(write_arrow([BATCH]))
    table = ipc._framing(memoryview(data), None)[0].table
    at = 8 + table._field(2)
    with pytest.raises(MalformedInput, match="not a valid Arrow stream"):
        read_arrow(bytes(data[:at] + b"\xf0\xff\x00\x00" + data[at + 4 :]))
    assert (
        ipc._one_batch(memoryview(data), [m._replace(body=b"x") for m in ipc._framing(memoryview(data), None)]) is None
    )
