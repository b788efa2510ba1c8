"""The theorems and remarks of the two-stage paper [2S], as properties of the solver: any rank, any γ, any H.

X (n, d) are rows of a given rank, centred or not (the theorems ask for neither), with singular values from 0.3 to 3.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr.solve.two_stage import two_stage
from tests.naive import two_stage as naive

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True)
GAMMAS = st.sampled_from([1e-6, 1e-2, 1.0, 1e4])


class Problem(NamedTuple):
    """Rows, H (n, k), and the compact singular value decomposition X = U Σ Vᵀ, U (n, r)."""

    X: np.ndarray
    H: np.ndarray
    U: np.ndarray
    s: np.ndarray
    V: np.ndarray


def problem(n: int, d: int, rank: int, H: np.ndarray, random: np.random.Generator) -> Problem:
    r = min(n, d, rank)
    U, V = (np.linalg.qr(random.normal(size=(size, r)))[0] for size in (n, d))
    s = np.geomspace(3.0, 0.3, r)
    return Problem((U * s) @ V.T, H, U, s, V)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n, d, rank, k, h_rank = (draw(st.integers(1, most)) for most in (25, 25, 25, 5, 5))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    return problem(
        n, d, rank, random.normal(size=(n, min(h_rank, k))) @ random.normal(size=(min(h_rank, k), k)), random
    )


def formula(p: Problem, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """[2S eq. 24 and 35]: U1 (Σ1² + γI)^(−1/2) V_B, and Σ_B², B = HᵀV1 Σ1 (Σ1² + γI)^(−1/2) (at γ = 0 B is A)."""
    root = np.sqrt(p.s**2 + gamma)
    _, values, Vt = np.linalg.svd((p.H.T @ p.U) * (p.s / root), full_matrices=False)
    keep = values**2 > 1e-10 * values[0] ** 2
    return (p.V / root) @ Vt[keep].T, values[keep] ** 2


def largest(S: np.ndarray, M: np.ndarray) -> np.ndarray:
    """W of max Tr(WᵀSW) with WᵀMW = I on M's range, eigenvalues above 1e-10 of the largest, largest first."""
    e, Q = np.linalg.eigh(M)
    keep = e > 1e-12 * e[-1]
    G = Q[:, keep] / np.sqrt(e[keep])
    values, Z = np.linalg.eigh(G.T @ S @ G)
    return (G @ Z[:, values > 1e-10 * values[-1]])[:, ::-1]


def ours(p: Problem, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    return two_stage(p.X.T @ p.X, p.X.T @ p.H, gamma)


def assert_same_for_every_number_of_vectors(W: np.ndarray, V: np.ndarray, eigenvalues: np.ndarray) -> None:
    """WWᵀ = VVᵀ of the first p columns, for every p at which the eigenvalues part; small ones have fewer digits."""
    assert W.shape == V.shape
    for p in range(1, len(eigenvalues) + 1):
        if p == len(eigenvalues) or eigenvalues[p] < 0.98 * eigenvalues[p - 1]:
            assert naive.distance(V[:, :p], W[:, :p]) < 1e-7 * eigenvalues[0] / eigenvalues[p - 1]


@SETTINGS
@given(p=problems())
def test_theorem_1_algorithm_1_gives_the_formula(p: Problem) -> None:
    W1 = np.linalg.lstsq(p.X, p.H, rcond=1e-12)[0]
    projected = p.X @ W1
    W = W1 @ largest(projected.T @ p.H @ p.H.T @ projected, projected.T @ projected)
    expected, eigenvalues = formula(p, 0.0)
    assert_same_for_every_number_of_vectors(W, expected, eigenvalues)
    assert_same_for_every_number_of_vectors(ours(p, 0.0)[0], expected, eigenvalues)


@SETTINGS
@given(p=problems())
def test_theorem_2_the_formula_is_the_direct_solution(p: Problem) -> None:
    W, eigenvalues = ours(p, 0.0)
    XX, XSX = p.X.T @ p.X, p.X.T @ p.H @ p.H.T @ p.X
    assert_same_for_every_number_of_vectors(W, largest(XSX, XX), eigenvalues)
    np.testing.assert_allclose(np.linalg.pinv(XX, rcond=1e-12) @ XSX @ W, W * eigenvalues, atol=1e-8 * eigenvalues[0])
    np.testing.assert_allclose(W.T @ XX @ W, np.eye(W.shape[1]), atol=1e-10)


@SETTINGS
@given(p=problems(), gamma=GAMMAS)
def test_theorem_3_algorithm_2_gives_the_formula(p: Problem, gamma: float) -> None:
    d, k = p.X.shape[1], p.H.shape[1]
    penalised = np.vstack([p.X, np.sqrt(gamma) * np.eye(d)]), np.vstack([p.H, np.zeros((d, k))])
    W1 = np.linalg.lstsq(*penalised, rcond=None)[0]
    U, values, _ = np.linalg.svd((p.X @ W1).T @ p.H)
    keep = values > 1e-10 * values[0]
    W = W1 @ U[:, keep] / np.sqrt(values[keep])
    expected, eigenvalues = formula(p, gamma)
    assert_same_for_every_number_of_vectors(W, expected, eigenvalues)
    assert_same_for_every_number_of_vectors(ours(p, gamma)[0], expected, eigenvalues)


@SETTINGS
@given(p=problems(), gamma=GAMMAS)
def test_theorem_4_the_formula_is_the_direct_solution_with_regularisation(p: Problem, gamma: float) -> None:
    W, eigenvalues = ours(p, gamma)
    regularised, XSX = p.X.T @ p.X + gamma * np.eye(p.X.shape[1]), p.X.T @ p.H @ p.H.T @ p.X
    assert_same_for_every_number_of_vectors(W, largest(XSX, regularised)[:, : len(eigenvalues)], eigenvalues)
    everything = np.sort(np.linalg.eigvals(np.linalg.solve(regularised, XSX)).real)[::-1]
    np.testing.assert_allclose(eigenvalues, everything[: len(eigenvalues)], atol=1e-8 * eigenvalues[0])
    np.testing.assert_allclose(W.T @ regularised @ W, np.eye(W.shape[1]), atol=1e-9)


def least_squares(p: Problem, gamma: float) -> np.ndarray:
    """W1 alone, the least squares formulation that remarks 1 and 2 compare with."""
    return (p.V * (p.s / (p.s**2 + gamma))) @ (p.U.T @ p.H)


def of_classes(n: int, d: int, rank: int, seed: int) -> Problem:
    """H of LDA, whose columns are orthonormal."""
    random = np.random.default_rng(seed)
    return problem(n, d, rank, naive.lda_h(np.eye(3)[np.arange(n) % 3]), random)


@SETTINGS
@given(seed=st.integers(0, 1000))
def test_remark_1_least_squares_alone_needs_independent_rows_and_two_stages_do_not(seed: int) -> None:
    independent, dependent = of_classes(12, 20, 12, seed), of_classes(40, 8, 6, seed)
    for p in (independent, dependent):
        assert naive.distance(formula(p, 0.0)[0], ours(p, 0.0)[0]) < 1e-9
    assert naive.distance(formula(independent, 0.0)[0], least_squares(independent, 0.0)) < 1e-9
    assert naive.distance(formula(dependent, 0.0)[0], least_squares(dependent, 0.0)) > 0.1


@SETTINGS
@given(seed=st.integers(0, 1000))
def test_remark_2_least_squares_alone_fails_with_regularisation_and_two_stages_do_not(seed: int) -> None:
    p = of_classes(12, 20, 12, seed)
    assert naive.distance(formula(p, 1.0)[0], ours(p, 1.0)[0]) < 1e-9
    assert naive.distance(formula(p, 1.0)[0], least_squares(p, 1.0)) > 0.1


@SETTINGS
@given(p=problems(), gamma=GAMMAS | st.just(0.0))
def test_remark_3_the_same_in_feature_space(p: Problem, gamma: float) -> None:
    """w = Xᵀa of K S K a = λ (K K + γK) a, K = XXᵀ the kernel matrix, projects the rows as ours does."""
    K = p.X @ p.X.T
    dual = largest(K @ p.H @ p.H.T @ K, K @ K + gamma * K)
    W, eigenvalues = ours(p, gamma)
    assert_same_for_every_number_of_vectors(p.X @ W, K @ dual, eigenvalues)
