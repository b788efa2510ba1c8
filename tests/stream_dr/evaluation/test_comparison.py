"""suggest: it scores methods as scikit-learn's cross validation does; what it takes, bounds and refuses."""

import sys
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numba.core.dispatcher import Dispatcher
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stream_dr
from stream_dr.batch.block import Block
from stream_dr.batch.matrix import read_table
from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.rows import RepeatableBatches
from stream_dr.batch.targets import class_targets
from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.estimators import make
from stream_dr.evaluation import comparison
from stream_dr.statistics.protocol import pack

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
    most = cross_val_score(DummyClassifier(), X, y, cv=folds).mean()
    np.testing.assert_allclose(lines["most frequent class"].score, most, atol=1e-9)
    assert (found.measure, found.rows, found.read, found.folds) == ("accuracy", 569, 569, 5)
    scores = [line.score for line in found.lines if line.key]
    assert scores == sorted(scores, reverse=True)
    assert found.best.score == max(scores)
    fitted = stream_dr.LDA().fit(X[:400], y[:400])
    assert lines["lda"].bytes == sum(array.nbytes for array in pack(fitted.state_)[0].values())
    assert "     8.4 kB" in str(found)
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
    mean = cross_val_score(DummyRegressor(), X, y, cv=folds, scoring="r2").mean()
    np.testing.assert_allclose(lines["mean"].score, mean, atol=1e-9)
    assert stream_dr.suggest(X, y, target="continuous").measure == "R2"
    with pytest.raises(InvalidTargets, match="214 values in 442 rows"):
        stream_dr.suggest(X, y)


@pytest.mark.test_all
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
    assert "lda gamma=1.0" in lines
    assert lines["all features"].components == 65_536  # those of the map of texts
    beside = {line.method for line in stream_dr.suggest(table[["x"]].assign(t=texts), y).lines}
    assert "lda shrinkage=0.1" in beside
    wide = sp.hstack([sp.random(400, 5_000, 0.01, random_state=0), sp.csr_matrix((y == "a")[:, None] * 1.0)], "csr")
    sparse = stream_dr.suggest(wide, y)
    assert sparse.best.score > 0.9
    assert "information_gain n_components=500" in [line.method for line in sparse.lines]


def test_rows_are_sampled_within_bounds() -> None:
    """At most 20,000 rows, and 64 MiB."""
    X = RNG.normal(size=(30_000, 3))
    y = (X[:, 0] > 0).tolist()
    batches = [Block(X[i : i + 1_000], [None, *y[i + 1 : i + 1_000]]) for i in range(0, 30_000, 1_000)]
    read: list[int] = []
    drawn = [
        comparison.sample_rows_with_target(batches, "auto", lambda stage, done, total: read.append(done))
        for _ in range(2)
    ]
    (sample, n_read), (again, _) = drawn
    assert (sample.rows, n_read, read[-1]) == (20_000, 29_970, 29_970)
    np.testing.assert_array_equal(sample.X, again.X)

    mebibytes = [Block(np.ones((20, 1 << 17)), [0, 1] * 10) for _ in range(4)]
    assert comparison.sample_rows_with_target(mebibytes, "auto", lambda *_: None)[0].rows == 64
    assert [stream_dr.suggest(X[:n], y[:n]).folds for n in (60, 150)] == [3, 5]


@pytest.mark.parametrize(
    ("X", "y", "expected"),
    [
        (np.zeros((4, 99)), [0, 1, 0, 1], ("lda", {})),
        (np.zeros((4, 100)), [0, 1, 0, 1], ("lda", {"shrinkage": 0.1})),
        (np.zeros((4, 100)), [0.5, 1, 0, 1], ("opls", {})),
        (sp.csr_matrix((4, 9)), ["a", "b", "a", "b"], ("lda", {"gamma": 1.0})),
        (sp.csr_matrix((4, 9)), [["a"], ["b"], [], []], ("opls", {"gamma": 1.0})),
        (np.zeros((4, 100)), None, ("pca", {})),
        (np.zeros((4, 4_097)), None, ("pca", {"n_components": 10})),
        (sp.csr_matrix((4, 9)), None, ("pca", {"n_components": 10})),
    ],
)
def test_a_method_by_the_first_rows(X: Any, y: Any, expected: Any) -> None:
    targets = None if y is None else parse_targets(y, 4, ("class", "multilabel", "continuous"), "auto", None)
    assert comparison.default_estimator_spec(Block(X, targets), {"map": "table"}) == expected


@pytest.mark.parametrize(
    ("spec", "y", "expected"),
    [
        ({"map": "table"}, ["a", "b"] * 20, ("lda", comparison.RIDGES["words beside columns"])),
        ({"map": "table"}, [0.5, 1.5] * 20, ("opls", comparison.RIDGES["words beside columns"])),
        ({"map": "text", "column": "note"}, ["a", "b"] * 20, ("lda", comparison.RIDGES["words"])),
        ({"map": "table", "drop": ["note"]}, ["a", "b"] * 20, ("lda", comparison.RIDGES["numbers"])),
    ],
)
def test_a_method_by_the_words_of_a_table(spec: Any, y: Any, expected: Any) -> None:
    rows = read_table(pd.DataFrame({"price": np.arange(40.0), "note": [f"a note of words {i}" for i in range(40)]}))
    targets = parse_targets(y, 40, ("class", "continuous"), "auto", None)
    assert comparison.default_estimator_spec(Block(rows, targets), spec) == expected


def test_the_unit_of_a_number_does_not_hide_words_and_categories() -> None:
    rng, words = np.random.default_rng(5), [f"word{i}" for i in range(500)]
    y = rng.choice(["a", "b", "c"], 2_000)
    frame = pd.DataFrame(
        {
            "price": rng.gamma(4.0, 10.0, 2_000),
            "plan": np.where(rng.random(2_000) < 0.6, y, rng.choice(["a", "b", "c"], 2_000)),
            "note": [f"{' '.join(rng.choice(words, 6))} {'red' if label == 'a' else 'blue'}" for label in y],
        }
    )
    key, ridge = comparison.default_estimator_spec(
        Block(read_table(frame), class_targets(y.tolist())), {"map": "table"}
    )
    scores = []
    for unit in (1.0, 100.0, 10_000.0):
        priced = frame.assign(price=frame["price"] * unit)
        model = make(key, ridge | {"feature_map": {"map": "table"}}).fit(priced[:1_500], y[:1_500])
        scores.append(model.score(priced[1_500:], y[1_500:]))
    np.testing.assert_allclose(scores[1:], scores[0], atol=0.01)
    assert scores[0] > 0.7


@pytest.mark.test_all
def test_rows_sorted_by_label_are_sampled_from_first_to_last() -> None:
    y = ["a"] * 18_000 + ["b"] * 9_000 + ["c"] * 3_000
    X = np.arange(30_000.0)[:, None] // 3_000 + RNG.normal(0, 0.1, (30_000, 2))
    source = RepeatableBatches([(X[i : i + 1_000], y[i : i + 1_000]) for i in range(0, 30_000, 1_000)])
    found = stream_dr.suggest(source)
    assert (found.rows, found.read) == (20_000, 30_000)
    lines = {line.method: line.score for line in found.lines}
    np.testing.assert_allclose(lines["most frequent class"], 0.6, atol=0.01)
    assert found.best.score > 0.8


def test_later_rows_are_held_out_where_time_counts() -> None:
    X, y = RNG.normal(size=(600, 3)), RNG.choice(["a", "b"], 600)
    X[:, 0] += np.where(y == "a", 1, -1) * np.where(np.arange(600) < 500, 2, -2)  # the last rows say the opposite
    found = stream_dr.suggest(RepeatableBatches([(X[:250], y[:250]), (X[250:], y[250:])]), time=True)
    lines = {line.method: line for line in found.lines}
    folds = TimeSeriesSplit(5)
    ours = cross_val_score(stream_dr.LDA(), X, y, cv=folds)
    np.testing.assert_allclose([lines["lda"].score, lines["lda"].spread], [ours.mean(), ours.std()], atol=1e-9)
    most = cross_val_score(DummyClassifier(), X, y, cv=folds).mean()
    np.testing.assert_allclose(lines["most frequent class"].score, most, atol=1e-9)
    shuffled = {line.method: line.score for line in stream_dr.suggest(X, y).lines}
    assert shuffled["lda"] != lines["lda"].score
    sorted_by_label = stream_dr.suggest(X[np.argsort(y)], np.sort(y), time=True)
    broken = {line.method: line for line in sorted_by_label.lines}["all features"]
    assert (np.isnan(broken.score), "class" in broken.cannot) == (True, True)  # a fold of one label


def kernels() -> set[tuple[str, str]]:
    """Every compiled loop with the types that it is compiled for."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("stream_dr")]
    loops = [loop for module in modules for loop in vars(module).values() if isinstance(loop, Dispatcher)]
    return {(loop.__name__, str(types)) for loop in loops for types in loop.signatures}


@pytest.mark.parametrize("whole_folds", [0, 2])
def test_no_method_begins_a_fold_after_the_deadline(whole_folds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_iris(return_X_y=True)
    methods, hours = len(stream_dr.suggest(X, y).lines), [0.0]
    monkeypatch.setattr(comparison, "perf_counter", lambda: time.perf_counter() + 3_600 * hours[0])
    calls: list[int] = []

    def progress(what: str, done: int, total: int) -> None:
        calls.append(done)
        hours[0] = 2.0 if what == "learn" and done > whole_folds * methods * 150 else 1.0  # reading is not counted

    found = stream_dr.suggest(X, y, progress=progress)
    assert max(calls) == (whole_folds * methods + 1) * 150
    assert (found.folds, len(found.lines)) == (max(1, whole_folds), methods)
    late = [line for line in found.lines if line.cannot == "learn a fold within 60 s"]
    assert len(late) == (0 if whole_folds else methods - 1)
    assert all(np.isnan(line.score) for line in late)


@pytest.mark.parametrize("sparse", [False, pytest.param(True, marks=pytest.mark.test_all)])
def test_nothing_is_compiled_once_learning_is_timed(sparse: bool) -> None:
    rows = np.random.default_rng(0).poisson(0.01, size=(60, 5_000)).astype(float)
    y, compiled = ["abc"[i % 3] for i in range(60)], []

    def progress(what: str, done: int, total: int) -> None:
        if what == "learn" and not done:
            compiled.append(kernels())

    stream_dr.suggest(sp.csr_matrix(rows) if sparse else rows[:, :20], y, progress=progress)
    assert compiled == [kernels()]


def test_what_is_refused() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidTargets, match="no row has a target"):
        stream_dr.suggest(X)
    with pytest.raises(InvalidTargets, match="30 rows with a target"):
        stream_dr.suggest(X[:30], y[:30])
    with pytest.raises(InvalidTargets, match="two labels"):
        stream_dr.suggest(X[:50], y[:50])
    with pytest.raises(InvalidTargets, match="one of which has two rows"):
        stream_dr.suggest(X[:90], np.arange(90))
    with pytest.raises(TargetKindMismatch, match="several labels a row"):
        stream_dr.suggest(X, [["a", "b"]] * 150)
    assert stream_dr.suggest(RepeatableBatches([Block(X, y)])).folds == 5
