"""One estimator in several threads: no row is lost, solving waits for nobody, and copies have their own lock."""

import pickle
import sys
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import stream_dr
from stream_dr import ESTIMATORS, LDA, OPLS, PCA, KNearest, errors
from stream_dr.statistics.protocol import pack
from tests.stream_dr.estimators.test_contract import KEYS, rows, targets

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 3
LEARNERS: dict[str, Callable[[], Any]] = {key: ESTIMATORS[key] for key in KEYS} | {"k_nearest": KNearest}


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Let threads interrupt each other as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run(*calls: Callable[[], object]) -> None:
    """Run calls at the same time, one thread each, to their end."""
    threads = [Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.usefixtures("many_switches")
@pytest.mark.parametrize("key", LEARNERS)
def test_several_threads_learn_as_one(key: str) -> None:
    X, y = rows()
    y = Y if key == "k_nearest" else targets(key, y)
    one, several = LEARNERS[key](), LEARNERS[key]()

    # All batches are equal, so that their order changes nothing.
    for _ in range(40):
        one.partial_fit(X, y)
    run(*[lambda: [several.partial_fit(X, y) for _ in range(10)]] * 4)
    assert several.n_samples_seen_ == 40 * len(X)
    expected, got = pack(one.state_)[0], pack(several.state_)[0]
    assert all(np.array_equal(got[name], expected[name]) for name in expected)


@pytest.mark.usefixtures("many_switches")
def test_threads_that_learn_unlearn_and_merge_change_one_state() -> None:
    lda = LDA().fit(X, Y)
    other = LDA().fit(X, Y)
    run(
        lambda: [lda.partial_fit(X, Y) for _ in range(20)],
        lambda: [lda.merge(other) for _ in range(20)],
        lambda: [lda.unlearn(X, Y) for _ in range(1)],
        lambda: [lda.transform(X) for _ in range(20)],
    )
    assert lda.n_samples_seen_ == 40 * 60
    assert lda.eigenvalues_ == pytest.approx(LDA().fit(np.tile(X, (40, 1)), np.tile(Y, 40)).eigenvalues_)


class LearnsWhileSolving(LDA):
    """LDA to which another thread adds a batch while it is solved for the first time."""

    def solve(self, state: Any) -> Any:
        if state.rows == 60:
            run(lambda: self.partial_fit(1000 * X[::-1], Y))
        return super().solve(state)


@pytest.mark.parametrize(
    "read", [lambda lda: lda.eigenvalues_, lambda lda: lda.transform(X), lambda lda: lda.predict(X)]
)
def test_a_projection_is_cached_only_if_no_row_came_while_it_was_solved(read: Callable[[LDA], Any]) -> None:
    lda = LearnsWhileSolving().fit(X, Y)
    first = read(lda)
    assert np.array_equal(first, read(LDA().fit(X, Y)))
    assert lda.eigenvalues_ == pytest.approx(LDA().fit(X, Y).partial_fit(1000 * X[::-1], Y).eigenvalues_)


def test_the_uncertainty_is_of_the_rows_that_the_projection_has() -> None:
    class Learns(PCA):
        def add_fold_uncertainty(self, projection: Any, state: Any) -> Any:
            if self.n_samples_seen_ == 60:
                run(lambda: self.partial_fit(9 * X[:, ::-1]))
            return super().add_fold_uncertainty(projection, state)

    pca = Learns(2, folds=3).fit(X)
    assert pca.eigenvalues_std_ == pytest.approx(PCA(2, folds=3).fit(X).eigenvalues_std_)
    both = PCA(2, folds=3).fit(X).partial_fit(9 * X[:, ::-1])
    assert pca.eigenvalues_ == pytest.approx(both.eigenvalues_)
    assert pca.eigenvalues_std_ == pytest.approx(both.eigenvalues_std_)


@pytest.mark.usefixtures("many_switches")
@pytest.mark.parametrize("kind", [LDA, OPLS, KNearest])
def test_labels_are_those_of_the_rows_that_predict_uses(kind: Any) -> None:
    near = kind().fit(X, np.repeat(["m", "n"], 30))
    far = X + 1e3 * np.arange(1, 27)[:, None, None]
    predictions: list[str] = []
    run(
        lambda: [near.partial_fit(rows, ["abcdefghijklmnopqrstuvwxyz"[i]] * 60) for i, rows in enumerate(far)],
        lambda: [predictions.extend(near.predict(X).tolist()) for _ in range(30)],
    )
    if kind is KNearest:
        assert set(predictions) == {"m", "n"}


@pytest.mark.parametrize("kind", [LDA, KNearest])
def test_two_estimators_are_merged_into_each_other(kind: Any) -> None:
    a, b = kind().fit(X, Y), kind().fit(X, Y)
    run(lambda: [a.merge(b) for _ in range(20)], lambda: [b.merge(a) for _ in range(20)])
    assert min(a.n_samples_seen_, b.n_samples_seen_) >= 21 * 60


@pytest.mark.parametrize("kind", [LDA, KNearest])
def test_an_error_leaves_the_estimator_to_other_threads(kind: Any) -> None:
    estimator = kind().fit(X, Y)
    refused: list[Callable[[], object]] = [
        lambda: estimator.partial_fit(X[:, :2], Y),
        lambda: estimator.fit(X[:0], Y[:0]),
        lambda: estimator.merge(kind()),
        lambda: estimator.set_params(unknown=1),
    ]
    for call in refused:
        with pytest.raises(errors.StreamDRError):
            call()
    run(lambda: estimator.partial_fit(X, Y))
    assert estimator.n_samples_seen_ == 120


def saved(estimator: Any, path: Path) -> Any:
    stream_dr.save(estimator, path / "saved")
    return stream_dr.load(path / "saved")


COPIES: dict[str, Callable[[Any, Path], Any]] = {
    "copy": lambda estimator, path: copy(estimator),
    "deepcopy": lambda estimator, path: deepcopy(estimator),
    "clone": lambda estimator, path: clone(estimator),
    "save": saved,
} | {
    f"pickle {protocol}": lambda estimator, path, protocol=protocol: pickle.loads(pickle.dumps(estimator, protocol))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", [LDA, KNearest])
def test_a_copy_has_its_own_lock(kind: Any, how: str, tmp_path: Path) -> None:
    estimator = kind().fit(X, Y).partial_fit(X, Y).partial_fit(X, Y)
    with estimator.lock:
        copied = COPIES[how](estimator, tmp_path)
        run(lambda: copied.partial_fit(X, Y))
    assert copied.n_samples_seen_ == (60 if how == "clone" else 240)


def test_a_stream_of_batches_may_use_the_estimator() -> None:
    pa = pytest.importorskip("pyarrow")
    pca = PCA(2).fit(X)

    def batches() -> Iterator[Any]:
        for part in (X[:30], X[30:]):
            pca.transform(part)
            yield pa.RecordBatch.from_arrays(list(part.T), list("abcd"))

    schema = pa.schema([(name, pa.float64()) for name in "abcd"])
    with pytest.warns(UserWarning, match="fitted without feature names"):
        pca.partial_fit(pa.RecordBatchReader.from_batches(schema, batches()))
    assert pca.n_samples_seen_ == 120
