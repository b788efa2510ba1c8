"""LPP, NPE, LaplacianEigenmaps and LLE: what all four have in common, through the estimator's face."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris
from sklearn.utils.estimator_checks import check_estimator

from stream_dr.batch.block import Block
from stream_dr.errors import CannotMerge, CannotUnlearn, InvalidParameter, TargetsRequired
from stream_dr.estimators.laplacian_eigenmaps import LaplacianEigenmaps
from stream_dr.estimators.lle import LLE
from stream_dr.estimators.lpp import LPP
from stream_dr.estimators.npe import NPE
from stream_dr.feature_maps import random_fourier
from stream_dr.statistics.protocol import pack, unpack

ALL = [LPP, NPE, LaplacianEigenmaps, LLE]
rng = np.random.default_rng(11)
X = rng.normal(size=(150, 6)) @ rng.normal(size=(6, 6)) + 3.0
IRIS, SPECIES = load_iris(return_X_y=True)


@pytest.mark.parametrize("kind", ALL)
def test_scikit_learns_checks(kind):
    check_estimator(kind(), on_skip=None)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_every_batching_gives_the_same_bits(kind, size):
    whole, parts = kind(reservoir=60).fit(X), kind(reservoir=60)
    for start in range(0, 150, size):
        parts.partial_fit(X[start : start + size])
    assert np.array_equal(parts.transform(X), whole.transform(X))


@pytest.mark.parametrize("kind", ALL)
def test_sparse_rows_give_what_the_same_dense_rows_give(kind):
    rows = X * (rng.random(X.shape) < 0.6)
    dense, sparse = kind().fit(rows), kind().fit(sp.csr_matrix(rows))
    assert sparse.transform(rows) == pytest.approx(dense.transform(rows), rel=1e-7, abs=1e-9)
    assert sparse.transform(sp.csr_matrix(rows)) == pytest.approx(dense.transform(rows), rel=1e-7, abs=1e-9)


def growing(rows):
    """Sparse rows of features that grow."""
    return Block(sp.csr_matrix(rows), width_stated=False)


@pytest.mark.parametrize("kind", ALL)
def test_a_sparse_index_never_seen_contributes_nothing(kind):
    model = kind().fit(sp.csr_matrix(X))
    wide = growing(np.pad(X, ((0, 0), (0, 3)), constant_values=9.0))
    assert np.array_equal(model.transform(wide), model.transform(sp.csr_matrix(X)))
    assert model.transform(growing(X[:, :4])).shape == (150, 2)


@pytest.mark.parametrize("kind", ALL)
def test_merge_samples_both_streams(kind):
    a, b = kind(reservoir=40).fit(X[:100]), kind(reservoir=40).fit(X[100:])
    before = b.transform(X)
    a.merge(b)
    numbers = a.state_.numbers
    assert a.n_samples_seen_ == 150
    assert np.array_equal(a.state_.kept, X[numbers])
    assert (numbers >= 100).any()
    assert (numbers < 100).any()
    assert np.array_equal(b.transform(X), before)
    with pytest.raises(CannotMerge):
        a.merge(kind(reservoir=50).fit(X))


@pytest.mark.parametrize("kind", ALL)
def test_unlearn_is_refused_and_names_what_can(kind):
    with pytest.raises(CannotUnlearn, match="additive estimator"):
        kind().fit(X).unlearn(X[:1])


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "rows",
    [
        X[:1],
        X[:2],
        X[:3],
        np.zeros((20, 4)),
        np.repeat(X[:3], 12, axis=0),
        X[:5].repeat(2, axis=1),
        rng.normal(size=(12, 40)),
        X * [1e-8, 1e8, 1, 0, 1, 1],
        X + 1e6,
        np.vstack([X[:40], X[:40] + 1e4]),
    ],
    ids=["one", "two", "three", "equal", "repeated", "doubled columns", "wide", "scales", "offset", "two parts"],
)
def test_hostile_rows_give_finite_places_with_the_components_there_are(kind, rows):
    model = kind().fit(rows)
    places = model.transform(np.vstack([rows, rows[:1] + 0.5]))
    assert places.shape == (len(rows) + 1, model.rank_)
    assert model.rank_ <= 2
    assert np.isfinite(places).all()


@pytest.mark.parametrize("kind", [LPP, NPE])
def test_wide_sparse_rows_are_never_made_dense(kind):
    rows = sp.random_array((80, 100_000), density=2e-4, rng=np.random.default_rng(4), format="csr")
    there = rows[:, np.unique(rows.indices)].toarray()
    model, dense = kind().fit(rows), kind().fit(there)
    assert model.transform(rows) == pytest.approx(dense.transform(there), abs=1e-9)


@pytest.mark.parametrize("kind", ALL)
def test_state_survives_packing(kind):
    model = kind(reservoir=50).fit(X)
    state = unpack(kind.state_type, *pack(model.state_))
    assert np.array_equal(model.solve(state).apply(X), model.transform(X))


@pytest.mark.parametrize("kind", ALL)
def test_weights_decide_what_is_sampled(kind):
    weights = np.where(np.arange(150) < 75, 1e-9, 1.0)
    assert kind(reservoir=20).partial_fit(X, sample_weight=weights).state_.numbers.min() >= 75
    assert kind(reservoir=20).partial_fit(Block(X, weights=weights)).state_.numbers.min() >= 75
    nothing = kind().partial_fit(X, sample_weight=np.zeros(150))
    assert nothing.transform(X).shape == (150, 0)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("wrong", [{"n_components": 0}, {"n_neighbors": 1.5}, {"reservoir": 0}, {"random_state": "a"}])
def test_parameters_outside_their_range_are_refused(kind, wrong):
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        kind(**wrong).fit(X)


@pytest.mark.parametrize("kind", [LPP, NPE])
def test_label_aware_needs_labels_and_separates_classes_better(kind):
    with pytest.raises(TargetsRequired):
        kind(label_aware=True).fit(IRIS)
    assert kind.target_kinds == ()
    assert kind(label_aware=True).target_kinds == ("class",)

    def spread(z):
        between = np.var([z[c == SPECIES, 0].mean() for c in range(3)])
        return between / sum(z[c == SPECIES, 0].var() for c in range(3))

    aware = kind(label_aware=True).fit(IRIS, SPECIES)
    assert aware.classes_.tolist() == [0, 1, 2]
    assert spread(aware.transform(IRIS)) > spread(kind().fit(IRIS).transform(IRIS))


def test_the_sample_grows_no_larger_than_the_reservoir():
    digits = load_digits().data
    model = LPP(reservoir=100).fit(digits)
    assert len(model.state_.numbers) == 100
    assert model.n_samples_seen_ == len(digits)


@pytest.mark.parametrize("kind", [LaplacianEigenmaps, LLE])
def test_a_sampled_row_has_its_place_whatever_rows_come_with_it_through_a_map(kind):
    rows = np.random.default_rng(0).normal(size=(60, 5))
    fitted = kind(feature_map=random_fourier(100, gamma=0.2)).fit(rows)
    alone = np.vstack([fitted.transform(rows[i : i + 1]) for i in range(60)])
    assert np.array_equal(fitted.transform(rows), fitted.embedding_)
    assert np.array_equal(alone, fitted.embedding_)


@pytest.mark.parametrize("kind", [LaplacianEigenmaps, LLE, LPP, NPE])
def test_sparse_rows_far_from_zero_are_as_near_to_each_other_as_dense_ones(kind):
    random = np.random.default_rng(0)
    rows = random.normal(size=(80, 3)) + np.array([1.6e9, 0.0, 0.0])
    rows[::3, 2] = 0.0
    new = rows[:20] + 0.05 * random.normal(size=(20, 3))
    dense, sparse = kind().fit(rows).transform(new), kind().fit(sp.csr_matrix(rows)).transform(sp.csr_matrix(new))
    assert sparse == pytest.approx(dense, rel=1e-4, abs=1e-4)
