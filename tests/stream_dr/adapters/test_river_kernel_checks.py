"""river's own checks of every estimator, behind kernel maps."""

from typing import Any

import pytest

from stream_dr import ESTIMATORS, nystroem, random_fourier
from tests.support.river_checks import run_checks


@pytest.mark.test_all
@pytest.mark.parametrize(
    "feature_map", [random_fourier(20, gamma=0.02), nystroem(10, gamma=0.02)], ids=["random_fourier", "nystroem"]
)
@pytest.mark.parametrize("key", list(ESTIMATORS))
def test_rivers_own_checks(key: str, feature_map: dict[str, Any]) -> None:
    if key == "information_gain" and feature_map["map"] == "nystroem":
        pytest.skip("it counts what is not zero, and a landmark's coordinate on a later one is zero or rounding")
    run_checks(key, feature_map)
