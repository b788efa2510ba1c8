"""Fetch: what scikit-learn's fetchers return becomes shards; without internet an error that says what to do."""

from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.datasets
from sklearn.utils import Bunch

from stream_dr.datasets.convert import fetch
from stream_dr.errors import InvalidParameter, SourceMissing
from stream_dr.shards.dataset import open_dataset


def labels_of(folder):
    return [label for _, b in open_dataset(folder).events() for label in b.y.targets_by_row()]


def test_rcv1(tmp_path, monkeypatch):
    X = sp.random(30, 47_236, density=1e-3, random_state=0, format="csr")
    Y = sp.csr_matrix((np.random.default_rng(0).random((30, 103)) < 0.05).astype(np.uint8))
    names = np.array([f"T{j}" for j in range(103)], dtype=object)
    bunch = Bunch(data=X, target=Y, target_names=names, sample_id=np.arange(2286, 2316))
    monkeypatch.setattr(sklearn.datasets, "fetch_rcv1", lambda **how: bunch)
    manifests = fetch("rcv1", tmp_path / "out")
    assert [m.rows for m in manifests.values()] == [30]
    dataset = open_dataset(tmp_path / "out")
    assert dataset.n_features == 47_236
    expected = [sorted(f"T{j}" for j in np.flatnonzero(row)) for row in Y.toarray()]
    assert [sorted(labels) for labels in labels_of(tmp_path / "out")] == expected


def test_news20(tmp_path, monkeypatch):
    def part(subset, **how):
        assert how["normalize"] is False
        rows = 12 if subset == "train" else 5
        X = sp.csr_matrix(np.random.default_rng(rows).integers(0, 3, (rows, 50)))
        return Bunch(data=X, target=np.arange(rows) % 2, target_names=["alt.atheism", "sci.space"])

    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups_vectorized", part)
    fetch("news20", tmp_path / "out")
    assert labels_of(tmp_path / "out" / "test") == ["alt.atheism", "sci.space"] * 2 + ["alt.atheism"]
    assert open_dataset(tmp_path / "out" / "train").rows == 12


def test_openml(tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0, 1, 1]})
    asked = {}

    def fetcher(**how):
        asked.update(how)
        return Bunch(data=frame, target=pd.Series(["x", "y", "x"], dtype="category"))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetcher)
    fetch("openml:tiny:2", tmp_path / "out")
    assert (asked["name"], asked["version"]) == ("tiny", 2)
    assert labels_of(tmp_path / "out") == ["x", "y", "x"]
    (_, block) = next(open_dataset(tmp_path / "out").events())
    assert block.names == ("a", "b")


@pytest.mark.parametrize("name", ["rcv1", "news20", "openml:iris"])
def test_without_internet(tmp_path, monkeypatch, name):
    def unreachable(**how):
        raise URLError("Name or service not known")

    for fetcher in ("fetch_rcv1", "fetch_20newsgroups_vectorized", "fetch_openml"):
        monkeypatch.setattr(sklearn.datasets, fetcher, unreachable)
    with pytest.raises(SourceMissing, match=r"internet access.*stream-dr convert"):
        fetch(name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_name(tmp_path):
    with pytest.raises(InvalidParameter, match="rcv1, news20 and openml:NAME"):
        fetch("mnist", tmp_path / "out")
    for name in ("openml:", "openml:iris:first", "openml:iris:1:2"):
        with pytest.raises(InvalidParameter, match="openml:NAME:VERSION"):
            fetch(name, tmp_path / "out")
