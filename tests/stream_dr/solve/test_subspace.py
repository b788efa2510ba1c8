"""The Krylov basis: orthonormal, closed when nothing is left, restarted without losing its answer."""

import numpy as np

from stream_dr.solve import subspace


def matrix(rng, values):
    Q = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    return (Q * values) @ Q.T


def test_basis_is_orthonormal_and_scatter_is_exact_on_it():
    rng = np.random.default_rng(0)
    A = matrix(rng, np.geomspace(1e-6, 1e3, 40))
    state = subspace.start_subspace(rng.standard_normal((40, 3)))
    for _ in range(8):
        state = subspace.extend_subspace(state, A @ state.directions)
    V = state.basis
    np.testing.assert_allclose(V.T @ V, np.eye(24), atol=1e-13)
    np.testing.assert_allclose(state.scatter, V.T @ A @ V, atol=1e-10)


def test_an_invariant_space_ends_it():
    A = np.diag([1.0, 2.0, 3.0, 4.0])
    state = subspace.start_subspace(np.eye(4)[:, :2] @ np.array([[1.0, 1.0], [1.0, 1.0]]))
    assert state.directions.shape == (4, 1)
    state = subspace.extend_subspace(state, A @ state.directions)
    state = subspace.extend_subspace(state, A @ state.directions)
    assert state.directions.shape == (4, 0)
    assert subspace.relative_subspace_residual(state, np.eye(2)) < 1e-15


def test_restart_keeps_the_answer():
    rng = np.random.default_rng(1)
    A = matrix(rng, np.linspace(1, 50, 60))
    state = subspace.start_subspace(rng.standard_normal((60, 4)))
    for _ in range(60):
        state = subspace.extend_subspace(state, A @ state.directions)
        values, vectors = np.linalg.eigh(state.scatter)
        if state.basis.shape[1] > 20:
            before = state.basis @ vectors[:, -4:]
            state = subspace.restart_from_solution(state, vectors[:, -4:])
            assert np.linalg.norm(state.basis @ (state.basis.T @ before) - before) < 1e-12
    values = np.linalg.eigvalsh(state.scatter)
    np.testing.assert_allclose(values[-3:], np.linspace(1, 50, 60)[-3:], rtol=1e-4)


def test_no_answer_has_no_residual():
    state = subspace.start_subspace(np.zeros((5, 2)))
    assert state.directions.shape == (5, 0)
    assert subspace.relative_subspace_residual(state, np.zeros((0, 0))) == 0.0
