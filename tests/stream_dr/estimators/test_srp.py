"""SRP: W = Cxy R, R reproducible, unbiased, the same wherever a label is seen."""

import numpy as np
import pytest

from stream_dr import SRP, errors
from stream_dr.estimators.srp import centred_scaled_random_signs, scaled_random_signs
from tests.naive import two_stage as naive
from tests.stream_dr.estimators.closed_form_cases import learn, rows


def test_components_are_cxy_r() -> None:
    X, y = rows()
    labels = np.array(["a", "b", "c"])[y]
    srp = learn(SRP(n_components=6, random_state=3, scaling="source"), X, labels)
    Y, names = naive.indicator(labels.tolist())
    W = (X - X.mean(axis=0)).T @ Y @ centred_scaled_random_signs(names, 6, 3)
    signs = np.sign((W * srp.components_.T).sum(axis=0))
    np.testing.assert_allclose(srp.components_.T * signs, W, atol=1e-9)
    np.testing.assert_allclose(srp.transform(X), X @ srp.components_.T)
    assert np.linalg.matrix_rank(srp.components_) == 2


def test_r_has_unit_expectation_and_depends_on_seed_and_label_only() -> None:
    total = np.zeros((4, 4))
    for seed in range(400):
        R = scaled_random_signs(["a", "b", "c", "d"], 10, seed)
        assert np.allclose(np.abs(R), 1 / np.sqrt(10))
        total += R @ R.T / 400
    np.testing.assert_allclose(total, np.eye(4), atol=0.06)
    assert (scaled_random_signs(["d", "a"], 10, 7) == scaled_random_signs(["a", "b", "c", "d"], 10, 7)[[3, 0]]).all()
    assert not np.array_equal(scaled_random_signs([1], 64, 0), scaled_random_signs(["1"], 64, 0))


def test_labels_in_another_order_give_the_same_projection() -> None:
    X, y = rows()
    back = np.arange(90)[::-1]
    np.testing.assert_allclose(SRP().fit(X, y).components_, SRP().fit(X[back], y[back]).components_, atol=1e-9)


@pytest.mark.test_all
def test_numbers_go_through_fourier_features() -> None:
    X, _ = rows()
    y = X[:, 0] * 0.5
    K = np.exp(-((y[:, None] - y) ** 2) / 2)
    H = np.eye(90) - 1 / 90
    direct = X.T @ H @ K @ H @ X
    W = SRP(n_components=5000, scaling="source").fit(X, y).components_.T
    assert np.linalg.norm(W @ W.T - direct) <= 0.08 * np.linalg.norm(direct)


def test_several_labels_a_row() -> None:
    X, y = rows()
    labels = [["a"] if v == 0 else ["a", "b"] if v == 1 else [] for v in y]
    srp = SRP(n_components=4, scaling="source").fit(X, labels)
    Y, names = naive.indicator(labels)
    W = (X - X.mean(axis=0)).T @ Y @ scaled_random_signs(names, 4, 0)
    np.testing.assert_allclose(np.abs(srp.components_.T), np.abs(W), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_no_component_is_zero_and_the_kernel_guarantee_holds(classes: int) -> None:
    labels, p, seeds = list(range(classes)), 4, 3000
    H = np.eye(classes) - 1 / classes
    total = np.zeros((classes, classes))
    for seed in range(seeds):
        R = centred_scaled_random_signs(labels, p, seed)
        assert np.linalg.norm(R, axis=0).min() > 0.1
        total += R @ R.T / seeds
    np.testing.assert_allclose(total, H, atol=0.05)


@pytest.mark.parametrize("kind", ["plain", "offset"])
def test_two_classes_are_projected_under_every_seed(kind: str) -> None:
    """Every component is ± the difference of means, and W Wᵀ is Cxy Cxyᵀ, not only on average."""
    X, y = rows() if kind == "plain" else rows("offset")
    cross = (X - X.mean(axis=0)).T @ np.eye(2)[y % 2]
    for seed in range(12):
        W = SRP(n_components=2, random_state=seed, scaling="source").fit(X, y % 2).components_
        np.testing.assert_allclose(W.T @ W, cross @ cross.T, rtol=1e-6, atol=1e-6 * np.abs(cross @ cross.T).max())


def test_merged_parts_with_other_classes_agree_with_all_rows_at_once() -> None:
    X, y = rows()
    parts = [SRP(random_state=5).fit(X[y != c], y[y != c]) for c in (0,)] + [
        SRP(random_state=5).fit(X[y == 0], y[y == 0])
    ]
    merged, whole = parts[0].merge(parts[1]), SRP(random_state=5).fit(X, y)
    np.testing.assert_allclose(merged.components_, whole.components_, atol=1e-9)


def test_parameters_out_of_range() -> None:
    for bad in ({"n_components": 0}, {"n_components": None}, {"sigma": 0.0}, {"random_state": -1}):
        with pytest.raises(errors.InvalidParameter):
            SRP(**bad).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
