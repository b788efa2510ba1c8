"""No array points outside itself: what Arrow's own validation passes and its kernels die of is refused; the rest is read."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr import errors
from stream_dr.batch.arrow import block_from_arrow, read_arrow, write_arrow
from tests.support.arrow_bodies import packed, unpacked

ROOT = Path(__file__).parents[3]
LISTS = {"list": (pa.list_, np.int32), "large_list": (pa.large_list, np.int64)}
TEXTS = {"string": (pa.string(), np.int32), "large_string": (pa.large_string(), np.int64)}


class Raw(NamedTuple):
    """An array as it lies in memory, whatever it is worth."""

    kind: pa.DataType
    rows: int
    buffers: list
    within: "Raw | None" = None
    dictionary: "Raw | None" = None

    def array(self):
        """The array; pyarrow.ArrowInvalid where pyarrow makes none of it."""
        within = [] if self.within is None else [self.within.array()]
        buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in self.buffers]
        if self.dictionary is None:
            return pa.Array.from_buffers(self.kind, self.rows, buffers, children=within)
        codes = pa.Array.from_buffers(self.kind.index_type, self.rows, buffers)
        return pa.DictionaryArray.from_arrays(codes, self.dictionary.array(), safe=False)


def lists(offsets, of, form="list", rows=None):
    kind, dtype = LISTS[form]
    return Raw(
        kind(of.kind), len(offsets) - 1 if rows is None else rows, [None, np.array(offsets, dtype).tobytes()], of
    )


def text(offsets, shown=b"abc", form="string", rows=None):
    kind, dtype = TEXTS[form]
    return Raw(kind, len(offsets) - 1 if rows is None else rows, [None, np.array(offsets, dtype).tobytes(), shown])


def numbers(values, kind):
    return Raw(kind, len(values), [None, np.array(values, kind.to_pandas_dtype()).tobytes()])


def coded(codes, dictionary):
    kind = pa.dictionary(pa.int8(), dictionary.kind)
    return Raw(kind, len(codes), [None, np.array(codes, np.int8).tobytes()], dictionary=dictionary)


ABC = text([0, 1, 2, 3])


def body(columns):
    """The stream of one batch of such columns; pyarrow's own writer would look into them."""
    dictionaries = []

    def rows_of(raws):
        nodes, buffers, content = [], [], b""
        due = list(raws)
        while due:
            raw = due.pop(0)
            nodes.append([raw.rows, 0])
            for buffer in raw.buffers:
                buffers.append([len(content), len(buffer or b"")])
                content += (buffer or b"") + bytes(-len(buffer or b"") % 8)
            if raw.within is not None:
                due.insert(0, raw.within)
            if raw.dictionary is not None:
                dictionaries.append(raw.dictionary)
        return {"table": "RecordBatch", "length": raws[0].rows, "nodes": nodes, "buffers": buffers}, content

    schema = pa.schema([(name, raw.kind) for name, raw in columns.items()])
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    stream = unpacked(bytes(sink.getvalue()))[:1]
    header, content = rows_of(list(columns.values()))
    for number, dictionary in enumerate(dictionaries):
        data, text = rows_of([dictionary])
        stream.append({"header": {"table": "DictionaryBatch", "id": number, "data": data}, "body": text, "version": 4})
    return packed([*stream, {"header": header, "body": content, "version": 4}])


def refused(name, raw, **others):
    """Fail unless a batch with this column is refused by its name, from bytes and as a caller's own batch."""
    columns = others or {"x": numbers([1.0] * raw.rows, pa.float64())}
    columns[name] = raw
    said = f"column {name} |not valid Arrow"
    with pytest.raises(errors.MalformedInput, match=said):
        block_from_arrow(read_arrow(body(columns), 1 << 20))
    try:
        batch = pa.record_batch({name: raw.array() for name, raw in columns.items()})
    except pa.ArrowInvalid:
        return
    with pytest.raises(errors.MalformedInput, match=said):
        block_from_arrow(batch)


def test_what_is_not_wrong_is_read():
    x = numbers([1.0, 2.0], pa.float64())
    for column in (text([0, 1, 3]), lists([0, 2, 3], ABC), coded([2, 1], ABC), lists([1, 2, 2], coded([2, 1], ABC))):
        (batch,) = read_arrow(body({"x": x, "y": column}), 1 << 20)
        assert batch == pa.record_batch({"x": x.array(), "y": column.array()})


@pytest.mark.parametrize("form", LISTS)
@pytest.mark.parametrize("first", [1, 7, 10**9, -1])
def test_the_one_offset_of_a_column_of_no_rows_lies_within_its_values(form, first):
    for kind in TEXTS:
        none = text([0], form=kind)
        refused("labels", lists([first], none, form))
        refused("labels", lists([first], coded([], none), form))
    refused("labels", lists([first], numbers([], pa.int64()), form))
    indices, values = (numbers([], kind) for kind in (pa.int32(), pa.float64()))
    refused("indices", lists([first], indices, form), values=lists([0], values))
    refused("values", lists([first], values, form), indices=lists([0], indices))


@pytest.mark.test_all
def test_the_body_of_576_bytes_ends_nothing(tmp_path):
    """In a process of its own, in case it does."""
    none = numbers([], pa.float64())
    for form in LISTS:
        (tmp_path / form).write_bytes(body({"x": none, "labels": lists([10**9], text([0]), form)}))
    command = [sys.executable, "-m", "tests.campaigns.bodies", "codec", *(str(tmp_path / form) for form in LISTS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert [line.split(": ")[1] for line in done.stdout.splitlines()[:2]] == ["malformed_input"] * 2, done


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("first", [4, 10**9, -1])
def test_strings_of_no_rows_lie_within_their_bytes_at_any_depth(form, first):
    none = text([first], form=form)
    refused("label", none)
    refused("labels", lists([0, 0, 0], none))
    refused("label", coded([], none))
    refused("labels", lists([0, 0], coded([], none)))


@pytest.mark.parametrize("form", LISTS)
@pytest.mark.parametrize("offsets", [[0, 2, 1], [0, 1, 4], [-1, 0, 1], [2, 1, 3], [0, 10**9, 3]])
def test_offsets_ascend_within_the_values(form, offsets):
    refused("labels", lists(offsets, ABC, form))
    for kind in TEXTS:
        refused("label", text(offsets, form=kind))
        refused("labels", lists([0, 1], text(offsets, form=kind), form))
        refused("label", coded([0, 0], text(offsets, form=kind)))


def test_arrays_are_as_long_as_their_rows_ask_for():
    refused("labels", lists([0, 1], ABC, rows=99))
    refused("label", text([0, 1], rows=99))
    refused("label", coded([0, 3], ABC))
    refused("label", coded([0, -1], ABC))
    pairs = Raw(pa.list_(pa.float64(), 4), 9, [None], numbers([1.0] * 8, pa.float64()))
    refused("features", pairs, id=text([0] * 10))
    refused("target", pairs)


words = st.none() | st.text(max_size=20)
kinds = st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_sound_arrays_sliced_and_nested_are_read_as_what_they_are(data):
    rows = data.draw(st.integers(0, 6))
    kind = data.draw(kinds)
    if data.draw(st.booleans()):
        name, told = "label", data.draw(st.lists(words, min_size=rows, max_size=rows))
    else:
        name, kind = "labels", data.draw(st.sampled_from([pa.list_, pa.large_list]))(kind)
        told = data.draw(st.lists(st.none() | st.lists(st.text(max_size=20), max_size=4), min_size=rows, max_size=rows))
    flat = kind.value_type if name == "labels" else kind
    if pa.types.is_dictionary(flat):  # pyarrow casts to no dictionary within a list
        column = pa.array(told, pa.list_(pa.string()) if name == "labels" else pa.string())
        column = _coded(column) if name == "labels" else column.dictionary_encode()
    else:
        column = pa.array(told, kind)
    batch = pa.record_batch({"x": np.arange(float(rows)), name: column})
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    part, wanted = batch.slice(start, stop - start), told[start:stop]
    for batches in (part, read_arrow(write_arrow([part]), 1 << 20), [part, part.slice(0, 0)]):
        block = block_from_arrow(batches)
        assert block.X[:, 0].tolist() == list(range(start, stop))
        found = block.y.targets_by_row()
        if name == "labels":
            found, wanted = ([None if row is None else set(row) for row in some] for some in (found, wanted))
        assert found == wanted


def _coded(column):
    offsets = column.offsets if len(column) else pa.array([0], pa.int32())
    flat = column.values.dictionary_encode()
    return pa.ListArray.from_arrays(offsets, flat, mask=column.is_null() if column.null_count else None)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(-2, 5), min_size=1, max_size=4), st.sampled_from(sorted(LISTS)))
def test_any_offsets_are_read_as_they_say_or_refused(offsets, form):
    columns = {"x": numbers([0.0] * (len(offsets) - 1), pa.float64()), "labels": lists(offsets, ABC, form)}
    sound = offsets == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= 3
    try:
        found = block_from_arrow(read_arrow(body(columns), 1 << 20)).y.targets_by_row()
    except errors.MalformedInput:
        assert not sound
    else:
        assert sound
        assert found == [list("abc"[a:b]) for a, b in pairwise(offsets)]


def test_views_lie_within_their_bytes():
    good = pa.array(["a label of more than twelve bytes"] * 3, pa.string_view())
    for place, number in ((0, 10**9), (0, -1), (2, 1), (3, 99)):
        views = np.frombuffer(good.buffers()[1], np.int32, 12).copy()
        views[4 + place] = number
        column = pa.Array.from_buffers(pa.string_view(), 3, [None, pa.py_buffer(views), good.buffers()[2]])
        with pytest.raises((errors.MalformedInput, errors.LimitExceeded)):
            block_from_arrow(pa.record_batch({"x": np.ones(3), "label": column}))
