"""Regression on components with target="class": a classifier to scikit-learn, whose folds are stratified."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from stream_dr import CCA, OPLS, PLSDA
from tests.support.scikit_learn import expected_failed_checks

X, Y = load_iris(return_X_y=True)
KINDS = pytest.mark.parametrize("kind", [OPLS, CCA, PLSDA])


@KINDS
def test_folds_are_stratified(kind: Any) -> None:
    estimator = kind(target="class")
    assert (is_classifier(estimator), is_classifier(kind())) == (True, False)
    scores = cross_val_score(estimator, X, Y)
    np.testing.assert_array_equal(scores, cross_val_score(estimator, X, Y, cv=StratifiedKFold(5)))
    assert scores.min() > 0.7
    search = GridSearchCV(estimator, {"n_components": [1, 2]}).fit(X, Y)
    each = [cross_val_score(kind(n, target="class"), X, Y).mean() for n in (1, 2)]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], each)


@KINDS
def test_classes_may_be_named_as_for_a_classifier(kind: Any) -> None:
    named, plain = kind(target="class"), kind(target="class")
    for part in (slice(0, None, 2), slice(1, None, 2)):
        named.partial_fit(X[part], Y[part], classes=np.unique(Y))
        plain.partial_fit(X[part], Y[part])
    np.testing.assert_array_equal(named.predict(X), plain.predict(X))


@pytest.mark.filterwarnings(
    "ignore::stream_dr.errors.FewerComponents", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning"
)
@KINDS
def test_scikit_learns_checks_of_a_classifier(kind: Any) -> None:
    estimator = kind(target="class")
    check_estimator(estimator, on_skip=None, expected_failed_checks=expected_failed_checks(estimator))
