"""JSON rows in the three forms, and a refusal by row and column for everything JSON can hold that is not one."""

import tracemalloc

import numpy as np
import orjson
import pytest

import stream_dr
from stream_dr import errors
from stream_dr.batch.json_rows import block_from_json, json_from_block, refuse_missing_values


def sparse(indices, values):
    return {"indices": indices, "values": values}


def test_dense_rows_with_one_label_a_row():
    block = block_from_json({"rows": [[0.1, 0.2], [3, 4]], "labels": ["a", None]})
    assert block.X.tolist() == [[0.1, 0.2], [3.0, 4.0]]
    assert (block.y.kind, block.y.targets_by_row(), block.names) == ("class", ["a", None], None)


def test_sparse_rows_with_lists_of_labels():
    obj = {"rows": [sparse([3, 17], [0.5, 1.2]), sparse([], [])], "labels": [["C15", "CCAT"], []]}
    block = block_from_json(obj)
    assert block.X.shape == (2, 18)
    assert (block.width_stated, block.y.kind) == (False, "multilabel")
    assert block.y.targets_by_row() == [["C15", "CCAT"], []]
    assert json_from_block(block) == obj
    assert block_from_json({**obj, "n_features": 20}).X.shape == (2, 20)
    assert block_from_json({**obj, "n_features": 30}).width_stated


def test_named_rows_whatever_their_order():
    block = block_from_json({"rows": [{"price": 1.5, "size": 2}, {"size": 3, "price": 4}], "target": [0.3, None]})
    assert (block.names, block.X.tolist()) == (("price", "size"), [[1.5, 2], [4, 3]])
    assert (block.y.kind, block.y.targets_by_row()) == ("continuous", [[0.3], None])


def test_weights_ids_and_targets_are_kept():
    block = block_from_json(
        orjson.loads(b'{"rows": [[1], [2]], "weights": [1, 0.5], "ids": ["x", "y"], "target": [[1, 2], [3, 4]]}')
    )
    assert block.weights.tolist() == [1.0, 0.5]
    assert block.ids == ["x", "y"]
    assert block_from_json({"rows": [[1], [2]], "ids": [7, 8]}).ids == [7, 8]
    assert block.y.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(("labels", "row"), [([True, False], True), ([1, 0], 1), ([1.0, 2.0], 1), (["1", "0"], "1")])
def test_labels_keep_their_type(labels, row):
    first = block_from_json({"rows": [[0], [1]], "labels": labels}).y.targets_by_row()[0]
    assert (first, type(first)) == (row, type(row))


def test_integers_of_64_bits_are_labels_as_they_are():
    body = b'{"rows": [[0], [1], [2]], "labels": [18446744073709551615, -9223372036854775808, 9007199254740993]}'
    assert block_from_json(orjson.loads(body)).y.targets_by_row() == [2**64 - 1, -(2**63), 2**53 + 1]


def test_unsorted_indices_are_sorted():
    assert block_from_json({"rows": [sparse([7, 3], [0.7, 0.3])]}).X.indices.tolist() == [3, 7]


def test_no_rows_are_a_block_of_no_rows():
    assert block_from_json({"rows": []}).rows == 0


ROW = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("obj", "error", "named"),
    [
        ([[1, 2]], errors.MalformedInput, "rows"),
        ({}, errors.MalformedInput, "rows"),
        ({"rows": 3}, errors.MalformedInput, "rows"),
        ({"rows": ROW, "lables": ["a", "b"]}, errors.SchemaMismatch, "lables"),
        ({"rows": ["a", 1]}, errors.InvalidRows, "row 1 is a number"),
        ({"rows": [{"a": 1, "b": "x"}, {"a": True}]}, errors.SchemaMismatch, "row 1, column a is True"),
        ({"rows": [[1.0], None]}, errors.InvalidRows, "row 1"),
        ({"rows": [[1.0], {"a": 1}]}, errors.InvalidRows, "row 1"),
        ({"rows": [[]]}, errors.InvalidRows, "row 0"),
        ({"rows": [[1, 2], [3]]}, errors.InvalidRows, "row 1 has 1 features; row 0 has 2"),
        ({"rows": [[1, 2], [3, "4"]]}, errors.InvalidRows, "row 1, column 1 is a string"),
        ({"rows": [[1, 2], [None, 4]]}, errors.InvalidRows, "row 1, column 0 is null"),
        ({"rows": [[1, True]]}, errors.InvalidRows, "row 0, column 1 is true or false"),
        ({"rows": [[1, [2]]]}, errors.InvalidRows, "row 0, column 1 is a list"),
        ({"rows": [[1.0, 2.0], [1e101, 0.0]]}, errors.NotFinite, "row 1, column 0"),
        ({"rows": [sparse([1, 2], [1.0])]}, errors.InvalidRows, "row 0"),
        ({"rows": [sparse([1], [1.0]), {"indices": [1]}]}, errors.InvalidRows, "row 1"),
        ({"rows": [sparse([1], ["a"])]}, errors.InvalidRows, "row 0"),
        ({"rows": [sparse([1], [1.0]), sparse([-1], [1.0])]}, errors.InvalidIndex, "row 1 has index -1"),
        ({"rows": [sparse([1.5], [1.0])]}, errors.InvalidIndex, "1.5"),
        ({"rows": [sparse([True], [1.0])]}, errors.InvalidIndex, "True"),
        ({"rows": [sparse([2**40], [1.0])]}, errors.InvalidIndex, "row 0"),
        ({"rows": [sparse([3, 3], [1.0, 2.0])]}, errors.InvalidIndex, "row 0 has index 3 more than once"),
        ({"rows": [sparse([5], [1.0])], "n_features": 5}, errors.InvalidIndex, "0 to 4"),
        ({"rows": ROW, "n_features": "5"}, errors.SchemaMismatch, "n_features"),
        ({"rows": [{"a": 1}, {"b": 1}]}, errors.SchemaMismatch, "row 1"),
        ({"rows": [{"a": 1, "b": 2}, {"a": 1}]}, errors.SchemaMismatch, "b is missing from row 1"),
        ({"rows": [{"a": ["x"]}]}, errors.SchemaMismatch, "column a is list"),
        ({"rows": ROW, "labels": ["a"]}, errors.InvalidTargets, "2 rows but 1"),
        ({"rows": ROW, "labels": "ab"}, errors.InvalidTargets, "a string"),
        ({"rows": ROW, "labels": ["a", 1]}, errors.InvalidTargets, "int, str"),
        ({"rows": ROW, "labels": [True, 1]}, errors.InvalidTargets, "bool, int"),
        ({"rows": ROW, "labels": [0.5, 1.5]}, errors.InvalidTargets, "target"),
        ({"rows": ROW, "labels": [{"a": 1}, {"b": 1}]}, errors.InvalidTargets, "dict"),
        ({"rows": ROW, "labels": [["a"], "b"]}, errors.InvalidTargets, "one form"),
        ({"rows": ROW, "labels": [["a"], [None]]}, errors.InvalidTargets, "label of row 1 is null"),
        ({"rows": ROW, "labels": [1.0, True]}, errors.InvalidTargets, "bool, float.*under the key"),
        ({"rows": ROW, "target": [[None], [1.0]]}, errors.InvalidTargets, "row 0"),
        (
            orjson.loads(b'{"rows": [[1], [2]], "labels": [18446744073709551617, 1]}'),
            errors.InvalidTargets,
            "1.8446744073709552e[+]19",
        ),
        (
            orjson.loads(b'{"rows": [[1], [2]], "labels": [[18446744073709551617], [1]]}'),
            errors.InvalidTargets,
            "read as a double",
        ),
        ({"rows": ROW, "labels": [2.0**53, 1]}, errors.InvalidTargets, "as integers from"),
        ({"rows": ROW, "labels": ["a", "b"], "target": [1, 2]}, errors.SchemaMismatch, "both"),
        ({"rows": ROW, "target": [1, "2"]}, errors.InvalidTargets, "row 1"),
        ({"rows": ROW, "target": [[1, 2], [3]]}, errors.InvalidTargets, "row 1"),
        ({"rows": ROW, "target": [[], []]}, errors.InvalidTargets, "row 0"),
        ({"rows": ROW, "target": [1, 1e200]}, errors.InvalidTargets, "row 1"),
        ({"rows": ROW, "weights": [1, -1]}, errors.InvalidWeights, "row 1"),
        ({"rows": ROW, "weights": ["1", "1"]}, errors.InvalidWeights, "numbers"),
        ({"rows": ROW, "weights": [1]}, errors.InvalidWeights, "one weight a row"),
        ({"rows": ROW, "ids": ["a"]}, errors.SchemaMismatch, "ids"),
        ({"rows": ROW, "ids": [1, "b"]}, errors.SchemaMismatch, "ids"),
    ],
)
def test_what_is_not_rows_is_refused_by_row_and_column(obj, error, named):
    with pytest.raises(error, match=named):
        block_from_json(obj)


@pytest.mark.parametrize("body", [b"{", b'{"rows": [[NaN]]}', b'{"rows": [["\xff"]]}'])
def test_bytes_that_are_no_json_are_refused(body):
    with pytest.raises(errors.MalformedInput, match="not JSON"):
        stream_dr.parse_rows(body, "json", None)


def test_the_widest_index_allowed_is_that_of_the_declared_features():
    obj = {"rows": [sparse([9], [1.0])]}
    assert block_from_json({**obj, "n_features": 10}).features == 10
    with pytest.raises(errors.InvalidIndex):
        block_from_json({**obj, "n_features": 9})


def test_float32_rows_become_the_doubles_they_equal():
    value = np.float32(0.1)
    assert block_from_json({"rows": [[float(value)]]}).X[0, 0] == float(value)


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([{f"k{i}": "a"} for i in range(5_000)], {}),
        ([{f"k{i}": 1, "s": "a"} for i in range(5_000)], {}),
        ([{f"k{i}": "a" for i in range(50_000)}], {}),
        ([[1]] * 5_000, {"target": [[1] * 5_000, *[None] * 4_999]}),
    ],
    ids=["keys", "mixed keys", "one row", "targets"],
)
def test_what_rows_lack_is_not_made(rows, more):
    tracemalloc.start()
    with pytest.raises(errors.LimitExceeded, match=r"take the room of \d+ values, and \d+ are given.*send fewer rows"):
        refuse_missing_values({"rows": rows, **more})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_table_of_which_much_is_missing_is_read():
    rows = [{f"k{i % 100}": "a", "n": 1} for i in range(1_000)]
    refuse_missing_values({"rows": rows})
    assert block_from_json({"rows": rows}).X.shape == (1_000, 101)
