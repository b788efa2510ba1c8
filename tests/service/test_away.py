"""A directory, or files of it, taken away while it is served: a named error, and queries go on."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.serving import in_thread
from tests.support.waiting import wait_until

BODY = {"rows": [[0.5, 2.0], [3.0, 4.0], [5.0, 1.0]], "labels": ["b", "x", "b"]}


@pytest.mark.parametrize("take_away", [shutil.rmtree, lambda path: path.rename(path.with_name("moved"))])
def test_a_missing_directory_is_named(tmp_path: Path, take_away: Callable[[Path], object]) -> None:
    path = tmp_path / "D"
    with in_thread(path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        served.http.post("/partial_fit?wait=applied", json=BODY).raise_for_status()
        wait_until(lambda: list(path.glob("snapshots/*/*.safetensors")))
        take_away(path)

        answers = [
            served.http.get("/readyz"),
            served.http.post("/partial_fit", json=BODY),
            served.http.post("/unlearn", json={"positions": [0]}),
            served.http.put("/models/pca", json={"estimator": "pca"}),
            served.http.get("/readyz"),
        ]
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "directory_missing")] * 5
        assert "moved or removed" in answers[0].json()["detail"]
        assert served.http.get("/transform?model=lda&x=1,1").status_code == 200
        assert "stream_dr_ready 0.0\n" in served.http.get("/metrics").text
        assert not path.exists()


def test_readyz_tells_of_missing_bodies_and_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "D"
    with in_thread(path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        served.http.post("/partial_fit?wait=applied", json=BODY).raise_for_status()
        wait_until(lambda: list(path.glob("snapshots/*/*.safetensors")))
        (bodies,) = path.glob("log/*.bodies")
        bodies.rename(tmp_path / "bodies")
        ready = served.http.get("/readyz")
        assert ready.status_code == 200
        assert f"{bodies} is missing" in ready.json()["detail"]
        (tmp_path / "bodies").rename(bodies)
        assert served.http.get("/readyz").json() == {"status": "ready"}

        # A file in the place of the folder: no snapshot can be written.
        snapshots = path / "snapshots"
        snapshots.rename(tmp_path / "snapshots")
        snapshots.touch()
        served.http.post("/partial_fit?wait=applied", json=BODY).raise_for_status()
        served.http.post("/models/lda/snapshot")
        wait_until(lambda: "no snapshot of lda" in str(served.http.get("/readyz").json()))
        assert served.http.get("/readyz").status_code == 200
        snapshots.unlink()
        (tmp_path / "snapshots").rename(snapshots)


def test_allow_lists_every_method_and_probes_take_head(tmp_path: Path) -> None:
    with in_thread(tmp_path / "D") as served:
        for path, methods in {
            "/models/lda": "GET, PUT, DELETE",
            "/transform": "GET, POST",
            "/partial_fit": "POST",
            "/livez": "GET, HEAD",
        }.items():
            refused = served.http.patch(path)
            assert (refused.status_code, refused.headers["allow"]) == (405, methods)
        for path in ("/livez", "/readyz"):
            probe = served.http.head(path)
            assert (probe.status_code, probe.content) == (200, b"")
