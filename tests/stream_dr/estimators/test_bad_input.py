"""Every refusal: a named error with a stable code, and an estimator that is what it was before. One helper checks it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import ESTIMATORS, errors
from stream_dr.statistics.protocol import pack

KEYS = list(ESTIMATORS)
SUPERVISED = [key for key in KEYS if ESTIMATORS[key].target_kinds]
ADDITIVE = [key for key in KEYS if ESTIMATORS[key].additive]
BOTH = [key for key in ADDITIVE if key in SUPERVISED]
ONE_LABEL = [key for key in SUPERVISED if "multilabel" not in ESTIMATORS[key].target_kinds]

X = np.random.default_rng(0).normal(size=(30, 5)) + np.eye(3, 5)[np.arange(30) % 3] * 4
Y = np.array(["a", "b", "c"])[np.arange(30) % 3]


def learned(key: str, **params: Any) -> Any:
    """An estimator that has learned X, with its projection solved."""
    estimator = ESTIMATORS[key](**params)
    estimator.partial_fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:])
    estimator.transform(X)
    return estimator


def remembered(estimator: Any) -> Any:
    """All that can be seen of an estimator."""
    arrays, description = pack(estimator.state_)
    bits = {name: a.tobytes() for name, a in arrays.items()}
    return bits, description, estimator.transform(X).tobytes(), estimator.get_params(), estimator.n_samples_seen_


def refuses(error: type, action: Callable[[Any], Any], estimator: Any, says: str | None = None) -> None:
    """The action raises the error, whose class has a code of its own, and changes nothing; nor does it as a first call."""
    before = remembered(estimator)
    with pytest.raises(error, match=says) as raised:
        action(estimator)
    assert isinstance(raised.value, errors.StreamDRError)
    assert raised.value.code == error.code  # type: ignore[attr-defined]
    assert len(str(raised.value)) > 20
    assert remembered(estimator) == before


def spoilt(value: float, row: int = 3, column: int = 2) -> np.ndarray:
    """X with one bad value."""
    bad = X.copy()
    bad[row, column] = value
    return bad


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("key", KEYS)
def test_values_that_are_not_finite(key: str, value: float) -> None:
    estimator = learned(key)
    says = "row 3, column 2"
    refuses(errors.NotFinite, lambda e: e.partial_fit(spoilt(value), Y), estimator, says)
    refuses(errors.NotFinite, lambda e: e.partial_fit(sp.csr_matrix(spoilt(value)), Y), estimator, says)
    refuses(errors.NotFinite, lambda e: e.fit(spoilt(value), Y), estimator, says)
    refuses(errors.NotFinite, lambda e: e.transform(spoilt(value)), estimator, says)
    fresh = ESTIMATORS[key]()
    with pytest.raises(errors.NotFinite):
        fresh.partial_fit(spoilt(value), Y)
    with pytest.raises(errors.NotFitted):
        fresh.transform(X)


@pytest.mark.parametrize("key", KEYS)
def test_rows_that_are_no_rows(key: str) -> None:
    estimator = learned(key)
    for bad in (X[0], X[None], [["x", "y", "z", "u", "v"]] * 30, X + 1j):
        refuses(errors.InvalidRows, lambda e, bad=bad: e.partial_fit(bad, Y), estimator)
        refuses(errors.InvalidRows, lambda e, bad=bad: e.transform(bad), estimator)
    refuses(errors.WidthMismatch, lambda e: e.partial_fit(X[:, :4], Y), estimator, "4 features")
    refuses(errors.WidthMismatch, lambda e: e.transform(X[:, :4]), estimator, "4 features")
    refuses(errors.WidthMismatch, lambda e: e.partial_fit(np.hstack([X, X]), Y), estimator, "10 features")


@pytest.mark.parametrize("key", KEYS)
def test_named_columns_that_are_not_the_streams(key: str) -> None:
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("pqrst"))
    estimator = ESTIMATORS[key]().fit(frame, Y)
    before = estimator.transform(frame)
    with pytest.raises(errors.SchemaMismatch, match="unknown columns"):
        estimator.partial_fit(frame.rename(columns={"p": "other"}), Y)
    assert estimator.n_samples_seen_ == 30
    assert estimator.transform(frame[list("tsrqp")]).tobytes() == before.tobytes()


@pytest.mark.parametrize("key", SUPERVISED)
def test_targets_of_wrong_number_kind_or_type(key: str) -> None:
    estimator = learned(key)
    refuses(errors.TargetsRequired, lambda e: e.partial_fit(X), estimator, "requires y")
    refuses(errors.InvalidTargets, lambda e: e.partial_fit(X, Y[:29]), estimator, "30 rows but 29 targets")
    refuses(errors.InvalidTargets, lambda e: e.partial_fit(X, np.arange(30)), estimator, "labels are int")
    refuses(errors.InvalidTargets, lambda e: e.partial_fit(X, ["a", 1] * 15), estimator)
    refuses(errors.InvalidTargets, lambda e: e.partial_fit(X, np.full(30, np.inf)), estimator)
    refuses(errors.TargetKindMismatch, lambda e: e.partial_fit(X, [["a"], ["b"]] * 15), estimator)
    refuses(errors.TargetKindMismatch, lambda e: e.partial_fit(X, np.eye(3, dtype=int)[np.arange(30) % 3]), estimator)


@pytest.mark.parametrize("key", ONE_LABEL)
def test_several_labels_a_row_name_the_estimators_that_take_them(key: str) -> None:
    for y in ([["a", "b"], ["b"]] * 15, np.eye(2, dtype=int)[np.arange(30) % 2]):
        fresh = ESTIMATORS[key]()
        with pytest.raises(errors.TargetKindMismatch, match="OPLS, CCA or HSL"):
            fresh.fit(X, y)
        with pytest.raises(errors.NotFitted):
            fresh.transform(X)


@pytest.mark.parametrize("key", BOTH)
def test_kind_of_targets_is_fixed_by_the_first_batch(key: str) -> None:
    kinds = ESTIMATORS[key].target_kinds
    if "continuous" in kinds:
        estimator = ESTIMATORS[key]().fit(X, X[:, :2])
        refuses(errors.InvalidTargets, lambda e: e.partial_fit(X, X[:, :3]), estimator)
        for y in (Y, [["a"]] * 30):
            refuses(errors.TargetKindMismatch, lambda e, y=y: e.partial_fit(X, y), estimator)
    if "multilabel" in kinds:
        estimator = ESTIMATORS[key]().fit(X, [["a"], ["a", "b"], []] * 10)
        refuses(errors.TargetKindMismatch, lambda e: e.partial_fit(X, Y), estimator)
        refuses(errors.InvalidTargets, lambda e: e.partial_fit(X, [[1], [2]] * 15), estimator)


@pytest.mark.parametrize("key", ADDITIVE)
def test_weights(key: str) -> None:
    estimator = learned(key)
    for bad in (-np.ones(30), np.ones(29), np.ones((30, 1)), np.full(30, np.nan), np.full(30, np.inf), ["x"] * 30):
        refuses(errors.InvalidWeights, lambda e, w=bad: e.partial_fit(X, Y, sample_weight=w), estimator)
        refuses(errors.InvalidWeights, lambda e, w=bad: e.unlearn(X, Y, sample_weight=w), estimator)


@pytest.mark.parametrize("key", ADDITIVE)
def test_unlearning_more_than_was_learned(key: str) -> None:
    estimator = learned(key)
    refuses(errors.CannotUnlearn, lambda e: e.unlearn(np.vstack([X, X]), np.concatenate([Y, Y])), estimator)
    refuses(errors.CannotUnlearn, lambda e: e.unlearn(X, Y, sample_weight=np.full(30, 2.0)), estimator)
    if key in SUPERVISED:
        refuses(errors.CannotUnlearn, lambda e: e.unlearn(X, np.full(30, "a")), estimator)
        refuses(errors.CannotUnlearn, lambda e: e.unlearn(X[:2], ["new", "new"]), estimator)
    refuses(errors.WidthMismatch, lambda e: e.unlearn(X[:, :3], Y), estimator)
    refuses(errors.NotFinite, lambda e: e.unlearn(spoilt(np.nan), Y), estimator)
    with pytest.raises(errors.NotFitted):
        ESTIMATORS[key]().unlearn(X, Y)


@pytest.mark.parametrize("key", ADDITIVE)
def test_merging_what_does_not_belong_together(key: str) -> None:
    estimator = learned(key)
    others = [ESTIMATORS[key]().fit(X[:, :3], Y), learned("pca" if key != "pca" else "lda")]
    names = estimator.get_params()
    if "gamma" in names:
        others.append(learned(key, gamma=2.0))
    for other in others:
        untouched = pack(other.state_)[1]
        refuses(errors.CannotMerge, lambda e, other=other: e.merge(other), estimator)
        assert pack(other.state_)[1] == untouched
    if key in SUPERVISED:
        other = ESTIMATORS[key]().fit(X, np.arange(30) % 3)
        refuses(errors.CannotMerge, lambda e: e.merge(other), estimator, "label")
    with pytest.raises(errors.NotFitted):
        estimator.merge(ESTIMATORS[key]())


BAD: list[dict[str, Any]] = [
    {"gamma": -1.0}, {"gamma": np.nan}, {"gamma": "1"}, {"scatter": "full"}, {"standardize": 2}, {"decay": 0.0},
    {"decay": 1.5}, {"n_components": 0}, {"n_components": 1.5}, {"n_components": True}, {"target": "labels"},
    {"random_state": -1}, {"random_state": 0.5}, {"a": np.inf}, {"alpha": "x"}, {"laplacian": "none"}, {"kernel": "poly"},
    {"sigma": 0.0}, {"n_fourier": 0}, {"beta": -1.0},
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_parameters_out_of_range(key: str) -> None:
    accepted = ESTIMATORS[key]().get_params()
    for params in BAD:
        if next(iter(params)) not in accepted:
            continue
        with pytest.raises(errors.InvalidParameter, match=next(iter(params))):
            ESTIMATORS[key](**params).fit(X, Y)
        estimator = learned(key)
        before, name = remembered(estimator), next(iter(params))
        estimator.set_params(**params)
        for call in (estimator.fit, estimator.partial_fit):
            with pytest.raises(errors.InvalidParameter, match=name):
                call(X, Y)
        estimator.set_params(**{name: accepted[name]})
        assert remembered(estimator) == before


def test_an_unknown_key_or_parameter() -> None:
    from stream_dr.estimators import make

    with pytest.raises(errors.UnknownEstimator, match="known are"):
        make("nonsense")
    with pytest.raises(errors.InvalidParameter, match="no parameter 'colour'"):
        make("lda", {"colour": 1})
    with pytest.raises(errors.InvalidParameter):
        make("lda", {"gamma": -1.0})


@pytest.mark.parametrize("key", KEYS)
def test_names_that_come_after_rows_without_names_are_said_to_go_by_position(key: str) -> None:
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("pqrst"))[list("tsrqp")]
    estimator = learned(key)
    for action in (lambda: estimator.transform(frame), lambda: estimator.partial_fit(frame, Y)):
        with pytest.warns(UserWarning, match="fitted without feature names"):
            action()
