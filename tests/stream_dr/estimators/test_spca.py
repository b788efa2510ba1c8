"""SPCA against XᵀHKHX with the kernel written out."""

import numpy as np
import pytest

from stream_dr import SPCA, errors
from tests.naive import criteria
from tests.naive import two_stage as naive
from tests.stream_dr.estimators.closed_form_cases import CASES, learn, rows, same_eigenpairs


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kernel", ["linear", "delta"])
def test_classes_have_the_delta_kernel(kernel: str, case: str) -> None:
    X, y = rows(case)
    values, vectors = criteria.top(criteria.spca(X - X.mean(axis=0), (y[:, None] == y).astype(float)), 2)
    spca = learn(SPCA(kernel=kernel), X, y)
    assert spca.rank_ == 2
    same_eigenpairs(spca, values, vectors)


def test_several_labels_have_the_linear_kernel_on_the_indicator() -> None:
    X, y = rows()
    labels = [["a"] if v == 0 else ["a", "b"] if v == 1 else ["c"] for v in y]
    Y, _ = naive.indicator(labels)
    values, vectors = criteria.top(criteria.spca(X, Y @ Y.T), 3)
    spca = SPCA().fit(X, labels)
    same_eigenpairs(spca, values, vectors)
    for kernel in ("delta", "rbf"):
        with pytest.raises(errors.TargetKindMismatch, match="several labels"):
            SPCA(kernel=kernel).fit(X, labels)


def test_numbers_have_the_linear_kernel() -> None:
    X, _ = rows()
    Y = np.random.default_rng(1).normal(size=(90, 2)) + X[:, :2]
    values, vectors = criteria.top(criteria.spca(X, Y @ Y.T), 2)
    same_eigenpairs(learn(SPCA(), X, Y), values, vectors)


@pytest.mark.test_all
def test_rbf_kernel_on_numbers_converges_with_fourier_features() -> None:
    X, _ = rows()
    y = X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=90)
    K = np.exp(-((y[:, None] - y) ** 2) / (2 * 0.8**2))
    direct = criteria.spca(X, K)
    off = []
    for q in (100, 1000, 10_000):
        state = SPCA(kernel="rbf", sigma=0.8, n_fourier=q, random_state=0).fit(X, y).state_
        cross = state.centred().cross
        off.append(np.linalg.norm(cross @ cross.T - direct) / np.linalg.norm(direct))
    assert off[0] < 0.4
    assert off[2] < 0.04
    assert SPCA(kernel="rbf", n_fourier=50).fit(X, y).rank_ <= 10


def test_rbf_states_of_one_seed_merge() -> None:
    X, _ = rows()
    y = X[:, 0]
    whole = SPCA(kernel="rbf", n_fourier=30, random_state=5).fit(X, y)
    first = SPCA(kernel="rbf", n_fourier=30, random_state=5).fit(X[:40], y[:40])
    first.merge(SPCA(kernel="rbf", n_fourier=30, random_state=5).fit(X[40:], y[40:]))
    np.testing.assert_allclose(first.eigenvalues_, whole.eigenvalues_, rtol=1e-9)


def test_null_space_fills_up_with_directions_of_no_dependence() -> None:
    X, y = rows()
    plain, filled = SPCA().fit(X, y), SPCA(6, null_space=True, random_state=4).fit(X, y)
    assert filled.components_.shape == (6, 10)
    np.testing.assert_allclose(filled.components_ @ filled.components_.T, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(filled.components_[:2], plain.components_, atol=1e-12)
    np.testing.assert_array_equal(filled.eigenvalues_[2:], 0.0)
    matrix = criteria.spca(X, (y[:, None] == y).astype(float))
    assert np.abs(matrix @ filled.components_[2:].T).max() < 1e-9 * np.abs(matrix).max()
    assert filled.hsic_ == pytest.approx(plain.hsic_)
    assert not np.allclose(filled.components_, SPCA(6, null_space=True, random_state=5).fit(X, y).components_)


def test_all_of_the_null_space_keeps_every_distance() -> None:
    X, y = rows()
    with pytest.warns(errors.FewerComponents):
        Z = SPCA(20, null_space=True).fit(X, y)
    np.testing.assert_allclose(
        np.linalg.norm(Z.transform(X)[0] - Z.transform(X), axis=1), np.linalg.norm(X[0] - X, axis=1)
    )
    assert SPCA(null_space=True).fit(X, y).rank_ == 2  # as many as there are, where no number is asked for
