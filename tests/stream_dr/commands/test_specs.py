"""Model specs from the command line."""

import json

import pytest
import typer

from stream_dr import random_fourier
from stream_dr.commands.specs import parse_spec, parse_specs, spec_text, through_table
from stream_dr.errors import InvalidParameter


def test_values_are_numbers_words_or_text():
    assert parse_spec("pc=ccipca:n_components=10,amnesic=2.5,center=false") == (
        "pc",
        "ccipca",
        {"n_components": 10, "amnesic": 2.5, "center": False},
    )
    assert parse_spec("lda=lda") == ("lda", "lda", {})
    assert parse_spec("lda=a:b/c.safetensors") == ("lda", "a:b/c.safetensors", {})
    assert parse_spec("m=pca:n_components=none,scatter=exact")[2] == {"n_components": None, "scatter": "exact"}


def test_a_feature_map_is_json_in_braces():
    spec = random_fourier(500, gamma=0.1)
    text = f"k=lda:gamma=1,feature_map={json.dumps(spec)},standardize=true"
    assert parse_spec(text) == ("k", "lda", {"gamma": 1, "feature_map": spec, "standardize": True})


def test_a_feature_map_may_be_given_by_its_name():
    assert parse_spec("k=lda:gamma=1,feature_map=text")[2] == {"gamma": 1, "feature_map": {"map": "text"}}
    assert parse_spec("k=lda:feature_map=none")[2] == {"feature_map": None}
    assert spec_text("k", "lda", {"gamma": 1, "feature_map": {"map": "text"}}) == "k=lda:gamma=1,feature_map=text"
    with pytest.raises(InvalidParameter, match="one of random_fourier, nystroem, polynomial, hashing, table, text"):
        parse_specs(["k=lda:feature_map=what"])


def test_options_of_a_table_belong_to_the_map_that_is_named_alone():
    table = {"map": "table", "hash": ["a"]}
    for params in ({}, {"feature_map": {"map": "table"}}):
        assert through_table(params, table) == {"feature_map": table}
    for spec in (None, {"map": "text"}, {"map": "table", "impute": 0.0}):
        assert through_table({"feature_map": spec}, table) == {"feature_map": spec}


@pytest.mark.parametrize("wrong", ["lda", "=lda", "m=lda:gamma", 'm=lda:feature_map={"map":}'])
def test_what_cannot_be_read_is_a_usage_error(wrong):
    with pytest.raises(typer.BadParameter):
        parse_spec(wrong)
