"""Thin QR from Gram matrices: orthonormal to rounding for every condition."""

import numpy as np
import pytest

from stream_dr.solve.spectral import tall_qr


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e7, 1e10, 1e16])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e100])
def test_orthonormal_and_exact(condition, scale):
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((300, 12)))[0]
    right = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    M = (left * np.geomspace(1, 1 / condition, 12)) @ right * scale
    Q, R = tall_qr(M)
    np.testing.assert_allclose(Q.T @ Q, np.eye(12), atol=1e-14)
    np.testing.assert_allclose(Q @ R, M, rtol=0, atol=1e-14 * scale)
    np.testing.assert_allclose(R, np.triu(R), rtol=0, atol=1e-13 * scale)


def test_badly_scaled_equal_zero_and_no_columns():
    rng = np.random.default_rng(1)
    M = rng.standard_normal((50, 4)) * [1e-9, 1.0, 1e9, 1.0]
    for matrix in (M, np.column_stack([M, M[:, 1]]), np.column_stack([M, np.zeros(50)])):
        Q, R = tall_qr(matrix)
        np.testing.assert_allclose(Q.T @ Q, np.eye(matrix.shape[1]), atol=1e-14)
        np.testing.assert_allclose(Q @ R, matrix, rtol=1e-12, atol=1e-6)
    Q, R = tall_qr(np.zeros((5, 0)))
    assert (Q.shape, R.shape) == ((5, 0), (0, 0))
