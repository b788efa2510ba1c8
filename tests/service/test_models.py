"""Models at run time: made, caught up, restarted, exported, refined, deleted."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load

import stream_dr
from stream_dr import RunSettings
from stream_dr.models.model import Model
from tests.support.serving import ARROW, Served, arrow, in_thread, post
from tests.support.waiting import assert_stays, wait_until

RANDOM = np.random.default_rng(3)
Y = [["x", "y", "z"][i % 3] for i in range(90)]
X = RANDOM.normal(size=(90, 5)) + 4 * np.eye(5)[[ord(c) % 5 for c in Y]]
SAFETENSORS = "application/safetensors"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with in_thread(tmp_path / "D") as served:
        yield served


@pytest.fixture(scope="module")
def without_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without rows; each test makes models of names of its own."""
    with in_thread(tmp_path_factory.mktemp("without")) as served:
        yield served


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose model `a` has learned five batches; its tests change no model."""
    with in_thread(tmp_path_factory.mktemp("filled")) as served:
        put(served, "a")
        fill(served, batches=5)
        yield served


def fill(served: Served, batches: int = 3) -> None:
    for part in np.array_split(np.arange(len(X)), batches):
        body = arrow(X[part], [Y[i] for i in part])
        post(served.http, body, path="/partial_fit?wait=applied").raise_for_status()


def put(served: Served, name: str, key: str = "lda", **spec: Any) -> Any:
    return served.http.put(f"/models/{name}", json={"estimator": key, **spec})


def wait_for(served: Served, name: str, rows: int) -> dict[str, Any]:
    """The model once it has learned that many rows and published them."""

    def is_published(model: dict[str, Any]) -> bool:
        published = model["published_position"] == model["position"]
        return published and model["rows"] == rows and model["state"] == "live"

    return until(served, name, is_published)


def test_labels_of_one_row_wait_and_are_named(served: Served) -> None:
    for name, params in (("m", {}), ("all", {"min_class_rows": 1}), ("pca", {}), ("information_gain", {}), ("lpp", {})):
        assert put(served, name, "lda" if name in ("m", "all") else name, params=params).status_code == 201
    body = arrow(np.vstack([X[:1] + 9, X]), ["typo", *Y])
    post(served.http, body, path="/partial_fit?wait=applied").raise_for_status()
    models = served.http.get("/models").json()["models"]
    assert {name: told["classes_waiting"] for name, told in models.items() if told["classes_waiting"]} == {
        "m": ["typo"]
    }
    assert {name: models[name]["components"] for name in ("m", "all", "pca")} == {"m": 2, "all": 3, "pca": 5}
    counts = [1, *(int(np.sum(np.array(Y) == label)) for label in ("x", "y", "z"))]
    for name in ("m", "all", "information_gain"):
        assert (models[name]["classes"], models[name]["class_rows"]) == (["typo", "x", "y", "z"], counts)
    assert (models["pca"]["classes"], models["pca"]["class_rows"]) == ([], [])
    assert models["lpp"]["class_rows"] is None
    shown = served.http.get("/figures").json()["told"]["models"]
    assert shown["m"]["classes_waiting"] == [["typo", 1]]
    assert sorted(shown["m"]["class_rows"]) == [
        list(pair) for pair in zip(["typo", "x", "y", "z"], counts, strict=True)
    ]
    assert (models["m"]["rows"], models["m"]["rows_skipped"]) == (91, 0)
    assert served.http.post("/predict?model=m", json={"rows": X[:1].tolist()}).json()["classes"] == ["x", "y", "z"]


def test_put_is_201_then_200_then_409(without_rows: Served) -> None:
    first = put(without_rows, "a", params={"gamma": 1.0})
    assert (first.status_code, first.headers["location"]) == (201, "/models/a")
    assert put(without_rows, "a", params={"gamma": 1.0}).status_code == 200
    assert put(without_rows, "a", params={"gamma": 1}).status_code == 200
    assert put(without_rows, "a", params={"gamma": 2.0}).status_code == 409
    assert put(without_rows, "a", "ccipca").status_code == 409


def test_defaults_written_out_are_the_same_spec(without_rows: Served) -> None:
    assert put(without_rows, "b").status_code == 201
    assert put(without_rows, "b", params={"gamma": 0.0, "n_components": None}).status_code == 200


def test_the_status_of_a_model(served: Served) -> None:
    put(served, "a")
    empty = served.http.get("/models/a").json()
    assert (empty["rows"], empty["version"], empty["solution"], empty["lag"]) == (0, 0, None, 0)
    fill(served)
    told = served.http.get("/models/a").json()
    assert (told["rows"], told["rows_skipped"], told["position"], told["lag"]) == (90, 0, 2, 0)
    assert (told["state"], told["solution"], sorted(told["classes"])) == ("live", "exact", ["x", "y", "z"])
    assert len(told["eigenvalues"]) == 2
    assert told["bytes"] > 0
    assert told["version"] >= 1


def test_from(served: Served) -> None:
    fill(served)
    starts = {"first": ("start", 90), "zero": (0, 90), "two": (2, 30), "three": (3, 0), "last": ("now", 0)}
    for name, (start, rows) in starts.items():
        assert put(served, name, **{"from": start}).status_code == 201
        if rows:
            wait_for(served, name, rows)
    post(served.http, arrow(X[:10], Y[:10]), path="/partial_fit?wait=applied").raise_for_status()
    models = served.http.get("/models").json()["models"]
    assert {name: models[name]["rows"] for name in starts} == {name: rows + 10 for name, (_, rows) in starts.items()}


def test_a_model_made_later_equals_one_made_before(served: Served) -> None:
    put(served, "early", "class_means")
    fill(served)
    put(served, "late", "class_means")
    wait_for(served, "late", 90)
    z = [post(served.http, arrow(X), path=f"/transform?model={name}").json()["z"] for name in ("early", "late")]
    np.testing.assert_allclose(np.abs(z[0]), np.abs(z[1]), atol=1e-9)


def test_restart_brings_everything_back(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        put(served, "a")
        put(served, "b", "ccipca", params={"n_components": 2})
        fill(served)
        before = {n: post(served.http, arrow(X), path=f"/transform?model={n}").json() for n in "ab"}
        stream = served.http.get("/stream").json()
    with in_thread(tmp_path) as served:
        after = {n: post(served.http, arrow(X), path=f"/transform?model={n}").json() for n in "ab"}
        assert served.http.get("/stream").json() == stream
        assert after == before
        fill(served)
        assert served.http.get("/models/a").json()["rows"] == 180


def test_delete(served: Served) -> None:
    put(served, "a")
    fill(served)
    assert served.http.delete("/models/a").status_code == 204
    assert served.http.get("/models/a").status_code == 404
    assert served.http.get("/models").json() == {"models": {}}
    assert put(served, "a", "class_means").status_code == 201
    assert wait_for(served, "a", 90)["estimator"] == "class_means"


def test_the_projection_in_three_forms(filled: Served) -> None:
    told = filled.http.get("/models/a/projection").json()
    z = post(filled.http, arrow(X), path="/transform?model=a").json()["z"]
    np.testing.assert_allclose((X - told["mean"]) @ np.transpose(told["components"]), z, rtol=1e-9, atol=1e-12)
    assert (told["model"], told["kind"], told["solution"]) == ("a", "linear", "exact")
    binary = filled.http.get("/models/a/projection", headers={"Accept": SAFETENSORS})
    assert binary.headers["content-type"] == SAFETENSORS
    arrays = load(binary.content)
    answer = filled.http.get("/models/a/projection", headers={"Accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    for name in ("mean", "components", "eigenvalues"):
        np.testing.assert_array_equal(arrays[name], told[name])
        np.testing.assert_array_equal(table[name].combine_chunks().to_numpy_ndarray()[0], told[name])
    assert json.loads(table.schema.metadata[b"version"]) == told["version"]


def test_an_older_version_comes_with_the_map_to_the_newest(filled: Served) -> None:
    newest = filled.http.get("/models/a/projection").json()
    old = filled.http.get("/models/a/projection", params={"version": newest["version"] - 1}).json()
    assert (old["newest"], old["version"]) == (newest["version"], newest["version"] - 1)
    before = (X - old["mean"]) @ np.transpose(old["components"])
    after = (X - newest["mean"]) @ np.transpose(newest["components"])
    mapped = before @ np.asarray(old["map"]) + old["offset"]
    assert np.linalg.norm(mapped - after) <= 0.2 * np.linalg.norm(after - after.mean(axis=0))
    assert 0 <= old["map_residual"] < 0.2


def test_snapshot_job(filled: Served) -> None:
    job = filled.http.post("/models/a/snapshot")
    assert (job.status_code, job.headers["location"]) == (202, f"/jobs/{job.json()['id']}")
    assert ended(filled, job.json()["id"])["state"] == "done"
    assert list(filled.directory.path.glob("snapshots/*/*.safetensors"))


def test_refine_job(served: Served) -> None:
    put(served, "a", params={"scatter": "diagonal", "gamma": 1.0})
    fill(served)
    exact = stream_dr.LDA(gamma=1.0).fit(X, Y)
    job = served.http.post("/models/a/refine", json={"tol": 1e-9})
    assert job.status_code == 202, job.text
    told = ended(served, job.json()["id"])
    assert told["state"] == "done", told
    after = served.http.get("/models/a").json()
    assert (after["solution"], after["refined_at"]) == ("refined", 2)
    z = np.asarray(post(served.http, arrow(X), path="/transform?model=a").json()["z"])
    np.testing.assert_allclose(np.abs(z), np.abs(exact.transform(X)), atol=1e-5)


def test_when_a_model_is_published_can_be_changed(tmp_path: Path) -> None:
    demand = {"rows": None, "seconds": None, "idle": False}
    soon = {"rows": 5, "seconds": 0.5, "idle": True}
    with in_thread(tmp_path / "D") as served:
        assert put(served, "a", publish=demand).json()["publish"] == demand
        assert put(served, "a").json()["publish"] == demand
        post(served.http, arrow(X, Y)).raise_for_status()
        wait_until(lambda: served.http.get("/models/a").json()["rows"] >= 90)
        assert_stays(lambda: served.http.get("/models/a").json()["version"] == 0, 0.1)
        changed = put(served, "a", publish=soon)
        assert (changed.status_code, changed.json()["publish"]) == (200, soon)
        wait_for(served, "a", 90)
    with in_thread(tmp_path / "D") as served:
        assert served.http.get("/models/a").json()["publish"] == soon
        assert put(served, "b").json()["publish"]["rows"] == RunSettings().publish.rows


def test_a_restarted_model_that_has_nothing_to_serve_yet_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(tmp_path / "D") as served:
        for _ in range(4):
            fill(served)
    with in_thread(tmp_path / "D", max_lag=5) as served:
        go_on = threading.Event()
        publish = Model.publish_unless_refined_or_current
        monkeypatch.setattr(
            Model, "publish_unless_refined_or_current", lambda *given: publish(*given) if go_on.wait(20) else None
        )
        put(served, "a", "class_means")
        told = post(served.http, arrow(X), path="/transform?model=a")
        assert (told.status_code, told.json()["code"], told.headers["retry-after"]) == (503, "catching_up", "1")
        threading.Timer(0.5, go_on.set).start()
        with stream_dr.Client(served.url) as client:
            assert client.transform(X, model="a").shape == (90, 2)


def test_publishing_what_cannot_be(without_rows: Served) -> None:
    def publish(name: str) -> tuple[int, str]:
        answer = without_rows.http.post(f"/models/{name}/publish")
        return answer.status_code, answer.json().get("code", "")

    assert publish("none") == (404, "unknown_model")
    put(without_rows, "c")
    assert publish("c") == (409, "model_empty")


def test_a_refined_projection_stays_published_until_the_next_refine(served: Served) -> None:
    put(served, "a", params={"scatter": "diagonal", "gamma": 1.0})
    put(served, "plain", params={"scatter": "diagonal", "gamma": 1.0})
    fill(served)
    refine(served, "a")
    first, z = projected(served, "a")
    assert (first["refined_at"], first["rows"]) == (2, 90)
    for batch in range(3):
        fill(served, batches=1)
        told, same = projected(served, "a")
        assert (told["solution"], told["refined_at"], told["version"]) == ("refined", 2, first["version"])
        assert (told["rows"], told["position"], same) == (180 + 90 * batch, 3 + batch, z)
    assert served.http.get("/models/plain").json()["published_position"] == 5
    refine(served, "a")
    last, moved = projected(served, "a")
    assert (last["solution"], last["refined_at"]) == ("refined", 5)
    assert last["version"] > first["version"]
    exact = stream_dr.LDA(gamma=1.0).fit(np.tile(X, (4, 1)), Y * 4)
    np.testing.assert_allclose(np.abs(moved), np.abs(exact.transform(X)), atol=1e-5)


def refine(served: Served, name: str) -> None:
    """Refine a model to the end."""
    job = served.http.post(f"/models/{name}/refine", json={"tol": 1e-9})
    assert ended(served, job.json()["id"])["state"] == "done"


def projected(served: Served, name: str) -> tuple[dict[str, Any], Any]:
    """What is told of a model, and where it puts X."""
    z = post(served.http, arrow(X), path=f"/transform?model={name}").json()["z"]
    return served.http.get(f"/models/{name}").json(), z


def test_an_ended_job_stays_what_it_is_when_cancelled(filled: Served) -> None:
    id = filled.http.post("/models/a/snapshot").json()["id"]
    ended(filled, id)
    assert filled.http.delete(f"/jobs/{id}").json()["state"] == "done"


def ended(served: Served, id: str) -> dict[str, Any]:
    """The job at its end."""
    path = f"/jobs/{id}"
    wait_until(lambda: served.http.get(path).json()["state"] not in ("waiting", "running"), 20)
    return served.http.get(path).json()


def test_what_is_exact_already_is_not_refined(filled: Served) -> None:
    before = filled.http.get("/models/a").json()
    job = filled.http.post("/models/a/refine")
    told = ended(filled, job.json()["id"])
    assert (told["state"], told["progress"]["exact"]) == ("done", True)
    assert filled.http.get("/models/a").json() == before
    assert before["stale_rows"] == 0


@pytest.mark.test_all
def test_a_model_is_refined_again_as_its_policy_says(tmp_path: Path) -> None:
    params, policy = {"scatter": "diagonal", "gamma": 1.0}, {"rows": 150, "seconds": None}
    with in_thread(tmp_path / "D") as served:
        assert put(served, "a", params=params, refine=policy).json()["refine"] == policy
        assert put(served, "b", params=params).json()["refine"] is None
        assert put(served, "c", "class_means", refine=policy).status_code == 409
        fill(served)
        told = served.http.get("/models/a").json()
        assert (told["solution"], told["stale_rows"]) == ("diagonal", 0)
        fill(served, batches=1)
        refined = until(served, "a", lambda told: told["solution"] == "refined")
        assert (refined["refined_at"], refined["stale_rows"]) == (3, 0)
        fill(served, batches=1)
        told, _ = projected(served, "a")
        assert (told["refined_at"], told["stale_rows"]) == (3, 90)
        assert 'stream_dr_model_stale_rows{estimator="lda",model="a"} 90' in served.http.get("/metrics").text
    with in_thread(tmp_path / "D") as served:
        assert served.http.get("/models/a").json()["refine"] == policy
        fill(served, batches=1)
        again = until(served, "a", lambda told: told["refined_at"] == 5)
        assert again["version"] > refined["version"]
        assert put(served, "a", params=params, refine={"rows": None, "seconds": 0.2}).json()["refine"]["seconds"] == 0.2
        fill(served, batches=1)
        until(served, "a", lambda told: told["refined_at"] == 6)
        assert put(served, "a", params=params, refine=None).json()["refine"]["seconds"] == 0.2
        assert put(served, "a", params=params, refine={}).json()["refine"] is None
        assert served.http.get("/models/b").json()["refined_at"] is None


def until(served: Served, name: str, there: Any) -> dict[str, Any]:
    """What is told of a model once that is true."""

    def described() -> dict[str, Any] | None:
        model = served.http.get(f"/models/{name}").json()
        return model if there(model) else None

    model = wait_until(described, 20)
    assert model is not None
    return model
