"""CCIPCA's accumulator against its row-by-row definition, on every batching and on hostile streams."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.batch.block import Block
from stream_dr.statistics.recurrences.ccipca_state import CCIPCAAccumulator
from tests.naive import recurrences
from tests.support.pairwise import pairwise

STREAMS = {name: X for name, X, _ in recurrences.hostile()}


def learned(X: Any, p: int, batch: int = 37, amnesic: float = 2.0, center: bool = True) -> CCIPCAAccumulator:
    """An accumulator that has learned X in batches of so many rows."""
    accumulator = CCIPCAAccumulator(p, amnesic, center)
    for at in range(0, X.shape[0], batch):
        accumulator.add(Block(X[at : at + batch]))
    return accumulator


def close(accumulator: CCIPCAAccumulator, expected: recurrences.Recurrence, tolerance: float = 1e-10) -> None:
    """Vectors and mean equal the definition's, to `tolerance` of the longest; past d vectors there is only rounding."""
    state = accumulator.freeze()
    vectors = state.basis.vectors().T
    assert vectors.shape == expected.vectors.shape
    longest, d = np.abs(expected.vectors).max(initial=0.0), vectors.shape[1]
    np.testing.assert_allclose(vectors[:d], expected.vectors[:d], atol=tolerance * longest)
    if state.basis.counts.size:
        np.testing.assert_allclose(state.basis.means()[:, 0], expected.mean, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("p", [1, 4, 12])
@pytest.mark.parametrize("name", STREAMS)
def test_dense_rows_follow_the_definition(name: str, p: int) -> None:
    close(
        learned(STREAMS[name], p), recurrences.ccipca(STREAMS[name], p, long=True), 1e-9 if "offset" in name else 1e-10
    )


@pytest.mark.parametrize("p", [1, 4, 12])
@pytest.mark.parametrize("name", [name for name in STREAMS if "offset" not in name])
def test_sparse_rows_follow_the_definition(name: str, p: int) -> None:
    close(learned(sp.csr_matrix(STREAMS[name]), p), recurrences.ccipca(STREAMS[name], p, long=True))


@pytest.mark.parametrize(
    ("sparse", "amnesic", "center"), pairwise(product([True, False], [0.0, 2.0, 4.5], [True, False]))
)
def test_every_batching_gives_the_same(sparse: bool, amnesic: float, center: bool) -> None:
    X = recurrences.classes(seed=3, n=1200, d=15)[0]
    X[np.abs(X) < 1.0] = 0.0
    expected = recurrences.ccipca(X, 6, amnesic, center)
    rows: Any = sp.csr_matrix(X) if sparse else X
    states = [learned(rows, 6, batch, amnesic, center) for batch in (1, 7, 64, 1000, 1200)]
    for accumulator in states:
        close(accumulator, expected)
        if sparse:
            np.testing.assert_array_equal(accumulator.freeze().basis.columns, states[0].freeze().basis.columns)


@pytest.mark.parametrize("sparse", [True, False])
def test_float32_rows_are_learned_in_float64(sparse: bool) -> None:
    X = recurrences.classes(seed=1)[0].astype(np.float32)
    rows: Any = sp.csr_matrix(X) if sparse else X
    close(learned(rows, 4), recurrences.ccipca(X.astype(np.float64), 4))


def test_features_appear_in_mid_stream() -> None:
    X = recurrences.classes(seed=2, d=20)[0] * (np.random.default_rng(0).random((300, 20)) < 0.3)
    X[:100, 5:] = 0.0
    accumulator = CCIPCAAccumulator(3, 2.0, True)
    for at in range(0, 300, 10):
        width = 5 if at < 100 else 20
        accumulator.add(Block(sp.csr_matrix(X[at : at + 10, :width]), width_stated=False))
    assert accumulator.n_features == 20
    close(accumulator, recurrences.ccipca(X, 3))


def test_an_outlier_leaves_the_first_component_exact() -> None:
    X = recurrences.classes()[0]
    X[150] *= 1e6
    expected = recurrences.ccipca(X, 1, long=True)
    close(learned(X, 1), expected)


def test_moving_mean_moves_the_shift() -> None:
    X = recurrences.classes(n=600)[0] + np.linspace(0.0, 1e5, 600)[:, None]
    close(learned(X, 3), recurrences.ccipca(X, 3, long=True), 1e-9)


@pytest.mark.parametrize("sparse", [True, False])
def test_digits_lost_in_short_residuals_are_made_good(sparse: bool) -> None:
    """Early on a residual may be a thousandth of its row; without a new Gram matrix the loss was 1e-8 for ever."""
    for seed in range(8):
        random = np.random.default_rng(seed)
        X = random.normal(size=(150, 24)) * np.exp(random.normal(size=24)) * (random.random((150, 1)) > 0.3)
        rows: Any = sp.csr_matrix(X) if sparse else X
        close(learned(rows, 8, amnesic=4.5), recurrences.ccipca(X, 8, 4.5, long=True))
