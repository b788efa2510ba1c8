"""min_class_rows: labels of few rows wait, in every closed form of one label a row."""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import stream_dr
from stream_dr import CCA, HSL, LDA, MMC, OPLS, PCA, PLSDA, SKM, SPCA, SRP, WMV, ClassMeans, errors
from tests.support.pairwise import pairwise

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
    np.testing.assert_allclose(lda.mean_, X[z].mean(axis=0))
    assert LDA(min_class_rows=1).fit(X[two], y[two]).rank_ == 2
    lda.partial_fit(X[y == "godo"], y[y == "godo"])
    assert lda.rank_ == 2
    assert len(lda.classes_waiting_) == 0


def same_solution(one: Any, other: Any, X: np.ndarray) -> None:
    """Compare everything that users read of two estimators, to 1e-9."""
    np.testing.assert_allclose(one.eigenvalues_, other.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(one.mean_, other.mean_, atol=1e-9)
    np.testing.assert_allclose(np.abs(one.transform(X)), np.abs(other.transform(X)), atol=1e-9)
    for name in ("coef_", "intercept_", "means_", "priors_", "centroids_", "classes_", "x_loadings_", "y_rotations_"):
        if hasattr(type(one), name):
            a, b = (np.asarray(getattr(model, name)) for model in (one, other))
            if a.dtype.kind == "f":
                # columns of components may have either sign
                a, b = (np.abs(a), np.abs(b)) if name.endswith("ations_") or name == "x_loadings_" else (a, b)
                np.testing.assert_allclose(a, b, atol=1e-9 * max(1.0, float(np.abs(b).max())))
            else:
                assert a.tolist() == b.tolist()
    if hasattr(one, "predict_proba") and one.solution_ != "diagonal":
        np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-9)
    if hasattr(one, "predict"):
        assert one.predict(X).tolist() == other.predict(X).tolist()


def with_own_columns(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """X with two columns more, which are constant but for the rows of the misspelt label."""
    wrong = y == "godo"
    return np.column_stack([X, np.where(wrong, 3.7, 0.0), np.where(wrong, 2.0, 1.3)])


@pytest.mark.parametrize("params", [{}, {"standardize": True}, {"scatter": "diagonal"}], ids=str)
@pytest.mark.parametrize("key", sorted(ESTIMATORS))
def test_a_misspelt_row_is_as_if_it_had_never_been_learned(key: str, params: dict[str, Any]) -> None:
    if key == "wmv" and params.get("scatter"):
        params = params | {"alpha": -2.0, "pairs": "share"}
    X, y = rows()
    X, ready = with_own_columns(X, y), y != "godo"
    model, never = learned(key, X, y, **params), learned(key, X[ready], y[ready], **params)
    assert model.classes_waiting_.tolist() == ["godo"]
    assert (model.n_samples_seen_, model.rank_) == (31, never.rank_)
    same_solution(model, never, X)


@pytest.mark.parametrize("key", sorted(ESTIMATORS))
def test_it_is_so_in_any_order_and_split_merged_and_unlearned(key: str) -> None:
    X, y = rows()
    ready = y != "godo"
    never = learned(key, X[ready], y[ready])
    random = np.random.default_rng(9)
    order = random.permutation(len(y))
    parts = np.split(order, [4, 11, 23])
    in_batches = copied(ESTIMATORS[key])
    for part in parts:
        in_batches.partial_fit(X[part], y[part])
    merged = learned(key, X[parts[0]], y[parts[0]])
    for part in parts[1:]:
        merged = merged.merge(learned(key, X[part], y[part]))
    extra = random.normal(size=(6, 5)) + 1.0
    kinds = np.array(["good", "godo", "other", "other", "bad", "good"], dtype=object)
    unlearned = learned(key, np.vstack([X, extra]), np.concatenate([y, kinds])).unlearn(extra, kinds)
    for model in (in_batches, merged, unlearned):
        assert model.classes_waiting_.tolist() == ["godo"]
        same_solution(model, never, X)
    merged.unlearn(X[~ready], y[~ready])
    assert len(merged.classes_waiting_) == 0
    same_solution(merged, never, X)


@pytest.mark.parametrize("key", sorted(ESTIMATORS))
def test_labels_of_one_row_each_are_left_out_together(key: str) -> None:
    X, y = rows(mistakes=3)
    y[y == "godo"] = ["godo", "bda", "Fair"]
    ready = np.isin(y, LABELS)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, size=len(y))
    model = copied(ESTIMATORS[key]).fit(X, y, weights)
    assert model.classes_waiting_.tolist() == ["Fair", "bda", "godo"]
    same_solution(model, copied(ESTIMATORS[key]).fit(X[ready], y[ready], weights[ready]), X)


def test_of_labels_with_more_rows_the_scatter_about_their_mean_stays() -> None:
    X, y = rows(mistakes=3)
    ready = y != "godo"
    own = X[~ready] - X[~ready].mean(axis=0)
    centred = X[ready] - X[ready].mean(axis=0)
    lda = LDA(min_class_rows=4).fit(X, y)
    moments = lda.moments(lda.state_)
    assert (moments.weight, moments.waiting) == (30.0, ("godo",))
    np.testing.assert_allclose(moments.scatter, centred.T @ centred + own.T @ own, atol=1e-10)
    np.testing.assert_allclose(moments.mean, X[ready].mean(axis=0), atol=1e-12)


def test_rows_of_weight_above_0_count_and_not_weights() -> None:
    X, y = rows(mistakes=2)
    wrong = np.flatnonzero(y == "godo")
    weights = np.ones(len(y))
    weights[wrong] = 9.0, 0.0
    lda = LDA().fit(X, y, weights)
    assert lda.classes_waiting_.tolist() == ["godo"]
    ready = y != "godo"
    same_solution(lda, LDA().fit(X[ready], y[ready]), X)
    weights[wrong] = 1e-9, 1e-9
    assert len(LDA().fit(X, y, weights).classes_waiting_) == 0
    weights[wrong] = 0.0
    assert LDA().fit(X, y, weights).classes_.tolist() == sorted(LABELS)
    weights[wrong] = 1.0, 0.0
    lda.fit(X, y, weights).unlearn(X[wrong[1:]], y[wrong[1:]], weights[wrong[1:]])
    assert lda.classes_waiting_.tolist() == ["godo"]
    lda.unlearn(X[wrong[:1]], y[wrong[:1]], weights[wrong[:1]])
    assert len(lda.classes_waiting_) == 0
    same_solution(lda, LDA().fit(X[ready], y[ready]), X)


def test_mmc_stays_a_case_of_wmv() -> None:
    X, y = rows()
    wmv, mmc = WMV(alpha=-2.0, pairs="share").fit(X, y), MMC().fit(X, y)
    np.testing.assert_allclose(wmv.eigenvalues_, mmc.eigenvalues_ * (len(X) - 1), rtol=1e-9)


def test_priors_name_all_labels_and_those_that_wait_leave_theirs() -> None:
    X, y = rows()
    ready = y != "godo"
    lda = LDA(priors=[0.3, 0.1, 0.4, 0.2]).fit(X, y)  # bad, fair, godo, good
    never = LDA(priors=[0.5, 1 / 6, 1 / 3]).fit(X[ready], y[ready])
    np.testing.assert_allclose(lda.priors_, [0.5, 1 / 6, 1 / 3])
    same_solution(lda, never, X)
    with pytest.raises(errors.InvalidParameter, match="4 labels have been learned so far, with 1 that wait"):
        LDA(priors=[0.5, 0.25, 0.25]).fit(X, y).transform(X)
    with pytest.raises(errors.InvalidParameter, match="0 for all labels that do not wait"):
        LDA(priors=[0.0, 0.0, 1.0, 0.0]).fit(X, y).transform(X)


REFINED = [
    LDA(),
    OPLS(gamma=1.0),
    HSL(laplacian="star"),
    SKM(n_components=2, a=2.0),
    MMC(2),
    PLSDA(2),
    WMV(2),
    WMV(2, alpha=-2.0, pairs="share"),
]


@pytest.mark.parametrize(
    ("model", "standardize", "sparse"), pairwise(product(REFINED, [False, True], [False, True])), ids=repr
)
def test_refined_solutions_have_not_learned_a_misspelt_row(model: Any, standardize: bool, sparse: bool) -> None:
    X, y = rows()
    ready = y != "godo"
    Z: Any = sp.csr_matrix(with_own_columns(X, y)) if sparse else with_own_columns(X, y)
    wide = copied(model).set_params(scatter="diagonal", standardize=standardize).fit(Z, y)
    wide.refine([(Z[:11], y[:11]), (Z[11:], y[11:])], 1e-11, 40)
    never = copied(model).set_params(scatter="exact", standardize=standardize).fit(Z[ready], y[ready])
    np.testing.assert_allclose(wide.eigenvalues_, never.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(wide.transform(Z)), np.abs(never.transform(Z)), atol=1e-8)


@pytest.mark.parametrize("model", [LDA(), MMC(2), WMV(2), WMV(2, alpha=-2.0, pairs="share")], ids=repr)
def test_refine_is_the_exact_solution_where_labels_with_more_rows_wait(model: Any) -> None:
    X, y = rows(mistakes=3)
    exact = copied(model).set_params(scatter="exact", min_class_rows=4).fit(X, y)
    wide = copied(model).set_params(scatter="diagonal", min_class_rows=4).fit(X, y)
    wide.refine([(X[:11], y[:11]), (X[11:], y[11:])], 1e-11, 40)
    np.testing.assert_allclose(wide.eigenvalues_, exact.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(wide.transform(X)), np.abs(exact.transform(X)), atol=1e-8)


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
@settings(max_examples=60, deadline=None, derandomize=True)
@given(LABELLED, st.integers(1, 4), st.randoms(use_true_random=False), st.sampled_from([1.0, 0.5]))
def test_who_waits_is_a_function_of_the_rows_alone(stream: Any, least: int, random: Any, decay: float) -> None:
    numbers = np.random.default_rng(1).normal(size=(24, 2))[: len(stream)]
    X = np.column_stack([[x for _, x, _ in stream], numbers])
    y, w = np.array([label for label, _, _ in stream]), np.array([float(weight) for _, _, weight in stream])
    X[:, 0] += np.array(["abcd".index(label) for label in y])

    def waiting(at: Any) -> list[str]:
        counts = Counter(y[at][w[at] > 0].tolist())
        few = sorted(label for label, rows in counts.items() if rows < least)
        return few if len(counts) - len(few) >= 2 else []

    order = np.array(random.sample(range(len(y)), len(y)))
    cut = random.randint(0, len(y))
    gone, left = order[:cut], order[cut:]
    both = LDA(min_class_rows=least, decay=decay, gamma=1.0).partial_fit(X[left], y[left], w[left])
    if cut:
        part = LDA(min_class_rows=least, decay=decay, gamma=1.0).partial_fit(X[gone], y[gone], w[gone])
        assert part.classes_waiting_.tolist() == waiting(gone)
        both = both.merge(part)
    assert both.classes_waiting_.tolist() == waiting(order)
    if w.any() and decay == 1.0:
        whole = LDA(min_class_rows=least, gamma=1.0).partial_fit(X, y, w)
        np.testing.assert_allclose(both.eigenvalues_, whole.eigenvalues_, atol=1e-9)
        assert both.rank_ <= max(0, len(set(y.tolist())) - len(waiting(order)) - 1)
    if not 0 < cut < len(y) or not w[left].any():
        return
    try:
        both.unlearn(X[gone], y[gone], w[gone])
    except errors.CannotUnlearn:  # too few digits would be left
        return
    assert both.classes_waiting_.tolist() == waiting(left)
    if decay == 1.0:
        alone = LDA(min_class_rows=least, gamma=1.0).partial_fit(X[left], y[left], w[left])
        np.testing.assert_allclose(both.eigenvalues_, alone.eigenvalues_, atol=1e-7)
