"""Three arrays become a CSR matrix with sorted, distinct indices, or an error that names the row."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr.batch.sparse import checked_csr, pad_with_zero_columns, sparse_as_csr
from stream_dr.errors import InvalidIndex

ROWS = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ROWS)
def test_it_is_the_dictionary_of_each_row_or_an_error(rows):
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    indices = np.array([i for row in rows for i in row], dtype=np.int32)
    data = np.arange(1.0, len(indices) + 1)
    twice = next((n for n, row in enumerate(rows) if len(set(row)) < len(row)), None)
    if twice is not None:
        with pytest.raises(InvalidIndex, match=f"row {twice} has index"):
            checked_csr(data, indices, indptr, 10)
        return
    X = checked_csr(data, indices, indptr, 10)
    dense = np.zeros((len(rows), 10))
    for n, row in enumerate(rows):
        dense[n, row] = data[indptr[n] : indptr[n + 1]]
    assert np.array_equal(X.toarray(), dense)
    assert all(np.all(np.diff(X.indices[a:b]) > 0) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True))
    assert data.tolist() == list(range(1, len(indices) + 1))


def test_sorted_arrays_are_kept_and_read_only_ones_will_do():
    arrays = np.ones(3), np.array([0, 4, 2], np.int32), np.array([0, 2, 3], np.int32)
    for array in arrays:
        array.setflags(write=False)
    X = checked_csr(*arrays, 5)
    assert np.shares_memory(X.data, arrays[0])
    assert np.shares_memory(X.indices, arrays[1])
    unsorted = np.array([4, 0, 2], np.int32)
    unsorted.setflags(write=False)
    assert checked_csr(arrays[0], unsorted, arrays[2], 5).indices.tolist() == [0, 4, 2]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_matrix_of_sound_arrays_is_what_the_constructor_makes_of_them(kind):
    data, indices = np.ones(5, dtype=kind), np.arange(5, dtype=np.int32)
    for bounds in (np.int32, np.int64):
        indptr = np.array([0, 2, 5], dtype=bounds)
        made = pad_with_zero_columns(checked_csr(data, indices, indptr, None), 9)
        expected = sp.csr_matrix((data, indices, indptr), shape=(2, 9))
        assert made.has_canonical_format
        assert (made.shape, made.dtype, made.indptr.dtype) == (expected.shape, expected.dtype, np.int32)
        assert np.shares_memory(made.data, data)
        assert np.shares_memory(made.indices, indices)
        assert (made != expected).nnz == 0
        assert (made[1:] @ np.eye(9)).shape == (1, 9)
    assert checked_csr(data[:0], indices[:0], np.zeros(1, np.int32), None).shape == (0, 0)


@pytest.mark.parametrize(("form", "details"), [("csr", {"row": 1, "column": 7}), ("csc", {"row": 7, "column": 1})])
def test_an_index_out_of_range_is_named_by_row_and_column(form: str, details: dict[str, int]) -> None:
    X = sp.eye(3, format=form)
    X.indices[1] = 7
    with pytest.raises(InvalidIndex) as refused:
        sparse_as_csr(X)
    assert refused.value.details == details
