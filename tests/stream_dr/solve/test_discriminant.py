"""Directions of b·Sb + w·St: routes agree with the dense eigenproblem."""

import inspect

import numpy as np
import pytest
from scipy.sparse.linalg import eigsh

from stream_dr.solve.discriminant import positive_scatter_sum_eigenpairs, scatter_sum_eigenpairs


@pytest.mark.parametrize(("d", "c"), [(6, 3), (300, 4), (300, 1), (4, 6)])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 30.0])
def test_diagonal_route_is_the_dense_one(d: int, c: int, alpha: float) -> None:
    random = np.random.default_rng(0)
    G = random.normal(size=(d, c))
    total = (G**2).sum(axis=1) + random.random(d) ** 4
    within = total - (G**2).sum(axis=1)
    values, vectors = np.linalg.eigh(G @ G.T - alpha * np.diag(within))
    keep = np.flatnonzero(values > 1e-12 * np.abs(values).max())[::-1]
    W, found = positive_scatter_sum_eigenpairs(G, 1.0 + alpha, total, -alpha)
    np.testing.assert_allclose(found, values[keep], rtol=1e-9)
    np.testing.assert_allclose(np.abs((W * vectors[:, keep]).sum(axis=0)), 1.0, atol=1e-9)


def test_nothing_where_no_class_mean_differs() -> None:
    for d in (5, 10_000):
        W, values = positive_scatter_sum_eigenpairs(np.zeros((d, 0)), 2.0, np.ones(d), -1.0)
        assert W.shape == (d, 0)
        assert len(values) == 0


def test_combined_orders_by_value() -> None:
    random = np.random.default_rng(1)
    G, A = random.normal(size=(5, 2)), random.normal(size=(5, 5))
    W, values = scatter_sum_eigenpairs(G, 2.0, A @ A.T, -0.5)
    np.testing.assert_allclose((W * values) @ W.T, 2.0 * G @ G.T - 0.5 * A @ A.T, atol=1e-12)
    assert (np.diff(values) < 0).all()


@pytest.mark.skipif(
    "rng" not in inspect.signature(eigsh).parameters, reason="scipy before 1.17 draws restarts by itself"
)
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_diagonal_route_gives_the_same_bits_again(levels: int) -> None:
    """Equal eigenvalues use up Lanczos' space, which then goes on from a random vector."""
    G = np.eye(400)[:, :3]
    total = (G**2).sum(axis=1) + 0.5 * (np.arange(400) % levels) * (np.arange(400) > 2)
    first = positive_scatter_sum_eigenpairs(G, 2.0, total, -1.0)
    for _ in range(3):
        again = positive_scatter_sum_eigenpairs(G, 2.0, total, -1.0)
        assert [a.tobytes() for a in again] == [a.tobytes() for a in first]
