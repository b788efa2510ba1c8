"""Targets are parsed once, keep their labels' types, and say clearly what they could not be."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from stream_dr.batch.block import Block
from stream_dr.batch.parsing import check_targets_unambiguous, parse_targets
from stream_dr.batch.targets import (
    KINDS,
    check_label_type,
    class_targets,
    continuous_targets,
    drop_rows_without_target,
)
from stream_dr.errors import InvalidTargets, TargetKindMismatch

SINGLE = ("class",)


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        (["b", "a", "b"], ("b", "a")),
        (np.array(["b", "a", "b"]), ("b", "a")),
        (np.array(["b", "a", "b"], dtype=object), ("b", "a")),
        (pd.Series(["b", "a", "b"]), ("b", "a")),
        (pa.array(["b", "a", "b"]), ("b", "a")),
        ([3, 1, 3], (3, 1)),
        (np.array([3, 1, 3], dtype=np.uint8), (3, 1)),
        (np.array([3.0, 1.0, 3.0]), (3, 1)),
        ([True, False, True], (True, False)),
        (np.array([True, False, True]), (True, False)),
    ],
)
def test_one_label_a_row_is_a_class_and_keeps_its_type(y, labels):
    targets = parse_targets(y, 3, SINGLE)
    assert targets.kind == "class"
    assert targets.labels == labels
    assert [type(v) for v in targets.labels] == [type(v) for v in labels]
    assert targets.codes.tolist() == [0, 1, 0]
    assert targets.codes.dtype == np.int32
    assert targets.targets_by_row() == [labels[0], labels[1], labels[0]]


@pytest.mark.parametrize("y", [[-1, 2**63], [np.int64(-1), np.uint64(2**63)], np.array([-1, 2**63], dtype=object)])
def test_integers_that_no_type_of_numpys_holds_are_kept(y):
    for kinds in (SINGLE, KINDS):
        assert parse_targets(y, 2, kinds).targets_by_row() == [-1, 2**63]


@pytest.mark.parametrize("y", [[0.5, 1.0], np.array([0.5, 1.0]), np.array([[0.5, 1.0], [2.0, 3.0]])])
def test_numbers_that_are_not_whole_are_continuous(y):
    assert parse_targets(y, 2, KINDS).kind == "continuous"


def test_targets_in_single_precision_are_read_as_any_other():
    assert parse_targets(np.array([0.5, 1.0], dtype=np.float32), 2, KINDS).targets_by_row() == [[0.5], [1.0]]
    assert parse_targets(np.array([2, 1], dtype=np.float16), 2, SINGLE).targets_by_row() == [2, 1]
    with pytest.raises(InvalidTargets, match="NaN or infinity"):
        parse_targets(np.array([0.5, np.inf], dtype=np.float32), 2, KINDS)


def test_whole_floats_are_continuous_where_several_labels_a_row_are_taken():
    assert parse_targets(np.array([1.0, 2.0]), 2, KINDS).kind == "continuous"
    assert parse_targets(np.array([1.0, 2.0]), 2, ("class", "continuous")).kind == "class"


def test_a_column_of_text_is_one_label_a_row():
    for kinds in (SINGLE, KINDS):
        parsed = parse_targets(np.array([["b"], ["a"], ["b"]]), 3, kinds)
        assert (parsed.kind, parsed.targets_by_row()) == ("class", ["b", "a", "b"])


@pytest.mark.parametrize("dtype", [int, bool, float, np.uint8])
def test_a_table_of_zeros_and_ones_is_multilabel(dtype):
    targets = parse_targets(np.array([[1, 0, 1], [0, 0, 0]], dtype=dtype), 2, KINDS)
    assert targets.kind == "multilabel"
    assert targets.labels == (0, 1, 2)
    assert targets.targets_by_row() == [[0, 2], []]


def test_label_sets_are_multilabel_in_every_form():
    for y in ([["b", "a"], [], ["a"]], [{"a", "b"}, set(), {"a"}], pa.array([["b", "a"], [], ["a"]])):
        targets = parse_targets(y, 3, KINDS)
        assert targets.kind == "multilabel"
        assert [set(r) for r in targets.targets_by_row()] == [{"a", "b"}, set(), {"a"}]


def test_codes_ascend_within_a_row_and_repeats_count_once():
    targets = parse_targets([["a", "b"], ["b", "a", "b"]], 2, KINDS)
    assert targets.codes.tolist() == [0, 1, 0, 1]
    assert targets.indptr.tolist() == [0, 2, 4]


def test_a_missing_target_is_absent_and_its_row_left_out():
    targets = parse_targets(["a", None, "b"], 3, SINGLE)
    assert targets.present.tolist() == [True, False, True]
    kept, skipped = drop_rows_without_target(
        Block(np.arange(6.0).reshape(3, 2), targets, np.array([1.0, 2.0, 3.0]), ["x", "y", "z"])
    )
    assert skipped == 1
    np.testing.assert_array_equal(kept.X, [[0, 1], [4, 5]])
    assert kept.y.targets_by_row() == ["a", "b"]
    assert kept.weights.tolist() == [1.0, 3.0]
    assert kept.ids == ["x", "z"]
    kept, skipped = drop_rows_without_target(Block(np.ones((3, 2))))
    assert (kept.rows, skipped) == (0, 3)


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        (pd.Series(["x", None, "y"]), ["x", None, "y"]),
        (pd.Series([None, "x", "y"], dtype="string"), [None, "x", "y"]),
        (pd.Series(["x", np.nan, "y"], dtype=object), ["x", None, "y"]),
        (pd.Series(["x", pd.NA, "y"], dtype=object), ["x", None, "y"]),
        (pd.Series(["x", None, "y"], dtype="category"), ["x", None, "y"]),
        (pd.Categorical(["x", None, "y"]), ["x", None, "y"]),
        (pd.Series([1, None, 2], dtype="Int64"), [1, None, 2]),
        (pd.array([None, 1, 2], dtype="Int64"), [None, 1, 2]),
        (pd.Series([1, None, 2**63 - 1], dtype="int64[pyarrow]"), [1, None, 2**63 - 1]),
        (pd.Series([1, None, 2], dtype="category"), [1, None, 2]),
        (pd.Series([True, None, False], dtype="boolean"), [True, None, False]),
        (pd.Series([None, None, None], dtype="string"), [None, None, None]),
        (pd.DataFrame({"y": pd.array([None, "x", "y"], dtype="string")}), [None, "x", "y"]),
        (["x", np.nan, "y"], ["x", None, "y"]),
    ],
)
def test_what_pandas_says_is_missing_is_a_row_without_a_target(y, labels):
    for kinds in (SINGLE, KINDS):
        targets = parse_targets(y, 3, kinds)
        assert (targets.kind, targets.targets_by_row()) == ("class", labels)


def test_a_frames_only_column_may_have_gaps_where_one_label_a_row_is_taken():
    y = pd.DataFrame({"y": pd.array([None, 1, 2], dtype="Int64")})
    for targets in (parse_targets(y, 3, SINGLE), parse_targets(y, 3, KINDS, requested_kind="class")):
        assert targets.targets_by_row() == [None, 1, 2]


def test_missing_sets_and_missing_numbers():
    for y in (pd.Series([None, ["a"], np.nan]), [None, ["a"], np.nan], [pd.NA, {"a"}, None]):
        assert parse_targets(y, 3, KINDS).targets_by_row() == [None, ["a"], None]
    for y in (pd.Series([0.5, None, 2], dtype=object), [0.5, None, 2]):
        assert parse_targets(y, 3, KINDS, requested_kind="continuous").targets_by_row() == [[0.5], None, [2.0]]
    for y in (np.array([0.5, np.nan, 2.0]), [0.5, np.nan, 2.0], pd.Series([0.5, np.nan, 2.0])):
        assert parse_targets(y, 3, KINDS).targets_by_row() == [[0.5], None, [2.0]]
    for y in (np.array([1.0, np.nan, 2.0]), np.array([1.0, np.nan, 2.0], np.float32), pd.Series([1.0, None, 2.0])):
        assert parse_targets(y, 3, SINGLE).targets_by_row() == [1, None, 2]
    assert parse_targets(np.full(3, np.nan), 3, SINGLE).targets_by_row() == [None, None, None]
    with pytest.raises(TargetKindMismatch, match=r"labels were given .'x'"):
        parse_targets([None, "x", 1.0], 3, KINDS, earlier_kind="continuous")


def test_take_picks_rows_of_every_kind():
    many = parse_targets([["a"], ["b", "a"], None, []], 4, KINDS)
    assert many.take(np.array([1, 3])).targets_by_row() == [["a", "b"], []]
    numbers = parse_targets([[0.5, 1.0], [2.0, 3.0]], 2, KINDS)
    assert numbers.take(np.array([False, True])).targets_by_row() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("y", "kinds", "error", "message"),
    [
        ([["a", "b"], ["a"]], SINGLE, TargetKindMismatch, "OPLS, CCA or HSL"),
        (np.eye(2), SINGLE, TargetKindMismatch, "OPLS, CCA or HSL"),
        ([0.5, 1.5], SINGLE, InvalidTargets, "not whole"),
        ([0.5, np.inf], KINDS, InvalidTargets, "NaN or infinity"),
        (["a"], SINGLE, InvalidTargets, "2 rows but 1 targets"),
        (["a", 1], SINGLE, InvalidTargets, "all strings, all integers or all bools"),
        ([True, 1], SINGLE, InvalidTargets, "all strings, all integers or all bools"),
        ([b"a", b"b"], SINGLE, InvalidTargets, "bytes"),
        (np.ones((2, 2, 2)), KINDS, InvalidTargets, "3 dimensions"),
        (5, SINGLE, InvalidTargets, "of type int; pass a list or an array"),
        ((v for v in "ab"), SINGLE, InvalidTargets, "of type generator; pass a list or an array"),
        (iter([1, 2]), KINDS, InvalidTargets, "of type list_iterator; pass a list or an array"),
        ([1e19, 2e19], SINGLE, InvalidTargets, "label 1e[+]19 is read as a double"),
        ([2.0**53, 3], SINGLE, InvalidTargets, "read as a double"),
        ([2**70, 1], SINGLE, InvalidTargets, f"label {2**70} is outside"),
        ([2**70, 1], KINDS, InvalidTargets, f"label {2**70} is outside"),
        ([np.int64(1), 2**70], KINDS, InvalidTargets, f"label {2**70} is outside"),
        ([[2**70], [1]], KINDS, InvalidTargets, f"label {2**70} is outside"),
    ],
)
def test_targets_that_cannot_be_read_are_refused(y, kinds, error, message):
    with pytest.raises(error, match=message):
        parse_targets(y, 2, kinds)


@pytest.mark.parametrize("sets", [[["a", None], ["b"]], [["a"], (None,)], [["b"], {"a", None}]])
def test_no_label_in_a_row_is_none(sets):
    with pytest.raises(InvalidTargets, match=r"a label of row \d is null"):
        parse_targets(sets, len(sets), KINDS)


def test_the_kind_decided_first_stays():
    assert parse_targets([1, 2], 2, KINDS, earlier_kind="continuous").kind == "continuous"
    with pytest.raises(TargetKindMismatch):
        parse_targets([["a"], ["b"]], 2, KINDS, earlier_kind="class")
    with pytest.raises(TargetKindMismatch):
        parse_targets(["a", "b"], 2, KINDS, earlier_kind="multilabel")
    assert parse_targets(np.array([[0.0, 1.0], [1.0, 1.0]]), 2, KINDS, requested_kind="continuous").kind == "continuous"


def test_a_kind_that_is_stated_against_the_one_decided_is_refused():
    for kind, known in (("class", "continuous"), ("continuous", "class"), ("multilabel", "class")):
        with pytest.raises(TargetKindMismatch, match=f"target='{kind}' was given; .* {known} targets"):
            parse_targets([1.0, 2.0], 2, KINDS, requested_kind=kind, earlier_kind=known)


@pytest.mark.parametrize("y", [[[1], [2]], [[0], [1]], [[1.0], [0.0]]])
def test_a_column_is_one_label_a_row_where_that_is_the_kind(y):
    for stated in ({"requested_kind": "class"}, {"earlier_kind": "class"}):
        targets = parse_targets(np.array(y), 2, KINDS, **stated)
        assert (targets.kind, targets.targets_by_row()) == ("class", [int(v) for (v,) in y])


COLUMN = np.array([[1], [2]])


@pytest.mark.parametrize(
    "y",
    [
        [0.0, 1.0],
        [1.0, None],
        np.array([1.0, 2.0], dtype=object),
        np.array([3.0, 4.0], dtype=np.float32),
        pa.array([1.0, 2.0]),
        pd.Series([1.0, 2.0]),
        COLUMN.astype(float),
        pd.DataFrame(COLUMN.astype(float)),
        [[1.0], [2.0]],
    ],
)
def test_whole_numbers_may_be_classes(y):
    with pytest.raises(InvalidTargets, match='target="class" or target="continuous"'):
        check_targets_unambiguous(y, parse_targets(y, 2, KINDS))


@pytest.mark.parametrize(
    "y",
    [
        [0, 1],
        [0.5, 1.0],
        ["a", "b"],
        [True, False],
        [[1], [2]],
        COLUMN,
        COLUMN > 1,
        pd.DataFrame(COLUMN),
        np.array([[0.5], [1.0]]),
        np.array([["a"], ["b"]]),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        np.array([[0, 1], [1, 0]]),
        class_targets([0, 1]),
        continuous_targets([0.0, 1.0]),
    ],
)
def test_what_is_no_whole_number_or_has_several_a_row_is_beyond_doubt(y):
    check_targets_unambiguous(y, parse_targets(y, 2, KINDS))


def test_label_types_do_not_mix_between_batches():
    check_label_type((), ("a",))
    check_label_type(("a",), ())
    with pytest.raises(InvalidTargets, match="had str labels"):
        check_label_type(("a",), (1,))
    with pytest.raises(InvalidTargets):
        check_label_type((1,), (True,))


@pytest.mark.parametrize(
    "y",
    [
        [1.5, None, 3.0],
        np.array([1.5, None, 3.0], dtype=object),
        pa.array([1.5, None, 3.0]),
        pd.Series([1.5, None, 3], dtype="Float64"),
    ],
)
def test_numbers_with_gaps_are_numbers(y):
    targets = parse_targets(y, 3, KINDS)
    assert (targets.kind, targets.present.tolist()) == ("continuous", [True, False, True])
    assert targets.values[[0, 2], 0].tolist() == [1.5, 3.0]


def test_whole_numbers_with_gaps_are_classes_where_only_those_are_taken():
    targets = parse_targets([2.0, None, 3.0], 3, SINGLE)
    assert (targets.labels, targets.codes.tolist(), targets.present.tolist()) == (
        (2, 3),
        [0, -1, 1],
        [True, False, True],
    )


@pytest.mark.parametrize(("dtype", "bits"), [(np.float16, 11), (np.float32, 24)])
def test_a_short_float_that_may_be_another_number_is_no_label(dtype, bits):
    assert parse_targets(np.array([2.0**bits - 1, 1], dtype=dtype), 2, SINGLE).labels == (2**bits - 1, 1)
    with pytest.raises(InvalidTargets, match=rf"2\*\*{bits} on a float{dtype(0).nbytes * 8} may be another"):
        parse_targets(np.array([2.0**bits, 1], dtype=dtype), 2, SINGLE)


@pytest.mark.parametrize(
    "y", ["abc", b"abc", {0: "a", 1: "b", 2: "c"}, {"a", "b", "c"}, frozenset("abc")], ids=lambda y: type(y).__name__
)
@pytest.mark.parametrize("kinds", [("class",), ("class", "multilabel", "continuous")])
def test_what_has_no_order_of_rows_is_no_column_of_targets(y, kinds):
    with pytest.raises(InvalidTargets, match=type(y).__name__):
        parse_targets(y, 3, kinds)


def test_masked_entries_are_rows_without_a_target():
    mask = [False, True, False]
    assert parse_targets(np.ma.array(["a", "b", "c"], mask=mask), 3, ("class",)).targets_by_row() == ["a", None, "c"]
    assert parse_targets(np.ma.array([1, 2, 1], mask=mask), 3, ("class",)).targets_by_row() == [1, None, 1]
    values = parse_targets(np.ma.array([0.5, 2.5, 1.5], mask=mask), 3, ("continuous",))
    assert values.targets_by_row() == [[0.5], None, [1.5]]
