"""cross_validate against models of the rows, one for each fold and value."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import CCA, HSL, LDA, OPLS, PLSDA, errors, polynomial
from stream_dr.estimators import make
from stream_dr.estimators.fitting.folds import leave_one_fold_out
from stream_dr.estimators.fitting.mapping import merged_mapped_state
from stream_dr.estimators.fitting.two_stage_method import RELATIVE_RIDGES
from stream_dr.statistics.protocol import pack, unpack
from stream_dr.uncertainty import CrossValidation
from tests.naive import ridge_path as naive

pytestmark = pytest.mark.filterwarnings("ignore:gamma='cv' chose")

rng = np.random.default_rng(5)
N, D, K = 120, 6, 4
CLASSES = np.array([["a", "b", "c"][i] for i in rng.integers(0, 3, N)])
SETS = [sorted({"abcd"[i % 4], "abcd"[(i * i) % 4]}) if i % 7 else [] for i in range(N)]
X = rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) * np.linspace(0.5, 3.0, D) + (CLASSES == "b")[:, None]
NUMBERS = X[:, :2] @ [[1.0, 0.5], [0.2, -1.0]] + 3 * rng.normal(size=(N, 2)) + [0.0, 50.0]
FOLD = rng.integers(0, K, N)
WEIGHTS = rng.uniform(0.2, 3.0, N)
TARGETS: dict[str, Any] = {"class": CLASSES, "multilabel": SETS, "continuous": NUMBERS}
ROWS = {
    "plain": X,
    "offset": X + 1e6,
    "rank-deficient": np.hstack([X, X[:, :2]]),
    "near-copies of columns": np.hstack([X, X[:, :2] + 1e-5 * rng.normal(size=(N, 2))]),
    "more columns than rows": np.hstack([X, rng.normal(size=(N, 150))]),
    "constant column": np.hstack([X, np.full((N, 1), 1e5 / 3)]),
}
WAYS = [
    ("lda", "class"),
    ("opls", "class"),
    ("opls", "multilabel"),
    ("opls", "continuous"),
    ("cca", "class"),
    ("cca", "multilabel"),
    ("cca", "continuous"),
    ("hsl", "multilabel"),
    ("hsl", "class"),
    ("plsda", "class"),
    ("plsda", "multilabel"),
    ("plsda", "continuous"),
]


def subset(y: Any, mask: np.ndarray) -> Any:
    return [y[i] for i in np.flatnonzero(mask)] if isinstance(y, list) else y[mask]


def fold_states(estimator: Any, rows: np.ndarray, y: Any, fold: np.ndarray, weights: np.ndarray | None = None) -> Any:
    """State of each fold, of its own rows alone, so the order of the labels differs."""
    w = np.ones(len(rows)) if weights is None else weights
    states = []
    for f in range(K):
        mask = fold == f
        model = type(estimator)(**estimator.get_params())
        states.append(model.partial_fit(rows[mask], subset(y, mask), sample_weight=w[mask]).state_)
    return states


def compare(key: str, params: dict[str, Any], rows: Any, y: Any, fold: Any, weights: Any = None, kind: str = "") -> Any:
    estimator = make(key, params)
    parts = fold_states(estimator, rows, y, fold, weights)
    least = estimator.min_class_rows if kind == "class" else 1
    w = np.ones(len(rows)) if weights is None else weights
    standardize = bool(params.get("standardize"))
    task = naive.Task(key, np.asarray(rows), naive.encode(y, key), w, fold, standardize, least)
    if key == "plsda":
        path: Any = estimator.cross_validate(parts)
        expected = naive.cross_validate(task, path.values.tolist())
    else:
        path = estimator.cross_validate(parts)
        expected = naive.cross_validate(task, path.tau.tolist())
        unit = naive.unit(naive.train(task, np.ones(len(rows), dtype=bool)).A)
        np.testing.assert_allclose(path.values, path.tau * unit, rtol=1e-9)
    worst = (np.abs(path.mean - expected.mean) / expected.rounding).max()
    assert worst <= 1.0, worst
    # The folds' errors have the rounding of their mean, times the number of folds.
    assert (np.abs(path.std_error - expected.std_error) <= K * expected.rounding).all()
    assert path.mean[path.chosen] == path.mean.min()
    path.check()
    return path


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("key", "kind"), WAYS)
def test_rows_of_every_kind(key: str, kind: str, rows: str) -> None:
    compare(key, {}, ROWS[rows], TARGETS[kind], FOLD, kind=kind)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize(("key", "kind"), WAYS)
def test_weights_an_empty_fold_and_standardize(key: str, kind: str, standardize: bool) -> None:
    fold = np.where(FOLD == 1, 2, FOLD)
    rows = ROWS["constant column"] * np.geomspace(1.0, 1e3, D + 1)
    compare(key, {"standardize": standardize}, rows, TARGETS[kind], fold, WEIGHTS, kind)


@pytest.mark.parametrize(("key", "kind"), WAYS)
def test_a_fold_whose_rows_have_weight_0_is_empty(key: str, kind: str) -> None:
    compare(key, {"min_class_rows": 1}, X, TARGETS[kind], FOLD, np.where(FOLD == 1, 0.0, WEIGHTS), kind)


@pytest.mark.parametrize(("key", "kind"), [way for way in WAYS if way[1] != "continuous"])
@pytest.mark.parametrize("params", [{}, {"min_class_rows": 1}])
def test_labels_that_only_some_folds_have(key: str, kind: str, params: dict[str, Any]) -> None:
    # "lone" has one row, "pair" a row in each of two folds, and all rows of "c" or "d" are in one fold.
    fold = FOLD.copy()
    first, second = np.flatnonzero(fold == 0)[0], np.flatnonzero(fold == 2)[:2]
    if kind == "class":
        y: Any = CLASSES.astype(object)
        fold[y == "c"] = 3
        y[first], y[second[0]], y[second[1]] = "pair", "pair", "lone"
    else:
        y = [list(row) for row in SETS]
        fold[["d" in row for row in y]] = 3
        for i, label in ((first, "pair"), (second[0], "pair"), (second[1], "lone")):
            y[i].append(label)
    compare(key, params, X, y, fold, kind=kind)


def test_numbers_of_components_end_at_the_rank() -> None:
    path = compare("plsda", {}, ROWS["rank-deficient"], NUMBERS, FOLD)
    assert path.values.tolist() == list(range(1, D + 1))
    wide = np.hstack([X, rng.normal(size=(N, 40))])
    assert len(compare("plsda", {}, wide, NUMBERS, FOLD).mean) == 25


def test_targets_that_do_not_vary_have_one_component_or_any_ridge() -> None:
    ones = np.ones((N, 1))
    path = PLSDA().cross_validate(fold_states(PLSDA(), X, ones, FOLD))
    assert path.values.tolist() == [1]
    assert path.mean == pytest.approx(0.0, abs=1e-12)
    assert CCA().cross_validate(fold_states(CCA(), X, ones, FOLD)).mean == pytest.approx(0.0, abs=1e-12)


def test_folds_of_sparse_rows_of_different_widths() -> None:
    wide = np.hstack([X, np.where(FOLD == 2, 1.0, 0.0)[:, None] * rng.normal(size=(N, 1))])
    parts = []
    for f in range(K):
        mask = f == FOLD
        rows = sp.csr_matrix(wide[mask][:, : D + (f == 2)])
        parts.append(LDA(scatter="exact").fit(rows, CLASSES[mask]).state_)
    expected = LDA().cross_validate(fold_states(LDA(), wide, CLASSES, FOLD))
    np.testing.assert_allclose(LDA().cross_validate(parts).mean, expected.mean, rtol=1e-9)


def test_mapped_rows_are_cross_validated_by_their_inner_states() -> None:
    estimator = LDA(feature_map=polynomial(2))
    parts = [merged_mapped_state(state) for state in fold_states(estimator, X, CLASSES, FOLD)]
    path = estimator.cross_validate(parts)
    products = np.array([[a * b for i, a in enumerate(row) for b in row[i:]] for row in X])
    assert parts[0].n_features in (D + products.shape[1], 1 + D + products.shape[1])
    assert path.mean.min() > 0


@pytest.mark.parametrize("folds", [1, 2, 3, 5, 8])
def test_others_of_each_fold(folds: int) -> None:
    fold = np.arange(N) % folds
    parts = [LDA().fit(X[fold == f], CLASSES[fold == f]).state_ for f in range(folds)]
    rest = list(leave_one_fold_out(parts))
    assert [state.rows for state in rest] == [N - part.rows for part in parts]
    for f, state in enumerate(rest):
        if folds == 1:
            continue
        expected = LDA().fit(X[fold != f], CLASSES[fold != f]).state_.centred()
        got = state.centred()
        order = [got.labels.index(label) for label in expected.labels]
        np.testing.assert_allclose(got.scatter, expected.scatter, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got.cross[:, order], expected.cross, rtol=1e-9, atol=1e-9)
    assert list(leave_one_fold_out([])) == []


def test_one_standard_error_takes_the_largest_ridge_that_is_about_as_good() -> None:
    parts = fold_states(OPLS(), X, NUMBERS, FOLD)
    best, simple = OPLS().cross_validate(parts), OPLS(one_standard_error=True).cross_validate(parts)
    np.testing.assert_array_equal(simple.mean, best.mean)
    limit = best.mean.min() + best.std_error[best.chosen]
    assert simple.chosen > best.chosen
    assert simple.mean[simple.chosen] <= limit
    assert (simple.mean[simple.chosen + 1 :] > limit).all()


def test_a_choice_at_the_end_of_the_grid_is_told() -> None:
    clean = X[:, :1] + X[:, 1:2]
    low = fold_states(OPLS(), X, clean, FOLD)
    with pytest.warns(UserWarning, match="an end of the compared values.*standardize=True"):
        assert OPLS().cross_validate(low).chosen in (0, 1)
    # Each fold contradicts most of the other folds, so that every prediction is harmful.
    high = fold_states(OPLS(), X, X[:, :1] * np.where(FOLD % 2, 1.0, -1.0)[:, None], FOLD)
    with pytest.warns(UserWarning, match="an end of the compared values") as told:
        assert OPLS(standardize=True).cross_validate(high).chosen == len(RELATIVE_RIDGES) - 1
    assert "standardize" not in str(told[0].message)
    assert told[0].filename == __file__
    noisy = fold_states(OPLS(), X[:, :5], X[:, 5:] + 6 * rng.normal(size=(N, 1)), FOLD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 1 < OPLS().cross_validate(noisy).chosen < len(RELATIVE_RIDGES) - 1


@pytest.mark.parametrize("key", ["opls", "plsda"])
def test_what_cannot_be_cross_validated_is_refused(key: str) -> None:
    estimator = make(key, {})
    name = "gamma" if key == "opls" else "n_components"
    parts = fold_states(estimator, X, CLASSES, FOLD % 2)
    with pytest.raises(errors.NotFitted, match=f"{name}='cv' needs rows in at least 3 folds; 2 of 4"):
        estimator.cross_validate(parts)
    with pytest.raises(errors.NotFitted, match="0 of 0"):
        estimator.cross_validate([])
    diagonal = fold_states(make(key, {"scatter": "diagonal"}), X, CLASSES, FOLD)
    with pytest.raises(errors.InvalidParameter, match="scatter='exact' before the rows are learned"):
        estimator.cross_validate(diagonal)
    wide = fold_states(estimator, np.zeros((N, 2049)), CLASSES, FOLD)
    with pytest.raises(errors.InvalidParameter, match="at most 2,048 features; there are 2,049"):
        estimator.cross_validate(wide)


def test_parameters_that_exclude_cross_validation() -> None:
    for estimator in (LDA(gamma="cv"), OPLS(gamma="cv"), CCA(gamma="cv"), HSL(gamma="cv")):
        estimator.check_parameters()
        estimator.shrinkage = 0.1
        with pytest.raises(errors.InvalidParameter, match=r"shrinkage=0\.1 are two ways"):
            estimator.check_parameters()
    with pytest.raises(errors.InvalidParameter, match="Give laplacian='zhou'"):
        HSL(laplacian="star", gamma="cv").check_parameters()


def test_paths_are_stored_and_checked() -> None:
    path = LDA().cross_validate(fold_states(LDA(), X, CLASSES, FOLD))
    again = unpack(CrossValidation, *pack(path))
    assert again.chosen == path.chosen
    np.testing.assert_array_equal(again.mean, path.mean)
    parts = PLSDA().cross_validate(fold_states(PLSDA(), X, CLASSES, FOLD))
    assert unpack(CrossValidation, *pack(parts)).chosen == parts.chosen
    for damaged in (
        path._replace(chosen=26),
        path._replace(mean=path.mean[1:]),
        path._replace(std_error=-path.std_error),
        parts._replace(chosen=-1),
        parts._replace(values=parts.values - 2),
        parts._replace(mean=parts.mean[None]),
    ):
        with pytest.raises(errors.DamagedFile):
            damaged.check()
