"""Wide sparse rows are streamed without a (rows, features) array: 2,000 rows of 47,236 features would take 756 MB."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import stream_dr

FEATURES, ROWS, BATCH, NONZEROS = 47_236, 2_000, 250, 76


def batches():
    rng = np.random.default_rng(11)
    for _ in range(ROWS // BATCH):
        indices = np.sort(
            rng.integers(0, FEATURES // NONZEROS, (BATCH, NONZEROS)) + np.arange(NONZEROS) * (FEATURES // NONZEROS)
        )
        indptr = np.arange(0, BATCH * NONZEROS + 1, NONZEROS)
        X = sp.csr_matrix((rng.random(BATCH * NONZEROS), indices.ravel(), indptr), shape=(BATCH, FEATURES))
        yield X, rng.integers(0, 4, BATCH)


@pytest.mark.parametrize("key", ["class_means", "lda", "opls", "ccipca", "iskm"])
def test_memory_stays_far_below_a_dense_copy_of_the_rows(key):
    warm = stream_dr.ESTIMATORS[key]().partial_fit(*next(batches()))
    warm.transform(next(batches())[0])
    parts = list(batches())
    tracemalloc.start()
    estimator = stream_dr.ESTIMATORS[key]()
    for X, y in parts:
        estimator.partial_fit(X, y)
    assert estimator.transform(parts[0][0]).shape[0] == BATCH
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert estimator.n_samples_seen_ == ROWS
    assert peak < 48e6, f"{peak / 1e6:.0f} MB"


@pytest.mark.parametrize("key", ["lda", "cca", "opls"])
def test_solving_many_classes_takes_four_arrays_of_features_and_classes(key):
    features, classes = 20_000, 100
    rng = np.random.default_rng(5)
    X = sp.random(2_000, features, 0.004, format="csr", rng=rng)
    estimator = stream_dr.ESTIMATORS[key](gamma=1.0).partial_fit(X, np.arange(2_000) % classes)
    state = estimator.state_
    estimator.solve(state)
    tracemalloc.start()
    projection = estimator.solve(state)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert projection.n_components == classes - 1 or key == "opls"
    assert peak < 4 * 8 * features * classes
