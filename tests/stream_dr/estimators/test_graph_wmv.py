"""GraphWMV against the Laplacian form written out for every pair of sampled rows."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import PCA, WMV, GraphWMV, errors
from tests.naive import criteria
from tests.naive import graph as naive

rng = np.random.default_rng(8)
Y = rng.integers(0, 3, 70)
X = rng.normal(size=(70, 5)) @ rng.normal(size=(5, 5)) + rng.normal(size=(3, 5))[Y] + 4.0
SOME = [int(label) if i % 3 else None for i, label in enumerate(Y)]


def is_the_definition(model: Any, rows: np.ndarray, C: np.ndarray) -> None:
    """The components are the eigenvectors of largest eigenvalue of Xᵀ L X."""
    values, vectors = criteria.top(criteria.laplacian(rows - rows.mean(axis=0), C), model.n_components)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-9, atol=1e-9 * np.abs(values).max())
    np.testing.assert_allclose(np.abs((model.components_.T * vectors).sum(axis=0)), 1.0, atol=1e-8)
    np.testing.assert_allclose(model.transform(rows), (rows - rows.mean(axis=0)) @ model.components_.T, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "definition"),
    [
        ({}, {"heat": True}),
        ({"temperature": 2.0}, {"heat": True, "t": 2.0}),
        ({"weights": "binary"}, {}),
        ({"edges": "or", "temperature": 2.0}, {"heat": True, "t": 2.0, "either": True}),
        ({"radius": 3.0}, {"heat": True, "radius": 3.0}),
    ],
    ids=["heat", "temperature", "binary", "or", "radius"],
)
@pytest.mark.parametrize("labels", [None, (-1.0, 0.5)])
@pytest.mark.parametrize("graph", [1.0, -20.0])
def test_equals_the_definition(options: Any, definition: Any, labels: Any, graph: float) -> None:
    C = graph * naive.graph(X, 10, **definition)[0]
    weights = dict(zip(("alpha", "beta"), labels, strict=True)) if labels else {}
    if labels:
        C += np.where(Y[:, None] == Y, *labels)
    model = GraphWMV(n_components=3, scaling="source", graph=graph, **weights, **options)
    is_the_definition(model.fit(X, Y), X, C)
    is_the_definition(model.fit(sp.csr_matrix(X), Y), X, C)


def test_rows_without_a_label_have_edges_alone() -> None:
    known = np.array([label is not None for label in SOME])
    S = naive.graph(X, 10, heat=True)[0]
    pairs = np.where(known & known[:, None], np.where(Y[:, None] == Y, -1.0, 0.5), 0.0)
    model = GraphWMV(graph=-20.0, alpha=-1.0, beta=0.5, scaling="source", unlabelled="use")
    is_the_definition(model.fit(X, SOME), X, pairs - 20.0 * S)
    assert model.n_samples_seen_ == 70

    parts = GraphWMV(graph=-20.0, alpha=-1.0, beta=0.5, scaling="source", unlabelled="use").partial_fit(X[:1])
    for at in range(1, 70, 9):
        parts.partial_fit(X[at : at + 9], [None, *SOME[1:]][at : at + 9])
    without_first = pairs.copy()
    without_first[0] = without_first[:, 0] = 0.0
    is_the_definition(parts, X, without_first - 20.0 * S)

    skipping = GraphWMV(graph=0.0, alpha=-1.0, beta=0.5, scaling="source").fit(X, SOME)
    is_the_definition(skipping, X[known], pairs[np.ix_(known, known)])


def test_labels_alone_are_wmv_and_all_pairs_alike_are_pca() -> None:
    wmv = WMV(2, alpha=-1.0, beta=2.0).fit(X, Y)
    model = GraphWMV(graph=0.0, alpha=-1.0, beta=2.0, scaling="source").fit(X, Y)
    np.testing.assert_allclose(model.eigenvalues_, wmv.eigenvalues_)
    np.testing.assert_allclose(np.abs(model.components_), np.abs(wmv.components_), atol=1e-9)
    full = GraphWMV(2, 70, 70, weights="binary", edges="or", graph=1.0 / 70, scaling="source").fit(X)
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(full.eigenvalues_, pca.eigenvalues_)
    np.testing.assert_allclose(np.abs(full.components_), np.abs(pca.components_), atol=1e-9)


def test_unit_scaling_and_more_features_than_rows() -> None:
    rows = np.random.default_rng(3).normal(size=(30, 80))
    C = naive.graph(rows, 5, heat=True)[0]
    model = GraphWMV(3, 5, scaling="source").fit(rows)
    is_the_definition(model, rows, C)
    unit = GraphWMV(3, 5).fit(rows)
    np.testing.assert_allclose(unit.transform(rows).std(axis=0), 1.0)
    np.testing.assert_allclose(unit.eigenvalues_, model.eigenvalues_)


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.ones((4, 3)), np.eye(3)[:2]])
def test_rows_that_say_nothing(rows: np.ndarray) -> None:
    model = GraphWMV().fit(rows)
    assert np.isfinite(model.transform(rows)).all()


@pytest.mark.parametrize(
    "params", [{"graph": np.nan}, {"unlabelled": "drop"}, {"weights": "x"}, {"edges": "x"}, {"radius": 0.0}], ids=str
)
def test_bad_parameters(params: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match=next(iter(params))):
        GraphWMV(**params).fit(X)
