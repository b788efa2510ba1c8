"""LDA beyond Table 2: scikit-learn's LDA, weights, decay, standardize, diagonal, unlearning a class, one class."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from stream_dr import LDA, errors
from tests.naive import two_stage as naive
from tests.stream_dr.estimators.closed_form_cases import learn, rows


def test_span_is_scikit_learns_lda() -> None:
    X, y = load_wine(return_X_y=True)
    ours = learn(LDA(), X, y)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :2]
    A, B = np.linalg.qr(ours.components_.T)[0], np.linalg.qr(theirs)[0]
    np.testing.assert_allclose(np.abs((A * B).sum(axis=0)), 1.0, atol=1e-9)


def test_weights_are_counts_and_zero_weight_is_absence() -> None:
    X, y = rows()
    w = np.arange(90) // 3 % 3
    w[y == 2] = 0
    often = np.repeat(np.arange(90), w)
    weighted = LDA(gamma=0.1).fit(X, y, sample_weight=w)
    assert weighted.rank_ == 1
    np.testing.assert_allclose(weighted.components_, LDA(gamma=0.1).fit(X[often], y[often]).components_, atol=1e-10)


def test_decay_is_a_weight_a_row() -> None:
    X, y = rows()
    w = 0.9 ** np.arange(89, -1, -1.0)
    decayed, weighted = learn(LDA(decay=0.9), X, y), LDA().fit(X, y, sample_weight=w)
    np.testing.assert_allclose(decayed.components_, weighted.components_, rtol=1e-9, atol=1e-12)


def test_standardize_is_exact_at_any_time() -> None:
    X, y = rows("constant column")
    lda = learn(LDA(gamma=1.0, standardize=True, scaling="source"), X, y)
    scale = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    scaled = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 1e-6, scale, 1.0)
    Y, _ = naive.indicator(y.tolist())
    W0, eigenvalues, _ = naive.generalised(scaled, naive.lda_h(Y), 1.0)
    np.testing.assert_allclose(lda.eigenvalues_, eigenvalues)
    direct = scaled @ W0
    np.testing.assert_allclose(np.abs(lda.transform(X)), np.abs(direct), atol=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_diagonal_is_the_answer_with_the_diagonal_of_cxx(gamma: float) -> None:
    X, y = rows("constant column")
    Xc = X - X.mean(axis=0)
    Y, _ = naive.indicator(y.tolist())
    xh, diagonal = Xc.T @ naive.lda_h(Y), (Xc**2).sum(axis=0)
    varying = diagonal > 1e-9
    root = np.where(varying, 1 / np.sqrt(np.where(varying, diagonal, 1.0) + gamma), 0.0)
    vectors, values, _ = np.linalg.svd(root[:, None] * xh, full_matrices=False)
    for given in (X, sp.csr_matrix(X)):
        lda = LDA(gamma=gamma, scatter="diagonal", scaling="source").fit(given, y)
        assert lda.solution_ == "diagonal"
        np.testing.assert_allclose(lda.eigenvalues_, values[:2] ** 2)
        assert naive.distance(root[:, None] * vectors[:, :2], lda.components_.T) <= 1e-9


@pytest.mark.test_all
def test_scatter_auto_is_exact_up_to_4096_stated_features() -> None:
    random = np.random.default_rng(0)
    y = np.arange(20) % 2
    assert LDA().fit(sp.random(20, 4096, 0.01, format="csr", random_state=0), y).solution_ == "exact"
    assert LDA().fit(sp.random(20, 4097, 0.01, format="csr", random_state=0), y).solution_ == "diagonal"
    assert LDA().fit(random.normal(size=(20, 5)), y).solution_ == "exact"


def test_wide_dense_rows_warn_once_and_may_be_exact() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 4097))
    y = np.arange(40) % 2
    lda = LDA(gamma=1.0)
    with pytest.warns(errors.OnlyDiagonal, match=r'4097 features .* scatter="exact" stores all of it \(0\.1 GB'):
        lda.partial_fit(X[:20], y[:20])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lda.partial_fit(X[20:], y[20:])
        assert lda.solution_ == "diagonal"
        exact = LDA(gamma=1.0, scatter="exact").partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
        LDA(scatter="diagonal").fit(X, y)
        LDA().fit(sp.csr_matrix(X), y)
    assert exact.solution_ == "exact"
    refined = lda.refine([(X, y)])
    assert naive.distance(exact.components_.T, refined.components_.T) <= 1e-5


def test_a_class_emptied_by_unlearning_leaves_no_component() -> None:
    X, y = rows("offset")
    lda = learn(LDA(), X, y).unlearn(X[y == 2], y[y == 2])
    assert lda.rank_ == 1
    kept = LDA().fit(X[y != 2], y[y != 2])
    # relative to what was subtracted: eps · ‖C before‖ / ‖C after‖ times the condition of what is left
    np.testing.assert_allclose(lda.transform(X), kept.transform(X), atol=1e-6)
    lda.unlearn(X[y == 1], y[y == 1])
    assert lda.transform(X).shape == (90, 0)
    lda.unlearn(X[y == 0], y[y == 0])
    with pytest.raises(errors.NotFitted):
        lda.transform(X)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e9])
def test_one_class_so_far_has_no_component_at_any_offset(offset: float) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(50, 7)) + offset
    assert learn(LDA(), X, np.zeros(50, dtype=int), 7).transform(X).shape == (50, 0)


def test_offset_1e9_keeps_the_discriminant() -> None:
    X, y = rows()
    z = learn(LDA(), X, y).transform(X)
    far = learn(LDA(), X + 2.0**30, y)
    np.testing.assert_allclose(far.transform(X + 2.0**30), z, atol=1e-5 * np.abs(z).max())


def test_condition_is_of_cxx_plus_gamma() -> None:
    X, y = rows()
    Xc = X - X.mean(axis=0)
    lda = learn(LDA(gamma=2.0), X, y)
    np.testing.assert_allclose(lda.condition_, np.linalg.cond(Xc.T @ Xc + 2.0 * np.eye(10)), rtol=1e-9)
    with pytest.raises(errors.NeedsRefine):
        _ = LDA(scatter="diagonal").fit(X, y).condition_


def test_several_labels_a_row_are_refused_by_name() -> None:
    X, _ = rows()
    for y in ([["a"], ["b", "a"]] * 45, np.eye(2)[np.arange(90) % 2]):
        with pytest.raises(errors.TargetKindMismatch, match="OPLS, CCA or HSL"):
            LDA().fit(X, y)


def test_classes_that_differ_in_a_tiny_feature_beside_a_huge_one() -> None:
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    half = random.normal(size=50)
    huge = np.concatenate([half, -half, half, -half])
    X = np.column_stack([huge, random.normal(size=200) + 3.0 * y])
    plain, scaled = learn(LDA(), X, y), learn(LDA(), X * [1e8, 1e-8], y)
    assert scaled.rank_ == 1
    np.testing.assert_allclose(scaled.eigenvalues_, plain.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(scaled.transform(X * [1e8, 1e-8]), plain.transform(X), atol=1e-7)


def test_probabilities_by_the_diagonal_are_told_to_be_uncalibrated() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(60, 5)), np.repeat(["a", "b"], 30)
    diagonal = LDA(gamma=1.0, scatter="diagonal").fit(X, y)
    with pytest.warns(errors.Uncalibrated, match=r"refine\(source\).*CalibratedClassifierCV"):
        diagonal.predict_proba(X)
    with pytest.warns(errors.Uncalibrated):
        diagonal.predict_log_proba(X)
    assert diagonal.predict(X).shape == diagonal.decision_function(X).shape  # of these nothing is told
    assert LDA(gamma=1.0).fit(X, y).predict_proba(X).shape == (60, 2)
