"""Bytes are an Arrow stream in full, or refused: cut anywhere, doubled, or larger inside than they look."""

import numpy as np
import pyarrow as pa
import pytest

from stream_dr.batch.arrow import block_from_arrow, read_arrow, write_arrow
from stream_dr.errors import LimitExceeded, MalformedInput, SchemaMismatch
from tests.support.arrow_bodies import packed, unpacked

BATCH = pa.record_batch({"price": np.arange(6.0), "label": pa.array(list("abcabc"))})


def stream(batches, compression=None, schema=None, deltas=False):
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=deltas)
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


@pytest.mark.parametrize("new", [pa.ipc.new_stream, pa.ipc.new_file], ids=["stream", "file"])
def test_the_format_before_arrow_0_15_is_refused_by_name(new):
    sink = pa.BufferOutputStream()
    with new(sink, BATCH.schema, options=pa.ipc.IpcWriteOptions(use_legacy_format=True)) as writer:
        writer.write_batch(BATCH)
    with pytest.raises(MalformedInput, match=r"Arrow 0\.15 and later"):
        read_arrow(sink.getvalue())


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_size_after_decompression_is_bounded_before_it_is_unpacked(compression):
    batch = pa.record_batch({"price": np.zeros(1_000_000)})
    data = stream([batch], compression)
    assert len(read_arrow(data, max_unpacked_bytes=9_000_000)) == 1
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(LimitExceeded, match="4000000"):
        read_arrow(data, max_unpacked_bytes=4_000_000)
    assert pa.default_memory_pool().max_memory() == before


def test_many_small_batches_add_up():
    data = stream([BATCH] * 100, "zstd")
    with pytest.raises(LimitExceeded):
        read_arrow(data, max_unpacked_bytes=5_000)


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


MONTHS = bytes.fromhex(
    "ffffffff700000001000000000000a000c000600050008000a000000000104000c000000080008000000040008000000040000000100000014000000"
    "100014000800060007000c0000001000100000000000010b100000001800000004000000000000000100000001000000080006000600000000000200"
    "ffffffff00000000"
)
"""A stream without batches, of one column of months; other writers know that type."""


def test_a_type_that_pyarrow_has_no_arrays_of_is_refused():
    with pytest.raises(SchemaMismatch, match="is interval, which is not taken"):
        read_arrow(MONTHS)


X = pa.array(np.arange(3.0))
LABELS = pa.array(["a", "b", "a"])
OTHER_TYPES = [
    pa.dense_union([pa.field("x", pa.int32())]),
    pa.sparse_union([pa.field("x", pa.int32())]),
    pa.run_end_encoded(pa.int32(), pa.string()),
    pa.struct([("x", pa.int32())]),
    pa.map_(pa.string(), pa.int32()),
    pa.list_view(pa.string()),
    pa.binary(),
    pa.binary_view(),
    pa.time64("us"),
    pa.dictionary(pa.int8(), pa.list_(pa.string())),
    pa.list_(pa.list_(pa.string())),
    pa.list_(pa.dense_union([pa.field("x", pa.int32())])),
    pa.list_(pa.list_(pa.list_(pa.int8()), 2)),
    pa.uuid(),
    pa.fixed_shape_tensor(pa.float64(), [2]),
]


@pytest.mark.parametrize("kind", OTHER_TYPES, ids=str)
def test_types_that_no_layout_has_are_refused_by_the_columns_name(kind):
    """Before any batch is looked at."""
    with pytest.raises(SchemaMismatch, match="column odd is") as told:
        read_arrow(stream([], schema=pa.schema([("x", pa.float64()), ("odd", kind)])))
    assert told.value.details == {"column": "odd"}


@pytest.mark.parametrize("rows", [0, 3])
def test_a_callers_own_columns_of_such_types_are_refused_too(rows):
    odd = [
        pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), ["a"]),
        pa.array([{"x": 1}] * 3),
        pa.array([[1]] * 3, pa.list_view(pa.int8())),
        pa.array([[[1]]] * 3),
        pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [X]),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 0]), pa.array([["a"]])),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 0]), LABELS.dictionary_encode()),
    ]
    for column in odd:
        with pytest.raises(SchemaMismatch, match="column odd is"):
            block_from_arrow(pa.record_batch({"x": X[:rows], "odd": column[:rows]}))


def test_delta_dictionaries_are_refused_and_replaced_ones_are_read():
    """Joined for every batch anew, 2 MB of them took 2 GB."""
    kinds = pa.schema([("x", pa.float64()), ("label", pa.dictionary(pa.int32(), pa.string()))])
    words = [f"word{n}" for n in range(9)]
    batches = [
        pa.record_batch([X[:1], pa.DictionaryArray.from_arrays(pa.array([n - 1], pa.int32()), words[:n])], schema=kinds)
        for n in range(1, 9)
    ]
    with pytest.raises(SchemaMismatch, match="column label has a delta dictionary"):
        read_arrow(stream(batches, deltas=True))
    assert block_from_arrow(read_arrow(stream(batches), 1 << 20)).y.labels == tuple(words[:8])


def test_a_body_has_so_many_record_batches():
    """43 MB of one-row batches took 13 s and 700 MB."""
    one = pa.record_batch({"x": X[:1]})
    assert len(read_arrow(stream([one] * 1_000), 1 << 20)) == 1_000
    with pytest.raises(LimitExceeded, match="record batches"):
        read_arrow(stream([one] * 1_001), 1 << 20)
    assert len(read_arrow(stream([one] * 1_001))) == 1_001  # a file of one's own


def test_columns_are_counted_in_every_batch():
    wide = pa.record_batch({f"c{n}": pa.array([1], pa.int8()) for n in range(500)})
    assert len(read_arrow(stream([wide] * 200), 1 << 26)) == 200
    with pytest.raises(LimitExceeded, match="columns, counted in each record batch"):
        read_arrow(stream([wide] * 300), 1 << 26)


def test_values_of_no_bytes_and_buffers_that_many_columns_share_are_counted():
    nothing = unpacked(stream([pa.record_batch({"x": pa.nulls(3)})]))
    nothing[1]["header"] |= {"length": 1 << 40, "nodes": [[1 << 40, 1 << 40]]}
    shared = unpacked(stream([pa.record_batch({f"x{n}": np.arange(1000.0) for n in range(200)})]))
    shared[1]["header"]["buffers"] = [[0, 0], [0, 8000]] * 200
    bits = pa.record_batch({"x": pa.array(np.zeros(1 << 20, bool))})  # 8 MB as numbers
    for body in (packed(nothing), packed(shared), stream([bits])):
        with pytest.raises(LimitExceeded, match="bytes once unpacked"):
            read_arrow(body, 1 << 20)
    assert len(read_arrow(stream([bits]), 1 << 23)) == 1


def test_a_dictionary_is_counted_for_every_batch_that_it_is_looked_through_for():
    words = pa.array([f"{n:0100d}" for n in range(1000)])
    batch = pa.record_batch({"x": X, "label": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), words)})
    assert len(read_arrow(stream([batch] * 9), 1 << 20)) == 9
    with pytest.raises(LimitExceeded, match="once unpacked"):
        read_arrow(stream([batch] * 99), 1 << 20)


def views(rows, shown):
    """A column whose rows all show the same bytes."""
    each = np.zeros((rows, 4), np.int32)
    each[:, 0], each[:, 1] = shown, int.from_bytes(b"aaaa", "little")
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(each), pa.py_buffer(b"a" * shown)])


def test_views_are_added_up_before_they_are_looked_through():
    """Five bodies of 1.6 MB, 160 GB to look through, held their threads for minutes."""
    rows = 2_000
    long = views(rows, 100_000)
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), long, safe=False)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), long)
    for name, column in {"label": long, "id": long, "labels": lists}.items():
        batch = pa.record_batch({"x": np.ones(rows), name: column})
        for body in (stream([batch]), batch):
            with pytest.raises(LimitExceeded, match=f"strings of column {name}"):
                block_from_arrow(read_arrow(body, 1 << 26) if isinstance(body, bytes) else body)
    with pytest.raises(LimitExceeded, match="strings of column label"):
        read_arrow(stream([pa.record_batch({"x": np.ones(rows), "label": coded})]), 1 << 26)
    some = pa.record_batch({"x": np.ones(9), "label": views(9, 100)})
    assert len(read_arrow(stream([some] * 9), 1 << 20)) == 9
    with pytest.raises(LimitExceeded, match="strings of column label"):  # all batches' together
        read_arrow(stream([pa.record_batch({"x": np.ones(9), "label": views(9, 30_000)})] * 9), 1 << 20)


def test_bodies_as_polars_writes_them_are_read():
    """Strings as views, lists as large lists, categories as dictionaries of views."""
    text = pa.array(["a", "a label of more than twelve bytes", None], pa.string_view())
    codes = pa.array([0, 1, 0], pa.uint32())
    words = pa.array(["a", "another label that is long"], pa.string_view())
    ids = pa.array(["r0", "r1", "a long id of more than twelve bytes"], pa.string_view())
    lists = pa.LargeListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int64()), pa.concat_arrays([text[:2], text[:1]]))
    coded = pa.DictionaryArray.from_arrays(codes, words)
    wanted = {
        "label": (text, text.to_pylist()),
        "labels": (lists, [["a", "a label of more than twelve bytes"], [], ["a"]]),
    }
    for name, (column, rows) in (*wanted.items(), ("label", (coded, coded.to_pylist()))):
        batch = pa.record_batch({"x": X, name: column, "id": ids})
        for compression in (None, "zstd"):
            block = block_from_arrow(read_arrow(stream([batch, batch], compression), 1 << 20))
            assert block.y.targets_by_row() == rows * 2
            assert block.ids == ids.to_pylist() * 2


def test_metadata_of_any_length_is_no_number():
    for text in ("9" * 4_301, "0" * 4_301 + "5", "-1", "1e3", "99999999999"):
        schema = pa.schema(
            [("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))], {"n_features": text}
        )
        with pytest.raises(SchemaMismatch, match="n_features"):
            block_from_arrow(read_arrow(stream([], schema=schema)))


def small():
    """The messages of a stream of one batch."""
    return unpacked(stream([BATCH]))


def test_a_part_that_is_referred_to_more_than_once_is_refused():
    """A schema of 200 KB that refers to one name of 100 KB 20,000 times is 2 GB in pyarrow; so with metadata anywhere."""
    field, entry = small()[0]["header"]["fields"][0], {"table": "KeyValue", "key": b"k" * 999, "value": b"v" * 999}
    nested = dict(field, type={"table": "List"}, children=[dict(field)])
    for many in (field, dict(field, name=b"x" * 1000), nested):
        messages = small()
        messages[0]["header"]["fields"] = [many] * 5_000
        with pytest.raises(MalformedInput, match="more than once"):
            read_arrow(packed(messages), 1 << 26)
    for place in (lambda m: m[0]["header"], lambda m: m[0]["header"]["fields"][0], lambda m: m[0], lambda m: m[1]):
        messages = small()
        place(messages)["custom_metadata"] = [entry] * 5_000
        with pytest.raises(MalformedInput, match="more than once"):
            read_arrow(packed(messages), 1 << 26)
        place(messages)["custom_metadata"] = [entry]
        assert read_arrow(packed(messages), 1 << 26)


@pytest.mark.test_all
def test_entries_of_metadata_are_counted():
    messages = small()
    entries = [{"table": "KeyValue", "key": b"%d" % n, "value": b""} for n in range(140_000)]
    messages[0]["header"]["custom_metadata"] = entries
    with pytest.raises(LimitExceeded, match="entries of metadata"):
        read_arrow(packed(messages), 1 << 26)


def test_fields_nested_ever_deeper_are_refused():
    for width in (1, 2):
        field = small()[0]["header"]["fields"][0]
        for _ in range(500):
            field = {"table": "Field", "name": b"n", "type": {"table": "List"}, "children": [field] * width}
        messages = small()
        messages[0]["header"]["fields"][0] = field
        with pytest.raises(SchemaMismatch, match="column n is"):
            read_arrow(packed(messages))


def test_messages_that_make_no_stream_are_refused():
    schema, batch = small()
    odd = {"header": {"table": "Tensor"}, "body": b""}
    for messages in ([], [batch], [schema, schema, batch], [batch, schema], [schema, odd], [odd]):
        with pytest.raises(MalformedInput):
            read_arrow(packed(messages))
    for name, number in (
        ("length", -1),
        ("nodes", [[-1, 0], [6, 0]]),
        ("buffers", [[0, 1 << 62]] * 5),
        ("buffers", []),
    ):
        with pytest.raises(MalformedInput):
            read_arrow(packed([schema, batch | {"header": batch["header"] | {name: number}}]))


def test_the_other_byte_order_is_refused():
    messages = small()
    messages[0]["header"]["endianness"] = 1
    with pytest.raises(MalformedInput, match="byte order"):
        read_arrow(packed(messages))


def test_names_that_are_no_text_are_refused():
    """Of columns, and of what is within one."""
    bad = {"table": "Field", "name": b"\xff", "type": {"table": "Bool"}}
    for field in (bad, {"table": "Field", "name": b"x", "type": {"table": "List"}, "children": [bad]}):
        messages = small()
        messages[0]["header"]["fields"][0] = field
        with pytest.raises(MalformedInput, match="not UTF-8"):
            read_arrow(packed(messages))


def test_a_column_of_any_name_is_told_in_a_few_words():
    with pytest.raises(SchemaMismatch) as told:
        read_arrow(stream([], schema=pa.schema([("x" * 1_000_000, pa.binary())])))
    assert len(str(told.value)) < 5_000
    assert len(told.value.details["column"]) < 5_000


@pytest.mark.parametrize("column", [pa.nulls(9_000_000), pa.array(np.zeros(9_000_000, bool))], ids=["null", "bool"])
def test_values_that_take_no_byte_of_the_body_are_bounded(column):
    data = stream([pa.record_batch({"x": column})], "zstd")
    assert len(data) < 2_000
    with pytest.raises(LimitExceeded, match=r"\d{7} values in \d+ bytes, most of them null or boolean"):
        read_arrow(data, max_unpacked_bytes=64 << 20)
    assert read_arrow(data)[0].num_rows == 9_000_000
    few = stream([pa.record_batch({"x": column.slice(0, 1_000_000)})])
    assert read_arrow(few, max_unpacked_bytes=64 << 20)[0].num_rows == 1_000_000
