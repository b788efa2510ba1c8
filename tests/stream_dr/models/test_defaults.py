"""Specs are stored complete, so that other defaults later change no model."""

from pathlib import Path

import numpy as np
import pytest

from stream_dr import LDA, IncrementalSKM, errors, load, save
from stream_dr.directory.directory import Directory
from stream_dr.feature_maps import feature_map, spec_of_map
from stream_dr.models import snapshot_file
from stream_dr.models.entry import Spec
from stream_dr.models.saved import all_parameter_values, estimator_from_spec, fill_spec_defaults, has_same_spec


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
        assert set(all_parameter_values(again)) == set(LDA().get_params())


def test_other_defaults_of_today_do_not_change_what_a_model_is() -> None:
    """As a later release sees it: the model was stored with a default that is no longer the default."""
    known = fill_spec_defaults(Spec("lda", {}))._replace(defaults={**LDA().get_params(), "gamma": 0.5})
    assert has_same_spec(known, Spec("lda", {}))
    assert has_same_spec(known, Spec("lda", {"gamma": 0.5}))
    assert not has_same_spec(known, Spec("lda", {"gamma": 0.0}))
    assert not has_same_spec(known, Spec("pca", {}))
    assert estimator_from_spec(known).gamma == 0.5


def test_a_saved_estimator_says_all_its_parameters(tmp_path: Path) -> None:
    X = [{"age": float(i), "sort": "ab"[i % 2]} for i in range(40)]
    short = LDA(feature_map={"map": "table"}).partial_fit(X, [i % 2 for i in range(40)])
    save(short, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.feature_map == spec_of_map(feature_map({"map": "table"}))
    assert loaded.merge(short).fitted().accumulator.rows == 80
    assert short.merge(load(tmp_path / "m")).fitted().accumulator.rows == 80


def test_a_stored_spec_without_a_parameter_of_today_is_refused_by_name(tmp_path: Path) -> None:
    old = fill_spec_defaults(Spec("iskm", {"n_components": 1}))
    defaults = {name: value for name, value in old.defaults.items() if name != "amnesic"}

    path = tmp_path / "file"
    IncrementalSKM(1).fit(np.eye(4), [0, 1, 0, 1]).save(path)
    arrays, metadata = snapshot_file.read_file(path)
    assert metadata["spec"]["params"].pop("amnesic") == 1.0
    snapshot_file.write_file(path, arrays, metadata)
    with pytest.raises(errors.InvalidParameter, match="no value of amnesic"):
        load(path)

    with Directory(tmp_path / "D") as directory:
        directory.table.add("old", old._replace(defaults=defaults), 0, None, None)
        directory.table.add("set", old._replace(params={"amnesic": 0.0}, defaults=defaults | {"n_components": 2}), 0)
    with Directory(tmp_path / "D") as directory:
        failure = directory.models["old"].failure
        assert failure is not None
        assert "no value of amnesic" in failure.message
        assert directory.models["set"].estimator.amnesic == 0.0
