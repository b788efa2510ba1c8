"""Names that are not there: the error says which was meant, in any letter case, though the list that follows is cut off."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import stream_dr
from stream_dr import errors
from stream_dr.errors import did_you_mean
from stream_dr.estimators import make

X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 30)), columns=[f"column{i:02}" for i in range(30)])
Y = np.arange(20) % 2
MIXED = pd.DataFrame({"age": [1.0, 2.0], "Town": ["a", "b"]})
TABLE = stream_dr.PCA(n_components=1, feature_map=stream_dr.table()).fit(MIXED)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: stream_dr.LDA(n_components=1).set_params(Gamma=1.0), "'gamma'"),
        (lambda: stream_dr.KNearest().set_params(reservior=5), "'reservoir'"),
        (lambda: make("LDA"), "'lda'"),
        (lambda: make("lda", {"gama": 1.0}), "'gamma'"),
        (lambda: stream_dr.LDA(scatter="Exact").fit(X, Y), "'exact'"),
        (lambda: stream_dr.LDA(feature_map={"map": "Tabel"}).fit(X, Y), "'table'"),
        (lambda: stream_dr.LDA(feature_map={"map": "table", "nwords": 3}).fit(X, Y), "'n_words'"),
        (lambda: stream_dr.LDA().fit(X, "Column29"), "'column29'"),  # which the ten that are listed lack
        (lambda: stream_dr.LDA().fit(X, Y).transform(X.rename(columns={"column29": "Column29"})), "'Column29'"),
        (lambda: TABLE.transform(MIXED[["Town"]].rename(columns={"Town": "town"})), "'Town'"),
    ],
)
def test_the_name_that_was_meant_is_said(wrong: Callable[[], Any], said: str) -> None:
    with pytest.raises(errors.StreamDRError, match=rf"\(did you mean {said}\?\)"):
        wrong()


def test_a_public_name_that_was_meant_is_said() -> None:
    with pytest.raises(AttributeError, match=r"stream_dr has no 'Lda' \(did you mean 'LDA'\?\)"):
        _ = stream_dr.Lda  # type: ignore[attr-defined]
    assert not hasattr(stream_dr, "nothing_like_it")


def test_a_parameter_that_was_meant_is_said_by_the_constructor() -> None:
    for kind, wrong, meant in [(stream_dr.LDA, "Gama", "gamma"), (stream_dr.KNearest, "n_neighbours", "n_neighbors")]:
        with pytest.raises(TypeError, match=rf"unexpected keyword argument '{wrong}' \(did you mean '{meant}'\?\)"):
            kind(**{wrong: 1})


def test_the_column_that_was_meant_is_said_in_the_warning() -> None:
    with pytest.warns(errors.OtherColumns, match=r"'Age' \(did you mean 'age'\?\) was not among"):
        TABLE.transform(MIXED.rename(columns={"age": "Age"}))


def test_a_signature_is_that_of_the_parameters() -> None:
    for kind in (*stream_dr.ESTIMATORS.values(), stream_dr.KNearest):
        assert list(inspect.signature(kind).parameters) == list(inspect.signature(kind.__init__).parameters)[1:]
        assert "n_components" in inspect.signature(kind).parameters or kind is stream_dr.KNearest


def test_what_is_near_to_nothing_or_long_is_left() -> None:
    assert did_you_mean("AGE", ["sex", "age"]) == " (did you mean 'age'?)"
    assert did_you_mean("zzz", ["sex", "age"]) == ""
    assert did_you_mean("a" * 100_000, ["a" * 100_000]) == ""
    assert did_you_mean(3, [1, 2]) == ""
    assert "drop names 'town' (did you mean 'Town'?)" in str(stream_dr.describe_table(MIXED, drop=["town"]))


def test_parameters_are_still_cloned_and_rows_of_words_name_the_map_of_tables() -> None:
    assert clone(stream_dr.LDA(gamma=2.0)).gamma == 2.0
    with pytest.raises(errors.NotNumeric, match=r"'Town' .* feature_map=stream_dr\.table\(\)"):
        stream_dr.LDA().fit(MIXED, [0, 1])
    printed = str(stream_dr.describe_table(pd.DataFrame({"a b": ["x", "y"] * 30})))
    assert 'as_={"a b": "text"}, drop=["a b"]' in printed
