"""Block conjugate gradient against pseudo-inverses: singular systems, equal columns, offsets, exhausted right-hand sides."""

import tracemalloc

import numpy as np
import pytest

from stream_dr.solve import conjugate_gradient as cg
from stream_dr.statistics.protocol import pack, unpack


def solve(A, B, steps=200, noise=cg.NOISE):
    """The solve carried on until nothing is left, or `steps`."""
    state = cg.start_block_solve(B, noise)
    for _ in range(steps):
        if state.directions.shape[1] == 0:
            break
        state = cg.advance_linear_solve(state, A @ state.directions)
    return state


def current_solution(state):
    """The solution W (features, k) for the original right-hand sides."""
    return state.solution @ state.expand


def spectrum(rng, values):
    """A symmetric matrix with the given eigenvalues."""
    Q = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    return (Q * values) @ Q.T


@pytest.mark.parametrize("gamma", [1e-4, 1e-2, 1.0, 100.0])
def test_equals_the_inverse(gamma):
    rng = np.random.default_rng(1)
    A = spectrum(rng, np.geomspace(1e-2, 10, 50)) + gamma * np.eye(50)
    B = rng.standard_normal((50, 4))
    W = current_solution(solve(A, B))
    np.testing.assert_allclose(W, np.linalg.solve(A, B), rtol=0, atol=1e-10 * np.abs(W).max())


def test_singular_matrix_gives_minimum_norm():
    rng = np.random.default_rng(2)
    A = spectrum(rng, np.concatenate([np.zeros(30), np.linspace(1, 30, 30)]))
    B = A @ rng.standard_normal((60, 5))
    W = current_solution(solve(A, B))
    reference = np.linalg.pinv(A, rcond=1e-10, hermitian=True) @ B
    np.testing.assert_allclose(W, reference, rtol=0, atol=1e-11 * np.abs(reference).max())


def test_equal_zero_and_dependent_columns():
    rng = np.random.default_rng(3)
    A = spectrum(rng, np.linspace(1, 9, 20))
    one = rng.standard_normal((20, 2))
    B = np.column_stack([one, one, one @ [1.0, -1.0], np.zeros(20)])
    state = cg.start_block_solve(B)
    assert state.directions.shape == (20, 2)
    np.testing.assert_allclose(current_solution(solve(A, B)), np.linalg.solve(A, B), atol=1e-12)


def test_exact_convergence_ends_the_solve():
    A = np.diag([2.0, 2.0, 5.0])
    B = np.eye(3)[:, :2]
    state = solve(A, B)
    assert state.steps == 1
    assert state.directions.shape[1] == 0
    assert cg.relative_solve_residual(state) == 0.0
    np.testing.assert_allclose(current_solution(state), B / 2)
    assert cg.advance_linear_solve(state, np.zeros((3, 0))) is state


def test_nothing_to_solve():
    state = cg.start_block_solve(np.zeros((4, 3)))
    assert state.directions.shape == (4, 0)
    assert cg.relative_solve_residual(state) == 0.0
    np.testing.assert_array_equal(current_solution(state), np.zeros((4, 3)))


def test_stated_noise_keeps_rounding_out_of_the_null_space():
    rng = np.random.default_rng(4)
    A = spectrum(rng, np.concatenate([np.zeros(35), np.linspace(10, 40, 25)]))
    clean = A @ rng.standard_normal((60, 5))
    B = clean + 1e-11 * np.linalg.norm(clean) * rng.standard_normal((60, 5))
    W = current_solution(solve(A, B, noise=1e-9))
    reference = np.linalg.pinv(A, rcond=1e-10, hermitian=True) @ clean
    assert np.linalg.norm(W - reference) < 1e-7 * np.linalg.norm(reference)


def test_a_state_goes_on_after_pack_and_unpack():
    rng = np.random.default_rng(5)
    A, B = spectrum(rng, np.geomspace(1e-3, 1, 30)), rng.standard_normal((30, 3))
    straight = solve(A, B, steps=6)
    half = solve(A, B, steps=3)
    half = unpack(cg.BlockSolve, *pack(half))
    for _ in range(3):
        half = cg.advance_linear_solve(half, A @ half.directions)
    np.testing.assert_array_equal(current_solution(half), current_solution(straight))


def test_residual_is_that_of_the_solution():
    rng = np.random.default_rng(6)
    A, B = spectrum(rng, np.geomspace(1e-3, 1, 40)), rng.standard_normal((40, 3))
    state = solve(A, B, steps=5)
    true = np.linalg.norm(B - A @ current_solution(state)) / np.linalg.norm(B)
    assert cg.relative_solve_residual(state) == pytest.approx(true, rel=1e-9)


def test_second_stage_solves_the_eigenproblem():
    rng = np.random.default_rng(7)
    A, XH = spectrum(rng, np.geomspace(0.1, 3, 12)), rng.standard_normal((12, 3))
    XH = np.column_stack([XH, XH[:, 0]])
    W, values = cg.second_stage_components(np.linalg.solve(A, XH), XH)
    assert W.shape == (12, 3)
    np.testing.assert_allclose(np.linalg.solve(A, XH @ XH.T @ W), W * values, atol=1e-9)
    np.testing.assert_allclose(W.T @ A @ W, np.eye(3), atol=1e-10)
    assert np.all(np.diff(values) <= 0)


def test_angle():
    rng = np.random.default_rng(8)
    Q = np.linalg.qr(rng.standard_normal((30, 3)))[0]
    off = Q.copy()
    off[:, 0] = (
        np.cos(1e-9) * Q[:, 0] + np.sin(1e-9) * np.linalg.qr(np.column_stack([Q, rng.standard_normal(30)]))[0][:, 3]
    )
    turned = np.linalg.qr(off @ rng.standard_normal((3, 3)))[0]
    assert cg.largest_principal_angle(Q, turned) == pytest.approx(1e-9, rel=1e-5)
    assert cg.largest_principal_angle(Q, Q[:, :2]) == pytest.approx(np.pi / 2)
    assert cg.largest_principal_angle(Q[:, :0], Q[:, :0]) == 0.0


def test_a_step_keeps_no_array_of_the_residual_beside_the_new_basis():
    rng = np.random.default_rng(8)
    diagonal, B = rng.uniform(0.1, 2.0, 50_000), rng.standard_normal((50_000, 8))
    state = cg.start_block_solve(B)
    state = cg.advance_linear_solve(state, diagonal[:, None] * state.directions)
    product = diagonal[:, None] * state.directions
    tracemalloc.start()
    cg.advance_linear_solve(state, product)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4.5 * B.nbytes, f"{peak / B.nbytes:.1f} times the right-hand sides"
