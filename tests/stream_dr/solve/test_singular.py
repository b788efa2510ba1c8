"""Singular values of what is finite; of what is not, an error instead of a search without end."""

import numpy as np
import pytest

from stream_dr.errors import NotFinite
from stream_dr.solve.spectral import thin_svd


def test_factors_multiply_to_the_matrix() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 3))
    left, values, right = thin_svd(matrix)
    assert (left.shape, values.shape, right.shape) == ((5, 3), (3,), (3, 3))
    np.testing.assert_allclose(left * values @ right, matrix, atol=1e-12)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused(value: float) -> None:
    matrix = np.ones((3, 2))
    matrix[1, 0] = value
    with pytest.raises(NotFinite):
        thin_svd(matrix)
