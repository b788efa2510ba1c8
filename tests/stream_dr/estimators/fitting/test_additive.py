"""Merging: columns that cannot be matched are refused, and nothing is changed."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import stream_dr
from stream_dr import ESTIMATORS, PCA, KNearest, errors
from stream_dr.statistics.protocol import pack
from tests.stream_dr.estimators.test_contract import KEYS, rows, targets

MERGING: dict[str, Any] = {key: ESTIMATORS[key] for key in KEYS if ESTIMATORS[key].merges} | {"k_nearest": KNearest}
X = np.random.default_rng(0).normal(size=(30, 3))
FRAME = pd.DataFrame(X, columns=list("abc"))


@pytest.mark.parametrize("key", MERGING)
def test_columns_with_and_without_names_are_not_merged(key: str) -> None:
    X, y = rows()
    y = np.arange(60) % 3 if key == "k_nearest" else targets(key, y)
    frame = pd.DataFrame(X, columns=list("fedcba"))
    named, unnamed = MERGING[key]().fit(frame, y), MERGING[key]().fit(X, y)
    for into, other in ((named, unnamed), (unnamed, named)):
        before = pack(into.state_)[0]
        with pytest.raises(errors.CannotMerge, match="which column is which"):
            into.merge(other)
        after = pack(into.state_)[0]
        assert all(np.array_equal(before[name], after[name]) for name in before)
    assert named.merge(MERGING[key]().fit(frame, y)).feature_names_in_.tolist() == list("fedcba")
    assert unnamed.merge(MERGING[key]().fit(X, y)).n_samples_seen_ == 120


def test_a_map_that_reads_columns_by_position_changes_nothing_of_it() -> None:
    named = PCA(2, feature_map=stream_dr.polynomial()).fit(FRAME)
    with pytest.raises(errors.CannotMerge, match="which column is which"):
        named.merge(PCA(2, feature_map=stream_dr.polynomial()).fit(X))


def test_a_state_without_rows_merges_with_named_columns() -> None:
    assert PCA().partial_fit(X[:0]).merge(PCA().fit(FRAME)).feature_names_in_.tolist() == list("abc")
    assert PCA().fit(FRAME).merge(PCA().partial_fit(X[:0])).feature_names_in_.tolist() == list("abc")


def test_other_names_are_not_merged() -> None:
    with pytest.raises(errors.CannotMerge, match="one order of columns"):
        PCA().fit(FRAME).merge(PCA().fit(FRAME[list("cba")]))
