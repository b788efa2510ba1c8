"""CCA against canonical correlations computed from rows."""

import numpy as np
import pytest

from stream_dr import CCA, LDA, OPLS
from tests.naive import two_stage as naive
from tests.stream_dr.estimators.closed_form_cases import learn, rows


def canonical(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Canonical correlations by QR of both sides."""
    sides = [np.linalg.qr(M - M.mean(axis=0))[0] for M in (X, Y)]
    return np.linalg.svd(sides[0].T @ sides[1])[1]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_eigenvalues_are_squared_canonical_correlations(offset: float) -> None:
    X, _ = rows()
    random = np.random.default_rng(1)
    Y = X[:, :4] @ random.normal(size=(4, 3)) + random.normal(size=(90, 3)) + offset
    cca = learn(CCA(), X, Y)
    np.testing.assert_allclose(np.sqrt(cca.eigenvalues_), canonical(X, Y), rtol=1e-8)
    z = cca.transform(X)
    np.testing.assert_allclose(z.T @ z, 90 * np.eye(3), atol=1e-6)


def test_scale_and_repetition_of_targets_do_not_matter() -> None:
    X, _ = rows()
    Y = np.random.default_rng(1).normal(size=(90, 2)) + X[:, :2]
    plain = learn(CCA(), X, Y)
    doubled = learn(CCA(), X, np.column_stack([Y * [1e3, 1e-3], Y[:, 0] * 7, np.full(90, 5.0)]))
    assert naive.distance(plain.components_.T, doubled.components_.T) <= 1e-7


def test_on_one_label_a_row_it_is_lda() -> None:
    X, y = rows()
    for gamma in (0.0, 1.0):
        lda, cca = (learn(kind(gamma=gamma, scaling="source"), X, y) for kind in (LDA, CCA))
        np.testing.assert_allclose(cca.eigenvalues_, lda.eigenvalues_)
        np.testing.assert_allclose(cca.components_, lda.components_, atol=1e-10)


def test_transform_accepts_y_and_ignores_it() -> None:
    X, y = rows()
    cca = learn(CCA(), X, y)
    assert cca.transform(X, y).tobytes() == cca.transform(X).tobytes()


@pytest.mark.parametrize("kind", [CCA, OPLS])
def test_constant_targets_have_no_component(kind: type) -> None:
    X, _ = rows("offset")
    assert learn(kind(target="continuous"), X, np.full((90, 2), 1e5 / 3)).rank_ == 0
    assert learn(kind(), X, np.ones((90, 2), dtype=int)).rank_ == 0


def test_opls_spans_the_ridge_regression() -> None:
    X, _ = rows()
    Y = np.random.default_rng(1).normal(size=(90, 3)) + X[:, :3]
    Xc, Yc = X - X.mean(axis=0), Y - Y.mean(axis=0)
    B = np.linalg.solve(Xc.T @ Xc + 2.0 * np.eye(10), Xc.T @ Yc)
    opls = learn(OPLS(gamma=2.0), X, Y)
    A = np.linalg.qr(opls.components_.T)[0]
    assert np.linalg.norm(B - A @ (A.T @ B)) <= 1e-10 * np.linalg.norm(B)


def test_more_targets_than_features() -> None:
    X, _ = rows()
    Y = np.random.default_rng(1).normal(size=(90, 25)) + X[:, :1]
    for kind, H in ((OPLS, Y), (CCA, naive.cca_h(Y))):
        W0, _, _ = naive.generalised(X, H, 0.5)
        assert naive.distance(W0, learn(kind(gamma=0.5, scaling="source"), X, Y).components_.T) <= 1e-9
