"""Arrow batches become Blocks, uncopied where the layout allows, and come back; what is no batch is refused by name."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr import errors
from stream_dr.batch.arrow import (
    RESERVED_NAMES,
    arrow_from_block,
    block_from_arrow,
    read_arrow,
    write_arrow,
)
from stream_dr.batch.block import Block
from stream_dr.batch.json_rows import block_from_json, json_from_block
from stream_dr.batch.table import refuse_table, table_from_array
from stream_dr.batch.targets import Targets, class_targets, continuous_targets, multilabel_targets

VALUES = st.floats(-1e100, 1e100, allow_subnormal=True)
SINGLES = st.floats(-(2.0**100), 2.0**100, width=32)


@st.composite
def labels(draw, rows):
    """Targets of a kind, or None; with absent rows."""
    kind = draw(st.sampled_from(["none", "class", "multilabel", "continuous"]))
    label = draw(st.sampled_from([st.text(max_size=3), st.integers(-(2**63), 2**63 - 1), st.booleans()]))
    if kind == "none":
        return None
    if kind == "class":
        return class_targets(draw(st.lists(st.none() | label, min_size=rows, max_size=rows)))
    if kind == "multilabel":
        return multilabel_targets(draw(st.lists(st.none() | st.lists(label, max_size=4), min_size=rows, max_size=rows)))
    width = draw(st.integers(1, 3))
    values = draw(st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=rows, max_size=rows))
    targets = continuous_targets(np.reshape(values, (rows, width)))
    present = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), dtype=bool)
    return targets if present.all() else targets._replace(present=present)


@st.composite
def blocks(draw):
    """Blocks of every layout, dtype, width and kind of target; empty rows, no rows, unstated widths."""
    rows, width = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    single = draw(st.booleans())
    element = SINGLES if single else VALUES
    flat = draw(st.lists(element, min_size=rows * width, max_size=rows * width))
    X = np.array(flat, dtype=np.float32 if single else np.float64).reshape(rows, width)
    layout = draw(st.sampled_from(["dense", "named", "sparse"]))
    names = tuple(f"c{i}" for i in range(width)) if layout == "named" else None
    stated = True
    if layout == "sparse":
        stated = draw(st.booleans())
        X = sp.csr_matrix(X)
        if not stated:
            X.resize(rows, int(X.indices.max()) + 1 if X.nnz else 0)
    weights = draw(st.none() | st.lists(st.floats(0, 1e6), min_size=rows, max_size=rows).map(np.array))
    ids = draw(st.none() | st.lists(st.text(max_size=4), min_size=rows, max_size=rows))
    weights = None if weights is None else weights.astype(np.float64)
    return Block(X, draw(labels(rows)), weights, ids, names, stated)


def same(a: Block, b: Block) -> None:
    """Fail unless two Blocks say the same."""
    assert a.sparse == b.sparse
    assert a.X.shape == b.X.shape
    assert a.X.dtype == b.X.dtype
    assert np.array_equal(a.X.toarray() if a.sparse else a.X, b.X.toarray() if b.sparse else b.X)
    assert (a.names, a.ids, a.width_stated) == (b.names, b.ids, b.width_stated)
    assert (a.weights is None) == (b.weights is None)
    assert a.weights is None or np.array_equal(a.weights, b.weights)
    assert (a.y is None) == (b.y is None)
    if a.y is not None:
        assert a.y.kind == b.y.kind
        assert a.y.targets_by_row() == b.y.targets_by_row()
        assert {type(v) for v in a.y.labels} == {type(v) for v in b.y.labels}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(blocks())
def test_a_block_survives_arrow(block):
    batch = arrow_from_block(block)
    same(block_from_arrow(batch), block)
    same(block_from_arrow(read_arrow(write_arrow([batch]))), block)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(blocks(), st.data())
def test_a_slice_is_the_rows_it_names(block, data):
    start = data.draw(st.integers(0, block.rows))
    stop = data.draw(st.integers(start, block.rows))
    whole = block_from_arrow(arrow_from_block(block), declared_n_features=block.features or None)
    part = block_from_arrow(
        arrow_from_block(block).slice(start, stop - start), declared_n_features=block.features or None
    )
    keep = np.arange(start, stop)
    assert np.array_equal(_dense(part.X), _dense(whole.X[keep]))
    if block.y is not None:
        assert part.y.targets_by_row() == whole.y.targets_by_row()[start:stop]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(blocks(), st.integers(0, 6))
def test_several_record_batches_are_one_block(block, cut):
    batch = arrow_from_block(block)
    cut = min(cut, batch.num_rows)
    same(block_from_arrow([batch.slice(0, cut), batch.slice(cut)]), block_from_arrow(batch))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(blocks())
def test_a_block_survives_json(block):
    if block.rows == 0:
        return
    copy = block_from_json(json_from_block(block))
    widened = block._replace(X=block.X.astype(np.float64))
    if block.y is not None and block.y.present is not None and not block.y.present.any():
        assert copy.y is None or copy.y.targets_by_row() == block.y.targets_by_row()
        copy, widened = copy._replace(y=None), widened._replace(y=None)
    if block.y is not None and not block.y.labels and block.y.kind == "multilabel":
        copy, widened = copy._replace(y=None), widened._replace(y=None)
    same(copy, widened)


def _dense(X):
    return X.toarray() if sp.issparse(X) else X


def sparse(indices, values, kind=None, value=None):
    kind, value = kind or pa.list_(pa.int32()), value or pa.list_(pa.float64())
    return {"indices": pa.array(indices, kind), "values": pa.array(values, value)}


def test_numbers_are_not_copied():
    X = sp.random(50, 1000, density=0.05, format="csr", random_state=0)
    D = np.random.default_rng(0).normal(size=(50, 8))
    for block in (Block(X), Block(D), Block(D.astype(np.float32))):
        data = write_arrow([arrow_from_block(block)])
        got = block_from_arrow(read_arrow(data))
        arrays = (got.X.data, got.X.indices, got.X.indptr) if got.sparse else (got.X,)
        for array in arrays:
            assert np.shares_memory(array, np.frombuffer(data, dtype=np.uint8))
    batch = arrow_from_block(Block(X))
    assert np.shares_memory(batch.column("values").values.to_numpy(), X.data)


def test_a_sliced_sparse_batch_shares_values_too():
    batch = arrow_from_block(Block(sp.random(50, 100, density=0.2, format="csr", random_state=0)))
    got = block_from_arrow(batch.slice(10, 20))
    assert np.shares_memory(got.X.data, batch.column("values").values.to_numpy())


def test_lists_cut_at_different_places_agree():
    indices = pa.ListArray.from_arrays(pa.array([2, 3, 5], pa.int32()), pa.array([9, 9, 4, 1, 7], pa.int32()))
    values = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array([0.5, 1.5, 2.5, 9.0]))
    got = block_from_arrow(pa.record_batch({"indices": indices, "values": values}))
    assert got.X.toarray().tolist() == [[0, 0, 0, 0, 0.5, 0, 0, 0], [0, 1.5, 0, 0, 0, 0, 0, 2.5]]


def test_unsorted_indices_are_sorted_and_the_batch_is_not_changed():
    batch = pa.record_batch(sparse([[7, 3], [1]], [[0.7, 0.3], [1.0]]))
    got = block_from_arrow(batch)
    assert got.X.indices.tolist() == [3, 7, 1]
    assert got.X.data.tolist() == [0.3, 0.7, 1.0]
    assert batch.column("indices").to_pylist() == [[7, 3], [1]]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint16()])
def test_other_integers_serve_as_indices(kind):
    got = block_from_arrow(pa.record_batch(sparse([[3, 17]], [[1.0, 2.0]], pa.list_(kind))))
    assert (got.features, got.width_stated, got.X.indices.dtype) == (18, False, np.int32)


def test_large_lists_and_strings_serve_too():
    columns = sparse([[3], [1, 2]], [[1], [2, 3]], pa.large_list(pa.int64()), pa.large_list(pa.float32()))
    columns |= {"label": pa.array(["a", None], pa.large_string()), "id": pa.array(["x", "y"], pa.large_string())}
    got = block_from_arrow(pa.record_batch(columns))
    assert got.X.dtype == np.float32
    assert (got.y.targets_by_row(), got.ids) == (["a", None], ["x", "y"])


def test_width_is_stated_by_metadata_or_argument():
    batch = pa.record_batch(sparse([[3]], [[1.0]]))
    assert block_from_arrow(batch, declared_n_features=10).X.shape == (1, 10)
    stated = batch.replace_schema_metadata({"n_features": "12"})
    got = block_from_arrow(stated)
    assert (got.features, got.width_stated) == (12, True)
    with pytest.raises(errors.WidthMismatch):
        block_from_arrow(stated, declared_n_features=10)
    with pytest.raises(errors.SchemaMismatch):
        block_from_arrow(batch.replace_schema_metadata({"n_features": "many"}))


def test_plain_columns_keep_names_and_become_rows():
    batch = pa.record_batch({"a": [1, 2], "b": [0.5, 1.5], "label": ["x", "y"], "c": [True, False]})
    got = block_from_arrow(batch)
    assert got.names == ("a", "b", "c")
    assert got.X.tolist() == [[1, 0.5, 1], [2, 1.5, 0]]
    assert got.X.flags.c_contiguous


def test_a_dictionary_column_is_read_by_value():
    coded = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 2], pa.int8()), pa.array(["x", "unused", "x"]))
    got = block_from_arrow(pa.record_batch({"a": np.zeros(4), "label": coded})).y
    assert got.labels == ("x",)
    assert got.targets_by_row() == ["x", "x", None, "x"]


def test_labels_are_numbered_by_first_appearance_and_sorted_within_a_row():
    got = block_from_arrow(pa.record_batch({"a": np.zeros(3), "labels": [["b", "a", "b"], None, ["a", "c"]]})).y
    assert got.labels == ("b", "a", "c")
    assert got.codes.tolist() == [0, 1, 1, 2]
    assert got.indptr.tolist() == [0, 2, 2, 4]
    assert got.present.tolist() == [True, False, True]


def test_labels_under_null_slots_are_not_read():
    offsets = pa.array([0, 1, 3], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(["a", "b", "c"]), mask=pa.array([False, True]))
    got = block_from_arrow(pa.record_batch({"a": np.zeros(2), "labels": lists})).y
    assert got.labels == ("a",)


def test_a_null_target_is_an_absent_row():
    for column in (pa.array([1.5, None]), pa.array([[1.5, 2.5], None], pa.list_(pa.float64(), 2))):
        got = block_from_arrow(pa.record_batch({"a": np.zeros(2), "target": column})).y
        assert got.kind == "continuous"
        assert got.present.tolist() == [True, False]


def test_lists_of_no_rows_may_have_no_offsets():
    for offsets in (None, pa.py_buffer(b"")):
        columns = [
            pa.Array.from_buffers(pa.list_(kind), 0, [None, offsets], children=[pa.array([], kind)])
            for kind in (pa.int32(), pa.float64())
        ]
        block = block_from_arrow(pa.record_batch(columns, ["indices", "values"]))
        assert (block.rows, block.features) == (0, 0)
        sets = pa.Array.from_buffers(pa.list_(pa.string()), 0, [None, offsets], children=[pa.array([], pa.string())])
        block = block_from_arrow(pa.record_batch({"x": pa.array([], pa.float64()), "labels": sets}))
        assert (block.y.kind, block.y.labels, block.y.indptr.tolist()) == ("multilabel", (), [0])


def test_of_two_defects_the_targets_is_told():
    columns = {"x": [1.0], "label": ["a"], "labels": [["a"]], "weight": pa.array([None], pa.float64()), "id": [None]}
    with pytest.raises(errors.SchemaMismatch, match="label and labels"):
        block_from_arrow(pa.record_batch(columns))


def test_a_batch_of_no_rows_is_a_block_of_no_rows():
    assert block_from_arrow(arrow_from_block(Block(np.empty((0, 3))))).X.shape == (0, 3)
    assert block_from_arrow(pa.record_batch(sparse([], []))).X.shape == (0, 0)


def test_lists_of_one_length_are_dense_rows():
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.int64()), pa.list_(pa.decimal128(5, 1))):
        lists = pa.array([[1, 2], [3, 4], [5, 6]], kind)
        for part in (slice(0, 3), slice(1, 3)):
            rows = block_from_arrow(pa.record_batch({"features": lists[part]})).X
            assert rows.tolist() == [[1, 2], [3, 4], [5, 6]][part]
    assert block_from_arrow(pa.record_batch({"features": lists[:0]})).rows == 0


def dense(values, kind=None):
    return {"features": pa.array(values, kind or pa.list_(pa.float64(), 2))}


GOOD = dense([[1.0, 2.0], [3.0, 4.0]])
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("columns", "error", "named"),
    [
        ({}, errors.SchemaMismatch, "no features"),
        ({"label": ["a"]}, errors.SchemaMismatch, "no features"),
        (GOOD | {"colour": ["a", "b"]}, errors.SchemaMismatch, "colour"),
        (GOOD | {"price": [1.0, 2.0]}, errors.SchemaMismatch, "price"),
        ({"a": [1.0], "when": pa.array([0], pa.time32("s"))}, errors.SchemaMismatch, "when"),
        ({"a": [1.0], "__index_level_0__": [0]}, errors.SchemaMismatch, "preserve_index"),
        ({"features": [1.0, 2.0]}, errors.SchemaMismatch, "features"),
        ({"features": [[1.0], [2.0, 3.0]]}, errors.InvalidRows, "2 numbers in row 1 and 1 in row 0"),
        ({"features": [[1.0], None]}, errors.InvalidRows, "row 1"),
        ({"features": [[1.0], [None]]}, errors.InvalidRows, "row 1, column 0"),
        ({"features": [["a"], ["b"]]}, errors.SchemaMismatch, "features"),
        ({"features": pa.array([[], []], pa.list_(pa.float64()))}, errors.SchemaMismatch, "features"),
        (dense([["a", "b"]], pa.list_(pa.string(), 2)), errors.SchemaMismatch, "features"),
        ({"indices": pa.array([[1]], pa.list_(pa.int32()))}, errors.SchemaMismatch, "values"),
        ({"values": pa.array([[1.0]])}, errors.SchemaMismatch, "indices"),
        ({"indices": [1], "values": [1.0]}, errors.SchemaMismatch, "indices"),
        (sparse([[1]], [["a"]], value=pa.list_(pa.string())), errors.SchemaMismatch, "values"),
        (sparse([[1.5]], [[1.0]], kind=pa.list_(pa.float64())), errors.SchemaMismatch, "indices"),
        (sparse([[1, 2], [3]], [[1.0], [2.0, 3.0]]), errors.InvalidRows, "row 0"),
        (sparse([[1], [3]], [[1.0], [None]]), errors.InvalidRows, "row 1"),
        (sparse([[1], [None]], [[1.0], [1.0]]), errors.InvalidRows, "row 1"),
        (sparse([[1], None], [[1.0], None]), errors.InvalidRows, "row 1"),
        (dense([[1.0, 2.0], [3.0, None]]), errors.InvalidRows, "row 1, column 1"),
        (dense([[1.0, 2.0], None]), errors.InvalidRows, "row 1"),
        (dense([[1.0, 2.0], [NAN, 4.0]]), errors.NotFinite, "row 1, column 0 is NaN"),
        (dense([[1.0, INF], [3.0, 4.0]]), errors.NotFinite, "row 0, column 1 is infinity"),
        (dense([[1.0, 2.0], [3.0, 1e101]]), errors.NotFinite, "row 1, column 1"),
        (sparse([[1], [2, 5]], [[1.0], [2.0, NAN]]), errors.NotFinite, "row 1, column 5"),
        ({"a": [1.0, 2.0], "b": [1.0, -INF]}, errors.NotFinite, "row 1, column 1"),
        (sparse([[1], [-2]], [[1.0], [2.0]]), errors.InvalidIndex, "row 1 has index -2"),
        (sparse([[], [5, 2, 5]], [[], [1.0, 2.0, 3.0]]), errors.InvalidIndex, "row 1 has index 5 more than once"),
        (sparse([[1], [2, 2]], [[1.0], [2.0, 3.0]]), errors.InvalidIndex, "row 1 has index 2 more than once"),
        (sparse([[2**40]], [[1.0]], kind=pa.list_(pa.int64())), errors.InvalidIndex, "row 0"),
        (GOOD | {"label": [0.5, 1.5]}, errors.SchemaMismatch, "label"),
        (GOOD | {"label": [["a"], ["b"]]}, errors.SchemaMismatch, "labels"),
        (GOOD | {"labels": ["a", "b"]}, errors.SchemaMismatch, "label"),
        (GOOD | {"labels": [["a"], [None]]}, errors.InvalidTargets, "row 1"),
        (GOOD | {"labels": [[0.5], [1.5]]}, errors.SchemaMismatch, "labels"),
        (GOOD | {"label": ["a", "b"], "target": [1.0, 2.0]}, errors.SchemaMismatch, "label and target"),
        (GOOD | {"target": ["a", "b"]}, errors.SchemaMismatch, "target"),
        (GOOD | {"target": [1.0, NAN]}, errors.InvalidTargets, "row 1"),
        (GOOD | {"weight": ["a", "b"]}, errors.SchemaMismatch, "weight"),
        (GOOD | {"weight": [1.0, -1.0]}, errors.InvalidWeights, "row 1"),
        (GOOD | {"weight": [1.0, NAN]}, errors.InvalidWeights, "row 1"),
        (GOOD | {"weight": [1.0, None]}, errors.InvalidRows, "weight"),
        (GOOD | {"id": [1.5, 2.5]}, errors.SchemaMismatch, "id"),
        (GOOD | {"id": ["a", None]}, errors.InvalidRows, "id"),
    ],
)
def test_what_is_not_a_batch_is_refused_by_name(columns, error, named):
    with pytest.raises(error, match=named):
        block_from_arrow(pa.record_batch(columns))


@pytest.mark.parametrize(
    ("columns", "error", "named"),
    [
        ({"a": [1.0], "when": pa.array([0], pa.timestamp("s"))}, errors.SchemaMismatch, "column when is time"),
        ({"a": [1.0], "text": ["x"]}, errors.SchemaMismatch, r'column text is text.*feature_map=\{"map": "table"\}'),
        ({"a": [1.0, None]}, errors.InvalidRows, "column a is null in row 1"),
    ],
)
def test_a_tables_columns_are_rows_that_no_model_of_numbers_takes(columns, error, named):
    block = block_from_arrow(pa.record_batch(columns))
    assert block.names == tuple(columns)
    with pytest.raises(error, match=named):
        refuse_table(block.X)


def test_a_column_that_comes_twice_is_refused():
    batch = pa.record_batch([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pytest.raises(errors.SchemaMismatch, match="a comes twice"):
        block_from_arrow(batch)


def test_batches_of_different_columns_are_not_one_event():
    with pytest.raises(errors.SchemaMismatch):
        block_from_arrow([pa.record_batch({"a": [1.0]}), pa.record_batch({"b": [1.0]})])
    with pytest.raises(errors.SchemaMismatch):
        block_from_arrow([])


def test_a_stated_width_holds_for_indices_and_for_dense_rows():
    with pytest.raises(errors.InvalidIndex, match="0 to 9"):
        block_from_arrow(pa.record_batch(sparse([[10]], [[1.0]])), declared_n_features=10)
    with pytest.raises(errors.WidthMismatch, match="2 features"):
        block_from_arrow(pa.record_batch(GOOD), declared_n_features=3)


NAMES = (*RESERVED_NAMES, "a", *(f"feature:{name}" for name in RESERVED_NAMES), "feature:feature:id", "feature:a")


@pytest.mark.parametrize("as_table", [False, True])
def test_features_of_any_name_come_back_beside_columns_of_that_name(as_table):
    X = np.arange(2.0 * len(NAMES)).reshape(2, -1)
    X[0, 0] = np.nan if as_table else 0
    rows = table_from_array(X, NAMES) if as_table else X
    block = Block(rows, class_targets(["u", "v"]), np.array([1.0, 2.0]), ["r", "s"], NAMES)
    batch = arrow_from_block(block)
    assert batch.column("weight").to_pylist() == [1.0, 2.0]
    assert batch.column("feature:weight").to_pylist() == X[:, NAMES.index("weight")].tolist()
    got = block_from_arrow(read_arrow(write_arrow([batch])))
    assert (got.names, got.ids, got.weights.tolist(), got.table) == (NAMES, ["r", "s"], [1.0, 2.0], as_table)
    read = [c.to_numpy(zero_copy_only=False) for c in got.X.columns] if as_table else got.X.T
    np.testing.assert_array_equal(np.column_stack(read), X)


@pytest.mark.parametrize("name", [*RESERVED_NAMES, "feature:weight"])
def test_a_bare_name_is_a_feature_if_the_stream_has_it(name):
    batch = pa.record_batch({"a": [1.0, 2.0], name: [3.0, None]})
    block = block_from_arrow(batch, stream_features=("a", name))
    assert (block.names, block.y, block.weights, block.ids) == (("a", name), None, None, None)
    both = pa.record_batch({"a": [1.0], f"feature:{name}": [3.0], "weight": [5.0], "id": ["r"]})
    block = block_from_arrow(both, stream_features=("a", name))
    assert block.names == ("a", name)
    assert block.X.tolist() == [[1.0, 3.0]]


def test_rows_without_names_stay_so_if_the_stream_has_a_feature_of_their_columns_name():
    rows = Block(np.ones((2, 3)))
    assert block_from_arrow(arrow_from_block(rows), stream_features=("features", "a", "b")).names is None


@pytest.mark.parametrize("name", ["features", "indices", "values"])
def test_a_bare_column_of_a_layout_says_how_a_feature_is_called(name):
    for others in ({}, {"a": [1.0]}):
        with pytest.raises(errors.SchemaMismatch, match=f"feature:{name}"):
            block_from_arrow(pa.record_batch({name: [1.0]} | others))
    with pytest.raises(errors.SchemaMismatch, match=r"feature:(indices|values)"):
        block_from_arrow(pa.record_batch({"indices": [1.0], "values": [2.0]}))


def test_raw_targets_of_a_callers_block_are_parsed():
    batch = arrow_from_block(Block(np.ones((3, 2)), ["a", "b", "a"]))
    assert batch.column("label").to_pylist() == ["a", "b", "a"]


def test_integers_past_int64_keep_their_value():
    got = block_from_arrow(arrow_from_block(Block(np.ones((1, 1)), class_targets([2**64 - 1]))))
    assert got.y.labels == (2**64 - 1,)


def test_targets_without_labels_keep_their_kind():
    absent = Targets("class", (), np.full(2, -1, np.int32), present=np.zeros(2, bool))
    got = block_from_arrow(arrow_from_block(Block(np.ones((2, 1)), absent)))
    assert got.y.kind == "class"
    assert got.y.targets_by_row() == [None, None]


@pytest.mark.test_all
def test_mutated_bodies_are_read_or_refused(tmp_path):
    """The short form of `python -m tests.campaigns.bodies codec`, in parsers of its own."""
    command = [sys.executable, "-m", "tests.campaigns.bodies", "codec", "--runs", "1000", "--seed", "0"]
    command += ["--resume", str(tmp_path / "done")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0, done
    counts = json.loads((tmp_path / "done").read_text())["counts"]
    assert counts["malformed_input"] > 250
    assert counts["schema_mismatch"] > 100
    assert counts["read"] > 100


def test_labels_of_a_row_come_ascending_and_once_however_they_were_sent():
    random = np.random.default_rng(4)
    rows = [[f"t{j}" for j in random.integers(0, 30, random.integers(0, 60))] for _ in range(200)]
    for sent in (rows, [None if n % 7 == 3 else row for n, row in enumerate(rows)]):
        batch = pa.record_batch({"a": np.zeros(200), "labels": pa.array(sent, pa.list_(pa.string()))})
        for first in (0, 5):
            y = block_from_arrow(batch.slice(first)).y
            assert [set(r) if r is not None else None for r in y.targets_by_row()] == [
                set(r) if r is not None else None for r in sent[first:]
            ]
            pieces = [y.codes[a:b] for a, b in zip(y.indptr[:-1], y.indptr[1:], strict=True)]
            assert all(np.all(np.diff(piece) > 0) for piece in pieces)


def test_a_signalling_nan_is_refused_wherever_it_is_cast_without_a_warning():
    nan = pa.array(np.array([0x3F800000, 0x7F800001], dtype=np.uint32).view(np.float32))
    half = pa.array(np.array([0x3C00, 0x7D00], dtype=np.uint16).view(np.float16))
    fine = pa.array([1.0, 2.0])
    for columns, error in (
        ({"a": nan, "b": fine}, errors.NotFinite),
        ({"a": fine, "target": nan}, errors.InvalidTargets),
        ({"a": fine, "weight": nan}, errors.InvalidWeights),
        ({"features": pa.FixedSizeListArray.from_arrays(half, 1)}, errors.NotFinite),
    ):
        with pytest.raises(error):
            block_from_arrow(pa.record_batch(columns))


def labels_of(column, name="label"):
    """Labels, codes and presence of a batch with this column."""
    y = block_from_arrow(pa.record_batch({"a": np.ones(len(column)), name: column})).y
    return y.labels, y.codes.tolist(), None if y.present is None else y.present.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_a_dictionary_column_says_what_its_values_say(seed):
    """With labels that no row has, twice the same one, nulls in the dictionary and among the rows; sliced."""
    random = np.random.default_rng(seed)
    words = ["b", "a", "b", None, "", "unused", "c"]
    random.shuffle(words)
    rows = [None if i < 0 else int(i) for i in random.integers(-1, 6, 12)]
    column = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int8()), pa.array(words)).slice(
        int(random.integers(0, 3))
    )
    assert labels_of(column) == labels_of(column.dictionary_decode())
    numbers = pa.DictionaryArray.from_arrays(pa.array(rows, pa.uint16()), pa.array([3, 3, 1, 2, 2, 9, 8]))
    assert labels_of(numbers) == labels_of(numbers.dictionary_decode())
    lists = pa.ListArray.from_arrays([0, 1, 1, len(column)], column)
    decoded = pa.ListArray.from_arrays([0, 1, 1, len(column)], column.dictionary_decode())
    whole = []
    for column in (lists, decoded):
        try:
            whole.append(block_from_arrow(pa.record_batch({"a": np.ones(3), "labels": column})).y.labels)
        except errors.InvalidTargets as e:
            whole.append(str(e))
    assert whole[0] == whole[1]


def test_a_label_that_many_rows_share_takes_its_memory_once():
    word = "x" * (1 << 20)
    rows = pa.array(np.zeros(12_000, dtype=np.int8))
    column = pa.DictionaryArray.from_arrays(rows, pa.array([word], pa.large_string()))  # 12 GB unpacked
    assert labels_of(column) == ((word,), [0] * 12_000, None)
    views = pa.array([word] * 100, pa.string_view())
    with pytest.raises(errors.LimitExceeded, match="column label have more than"):
        labels_of(views)


def test_a_null_array_of_any_length_is_refused_without_looking_through_it():
    many = 2**31 - 2
    for column, error in (
        (pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), pa.nulls(many)), errors.InvalidRows),
        (pa.FixedSizeListArray.from_arrays(pa.nulls(many), many), errors.InvalidRows),
    ):
        name = "indices" if pa.types.is_list(column.type) else "features"
        columns = {name: column} | ({"values": column} if name == "indices" else {})
        with pytest.raises(error):
            block_from_arrow(pa.record_batch(columns))
    lists = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), pa.nulls(many))
    with pytest.raises(errors.InvalidTargets, match="a label of row 0 is null"):
        block_from_arrow(pa.record_batch({"a": [1.0], "labels": lists}))


def test_integer_ids_stay_integers():
    block = Block(np.eye(2), ids=[7, -8])
    assert block_from_arrow(arrow_from_block(block)).ids == [7, -8]
    assert arrow_from_block(block).schema.field("id").type == pa.int64()
