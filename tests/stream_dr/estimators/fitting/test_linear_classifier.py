"""LDA and ClassMeans as classifiers, against scikit-learn's LinearDiscriminantAnalysis and NearestCentroid."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.covariance import EmpiricalCovariance
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

import stream_dr
from stream_dr import LDA, ClassMeans, errors

WINE, CANCER = load_wine(), load_breast_cancer()
SETS = {"wine": (WINE.data, WINE.target_names[WINE.target]), "cancer": (CANCER.data, CANCER.target)}
PRIORS = {"wine": [0.5, 0.2, 0.3], "cancer": [0.8, 0.2]}
ANSWERS = ("decision_function", "predict_proba", "predict_log_proba")


def svd_divides_by_rows() -> bool:
    """Whether scikit-learn's "svd" makes the within-class variance 1 with divisor N; it was N − c once."""
    X, y = SETS["wine"]
    z = LinearDiscriminantAnalysis().fit(X, y).transform(X)
    return bool(np.isclose(sum(z[y == label].var(axis=0) * (y == label).mean() for label in set(y)), 1.0).all())


class Ridge(EmpiricalCovariance):
    """The covariance with a ridge."""

    def __init__(self, ridge: float = 0.0) -> None:
        super().__init__()
        self.ridge = ridge

    def fit(self, X: Any, y: Any = None) -> "Ridge":
        super().fit(X)
        self.covariance_ = self.covariance_ + self.ridge * np.eye(X.shape[1])
        return self


def learned(model: Any, X: Any, y: Any) -> Any:
    """In batches whose classes come one after the other."""
    order = np.argsort(y, kind="stable")[::-1]
    for part in np.array_split(order, 5):
        model.partial_fit(X[part], y[part])
    return model


def common_left_out(scores: np.ndarray) -> np.ndarray:
    """Scores without the term that all classes share, which "svd" and "lsqr" have of their own."""
    return scores - scores.mean(axis=1, keepdims=True) if scores.ndim == 2 else scores


def same_answers(mine: Any, peer: Any, X: Any, tolerance: float = 1e-6) -> None:
    assert mine.classes_.tolist() == peer.classes_.tolist()
    assert np.array_equal(mine.predict(X), peer.predict(X))
    for name in ANSWERS:
        mine_, peers = common_left_out(getattr(mine, name)(X)), common_left_out(getattr(peer, name)(X))
        np.testing.assert_allclose(mine_, peers, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(mine.decision_function(X), (X @ mine.coef_.T + mine.intercept_).squeeze(), atol=1e-6)


@pytest.mark.skipif(not svd_divides_by_rows(), reason="this scikit-learn divides by N − c")
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("priors", [False, True])
@pytest.mark.parametrize("n_components", [None, 1])
def test_lda_is_scikit_learns(name: str, priors: bool, n_components: int | None) -> None:
    (X, y), given = SETS[name], PRIORS[name] if priors else None
    mine = learned(LDA(n_components, priors=given), X, y)
    peer = LinearDiscriminantAnalysis(n_components=n_components, priors=given).fit(X, y)
    same_answers(mine, peer, X)
    assert mine.score(X, y) == peer.score(X, y)
    for attribute in ("priors_", "means_", "xbar_", "coef_", "intercept_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(mine, attribute), getattr(peer, attribute), rtol=1e-6, err_msg=attribute)
    signs = np.sign((mine.scalings_ * peer.scalings_).sum(axis=0))
    np.testing.assert_allclose(mine.scalings_ * signs, peer.scalings_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(mine.transform(X) * signs[: mine.rank_], peer.transform(X), atol=1e-6)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("scaling", ["unit", "source"])
def test_with_a_ridge_it_is_scikit_learns_with_that_covariance(name: str, scaling: Any) -> None:
    X, y = SETS[name]
    priors = PRIORS[name]
    peer = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(X, y)
    same_answers(learned(LDA(shrinkage=0.3, scaling=scaling), X, y), peer, X)
    ridge = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=Ridge(5.0 / len(X))).fit(X, y)
    same_answers(learned(LDA(gamma=5.0, scaling=scaling), X, y), ridge, X)
    turned = learned(LDA(gamma=5.0, scaling=scaling, priors=priors), X, y)
    shift = np.log(np.array(priors) / ridge.priors_)
    shift = shift[1] - shift[0] if len(shift) == 2 else shift
    expected = common_left_out(ridge.decision_function(X) + shift)
    np.testing.assert_allclose(common_left_out(turned.decision_function(X)), expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_standardised_sparse_and_mapped_rows_are_classified() -> None:
    X, y = SETS["wine"]
    peer = LinearDiscriminantAnalysis(solver="lsqr").fit(X / X.std(axis=0), y)
    same = learned(LDA(standardize=True), X, y)
    np.testing.assert_allclose(same.predict_proba(X), peer.predict_proba(X / X.std(axis=0)), atol=1e-8)
    np.testing.assert_allclose(same.decision_function(X), X @ same.coef_.T + same.intercept_, atol=1e-6)
    sparse = learned(LDA(), sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.predict_proba(sp.csr_matrix(X)), learned(LDA(), X, y).predict_proba(X), atol=1e-6)
    mapped = LDA(gamma=0.1, standardize=True, feature_map=stream_dr.random_fourier(50)).fit(X, y)
    assert mapped.predict_proba(X).shape == (178, 3)


def test_from_the_diagonal_and_refined() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X + np.random.default_rng(0).normal(size=X.shape), y.astype(str)
    diagonal, exact = LDA(scatter="diagonal", gamma=1.0).fit(X, y), LDA(gamma=1.0).fit(X, y)
    assert diagonal.score(X, y) > 0.85

    class Source:
        def events(self, after: int = -1, until: int | None = None) -> Any:
            yield 0, stream_dr.Block(X, y)

    diagonal.refine(Source(), max_passes=60)
    assert diagonal.solution_ == "refined"
    np.testing.assert_allclose(diagonal.predict_proba(X), exact.predict_proba(X), atol=1e-5)


def test_saved_oriented_and_unlearned_it_predicts_the_same(tmp_path: Any) -> None:
    X, y = SETS["wine"]
    model = learned(LDA(1), X, y)
    model.save(tmp_path / "saved")
    assert np.array_equal(stream_dr.load(tmp_path / "saved").predict_proba(X), model.predict_proba(X))
    projection = learned(LDA(), X, y).projection()
    turned = projection.orient_components(np.array([1, 0]), np.array([-1.0, 1.0]))
    np.testing.assert_allclose(
        turned.target_score_projection().apply(X), projection.target_score_projection().apply(X), atol=1e-9
    )
    two = model.unlearn(X[y == "class_1"], y[y == "class_1"])
    assert two.classes_.tolist() == ["class_0", "class_2"]
    assert two.predict_proba(X).shape == (178, 2)
    with pytest.raises(errors.InvalidParameter, match=r"priors has 3 entries; 2 labels"):
        two.set_params(priors=[0.2, 0.3, 0.5]).transform(X)


@pytest.mark.parametrize("priors", [[0.5, 0.6], [-0.5, 1.5], "uniform", 0.5])
def test_priors_out_of_range_are_refused(priors: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match="priors"):
        LDA(priors=priors).fit(*SETS["cancer"])


def test_perfectly_separated_classes_are_certain() -> None:
    X, y = np.random.default_rng(0).normal(size=(12, 40)), np.array(list("abc") * 4)
    model = LDA().fit(X, y)
    assert model.score(X, y) == 1.0
    assert np.isfinite(model.decision_function(X)).all()
    np.testing.assert_allclose(model.predict_proba(X).max(axis=1), 1.0)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("n_components", [None, 1])
def test_class_means_are_scikit_learns_nearest_centroid(name: str, n_components: int | None) -> None:
    X, y = SETS[name]
    X = X / X.std(axis=0)
    mine, peer = learned(ClassMeans(n_components), X, y), NearestCentroid().fit(X, y)
    assert mine.classes_.tolist() == peer.classes_.tolist()
    np.testing.assert_allclose(mine.centroids_, peer.centroids_, rtol=1e-9)
    assert np.array_equal(mine.predict(X), peer.predict(X))
    assert mine.score(X, y) == peer.score(X, y)
    within = np.mean((X - peer.centroids_[np.unique(y, return_inverse=True)[1]]) ** 2)
    apart = ((X[:, None] - peer.centroids_) ** 2).sum(axis=2)
    np.testing.assert_allclose(mine.predict_proba(X), softmax(-apart / (2.0 * within), axis=1), atol=1e-9)
    np.testing.assert_allclose(np.exp(mine.predict_log_proba(X)), mine.predict_proba(X))


@pytest.mark.parametrize("kind", [LDA, ClassMeans])
def test_one_class_is_predicted_and_none_is_not(kind: Any) -> None:
    X = np.random.default_rng(0).normal(size=(6, 3))
    model = kind().fit(X, ["only"] * 6)
    assert model.predict(X).tolist() == ["only"] * 6
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((6, 1)))
    with pytest.raises(errors.NotFitted):
        kind().predict(X)
