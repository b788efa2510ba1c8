"""A model that learns and cannot be solved: nothing that is asked says that all is well."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.serving import Served, arrow, in_thread

X = np.random.default_rng(0).normal(size=(60, 4))
Y = [["a", "b", "c"][i % 3] for i in range(60)]


def post(served: Served, wait: bool = True) -> Any:
    media = {"content-type": "application/vnd.apache.arrow.stream"}
    return served.http.post(f"/partial_fit{'?wait=applied' * wait}", content=arrow(X, Y), headers=media)


def unsolvable(_: Any) -> Any:
    raise ArithmeticError("no solution today")


def test_it_is_named_everywhere_and_again_live_once_it_can_be_solved(tmp_path: Path, monkeypatch: Any) -> None:
    with in_thread(tmp_path / "D", wait_timeout=20) as served:
        for name in ("lda", "pca"):
            served.http.put(f"/models/{name}", json={"estimator": name}).raise_for_status()
        assert post(served).status_code == 200
        assert served.http.get("/readyz").json() == {"status": "ready"}

        model = served.directory.model("lda")
        with monkeypatch.context() as patched:
            patched.setattr(model.estimator, "solve", unsolvable)
            begun = time.monotonic()
            answer = post(served)
            assert time.monotonic() - begun < 15  # at once, not at the end of wait_timeout
            assert answer.status_code == 202
            assert "model 'lda' cannot be published at position 1" in answer.json()["reason"]

            state = served.http.get("/models/lda").json()
            assert (state["state"], state["lag"], state["stale_rows"]) == ("failed_to_publish", 0, 60)
            assert state["publish_failure"]["position"] == 1
            assert served.http.get("/models/pca").json()["state"] == "live"
            ready = served.http.get("/readyz")
            assert ready.status_code == 200
            assert "lda" in ready.json()["detail"]
            assert 'stream_dr_model_failed_to_publish{model="lda"} 1.0' in served.http.get("/metrics").text

        assert post(served).status_code == 200
        assert served.http.get("/models/lda").json()["publish_failure"] is None
        assert served.http.get("/readyz").json() == {"status": "ready"}


def test_a_model_that_failed_ends_a_wait_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(tmp_path / "D", wait_timeout=20) as served:
        for name in ("lda", "pca"):
            served.http.put(f"/models/{name}", json={"estimator": name}).raise_for_status()
        model = served.directory.model("lda")
        monkeypatch.setattr(model.accumulator, "add", unsolvable)
        begun = time.monotonic()
        answer = post(served)
        assert time.monotonic() - begun < 15
        assert answer.status_code == 202
        assert "model 'lda' failed at position 0" in answer.json()["reason"]
        assert "lda" in served.http.get("/readyz").json()["detail"]


@pytest.mark.parametrize("labels", [["a"], ["a", "a"]])
def test_too_few_rows_or_classes_is_no_failure(labels: list[str], tmp_path: Path) -> None:
    with in_thread(tmp_path / "D") as served:
        for name in ("lda", "pca", "plsda", "lpp"):
            served.http.put(f"/models/{name}", json={"estimator": name}).raise_for_status()
        rows = {"rows": X[: len(labels)].tolist(), "labels": labels}
        assert served.http.post("/partial_fit?wait=applied", json=rows).status_code == 200
        assert {m["state"] for m in served.http.get("/models").json()["models"].values()} == {"live"}
