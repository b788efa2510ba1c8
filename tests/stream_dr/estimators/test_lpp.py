"""LPP against the dense generalised eigenproblem."""

import numpy as np
import pytest

from stream_dr.estimators.lpp import LPP
from stream_dr.solve.discriminant import RIDGE
from tests.naive import graph as naive

rng = np.random.default_rng(8)
X = rng.normal(size=(70, 5)) @ rng.normal(size=(5, 5)) + 4.0
CODES = rng.integers(0, 3, 70)


def aligned(a, b):
    return a * np.sign((a * b).sum(axis=0))


@pytest.mark.parametrize(
    ("options", "definition"),
    [
        ({}, {"heat": True}),
        ({"temperature": 2.0}, {"heat": True, "t": 2.0}),
        ({"weights": "binary"}, {}),
        ({"label_aware": True}, {"heat": True, "codes": CODES}),
        ({"edges": "or", "temperature": 2.0}, {"heat": True, "t": 2.0, "either": True}),
        ({"radius": 3.0}, {"heat": True, "radius": 3.0}),
    ],
    ids=["heat", "temperature", "binary", "label aware", "or", "radius"],
)
def test_equals_the_definition(options, definition):
    S, _ = naive.graph(X, 10, **definition)
    D = np.diag(S.sum(axis=1))
    values, vectors = naive.locality(X, D - S, D, 3)
    model = LPP(n_components=3, scaling="source", **options).fit(X, CODES)
    assert model.eigenvalues_ == pytest.approx(values, abs=1e-11)
    assert aligned(model.components_.T, vectors) == pytest.approx(vectors, abs=1e-9)
    assert model.transform(X) == pytest.approx((X - X.mean(axis=0)) @ model.components_.T, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 100.0])
def test_ridge_stands_in_both_forms(gamma):
    S, _ = naive.graph(X, 10, True)
    D = np.diag(S.sum(axis=1))
    values, vectors = naive.locality(X, D - S, D, 2, gamma)
    model = LPP(gamma=gamma, scaling="source").fit(X)
    assert model.eigenvalues_ == pytest.approx(values, abs=1e-11)
    assert aligned(model.components_.T, vectors) == pytest.approx(vectors, abs=1e-9)


def test_no_more_rows_than_features_takes_a_ridge_of_its_own():
    rows = rng.normal(size=(30, 80))
    S, _ = naive.graph(rows, 10, True)
    D = np.diag(S.sum(axis=1))
    centred = rows - rows.mean(axis=0)
    ridge = RIDGE * np.trace(centred.T @ D @ centred) / 29
    values, vectors = naive.locality(rows, D - S, D, 2, ridge)
    model = LPP(scaling="source").fit(rows)
    assert model.eigenvalues_ == pytest.approx(values, abs=1e-9)
    assert aligned(model.components_.T, vectors) == pytest.approx(vectors, abs=1e-7)
