"""river's own checks of every estimator, on plain and hashed rows."""

from typing import Any

import pytest

from stream_dr import ESTIMATORS, hashing
from tests.support.river_checks import run_checks


@pytest.mark.test_all
@pytest.mark.parametrize("feature_map", [None, hashing(64)], ids=["rows", "hashing"])
@pytest.mark.parametrize("key", list(ESTIMATORS))
def test_rivers_own_checks(key: str, feature_map: dict[str, Any] | None) -> None:
    run_checks(key, feature_map)
