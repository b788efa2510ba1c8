"""Labels are coded as a plain loop codes them."""

from typing import Any

import numpy as np
import pytest

from stream_dr import LDA, OPLS, PCA, errors, table
from stream_dr.batch.targets import class_targets, label_array, multilabel_targets

RANDOM = np.random.default_rng(0)
LISTS = [
    RANDOM.choice(["b", "a", "cc"], 50).tolist(),
    RANDOM.integers(-3, 3, 50).tolist(),
    (RANDOM.random(50) < 0.5).tolist(),
    [],
]


def by_loop(items):
    table = list(dict.fromkeys(items))
    return tuple(table), [table.index(item) for item in items]


@pytest.mark.parametrize("items", LISTS)
@pytest.mark.parametrize("form", [list, np.array, lambda v: np.array(v, dtype=object)])
def test_codes_in_order_of_first_appearance(items, form):
    _, table, codes, _, _, present = class_targets(form(items))
    assert (table, codes.tolist()) == by_loop(items)
    assert [type(label) for label in table] == [type(label) for label in by_loop(items)[0]]
    assert codes.dtype == np.int32
    assert present is None


def test_none_is_absent_and_types_are_not_mixed():
    _, table, codes, _, _, present = class_targets(["a", None, "b"])
    assert (table, codes.tolist(), present.tolist()) == (("a", "b"), [0, -1, 1], [True, False, True])
    for mixed in (["a", 1], [True, 1], [1.0, True], [1.5, 2.0], [b"a"]):
        with pytest.raises(errors.InvalidTargets):
            class_targets(mixed)


def test_sets_are_sorted_and_distinct_within_a_row():
    _, table, codes, indptr, _, present = multilabel_targets([["b", "a", "b"], [], ("c", "b"), ["a"]])
    assert present is None
    assert table == ("b", "a", "c")
    assert codes.tolist() == [0, 1, 0, 2, 1]
    assert indptr.tolist() == [0, 2, 2, 4, 5]
    assert multilabel_targets([["a"], None]).present.tolist() == [True, False]
    with pytest.raises(errors.InvalidTargets, match="type int, str"):
        multilabel_targets([["a"], [1]])
    assert multilabel_targets([]).indptr.tolist() == [0]


@pytest.mark.parametrize("labels", [["a", "b\ud800"], [None, "\udc00"], np.array(["a", "\ud800"])])
def test_half_a_character_is_no_label(labels):
    with pytest.raises(errors.InvalidTargets, match="half a character"):
        class_targets(labels)
    if None not in labels:
        with pytest.raises(errors.InvalidTargets, match="half a character"):
            multilabel_targets([list(map(str, labels))])


def test_what_cannot_be_told_apart_is_no_label():
    with pytest.raises(errors.InvalidTargets, match="type dict, str"):
        class_targets(["a", {}])


ENDS = [-(2**63), 2**64 - 1, 0]


def test_integers_that_no_column_holds_are_refused_and_those_at_the_ends_are_not():
    assert class_targets(ENDS).labels == tuple(ENDS)
    assert multilabel_targets([ENDS]).labels == tuple(ENDS)
    for odd in (2**64, -(2**63) - 1, 10**400):
        for read in (class_targets, lambda labels: multilabel_targets([labels])):
            with pytest.raises(errors.InvalidTargets, match=f"label {odd} is outside"):
                read([1, odd])
        with pytest.raises(errors.InvalidTargets, match="outside"):
            class_targets([1, None, odd])


def test_a_whole_float_that_may_be_another_number_is_no_label():
    assert class_targets([2.0**53 - 1, -3.0]).labels == (2**53 - 1, -3)
    for odd in (2.0**53, -(2.0**53), 1e19, 1e300):
        for given in ([odd, 1.0], [1, odd], [None, odd], [np.float64(odd)]):
            with pytest.raises(errors.InvalidTargets, match="read as a double"):
                class_targets(given)


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        ((17, 2**63 + 100), np.uint64),
        ((-1, 2**63 + 1), object),
        ((-1, 17), np.int64),
        ((2**64 - 1,), np.uint64),
        (("a", "bc"), "<U2"),
        ((False, True), bool),
    ],
)
def test_an_array_of_labels_holds_each_as_it_is(labels, dtype):
    array = label_array(labels)
    assert (array.dtype, tuple(array.tolist())) == (np.dtype(dtype), labels)


def test_labels_that_differ_in_a_null_character_at_their_end_are_shown_apart():
    assert label_array(["a", "a\0"]).tolist() == ["a", "a\0"]
    assert OPLS().fit([[0.0], [1.0], [5.0]], ["a", "a\0", "a\0"]).classes_.tolist() == ["a", "a\0"]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integers_of_any_type_are_coded_as_a_list_of_them(kind: type) -> None:
    rng, bounds = np.random.default_rng(3), np.iinfo(kind)
    for low in (bounds.min, bounds.max - 200, max(bounds.min, -5)):
        for rows in (1, 2, 1_000):
            labels = rng.integers(low, min(bounds.max, low + 300), rows, dtype=kind, endpoint=True)
            _, table, codes, _, _, present = class_targets(labels)
            listed = class_targets(labels.tolist())
            assert table == listed.labels
            assert {type(label) for label in table} == {int}
            assert codes.dtype == np.int32
            assert codes.tolist() == listed.codes.tolist()
            assert present is None


DATE = np.datetime64("2020-01-01", "ns")


@pytest.mark.parametrize(
    ("labels", "types"),
    [
        ([DATE, np.int64(3)], "datetime64, int"),
        ([np.int64(3), DATE], "datetime64, int"),
        ([DATE, np.bool_(True)], "bool, datetime64"),
        ([DATE, DATE], "datetime64"),
        ([np.timedelta64(1, "s"), np.int64(3)], "int, timedelta"),
    ],
)
def test_dates_of_numpy_are_no_labels(labels: list[Any], types: str) -> None:
    with pytest.raises(errors.InvalidTargets, match=f"labels are of type {types};"):
        LDA().fit(np.eye(2), labels)
    with pytest.raises(errors.InvalidTargets, match="labels are of type"):
        OPLS().fit(np.eye(2), [labels, labels])


def test_dates_of_numpy_beside_numbers_are_no_column() -> None:
    with pytest.raises(errors.SchemaMismatch, match=r"row 1, column a is np\.int64\(3\)"):
        PCA(feature_map=table()).fit([{"a": DATE}, {"a": np.int64(3)}])
