"""suggest: it scores methods as scikit-learn's cross validation does; what it takes, bounds and refuses."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stream_dr
from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.evaluation import comparison
from stream_dr.rows.block import Block
from stream_dr.rows.source import GivenBatches

RNG = np.random.default_rng(5)


def test_scores_are_those_of_cross_validation() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    found = stream_dr.suggest(X, y)
    lines = {line.method: line for line in found.lines}
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000))
    np.testing.assert_allclose(lines["all features"].score, cross_val_score(plain, X, y, cv=folds).mean(), atol=1e-9)
    ours = cross_val_score(stream_dr.LDA(), X, y, cv=folds)
    np.testing.assert_allclose([lines["lda"].score, lines["lda"].spread], [ours.mean(), ours.std()], atol=1e-9)
    assert lines["no change"].score == np.mean(y[1:] == y[:-1])
    assert (found.measure, found.rows, found.read, found.folds) == ("accuracy", 569, 569, 5)
    scores = [line.score for line in found.lines if line.key]
    assert scores == sorted(scores, reverse=True)
    assert found.best.score == max(scores)
    assert lines["lda"].bytes == stream_dr.LDA().state_bytes(30, 2)
    assert (lines["lda"].cannot, "predict" in lines["skm standardize=True"].cannot) == ("", True)
    assert "use targets" in lines["pca"].cannot
    assert len(str(found).splitlines()) == len(found.lines) + 2


def test_numbers_are_scored_by_r2() -> None:
    X, y = load_diabetes(return_X_y=True)
    found = stream_dr.suggest(X, y + 0.5)
    lines = {line.method: line for line in found.lines}
    folds = KFold(5, shuffle=True, random_state=0)
    expected = cross_val_score(make_pipeline(StandardScaler(), Ridge()), X, y, cv=folds, scoring="r2").mean()
    np.testing.assert_allclose(lines["all features"].score, expected, atol=1e-9)
    assert (found.measure, found.best.key in ("opls", "plsda")) == ("R2", True)
    assert lines["no change"].score < 0
    assert stream_dr.suggest(X, y, target="continuous").measure == "R2"
    with pytest.raises(InvalidTargets, match="214 values in 442 rows"):
        stream_dr.suggest(X, y)


@pytest.mark.every_run
def test_tables_texts_and_sparse_rows() -> None:
    y = np.where(RNG.random(400) < 0.5, "a", "b")
    table = pd.DataFrame({"x": np.where(RNG.random(400) < 0.2, np.nan, RNG.normal(size=400)), "c": np.char.add(y, "1")})
    table.loc[:40, "c"] = None
    found = stream_dr.suggest(table.assign(y=y), "y")
    assert found.best.score > 0.9
    assert all("feature_map" not in line.params for line in found.lines)  # learn has one for a table by itself
    texts = [f"{'red' if label == 'a' else 'blue'} thing {i} of the many things" for i, label in enumerate(y)]
    prose = stream_dr.suggest(pd.DataFrame({"t": texts}), y)
    assert prose.best.score > 0.95
    lines = {line.method: line for line in prose.lines}
    assert "lda shrinkage=0.5" in lines
    assert lines["all features"].components == 65_536  # those of the map of texts
    beside = {line.method for line in stream_dr.suggest(table[["x"]].assign(t=texts), y).lines}
    assert "lda shrinkage=0.3" in beside
    wide = sp.hstack([sp.random(400, 5_000, 0.01, random_state=0), sp.csr_matrix((y == "a")[:, None] * 1.0)], "csr")
    sparse = stream_dr.suggest(wide, y)
    assert sparse.best.score > 0.9
    assert "information_gain n_components=500" in [line.method for line in sparse.lines]


def test_a_source_is_sampled_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "SAMPLE_ROWS", 150)
    monkeypatch.setattr(comparison, "READ_ROWS", 1_000)
    X = RNG.normal(size=(2_000, 3))
    y = (X[:, 0] > 0).tolist()
    read: list[int] = []
    batches = [(X[i : i + 100], [None, *y[i + 1 : i + 100]]) for i in range(0, 2_000, 100)]
    source = GivenBatches(batches)
    found = stream_dr.suggest(source, progress=lambda what, done, total: read.append(done) if what == "read" else None)
    assert (found.rows, found.read, found.folds, read[-1]) == (150, 1_089, 5, 1_089)
    monkeypatch.setattr(comparison, "SAMPLE_BYTES", 60 * 24)
    few = stream_dr.suggest(source)
    assert (few.rows, few.folds) == (60, 3)


def test_what_is_refused() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidTargets, match="no row has a target"):
        stream_dr.suggest(X)
    with pytest.raises(InvalidTargets, match="30 rows with a target"):
        stream_dr.suggest(X[:30], y[:30])
    with pytest.raises(InvalidTargets, match="two labels"):
        stream_dr.suggest(X[:50], y[:50])
    with pytest.raises(TargetKindMismatch, match="several labels a row"):
        stream_dr.suggest(X, [["a", "b"]] * 150)
    assert stream_dr.suggest(GivenBatches([Block(X, y)])).folds == 5
