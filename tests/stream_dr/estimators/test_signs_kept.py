"""Components keep sign and order from one solution to the next, in every estimator and over what is done to it."""

import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import stream_dr
from stream_dr import CCA, ESTIMATORS, LDA, OPLS, PCA, SRP
from tests.stream_dr.estimators.fitting.test_refining import Blocks, blocks
from tests.stream_dr.estimators.test_contract import learned, part, rows, targets
from tests.support.pairwise import pairwise

KEYS = [key for key in ESTIMATORS if key != "information_gain"]  # which has columns, not axes


def turns(before: np.ndarray, after: np.ndarray) -> int:
    """How many columns of what the same rows are projected to point away from where they pointed."""
    p = min(before.shape[1], after.shape[1])
    return int(np.count_nonzero(((before - before.mean(axis=0))[:, :p] * after[:, :p]).sum(axis=0) < 0))


@pytest.mark.parametrize("estimator", [PCA(10), LDA(gamma=1.0), CCA(gamma=1.0), SRP(6)], ids=lambda e: type(e).__name__)
def test_nothing_turns_in_20_updates_on_digits(estimator: Any) -> None:
    X, y = load_digits(return_X_y=True)
    y = y if estimator.target_kinds else None
    model, before, as_solved = clone(estimator), None, None
    turned = would_turn = 0
    for at in np.array_split(np.arange(len(X)), 20):
        Z = model.partial_fit(X[at], part(y, at)).transform(X)
        alone = model.solve(model.state_).apply(X)
        if before is not None:
            rows = slice(at[-1] + 1)
            turned, would_turn = turned + turns(before[rows], Z[rows]), would_turn + turns(as_solved[rows], alone[rows])
        before, as_solved = Z, alone
    assert turned == 0
    assert would_turn > 0 or not isinstance(model, PCA)


@pytest.mark.parametrize(
    ("kind", "scatter", "feature_map"),
    pairwise(product([LDA, CCA, OPLS], ["exact", "diagonal"], [None, stream_dr.random_fourier(30, gamma=0.01)])),
)
def test_features_of_other_units_do_not_turn_what_rows_are_projected_to(
    kind: Any, scatter: str, feature_map: Any
) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    X = rng.normal(size=(2000, 5)) * [1, 1, 1, 1, 1e-4]  # the last one's loading is the largest by far, and noise
    X[:, 0] += 2 * y
    model, before = kind(scatter=scatter, feature_map=feature_map), None
    for at in np.array_split(np.arange(2000), 50):
        Z = model.partial_fit(X[at], y[at]).transform(X)[:, :1]
        assert before is None or turns(before, Z) == 0
        before = Z


@pytest.mark.parametrize("key", KEYS)
def test_answers_keep_their_signs_while_rows_come(key: str) -> None:
    X, y = rows(240)
    y = targets(key, y)
    model, before = learned(key, X[:120], part(y, slice(120))), None
    for start in range(120, 240, 10):
        Z = model.transform(X)
        assert before is None or turns(before, Z) == 0
        before = Z
        model.partial_fit(X[start : start + 10], part(y, slice(start, start + 10)))


def opposed(key: str, **params: Any) -> tuple[Any, np.ndarray, Any]:
    """An estimator that has shown a projection whose signs are all opposed to those it would have by itself."""
    X, y = rows()
    y = targets(key, y)
    model = ESTIMATORS[key](**params).partial_fit(X, y)
    alone = model.transform(X).copy()
    fitted = model.fitted_
    fitted.shown, fitted.projection = (
        fitted.shown.orient_components(np.arange(model.rank_), -np.ones(model.rank_)),
        None,
    )
    np.testing.assert_allclose(model.transform(X), -alone, atol=1e-12)
    return model, X, y


ORIENTED = [key for key in KEYS if key not in ("ccipca", "iskm")]


@pytest.mark.parametrize("key", ORIENTED)
def test_saved_and_pickled_estimators_keep_them_bit_equal(key: str, tmp_path: Any) -> None:
    model, X, y = opposed(key)
    model.save(tmp_path / "saved")
    for back in (stream_dr.load(tmp_path / "saved"), pickle.loads(pickle.dumps(model))):
        assert back.transform(X).tobytes() == model.transform(X).tobytes()
    back = stream_dr.load(tmp_path / "saved")
    for one in (back, model):
        one.partial_fit(X[:9] + 0.1, part(y, slice(9)))
    assert back.transform(X).tobytes() == model.transform(X).tobytes()


@pytest.mark.parametrize("key", ORIENTED)
def test_clones_and_fit_start_anew(key: str) -> None:
    model, X, y = opposed(key)
    opposite = model.transform(X).copy()
    for fresh in (clone(model).fit(X, y), model.fit(X, y)):
        np.testing.assert_allclose(fresh.transform(X), -opposite, atol=1e-12)


@pytest.mark.parametrize("key", ORIENTED)
def test_a_merge_keeps_those_of_the_one_merged_into(key: str) -> None:
    model, X, y = opposed(key)
    before = model.transform(X).copy()
    other = learned(key, X + 0.01, y)
    signs = other.transform(X).copy()
    assert turns(before, model.merge(other).transform(X)) == 0
    assert turns(signs, other.transform(X)) == 0


@pytest.mark.parametrize("key", [key for key in ORIENTED if ESTIMATORS[key].additive])
def test_unlearning_keeps_them(key: str) -> None:
    model, X, y = opposed(key)
    before = model.transform(X).copy()
    assert turns(before, model.unlearn(X[:3], part(y, slice(3))).transform(X)) == 0


def test_refine_keeps_them_and_a_saved_refined_model_has_them(tmp_path: Any) -> None:
    model, X, y = opposed("lda", scatter="diagonal")
    before = model.transform(X).copy()
    assert turns(before, model.refine(Blocks(blocks(X, y))).transform(X)) == 0
    model.save(tmp_path / "saved")
    back = stream_dr.load(tmp_path / "saved")
    assert back.transform(X).tobytes() == model.transform(X).tobytes()
    assert back.solution_ == "refined"
