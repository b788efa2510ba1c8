"""Spread of components and eigenvalues over folds, against refits without each fold's rows and against new samples."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from stream_dr import CCA, ESTIMATORS, LDA, OPLS, PCA, PLSDA, SPCA, errors, polynomial, table
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.folds import jackknife_components
from stream_dr.uncertainty import ComponentSpread, component_angle_sentences
from tests.naive import jackknife as naive

CLOSED_FORMS = {key: kind for key, kind in ESTIMATORS.items() if issubclass(kind, ClosedForm)}


def rows(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of six features with distinct variances, in four classes."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, n)
    centres = np.random.default_rng(99).normal(size=(4, 6)) * 2.0
    return random.normal(size=(n, 6)) * [4.0, 3.0, 2.2, 1.6, 1.1, 0.7] + centres[y] + 10.0, y


def parts_of(estimator: Any, X: np.ndarray, y: Any, fold: np.ndarray, w: np.ndarray | None = None, K: int = 5) -> Any:
    """States of the folds. A fold without rows has an empty state."""
    w = np.ones(len(X)) if w is None else w
    parts = []
    for at in (fold == f for f in range(K)):
        empty = estimator.accumulator().freeze()
        parts.append(clone(estimator).fit(X[at], y[at], sample_weight=w[at]).state_ if at.any() else empty)
    return parts


def same(spread: ComponentSpread, wanted: dict[str, np.ndarray]) -> None:
    for name, array in wanted.items():
        scale = np.nanmax(np.abs(array)) if np.isfinite(array).any() else 1.0
        np.testing.assert_allclose(getattr(spread, name), array, rtol=1e-6, atol=1e-7 * scale, err_msg=name)


ESTIMATORS_TRIED = [
    PCA(),
    PCA(n_components=3, whiten=True),
    PCA(standardize=True),
    OPLS(),
    OPLS(gamma=50.0),
    LDA(),
    LDA(shrinkage=0.3, n_components=2),
    LDA(gamma=200.0, scaling="source"),
    SPCA(),
    CCA(gamma=20.0),
    PLSDA(n_components=3),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS_TRIED, ids=lambda e: " ".join(str(e).split()))
def test_it_is_the_jackknife_over_refits(estimator: Any, weighted: bool) -> None:
    X, y = rows()
    # Fold 3 has no rows, and the other folds have unequal numbers of rows.
    fold = np.random.default_rng(1).choice(5, size=len(X), p=[0.4, 0.1, 0.2, 0.0, 0.3])
    w = np.random.default_rng(2).uniform(0.5, 2.0, len(X)) if weighted else np.ones(len(X))
    spread = jackknife_components(estimator, parts_of(estimator, X, y, fold, w))
    spread.check()
    assert spread.folds == 4
    same(spread, naive.spread(estimator, X, y, w, fold))


@pytest.mark.parametrize("estimator", [PCA(n_components=2), OPLS()])
def test_near_equal_eigenvalues_are_matched_as_refits_are(estimator: Any) -> None:
    random = np.random.default_rng(4)
    Q, _ = np.linalg.qr(random.normal(size=(300, 6)))
    X = Q[:, :4] * [30.0, 29.8, 10.0, 5.0]
    y = X[:, :2] + 5.0 * Q[:, 4:]
    fold = np.arange(300) % 10
    spread = jackknife_components(estimator, parts_of(estimator, X, y, fold, K=10))
    wanted = naive.spread(estimator, X, y, np.ones(300), fold)
    assert np.isfinite(wanted["plane_angles"]).any()
    same(spread, wanted)


def test_near_equal_eigenvalues_have_a_plane_that_is_known() -> None:
    random = np.random.default_rng(9)
    # Columns of exactly equal variance and without correlation, so that any small change rotates the components.
    Q, _ = np.linalg.qr(random.normal(size=(2000, 5)))
    X = Q * np.sqrt(2000) * [5.0, 3.0, 2.99, 1.0, 0.5]
    spread = jackknife_components(PCA(), parts_of(PCA(), X, X[:, 0], np.arange(2000) % 10, K=10))
    assert spread.angles[0] < 5.0
    assert spread.angles[1:3].min() > 30.0
    np.testing.assert_array_equal(np.isnan(spread.plane_angles), [True, False, True, True])
    assert spread.plane_angles[1] < 5.0
    first, second = component_angle_sentences(spread)
    assert first.startswith(f"Component 1 is known to {max(round(spread.angles[0]), 1)}°, 4 to ")
    assert second == (
        f"Components 2 and 3 are known to {round(spread.angles[1:3].max())}° only; "
        f"their plane to {round(spread.plane_angles[1])}°."
    )


SCALES = [3.0, 2.0, 1.5, 1.0, 0.8, 0.5]


def sampled(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(400, 6)) * SCALES
    return X, X[:, :2] @ [[1.0, 0.3], [-1.0, 0.5]] + random.normal(size=(400, 2))


@pytest.mark.parametrize("estimator", [PCA(), OPLS()])
def test_standard_errors_are_those_of_new_samples(estimator: Any) -> None:
    fold = np.arange(400) % 10
    values, loadings = [], []
    for seed in range(150):
        fitted = estimator.fit(*sampled(seed))
        values.append(fitted.eigenvalues_[0])
        loadings.append(fitted.components_[0] * np.sign(fitted.components_[0, 0]))
    spreads = [jackknife_components(estimator, parts_of(estimator, *sampled(seed), fold, K=10)) for seed in range(20)]

    ratio = np.mean([spread.eigenvalues_std[0] for spread in spreads]) / np.std(values)
    assert 1 / 1.5 < ratio < 1.5
    ratios = np.mean([spread.components_std[0] for spread in spreads], axis=0) / np.std(loadings, axis=0)
    assert (ratios[1:] > 1 / 1.5).all()
    assert (ratios[1:] < 1.5).all()

    # The mean of the loadings over all samples stands for the component of infinitely many rows.
    scores = np.array(loadings) * SCALES
    truth = scores.mean(axis=0)
    cosines = scores @ truth / np.linalg.norm(scores, axis=1) / np.linalg.norm(truth)
    expected = np.degrees(np.arcsin(np.sqrt((1 - cosines**2).mean())))
    assert 1 / 1.5 < np.mean([spread.angles[0] for spread in spreads]) / expected < 1.5


def test_the_eigenvalues_of_lda_are_corrected_downwards() -> None:
    raw, corrected = [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        X, y = random.normal(size=(120, 12)), np.arange(120) % 2
        X[:, 0] += y
        raw.append(LDA().fit(X, y).eigenvalues_[0])
        corrected.append(
            jackknife_components(LDA(), parts_of(LDA(), X, y, np.arange(120) // 2 % 6, K=6)).eigenvalues[0]
        )
    # Share of the variance between two classes at a distance of 1 in the total variance.
    truth = 0.25 / 1.25
    assert abs(np.mean(corrected) - truth) < abs(np.mean(raw) - truth) / 2


def test_components_that_a_fold_lacks_are_unknown() -> None:
    X, y = rows()
    fold = np.where(y == 3, 0, np.random.default_rng(3).integers(1, 5, len(X)))
    spread = jackknife_components(LDA(), parts_of(LDA(min_class_rows=1), X, y, fold))
    spread.check()
    assert len(spread.angles) == 3
    unknown = np.isnan(spread.components_std).all(axis=1)  # type: ignore[arg-type]
    assert unknown.sum() == 1
    # Without class 3 there are two components. The mean over 5 folds has one sine of 1, times 4.
    assert np.degrees(np.arcsin(np.sqrt(4 / 5))) <= spread.angles[unknown][0] <= 90.0
    np.testing.assert_array_equal(np.isnan(spread.eigenvalues_std), [False, False, True])


def test_a_projection_of_another_order_and_sign_gives_the_same() -> None:
    X, y = rows()
    parts = parts_of(LDA(), X, y, np.arange(len(X)) % 5)
    projection = LDA().fit(X, y).linear_projection()
    spread = jackknife_components(LDA(), parts)
    turned = jackknife_components(
        LDA(), parts, projection.orient_components(np.array([1, 0, 2]), np.array([1.0, -1.0, -1.0]))
    )
    for name in ("eigenvalues", "eigenvalues_std", "components_std", "angles"):
        np.testing.assert_allclose(getattr(turned, name), getattr(spread, name)[[1, 0, 2]], rtol=1e-6)


def test_rows_that_do_not_vary_have_a_spread_of_no_components() -> None:
    X, y = np.ones((30, 3)), np.arange(30) % 2
    spread = jackknife_components(LDA(), parts_of(LDA(), X, y, np.arange(30) // 2 % 5))
    spread.check()
    assert len(spread.angles) == len(spread.plane_angles) == 0
    assert component_angle_sentences(spread) == []


def test_rows_of_a_feature_map_have_the_spread_of_the_mapped_rows() -> None:
    X, y = rows()
    fold = np.arange(len(X)) % 5
    mapped = LDA(feature_map=polynomial(2, 500)).fit(X[:, :2], y)
    parts = parts_of(mapped, X[:, :2], y, fold)
    plain = jackknife_components(LDA(), [part.inner for part in parts])
    for got, wanted in zip(jackknife_components(mapped, parts, mapped.projection()), plain, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-7)  # type: ignore[arg-type]


def test_columns_of_a_table_are_scaled_as_by_the_estimator() -> None:
    X, y = rows()
    fold = np.arange(len(X)) % 5
    pca = PCA(feature_map=table()).fit(X)
    parts = [part._replace(table=pca.state_.table) for part in parts_of(pca, X, y, fold)]
    spread = jackknife_components(pca, parts, pca.projection())
    scaled = jackknife_components(PCA(standardize=True), parts_of(PCA(), X, y, fold))
    np.testing.assert_allclose(spread.eigenvalues_std, scaled.eigenvalues_std, rtol=1e-7)
    np.testing.assert_allclose(spread.angles, scaled.angles, rtol=1e-6)


def test_features_of_one_fold_only_count_as_zeros_in_the_others() -> None:
    X, y = rows()
    X[:, 5] = np.where(np.arange(len(X)) % 5 == 2, X[:, 5], 0.0)
    fold = np.arange(len(X)) % 5
    lda = LDA(scatter="diagonal")
    narrow = [clone(lda).fit(sp.csr_matrix(X[fold == f, : 6 if f == 2 else 5]), y[fold == f]).state_ for f in range(5)]
    dense = jackknife_components(lda, parts_of(lda, X, y, fold))
    spread = jackknife_components(lda, narrow)
    np.testing.assert_allclose(spread.angles, dense.angles, rtol=1e-6)
    np.testing.assert_allclose(spread.components_std, dense.components_std, rtol=1e-6, atol=1e-9)


def test_parts_and_estimator_stay_as_they_are() -> None:
    X, y = rows()
    lda = LDA(gamma=3.0).fit(X, y)
    before = lda.components_.copy()
    jackknife_components(lda, parts_of(lda, X, y, np.arange(len(X)) % 5))
    assert lda.gamma == 3.0
    np.testing.assert_array_equal(lda.components_, before)


@pytest.mark.parametrize("filled", [0, 1, 2])
def test_fewer_than_three_folds_are_refused(filled: int) -> None:
    X, _ = rows(30)
    fold = np.arange(30) % max(filled, 1) if filled else np.full(30, 9)
    with pytest.raises(errors.NotFitted, match=f"{filled} of 5 folds have rows.*3 folds.*more rows"):
        jackknife_components(PCA(), parts_of(PCA(), X, X[:, 0], fold))


def test_a_spread_of_other_shapes_is_damaged() -> None:
    X, y = rows()
    spread = jackknife_components(LDA(), parts_of(LDA(), X, y, np.arange(len(X)) % 5))
    for change in (
        {"angles": spread.angles[:2]},
        {"angles": spread.angles + 90.0},
        {"angles": spread.angles * np.nan},
        {"components_std": spread.eigenvalues},
        {"plane_angles": np.full(2, 91.0)},
        {"eigenvalues": np.zeros(2)},
        {"folds": 2},
    ):
        with pytest.raises(errors.DamagedFile):
            spread._replace(**change).check()  # type: ignore[arg-type]


def test_sentences() -> None:
    zeros = np.zeros(5)
    angles = np.array([2.0, 0.1, 40.4, 38.0, 61.0])
    planes = np.array([np.nan, np.nan, 6.0, np.nan])
    assert component_angle_sentences(ComponentSpread(zeros, zeros, np.zeros((5, 2)), angles, planes, 10)) == [
        "Component 1 is known to 2°, 2 to 1°.",
        "Components 3 and 4 are known to 40° only; their plane to 6°.",
        "Component 5 is known to 61° only.",
    ]


VALUES: list[tuple[str, dict[str, Any]]] = [(key, {}) for key in CLOSED_FORMS]
VALUES += [("wmv", {"pairs": "share"}), ("srp", {"scaling": "source"}), ("skm", {"a": 0.5}), ("pca", {"whiten": True})]
VALUES += [
    ("opls", {"gamma": 9.0}),
    ("lda", {"gamma": 9.0}),
    ("cca", {"scaling": "source"}),
    ("spca", {"kernel": "rbf"}),
]
VALUES += [("pca", {"standardize": True}), ("opls", {"standardize": True}), ("lda", {"shrinkage": 0.2})]


@pytest.mark.parametrize(("key", "params"), VALUES)
def test_eigenvalues_grow_with_the_rows_as_declared(key: str, params: dict[str, Any]) -> None:
    X, y = rows()
    once = CLOSED_FORMS[key](**params)
    once.fit(X, y)
    doubled = {"gamma": 2.0 * once.gamma} | {k: v for k, v in params.items() if k != "gamma"}
    twice = CLOSED_FORMS[key](**doubled).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    np.testing.assert_allclose(twice.eigenvalues_, once.eigenvalues_ * 2.0**once.eigenvalue_growth, rtol=1e-8)


@pytest.mark.parametrize("key", CLOSED_FORMS)
def test_every_closed_form_has_a_spread(key: str) -> None:
    X, y = rows()
    estimator = CLOSED_FORMS[key]()
    spread = jackknife_components(estimator, parts_of(estimator, X, y, np.arange(len(X)) % 5))
    spread.check()
    fitted = estimator.fit(X, y)
    assert spread.components_std.shape == fitted.components_.shape
    assert (np.abs(spread.eigenvalues - fitted.eigenvalues_) <= 0.8 * np.abs(fitted.eigenvalues_)).any()
