"""Rows arrive as ndarray or CSR without needless copies, and bad values are named by row and column."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from stream_dr.batch.block import Block, as_weights, check_finite
from stream_dr.batch.matrix import as_rows
from stream_dr.errors import InvalidRows, InvalidWeights, NotFinite


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_c_ordered_floats_are_not_copied(dtype):
    X = np.ones((3, 4), dtype=dtype)
    rows, names = as_rows(X)
    assert np.shares_memory(rows, X)
    assert rows.dtype == dtype
    assert names is None


def test_csr_is_not_copied_and_other_formats_become_csr():
    X = sp.random(5, 7, density=0.5, format="csr", random_state=0)
    assert as_rows(X)[0] is X
    for form in ("csc", "coo", "lil", "dok", "bsr"):
        rows, _ = as_rows(X.asformat(form))
        assert rows.format == "csr"
        np.testing.assert_array_equal(rows.toarray(), X.toarray())


def test_repeated_and_unsorted_indices_are_made_canonical_without_touching_the_callers_matrix():
    X = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    before = X.indices.copy()
    rows, _ = as_rows(X)
    np.testing.assert_array_equal(rows.toarray(), [[2.0, 0.0, 4.0]])
    np.testing.assert_array_equal(X.indices, before)


def test_tables_keep_their_column_names():
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    rows, names = as_rows(frame)
    assert names == ("a", "b")
    np.testing.assert_array_equal(rows, [[1, 0.5], [2, 1.5]])
    rows, names = as_rows(pa.table({"a": [1, 2], "b": [0.5, 1.5]}))
    assert names == ("a", "b")
    np.testing.assert_array_equal(rows, [[1, 0.5], [2, 1.5]])


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "NaN"), (np.inf, "infinity"), (1e200, "1e\\+200")])
@pytest.mark.parametrize("sparse", [False, True])
def test_values_that_are_not_finite_are_named_by_row_and_column(value, shown, sparse):
    X = np.ones((4, 3))
    X[2, 1] = value
    with pytest.raises(NotFinite, match=f"row 2, column 1 is {shown}") as caught:
        as_rows(sp.csr_matrix(X) if sparse else X)
    assert caught.value.details == {"row": 2, "column": 1}


@pytest.mark.parametrize("X", [np.ones(3), np.ones((2, 2, 2)), np.array([["a"]]), np.array([[1j]]), 3.0])
def test_what_is_not_a_table_of_numbers_is_refused(X):
    with pytest.raises(InvalidRows):
        as_rows(X)


def test_weights_are_checked():
    assert as_weights(None, 2) is None
    np.testing.assert_array_equal(as_weights(2, 3), [2.0, 2.0, 2.0])
    for weights in ([1.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf], ["a", "b"], [[1.0, 1.0]]):
        with pytest.raises(InvalidWeights):
            as_weights(weights, 2)


def test_block_knows_its_shape():
    block = Block(sp.csr_matrix((2, 5)))
    assert (block.rows, block.features, block.sparse) == (2, 5, True)


def test_a_signalling_nan_is_refused_like_any_other():
    bits = np.array([[0x3F800000, 0x7F800001]], dtype=np.uint32)
    with pytest.raises(NotFinite, match="row 0, column 1 is NaN"):
        check_finite(bits.view(np.float32))


@pytest.mark.parametrize(
    "made", [lambda names: pd.DataFrame([[1, 2]], columns=names), lambda names: pa.table([[1], [2]], names)]
)
def test_two_columns_of_one_name_are_refused(made):
    with pytest.raises(InvalidRows, match="two columns are called 'a'"):
        as_rows(made(["a", "a"]))


def test_rows_of_several_lengths_are_refused_by_name():
    with pytest.raises(InvalidRows, match="same number of features"):
        as_rows([[1.0, 2.0], [3.0]])
