"""A door out: what `to_sklearn` returns gives our digits, without us."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline

import stream_dr
from stream_dr import errors
from stream_dr.directory.directory import Directory
from stream_dr.running.advance import backfill
from tests.support.batches import SMALL

NYSTROEM = {"map": "nystroem", "landmarks": 20, "seed": 1}
MODELS: dict[str, tuple[Any, type]] = {
    "lda": (stream_dr.LDA(), LinearDiscriminantAnalysis),
    "lda shrinkage": (stream_dr.LDA(shrinkage=0.1), LinearDiscriminantAnalysis),
    "lda priors": (stream_dr.LDA(priors=[0.6, 0.3, 0.1]), LinearDiscriminantAnalysis),
    "lda one component": (stream_dr.LDA(n_components=1), LinearDiscriminantAnalysis),
    "class means": (stream_dr.ClassMeans(n_components=2), LinearDiscriminantAnalysis),
    "pca": (stream_dr.PCA(3), PCA),
    "pca standardize": (stream_dr.PCA(3, standardize=True), Pipeline),
    "pca whiten": (stream_dr.PCA(3, whiten=True), PCA),
    "plsda": (stream_dr.PLSDA(n_components=2), Pipeline),
    "opls": (stream_dr.OPLS(), Pipeline),
    "mmc": (stream_dr.MMC(n_components=2), Pipeline),
    "ccipca": (stream_dr.CCIPCA(n_components=2), Pipeline),
    "lpp": (stream_dr.LPP(n_components=2), Pipeline),
    "polynomial": (stream_dr.LDA(feature_map=stream_dr.polynomial(3, gamma=0.4, coef0=2.0)), Pipeline),
    "polynomial without constant": (stream_dr.PCA(3, feature_map=stream_dr.polynomial(2, coef0=0.0)), Pipeline),
    "nystroem rbf": (stream_dr.LDA(feature_map={**NYSTROEM, "kernel": "rbf", "gamma": 0.1}), Pipeline),
    "nystroem laplace": (stream_dr.LDA(feature_map={**NYSTROEM, "kernel": "laplace", "gamma": 0.1}), Pipeline),
    "nystroem polynomial": (stream_dr.PCA(2, feature_map={**NYSTROEM, "kernel": "polynomial", "degree": 2}), Pipeline),
    "nystroem linear": (stream_dr.PLSDA(n_components=2, feature_map={**NYSTROEM, "kernel": "linear"}), Pipeline),
}


def rows(offset: float = 0.0, classes: str = "abc") -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    codes = np.arange(90) % len(classes)
    X = random.normal(size=(90, 5)) + 2 * np.eye(5)[codes] + offset
    return X, np.array(list(classes))[codes]


def relative_error(ours: Any, theirs: Any) -> float:
    return float(np.abs(np.asarray(ours) - np.asarray(theirs)).max() / np.abs(ours).max())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("offset", "bar"), [(0.0, 1e-12), (1e6, 1e-9)])
def test_digits_are_ours(name: str, offset: float, bar: float) -> None:
    unfitted, kind = MODELS[name]
    if offset and "feature_map" in unfitted.get_params() and unfitted.feature_map is not None:
        pytest.skip("products and kernels of rows at 1e6 have no such digits in either library")
    X, y = rows(offset)
    model = clone(unfitted)
    model.fit(X, y) if model.target_kinds else model.fit(X)
    theirs = stream_dr.to_sklearn(model)
    assert isinstance(theirs, kind)
    assert relative_error(model.transform(X), theirs.transform(X)) <= bar * (10 if "nystroem" in name else 1)
    if hasattr(theirs, "predict_proba"):
        assert np.array_equal(model.predict(X), theirs.predict(X))
        assert relative_error(model.predict_proba(X), theirs.predict_proba(X)) <= 100 * bar
    if isinstance(theirs, PCA) and not offset:
        reference = PCA(3, whiten=model.whiten).fit(X)
        wanted = reference.inverse_transform(reference.transform(X))
        assert relative_error(wanted, theirs.inverse_transform(theirs.transform(X))) < 1e-9


def test_two_classes() -> None:
    X, y = rows(classes="ab")
    lda = stream_dr.LDA().fit(X, y)
    theirs = stream_dr.to_sklearn(lda)
    assert relative_error(lda.decision_function(X), theirs.decision_function(X)) < 1e-12
    assert relative_error(lda.predict_proba(X), theirs.predict_proba(X)) < 1e-12


def test_it_is_unpickled_without_stream_dr(tmp_path: Path) -> None:
    X, y = rows()
    lda = stream_dr.LDA().fit(X, y)
    (tmp_path / "lda.pickle").write_bytes(pickle.dumps(stream_dr.to_sklearn(lda)))
    np.save(tmp_path / "X.npy", X)
    code = (
        "import sys, pickle, numpy as np; sys.modules['stream_dr'] = None; "
        "lda = pickle.load(open('lda.pickle', 'rb')); np.save('z.npy', lda.transform(np.load('X.npy')))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    assert relative_error(lda.transform(X), np.load(tmp_path / "z.npy")) < 1e-12


def test_a_release_and_its_file(tmp_path: Path) -> None:
    X, y = rows()
    with Directory(tmp_path / "D", limits=SMALL) as directory:
        model, _ = directory.add_model("m", "lda", {"n_components": 2}, basis="steady")
        targets = {"rows": X.tolist(), "labels": y.tolist()}
        directory.append([stream_dr.rows_draft(json.dumps(targets).encode(), "json")])
        backfill(directory, [model], directory.position)
        model.publish(model.freeze())
        directory.releases.create(model, "a")
        release = directory.releases.read(model, "a")
        (path,) = (tmp_path / "D" / "releases").glob("*/a.safetensors")
        for source in (release, path, str(path)):
            theirs = stream_dr.to_sklearn(source)
            assert isinstance(theirs, LinearDiscriminantAnalysis)
            assert relative_error(release.published.projection.apply(X), theirs.transform(X)) < 1e-12


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (stream_dr.LLE(n_components=2), "no linear map"),
        (stream_dr.InformationGain(2), "no linear map"),
        (stream_dr.LDA(feature_map=stream_dr.random_fourier(20, gamma=0.1)), "feature map"),
        (stream_dr.LDA(feature_map={**NYSTROEM, "kernel": "matern"}), "feature map"),
        (stream_dr.LDA(feature_map=stream_dr.polynomial(4, n_features=10)), "feature map"),
    ],
)
def test_what_has_no_equal_is_refused_by_name(model: Any, says: str) -> None:
    X, y = rows()
    model.fit(np.abs(X), y) if model.target_kinds else model.fit(X)
    with pytest.raises(errors.InvalidParameter, match=says):
        stream_dr.to_sklearn(model)
    with pytest.raises(errors.InvalidParameter, match="give a fitted estimator"):
        stream_dr.to_sklearn(3)  # type: ignore[arg-type]
