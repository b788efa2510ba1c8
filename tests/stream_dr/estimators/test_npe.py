"""NPE against the dense generalised eigenproblem."""

import numpy as np
import pytest

from stream_dr.estimators.npe import NPE
from tests.naive import graph as naive

rng = np.random.default_rng(9)
X = rng.normal(size=(70, 5)) @ rng.normal(size=(5, 5)) - 2.0
CODES = np.append(rng.integers(0, 3, 69), 7)  # the last row is alone in its class


@pytest.mark.parametrize("codes", [None, CODES], ids=["all", "label aware"])
@pytest.mark.parametrize("reg", [1e-3, 0.1])
def test_equals_the_definition(codes, reg):
    W = naive.barycentric_weights(X, 10, reg, codes)
    M = (np.eye(70) - W).T @ (np.eye(70) - W)
    values, vectors = naive.locality(X, M, np.eye(70), 3)
    model = NPE(n_components=3, reg=reg, scaling="source", label_aware=codes is not None).fit(X, CODES)
    assert model.eigenvalues_ == pytest.approx(values, abs=1e-11)
    signs = np.sign((model.components_.T * vectors).sum(axis=0))
    assert model.components_.T * signs == pytest.approx(vectors, abs=1e-9)
