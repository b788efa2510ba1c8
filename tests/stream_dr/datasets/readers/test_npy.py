"""numpy's files: arrays by rows and by columns, sparse matrices, targets of each kind, and what is wrong with a file."""

import gzip
import io

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.datasets.sources import open_source
from stream_dr.errors import InvalidTargets, MalformedInput, SchemaMismatch, SourceMissing
from tests.support.memory import peak

X = np.random.default_rng(0).normal(size=(2_300, 4))
Y = np.arange(2_300) % 3


def rows_of(source):
    blocks = list(source.blocks())
    rows = np.vstack([b.X.toarray() if b.sparse else b.X for b in blocks])
    return rows, [label for b in blocks for label in (b.y.targets_by_row() if b.y else [])]


@pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray, lambda a: a.astype(">f8")])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_and_classes_of_npz(tmp_path, form, save):
    save(tmp_path / "a.npz", X=form(X), y=Y, other=np.zeros(3))
    rows, labels = rows_of(open_source(tmp_path / "a.npz"))
    np.testing.assert_array_equal(rows, X)
    assert labels == Y.tolist()


def test_npy_plain_and_packed_with_its_labels_in_another_file(tmp_path):
    np.save(tmp_path / "a.npy", (X * 100).astype(np.int16))
    np.save(tmp_path / "y.npy", np.array(["a", "b", "c"])[Y])
    (tmp_path / "a.npy.gz").write_bytes(gzip.compress((tmp_path / "a.npy").read_bytes()))
    for name in ("a.npy", "a.npy.gz"):
        rows, labels = rows_of(open_source(tmp_path / name, labels=str(tmp_path / "y.npy")))
        np.testing.assert_array_equal(rows, (X * 100).astype(np.int16))
        assert labels == ["abc"[i] for i in Y]
    assert next(open_source(tmp_path / "a.npy").blocks()).y is None


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix])
def test_sparse_rows_of_scipy(tmp_path, form):
    sparse = np.where(X > 0.5, X, 0)
    sp.save_npz(tmp_path / "a.npz", form(sparse))
    np.save(tmp_path / "y.npy", Y)
    source = open_source(tmp_path / "a.npz", labels=str(tmp_path / "y.npy"))
    assert next(source.blocks()).sparse
    rows, labels = rows_of(source)
    np.testing.assert_array_equal(rows, sparse)
    assert labels == Y.tolist()


@pytest.mark.parametrize(
    ("y", "target", "kind"),
    [
        (Y.astype(float), "auto", "class"),
        (Y.astype(float), "continuous", "continuous"),
        (X[:, 0], "auto", "continuous"),
        (X[:, :2], "auto", "continuous"),
        (X[:, :2] > 0, "auto", "multilabel"),
        (Y == 1, "auto", "class"),
    ],
)
def test_kinds_of_targets(tmp_path, y, target, kind):
    np.savez(tmp_path / "a.npz", rows=X, t=y)
    source = open_source(tmp_path / "a.npz", features="rows", labels="t", target=target)
    assert [block.y.kind for block in source.blocks()] == [kind] * 3


def test_what_is_wrong_is_named(tmp_path):
    path = tmp_path / "a.npz"
    for arrays, error, match in [
        ({"x_train": X}, SchemaMismatch, "no array 'X'; it has x_train. Name them with --features and --labels"),
        ({"X": X, "y": Y[:5]}, InvalidTargets, "2300 rows and 5 targets"),
        ({"X": X.reshape(-1, 2, 2)}, SchemaMismatch, r"shape \(2300, 2, 2\).*reshape\(n, -1\)"),
        ({"X": X.astype(object)}, SchemaMismatch, "holds object"),
        ({"X": X.astype(str)}, MalformedInput, "rows are strings"),
        ({"X": np.where(X > 3, np.nan, X)}, MalformedInput, r"rows from \d+ on: .* is NaN"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(error, match=match):
            list(open_source(path).blocks())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(MalformedInput, match="no file of numpy's"):
        list(open_source(path).blocks())
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-9])
    with pytest.raises(MalformedInput, match="ends before its 2300 rows do"):
        list(open_source(tmp_path / "b.npy").blocks())
    with pytest.raises(SourceMissing):
        list(open_source(tmp_path / "none.npy").blocks())


def header(shape, dtype="<f8", fortran=False):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": fortran, "shape": shape})
    return file.getvalue()


@pytest.mark.test_all
def test_many_rows_take_the_memory_of_some(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((40_000, 500)), y=np.zeros(40_000, int))
    size, told = peak(lambda: sum(block.rows for block in open_source(tmp_path / "a.npz").blocks()))
    assert (size < 64 << 20, told) == (True, "")


def test_indices_outside_of_the_shape(tmp_path):
    matrix = sp.csr_matrix(np.eye(3))
    np.savez(
        tmp_path / "a.npz", format=b"csr", shape=(3, 3), data=matrix.data, indptr=matrix.indptr, indices=[0, 1, 99]
    )
    with pytest.raises(MalformedInput, match="no file of numpy's that can be read"):
        list(open_source(tmp_path / "a.npz").blocks())
