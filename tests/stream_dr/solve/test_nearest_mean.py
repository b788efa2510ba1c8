"""Means by class and the nearest of them, beside scikit-learn's NearestCentroid."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import NearestCentroid

from stream_dr.solve.neighbours import means_by_class, nearest_mean


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_as_scikit_learn(form) -> None:
    rng = np.random.default_rng(7)
    Z, codes = rng.normal(size=(200, 3)), rng.integers(0, 4, 200)
    Z[codes == 2] += 2.0
    theirs = NearestCentroid().fit(Z, codes)
    means = means_by_class(form(Z), codes, 4)
    np.testing.assert_allclose(means, theirs.centroids_, rtol=1e-12)
    assert nearest_mean(form(Z), means).tolist() == theirs.predict(Z).tolist()


def test_a_class_without_rows_is_never_the_nearest() -> None:
    means = means_by_class(np.array([[0.0], [4.0]]), np.array([1, 3]), 5)
    assert np.isnan(means[[0, 2, 4]]).all()
    assert nearest_mean(np.array([[0.1], [3.0], [-9.0]]), means).tolist() == [1, 3, 1]
