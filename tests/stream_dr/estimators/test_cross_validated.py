"""gamma="cv" and n_components="cv": the choice is that of the folds, whatever was split, merged, unlearned and saved."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import stream_dr
from stream_dr import CCA, HSL, LDA, OPLS, PCA, PLSDA, errors, random_fourier, table
from stream_dr.estimators.fitting.folds import jackknife_components
from stream_dr.estimators.fitting.mapping import inner_states_of_folds

METHODS: dict[str, Callable[..., Any]] = {
    "lda": lambda **kw: LDA(gamma="cv", **kw),
    "opls": lambda **kw: OPLS(gamma="cv", **kw),
    "cca": lambda **kw: CCA(gamma="cv", **kw),
    "hsl": lambda **kw: HSL(gamma="cv", **kw),
    "plsda": lambda **kw: PLSDA("cv", **kw),
}


def rows(n: int = 120, d: int = 30) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    y = random.integers(0, 4, n)
    X = random.normal(size=(n, d)) + random.normal(size=(4, d))[y]
    return X, y


def chosen(model: Any) -> float:
    """The value that was chosen."""
    return float(model.rank_ if isinstance(model, PLSDA) else model.gamma_)


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("standardize", [False, True])
def test_the_model_is_that_of_the_chosen_value(make, standardize):
    X, y = rows()
    model = make(standardize=standardize).fit(X, y)
    value = {"n_components": model.rank_} if isinstance(model, PLSDA) else {"gamma": model.gamma_}
    plain = type(model)(**value, standardize=standardize).fit(X, y)
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(plain.transform(X)), atol=1e-9)
    assert model.fold_rows_.sum() == len(X)


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_the_choice_is_that_of_the_path(make):
    X, y = rows()
    model = make().fit(X, y)
    expected = model.cross_validate(inner_states_of_folds(model.state_))
    tau = [] if isinstance(model, PLSDA) else ["tau"]
    assert sorted(model.cv_results_) == sorted([expected.parameter, "mean", "std_error", *tau])
    np.testing.assert_array_equal(model.cv_results_[expected.parameter], expected.values)
    np.testing.assert_array_equal(model.cv_results_["mean"], expected.mean)
    assert chosen(model) == expected.chosen_value


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_the_choice_does_not_depend_on_batches_merges_and_unlearning(make):
    X, y = rows()
    whole = make().fit(X, y)

    batched = make()
    for start in range(0, 120, 7):
        batched.partial_fit(X[start : start + 7], y[start : start + 7])
    merged = make().fit(X[50:], y[50:]).merge(make().fit(X[:50], y[:50]))
    extra = np.random.default_rng(5).normal(size=(30, 30))
    unlearned = make().fit(np.vstack([X, extra]), np.append(y, y[:30])).unlearn(extra, y[:30])

    for model in (batched, merged, unlearned):
        np.testing.assert_allclose(model.cv_results_["mean"], whole.cv_results_["mean"], rtol=1e-7)
        assert chosen(model) == pytest.approx(chosen(whole), rel=1e-9)


def test_the_choice_follows_the_stream():
    X, y = rows()
    model = LDA(gamma="cv").fit(X[:40], y[:40])
    before = model.gamma_
    model.partial_fit(X[40:], y[40:])
    assert model.gamma_ != before
    assert model.gamma_ == pytest.approx(LDA(gamma="cv").fit(X, y).gamma_, rel=1e-9)


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_a_saved_model_has_its_choice_and_goes_on(make, tmp_path: Path):
    X, y = rows()
    model = make(feature_map=random_fourier(20, gamma=0.006)).fit(X[:80], y[:80])
    angles, value = model.angles_, chosen(model)
    model.save(tmp_path / "saved")
    loaded = stream_dr.load(tmp_path / "saved")
    assert chosen(loaded) == value
    np.testing.assert_array_equal(loaded.angles_, angles)
    np.testing.assert_array_equal(loaded.cv_results_["mean"], model.cv_results_["mean"])
    for each in (model, loaded):
        each.partial_fit(X[80:], y[80:])
    assert chosen(loaded) == chosen(model)
    assert clone(model).get_params() == model.get_params()


def test_one_standard_error_takes_the_larger_ridge():
    X, y = rows(40)
    assert LDA(gamma="cv", one_standard_error=True).fit(X, y).gamma_ > LDA(gamma="cv").fit(X, y).gamma_
    assert PLSDA("cv", one_standard_error=True).fit(X, y).rank_ <= PLSDA("cv").fit(X, y).rank_


def test_the_ridge_helps_where_rows_are_few():
    random = np.random.default_rng(0)
    centres = 0.6 * random.normal(size=(5, 60))
    labels = random.integers(0, 5, 2_100)
    X = centres[labels] + random.normal(size=(2_100, 60))
    scores = [LDA(gamma=g).fit(X[:100], labels[:100]).score(X[100:], labels[100:]) for g in (0.0, "cv")]
    assert scores[1] > scores[0] + 0.1


def test_the_spread_of_components():
    X, y = rows()
    for model in (PCA(3, folds=6).fit(X), LDA(gamma="cv").fit(X, y), LDA(folds=4, feature_map=table()).fit(X, y)):
        assert model.angles_.shape == (model.rank_,)
        assert model.components_std_.shape == model.components_.shape
        assert (model.eigenvalues_std_ > 0).all()
        assert model.plane_angles_.shape == (model.rank_ - 1,)
    plain = LDA(gamma=1.0, folds=5).fit(X, y)
    expected = jackknife_components(plain, inner_states_of_folds(plain.state_))
    np.testing.assert_allclose(plain.angles_, expected.angles, rtol=1e-6)
    np.testing.assert_allclose(plain.components_std_, expected.components_std, rtol=1e-6)


ERRORS: dict[str, tuple[Callable[..., Any], str]] = {
    "wide": (lambda X, y: LDA(gamma="cv").fit(np.tile(X, (1, 70)), y).transform(X), "2,048 features; there are 2,100"),
    "diagonal": (lambda X, y: LDA(gamma="cv", scatter="diagonal").fit(X, y), "scatter='diagonal' was given"),
    "shrinkage": (lambda X, y: LDA(gamma="cv", shrinkage=0.1).fit(X, y), "shrinkage=0.1"),
    "star": (lambda X, y: HSL("star", gamma="cv").fit(X, y), "laplacian='zhou'"),
    "no ridge": (lambda X, y: PCA(gamma="cv").fit(X), "gamma='cv'; it must be a number"),
    "other parameter": (lambda X, y: OPLS("cv").fit(X, y), "n_components='cv'"),
    "later": (
        lambda X, y: LDA().fit(X, y).set_params(gamma="cv").transform(X),
        "folds=5; .* with folds=0",
    ),
    "state": (lambda X, y: LDA(gamma="cv").solve(LDA().fit(X, y).state_), "learned without"),
    "accumulator": (lambda X, y: LDA(folds=4).accumulator(LDA().fit(X, y).state_), "in 0 folds"),
}


@pytest.mark.parametrize(("act", "words"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_to_do(act, words):
    with pytest.raises(errors.InvalidParameter, match=words):
        act(*rows())


def test_errors_that_are_not_finite_are_refused():
    X, y = rows()
    with pytest.raises(errors.InvalidParameter, match="not finite"):
        OPLS(gamma="cv").fit(X, y * 1e80).transform(X)


def test_too_few_folds_are_not_fitted_yet():
    X, y = rows()
    with pytest.raises(errors.NotFitted, match="rows in at least 3 folds"):
        LDA(gamma="cv").fit(X[:1], y[:1]).transform(X)
    with pytest.raises(errors.NotFitted, match="2 of 2 folds"):
        LDA(gamma="cv", folds=2).fit(X, y).transform(X)
    with pytest.raises(errors.NotFitted, match="3 folds"):
        _ = PCA(folds=2).fit(X).angles_


@pytest.mark.filterwarnings("ignore:PCA has")
def test_a_refined_projection_has_no_spread():
    X, _ = rows()
    model = PCA(2, folds=5, scatter="diagonal").fit(X)
    model.refine([(X, None)])
    with pytest.raises(AttributeError, match="refined"):
        _ = model.angles_


def test_attributes_of_folds_are_absent_without_folds():
    X, y = rows()
    for name in ("angles_", "eigenvalues_std_", "components_std_", "plane_angles_", "cv_results_"):
        assert not hasattr(LDA().fit(X, y), name)
    assert LDA(gamma=2.0).fit(X, y).gamma_ == 2.0


def test_few_rows_are_learned_before_a_choice_is_possible():
    X, y = rows()
    model = LDA(gamma="cv").partial_fit(X[:1], y[:1])
    assert model.n_samples_seen_ == 1
    model.partial_fit(X[1:], y[1:])
    assert model.gamma_ == pytest.approx(LDA(gamma="cv").fit(X, y).gamma_, rel=1e-9)


@pytest.mark.filterwarnings("ignore:gamma='cv' chose")
def test_rows_of_few_values_need_groups():
    X = np.random.default_rng(0).integers(0, 2, (1_000, 3)).astype(float)
    y = X[:, 0].astype(int)
    with pytest.warns(UserWarning, match="many rows are equal .* Give groups"):
        LDA(gamma="cv").fit(X, y).transform(X)
    model = LDA(gamma="cv").fit(X, y, groups=range(1_000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.transform(X)
    assert not any("equal" in str(each.message) for each in caught)
    assert model.fold_rows_.min() > 150


def test_a_choice_at_the_end_of_the_grid_warns():
    X, y = rows()
    X = X * 10.0 ** np.random.default_rng(0).integers(-4, 5, X.shape[1])
    with pytest.warns(UserWarning, match="standardize=True"):
        LDA(gamma="cv").fit(X, y).transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LDA(gamma="cv", standardize=True).fit(X, y).transform(X)
