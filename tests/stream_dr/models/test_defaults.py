"""Defaults may change: what a stored spec leaves out is what it was when it was stored.

before.tar.xz: two directories, two saved estimators and their answers, of a release that stored specs as short as they were
given. defaults_before.json: that release's defaults, by estimator and by map.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import LDA, load, save
from stream_dr.directory.directory import Directory
from stream_dr.errors import ModelExists
from stream_dr.estimators import ESTIMATORS
from stream_dr.feature_maps import MAPS, whole_spec
from stream_dr.models.entry import Spec
from stream_dr.models.saved import completed, estimator_of, every_parameter, same_model, stored_spec
from stream_dr.models.snapshot import export_model

HERE = Path(__file__).parent
BEFORE: dict[str, dict[str, dict[str, Any]]] = json.loads((HERE / "defaults_before.json").read_text())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with tarfile.open(HERE / "before.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def told(made: Path) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((made / "told.json").read_text())
    return answers


@pytest.mark.parametrize("key", sorted(ESTIMATORS))
def test_what_a_stored_spec_leaves_out_is_that_releases_default(key: str) -> None:
    complete = every_parameter(completed(stored_spec({"estimator": key, "params": {}})))
    before = BEFORE["estimators"].get(key, complete)
    assert {name: complete[name] for name in before} == before


@pytest.mark.parametrize("name", sorted(MAPS))
def test_what_a_stored_map_leaves_out_is_that_releases_default(name: str) -> None:
    whole = whole_spec(json.dumps({"map": name}))
    before = BEFORE["maps"].get(name, whole)
    assert {key: whole[key] for key in before} == before


@pytest.mark.parametrize("folder", ["table", "numbers"])
def test_a_directory_made_before_answers_as_before_and_goes_on(made: Path, told: dict[str, Any], folder: str) -> None:
    rows = told["rows"] if folder == "table" else np.array(told["numbers"])
    with Directory(made / folder) as directory:
        for name, model in directory.models.items():
            assert model.position == 2, name
            served = load(export_model(model))
            np.testing.assert_allclose(served.transform(rows), told["answers"][name]["z"], rtol=1e-12, err_msg=name)

            served.partial_fit(rows, told["next"][2][:4])  # solved anew, of the state
            assert served.transform(rows).shape == np.shape(told["answers"][name]["z"])


@pytest.mark.parametrize("folder", ["table", "numbers"])
def test_a_put_that_leaves_a_parameter_out_equals_the_model_stored_before(
    made: Path, told: dict[str, Any], folder: str
) -> None:
    with Directory(made / folder) as directory:
        for name, model in list(directory.models.items()):
            params = told["answers"][name]["params"]
            assert directory.add_model(name, model.spec.estimator, params) == (model, False)
            with pytest.raises(ModelExists):
                directory.add_model(name, model.spec.estimator, params | {"n_components": 1})


@pytest.mark.parametrize("name", ["table.saved", "fourier.saved"])
def test_an_estimator_saved_before_projects_as_before_and_merges(made: Path, told: dict[str, Any], name: str) -> None:
    rows = told["rows"] if name == "table.saved" else np.array(told["numbers"])
    more = told["next"][0] if name == "table.saved" else np.array(told["next"][1])
    estimator = load(made / name)
    np.testing.assert_allclose(estimator.transform(rows), told["answers"][name], rtol=1e-12)

    learned = LDA(**estimator.get_params()).partial_fit(more, told["next"][2])
    before = estimator.holder().accumulator.rows
    assert estimator.merge(learned).holder().accumulator.rows == before + len(more)


def test_a_spec_is_stored_complete(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        model, _ = directory.add_model("m", "lda", {"gamma": 1.0, "feature_map": {"map": "table", "n_words": 4}})
    with Directory(tmp_path) as directory:
        again = directory.models["m"].spec
        assert again == model.spec
        assert again.params == {"gamma": 1.0, "feature_map": {"map": "table", "n_words": 4}}
        assert again.defaults is not None
        assert again.defaults["n_components"] is None
        assert again.defaults["feature_map"]["max_categories"] == 32
        assert set(every_parameter(again)) == set(LDA().get_params())


def test_other_defaults_of_today_do_not_change_what_a_model_is() -> None:
    """As a later release sees it: the model was stored with a default that is no longer the default."""
    known = completed(Spec("lda", {}))._replace(defaults={**LDA().get_params(), "gamma": 0.5})
    assert same_model(known, Spec("lda", {}))
    assert same_model(known, Spec("lda", {"gamma": 0.5}))
    assert not same_model(known, Spec("lda", {"gamma": 0.0}))
    assert not same_model(known, Spec("pca", {}))
    assert estimator_of(known).gamma == 0.5


def test_a_saved_estimator_says_all_its_parameters(tmp_path: Path) -> None:
    X = [{"age": float(i), "sort": "ab"[i % 2]} for i in range(40)]
    short = LDA(feature_map={"map": "table"}).partial_fit(X, [i % 2 for i in range(40)])
    save(short, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.feature_map == whole_spec({"map": "table"})
    assert loaded.merge(short).holder().accumulator.rows == 80
    assert short.merge(load(tmp_path / "m")).holder().accumulator.rows == 80
