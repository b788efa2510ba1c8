"""MATLAB files: sparse and dense rows, classes and indicators, subsets."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from stream_dr.datasets.readers.matrices import read_matlab
from stream_dr.errors import MalformedInput, SchemaMismatch, SourceMissing


def write(tmp_path, **variables):
    scipy.io.savemat(tmp_path / "a.mat", variables)
    return tmp_path / "a.mat"


@pytest.mark.parametrize("form", [np.asarray, sp.csc_matrix])
def test_rows_and_classes(tmp_path, form):
    X = np.round(sp.random(23, 7, density=0.4, random_state=0).toarray(), 3)
    y = np.random.default_rng(0).integers(1, 4, (23, 1))
    path = write(tmp_path, fea=form(X), gnd=y, other=np.zeros((500, 500)))
    blocks = list(read_matlab(path, rows_per_block=10))
    assert [b.rows for b in blocks] == [10, 10, 3]
    found = sp.vstack([sp.csr_matrix(b.X) for b in blocks]).toarray()
    np.testing.assert_array_equal(found, X)
    assert [label for b in blocks for label in b.y.targets_by_row()] == y.ravel().tolist()


def test_subset_indicator_strings_numbers_and_none(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    Y = np.array([[1, 0], [0, 0], [1, 1], [0, 1]])
    path = write(tmp_path, X=X, Y=Y, rows=np.array([3, 1]), words=np.array(["a", "b", "a", "b"], dtype=object), t=Y / 4)
    (block,) = read_matlab(path, features="X", labels="Y", subset="rows")
    np.testing.assert_array_equal(block.X, X[[2, 0]])
    assert block.y.targets_by_row() == [[0, 1], [0]]
    assert next(read_matlab(path, features="X", labels="words")).y.targets_by_row() == ["a", "b", "a", "b"]
    assert next(read_matlab(path, features="X", labels="t")).y.kind == "continuous"
    assert next(read_matlab(path, features="X", labels=None)).y is None


def test_what_is_wrong_is_named(tmp_path):
    path = write(tmp_path, fea=np.ones((3, 2)), gnd=np.ones((3, 1)), rows=np.array([4]))
    with pytest.raises(SchemaMismatch, match="no variable 'X'; it has fea, gnd, rows"):
        list(read_matlab(path, features="X"))
    with pytest.raises(SchemaMismatch, match=r"outside 1 … 3"):
        list(read_matlab(path, subset="rows"))
    with pytest.raises(MalformedInput, match="row 1, column 0 is NaN"):
        list(read_matlab(write(tmp_path, fea=np.array([[1.0], [np.nan]]), gnd=np.ones((2, 1)))))
    with pytest.raises(SourceMissing):
        list(read_matlab(tmp_path / "none.mat"))
    (tmp_path / "b.mat").write_bytes(b"not matlab at all" * 20)
    with pytest.raises(MalformedInput, match="not a MATLAB file"):
        list(read_matlab(tmp_path / "b.mat"))
    (tmp_path / "c.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x00" * 400)
    with pytest.raises(MalformedInput, match=r"7\.3"):
        list(read_matlab(tmp_path / "c.mat"))


@pytest.mark.skipif("STREAM_DR_DATA" not in os.environ, reason="STREAM_DR_DATA is not set")
def test_20_newsgroups():
    path = Path(os.environ["STREAM_DR_DATA"]) / "news20" / "20Newsgroups.mat"
    blocks = list(read_matlab(path, subset="testIdx"))
    assert sum(b.rows for b in blocks) == 7_532
    assert blocks[0].X.shape == (1_000, 26_214)
    assert len({label for b in blocks for label in b.y.labels}) == 20


def test_an_empty_file_is_no_matlab_file(tmp_path):
    (tmp_path / "empty.mat").touch()
    with pytest.raises(MalformedInput, match=r"empty\.mat is not a MATLAB file"):
        list(read_matlab(tmp_path / "empty.mat"))


def test_labels_past_the_integers_are_refused_and_large_ones_are_kept(tmp_path):
    for labels, kept in (([2.0**60, 1.0], None), (np.array([2**63 + 1, 1], dtype=np.uint64), [2**63 + 1, 1])):
        scipy.io.savemat(tmp_path / "a.mat", {"fea": np.eye(2), "gnd": np.reshape(labels, (2, 1))})
        if kept is None:
            with pytest.raises(MalformedInput, match="read as a double"):
                list(read_matlab(tmp_path / "a.mat"))
        else:
            assert next(read_matlab(tmp_path / "a.mat")).y.targets_by_row() == kept


@pytest.mark.parametrize("labels", [np.array(["ab", "cd"]), np.array([[1 + 1j], [2]]), np.array([[np.inf], [1.0]])])
def test_labels_that_are_no_numbers_are_named(tmp_path, labels):
    path = write(tmp_path, X=np.eye(2), y=labels)
    with pytest.raises(MalformedInput, match=r"a\.mat: .*(are not numbers|NaN or infinity)"):
        list(read_matlab(path, features="X", labels="y"))
