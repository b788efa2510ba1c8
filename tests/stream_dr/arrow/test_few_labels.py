"""Columns of few distinct strings are encoded as Arrow encodes them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr.arrow.few_labels import FEW, ROWS, SHORT, _encode_few, few_labels
from stream_dr.arrow.ipc import read_arrow, write_arrow
from stream_dr.arrow.targets import targets_from_arrow


def expected(column: pa.Array) -> tuple[tuple[str, ...], list[int]]:
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), encoded.indices.to_pylist()


WORDS = st.text("aäb\0\U0001f600", max_size=3)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(WORDS, min_size=1, max_size=20).flatmap(lambda known: st.lists(st.sampled_from(known), min_size=1)),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_it_says_what_arrow_says(rows, before, after):
    column = pa.array(["one more"] * before + rows + ["others"] * after, pa.string()).slice(before, len(rows))
    labels, codes = expected(column)
    found = few_labels(column)
    if found is None:
        assert len(labels) > FEW or labels == ("",)
    else:
        assert found[0] == labels
        assert found[1].dtype == np.int32
        assert found[1].tolist() == codes


@pytest.mark.parametrize("distinct", [1, FEW, FEW + 1, 500])
def test_so_many_labels_and_no_more(distinct):
    column = pa.array([f"label {i % distinct}" for i in range(1_000)])
    assert (few_labels(column) is None) == (distinct > FEW)
    targets = targets_from_arrow(pa.record_batch({"label": column}))
    assert (targets.labels, targets.codes.tolist()) == expected(column)


def test_long_labels_are_left_to_arrow():
    same = "x" * 2 * SHORT
    rows = [same + "a", same + "b"] * 100
    assert few_labels(pa.array(rows)) is None
    assert few_labels(pa.array(rows + ["c"] * 300)) is not None  # short on average
    targets = targets_from_arrow(pa.record_batch({"label": pa.array(rows)}))
    assert targets.labels == (same + "a", same + "b")


def test_many_rows_are_left_to_arrow():
    rows = pa.array(["a", "b"] * (ROWS // 2) + ["a"])
    assert few_labels(rows[:ROWS]) is not None
    assert few_labels(rows) is None


def test_nulls_and_lists_of_labels_are_encoded_as_before():
    targets = targets_from_arrow(pa.record_batch({"label": pa.array(["b", None, "a", "b"])}))
    assert (targets.labels, targets.codes.tolist()) == (("b", "a"), [0, -1, 1, 0])
    assert targets.present.tolist() == [True, False, True, True]
    sets = pa.array([["dropped"], ["b", "a"], [], ["b"]]).slice(1)
    targets = targets_from_arrow(pa.record_batch({"labels": sets}))
    assert (targets.labels, targets.row_labels()) == (("b", "a"), [["b", "a"], [], ["b"]])


def test_one_loop_is_compiled_whether_arrow_or_the_network_made_the_column():
    batch = pa.record_batch({"label": ["a", "b", "a"]})
    for made in (batch, read_arrow(write_arrow([batch]))[0]):
        assert few_labels(made.column("label"))[0] == ("a", "b")
    assert len(_encode_few.signatures) == 1


def test_a_column_of_no_rows_is_left_to_arrow():
    assert few_labels(pa.array([], pa.string())) is None
