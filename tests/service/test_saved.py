"""A saved estimator is served: it answers at once, goes on from there, survives a kill, and comes back as a file."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import stream_dr
from stream_dr import LDA
from stream_dr.models.snapshot_file import read_bytes, safetensors_bytes
from tests.support.serving import ROOT, Process, Served, arrow, in_thread, packed, post

RANDOM = np.random.default_rng(5)
Y = RANDOM.choice(["a", "b", "c"], 60)
X = RANDOM.normal(size=(60, 3)) + 2 * np.eye(3)[np.searchsorted(["a", "b", "c"], Y)]
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("saved")) as served:
        yield served


def file_of(estimator: LDA, folder: Path) -> bytes:
    estimator.save(folder / "e.safetensors")
    return (folder / "e.safetensors").read_bytes()


def put(http: httpx.Client, content: bytes, name: str = "lda", kind: str = OCTETS["Content-Type"]) -> httpx.Response:
    return http.put(f"/models/{name}", content=content, headers={"Content-Type": kind})


def test_a_file_is_served_goes_on_and_comes_back(served: Served, tmp_path: Path) -> None:
    lda = LDA(gamma=1.0).fit(X, Y)
    content, expected = file_of(lda, tmp_path), lda.transform(X)
    made = put(served.http, content)
    assert (made.status_code, made.headers["location"]) == (201, "/models/lda")
    assert (made.json()["rows"], made.json()["version"], made.json()["classes"]) == (60, 1, ["a", "b", "c"])
    assert put(served.http, content, kind="application/safetensors").status_code == 200
    rows = arrow(X)
    np.testing.assert_array_equal(post(served.http, rows, path="/transform?model=lda").json()["z"], expected)
    as_octets = served.http.post("/transform?model=lda", content=rows, headers=OCTETS)
    np.testing.assert_array_equal(as_octets.json()["z"], expected)
    post(served.http, arrow(X[:20], Y[:20]), path="/partial_fit?wait=applied").raise_for_status()
    exported = served.http.get("/models/lda/export")
    assert exported.headers["content-disposition"] == 'attachment; filename="lda.safetensors"'
    back = stream_dr.load(exported.content)
    np.testing.assert_array_equal(back.transform(X), lda.partial_fit(X[:20], Y[:20]).transform(X))
    assert put(served.http, exported.content, "copy").json()["rows"] == 80
    assert put(served.http, content, "earlier").json()["rows"] == 60


@pytest.mark.parametrize(
    ("content", "status", "code", "reason"),
    [
        (b"", 400, "malformed_input", "foreign_file"),
        (b"nothing of ours", 400, "malformed_input", "foreign_file"),
        ("cut", 400, "malformed_input", "damaged_file"),
        (LDA().fit(X[:, :2], Y), 409, "model_refuses_stream", "width_mismatch"),
        (LDA().fit(X, np.arange(60) % 2), 409, "model_refuses_stream", "invalid_targets"),
        (LDA(gamma=2.0).fit(X, Y), 409, "model_exists", None),
    ],
)
def test_what_cannot_be_served_is_told(
    served: Served, tmp_path: Path, content: bytes | str | LDA, status: int, code: str, reason: str | None
) -> None:
    put(served.http, file_of(LDA(gamma=3.0).fit(X, Y), tmp_path), "there").raise_for_status()
    post(served.http, arrow(X, Y)).raise_for_status()
    if isinstance(content, LDA):
        content = file_of(content, tmp_path)
    elif isinstance(content, str):
        content = file_of(LDA().fit(X, Y), tmp_path)[:-1]
    told = put(served.http, content, "there" if code == "model_exists" else "new")
    assert (told.status_code, told.json()["code"], told.json().get("reason")) == (status, code, reason)
    assert "new" not in served.directory.models


def test_a_packed_file_is_the_file(served: Served, tmp_path: Path) -> None:
    content = file_of(LDA().fit(X, Y), tmp_path)
    headers = OCTETS | {"Content-Encoding": "zstd"}
    statuses = [
        served.http.put("/models/packed", content=packed(content, "zstd"), headers=headers).status_code,
        put(served.http, content, "packed").status_code,
    ]
    assert statuses == [201, 200]


def test_a_file_may_be_as_long_as_a_body_and_nothing_else_takes_one(tmp_path: Path) -> None:
    with in_thread(tmp_path, max_body_bytes=1000) as served:
        told = put(served.http, bytes(1001))
        assert (told.status_code, told.json()["code"]) == (413, "body_too_large")
        for path in ("/unlearn", "/models/a/refine"):
            assert served.http.post(path, content=b"x", headers=OCTETS).status_code == 415


@pytest.mark.test_all
def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    lda = LDA(gamma=1.0).fit(X, Y)
    process = Process(tmp_path / "D")
    with httpx.Client(base_url=process.url) as http:
        assert put(http, file_of(lda, tmp_path)).status_code == 201
        process.kill()
    process = Process(tmp_path / "D")
    with stream_dr.Client(process.url) as client:
        np.testing.assert_array_equal(client.transform(X, model="lda"), lda.transform(X))
        client.partial_fit(X, Y, wait=True)
        process.kill()
    process = Process(tmp_path / "D")
    with stream_dr.Client(process.url) as client:
        assert client.model("lda")["rows"] == 120
    assert process.stop() == 0


@pytest.mark.test_all
def test_the_command_serves_a_file(tmp_path: Path) -> None:
    LDA(gamma=1.0).fit(X, Y).save(tmp_path / "lda.safetensors")
    words = ("serve", "--dir", tmp_path / "D", "--port", "0", "--model", f"lda={tmp_path / 'lda.safetensors'}")
    environment = os.environ | {"STREAM_DR_WARM_UP": "no", "STREAM_DR_MIN_FREE_BYTES": "0"}
    command = [sys.executable, "-m", "stream_dr", *map(str, words)]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        line = next(line for line in serving.stderr if line.startswith("serving http"))
        with stream_dr.Client(line.split()[1]) as client:
            assert (client.predict(X) == LDA(gamma=1.0).fit(X, Y).predict(X)).all()
        serving.terminate()
        assert serving.wait(30) == 0


def test_a_right_checksum_over_wrong_arrays_is_no_right_file(served: Served, tmp_path: Path) -> None:
    arrays, facts = read_bytes(file_of(LDA().fit(X, Y), tmp_path))
    for name, wrong in (("state.features.mean", np.zeros(9)), ("state.targets.label_rows", np.full(3, -1))):
        told = put(served.http, safetensors_bytes({**arrays, name: wrong}, facts), "new")
        assert (told.status_code, told.json()["code"], told.json()["reason"]) == (
            400,
            "malformed_input",
            "damaged_file",
        )
        assert name.rsplit(".", 1)[-1] in told.json()["detail"] or "reshape" in told.json()["detail"]
    assert "new" not in served.directory.models


@pytest.mark.parametrize("name", [["table"], {}, None, 1])
def test_a_map_without_a_name_is_an_invalid_parameter(served: Served, name: object) -> None:
    spec = {"estimator": "lda", "params": {"feature_map": {"map": name}}}
    told = served.http.put("/models/new", json=spec)
    assert (told.status_code, told.json()["code"]) == (422, "invalid_parameter")
