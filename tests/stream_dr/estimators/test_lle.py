"""LLE against the definition and scikit-learn's LocallyLinearEmbedding."""

import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.lle import LLE
from stream_dr.estimators.npe import NPE
from stream_dr.solve.embedding import barycentric_weight_matrix
from tests.naive import graph as naive

rng = np.random.default_rng(5)
X = rng.normal(size=(60, 4))
SETS = {
    "normal": rng.normal(size=(500, 5)),
    "swiss roll": make_swiss_roll(800, random_state=0)[0],
    "digits": load_digits().data,
}


def up_to_sign(a, b):
    return (np.abs(a - b * np.sign((a * b).sum(axis=0))) / np.abs(b).max()).max()


@pytest.mark.test_all
@pytest.mark.parametrize("name", SETS)
def test_agrees_with_scikit_learn_up_to_sign(name):
    rows = SETS[name]
    peer = LocallyLinearEmbedding(n_components=2, n_neighbors=10, eigen_solver="dense")
    assert (
        up_to_sign(LLE(scaling="source").fit(rows).transform(rows), peer.fit_transform(rows)) < 1e-5
    )  # eigenvalues near 1e-7


def test_agrees_with_scikit_learn_on_the_reservoirs_rows_and_on_new_ones():
    rows = SETS["swiss roll"]
    model = LLE(reservoir=300, scaling="source").fit(rows)
    kept = model.state_.kept
    peer = LocallyLinearEmbedding(n_components=2, n_neighbors=10, eigen_solver="dense").fit(kept)
    assert up_to_sign(model.transform(kept), peer.embedding_) < 1e-6
    new = np.setdiff1d(np.arange(800), model.state_.numbers)
    assert up_to_sign(model.transform(rows[new]), peer.transform(rows[new])) < 1e-5


def test_equals_the_definition():
    W = naive.barycentric_weights(X, 10, 1e-3)
    M = (np.eye(60) - W).T @ (np.eye(60) - W)
    values, places = np.linalg.eigh(M)
    model = LLE(n_components=3, scaling="source").fit(X)
    assert model.eigenvalues_ == pytest.approx(values[1:4], abs=1e-12)
    assert up_to_sign(model.transform(X), places[:, 1:4]) < 1e-9


def test_places_do_not_depend_on_the_unit():
    assert up_to_sign(LLE().fit(X * 1e-6).transform(X * 1e-6), LLE().fit(X).transform(X)) < 1e-9


@pytest.mark.filterwarnings("ignore:.* only rounding error")
def test_no_regularisation_is_legal():
    assert np.isfinite(LLE(reg=0.0, n_neighbors=8).fit(X).transform(X)).all()


def test_the_embedding_is_that_of_the_sampled_rows():
    X = load_digits().data[:300]
    model = LLE(reservoir=120, random_state=3).fit(X)
    assert model.embedding_.shape == (120, 2)
    np.testing.assert_array_equal(model.embedding_, model.transform(model.state_.kept))


@pytest.mark.test_all
def test_many_neighbours_take_little_memory():
    rows = np.random.default_rng(1).normal(size=(600, 5))
    tracemalloc.start()
    try:
        found = barycentric_weight_matrix(rows, 400, 1e-3)
        assert tracemalloc.get_traced_memory()[1] < 200e6  # all rows' Gram matrices take 768e6
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found.toarray(), naive.barycentric_weights(rows, 400, 1e-3), atol=1e-9)


@pytest.mark.parametrize("kind", [LLE, NPE])
def test_more_neighbours_than_can_be_solved_are_refused_by_name(kind):
    for few in (kind(n_neighbors=500), kind(n_neighbors=10**6, reservoir=500)):
        few.check_parameters()
    with pytest.raises(InvalidParameter, match=r"n_neighbors=600 of a reservoir of 2000 rows.* at most 500"):
        kind(n_neighbors=600).partial_fit(X)
    with pytest.raises(InvalidParameter, match="reservoir=20001"):
        kind(reservoir=20_001).partial_fit(X)


def bridged(clusters, scale=1.0):
    """Clusters whose rows are neighbours of each other alone, and a row between each two of them."""
    made = np.random.default_rng(1)
    centres = 100.0 * np.arange(clusters)
    rows = [centre + made.normal(size=(50, 3)) for centre in centres]
    between = [np.full((1, 3), centre + 50.0) for centre in centres[:-1]]
    return scale * np.vstack(rows + between)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("clusters", "count"), [(2, 1), (3, 2), (4, 2)])
def test_components_that_are_constant_on_parts_of_the_graph_are_warned_of(clusters, count, scale):
    rows = bridged(clusters, scale)
    with pytest.warns(UserWarning, match=f"{count} of the 2 components .* constant on parts"):
        places = LLE(2, n_neighbors=8).fit(rows).transform(rows)
    for start in range(0, 50 * clusters, 50):
        assert np.ptp(places[start : start + 50, 0]) < 1e-6


def test_a_regularisation_of_zero_is_warned_of():
    with pytest.warns(UserWarning, match="larger reg"):
        LLE(2, reg=0.0).fit(SETS["normal"]).transform(SETS["normal"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [*SETS.values(), np.linspace(0, 1, 1000)[:, None], bridged(2)[:100]])
def test_small_eigenvalues_above_rounding_are_not_warned_of(rows):
    assert LLE(2).fit(rows[:800]).rank_ == 2
