"""Sparse sums: what they are referred to."""

import numpy as np
import scipy.sparse as sp

import stream_dr


def test_continuous_targets_are_referred_to_the_first_batch_that_has_weight():
    rng = np.random.default_rng(0)
    X = sp.random(150, 30, 0.3, format="csr", random_state=rng)
    Y = 1e8 + rng.normal(size=(150, 2))
    opls = stream_dr.OPLS(scatter="diagonal")
    opls.partial_fit(X[:50], Y[:50] - 5e8, sample_weight=np.zeros(50))
    opls.partial_fit(X[50:], Y[50:], sample_weight=np.ones(100))
    rows = X[50:].toarray()
    expected = (rows - rows.mean(axis=0)).T @ (Y[50:] - Y[50:].mean(axis=0))
    np.testing.assert_allclose(opls.state_.centred().cross, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
