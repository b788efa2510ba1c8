"""Parameters past every measure: a model that could not be held is refused, and nothing of it stays."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stream_dr
from stream_dr.models.model import Model
from tests.support.serving import Served, arrow, in_thread, post

WHOLE = [
    (key, name)
    for key, kind in stream_dr.ESTIMATORS.items()
    for name, p in inspect.signature(kind).parameters.items()
    if "int" in str(p.annotation)
]
MODEST = 1 << 30


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("large")) as served:
        body = arrow(np.random.default_rng(0).normal(size=(50, 7)), [i % 3 for i in range(50)])
        post(served.http, body).raise_for_status()
        yield served


def put(served: Served, key: str, params: Any) -> Any:
    return served.http.put("/models/m", json={"estimator": key, "params": params})


def peak() -> int:
    """Bytes of anonymous memory this process has."""
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell a process's memory")
@pytest.mark.parametrize("value", [30_000, 10**9, 10**12, 10**19, 10**30], ids="{:.0e}".format)
@pytest.mark.parametrize(("key", "name"), WHOLE)
def test_a_whole_number_past_every_measure(served: Served, key: str, name: str, value: int) -> None:
    before = peak()
    answer = put(served, key, {name: value})
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["code"] in ("invalid_parameter", "limit_exceeded")
    assert served.http.get("/models").status_code == 200
    served.http.delete("/models/m")
    assert peak() - before < MODEST


@pytest.mark.parametrize("first", [True, False])
def test_components_that_do_not_fit_into_memory(tmp_path: Path, first: bool) -> None:
    with in_thread(tmp_path / "D") as served:
        if not first:
            post(served.http, arrow(np.eye(3), ["a", "b", "c"])).raise_for_status()
        wide = stream_dr.random_fourier(10**6)
        answer = put(served, "ccipca", {"n_components": 2_000, "feature_map": wide})
        assert (answer.status_code, answer.json()["code"]) == (422, "limit_exceeded")
        assert answer.json()["needed"] > 6e9
        assert put(served, "ccipca", {"n_components": 20}).status_code == 201


@pytest.mark.parametrize(
    ("key", "params", "code"),
    [
        ("ccipca", {"n_components": 10_000}, "invalid_parameter"),
        ("iskm", {"n_components": 10_000}, "invalid_parameter"),
        ("lle", {"n_neighbors": 600}, "invalid_parameter"),
        ("npe", {"n_neighbors": 600}, "invalid_parameter"),
        ("laplacian_eigenmaps", {"reservoir": 10_000}, "limit_exceeded"),
        ("lpp", {"reservoir": 5_000, "n_neighbors": 5_000}, "limit_exceeded"),
    ],
)
def test_what_would_cost_too_much_to_solve_is_refused_by_name(
    served: Served, key: str, params: dict[str, int], code: str
) -> None:
    answer = put(served, key, params)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_a_model_that_could_not_be_made_is_not_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(tmp_path / "D") as served:
        with monkeypatch.context() as patched:
            patched.setattr(Model, "__init__", lambda *_: (_ for _ in ()).throw(MemoryError()))
            assert put(served, "lda", {}).status_code == 500
        assert put(served, "pca", {}).status_code == 201
    with in_thread(tmp_path / "D") as served:
        assert served.http.get("/models/m").json()["estimator"] == "pca"
