"""Spectral solvers against numpy's full decompositions, and what they leave out."""

import numpy as np
import pytest

from stream_dr.solve import spectral


def tall(rank: int, smallest: float, seed: int = 0) -> np.ndarray:
    """(2000, 80) of that rank, singular values from 1 down to smallest."""
    random = np.random.default_rng(seed)
    U = np.linalg.qr(random.normal(size=(2000, rank)))[0]
    V = np.linalg.qr(random.normal(size=(80, rank)))[0]
    return (U * np.geomspace(1.0, smallest, rank)) @ V.T


@pytest.mark.test_all
@pytest.mark.parametrize("smallest", [0.5, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("rank", [80, 79, 30])
def test_left_singular_is_the_svd_by_either_route(rank: int, smallest: float) -> None:
    M = tall(rank, smallest)
    U, s, _ = np.linalg.svd(M, full_matrices=False)
    vectors, values = spectral.left_singular_pairs(M)
    assert len(values) == rank
    np.testing.assert_allclose(values, s[:rank], rtol=1e-13 / smallest, atol=1e-15)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-13)
    np.testing.assert_allclose(np.abs((vectors * U[:, :rank]).sum(axis=0)), 1.0, atol=1e-6)
    np.testing.assert_allclose(vectors @ (vectors.T @ M), M, atol=1e-14)


def test_left_singular_takes_wide_empty_and_zero_matrices() -> None:
    wide = np.random.default_rng(0).normal(size=(4, 30))
    vectors, values = spectral.left_singular_pairs(wide)
    np.testing.assert_allclose((vectors * values**2) @ vectors.T, wide @ wide.T)
    for shape in ((0, 3), (3, 0), (2000, 80)):
        vectors, values = spectral.left_singular_pairs(np.zeros(shape))
        assert vectors.shape == (shape[0], 0)
        assert len(values) == 0


def test_symmetric_cuts_rounding_and_what_lies_below_the_floor() -> None:
    random = np.random.default_rng(1)
    A = random.normal(size=(12, 5))
    values, vectors = spectral.nonzero_semidefinite_eigenpairs(A @ A.T)
    assert len(values) == 5
    np.testing.assert_allclose((vectors * values) @ vectors.T, A @ A.T, atol=1e-13)
    assert len(spectral.nonzero_semidefinite_eigenpairs(A @ A.T, rounding_floor=float(values[2]))[0]) == 2
    assert len(spectral.nonzero_semidefinite_eigenpairs(np.zeros((3, 3)))[0]) == 0
    assert len(spectral.nonzero_semidefinite_eigenpairs(np.zeros((0, 0)))[0]) == 0


def test_algebraic_orders_by_value_and_leaves_zeros_out() -> None:
    Q = np.linalg.qr(np.random.default_rng(2).normal(size=(6, 6)))[0]
    values, vectors = spectral.nonzero_indefinite_eigenpairs((Q * [3.0, 1e-18, -5.0, 0.0, 1.0, -1e-17]) @ Q.T)
    np.testing.assert_allclose(values, [3.0, 1.0, -5.0])
    np.testing.assert_allclose(np.abs((vectors * Q[:, [0, 4, 2]]).sum(axis=0)), 1.0)


def test_canonical_gives_an_eigenspace_one_basis_whatever_came_in() -> None:
    random = np.random.default_rng(3)
    W = np.linalg.qr(random.normal(size=(9, 5)))[0]
    eigenvalues = np.array([2.0, 1.0, 1.0, 1.0, 0.5])
    turned = W.copy()
    turned[:, 1:4] = W[:, 1:4] @ np.linalg.qr(random.normal(size=(3, 3)))[0]
    a, b = (spectral.with_fixed_signs(spectral.rotate_equal_components(M, eigenvalues)) for M in (W, turned))
    np.testing.assert_allclose(a, b, atol=1e-14)
    np.testing.assert_allclose(a[:, 1:4] @ a[:, 1:4].T, W[:, 1:4] @ W[:, 1:4].T, atol=1e-14)
    np.testing.assert_allclose(np.abs(a[:, [0, 4]]), np.abs(W[:, [0, 4]]))
    distinct = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert spectral.rotate_equal_components(W, distinct) is W


def test_canonical_leaves_small_distinct_eigenvalues_alone() -> None:
    W = np.eye(4)[:, ::-1]
    assert spectral.rotate_equal_components(W, np.array([1.0, 1e-8, 5e-9, 1e-9])) is W


def test_signed_makes_the_largest_loading_positive() -> None:
    W = spectral.with_fixed_signs(np.array([[0.1, -3.0], [-2.0, 1.0]]))
    assert W.tolist() == [[-0.1, 3.0], [2.0, -1.0]]
    assert W.flags["C_CONTIGUOUS"]
    assert spectral.with_fixed_signs(np.zeros((3, 0))).shape == (3, 0)
