"""CCIPCA as an estimator: what is fitted, what it refuses, and how close it comes to exact PCA."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr import errors
from stream_dr.datasets.generate import generate_rcv1_like
from stream_dr.estimators.ccipca import CCIPCA
from tests.naive import recurrences


def test_fitted_attributes_are_the_recurrences() -> None:
    X = recurrences.classes()[0]
    expected = recurrences.ccipca(X, 3)
    lengths = np.linalg.norm(expected.vectors, axis=1)
    model = CCIPCA(3).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, lengths)
    np.testing.assert_allclose(model.components_, expected.vectors / lengths[:, None], atol=1e-10)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0))
    np.testing.assert_allclose(model.transform(X), (X - model.mean_) @ model.components_.T, atol=1e-10)
    assert (model.rank_, model.solution_, model.n_samples_seen_) == (3, "recurrence", 300)


@pytest.mark.filterwarnings("ignore::stream_dr.errors.FewerComponents")
def test_unresolved_components_are_left_out() -> None:
    assert CCIPCA(5).fit(np.ones((20, 4))).rank_ == 0
    assert CCIPCA(5).fit(np.random.default_rng(0).normal(size=(50, 1)) @ np.ones((1, 6))).rank_ == 1
    assert CCIPCA(5).fit(np.eye(3)).rank_ == 2
    np.testing.assert_array_equal(CCIPCA(2).fit(np.ones((3, 4))).transform(np.ones((2, 4))).shape, (2, 0))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_no_more_components_than_features(form: Callable[[np.ndarray], Any], tmp_path: Path) -> None:
    X = np.random.default_rng(3).normal(size=(200, 4)) * [4.0, 3.0, 2.0, 1.0]
    with pytest.warns(errors.FewerComponents):
        model = CCIPCA(10).fit(form(X[:100])).partial_fit(form(X[100:]))
    assert (model.rank_, model.components_.shape, model.transform(form(X)).shape) == (4, (4, 4), (200, 4))
    expected = recurrences.ccipca(X, 4).vectors
    np.testing.assert_allclose(model.components_ * model.eigenvalues_[:, None], expected, atol=1e-9)
    model.save(tmp_path / "model")
    with pytest.warns(errors.FewerComponents):
        np.testing.assert_array_equal(stream_dr.load(tmp_path / "model").transform(form(X)), model.transform(form(X)))
    wider = sp.csr_matrix((X.ravel(), (np.repeat(np.arange(200), 4), np.tile([0, 1, 4, 5], 200))))
    assert CCIPCA(10).partial_fit(sp.csr_matrix(X)).partial_fit(wider).rank_ == 6


def test_without_centring_the_mean_is_zero() -> None:
    X = recurrences.classes()[0] + 3.0
    model = CCIPCA(2, center=False).fit(X)
    np.testing.assert_array_equal(model.mean_, np.zeros(8))
    expected = recurrences.ccipca(X, 2, center=False).vectors
    np.testing.assert_allclose(model.components_ * model.eigenvalues_[:, None], expected, atol=1e-9)


@pytest.mark.parametrize("parameters", [{"n_components": 0}, {"amnesic": -1.0}, {"center": "yes"}])
def test_parameters_outside_their_range_are_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidParameter):
        CCIPCA(**parameters).fit(np.eye(3))


def test_there_is_no_weight_to_pass() -> None:
    with pytest.raises(TypeError):
        CCIPCA().partial_fit(np.eye(3), sample_weight=np.ones(3))
    with pytest.raises(errors.InvalidWeights, match="CCIPCA"):
        CCIPCA().partial_fit(stream_dr.Block(np.eye(3), weights=np.ones(3)))


def test_energy_captured_on_generated_text() -> None:
    """Of the best 5 dimensions' energy: 0.97 and more with the default, less without forgetting the first rows."""
    X = sp.vstack([block.X for block in generate_rcv1_like(6000, "top4", seed=0)]).tocsr()
    used = np.unique(X.indices)[np.argsort(-np.bincount(X.indices)[np.unique(X.indices)])[:400]]
    X = X[:, used]
    dense = X.toarray() - np.asarray(X.mean(axis=0))
    best = (np.linalg.svd(dense, compute_uv=False)[:5] ** 2).sum()
    shares = {}
    for ell in (0.0, 2.0):
        Q = np.linalg.qr(CCIPCA(5, amnesic=ell).fit(X).components_.T)[0]
        shares[ell] = ((dense @ Q) ** 2).sum() / best
    assert shares[2.0] > 0.95
    assert shares[2.0] > shares[0.0]


@pytest.mark.timeout(60)
def test_a_huge_first_row_does_not_keep_the_next_from_being_learned():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    rows[0, 0] = 1e100
    assert np.isfinite(CCIPCA().fit(rows).transform(rows)).all()
