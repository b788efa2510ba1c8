"""What PCA and CCIPCA say of the rows as a Gaussian, against scikit-learn's PCA."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import decomposition
from sklearn.datasets import load_digits, load_wine

import stream_dr
from stream_dr import CCIPCA, PCA, errors

X = load_digits().data[:600] + np.random.default_rng(0).normal(size=(600, 64)) / 10
NAMES = ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_")


def up_to_sign(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-8) -> None:
    signs = np.where((a * b).sum(axis=0) < 0, -1.0, 1.0)
    np.testing.assert_allclose(a, b * signs, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("n_components", [None, 7, 0.8, 0.999])
@pytest.mark.parametrize("whiten", [False, True])
def test_pca_is_scikit_learns(n_components: Any, whiten: bool) -> None:
    mine, peer = (
        PCA(n_components, whiten=whiten),
        decomposition.PCA(n_components, whiten=whiten, svd_solver="full").fit(X),
    )
    for part in np.array_split(X, 7):
        mine.partial_fit(part)
    assert mine.rank_ == peer.n_components_
    for name in NAMES:
        np.testing.assert_allclose(getattr(mine, name), getattr(peer, name), rtol=1e-8, atol=1e-12)
    up_to_sign(mine.components_.T, peer.components_.T)
    z = mine.transform(X)
    up_to_sign(z, peer.transform(X))
    np.testing.assert_allclose(mine.inverse_transform(z), peer.inverse_transform(peer.transform(X)), atol=1e-8)
    peer = decomposition.PCA(n_components, svd_solver="full").fit(X)  # whitened, it scales the covariance twice
    np.testing.assert_allclose(mine.get_covariance(), peer.get_covariance(), atol=1e-8)
    np.testing.assert_allclose(mine.score_samples(X), peer.score_samples(X), rtol=1e-8)
    assert mine.score(X) == pytest.approx(peer.score(X))


def test_a_weight_is_a_number_of_rows_and_sparse_rows_score_as_dense_ones() -> None:
    weights = np.arange(600) % 3
    mine = PCA(5).fit(X, sample_weight=weights)
    peer = decomposition.PCA(5, svd_solver="full").fit(np.repeat(X, weights, axis=0))
    for name in NAMES:
        np.testing.assert_allclose(getattr(mine, name), getattr(peer, name), rtol=1e-8)
    np.testing.assert_allclose(mine.score_samples(sp.csr_matrix(X)), peer.score_samples(X), rtol=1e-8)


def test_standardised_the_density_is_that_of_the_columns_as_they_came() -> None:
    rows = load_wine().data
    scale = rows.std(axis=0)
    mine = PCA(4, standardize=True).fit(rows)
    peer = decomposition.PCA(4).fit(rows / scale)
    np.testing.assert_allclose(mine.explained_variance_ratio_, peer.explained_variance_ratio_, rtol=1e-8)
    np.testing.assert_allclose(
        mine.score_samples(rows), peer.score_samples(rows / scale) - np.log(scale).sum(), rtol=1e-8
    )
    expected = peer.inverse_transform(peer.transform(rows / scale)) * scale
    np.testing.assert_allclose(mine.inverse_transform(mine.transform(rows)), expected, rtol=1e-8)
    np.testing.assert_allclose(mine.get_covariance(), peer.get_covariance() * scale[:, None] * scale, rtol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_ccipca_comes_near(form: Any, tmp_path: Any) -> None:
    rows = np.random.default_rng(1).normal(size=(4000, 12)) * np.array([8.0, 5.0, 3.0, *[1.0] * 9]) + 2.0
    mine, peer = CCIPCA(3).fit(form(rows)), decomposition.PCA(3).fit(rows)
    np.testing.assert_allclose(mine.explained_variance_, peer.explained_variance_, rtol=0.05)
    np.testing.assert_allclose(mine.explained_variance_ratio_, peer.explained_variance_ratio_, rtol=0.05)
    np.testing.assert_allclose(mine.singular_values_, peer.singular_values_, rtol=0.05)
    assert mine.noise_variance_ == pytest.approx(peer.noise_variance_, rel=0.1)
    assert mine.score(form(rows)) == pytest.approx(peer.score(rows), rel=0.01)
    np.testing.assert_allclose(mine.get_covariance(), peer.get_covariance(), atol=3.0)
    back = mine.inverse_transform(mine.transform(form(rows)))
    assert np.abs(back - rows).std() < 1.1 * np.abs(peer.inverse_transform(peer.transform(rows)) - rows).std()
    total = 0.0
    for n in range(1, 4001):
        u, ell = rows[n - 1] - rows[:n].mean(axis=0), 2.0 if n > 3 else 0.0
        total = (n - 1 - ell) / n * total + (1 + ell) / n * (u @ u)
    assert mine.state_.variance[0] == pytest.approx(total, rel=1e-9)
    mine.save(tmp_path / "saved")
    assert (
        stream_dr.load(tmp_path / "saved").explained_variance_ratio_.tolist() == mine.explained_variance_ratio_.tolist()
    )


def test_not_centred_all_of_it_is_about_zero() -> None:
    mine = CCIPCA(2, center=False, amnesic=0.0).fit(X)
    assert mine.state_.variance[0] == pytest.approx((X**2).sum() / len(X))
    assert mine.explained_variance_ratio_.sum() < 1.0


@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_what_cannot_be_had_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter, match="no density is defined"):
        PCA().fit(X[:10]).score_samples(X)
    with pytest.raises(errors.WidthMismatch, match="64 components"):
        PCA().fit(X).inverse_transform(np.ones((2, 3)))
    with pytest.raises(errors.InvalidParameter, match="cannot be turned back"):
        PCA(2, feature_map=stream_dr.random_fourier(20)).fit(X).inverse_transform(np.ones((1, 2)))
    for share in (0.0, 1.0, -0.5, 1.5):
        with pytest.raises(errors.InvalidParameter, match="share of all variance"):
            PCA(share).fit(X)
    with pytest.raises(errors.CannotRefine, match="State how many"):
        PCA(0.5, scatter="diagonal").fit(X).refine(
            SimpleNamespace(events=lambda after=-1, until=None: iter([(0, stream_dr.Block(X))]))
        )
    assert PCA(2, feature_map=stream_dr.random_fourier(20)).fit(X).score_samples(X[:3]).shape == (3,)


def test_one_row_has_no_variance() -> None:
    model = PCA().fit(X[:1])
    assert (model.rank_, model.noise_variance_, model.explained_variance_ratio_.shape) == (0, 0.0, (0,))
