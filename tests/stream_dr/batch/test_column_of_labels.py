"""Labels of shape (n, 1) are one label a row, whichever way they come in."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.io

import stream_dr
from stream_dr.batch.arrow import arrow_from_block
from stream_dr.batch.block import Block

COLUMNS = [
    np.array([[0], [1], [2]] * 20),
    np.array([[0], [1]] * 30),
    np.array([[False], [True]] * 30),
    np.array([["u"], ["v"]] * 30),
    np.array([[0.0], [1.0], [2.0]] * 20),
]
X = np.random.default_rng(0).normal(size=(60, 3))


def labels_of(path, **options):
    return [label for block in stream_dr.open_source(path, **options).blocks() for label in block.y.targets_by_row()]


@pytest.mark.parametrize("y", COLUMNS)
@pytest.mark.parametrize(
    "method", [stream_dr.OPLS, stream_dr.CCA, stream_dr.PLSDA, stream_dr.HSL, stream_dr.ClassMeans]
)
@pytest.mark.filterwarnings("ignore:A column-vector y")
@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, lambda y: pl.DataFrame(y, schema=["y"])])
def test_a_column_in_python_is_read_as_a_flat_array(y, method, form):
    column, flat = method().fit(X, form(y)), method().fit(X, y.ravel())
    np.testing.assert_array_equal(column.classes_, flat.classes_)
    np.testing.assert_array_equal(column.transform(X), flat.transform(X))


@pytest.mark.parametrize("y", COLUMNS)
def test_a_column_in_npz_npy_and_mat(tmp_path, y):
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    labels = y.ravel().tolist()
    assert labels_of(tmp_path / "a.npz") == labels
    assert labels_of(tmp_path / "x.npy", labels=str(tmp_path / "y.npy")) == labels
    if y.dtype.kind in "if":
        scipy.io.savemat(tmp_path / "a.mat", {"fea": X, "gnd": y})
        assert labels_of(tmp_path / "a.mat") == labels


def test_a_column_that_is_said_to_be_several_labels_is_an_indicator(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=COLUMNS[1])
    assert labels_of(tmp_path / "a.npz", target="multilabel")[:2] == [[], [0]]
    assert stream_dr.OPLS(target="multilabel").fit(X, COLUMNS[1]).classes_.tolist() == [0]


def test_missing_labels_do_not_turn_classes_into_numbers(tmp_path):
    for number, labels in ((1, [0, 1, None]), (0.5, [[0.0], [0.5], None])):
        y = np.array([0.0, number, np.nan] * 20)
        np.savez(tmp_path / "a.npz", X=X, y=y)
        scipy.io.savemat(tmp_path / "a.mat", {"fea": X, "gnd": y})
        for name in ("a.npz", "a.mat"):
            assert labels_of(tmp_path / name)[:3] == labels


def test_a_column_in_a_batch_of_arrow():
    column, flat = (arrow_from_block(Block(X, y)) for y in (COLUMNS[0], COLUMNS[0].ravel()))
    assert column.equals(flat)
