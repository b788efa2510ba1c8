"""A parameter that is of no type it could be is refused as one, of every estimator and feature map."""

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest

from stream_dr import ESTIMATORS, errors
from stream_dr.estimators import CLASSIFIERS, make, parameters
from stream_dr.feature_maps import MAPS

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 2**63, 10**400, 1.5, float("nan"), float("inf"), "", "a", "auto", [], [1], ["a"]),
    *([[1]], [None], {}, {"a": 1}, {"map": ["table"]}, {"map": []}, {"map": {}}, [{}], [1, "a"], {"indices": [0]}),
)


@pytest.mark.parametrize("key", [*ESTIMATORS, *CLASSIFIERS])
def test_any_value_of_a_parameter_is_taken_or_refused(key: str) -> None:
    registry = ESTIMATORS if key in ESTIMATORS else CLASSIFIERS
    for name in parameters(registry[key]):
        for value in VALUES:
            with suppress(errors.InvalidParameter):
                make(key, {name: value}, registry)


@pytest.mark.parametrize("map_", MAPS)
def test_any_value_of_a_feature_map_is_taken_or_refused(map_: str) -> None:
    for name in (field.name for field in fields(MAPS[map_])):
        for value in VALUES:
            with suppress(errors.InvalidParameter):
                make("pca", {"feature_map": {"map": map_, name: value}})


@pytest.mark.parametrize("value", [["table"], [], {}, {"map": "table"}, None, 1])
def test_a_map_of_no_name_is_refused(value: Any) -> None:
    with pytest.raises(errors.InvalidParameter, match="'map' is one of"):
        make("lda", {"feature_map": {"map": value}})
