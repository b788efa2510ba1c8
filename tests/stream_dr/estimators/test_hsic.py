"""HSIC against tr(KHLH) / (n − 1)² with the kernels written out."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from stream_dr import PCA, SPCA, SRP, errors, hsic, random_fourier
from tests.naive import criteria
from tests.stream_dr.estimators.closed_form_cases import learn, rows

X, y = rows()
L = (y[:, None] == y).astype(float)


def direct(K: np.ndarray, L: np.ndarray) -> float:
    KH, LH = (kernel - kernel.mean(axis=1, keepdims=True) for kernel in (K, L))
    return float((KH * LH.T).sum()) / (len(K) - 1) ** 2


def test_of_rows_and_classes() -> None:
    assert hsic(X, y) == pytest.approx(direct(X @ X.T, L), rel=1e-12)
    assert hsic(X + 100.0, y) == pytest.approx(hsic(X, y), rel=1e-9)
    assert hsic(np.vstack([X, X]), np.repeat([0, 1], len(X))) == 0.0


def test_of_rows_and_numbers() -> None:
    t = np.random.default_rng(1).normal(size=len(X)) + X[:, 0]
    assert hsic(X, t) == pytest.approx(direct(X @ X.T, np.outer(t, t)), rel=1e-12)
    L = np.exp(-((t[:, None] - t) ** 2) / (2 * 0.8**2))
    assert hsic(X, t, kernel="rbf", sigma=0.8) == pytest.approx(direct(X @ X.T, L), rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("copies", [1, 25])
def test_of_kernels_exactly_in_one_block_and_in_two(offset: float, copies: int) -> None:
    """A block has at most 2 ** 22 numbers, those of 1,864 rows where there are 2,250."""
    X, y = (np.concatenate(parts) for parts in zip(*(rows(seed=seed) for seed in range(copies)), strict=True))
    t = np.random.default_rng(1).normal(size=len(X)) + X[:, 0]
    K = np.exp(-cdist(X, X, "sqeuclidean") / (2 * 1.3**2))
    L = (y[:, None] == y).astype(float)
    L_t = np.exp(-((t[:, None] - t) ** 2) / (2 * 0.8**2))
    found = hsic(X + offset, t + offset, kernel="rbf", sigma=0.8, x_kernel="rbf", x_sigma=1.3)
    assert found == pytest.approx(direct(K, L_t), rel=1e-8)
    assert hsic(X + offset, y, x_kernel="rbf", x_sigma=1.3) == pytest.approx(direct(K, L), rel=1e-8)
    assert hsic(sp.csr_matrix(X), y, x_kernel="rbf", x_sigma=1.3) == pytest.approx(direct(K, L), rel=1e-8)


def test_of_weighted_rows_is_that_of_repeated_ones() -> None:
    weights = np.arange(len(X)) % 3
    repeated = np.repeat(np.arange(len(X)), weights)
    options = {"x_kernel": "rbf", "x_sigma": 2.0}
    expected = hsic(X[repeated], y[repeated], **options)  # type: ignore[arg-type]
    assert hsic(X, y, weights, **options) == pytest.approx(expected, rel=1e-9)  # type: ignore[arg-type]


def test_kernels_of_mapped_rows_are_linear() -> None:
    with pytest.raises(errors.InvalidParameter, match="x_kernel"):
        hsic(X, y, x_kernel="rbf", feature_map=random_fourier(40, gamma=0.1))


@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_of_mapped_rows() -> None:
    K = np.exp(-0.1 * ((X[:, None] - X) ** 2).sum(axis=2))
    found = hsic(X, y, feature_map=random_fourier(4000, gamma=0.1, seed=0))
    assert found == pytest.approx(direct(K, L), rel=0.1)


@pytest.mark.parametrize("estimator", [SPCA(2), SPCA(1), SRP(4), SPCA(2, standardize=True)], ids=str)
def test_of_a_projection_is_that_of_the_rows_it_projects(estimator: SPCA | SRP) -> None:
    learned = learn(estimator, X, y)
    assert learned.hsic_ == pytest.approx(hsic(learned.transform(X), y), rel=1e-9)


@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_of_spca_is_the_largest_that_orthonormal_directions_have() -> None:
    best = SPCA(2).fit(X, y)
    assert best.hsic_ == pytest.approx(best.eigenvalues_.sum() / (len(X) - 1) ** 2)
    assert best.hsic_ > hsic(PCA(2).fit(X).transform(X), y)
    mapped = SPCA(2, feature_map=random_fourier(50, gamma=0.1, seed=0)).fit(X, y)
    assert mapped.hsic_ == pytest.approx(hsic(mapped.transform(X), y))


def test_needs_two_rows() -> None:
    with pytest.raises(errors.InvalidRows, match="two or more"):
        hsic(X[:1], y[:1])


def test_every_row_a_class_of_its_own_is_pca() -> None:
    values, vectors = criteria.top(np.cov(X.T), 3)
    own = SPCA(3).fit(X, np.arange(len(X)))
    np.testing.assert_allclose(np.abs((own.components_.T * vectors).sum(axis=0)), 1.0, atol=1e-9)
    np.testing.assert_allclose(own.eigenvalues_ / (len(X) - 1), values, rtol=1e-9)


def test_random_numbers_as_targets_make_randomised_pca() -> None:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(X), 8))
    kept = [np.cov(model.transform(X).T).trace() for model in (SPCA(8).fit(X, signs), PCA(8).fit(X))]
    assert 0.9 * kept[1] < kept[0] < kept[1]
