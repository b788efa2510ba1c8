"""Whatever y is passed as, the same targets are read."""

import collections

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.targets import KINDS
from stream_dr.errors import InvalidTargets, TargetKindMismatch


def rows_of(y, kind="auto", rows=2):
    return parse_targets(y, rows, KINDS, kind).targets_by_row()


@pytest.mark.parametrize(
    "y",
    [
        ["b", None, "a"],
        ("b", None, "a"),
        collections.deque(["b", np.nan, "a"]),
        {0: "b", 1: None, 2: "a"}.values(),
        np.array(["b", None, "a"], dtype=object),
        np.ma.array(["b", "c", "a"], mask=[False, True, False]),
        pd.Series(["b", None, "a"]),
        pd.Series(["b", None, "a"], dtype="category"),
        pl.Series(["b", None, "a"]),
        pl.Series(["b", None, "a"], dtype=pl.Categorical),
        pa.array(["b", None, "a"]),
        pa.chunked_array([["b", None], ["a"]]),
        pa.array(["b", None, "a"]).dictionary_encode(),
    ],
    ids=lambda y: type(y).__name__,
)
def test_a_column_of_labels_is_objects_with_none_where_one_is_missing(y):
    assert rows_of(y, "class", 3) == ["b", None, "a"]


@pytest.mark.parametrize(
    "y",
    [
        [0.5, None, 2.0],
        np.array([0.5, None, 2.0], dtype=object),
        pd.Series([0.5, None, 2], dtype="Float64"),
        pl.Series([0.5, None, 2]),
        pa.array([0.5, None, 2]),
    ],
    ids=lambda y: type(y).__name__,
)
def test_a_column_of_floats_has_nan_where_one_is_missing(y):
    assert rows_of(y, rows=3) == [[0.5], None, [2.0]]


@pytest.mark.parametrize(
    "y",
    [
        sp.csr_matrix([[1, 0], [0, 1]]),
        sp.coo_array([[1, 0], [0, 1]]),
        pd.DataFrame([[1, 0], [0, 1]]),
        pl.DataFrame({"a": [1, 0], "b": [0, 1]}),
        np.matrix([[1, 0], [0, 1]]),
        [[1.0, 0.0], [0.0, 1.0]],
    ],
    ids=lambda y: type(y).__name__,
)
def test_a_table_is_two_dimensional(y):
    assert rows_of(y, "multilabel") == [[0], [1]]
    assert rows_of(y, "continuous") == [[1.0, 0.0], [0.0, 1.0]]


def test_nested_lists_are_collections_unless_they_are_numbers():
    assert rows_of([[1, 2], [3, 4]]) == [[1, 2], [3, 4]]
    assert rows_of([[1, 2], [3, 4]], "continuous") == [[1.0, 2.0], [3.0, 4.0]]
    assert rows_of(np.array([["a"], None, np.nan], dtype=object), rows=3) == [["a"], None, None]
    with pytest.raises(TargetKindMismatch, match="several lengths"):
        rows_of([[0.5], [1.0, 2.0]], "continuous")


COLUMN = np.array([[1], [0]])


@pytest.mark.parametrize(
    "y",
    [
        COLUMN,
        COLUMN.astype(float),
        COLUMN.astype(object),
        np.asfortranarray(COLUMN),
        np.matrix(COLUMN),
        np.ma.masked_array(COLUMN),
        sp.csr_matrix(COLUMN),
        pd.DataFrame(COLUMN),
        pd.DataFrame({"y": pd.array([1, 0], dtype="Int64")}),
        pl.DataFrame({"y": [1, 0]}),
        pa.table({"y": [1, 0]}),
        pa.record_batch({"y": [1, 0]}),
    ],
)
def test_a_single_column_is_one_target_a_row(y):
    assert rows_of(y, "class") == [1, 0]
    assert rows_of(y, "continuous") == [[1.0], [0.0]]


@pytest.mark.parametrize("y", [COLUMN, COLUMN.astype(float), np.asfortranarray(COLUMN), sp.csr_matrix(COLUMN)])
def test_a_single_column_of_several_labels_is_an_indicator(y):
    assert rows_of(y, "multilabel") == [[0], []]


def test_a_column_of_text_is_one_label_a_row_and_may_have_gaps():
    assert rows_of(np.array([["a"], [None]], dtype=object)) == ["a", None]
    assert rows_of(np.ma.masked_array(COLUMN, [[False], [True]])) == [1, None]
    with pytest.raises(TargetKindMismatch, match="one label a row"):
        rows_of(np.array([["a"], [None]], dtype=object), "multilabel")


class _Unreadable:
    """Has a length, and no rows."""

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("y", [_Unreadable(), 5, "ab", {"a": 1}, iter("ab"), np.zeros(()), np.zeros((2, 2, 2))])
def test_what_is_not_one_target_a_row_is_refused(y):
    with pytest.raises(InvalidTargets, match=r"pass (a list|one target|\(rows,\))"):
        rows_of(y)
