"""ClassMeans: eigenvectors of Sb, and the nearest class mean."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import NearestCentroid

from stream_dr import ClassMeans, errors
from tests.naive import criteria
from tests.stream_dr.estimators.closed_form_cases import CASES, learn, rows, same_eigenpairs


@pytest.mark.parametrize("case", CASES)
def test_components_are_eigenvectors_of_sb(case: str) -> None:
    X, y = rows(case)
    values, vectors = criteria.top(criteria.between(X, y), 2)
    means = learn(ClassMeans(), X, y)
    assert means.rank_ == 2
    same_eigenpairs(means, values, vectors)


@pytest.mark.parametrize("standardize", [False, True])
def test_predict_is_the_nearest_centroid(standardize: bool) -> None:
    X, y = rows()
    means = learn(ClassMeans(standardize=standardize), X, np.array(["a", "b", "c"])[y])
    scaled = X / X.std(axis=0) if standardize else X
    expected = np.array(["a", "b", "c"])[NearestCentroid().fit(scaled, y).predict(scaled)]
    assert means.predict(X).tolist() == expected.tolist()
    assert means.predict(sp.csr_matrix(X)).tolist() == expected.tolist()


def test_predict_at_an_offset() -> None:
    X, y = rows()
    assert (learn(ClassMeans(), X + 1e9, y).predict(X + 1e9) == learn(ClassMeans(), X, y).predict(X)).mean() > 0.99


def test_several_labels_a_row() -> None:
    X, y = rows()
    labels = [["ab"[v % 2], "c"] if v else [] for v in y]
    means = ClassMeans().fit(X, labels)
    centres = {e: X[[e in s for s in labels]].mean(axis=0) for e in "abc"}
    nearest = [min(centres, key=lambda e: np.linalg.norm(x - centres[e])) for x in X]
    assert means.predict(X).tolist() == nearest


def test_nothing_to_predict_without_a_weighted_label() -> None:
    with pytest.raises(errors.NotFitted):
        ClassMeans().predict([[1.0]])
    means = ClassMeans().partial_fit([[1.0], [2.0]], [[], []])
    with pytest.raises(errors.NotFitted):
        means.predict([[1.0]])
