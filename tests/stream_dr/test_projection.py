"""Projections apply to dense and sparse rows alike; what they never saw contributes nothing."""

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.errors import WidthMismatch
from stream_dr.projection import Columns, Linear

RNG = np.random.default_rng(0)


def linear():
    return Linear(RNG.normal(size=6), np.ascontiguousarray(RNG.normal(size=(6, 2))), np.ones(2), "exact")


def test_linear_is_centred_rows_times_loadings_dense_and_sparse():
    p, X = linear(), RNG.normal(size=(4, 6))
    expected = (X - p.mean) @ p.loadings
    np.testing.assert_allclose(p.apply(X), expected, rtol=1e-12)
    np.testing.assert_allclose(p.apply(sp.csr_matrix(X)), expected, rtol=1e-12)
    assert (p.kind, p.n_features, p.n_components) == ("linear", 6, 2)


def test_a_sparse_index_never_seen_contributes_nothing():
    p, X = linear(), RNG.normal(size=(3, 6))
    wider = sp.csr_matrix(np.hstack([X, np.ones((3, 2))]))
    np.testing.assert_allclose(p.apply(wider), p.apply(X))
    narrower = X.copy()
    narrower[:, 4:] = 0
    np.testing.assert_allclose(p.apply(sp.csr_matrix(narrower[:, :4])), p.apply(narrower))


def test_columns_keeps_the_chosen_features():
    p, X = Columns(np.array([4, 1]), np.array([0.9, 0.2]), 6), RNG.normal(size=(3, 6))
    np.testing.assert_array_equal(p.apply(X), X[:, [4, 1]])
    np.testing.assert_array_equal(p.apply(sp.csr_matrix(X)), X[:, [4, 1]])
    assert p.apply(sp.csr_matrix((3, 2))).shape == (3, 2)


@pytest.mark.parametrize("projection", [linear(), Columns(np.array([0]), np.ones(1), 6)])
def test_a_dense_width_that_differs_is_refused(projection):
    with pytest.raises(WidthMismatch, match="7 features"):
        projection.apply(np.ones((1, 7)))
