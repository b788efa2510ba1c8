"""A service whose directory was moved and replaced says so, serves on, and writes nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stream_dr
from stream_dr.directory.verify import verify
from tests.support.serving import arrow, in_thread, post
from tests.support.waiting import wait_until

pytestmark = pytest.mark.every_run

X = np.random.default_rng(4).normal(size=(40, 4))
Y = ["ab"[i % 2] for i in range(40)]


def models(path: Path) -> list[str]:
    """What there is beside the log, with the times at which it was changed."""
    code = "import pathlib, sys\nfor p in sorted(pathlib.Path(sys.argv[1]).rglob('*')): print(p, p.stat().st_mtime_ns)"
    said = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if "/snapshots/" in line]


def test_it_stops_writing_to_a_replaced_directory(tmp_path: Path) -> None:
    path = tmp_path / "D"
    with in_thread(path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        post(served.http, arrow(X, Y), path="/partial_fit?wait=applied").raise_for_status()
        wait_until(lambda: list(path.glob("snapshots/*/*.safetensors")))
        path.rename(tmp_path / "moved")
        shutil.copytree(tmp_path / "moved", path)
        before = models(path)

        for _ in range(2):
            refused = post(served.http, arrow(X, Y))
            assert (refused.status_code, refused.json()["code"]) == (503, "directory_in_use")
            assert "moved or replaced" in refused.json()["detail"]
        assert served.http.put("/models/pca", json={"estimator": "pca"}).json()["code"] == "directory_in_use"
        assert served.http.delete("/models/lda").json()["code"] == "directory_in_use"
        assert served.http.get("/readyz").status_code == 503
        assert "moved or replaced" in served.http.get("/readyz").json()["detail"]
        assert served.http.get("/transform?model=lda&x=1,1,1,1").status_code == 200
        assert models(path) == before
    assert models(path) == before

    assert [finding for finding in verify(path) if finding.error is not None] == []
    with stream_dr.Directory(path) as again:
        assert (again.rows, again.models["lda"].rows) == (40, 40)
