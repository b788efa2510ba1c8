"""HSL beyond Table 2: the hypergraph Laplacian written out, order of rows, weights, merge, unlearn, rows without labels."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import HSL
from tests.naive import two_stage as naive

LAPLACIANS = ["zhou", "clique", "star"]


def rows(seed: int = 0, n: int = 80, d: int = 9) -> tuple[np.ndarray, list[list[str]]]:
    """Rows with none to three of five labels, features that depend on them."""
    random = np.random.default_rng(seed)
    member = random.random((n, 5)) < [0.5, 0.3, 0.3, 0.15, 0.05]
    member[:3] = False
    X = random.normal(size=(n, d)) + member @ random.normal(size=(5, d)) * 2.0
    return X, [["abcde"[j] for j in np.flatnonzero(m)] for m in member]


def direct(X: np.ndarray, labels: list[Any], laplacian: str, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """W0 and eigenvalues from rows."""
    Y, _ = naive.indicator(labels)
    return naive.generalised(X, naive.hsl_h(Y, laplacian), gamma)[:2]


def pick(labels: list[Any], at: Any) -> list[Any]:
    """Labels of the rows."""
    return [labels[i] for i in at]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_any_order_and_batching_is_the_direct_solution(laplacian: str, gamma: float, sparse: bool) -> None:
    X, labels = rows()
    W0, eigenvalues = direct(X, labels, laplacian, gamma)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(80)
        hsl = HSL(laplacian, gamma=gamma, scaling="source")
        for at in np.split(order, [1, 10, 40]):
            hsl.partial_fit(sp.csr_matrix(X[at]) if sparse else X[at], pick(labels, at))
        assert naive.distance(W0, hsl.components_.T) <= 1e-10
        np.testing.assert_allclose(hsl.eigenvalues_, eigenvalues, rtol=1e-10)
        assert (hsl.eigenvalues_ <= 1 + 1e-12).all()


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_h_of_the_reference_is_i_minus_the_normalised_laplacian(laplacian: str) -> None:
    _, labels = rows()
    Y, _ = naive.indicator(labels)
    H = naive.hsl_h(Y, laplacian)
    A = {
        "zhou": Y @ np.diag(1 / Y.sum(axis=0)) @ Y.T,
        "clique": Y @ Y.T,
        "star": Y @ np.diag(Y.sum(axis=0) ** -2.0) @ Y.T,
    }
    degree = A[laplacian].sum(axis=1)
    there = degree > 0
    expected = A[laplacian][np.ix_(there, there)] / np.sqrt(np.outer(degree[there], degree[there]))
    np.testing.assert_allclose((H @ H.T)[np.ix_(there, there)], expected, atol=1e-12)
    assert np.linalg.eigvalsh(H @ H.T)[-1] <= 1 + 1e-12


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_weights_are_counts(laplacian: str) -> None:
    X, labels = rows()
    w = np.arange(80) % 3
    often = np.repeat(np.arange(80), w)
    W0, _ = direct(X[often], pick(labels, often), laplacian, 0.1)
    weighted = HSL(laplacian, gamma=0.1, scaling="source").fit(X, labels, sample_weight=w)
    assert naive.distance(W0, weighted.components_.T) <= 1e-10


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_merge_and_unlearn(laplacian: str) -> None:
    X, labels = rows()
    W0, _ = direct(X[20:], labels[20:], laplacian, 0.0)
    first = HSL(laplacian, scaling="source").fit(X[:50], labels[:50])
    second = HSL(laplacian, scaling="source").fit(X[50:][::-1], labels[50:][::-1])
    first.merge(second).unlearn(X[:20], labels[:20])
    assert naive.distance(W0, first.components_.T) <= 1e-9


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_a_label_emptied_by_unlearning_is_no_hyperedge(laplacian: str) -> None:
    X, labels = rows()
    without = [i for i, s in enumerate(labels) if "e" not in s]
    gone = [i for i, s in enumerate(labels) if "e" in s]
    assert gone
    hsl = HSL(laplacian, scaling="source").fit(X, labels).unlearn(X[gone], pick(labels, gone))
    W0, _ = direct(X[without], pick(labels, without), laplacian, 0.0)
    assert naive.distance(W0, hsl.components_.T) <= 1e-9


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_standardize_and_decay(laplacian: str) -> None:
    X, labels = rows()
    W0, _ = direct((X - X.mean(axis=0)) / X.std(axis=0), labels, laplacian, 1.0)
    hsl = HSL(laplacian, gamma=1.0, standardize=True, scaling="source").fit(X, labels)
    assert naive.distance(W0 / X.std(axis=0)[:, None], hsl.components_.T) <= 1e-10
    w = 0.95 ** np.arange(79, -1, -1.0)
    decayed = HSL(laplacian, decay=0.95).partial_fit(X[:33], labels[:33]).partial_fit(X[33:], labels[33:])
    np.testing.assert_allclose(
        decayed.components_, HSL(laplacian).fit(X, labels, sample_weight=w).components_, rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_no_component_without_a_difference(laplacian: str) -> None:
    X, _ = rows()
    for labels in ([["a"]] * 80, [["a", "b"]] * 80, [[]] * 80):
        assert HSL(laplacian).fit(X + 1e5, labels).transform(X).shape == (80, 0)


@pytest.mark.parametrize("name", ["predict", "score"])
def test_it_says_what_predicts(name: str) -> None:
    assert not hasattr(HSL, name)
    assert not hasattr(HSL(), name)
    with pytest.raises(AttributeError, match=r"HSL does not predict.* OPLS or CCA"):
        getattr(HSL(), name)
