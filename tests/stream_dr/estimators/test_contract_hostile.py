"""Batches without rows, targets, weight or difference: every registered estimator takes or refuses them alike."""

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import ESTIMATORS, errors
from tests.stream_dr.estimators.test_contract import ADDITIVE, KEYS, SUPERVISED, learned, part, rows, targets


@pytest.mark.parametrize("key", KEYS)
def test_an_empty_batch_is_legal(key: str) -> None:
    X, y = rows()
    y = targets(key, y)
    estimator = ESTIMATORS[key]().partial_fit(X[:0], part(y, slice(0, 0)))
    with pytest.raises(errors.NotFitted):
        estimator.transform(X)
    assert getattr(estimator.state_, "target_kind", None) is None
    estimator.partial_fit(X, y).partial_fit(X[:0], part(y, slice(0, 0)))
    estimator.partial_fit(X[:0], [])
    assert estimator.transform(X[:0]).shape == (0, estimator.rank_)
    with pytest.raises(errors.EmptyInput):
        estimator.fit(X[:0], part(y, slice(0, 0)))
    assert estimator.n_samples_seen_ == 60


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("sparse", [False, True])
def test_hostile_rows_are_legal(key: str, sparse: bool) -> None:
    """One row, equal rows, zero rows, constant columns, fewer rows than components: an answer with what there is."""
    cases = [rows(1), (np.ones((5, 6)), np.arange(5) % 3), (np.zeros((4, 6)), np.arange(4) % 2), rows(2), rows(4, 12)]
    for X, y in cases:
        given = sp.csr_matrix(X) if sparse else X
        estimator = learned(key, given, targets(key, y))
        z = estimator.transform(given)
        assert z.shape == (len(X), estimator.rank_)
        assert np.isfinite(z).all()


@pytest.mark.parametrize("key", SUPERVISED)
def test_without_any_target_there_is_nothing_to_fit(key: str) -> None:
    X, _ = rows()
    estimator = ESTIMATORS[key]()
    with pytest.raises(errors.TargetsRequired, match="every row's target is absent"):
        estimator.fit(X, [None] * 60)
    with pytest.raises(errors.NotFitted):
        estimator.transform(X)
    assert estimator.partial_fit(X, [None] * 60).n_samples_seen_ == 0


@pytest.mark.parametrize("key", [key for key in SUPERVISED if key in ADDITIVE])
def test_rows_of_no_label_or_no_weight_give_no_component(key: str) -> None:
    X, y = rows()
    silent = [ESTIMATORS[key]().partial_fit(X, targets(key, y), sample_weight=np.zeros(60))]
    if "multilabel" in ESTIMATORS[key].target_kinds:
        silent.append(ESTIMATORS[key]().partial_fit(X, [[]] * 60))
    for estimator in silent:
        assert estimator.n_samples_seen_ == 60
        if hasattr(estimator, "scores_"):
            assert not estimator.scores_.any()
        else:
            assert estimator.transform(X).shape == (60, 0)


@pytest.mark.parametrize("key", [key for key in SUPERVISED if key in ADDITIVE])
@pytest.mark.parametrize("offset", [0.0, 100.0, 1e6])
def test_one_class_gives_no_component(key: str, offset: float) -> None:
    """Not one made of rounding; where features are chosen, no score above 0."""
    X, y = rows()
    estimator = learned(key, X + offset, targets(key, np.zeros_like(y)), 3)
    if hasattr(estimator, "scores_"):
        assert np.abs(estimator.scores_).max() < 1e-12
    else:
        assert estimator.transform(X).shape == (60, 0)
        assert estimator.components_.shape == (0, 6)
