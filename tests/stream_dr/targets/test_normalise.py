"""Whatever y is passed as, it becomes a list of collections, a table or a column."""

import collections

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.targets.normalise import normalise_targets


def normalised(y, columns=False, numeric=False):
    return normalise_targets(y, columns, numeric)


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
    column = normalised(y)
    assert (column.shape, column.tolist()) == ((3,), ["b", None, "a"])


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
    np.testing.assert_array_equal(normalised(y), [0.5, np.nan, 2.0])


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
    np.testing.assert_array_equal(normalised(y), np.eye(2))


def test_nested_lists_are_collections_unless_they_are_numbers():
    assert normalised([[1, 2], [3, 4]]) == [[1, 2], [3, 4]]
    assert normalised([[1, 2], [3, 4]], numeric=True).tolist() == [[1, 2], [3, 4]]
    assert normalised(np.array([["a"], None, np.nan], dtype=object)) == [["a"], None, None]
    with pytest.raises(TargetKindMismatch, match="several lengths"):
        normalised([[0.5], [1.0, 2.0]], numeric=True)


COLUMN = np.array([[1], [2]])


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
        pd.DataFrame({"y": pd.array([1, 2], dtype="Int64")}),
        pl.DataFrame({"y": [1, 2]}),
        pa.table({"y": [1, 2]}),
        pa.record_batch({"y": [1, 2]}),
    ],
)
def test_a_single_column_is_one_target_a_row(y):
    flat = normalised(y)
    assert (flat.shape, flat.tolist()) == ((2,), [1, 2])
    assert normalised(y, columns=True).shape == (2, 1)


def test_a_column_of_text_is_one_label_a_row_and_may_have_gaps():
    for columns in (False, True):
        assert normalised(np.array([["a"], [None]], dtype=object), columns).tolist() == ["a", None]
    assert normalised(np.ma.masked_array(COLUMN, [[False], [True]])).tolist() == [1, None]


class _Unreadable:
    """Has a length, and no rows."""

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("y", [_Unreadable(), 5, "ab", {"a": 1}, iter("ab"), np.zeros(()), np.zeros((2, 2, 2))])
def test_what_is_not_one_target_a_row_is_refused(y):
    with pytest.raises(InvalidTargets, match=r"pass (a list|one target|\(rows,\))"):
        normalised(y)
