"""Model specs from the command line."""

import json

import pandas as pd
import pytest
import typer

from stream_dr import random_fourier
from stream_dr.batch.block import Block
from stream_dr.batch.matrix import read_table
from stream_dr.commands.specs import complete_specs, format_spec, parse_model_spec, parse_model_specs
from stream_dr.errors import InvalidParameter


def test_values_are_numbers_words_or_text():
    assert parse_model_spec("pc=ccipca:n_components=10,amnesic=2.5,center=false") == (
        "pc",
        "ccipca",
        {"n_components": 10, "amnesic": 2.5, "center": False},
    )
    assert parse_model_specs(["m=lda:gamma=cv,folds=7,folds_by=id"])[0][2] == {
        "gamma": "cv",
        "folds": 7,
        "folds_by": "id",
    }
    assert parse_model_spec("lda=lda") == ("lda", "lda", {})
    assert parse_model_spec("lda=a:b/c.safetensors") == ("lda", "a:b/c.safetensors", {})
    assert parse_model_spec("m=pca:n_components=none,scatter=exact")[2] == {"n_components": None, "scatter": "exact"}


def test_a_feature_map_is_json_in_braces():
    spec = random_fourier(500, gamma=0.1)
    text = f"k=lda:gamma=1,feature_map={json.dumps(spec)},standardize=true"
    assert parse_model_spec(text) == ("k", "lda", {"gamma": 1, "feature_map": spec, "standardize": True})


def test_a_feature_map_may_be_given_by_its_name():
    assert parse_model_spec("k=lda:gamma=1,feature_map=text")[2] == {"gamma": 1, "feature_map": {"map": "text"}}
    assert parse_model_spec("k=lda:feature_map=none")[2] == {"feature_map": None}
    assert format_spec("k", "lda", {"gamma": 1, "feature_map": {"map": "text"}}) == "k=lda:gamma=1,feature_map=text"
    with pytest.raises(InvalidParameter, match="one of random_fourier, nystroem, polynomial, hashing, table, text"):
        parse_model_specs(["k=lda:feature_map=what"])


NUMBERS = Block(read_table(pd.DataFrame({"a": [1.0, None] * 20, "b": ["x", "y"] * 20})))
PROSE = Block(read_table(pd.DataFrame({"a": [1.0, None] * 20, "b": [f"a note of words {i}" for i in range(40)]})))
TEXT = {"map": "text", "column": "b"}


def test_options_of_a_table_belong_to_the_map_that_is_named_alone():
    table = {"map": "table", "hash": ["a"]}
    by_name = {"feature_map": {"map": "table"}}
    assert complete_specs([("m", "pca", {})], NUMBERS, TEXT, table) == [("m", "pca", {"feature_map": TEXT})]
    assert complete_specs([("m", "pca", by_name)], NUMBERS, TEXT, table) == [("m", "pca", {"feature_map": table})]
    assert complete_specs([("m", "m.safetensors", {})], NUMBERS, table, table) == [("m", "m.safetensors", {})]
    for spec in (None, {"map": "text"}, {"map": "table", "impute": 0.0}):
        given = {"feature_map": spec}
        assert complete_specs([("m", "pca", given)], NUMBERS, table, table) == [("m", "pca", given)]


@pytest.mark.parametrize(
    ("rows", "key", "given", "feature_map", "ridge"),
    [
        (PROSE, "lda", {}, TEXT, {"gamma": 1.0}),
        (PROSE, "lda", {"n_components": 1}, {"map": "table"}, {"gamma": 20.0}),
        (NUMBERS, "lda", {}, {"map": "table"}, {}),
        (PROSE, "lda", {"gamma": 0.0}, TEXT, {}),
        (PROSE, "lda", {"shrinkage": None}, TEXT, {}),
        (PROSE, "opls", {}, TEXT, {}),
        (PROSE, "lda", {"feature_map": None}, TEXT, {}),
    ],
)
def test_lda_of_words_has_a_ridge_that_is_said(rows, key, given, feature_map, ridge, capsys):
    params = {"feature_map": feature_map} | given | ridge
    assert complete_specs([("m", key, given)], rows, feature_map, {"map": "table"}) == [("m", key, params)]
    told = format_spec("m", key, given | ridge)
    assert (f"--model {told}" in capsys.readouterr().err) == bool(ridge)


@pytest.mark.parametrize("wrong", ["lda", "=lda", "m=lda:gamma", 'm=lda:feature_map={"map":}'])
def test_what_cannot_be_read_is_a_usage_error(wrong):
    with pytest.raises(typer.BadParameter):
        parse_model_spec(wrong)
