"""The classifiers behind a projection, against scikit-learn's."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from stream_dr.evaluation.test_then_train import LinearProbe, NearestMean, NearestNeighbours, ProbeSample, fit_probe


def sample(multi=False, sparse=False, rows=200, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0], [4, 0], [0, 5]])
    y = rng.integers(0, 3, rows)
    Z = centres[y] + rng.standard_normal((rows, 2))
    targets = np.column_stack([y == 0, y != 1, y == 2]) if multi else y
    return ProbeSample(sp.csr_matrix(Z) if sparse else Z, targets, None, None, 3)


@pytest.mark.parametrize("sparse", [False, True])
def test_class_probes_are_scikit_learns(sparse):
    train, test = sample(sparse=sparse), sample(seed=1, sparse=sparse)
    dense = train.Z.toarray() if sparse else train.Z
    held = test.Z.toarray() if sparse else test.Z
    np.testing.assert_array_equal(
        NearestMean(train).predict(test.Z), NearestCentroid().fit(dense, train.y).predict(held)
    )
    peer = KNeighborsClassifier(5, algorithm="brute").fit(dense, train.y)
    assert np.mean(NearestNeighbours(train, 5).predict(test.Z) == peer.predict(held)) > 0.99
    assert np.mean(LinearProbe(train).predict(test.Z) == test.y) > 0.9


@pytest.mark.parametrize("name", ["mean", "knn", "linear"])
@pytest.mark.parametrize("sparse", [False, True])
def test_label_probes(name, sparse):
    train, test = sample(multi=True, sparse=sparse), sample(multi=True, seed=1, sparse=sparse)
    scores = fit_probe(name, train, 5).predict(test.Z)
    assert scores.shape == (200, 3)
    assert np.abs(scores).max() <= 1.0
    assert np.mean((scores > 0) == test.y) > 0.9


def test_linear_ignores_the_unit_of_the_coordinates():
    train, test = sample(), sample(seed=1)
    tiny = train._replace(Z=train.Z * [1e-9, 1e-3])
    np.testing.assert_array_equal(LinearProbe(tiny).predict(test.Z * [1e-9, 1e-3]), LinearProbe(train).predict(test.Z))


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("name", ["mean", "knn", "linear"])
def test_no_component_and_one_class(name, multi):
    train = sample(multi=multi)
    none = train._replace(Z=train.Z[:, :0])
    found = fit_probe(name, none, 5).predict(np.zeros((4, 0)))
    assert found.shape == ((4, 3) if multi else (4,))
    if not multi:
        one = train._replace(y=np.full(200, 2))
        np.testing.assert_array_equal(fit_probe(name, one, 5).predict(train.Z[:4]), 2)


def test_fewer_rows_than_neighbours_and_classes_without_a_row():
    train = ProbeSample(np.array([[0.0], [9.0]]), np.array([0, 2]), None, None, 4)
    np.testing.assert_array_equal(NearestNeighbours(train, 5).predict(np.array([[1.0], [8.0]])), [0, 2])
    np.testing.assert_array_equal(NearestMean(train).predict(np.array([[1.0], [8.0]])), [0, 2])
