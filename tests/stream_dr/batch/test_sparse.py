"""A sparse matrix that is none is refused by name, in every format, by every estimator and accumulator."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import ESTIMATORS, KNearest
from stream_dr.batch.matrix import as_rows
from stream_dr.errors import InvalidIndex

Y = ["a", "b", "a"]
COMPRESSED = {
    "index past the width": ("indices", 1, 100_000_000, "index 100000000"),
    "index as large as the width": ("indices", 1, 3, "index 3"),
    "negative index": ("indices", 1, -1, "index -1"),
    "beginning": ("indptr", 0, 1, "indptr"),
    "falling ends": ("indptr", 1, 100, "indptr"),
    "end past the entries": ("indptr", 3, 1_000_000, "indptr"),
    "negative end": ("indptr", 2, -5, "indptr"),
}


def spoilt(case: str, made: Any = sp.csr_matrix) -> Any:
    """A matrix (3, 3) whose arrays do not fit, as scipy lets anyone make it."""
    name, at, value, _ = COMPRESSED[case]
    matrix = made(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 5.0]]))
    getattr(matrix, name)[at] = value
    return matrix


@pytest.mark.parametrize("case", COMPRESSED)
@pytest.mark.parametrize("made", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array, sp.bsr_matrix])
def test_indices_and_ends_that_do_not_fit_are_refused(made: Any, case: str) -> None:
    name, at, value, says = COMPRESSED[case]
    matrix = made(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 5.0]]))
    if made is sp.bsr_matrix:
        matrix = sp.bsr_matrix(matrix.tocsr(), blocksize=(1, 1))
    getattr(matrix, name)[at] = value
    with pytest.raises(InvalidIndex, match=says):
        as_rows(matrix)


@pytest.mark.parametrize("name", ["row", "col"])
@pytest.mark.parametrize("value", [-1, 3, 100_000_000])
def test_entries_outside_the_shape_are_refused(name: str, value: int) -> None:
    matrix = sp.coo_matrix(np.eye(3))
    getattr(matrix, name)[1] = value
    with pytest.raises(InvalidIndex, match=str(value)):
        as_rows(matrix)


def test_what_is_wrong_is_told_as_numbers_and_the_width_is_the_limit() -> None:
    with pytest.raises(InvalidIndex) as raised:
        as_rows(spoilt("index past the width"))
    assert raised.value.details == {"row": 0, "column": 100_000_000}
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indptr = matrix.indptr[:2]
    with pytest.raises(InvalidIndex, match="4 integers"):
        as_rows(matrix)


def test_rows_that_only_claim_to_be_sorted_are_sorted() -> None:
    matrix = sp.csr_matrix(np.array([[1.0, 2.0, 0.0]]))
    assert matrix.has_canonical_format
    matrix.indices[:] = [2, 0]
    assert as_rows(matrix)[0].indices.tolist() == [0, 2]
    matrix.indices[:] = [2, 2]
    assert as_rows(matrix)[0].toarray().tolist() == [[0.0, 0.0, 3.0]]


@pytest.mark.parametrize("kind", [*(ESTIMATORS[key] for key in ESTIMATORS), KNearest])
def test_every_estimator_refuses_them(kind: Any) -> None:
    fitted = kind().fit(sp.csr_matrix(np.eye(3) + 1.0), Y)
    for case in COMPRESSED:
        bad = spoilt(case)
        with pytest.raises(InvalidIndex):
            kind().fit(bad, Y)
        with pytest.raises(InvalidIndex):
            fitted.predict(bad) if kind is KNearest else fitted.transform(bad)
