"""The two-stage solver's rules: which route, what is rounding, which components."""

import numpy as np
import pytest

from stream_dr.solve.spectral import Rounding, zero_rounding
from stream_dr.solve.two_stage import condition_number, two_stage
from tests.naive import two_stage as naive


def rows(n: int = 60, d: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Centred rows and H (n, 3)."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, d))
    return X - X.mean(axis=0), random.normal(size=(n, 3))


@pytest.mark.parametrize("gamma", [0.0, 1e-8, 1.0, 1e8])
def test_w_is_orthonormal_in_cxx_plus_gamma_and_diagonalises(gamma: float) -> None:
    X, H = rows()
    A, B = X.T @ X + gamma * np.eye(8), X.T @ H
    W, eigenvalues = two_stage(X.T @ X, B, gamma)
    np.testing.assert_allclose(W.T @ A @ W, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(W.T @ B @ B.T @ W, np.diag(eigenvalues), atol=1e-11 * eigenvalues[0])
    np.testing.assert_allclose(
        np.linalg.solve(A, B @ B.T) @ W, W * eigenvalues, atol=1e-10 * np.abs(W * eigenvalues).max()
    )


@pytest.mark.parametrize("gamma", [0.0, 1e-12, 1e-8, 1e-4, 1.0])
def test_rank_deficient_scatter_has_the_minimum_norm_solution(gamma: float) -> None:
    X, H = rows(20, 50)
    W0, _, _ = naive.generalised(X, H, gamma)
    assert naive.distance(W0, two_stage(X.T @ X, X.T @ H, gamma)[0]) <= 7e-11


@pytest.mark.parametrize("span", [4, 8, 12])
def test_badly_scaled_columns_of_full_rank_cost_nothing(span: int) -> None:
    X, H = rows()
    scale = 10.0 ** np.linspace(0, -span, 8)
    W0, _, _ = naive.generalised(X, H, 0.0)
    W, _ = two_stage((X * scale).T @ (X * scale), (X * scale).T @ H)
    assert naive.distance(W0, W * scale[:, None]) <= 1e-12


def test_constant_columns_get_no_loading() -> None:
    X, H = rows()
    wide = np.hstack([X, np.zeros((60, 2))])
    shift = np.zeros(10)
    shift[8:] = 1e6
    scatter = wide.T @ wide
    scatter[8, 8] = (2e-16 * 1e6) ** 2
    W, _ = two_stage(scatter, wide.T @ H, 0.0, Rounding(shift))
    assert (W[8:] == 0).all()
    np.testing.assert_allclose(np.abs(W[:8]), np.abs(two_stage(X.T @ X, X.T @ H)[0]), atol=1e-12)


def test_offset_raises_the_floor_so_that_rounding_is_no_direction() -> None:
    X, H = rows(10, 30)
    noise = np.random.default_rng(1).normal(size=(30, 30)) * 1e-11
    scatter = X.T @ X + noise @ noise.T + 1e-10 * np.eye(30)
    shift = np.full(30, 1e6 * np.sqrt(10))
    W0, _, _ = naive.generalised(X, H, 0.0)
    assert naive.distance(W0, two_stage(scatter, X.T @ H, 0.0, Rounding(shift))[0]) <= 1e-7


def test_small_components_are_left_out_at_1e_10() -> None:
    X, _ = rows()
    B = np.linalg.qr(X.T @ X)[0][:, :3] * [1.0, 1e-4, 1e-6]
    assert two_stage(np.eye(8), B)[0].shape == (8, 2)


def test_nothing_comes_of_nothing() -> None:
    for scatter in (np.zeros((4, 4)), np.zeros(4), np.eye(4)):
        W, eigenvalues = two_stage(scatter, np.zeros((4, 2)))
        assert W.shape == (4, 0)
        assert eigenvalues.shape == (0,)
    assert two_stage(np.zeros((0, 0)), np.zeros((0, 2)))[0].shape == (0, 0)
    assert two_stage(np.eye(3), np.zeros((3, 0)))[0].shape == (3, 0)


def test_more_targets_than_features() -> None:
    X, _ = rows()
    H = np.random.default_rng(1).normal(size=(60, 40))
    W0, _, _ = naive.generalised(X, H, 0.3)
    for scatter in (X.T @ X,):
        assert naive.distance(W0, two_stage(scatter, X.T @ H, 0.3)[0]) <= 1e-12


def test_condition_counts_the_kept_space_only() -> None:
    X, _ = rows(5, 9)
    s = np.linalg.svd(X, compute_uv=False)[:4] ** 2
    np.testing.assert_allclose(condition_number(X.T @ X, 0.5), (s[0] + 0.5) / (s[-1] + 0.5))
    assert condition_number(np.zeros((3, 3))) == 1.0


def test_rounding_answers() -> None:
    rounding = zero_rounding(3)
    assert rounding.eigenvalue_floor(np.ones(3)) == 0.0
    assert rounding.varying_columns(np.array([0.0, 1e-30, 1.0])).tolist() == [False, True, True]
    assert rounding.cross_sum_floor(2.0, np.ones(3)) == pytest.approx(2e-12 * 3**0.5)
    assert Rounding(np.full(3, 1e9)).cross_sum_floor(1.0, np.ones(3)) == pytest.approx(8 * 2**-52 * 1e9, rel=1e-4)
    lossy = Rounding(np.zeros(3), lost=1e-8)
    assert lossy.eigenvalue_floor(np.ones(3)) == pytest.approx(3e-8)
    assert lossy.cross_sum_floor(1.0, np.ones(3)) > 1e-12


def test_significant_keeps_what_shows_in_small_columns_and_drops_rounding() -> None:
    random = np.random.default_rng(4)
    scale = np.array([1e8, 1.0, 1e-8])
    diagonal = scale**2
    cross = np.zeros((3, 3))
    cross[0, 0], cross[2, 1] = 1e8, 1e-8
    turn = np.linalg.qr(random.normal(size=(3, 3)))[0]
    noisy = cross @ turn + 1e-15 * scale[:, None] * random.normal(size=(3, 3))
    kept = zero_rounding(3).significant_cross_sum_combinations(noisy, 1.0, diagonal)
    assert kept.shape == (3, 2)
    np.testing.assert_allclose((kept @ kept.T) / np.outer(scale, scale), np.diag([1.0, 0.0, 1.0]), atol=1e-7)
    assert zero_rounding(3).significant_cross_sum_combinations(
        1e-14 * scale[:, None] * np.ones((3, 2)), 1.0, diagonal
    ).shape == (
        3,
        0,
    )
    assert zero_rounding(3).significant_cross_sum_combinations(np.zeros((3, 2)), 1.0, np.zeros(3)).shape == (3, 0)
