"""polynomial: inner products are the polynomial kernel, exactly while the products fit, on average where sketched."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import polynomial_kernel

from stream_dr import PCA, polynomial
from stream_dr.errors import InvalidParameter, NotFinite
from stream_dr.feature_maps import feature_map

rng = np.random.default_rng(5)
X = rng.normal(size=(40, 4))
NEW = rng.normal(size=(9, 4))


def phi(rows, **options):
    return feature_map(polynomial(**options)).apply(rows, rows.shape[1])


@pytest.mark.parametrize("coef0", [0.0, 0.7])
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_products_have_the_kernel_as_inner_product(degree, coef0):
    made = phi(NEW, degree=degree, gamma=0.3, coef0=coef0)
    expected = polynomial_kernel(NEW, X, degree=degree, gamma=0.3, coef0=coef0)
    assert made @ phi(X, degree=degree, gamma=0.3, coef0=coef0).T == pytest.approx(expected, rel=1e-10)
    assert np.array_equal(phi(sp.csr_matrix(NEW), degree=degree, gamma=0.3, coef0=coef0), made)


def test_pca_behind_products_is_kernel_pca():
    pca = PCA(n_components=3, feature_map=polynomial(3, gamma=0.3)).partial_fit(X[:15]).partial_fit(X[15:])
    peer = KernelPCA(3, kernel="poly", degree=3, gamma=0.3, coef0=1.0, eigen_solver="dense").fit(X)
    assert pca.eigenvalues_ == pytest.approx(peer.eigenvalues_, rel=1e-8)
    assert np.abs(pca.transform(NEW)) == pytest.approx(np.abs(peer.transform(NEW)), rel=1e-8)


def test_a_sketch_errs_as_one_over_root_n():
    wide = rng.normal(size=(12, 60)) / 60**0.5
    expected = polynomial_kernel(wide, wide, degree=2, gamma=1.0, coef0=1.0)
    errors = []
    for size in (64, 1024):
        made = [phi(wide, n_features=size, seed=seed) for seed in range(30)]
        errors.append(np.sqrt(np.mean([np.mean((z @ z.T - expected) ** 2) for z in made])))
        assert np.mean([z @ z.T for z in made], axis=0) == pytest.approx(expected, abs=6 * errors[-1] / 30**0.5)
    assert errors[1] / errors[0] == pytest.approx(1 / 4, rel=0.3)


def test_a_sketch_is_the_same_dense_sparse_and_with_features_that_no_row_has():
    wide = rng.normal(size=(6, 60))
    made = phi(wide, n_features=100)
    assert phi(sp.csr_matrix(wide), n_features=100) == pytest.approx(made, abs=1e-10)
    assert phi(np.pad(wide, ((0, 0), (0, 5))), n_features=100) == pytest.approx(made, abs=1e-10)


@pytest.mark.parametrize(
    "wrong",
    [{"degree": 0}, {"degree": 21}, {"n_features": 0}, {"gamma": -1.0}, {"coef0": -0.1}, {"seed": 1.5}],
    ids=str,
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        polynomial(**wrong)


def test_rows_whose_products_are_too_large_are_refused_by_number():
    rows = X.copy()
    rows[3] = 1e60
    with pytest.raises(NotFinite, match="row 3"):
        PCA(feature_map=polynomial(2)).fit(rows)
