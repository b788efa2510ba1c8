"""Incremental SKM's accumulator against its row-by-row definition, on every batching and on hostile streams."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.estimators.iskm import IncrementalSKM
from stream_dr.statistics.recurrences.skm_state import SKMAccumulator
from tests.naive import recurrences
from tests.support.pairwise import pairwise

STREAMS = {name: (X, y) for name, X, y in recurrences.hostile()}


def learned(X: Any, y: np.ndarray, p: int, a: float = 1.0, batch: int = 37, amnesic: float = 1.0) -> SKMAccumulator:
    """An accumulator that has learned X and y in batches of so many rows."""
    accumulator = SKMAccumulator(p, a, amnesic)
    for at in range(0, X.shape[0], batch):
        accumulator.add(Block(X[at : at + batch], class_targets(y[at : at + batch].tolist())))
    return accumulator


def close(
    accumulator: SKMAccumulator, X: np.ndarray, y: np.ndarray, p: int, a: float, dense: bool, amnesic: float = 1.0
) -> None:
    """Means, counts and every vector the projection keeps equal the definition's."""
    state = accumulator.freeze()
    place = {label: i for i, label in enumerate(state.labels)}
    codes = np.array([place[label] for label in y.tolist()], dtype=int)
    expected = recurrences.iskm(X, codes, p, a, dense, long=True, amnesic=amnesic)
    kept = IncrementalSKM(p, a).solve(state).n_components
    vectors = state.basis.vectors().T[:kept]
    np.testing.assert_allclose(vectors, expected.vectors[:kept], atol=1e-10 * np.abs(expected.vectors).max(initial=0.0))
    np.testing.assert_allclose(state.basis.means().T, expected.mean, rtol=1e-12, atol=1e-12 * np.abs(X).max())
    np.testing.assert_array_equal(state.basis.counts, expected.counts)


@pytest.mark.parametrize(
    ("name", "p", "a", "amnesic"), pairwise(product(STREAMS, [1, 4], [0.5, 1.0, 3.0], [0.0, 1.0, 2.0]))
)
def test_dense_rows_follow_the_definition(name: str, p: int, a: float, amnesic: float) -> None:
    X, y = STREAMS[name]
    close(learned(X, y, p, a, amnesic=amnesic), X, y, p, a, dense=True, amnesic=amnesic)


@pytest.mark.parametrize(
    ("name", "p", "a", "amnesic"),
    pairwise(product([name for name in STREAMS if "offset" not in name], [1, 4], [0.5, 1.0, 3.0], [0.0, 1.0, 2.0])),
)
def test_sparse_rows_follow_the_definition(name: str, p: int, a: float, amnesic: float) -> None:
    X, y = STREAMS[name]
    close(learned(sp.csr_matrix(X), y, p, a, amnesic=amnesic), X, y, p, a, dense=False, amnesic=amnesic)


@pytest.mark.parametrize("sparse", [True, False])
def test_every_batching_gives_the_same(sparse: bool) -> None:
    X, y = recurrences.classes(seed=3, n=1200, d=15, k=4)
    X[np.abs(X) < 1.0] = 0.0
    y[:500] = np.minimum(y[:500], 2)
    for batch in (1, 7, 64, 1000, 1200):
        close(learned(sp.csr_matrix(X) if sparse else X, y, 3, 1.0, batch), X, y, 3, 1.0, dense=not sparse)


def test_many_late_classes_outgrow_the_padding() -> None:
    X, y = recurrences.classes(seed=4, n=600, d=12, k=20)
    y = np.minimum(y, np.arange(600) // 25)
    accumulator = learned(X, y, 3, batch=11)
    assert len(accumulator.labels) == 20
    close(accumulator, X, y, 3, 1.0, dense=True)


def test_rows_without_a_target_are_skipped_and_counted() -> None:
    X, y = recurrences.classes(seed=5)
    labels: list[Any] = [None if i % 3 == 0 else int(v) for i, v in enumerate(y)]
    accumulator = SKMAccumulator(2, 1.0, 1.0)
    accumulator.add(Block(X[:50]))
    accumulator.add(Block(X, class_targets(labels)))
    known = np.arange(len(y)) % 3 != 0
    assert (accumulator.rows, accumulator.rows_skipped) == (int(known.sum()), 50 + int((~known).sum()))
    close(accumulator, X[known], y[known], 2, 1.0, dense=True)


def test_labels_are_matched_by_name_not_by_place() -> None:
    X, y = recurrences.classes(seed=6, k=3)
    names = np.array(["b", "c", "a"])[y]
    accumulator = SKMAccumulator(2, 1.0, 1.0)
    for at in range(0, len(y), 30):
        accumulator.add(Block(X[at : at + 30], class_targets(names[at : at + 30].tolist())))
    state = accumulator.freeze()
    assert sorted(state.labels) == ["a", "b", "c"]
    for label, mean in zip(state.labels, state.basis.means().T, strict=True):
        np.testing.assert_allclose(mean, X[names == label].mean(axis=0), atol=1e-12)


def test_a_label_without_rows_makes_no_class() -> None:
    targets = class_targets(["x", "y", "x"])._replace(labels=("x", "y", "unused"))
    accumulator = SKMAccumulator(1, 1.0, 1.0)
    accumulator.add(Block(np.eye(3), targets))
    assert accumulator.labels == ("x", "y")


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (Block(np.eye(3), class_targets(["a"] * 3), weights=np.ones(3)), errors.InvalidWeights),
        (Block(sp.csr_matrix(np.eye(3)), class_targets(["a"] * 3)), errors.InvalidRows),
    ],
)
def test_a_refused_batch_changes_nothing(block: Block, error: type[Exception]) -> None:
    accumulator = SKMAccumulator(2, 1.0, 1.0)
    accumulator.add(Block(np.eye(3), class_targets(["a", "b", "a"])))
    before = accumulator.freeze()
    with pytest.raises(error):
        accumulator.add(block)
    after = accumulator.freeze()
    assert (after.rows, after.labels) == (before.rows, before.labels)
    np.testing.assert_array_equal(after.basis.columns, before.basis.columns)
