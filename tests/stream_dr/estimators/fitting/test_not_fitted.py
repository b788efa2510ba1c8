"""What an estimator raises before it has learned enough is our error and scikit-learn's."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from stream_dr import LDA, PCA, KNearest, errors
from stream_dr.estimators.fitting.stream_learner import NeedsRefine, NotFitted


@pytest.mark.parametrize("estimator", [LDA(), PCA(), KNearest()], ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("kind", [errors.NotFitted, NotFittedError, AttributeError])
def test_an_estimator_that_is_not_fitted_says_so_to_scikit_learn_too(estimator, kind):
    with pytest.raises(kind, match="is not fitted yet"):
        estimator.transform(np.ones((1, 2))) if hasattr(type(estimator), "transform") else estimator.predict(
            np.ones((1, 2))
        )


@pytest.mark.parametrize("kind", [errors.NeedsRefine, errors.NotFitted, NotFittedError])
def test_one_that_must_refine_first_does_so_too(kind):
    X = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(kind, match="refine"):
        PCA(scatter="diagonal").fit(X).transform(X)


@pytest.mark.parametrize("kind", [NotFitted, NeedsRefine])
def test_its_code_is_that_of_the_error_without_scikit_learn(kind):
    assert kind("no row").code == getattr(errors, kind.__name__).code
