"""What every registered estimator must keep; a new one inherits all of it by its line in the registry.

Nothing here names an estimator: what one can do is read from `target_kinds` and `additive`.
"""

import pickle
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import stream_dr
from stream_dr import ESTIMATORS, errors
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.statistics.protocol import pack, unpack
from tests.support.scikit_learn import expected_failed_checks

KEYS = list(ESTIMATORS)
ADDITIVE = [key for key in KEYS if ESTIMATORS[key].additive]
SEQUENTIAL = [key for key in KEYS if not ESTIMATORS[key].additive]
SUPERVISED = [key for key in KEYS if ESTIMATORS[key].target_kinds]


def rows(n: int = 60, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes of different mean, features of different scale."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = random.normal(size=(n, d)) * (1.0 + np.arange(d)) + np.eye(3, d)[y] * 8.0
    return np.round(X, 3), y


def targets(key: str, y: np.ndarray) -> Any:
    """Targets of the first kind the estimator learns from, or None."""
    kinds = ESTIMATORS[key].target_kinds
    if not kinds:
        return None
    if "class" in kinds:
        return np.array(["a", "b", "c"])[y]
    return [["abc"[v]] for v in y] if kinds[0] == "multilabel" else y.astype(float)


def part(y: Any, chosen: Any) -> Any:
    """The chosen targets."""
    return None if y is None else y[chosen]


def learned(key: str, X: Any, y: Any, batches: int = 1) -> Any:
    """A new estimator that has learned the rows in so many calls."""
    estimator = ESTIMATORS[key]()
    for chosen in np.array_split(np.arange(X.shape[0]), batches):
        estimator.partial_fit(X[chosen], part(y, chosen))
    return estimator


def packed(estimator: Any) -> tuple[dict[str, Any], Any]:
    """The state's bytes and description."""
    arrays, description = pack(estimator.state_)
    return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}, description


def close(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-9) -> None:
    """Equal up to the sign of columns."""
    assert a.shape == b.shape
    signs = np.where((a * b).sum(axis=0) < 0, -1.0, 1.0)
    np.testing.assert_allclose(a, b * signs, atol=tolerance * max(1.0, float(np.abs(a).max(initial=0.0))))


@pytest.mark.test_all
@parametrize_with_checks([ESTIMATORS[key]() for key in KEYS], expected_failed_checks=expected_failed_checks)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("key", KEYS)
def test_batching_does_not_matter(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    whole = learned(key, X, y)
    for batches in (2, 7, 60):
        cut = learned(key, X, y, batches)
        close(whole.transform(X), cut.transform(X))
        assert cut.n_samples_seen_ == 60


@pytest.mark.parametrize("key", ADDITIVE)
def test_sparse_rows_are_dense_rows(key: str) -> None:
    X, y = rows()
    X[np.abs(X) < 2.0] = 0.0
    y = targets(key, y)
    close(learned(key, X, y, 3).transform(X), learned(key, sp.csr_matrix(X), y, 3).transform(sp.csr_matrix(X)), 1e-7)


@pytest.mark.parametrize("key", KEYS)
def test_a_saved_estimator_goes_on_bit_equal(key: str, tmp_path: Any) -> None:
    X, y = rows()
    y = targets(key, y)
    whole = learned(key, X[:40], part(y, slice(0, 40)))
    whole.save(tmp_path / "saved")
    back = stream_dr.load(tmp_path / "saved")
    assert packed(back) == packed(whole)
    for estimator in (whole, back):
        estimator.partial_fit(X[40:], part(y, slice(40, 60)))
    assert packed(back) == packed(whole)
    assert back.transform(X).tobytes() == whole.transform(X).tobytes()


@pytest.mark.parametrize("key", KEYS)
def test_a_state_unpacks_to_itself(key: str) -> None:
    X, y = rows()
    estimator = learned(key, X, targets(key, y))
    arrays, description = pack(estimator.state_)
    state = unpack(ESTIMATORS[key].state_type, arrays, description)
    again = ESTIMATORS[key]().accumulator(state)
    assert pack(again.freeze())[1] == description
    assert again.rows == 60
    assert again.n_features == 6


@pytest.mark.parametrize("key", KEYS)
def test_a_state_does_not_change_with_later_rows(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    estimator = learned(key, X[:30], part(y, slice(0, 30)))
    state = estimator.state_
    before = {name: a.tobytes() for name, a in pack(state)[0].items()}
    estimator.partial_fit(X[30:], part(y, slice(30, 60)))
    assert {name: a.tobytes() for name, a in pack(state)[0].items()} == before


@pytest.mark.parametrize("key", KEYS)
def test_fit_starts_anew_and_partial_fit_goes_on(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    estimator = learned(key, X, y, 2).fit(X[:30], part(y, slice(0, 30)))
    assert estimator.n_samples_seen_ == 30
    close(estimator.transform(X), learned(key, X[:30], part(y, slice(0, 30))).transform(X))


@pytest.mark.parametrize("key", KEYS)
def test_clone_pickle_names_and_frames(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    estimator = clone(ESTIMATORS[key]()).fit(X, y)
    assert pickle.loads(pickle.dumps(estimator)).transform(X).tobytes() == estimator.transform(X).tobytes()
    names = estimator.get_feature_names_out()
    assert len(names) == estimator.rank_
    frame = estimator.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == list(names)


@pytest.mark.parametrize("key", KEYS)
def test_fitted_attributes_are_the_projection_or_say_what_to_read(key: str) -> None:
    X, y = rows()
    estimator = learned(key, X, targets(key, y))
    p = estimator.rank_
    assert estimator.eigenvalues_.shape == (p,)
    assert (estimator.n_samples_seen_, estimator.n_features_in_) == (60, 6)
    assert estimator.solution_ in ("exact", "diagonal", "recurrence")
    assert len(estimator.classes_) == (3 if ESTIMATORS[key].target_kinds else 0)
    if hasattr(estimator, "components_"):
        assert estimator.components_.shape == (p, 6)
        close(estimator.transform(X), (X - estimator.mean_) @ estimator.components_.T)
    else:
        for name in ("components_", "mean_"):
            with pytest.raises(AttributeError, match=f"has no {name}: .* Read eigenvalues_"):
                getattr(estimator, name)


@pytest.mark.parametrize("key", KEYS)
def test_a_sparse_width_other_than_learned_is_refused_unless_features_grow(key: str) -> None:
    X, y = rows()
    X[np.abs(X) < 2.0] = 0.0
    estimator = learned(key, sp.csr_matrix(X), targets(key, y))
    answer = estimator.transform(sp.csr_matrix(X))
    wide = sp.csr_matrix(np.pad(X, ((0, 0), (0, 2)), constant_values=5.0))
    for other in (wide, sp.csr_matrix(X[:, :4])):
        with pytest.raises(errors.WidthMismatch, match=f"X has {other.shape[1]} features.*expecting 6"):
            estimator.transform(other)
    assert np.array_equal(estimator.transform(stream_dr.Block(wide, width_stated=False)), answer)
    assert estimator.transform(stream_dr.Block(sp.csr_matrix(X[:, :4]), width_stated=False)).shape == answer.shape


@pytest.mark.parametrize("key", KEYS)
def test_rows_in_single_precision_give_single_precision(key: str) -> None:
    X, y = rows()
    estimator = learned(key, X, targets(key, y))
    single = estimator.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(
        single, estimator.transform(X.astype(np.float32).astype(np.float64)).astype(np.float32)
    )
    assert estimator.transform(X.astype(np.int64)).dtype == np.float64


WITH_COMPONENTS = [key for key in KEYS if hasattr(ESTIMATORS[key](), "n_components") and key != "srp"]
"""A random projection has as many as it is asked for."""


@pytest.mark.parametrize("key", WITH_COMPONENTS)
@pytest.mark.parametrize("at_fit", [True, False])
def test_fewer_components_than_asked_for_are_told_once(key: str, at_fit: bool) -> None:
    X, y = rows()
    estimator, y = ESTIMATORS[key](n_components=500 if key != "information_gain" else 501), targets(key, y)
    if not at_fit:
        estimator.partial_fit(X, y)
    with pytest.warns(errors.FewerComponents, match=" components, not the n_components=50") as told:
        _ = estimator.fit(X, y) if at_fit else estimator.transform(X)
    estimator.transform(X)  # a second warning would be an error
    assert len(told) == 1
    assert f" has {estimator.rank_} components" in str(told[0].message)
    assert "60 rows of 6 features" in str(told[0].message)


def test_what_fits_is_not_solved_before_it_is_asked_for() -> None:
    X, y = rows()
    for asked in (None, 1):
        assert stream_dr.LDA(n_components=asked).fit(X, y).fitted_.projection is None
    assert stream_dr.PLSDA().fit(X, y == y[0]).fitted_.projection is None  # a default was not asked for


@pytest.mark.parametrize("key", KEYS)
def test_transform_changes_nothing(key: str) -> None:
    X, y = rows()
    estimator = learned(key, X, targets(key, y))
    before = dict(vars(estimator)), packed(estimator)
    estimator.transform(X)
    assert (dict(vars(estimator)), packed(estimator)) == before


@pytest.mark.parametrize("key", ADDITIVE)
def test_merge_is_one_stream(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    whole, first, second = learned(key, X, y), learned(key, X[:23], part(y, slice(0, 23))), ESTIMATORS[key]()
    second.partial_fit(X[23:], part(y, slice(23, 60)))
    untouched = packed(second)
    assert first.merge(second) is first
    assert packed(second) == untouched
    close(first.transform(X), whole.transform(X))
    assert first.n_samples_seen_ == 60
    assert list(getattr(first, "classes_", [])) == list(getattr(whole, "classes_", []))


@pytest.mark.parametrize("key", ADDITIVE)
def test_unlearned_is_never_learned(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    estimator = learned(key, X, y).unlearn(X[:20], part(y, slice(0, 20)))
    close(estimator.transform(X), learned(key, X[20:], part(y, slice(20, 60))).transform(X))
    assert estimator.n_samples_seen_ == 40


@pytest.mark.parametrize("key", ADDITIVE)
def test_a_weight_is_a_number_of_rows(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    weights = np.arange(60) % 3
    often = np.repeat(np.arange(60), weights)
    weighted = ESTIMATORS[key]().fit(X, y, sample_weight=weights)
    close(weighted.transform(X), learned(key, X[often], part(y, often)).transform(X))


@pytest.mark.parametrize("key", SEQUENTIAL)
def test_what_is_no_sum_cannot_unlearn_and_says_whether_it_merges(key: str) -> None:
    X, y = rows()
    estimator = learned(key, X, targets(key, y))
    before = packed(estimator)
    with pytest.raises(errors.CannotUnlearn):
        estimator.unlearn(X, targets(key, y))
    if ESTIMATORS[key].merge is Estimator.merge:
        with pytest.raises(errors.CannotMerge):
            estimator.merge(clone(estimator).fit(X, targets(key, y)))
        with pytest.raises(TypeError):
            estimator.partial_fit(X, targets(key, y), sample_weight=np.ones(60))
    assert packed(estimator) == before


@pytest.mark.parametrize("key", KEYS)
def test_state_bytes_are_an_upper_bound(key: str) -> None:
    X, y = rows()
    estimator = learned(key, X, targets(key, y))
    size = sum(a.nbytes for a in pack(estimator.state_)[0].values())
    assert ESTIMATORS[key]().state_bytes(6, 3) > 0
    assert size <= 4 * ESTIMATORS[key]().state_bytes(6, 3) + 4096


@pytest.mark.parametrize("key", KEYS)
def test_the_docstring_says_the_cost_and_whether_it_merges_and_unlearns(key: str) -> None:
    text = " ".join((ESTIMATORS[key].__doc__ or "").split()).lower()
    assert re.search(r"\ba row (costs )?o\(", text), "time a row"
    assert re.search(r"\bstate: |\bstate (of dense rows )?(has|takes|is)|\bmemory ", text), "memory"
    assert "merge" in text
    assert "unlearn" in text
    X, y = rows()
    part, labels = ESTIMATORS[key](), targets(key, y)
    for verb, refusal, act in (
        ("merge", errors.CannotMerge, lambda: part.merge(ESTIMATORS[key]().fit(X, labels))),
        ("unlearn", errors.CannotUnlearn, lambda: part.unlearn(X[:1], None if labels is None else labels[:1])),
    ):
        part.fit(X, labels)
        if f"does not {verb}" in text or f"cannot be {verb}" in text:
            with pytest.raises(refusal):
                act()
        else:
            act()


@pytest.mark.parametrize("key", [key for key in KEYS if "decay" in ESTIMATORS[key]().get_params()])
@pytest.mark.parametrize("params", [{}, {"folds": 3}, {"feature_map": stream_dr.polynomial()}])
def test_no_rows_are_unlearned_under_decay(key: str, params: dict[str, Any]) -> None:
    X, y = rows()
    y = targets(key, y)
    estimator = ESTIMATORS[key](decay=0.9, **params).fit(X, y)
    before = pack(estimator.state_)[0]
    for chosen in (slice(0, 10), slice(20, 30), slice(-10, None), slice(None)):
        with pytest.raises(errors.CannotUnlearn, match=r"decay=0\.9"):
            estimator.unlearn(X[chosen], part(y, chosen))
    after = pack(estimator.state_)[0]
    assert all(np.array_equal(before[name], after[name]) for name in before)
