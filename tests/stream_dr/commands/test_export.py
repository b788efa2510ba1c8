"""`stream-dr export`: a model as a file that needs no stream_dr."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stream_dr
from tests.test_cli import Done

X = np.random.default_rng(2).normal(size=(60, 4)) + np.eye(4)[np.arange(60) % 3] * 3
Y = ["abc"[i % 3] for i in range(60)]


@pytest.fixture
def d(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    rows = [",".join([label, *map(str, row)]) for label, row in zip(Y, X.tolist(), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["y,p,q,r,s", *rows]) + "\n")
    models = ["--model", "lda=lda", "--model", "pca=pca:n_components=2", "--model", "lle=lle:n_components=2"]
    done = Done(capsys, "learn", tmp_path / "t.csv", "--label", "y", "--dir", tmp_path / "d", *models)
    assert done.status == 0, done.err
    return tmp_path / "d"


def exported(capsys: pytest.CaptureFixture[str], d: Path, file: Path, *options: Any) -> Done:
    return Done(capsys, "export", d, "-o", file, *options)


def test_sklearn_and_npz(d: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = exported(capsys, d, tmp_path / "lda.pickle", "--model", "lda")
    assert (done.status, done.out) == (0, f"version 1 of lda written to {tmp_path / 'lda.pickle'}\n"), done.err
    lda = pickle.loads((tmp_path / "lda.pickle").read_bytes())
    assert lda.feature_names_in_.tolist() == ["p", "q", "r", "s"]
    ours = stream_dr.LDA().fit(X, Y)
    lda.feature_names_in_ = None
    np.testing.assert_allclose(np.abs(lda.scalings_), np.abs(ours.components_.T), atol=1e-10)

    assert exported(capsys, d, tmp_path / "pca.npz", "--model", "pca", "--format", "npz").status == 0
    with np.load(tmp_path / "pca.npz") as arrays:
        z = (X - arrays["mean"]) @ arrays["components"].T
    np.testing.assert_allclose(np.abs(z), np.abs(stream_dr.PCA(2).fit(X).transform(X)), atol=1e-10)


def test_onnx(d: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    assert exported(capsys, d, tmp_path / "lda.onnx", "--model", "lda", "--format", "onnx").status == 0
    session = onnxruntime.InferenceSession(tmp_path / "lda.onnx")
    labels, probabilities = session.run(None, {"X": X})
    ours = stream_dr.LDA().fit(X, Y)
    assert labels.tolist() == ours.predict(X).tolist()
    np.testing.assert_allclose(probabilities, ours.predict_proba(X), atol=1e-12)


def test_what_cannot_be_exported_is_said(
    d: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    for options, says in (
        (["--model", "lle"], "no linear map"),
        (["--model", "lda", "--format", "pmml"], "one of sklearn, onnx, npz"),
        (["--model", "lda", "--format", "onnx"], "stream-dr[onnx]"),
        (["--model", "lle", "--format", "npz"], "kind 'landmarks'"),
        (["--model", "lda", "--release", "a"], "no release 'a'"),
    ):
        done = exported(capsys, d, tmp_path / "x", *options)
        assert (done.status, says in done.err) == (1, True), done.err
        assert not (tmp_path / "x").exists()
