"""PLSDA against scikit-learn's PLSRegression."""

import numpy as np
import pytest
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_digits, load_wine

from stream_dr import PLSDA, SPCA, errors
from stream_dr.solve.pls import pls_rotations
from tests.naive import criteria
from tests.naive import two_stage as naive
from tests.stream_dr.estimators.closed_form_cases import learn, rows, same_eigenpairs


def rotations(X: np.ndarray, Y: np.ndarray, p: int) -> np.ndarray:
    """scikit-learn's, run to convergence."""
    return PLSRegression(n_components=p, scale=False, tol=1e-30, max_iter=100_000).fit(X, Y).x_rotations_


def check(X: np.ndarray, y: np.ndarray, Y: np.ndarray, p: int, tolerance: float = 1e-9) -> None:
    expected = rotations(X, Y, p)
    ours = learn(PLSDA(n_components=p), X, y).components_.T
    expected = expected * np.sign((expected * ours).sum(axis=0))
    np.testing.assert_allclose(ours, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore:Maximum number of iterations reached")
@pytest.mark.parametrize(("load", "p"), [(load_wine, 5), (load_digits, 12)])
def test_rotations_on_real_classes(load: object, p: int) -> None:
    X, y = load(return_X_y=True)  # type: ignore[operator]
    check(X, y, naive.indicator(y.tolist())[0], p)


@pytest.mark.filterwarnings("ignore:Maximum number of iterations reached")
def test_rotations_on_numbers() -> None:
    X, _ = rows()
    Y = np.random.default_rng(1).normal(size=(90, 3)) + X[:, :3]
    check(X, Y, Y, 4)
    check(X, Y[:, 0], Y[:, 0], 4)


def test_stops_where_nothing_is_left() -> None:
    X, y = rows("few rows")
    pls = learn(PLSDA(n_components=50), X, y)
    assert 1 <= pls.rank_ <= 7
    assert np.isfinite(pls.components_).all()
    with pytest.warns(errors.FewerComponents):
        z = pls.transform(X)
    gram = z.T @ z
    assert np.abs(gram - np.diag(np.diagonal(gram))).max() <= 1e-6 * gram.max()


@pytest.mark.parametrize("seed", range(5))
def test_never_more_components_than_features(seed: int) -> None:
    """Columns that are nearly equal leave rounding error that looks like a further component."""
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(100, 5)), rng.normal(size=(100, 3))
    X = np.hstack([X, X[:, :2] + 1e-5 * rng.normal(size=(100, 2))])
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    assert pls_rotations(X.T @ X, X.T @ Y, 50)[0].shape == (7, 7)


def test_first_component_is_exact_from_the_diagonal() -> None:
    X, y = rows()
    exact, diagonal = learn(PLSDA(), X, y), learn(PLSDA(scatter="diagonal"), X, y)
    assert diagonal.solution_ == "diagonal"
    np.testing.assert_allclose(diagonal.components_[0], exact.components_[0], atol=1e-12)
    assert diagonal.rank_ == 2


def test_the_eigenvectors_all_at_once_are_spca_and_the_first_is_the_same() -> None:
    X, y = load_wine(return_X_y=True)
    images = (X - X.mean(axis=0)).T @ naive.indicator(y.tolist())[0]
    values, vectors = criteria.top(images @ images.T, 2)
    eigen = SPCA().fit(X, y)
    same_eigenpairs(eigen, values, vectors)
    np.testing.assert_allclose(PLSDA().fit(X, y).components_[0], eigen.components_[0], atol=1e-12)
