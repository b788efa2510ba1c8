"""A new estimator is one file and one registry line, as docs/new-estimator.md has it: the page's own file goes through the
contract, the library, the command line, snapshots, the service and a restart, and nothing else knows of it."""

import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

import stream_dr
from stream_dr import estimators
from stream_dr.cli import main
from stream_dr.directory import inspect as inspecting
from stream_dr.estimators import ESTIMATORS
from tests.stream_dr.estimators import test_contract as contract
from tests.stream_dr.estimators import test_help as told
from tests.support.batches import dense, shards
from tests.support.serving import in_thread

PAGE = Path(__file__).parents[1] / "docs" / "new-estimator.md"


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's file, in the package as it says, and its line."""
    text = PAGE.read_text(encoding="utf8")
    ((name, code),) = re.findall(r"`stream_dr/estimators/(\w+)\.py`:\n\n```python\n(.*?)```", text, flags=re.DOTALL)
    ((key, place),) = re.findall(r'`"(\w+)": "(\w+:\w+)"`', text)
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / f"{name}.py").write_text(code, encoding="utf8")
    monkeypatch.setattr(estimators, "__path__", [*estimators.__path__, str(folder)])
    ESTIMATORS.places[key] = place
    yield
    del ESTIMATORS.places[key], sys.modules[f"{estimators.__name__}.{name}"]
    delattr(estimators, name)


def test_it_keeps_the_contract(registered: None, tmp_path: Path) -> None:
    assert doctest.testmod(importlib.import_module("stream_dr.estimators.loudest")).failed == 0
    check_estimator(ESTIMATORS["loudest"](), on_skip=None)
    asked = [check for name, check in vars(contract).items() if name.startswith("test_") and of_sums(check)]
    assert len(asked) > 12
    for check in asked:
        needs = {"key": "loudest", "tmp_path": tmp_path}
        check(**{name: needs[name] for name in inspect.signature(check).parameters})


def test_its_help_is_whole(registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(told.CLASSES, "loudest", ESTIMATORS["loudest"])
    told.test_every_parameter_is_described_with_its_default("loudest")
    told.test_every_fitted_attribute_is_described_and_has_the_shape_it_says("loudest")
    told.test_every_entry_says_something()


def of_sums(check: Any) -> bool:
    """Whether a contract test is one for every estimator, or for every one whose state is a sum."""
    return any(
        mark.args[:1] == ("key",) and mark.args[1] in (contract.KEYS, contract.ADDITIVE)
        for mark in getattr(check, "pytestmark", [])
    )


def test_it_goes_everywhere(registered: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, directory = shards(tmp_path / "s", blocks=4), tmp_path / "d"
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(folder), "--dir", str(directory), "--model", "loud=loudest:n_components=3"])
    assert ended.value.code == 0
    assert "loud: 80 rows" in capsys.readouterr().out

    alone = ESTIMATORS["loudest"](n_components=3)
    for seed in range(4):
        alone.partial_fit(dense(seed).X)
    with in_thread(directory) as served:
        client = stream_dr.Client(served.url)
        assert client.model("loud")["rows"] == 80
        np.testing.assert_array_equal(client.transform(dense(9).X, model="loud"), alone.transform(dense(9).X))
        assert client.put_model("other", "loudest", n_components=1)["params"] == {"n_components": 1}
        assert client.partial_fit(dense(4).X, dense(4).y, wait=True)["position"] == 4
        with pytest.raises(stream_dr.errors.InvalidParameter):
            client.put_model("wrong", "loudest", n_components="many")
        client.close()
    alone.partial_fit(dense(4).X)
    models = inspecting.inspect(directory)["models"]
    assert (models["loud"]["rows"], models["other"]["rows"], models["loud"]["components"]) == (100, 100, 3)

    alone.save(tmp_path / "saved")
    back = stream_dr.load(tmp_path / "saved").partial_fit(dense(5).X)
    np.testing.assert_array_equal(back.components_, alone.partial_fit(dense(5).X).components_)
