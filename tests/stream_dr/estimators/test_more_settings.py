"""scikit-learn's own checks of an estimator, over the values that parameters may have, the second half."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator

from tests.support.scikit_learn import expected_failed_checks
from tests.support.settings import settings


@pytest.mark.test_all
@pytest.mark.filterwarnings(
    "ignore::stream_dr.errors.FewerComponents",
    "ignore::stream_dr.errors.NarrowKernel",
    "ignore::stream_dr.errors.Uncalibrated",
    "ignore::sklearn.exceptions.EstimatorCheckFailedWarning",
    "ignore:.*only rounding error:UserWarning",
)
@pytest.mark.parametrize("estimator", settings()[1::2], ids=lambda estimator: " ".join(str(estimator).split()))
def test_scikit_learns_checks_over_settings(estimator: Any) -> None:
    check_estimator(estimator, on_skip=None, expected_failed_checks=expected_failed_checks(estimator))
