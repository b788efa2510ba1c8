"""Table 2 of the two-stage paper: the two-stage solution is that of the direct generalised eigenproblem.

‖W0 W0ᵀ − W Wᵀ‖ / ‖W0 W0ᵀ‖ ≤ max(1e-9, 100·eps·cond(Cxx + γI)) for every method, data set and γ; W0 from rows, by SVD.
"""

from typing import Any

import numpy as np
import pytest

from stream_dr import CCA, HSL, LDA, OPLS
from tests.naive import datasets
from tests.naive import two_stage as naive

GAMMAS = [0.0, 1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6]


def reference(method: str, Y: np.ndarray) -> np.ndarray:
    """H (n, k) of the method."""
    if method == "lda":
        return naive.lda_h(Y)
    if method == "cca":
        return naive.cca_h(Y)
    return Y if method == "opls" else naive.hsl_h(Y, method.removeprefix("hsl-"))


def estimator(method: str, gamma: float) -> Any:
    """The estimator of the method."""
    kinds = {"lda": LDA, "cca": CCA, "opls": OPLS}
    return (
        kinds[method](gamma=gamma, scaling="source")
        if method in kinds
        else HSL(method.removeprefix("hsl-"), gamma=gamma, scaling="source")
    )


def check(method: str, X: np.ndarray, y: list[Any]) -> None:
    """All γ for one method on one set of rows, learned in uneven batches."""
    Y, _ = naive.indicator(y)
    H, svd = reference(method, Y), naive.centred_svd(X)
    learned = estimator(method, 0.0)
    for at in np.array_split(np.arange(len(X)), 5):
        learned.partial_fit(X[at], [y[i] for i in at])
    for gamma in GAMMAS:
        W0, eigenvalues, cond = naive.from_svd(*svd, H, gamma)
        W = learned.set_params(gamma=gamma).components_.T
        bound = max(1e-9, 100 * naive.EPS * cond)
        assert naive.distance(W0, W) <= bound, (method, gamma, naive.distance(W0, W), bound)
        assert learned.solution_ == "exact"
        found = np.sort(learned.eigenvalues_)[::-1]  # near-equal ones keep the order that they had at the γ before
        np.testing.assert_allclose(found, eigenvalues, rtol=bound, atol=bound * eigenvalues[0])


@pytest.mark.test_all
@pytest.mark.parametrize("method", ["lda", "cca", "opls", "hsl-zhou", "hsl-clique", "hsl-star"])
@pytest.mark.parametrize("name", datasets.available())
def test_two_stage_is_the_direct_solution(name: str, method: str) -> None:
    X, y = datasets.load(name)
    if method == "lda" and isinstance(y[0], list):
        pytest.skip("LDA takes one label a row")
    check(method, X, y)


@pytest.mark.parametrize("method", ["lda", "cca", "opls", "hsl-clique", "hsl-star"])
@pytest.mark.parametrize("case", ["few rows", "duplicated columns", "badly scaled", "constant columns", "offset"])
def test_hostile_rows(case: str, method: str) -> None:
    random = np.random.default_rng(7)
    y = (np.arange(40) % 4).tolist()
    X = random.normal(size=(40, 12)) + 3.0 * np.eye(4, 12)[np.array(y)]
    if case == "few rows":
        X = np.hstack([X, random.normal(size=(40, 60))])
    elif case == "duplicated columns":
        X = X[:, [*range(12), 0, 1, 2]]
    elif case == "badly scaled":
        X = X * 10.0 ** np.linspace(-3, 3, 12)
    elif case == "constant columns":
        X = np.hstack([X, np.full((40, 2), 0.1), np.zeros((40, 2)), np.full((40, 1), 1e6 / 3)])
    else:
        X = X + 1e6
    check(method, X, y)
