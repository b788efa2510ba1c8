"""Random Fourier features: inner products against the kernels, methods behind them against the exact kernel methods."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA

from stream_dr import LDA, PCA, SPCA, SRP, random_fourier
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.srp import centred_scaled_random_signs
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.fourier import RandomFourier, frequencies
from tests.naive import kernels

rng = np.random.default_rng(17)
X = rng.normal(size=(80, 3))
NEW = rng.normal(size=(15, 3))
Y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
SIZES = (64, 512, 4096)
SMALLER = (32, 180, 1024)


def phi(rows, **options):
    return feature_map(random_fourier(**{"gamma": 1.0} | options)).apply(rows, rows.shape[1])


def error(a, b):
    """Relative difference of two embeddings, whatever their axes' signs and turns: of their inner products."""
    return np.linalg.norm(a @ a.T - b @ b.T) / np.linalg.norm(b @ b.T)


def mean_error(kernel, size, orthogonal=False):
    exact = getattr(kernels, kernel)(NEW, X, 0.3)
    errors = []
    for seed in range(20):
        options = {"kernel": kernel, "gamma": 0.3, "n_features": size, "seed": seed, "orthogonal": orthogonal}
        errors.append(np.sqrt(np.mean((phi(NEW, **options) @ phi(X, **options).T - exact) ** 2)))
    return np.mean(errors)


@pytest.mark.parametrize("nu", [0.5, 1.5, 10.0])
def test_inner_products_converge_to_the_matern_kernel(nu):
    exact = kernels.matern(NEW, X, 0.3, nu)
    errors = []
    for size in (256, 4096):
        options = {"kernel": "matern", "gamma": 0.3, "nu": nu, "n_features": size}
        pairs = [phi(NEW, seed=seed, **options) @ phi(X, seed=seed, **options).T for seed in range(10)]
        errors.append(np.sqrt(np.mean((np.array(pairs) - exact) ** 2)))
    assert errors[1] / errors[0] == pytest.approx(0.25, rel=0.25)
    assert errors[1] < 0.0165


@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
def test_inner_products_converge_to_the_kernel_as_one_over_root_n(kernel):
    errors = [mean_error(kernel, size) for size in SIZES]
    assert errors[1] / errors[0] == pytest.approx(8**-0.5, rel=0.15)
    assert errors[2] / errors[1] == pytest.approx(8**-0.5, rel=0.15)
    assert errors[2] < 0.0157  # √(1/2 / 2,048)


def test_the_orthogonal_variant_errs_less():
    assert mean_error("rbf", 64, orthogonal=True) < 0.9 * mean_error("rbf", 64)
    assert mean_error("rbf", 1024, orthogonal=True) < 0.024


def test_orthogonal_frequencies_are_orthogonal_and_as_long_as_independent_ones():
    wide = frequencies(RandomFourier(2000, orthogonal=True, gamma=0.5), 50)
    block = wide[:, :50]
    lengths = np.linalg.norm(block, axis=0)
    assert block.T @ block == pytest.approx(np.diag(lengths**2), abs=1e-10)
    plain = np.linalg.norm(frequencies(RandomFourier(2000, gamma=0.5), 50), axis=0)
    assert np.linalg.norm(wide, axis=0).mean() == pytest.approx(plain.mean(), rel=0.02)
    assert np.linalg.norm(wide, axis=0).std() == pytest.approx(plain.std(), rel=0.15)


@pytest.mark.parametrize("kernel", ["rbf", "laplace", "matern"])
def test_rows_of_frequencies_depend_on_seed_and_index_only(kernel):
    narrow, wide = frequencies(RandomFourier(40, kernel, 1.0), 8), frequencies(RandomFourier(40, kernel, 1.0), 64)
    assert np.array_equal(narrow, wide[:8])
    assert not np.array_equal(wide, frequencies(RandomFourier(40, kernel, 1.0, seed=1), 64))


def test_every_row_has_unit_length_and_sparse_rows_are_dense_rows():
    assert (phi(X, n_features=50) ** 2).sum(axis=1) == pytest.approx(np.ones(80), abs=1e-14)
    assert phi(sp.csr_matrix(X)) == pytest.approx(phi(X), abs=1e-14)
    assert np.isfinite(phi(X * 1e100)).all()
    assert phi(X.astype(np.float32)).dtype == np.float64


def embedding(model, size, seed):
    return model.set_params(feature_map=random_fourier(size, gamma=0.3, seed=seed)).fit(X, Y).transform(NEW)


K, K_NEW = kernels.rbf(X, X, 0.3), kernels.rbf(NEW, X, 0.3)
ONE_HOT = kernels.indicator(Y)
CASES = {
    "kernel PCA": (lambda: PCA(n_components=3), lambda: kernels.kernel_pca(K, K_NEW, 3)[0]),
    "KSPCA": (lambda: SPCA(), lambda: kernels.kernel_spca(K, K_NEW, ONE_HOT, 2)[0]),
    "KSRP": (
        lambda: SRP(n_components=4, scaling="source"),
        lambda: kernels.kernel_srp(K, K_NEW, ONE_HOT, centred_scaled_random_signs([0, 1, 2], 4, 0)),
    ),
    "kernel LDA": (lambda: LDA(gamma=1.0, scaling="source"), lambda: kernels.kernel_lda(K, K_NEW, Y, 1.0)[0]),
}


@pytest.mark.test_all
@pytest.mark.parametrize("name", CASES)
def test_methods_converge_to_the_exact_kernel_methods(name):
    model, exact = CASES[name]
    errors = [np.mean([error(embedding(model(), size, seed), exact()) for seed in range(5)]) for size in SMALLER]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.3
    assert errors[2] < 0.35 * errors[0]


@pytest.mark.test_all
def test_eigenvalues_converge_to_the_exact_ones():
    for size, bound in ((256, 0.15), (1024, 0.1)):
        spec = random_fourier(size, gamma=0.3, seed=5)
        pca = PCA(n_components=5, feature_map=spec).fit(X).eigenvalues_ / 80
        assert pca == pytest.approx(kernels.kernel_pca(K, K, 5)[1] / 80, rel=bound)
        lda = LDA(gamma=1.0, feature_map=spec).fit(X, Y).eigenvalues_
        assert lda == pytest.approx(kernels.kernel_lda(K, K, Y, 1.0)[1], rel=bound)


def test_the_exact_reference_is_scikit_learns():
    peer = KernelPCA(3, kernel="rbf", gamma=0.3).fit(X).transform(NEW)
    assert np.abs(peer) == pytest.approx(np.abs(kernels.kernel_pca(K, K_NEW, 3)[0]), abs=1e-10)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_features": 3},
        {"n_features": 0},
        {"kernel": "cosine"},
        {"gamma": 0.0},
        {"gamma": float("nan")},
        {"orthogonal": True, "kernel": "laplace"},
        {"seed": "a"},
    ],
    ids=str,
)
def test_values_outside_their_range_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        random_fourier(**wrong)


def test_the_orthogonal_variant_has_a_widest_row():
    with pytest.raises(InvalidParameter, match="4096"):
        frequencies(RandomFourier(10, gamma=1.0, orthogonal=True), 5000)


@pytest.mark.filterwarnings("error")
def test_gamma_is_any_finite_number_above_zero() -> None:
    for gamma in (1, 0.5, np.float32(1.0), np.int64(3), sys.float_info.max):
        RandomFourier(4, gamma=gamma).check()  # type: ignore[arg-type]
    for wrong in (0, -1.0, np.nan, np.inf, 10**400, True, "1", 1j, np.complex128(1)):
        with pytest.raises(InvalidParameter):
            RandomFourier(4, gamma=wrong).check()  # type: ignore[arg-type]


def test_angles_past_what_a_double_holds_of_their_period_are_no_noise():
    near, far = np.array([[0.3, 0.1]]), np.array([[1e12, 0.0]])
    options = {"n_features": 2000, "gamma": 0.5}
    assert phi(near, **options) @ phi(far, **options).T == pytest.approx(0.0, abs=0.05)
    assert not phi(far * 1e30, **options).any()
    assert phi(far * (1 + 1e-16), **options) == pytest.approx(phi(far, **options), abs=1e-3)


def test_a_first_batch_without_rows_decides_nothing():
    empty_first = LDA(feature_map=random_fourier(16)).partial_fit(X[:0], Y[:0]).partial_fit(X, Y)
    np.testing.assert_array_equal(empty_first.transform(X), LDA(feature_map=random_fourier(16)).fit(X, Y).transform(X))
