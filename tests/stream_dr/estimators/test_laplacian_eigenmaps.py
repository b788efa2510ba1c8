"""LaplacianEigenmaps against the dense generalised eigenproblem and scikit-learn's SpectralEmbedding."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.manifold import SpectralEmbedding

from stream_dr.estimators.laplacian_eigenmaps import LaplacianEigenmaps
from tests.naive import graph as naive

rng = np.random.default_rng(2)
X = rng.normal(size=(60, 4))
SETS = {
    "normal": rng.normal(size=(500, 5)),
    "swiss roll": make_swiss_roll(800, random_state=0)[0],
    "digits": load_digits().data,
}


def up_to_sign(a, b):
    return (np.abs(a - b * np.sign((a * b).sum(axis=0))) / np.abs(b).max()).max()


@pytest.mark.parametrize("name", SETS)
def test_agrees_with_scikit_learn_up_to_sign(name):
    rows = SETS[name]
    peer = SpectralEmbedding(2, affinity="nearest_neighbors", n_neighbors=10, eigen_solver="arpack", random_state=0)
    assert up_to_sign(LaplacianEigenmaps(scaling="source").fit(rows).transform(rows), peer.fit_transform(rows)) < 1e-10


def test_agrees_with_scikit_learn_on_the_reservoirs_rows():
    model = LaplacianEigenmaps(reservoir=300, scaling="source").fit(SETS["digits"])
    kept = model.state_.kept
    peer = SpectralEmbedding(2, affinity="nearest_neighbors", n_neighbors=10, eigen_solver="arpack", random_state=0)
    assert up_to_sign(model.transform(kept), peer.fit_transform(kept)) < 1e-10


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": "heat"},
        {"weights": "heat", "temperature": 0.7},
        {"edges": "or"},
        {"edges": "or", "weights": "heat"},
        {"radius": 3.0},
        {"radius": 3.0, "weights": "heat"},
        {"n_neighbors": 2000, "edges": "or", "weights": "heat", "temperature": 3.0},
    ],
    ids=str,
)
def test_equals_the_definition(options):
    heat = {"heat": "weights" in options, "t": options.get("temperature"), "either": "edges" in options}
    k, radius = options.get("n_neighbors", 10), options.get("radius")
    values, places = naive.laplacian_eigenmaps(X, k, 3, radius=radius, **heat)
    model = LaplacianEigenmaps(n_components=3, scaling="source", **options).fit(X)
    assert model.eigenvalues_ == pytest.approx(values, abs=1e-12)
    assert up_to_sign(model.transform(X), places) < 1e-9


@pytest.mark.parametrize("edges", ["average", "or"])
@pytest.mark.parametrize("weights", ["binary", "heat"])
def test_new_rows_are_placed_by_nystroms_formula(weights, edges):
    heat, either = weights == "heat", edges == "or"
    model = LaplacianEigenmaps(weights=weights, edges=edges).fit(X)
    S, t = naive.graph(X, 10, heat, either=either)
    for new in rng.normal(size=(10, 4)):
        expected = naive.nystrom(X, S, model.eigenvalues_, model.transform(X), new, 10, heat, t, either)
        assert model.transform([new])[0] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("weights", ["binary", "heat"])
def test_new_rows_are_joined_to_rows_within_the_radius(weights):
    heat = weights == "heat"
    model = LaplacianEigenmaps(weights=weights, radius=3.0).fit(X)
    S, t = naive.graph(X, 10, heat, radius=3.0)
    for new in rng.normal(size=(10, 4)):
        expected = naive.nystrom(X, S, model.eigenvalues_, model.transform(X), new, 10, heat, t, radius=3.0)
        assert model.transform([new])[0] == pytest.approx(expected, abs=1e-10)
    again = model.solve(model.state_).place_by_nystrom(X, ((X[:, None] - X) ** 2).sum(axis=2))
    assert again == pytest.approx(model.transform(X), abs=1e-9)


@pytest.mark.parametrize("edges", ["average", "or"])
@pytest.mark.parametrize("weights", ["binary", "heat"])
def test_nystroms_formula_gives_the_training_rows_their_own_places(weights, edges):
    model = LaplacianEigenmaps(weights=weights, edges=edges).fit(SETS["swiss roll"])
    projection, rows = model.solve(model.state_), SETS["swiss roll"]
    squared = ((rows[:, None] - rows) ** 2).sum(axis=2)
    again = projection.place_by_nystrom(rows, squared)
    assert np.abs(again - projection.places).max() < 1e-9 * np.abs(projection.places).max()


def test_a_graph_in_parts_skips_as_many_zeros():
    rows = np.vstack([X[:30], X[30:] + 1e3])
    model = LaplacianEigenmaps(n_components=3, n_neighbors=5).fit(rows)
    assert model.parts_ == 2
    assert LaplacianEigenmaps().fit(X).parts_ == 1
    assert model.eigenvalues_.min() > 1e-6
    each = [naive.laplacian_eigenmaps(part, 5, 3)[0] for part in (rows[:30], rows[30:])]
    assert model.eigenvalues_ == pytest.approx(np.sort(np.concatenate(each))[:3], abs=1e-10)


def test_components_without_an_extension_are_left_out():
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8]])
    assert LaplacianEigenmaps().fit(triangle).rank_ == 0  # λ = 1.5, μ = −0.5


def test_far_rows_get_a_place_under_the_heat_kernel():
    model = LaplacianEigenmaps(weights="heat").fit(X)
    assert np.isfinite(model.transform(X + 1e5)).all()


def test_the_embedding_is_that_of_the_sampled_rows():
    X = load_digits().data[:300]
    model = LaplacianEigenmaps(reservoir=120, random_state=3).fit(X)
    assert model.embedding_.shape == (120, 2)
    np.testing.assert_array_equal(model.embedding_, model.transform(model.state_.kept))


def test_the_first_eigenvectors_say_which_part_a_row_is_in_where_they_are_kept():
    apart = np.vstack([X, X + 50.0, X - 50.0])
    dropped = LaplacianEigenmaps(2).fit(apart)
    assert dropped.parts_ == 3
    kept = LaplacianEigenmaps(5, drop_first=False).fit(apart)
    assert kept.eigenvalues_[:3] == pytest.approx(0.0, abs=1e-9)
    assert kept.eigenvalues_[3:] == pytest.approx(dropped.eigenvalues_, abs=1e-9)
    places = kept.transform(apart + 1e-3)[:, :3]
    assert np.ptp(places.reshape(3, len(X), 3), axis=1) == pytest.approx(0.0, abs=1e-6)
    one = LaplacianEigenmaps(2, drop_first=False).fit(X).transform(X)
    assert np.ptp(one[:, 0]) == pytest.approx(0.0, abs=1e-9)
    assert up_to_sign(one[:, 1:], LaplacianEigenmaps(1).fit(X).transform(X)) < 1e-9
