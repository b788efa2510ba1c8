"""What refine gives, against the definition solved in memory: dense eigenproblems, LSQR and scikit-learn's PLS.

The references share no code with the estimators; the diagonal of Cxx is all that these keep. More features than rows have
rank for, so at γ = 0 only the solution of minimum norm agrees.
"""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cross_decomposition import PLSRegression

from stream_dr import errors
from stream_dr.estimators import make
from tests.naive import criteria
from tests.naive.krylov import lsqr_two_stage, principal_angle
from tests.naive.two_stage import hsl_h, indicator
from tests.stream_dr.estimators.fitting.test_refining import Blocks, blocks

RANDOM = np.random.default_rng(5)
N, D, K = 110, 160, 4
Y = RANDOM.integers(0, K, N)
SETS = [sorted({int(Y[i]), int(RANDOM.integers(0, K))}) for i in range(N)]
X = (RANDOM.normal(size=(N, D)) * 0.9 ** np.arange(D) + RANDOM.normal(size=(K, D))[Y]) * (RANDOM.random((N, D)) < 0.5)
CENTRED = X - X.mean(axis=0)


def refined(key: str, params: dict[str, Any], y: Any) -> Any:
    """The estimator after one pass and as many passes of refine as it wants."""
    source = Blocks(blocks(sp.csr_matrix(X), y, size=40))
    estimator = make(key, {**params, "scatter": "diagonal"})
    for block in source.blocks:
        estimator.partial_fit(block.X, block.y)
    estimator.refine(source, tol=1e-9, max_passes=300)
    assert estimator.solution_ == "refined"
    return estimator


def agrees(estimator: Any, axes: np.ndarray, values: np.ndarray) -> None:
    """Subspace of axes (features, p) to 1e-6 rad, eigenvalues (p,) to 1e-8."""
    assert principal_angle(axes, estimator.components_.T) < 1e-6
    np.testing.assert_allclose(estimator.eigenvalues_, values, rtol=1e-8)


def test_pca_is_the_singular_value_decomposition() -> None:
    _, roots, axes = np.linalg.svd(CENTRED, full_matrices=False)
    pca = refined("pca", {"n_components": 5}, None)
    agrees(pca, axes[:5].T, roots[:5] ** 2)
    np.testing.assert_allclose(np.abs((pca.components_ * axes[:5]).sum(axis=1)), 1.0, atol=1e-9)


@pytest.mark.parametrize(("a", "p"), [(3.0, 3), (2.0, 2), (0.5, 4)])
def test_skm_is_the_eigenproblem_of_its_definition(a: float, p: int) -> None:
    values, axes = criteria.top(criteria.skm(X, Y, a), p)
    agrees(refined("skm", {"a": a, "n_components": p}, Y), axes, values)


@pytest.mark.parametrize(("alpha", "p"), [(1.0, 3), (0.3, 2), (-0.5, 4)])
def test_mmc_is_the_eigenproblem_of_its_definition(alpha: float, p: int) -> None:
    values, axes = criteria.top(criteria.between(X, Y) - alpha * criteria.within(X, Y), p)
    agrees(refined("mmc", {"alpha": alpha, "n_components": p}, Y), axes, values)


@pytest.mark.filterwarnings("ignore:Maximum number of iterations reached")
@pytest.mark.parametrize("y", [Y, SETS], ids=["classes", "label sets"])
def test_plsda_is_scikit_learns(y: Any) -> None:
    kinds = indicator([int(v) for v in y] if y is Y else y)[0]
    expected = PLSRegression(n_components=4, scale=False, tol=1e-30, max_iter=100_000).fit(X, kinds).x_rotations_
    ours = refined("plsda", {"n_components": 4}, y).components_.T
    assert principal_angle(expected, ours) < 1e-6
    signs = np.sign((expected * ours).sum(axis=0))
    np.testing.assert_allclose(ours, expected * signs, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("gamma", [0.0, 1e-2, 1.0])
@pytest.mark.parametrize("laplacian", ["zhou", "clique", "star"])
def test_hsl_is_the_two_stage_solution_by_lsqr(laplacian: str, gamma: float) -> None:
    reference = lsqr_two_stage(CENTRED, hsl_h(indicator(SETS)[0], laplacian), gamma)
    hsl = refined("hsl", {"laplacian": laplacian, "gamma": gamma}, SETS)
    assert principal_angle(reference, hsl.components_.T) < 1e-6


@pytest.mark.parametrize("gamma", [0.0, 1e-2, 1.0])
def test_opls_of_numbers_is_the_two_stage_solution_by_lsqr(gamma: float) -> None:
    random = np.random.default_rng(6)
    numbers = X[:, :3] @ random.normal(size=(3, 3)) + random.normal(size=(N, 3))
    reference = lsqr_two_stage(CENTRED, numbers - numbers.mean(axis=0), gamma)
    assert principal_angle(reference, refined("opls", {"gamma": gamma}, numbers).components_.T) < 1e-6


def test_the_minimum_norm_solution_has_nothing_where_the_rows_do_not_vary() -> None:
    null = np.linalg.svd(CENTRED)[2][np.linalg.matrix_rank(CENTRED) :].T
    for key in ("lda", "cca", "opls", "hsl"):
        W = refined(key, {}, Y if key == "lda" else SETS).components_.T
        assert np.linalg.norm(null.T @ W) < 1e-8 * np.linalg.norm(W)


@pytest.mark.parametrize("source", [None, X], ids=["nothing", "rows alone"])
def test_what_is_no_source_is_told_what_one_is(source: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match=r"an object whose events\(after=-1, until=None\)"):
        make("lda", {"scatter": "diagonal"}).fit(X, Y).refine(source)
