"""Hashing against scikit-learn's FeatureHasher on whole rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction import FeatureHasher

from stream_dr.errors import InvalidParameter, InvalidRows
from stream_dr.feature_maps import feature_map, hashing
from stream_dr.feature_maps.hashing import Hashing, dicts_to_sparse_rows

rng = np.random.default_rng(1)
ROWS = [
    {"price": 1.5, "colour": "red", "new": True},
    {},
    {"price": -2, "colour": "blue", "weight": 0.0},
    {f"word{i}": float(i) for i in range(50)},
]


def hashed(rows, **options):
    matrix, names = dicts_to_sparse_rows(rows)
    return Hashing(**options).apply(matrix, 0, names).toarray()


@pytest.mark.parametrize("options", [{}, {"n_features": 16}, {"n_features": 16, "alternate_sign": False}], ids=str)
def test_equals_scikit_learns_hasher(options):
    peer = FeatureHasher(**{"n_features": 4096, **options}).transform(ROWS).toarray()
    assert hashed(ROWS, **options) == pytest.approx(peer, abs=1e-12)


def test_each_row_is_hashed_the_same_whatever_came_with_it():
    alone = np.vstack([hashed([row], n_features=32) for row in ROWS])
    assert hashed(ROWS, n_features=32) == pytest.approx(alone, abs=1e-12)


def test_plain_columns_are_named_by_their_number():
    X = rng.normal(size=(5, 7))
    named = [{str(j): v for j, v in enumerate(row)} for row in X.tolist()]
    plain = feature_map(hashing(16)).apply(X, 7).toarray()
    assert plain == pytest.approx(hashed(named, n_features=16), abs=1e-12)
    assert feature_map(hashing(16)).apply(sp.csr_matrix(X), 7).toarray() == pytest.approx(plain, abs=1e-12)


def test_inner_products_are_right_on_average():
    names = [tuple(f"s{seed} {j}" for j in range(60)) for seed in range(300)]
    a, b = rng.normal(size=(2, 1, 60))
    got = [(Hashing(64).apply(a, 60, n) @ Hashing(64).apply(b, 60, n).T).toarray()[0, 0] for n in names]
    assert np.mean(got) == pytest.approx((a @ b.T)[0, 0], abs=4 * np.std(got) / np.sqrt(300))


def test_a_value_that_is_no_number_is_named():
    with pytest.raises(InvalidRows, match="row 1, feature 'b'"):
        dicts_to_sparse_rows([{"a": 1}, {"b": None}])


@pytest.mark.parametrize("wrong", [{"n_features": 0}, {"n_features": 2.5}, {"alternate_sign": 1}], ids=str)
def test_values_outside_their_range_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        hashing(**wrong)


def test_unnamed_sparse_rows_cost_their_entries_not_their_width():
    wide = sp.csr_matrix(([1.0, 2.0, 3.0], [0, 7, 1_999_999_999], [0, 2, 3]), shape=(2, 2_000_000_000))
    named = hashed([{"0": 1.0, "7": 2.0}, {"1999999999": 3.0}], n_features=16)
    assert feature_map(hashing(16)).apply(wide, wide.shape[1]).toarray() == pytest.approx(named, abs=1e-12)
