"""Regression on components with target="class": a classifier to scikit-learn, whose folds are stratified."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from stream_dr import CCA, LDA, OPLS, PLSDA, ClassMeans
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


@pytest.mark.parametrize("estimator", [OPLS(), OPLS(target="class"), CCA(), PLSDA(), LDA(), ClassMeans()])
def test_scores_of_classes(estimator: Any) -> None:
    scores = estimator.fit(X, Y).decision_function(X)
    np.testing.assert_array_equal(scores.argmax(axis=1), estimator.predict(X))

    two, names = X[Y > 0], np.array(["low", "high"])[Y[Y > 0] - 1]
    difference = estimator.fit(two, names).decision_function(two)
    assert difference.shape == (100,)
    np.testing.assert_array_equal(estimator.classes_[(difference > 0).astype(int)], estimator.predict(two))

    assert cross_val_score(estimator, two, names, scoring="roc_auc").min() > 0.9
    calibrated = CalibratedClassifierCV(estimator).fit(X, Y)
    assert calibrated.predict_proba(X).shape == (150, 3)


@KINDS
def test_numbers_have_no_scores_of_classes(kind: Any) -> None:
    assert not hasattr(kind(target="continuous"), "decision_function")
    fitted = kind().fit(X, X[:, 0] + 0.5)
    assert not hasattr(fitted, "decision_function")
    assert not is_classifier(fitted)
    sets = kind().fit(X, np.eye(3, dtype=int)[Y][:, :2])
    assert sets.decision_function(X).shape == (150, 2)
    assert not is_classifier(sets)
