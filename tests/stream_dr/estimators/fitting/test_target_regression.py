"""CCA, OPLS and PLSDA predict their targets: against scikit-learn's cross_decomposition and Ridge."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import cross_decomposition, metrics
from sklearn.datasets import load_digits, load_wine, make_regression
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score

import stream_dr
from stream_dr import CCA, OPLS, PLSDA, errors

X, Y = make_regression(200, 8, n_targets=3, noise=20.0, random_state=0)
X, Y = X * np.arange(1, 9) + 3.0, Y + np.array([5.0, 0.0, -2.0])


class Source:
    """The rows once more."""

    def __init__(self, X: Any, y: Any) -> None:
        self.X, self.y = X, y

    def events(self, after: int = -1, until: int | None = None) -> Any:
        yield 0, stream_dr.Block(self.X, self.y)


def learned(model: Any, X: Any, y: Any) -> Any:
    for part in np.array_split(np.arange(len(y)), 4):
        model.partial_fit(X[part], y[part])
    return model


@pytest.mark.parametrize("p", [1, 3, 5])
def test_plsda_is_pls_regression(p: int) -> None:
    mine = learned(PLSDA(p), X, Y)
    peer = cross_decomposition.PLSRegression(p, scale=False, tol=1e-28, max_iter=100_000).fit(X, Y)
    np.testing.assert_allclose(mine.coef_, peer.coef_, atol=1e-9 * np.abs(peer.coef_).max())
    np.testing.assert_allclose(mine.intercept_, peer.intercept_)
    np.testing.assert_allclose(mine.predict(X), peer.predict(X), atol=1e-7)
    signs = np.sign((mine.x_rotations_ * peer.x_rotations_).sum(axis=0))
    for name in ("x_rotations_", "x_loadings_", "y_loadings_"):
        np.testing.assert_allclose(getattr(mine, name) * signs, getattr(peer, name), atol=1e-7, err_msg=name)
    expected = peer.inverse_transform(peer.transform(X))
    np.testing.assert_allclose(mine.inverse_transform(mine.transform(X)), expected, atol=1e-7)


@pytest.mark.parametrize("kind", [CCA, OPLS])
@pytest.mark.parametrize("gamma", [0.0, 50.0])
@pytest.mark.parametrize("scaling", ["unit", "source"])
def test_with_all_components_it_is_ridge_regression(kind: Any, gamma: float, scaling: Any) -> None:
    mine, peer = learned(kind(gamma=gamma, scaling=scaling), X, Y), Ridge(gamma).fit(X, Y)
    np.testing.assert_allclose(mine.coef_, peer.coef_, atol=1e-8)
    np.testing.assert_allclose(mine.predict(X), peer.predict(X), atol=1e-8)
    one = learned(kind(gamma=gamma, scaling=scaling), X, Y[:, 0])
    np.testing.assert_allclose(one.predict(sp.csr_matrix(X)), Ridge(gamma).fit(X, Y[:, 0]).predict(X), atol=1e-8)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_ccas_directions_are_scikit_learns(p: int) -> None:
    mine = learned(CCA(p), X, Y)
    peer = cross_decomposition.CCA(p, scale=False, tol=1e-20, max_iter=100_000).fit(X, Y)
    signs = np.sign((mine.components_ * peer.x_rotations_.T).sum(axis=1))
    unit = mine.components_ / np.linalg.norm(mine.components_, axis=1)[:, None]
    theirs = (peer.x_rotations_ / np.linalg.norm(peer.x_rotations_, axis=0)).T
    np.testing.assert_allclose(unit * signs[:, None], theirs, atol=1e-5)
    z, v = mine.transform(X), (Y - Y.mean(axis=0)) @ mine.y_rotations_
    np.testing.assert_allclose(v.std(axis=0), 1.0)
    correlations = np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(z.T, v.T, strict=True)])
    np.testing.assert_allclose(correlations, np.sqrt(mine.eigenvalues_))
    theirs = peer.y_rotations_ / np.linalg.norm(peer.y_rotations_, axis=0)
    cosines = (theirs * mine.y_rotations_).sum(axis=0) / np.linalg.norm(mine.y_rotations_, axis=0)
    np.testing.assert_allclose(np.abs(cosines), 1.0, atol=1e-5)


def test_opls_of_reduced_rank_is_the_best_of_that_rank() -> None:
    mine, full = learned(OPLS(2), X, Y), Ridge(0.0).fit(X, Y).predict(X)
    left, values, right = np.linalg.svd(full - Y.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(mine.predict(X), (left[:, :2] * values[:2]) @ right[:2] + Y.mean(axis=0), atol=1e-7)


@pytest.mark.parametrize("kind", [CCA, OPLS, PLSDA])
def test_labels_are_those_predicted_highest(kind: Any) -> None:
    rows, y = load_wine(return_X_y=True)
    rows, names = rows / rows.std(axis=0), np.array(["c", "a", "b"])[y]
    mine = learned(kind(), rows, names)
    assert mine.classes_.tolist() == ["a", "b", "c"]
    indicators = (rows - mine.mean_) @ mine.coef_.T + mine.intercept_
    np.testing.assert_allclose(indicators.sum(axis=1), 1.0)
    assert np.array_equal(mine.predict(rows), mine.classes_[indicators.argmax(axis=1)])
    assert (mine.predict(rows) == names).mean() > 0.97
    expected = np.array([[1, 0], [0, 1], [1, 1]])[np.argsort([2, 0, 1])][y]
    several = learned(kind(target="multilabel"), rows, expected)
    assert (several.predict(rows) == expected).mean() > 0.9


@pytest.mark.parametrize("kind", [CCA, OPLS, PLSDA])
@pytest.mark.parametrize("standardize", [False, True])
def test_rows_come_back_by_least_squares(kind: Any, standardize: bool) -> None:
    mine = learned(kind(2, standardize=standardize), X, Y)
    z = mine.transform(X)
    expected = z @ np.linalg.lstsq(z, X - X.mean(axis=0), rcond=None)[0] + X.mean(axis=0)
    np.testing.assert_allclose(mine.inverse_transform(z), expected, atol=1e-8)
    np.testing.assert_allclose(mine.predict(X), (X - mine.mean_) @ mine.coef_.T + mine.intercept_, atol=1e-8)


@pytest.mark.parametrize("kind", [CCA, OPLS, PLSDA])
def test_refined_it_predicts_as_the_exact_solution(kind: Any, tmp_path: Any) -> None:
    rows, y = load_digits(return_X_y=True)
    rows = rows + np.random.default_rng(0).normal(size=rows.shape)
    given = {"gamma": 1.0} if kind is not PLSDA else {"n_components": 4}
    mine = kind(scatter="diagonal", **given).fit(rows, y).refine(Source(rows, y), max_passes=80)
    exact = kind(**given).fit(rows, y)
    np.testing.assert_allclose(mine.coef_, exact.coef_, atol=1e-6)
    with pytest.raises(errors.InvalidParameter, match="was refined"):
        mine.inverse_transform(np.zeros((1, mine.rank_)))
    mine.save(tmp_path / "saved")
    assert np.array_equal(stream_dr.load(tmp_path / "saved").predict(rows), mine.predict(rows))


@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_what_cannot_be_turned_back_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter, match="cannot be turned back"):
        OPLS(feature_map=stream_dr.random_fourier(20)).fit(X, Y).inverse_transform(np.ones((1, 3)))
    with pytest.raises(errors.WidthMismatch, match="3 components"):
        OPLS().fit(X, Y).inverse_transform(np.ones((1, 2)))
    with pytest.raises(errors.NotFitted):
        CCA().predict(X)


INDICATOR = np.greater(Y, Y.mean(axis=0)).astype(int)
LABEL_SETS = [[name for name, there in zip("abc", row, strict=True) if there] for row in INDICATOR]
CLASSES = np.array(["low", "high"])[INDICATOR[:, 0]]


@pytest.mark.parametrize("kind", [CCA, OPLS, PLSDA])
def test_score_is_what_scikit_learn_scores(kind: Any) -> None:
    weights = np.random.default_rng(0).random(len(X))
    for y in (Y, Y[:, 0], CLASSES, CLASSES == "low", INDICATOR):
        mine = kind().fit(X, y)
        scored = metrics.r2_score if y.dtype == float else metrics.accuracy_score
        assert mine.score(X, y) == pytest.approx(scored(y, mine.predict(X)))
        assert mine.score(X, y, weights) == pytest.approx(scored(y, mine.predict(X), sample_weight=weights))
    sets = kind().fit(X, LABEL_SETS)
    assert sets.score(X, LABEL_SETS) == pytest.approx(metrics.accuracy_score(INDICATOR, sets.predict(X)))


def part(y: Any, rows: np.ndarray) -> Any:
    """The targets of those rows."""
    return [y[row] for row in rows] if isinstance(y, list) else y[rows]


@pytest.mark.parametrize("kind", [CCA, OPLS, PLSDA])
def test_cross_val_score_takes_all_three_kinds_of_targets(kind: Any) -> None:
    for y in (Y, Y[:, 0], CLASSES, INDICATOR, LABEL_SETS):
        scores = cross_val_score(kind(), X, y, cv=4, error_score="raise")
        by_hand = []
        for train, test in KFold(4).split(X):
            ours = kind().fit(X[train], part(y, train))
            by_hand.append(ours.score(X[test], part(y, test)))
        np.testing.assert_allclose(scores, by_hand)
        assert np.all((scores > 0.4) & (scores <= 1.0))


def test_score_leaves_out_rows_without_a_target_and_counts_a_label_never_seen_as_wrong() -> None:
    opls = OPLS().fit(X, CLASSES)
    right = opls.predict(X)
    some = np.where(np.arange(len(X)) < 50, right, None)
    assert opls.score(X, some) == 1.0
    some[:10] = "never seen"
    assert opls.score(X, some) == 0.8
    sets = OPLS().fit(X, LABEL_SETS)
    known = [sets.classes_[row > 0].tolist() for row in sets.predict(X)]
    assert sets.score(X, known) == 1.0
    assert sets.score(X, [[*row, "d"] for row in known]) == 0.0
    frame = pd.DataFrame(X, columns=list("abcdefgh")).assign(y=CLASSES)
    assert OPLS().fit(frame, "y").score(frame, "y") == opls.score(X, CLASSES)
    with pytest.raises(errors.EmptyInput, match="nothing to score"):
        opls.score(X, [None] * len(X))
    with pytest.raises(errors.TargetsRequired):
        opls.score(X, None)


PRICES = (250_000 + (X - X.mean(0)) @ np.arange(8) * 300).round().astype(int)


@pytest.mark.parametrize("kind", [OPLS, CCA, PLSDA])
def test_whole_numbers_with_many_values_are_warned_of(kind: Any) -> None:
    with pytest.warns(errors.ManyLabels, match=f'{kind.__name__} reads whole numbers.*target="continuous"'):
        kind().fit(X, PRICES)
    with pytest.warns(errors.ManyLabels):
        learned(kind(), X, PRICES)
    model = kind(target="continuous").fit(X, PRICES)
    np.testing.assert_allclose(model.predict(X), kind().fit(X, PRICES + 0.0).predict(X))
    assert metrics.r2_score(PRICES, model.predict(X)) > 0.95


@pytest.mark.parametrize(
    ("y", "target"),
    [
        (PRICES, "class"),
        (PRICES.astype(str), "auto"),
        (PRICES + 0.0, "auto"),
        (np.arange(200) % 100, "auto"),
    ],
)
def test_other_targets_are_not_warned_of(y: np.ndarray, target: Any) -> None:
    OPLS(target=target).fit(X, y)


def test_classes_with_a_tenth_of_the_rows_are_not_warned_of() -> None:
    y = np.arange(2_000) % 200
    OPLS().fit(np.tile(X, (10, 1)), y)
    with pytest.warns(errors.ManyLabels):
        OPLS().fit(np.tile(X, (10, 1))[1:], y[1:])
