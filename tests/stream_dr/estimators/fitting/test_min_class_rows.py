"""min_class_rows: labels of few rows wait, in every closed form of one label a row."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import stream_dr
from stream_dr import CCA, HSL, LDA, MMC, OPLS, PCA, PLSDA, SKM, SPCA, SRP, WMV, ClassMeans, errors
from tests.naive import criteria, two_stage

ESTIMATORS = {
    "lda": LDA(),
    "opls": OPLS(gamma=1.0),
    "cca": CCA(),
    "hsl": HSL(),
    "clique": HSL(laplacian="clique"),
    "star": HSL(laplacian="star"),
    "plsda": PLSDA(),
    "skm": SKM(),
    "mmc": MMC(),
    "wmv": WMV(),
    "spca": SPCA(),
    "srp": SRP(n_components=3),
    "class_means": ClassMeans(),
}
LABELS = ["good", "bad", "fair"]


def rows(mistakes: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(X, y): three classes of ten rows, and so many rows of a label misspelt, amidst them and far away."""
    random = np.random.default_rng(4)
    y = np.array(LABELS * 10, dtype=object)
    X = random.normal(size=(30, 5)) + random.normal(size=(3, 5))[np.arange(30) % 3] * 2.0
    at = np.arange(mistakes) + 7
    return np.insert(X, at, random.normal(size=(mistakes, 5)) * 9.0, axis=0), np.insert(y, at, "godo")


def ready_columns(y: np.ndarray, waiting: str = "godo") -> tuple[np.ndarray, np.ndarray]:
    """The indicator (n, k) of the labels that do not wait, centred over their own rows, and n_j (k,)."""
    Y = np.array([[float(label == own) for label in sorted(set(y) - {waiting})] for own in y])
    n = Y.sum(axis=0)
    return Y - np.outer(y != waiting, n / n.sum()), n


def learned(key: str, X: Any, y: Any, **params: Any) -> Any:
    return copied(ESTIMATORS[key]).set_params(**params).fit(X, y)


def copied(estimator: Any) -> Any:
    return type(estimator)(**estimator.get_params())


def test_a_misspelt_label_adds_no_component() -> None:
    X, y = rows()
    two, z = np.isin(y, ["good", "bad", "godo"]), np.isin(y, ["good", "bad"])
    lda = LDA().fit(X[two], y[two])
    assert lda.rank_ == 1
    assert lda.classes_.tolist() == ["bad", "good"]
    assert lda.classes_waiting_.tolist() == ["godo"]
    assert (lda.n_samples_seen_, lda.state_.rows_skipped) == (z.sum() + 1, 0)
    np.testing.assert_allclose(lda.mean_, X[two].mean(axis=0))
    assert LDA(min_class_rows=1).fit(X[two], y[two]).rank_ == 2
    lda.partial_fit(X[y == "godo"], y[y == "godo"])
    assert lda.rank_ == 2
    assert len(lda.classes_waiting_) == 0


@pytest.mark.parametrize("key", ["lda", "opls", "cca", "hsl", "clique", "star"])
def test_two_stage_methods_are_those_of_the_classes_that_do_not_wait(key: str) -> None:
    X, y = rows()
    Yc, n = ready_columns(y)
    H = two_stage.cca_h(Yc) if key == "cca" else Yc if key == "opls" else Yc / np.sqrt(n)
    W, values, _ = two_stage.generalised(X, H, 1.0 if key == "opls" else 0.0)
    model = learned(key, X, y, scaling="source")
    assert model.rank_ == 2
    np.testing.assert_allclose(model.eigenvalues_, values[:2], rtol=1e-9)
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs((X - X.mean(axis=0)) @ W[:, :2]), atol=1e-9)


@pytest.mark.parametrize("key", ["skm", "mmc", "wmv", "class_means", "spca"])
def test_methods_of_margins_are_those_of_the_classes_that_do_not_wait(key: str) -> None:
    X, y = rows()
    Yc, n = ready_columns(y)
    cross, centred = X.T @ Yc, X - X.mean(axis=0)
    between = cross @ np.diag(1 / n) @ cross.T / len(X)
    ready = y != "godo"
    matrix = {
        "skm": 2 * between,
        "class_means": between,
        "mmc": 2 * between - centred.T @ centred / len(X),
        "spca": cross @ cross.T,
        "wmv": criteria.wmv(X[ready] - X[ready].mean(axis=0), y[ready], -1.0, 1.0),
    }[key]
    values, vectors = criteria.top(matrix)
    model = learned(key, X, y)
    assert model.classes_waiting_.tolist() == ["godo"]
    np.testing.assert_allclose(model.eigenvalues_, values[: model.rank_], rtol=1e-9)
    np.testing.assert_allclose(np.abs((model.components_.T * vectors[:, : model.rank_]).sum(axis=0)), 1.0)


def test_mmc_stays_a_case_of_wmv() -> None:
    X, y = rows()
    wmv, mmc = WMV(alpha=-2.0, pairs="share").fit(X, y), MMC().fit(X, y)
    np.testing.assert_allclose(wmv.eigenvalues_, mmc.eigenvalues_ * len(X), rtol=1e-9)


@pytest.mark.parametrize("key", sorted(ESTIMATORS.keys() - {"plsda", "wmv"}))  # theirs are not bounded by the classes
def test_no_more_components_than_ready_labels_less_one(key: str) -> None:
    X, y = rows(mistakes=3)
    y[y == "godo"] = ["godo", "bda", "Fair"]
    model = learned(key, X, y)
    assert model.classes_waiting_.tolist() == ["Fair", "bda", "godo"]
    assert np.linalg.matrix_rank(model.components_) == 2
    assert model.rank_ == learned(key, *rows(mistakes=0)).rank_


@pytest.mark.parametrize("key", ["opls", "cca", "plsda"])
def test_regression_is_that_of_the_rows_that_do_not_wait(key: str) -> None:
    X, y = rows()
    model = learned(key, X, y, n_components=None, **({"gamma": 0.0} if key == "opls" else {}))
    Yc, n = ready_columns(y)
    ready = y != "godo"
    centred = X - X.mean(axis=0)
    coefficients = np.linalg.solve(centred.T @ centred, X.T @ Yc)
    np.testing.assert_allclose(model.coef_, coefficients.T, atol=1e-9)
    expected = n / n.sum() + (X - X[ready].mean(axis=0)) @ coefficients
    np.testing.assert_allclose((X - model.mean_) @ model.coef_.T + model.intercept_, expected, atol=1e-9)
    assert model.predict(X).tolist() == model.classes_[expected.argmax(axis=1)].tolist()


@pytest.mark.parametrize("params", [{}, {"priors": [0.5, 0.25, 0.25]}], ids=str)
def test_classifiers_know_ready_labels_only(params: dict[str, Any]) -> None:
    X, y = rows()
    ready = y != "godo"
    means = np.array([X[y == label].mean(axis=0) for label in sorted(LABELS)])
    lda = LDA(**params).fit(X, y)
    assert lda.classes_.tolist() == sorted(LABELS)
    np.testing.assert_allclose(lda.means_, means)
    np.testing.assert_allclose(lda.transform(X), (X - lda.xbar_) @ lda.scalings_, atol=1e-10)
    between, centred = sum(10 * np.outer(m, m) for m in means - X[ready].mean(axis=0)), X - X.mean(axis=0)
    inverse = np.linalg.inv((centred.T @ centred - between) / len(X))
    priors = np.array(params.get("priors", [1 / 3, 1 / 3, 1 / 3]))
    scores = X @ inverse @ means.T - 0.5 * np.einsum("ij,jk,ik->i", means, inverse, means) + np.log(priors)
    posterior = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(lda.predict_proba(X), posterior / posterior.sum(axis=1, keepdims=True), atol=1e-9)
    nearest = ClassMeans().fit(X, y)
    np.testing.assert_allclose(nearest.centroids_, means)
    distances = ((X[:, None] - means) ** 2).sum(axis=2)
    assert nearest.predict(X).tolist() == np.array(sorted(LABELS))[distances.argmin(axis=1)].tolist()
    with pytest.raises(errors.InvalidParameter, match="beside 1 that wait for min_class_rows=2 rows"):
        LDA(priors=[0.4, 0.3, 0.2, 0.1]).fit(X, y).transform(X)


@pytest.mark.parametrize(
    "model",
    [
        LDA(),
        OPLS(gamma=1.0),
        HSL(laplacian="star"),
        SKM(n_components=2, a=2.0),
        MMC(2),
        PLSDA(2),
        WMV(2),
        WMV(2, alpha=-2.0, pairs="share"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("standardize", [False, True])
def test_refine_is_the_exact_solution(model: Any, standardize: bool) -> None:
    X, y = rows()
    exact = copied(model).set_params(scatter="exact", standardize=standardize).fit(X, y)
    wide = copied(model).set_params(scatter="diagonal", standardize=standardize).fit(X, y)
    wide.refine([(X[:11], y[:11]), (X[11:], y[11:])], 1e-10, 30)
    np.testing.assert_allclose(wide.eigenvalues_, exact.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(np.abs(wide.transform(X)), np.abs(exact.transform(X)), atol=1e-6)


def test_several_labels_numbers_and_no_targets_are_exempt() -> None:
    X, y = rows()
    sets = [[label] for label in y]
    assert (OPLS().fit(X, y).rank_, OPLS().fit(X, sets).rank_) == (2, 3)
    assert len(OPLS().fit(X, sets).classes_waiting_) == len(PCA().fit(X).classes_waiting_) == 0
    assert len(OPLS().fit(X, np.arange(len(X)) + 0.5).classes_waiting_) == 0


@pytest.mark.parametrize("least", [0, -1, 1.5, True, None])
def test_what_it_may_be(least: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match="min_class_rows"):
        LDA(min_class_rows=least).fit(*rows())


def test_mapped_rows_wait_alike() -> None:
    X, y = rows()
    assert LDA(feature_map=stream_dr.random_fourier(n_features=8)).fit(X, y).classes_waiting_.tolist() == ["godo"]


LABELLED = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4), st.integers(0, 3)), min_size=4, max_size=24)


@seed(20)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(LABELLED, st.integers(1, 4), st.randoms(use_true_random=False), st.sampled_from([1.0, 0.5]))
def test_who_waits_is_a_function_of_the_rows_alone(stream: Any, least: int, random: Any, decay: float) -> None:
    numbers = np.random.default_rng(1).normal(size=(24, 2))[: len(stream)]
    X = np.column_stack([[x for _, x, _ in stream], numbers])
    y, w = np.array([label for label, _, _ in stream]), np.array([float(weight) for _, _, weight in stream])
    X[:, 0] += np.array(["abcd".index(label) for label in y])

    def waiting(labels: Any) -> list[str]:
        counts = Counter(labels)
        few = sorted(label for label, rows in counts.items() if rows < least)
        return few if len(counts) - len(few) >= 2 else []

    order = np.array(random.sample(range(len(y)), len(y)))
    cut = random.randint(0, len(y))
    gone, left = order[:cut], order[cut:]
    both = LDA(min_class_rows=least, decay=decay, gamma=1.0).partial_fit(X[left], y[left], w[left])
    if cut:
        part = LDA(min_class_rows=least, decay=decay, gamma=1.0).partial_fit(X[gone], y[gone], w[gone])
        assert part.classes_waiting_.tolist() == waiting(y[gone].tolist())
        both = both.merge(part)
    assert both.classes_waiting_.tolist() == waiting(y.tolist())
    if w.any() and decay == 1.0:
        whole = LDA(min_class_rows=least, gamma=1.0).partial_fit(X, y, w)
        np.testing.assert_allclose(both.eigenvalues_, whole.eigenvalues_, atol=1e-9)
        assert both.rank_ <= max(0, len(set(y.tolist())) - len(waiting(y.tolist())) - 1)
    if not 0 < cut < len(y) or not w[left].any():
        return
    try:
        both.unlearn(X[gone], y[gone], w[gone])
    except errors.CannotUnlearn:  # too few digits would be left
        return
    assert both.classes_waiting_.tolist() == waiting(y[left].tolist())
    if decay == 1.0:
        alone = LDA(min_class_rows=least, gamma=1.0).partial_fit(X[left], y[left], w[left])
        np.testing.assert_allclose(both.eigenvalues_, alone.eigenvalues_, atol=1e-7)
