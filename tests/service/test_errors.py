"""Every error path of the service once, through one helper: status, code, state unchanged, process alive."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pytest

import stream_dr
from stream_dr.models.saved import saved_file_bytes
from tests.support.serving import ARROW, Served, arrow, in_thread, post, sparse_arrow, stream
from tests.support.waiting import wait_until

ROWS = np.random.default_rng(5).normal(size=(40, 3))
LABELS = ["ab"[i % 2] for i in range(40)]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with one model over a dense stream of class targets, and one model without rows."""
    path: Path = tmp_path_factory.mktemp("errors")
    with in_thread(path, max_body_bytes=200_000, max_json_bytes=10_000, max_labels=10) as served:
        assert served.http.put("/models/lda", json={"estimator": "lda"}).status_code == 201
        assert post(served.http, arrow(ROWS, LABELS), "first").json()["position"] == 0
        served.http.post("/partial_fit?wait=applied", content=arrow(ROWS, LABELS), headers={"Content-Type": ARROW})
        assert served.http.put("/models/later", json={"estimator": "lda", "from": "now"}).status_code == 201
        yield served


def state_of(http: httpx.Client) -> dict[str, Any]:
    """All that an error may not change."""
    models = http.get("/models").json()["models"]
    kept = ("rows", "position", "version", "state", "classes", "eigenvalues")
    told = {name: {k: model[k] for k in kept} for name, model in models.items()}
    return {"stream": http.get("/stream").json(), "models": told}


def refused(served: Served, status: int, code: str, method: str, path: str, **request: Any) -> dict[str, Any]:
    """The one helper: this request is refused so, changes nothing and harms nothing."""
    before = state_of(served.http)
    answer = served.http.request(method, path, **request)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert (told["code"], told["status"]) == (code, status)
    assert len(told["detail"]) > 10
    assert told["title"]
    assert served.http.get("/livez").status_code == 200
    assert state_of(served.http) == before
    return told


def eventually(true: Callable[[], bool]) -> None:
    wait_until(true, 20)


def batch(**columns: Any) -> dict[str, Any]:
    """A request with an Arrow stream of these columns."""
    return {"content": stream({k: pa.array(v) for k, v in columns.items()}), "headers": {"Content-Type": ARROW}}


def body(content: bytes, kind: str = ARROW) -> dict[str, Any]:
    """A request with this body."""
    return {"content": content, "headers": {"Content-Type": kind}}


def rows(told: Any) -> dict[str, Any]:
    """A request with a JSON batch."""
    return {"content": orjson.dumps(told), "headers": JSON}


NAN = ROWS.copy()
NAN[7, 2] = np.nan
HUGE = ROWS.copy()
HUGE[1, 0] = 1e101

BATCHES: list[tuple[str, int, str, dict[str, Any]]] = [
    ("wrong width", 422, "width_mismatch", body(arrow(ROWS[:, :2], LABELS))),
    ("wrong width in JSON", 422, "width_mismatch", rows({"rows": [[1, 2]], "labels": ["a"]})),
    ("NaN", 422, "not_finite", body(arrow(NAN, LABELS))),
    ("too large a number", 422, "not_finite", body(arrow(HUGE, LABELS))),
    ("no type", 415, "unsupported_media_type", {"content": arrow(ROWS), "headers": {}}),
    ("unknown type", 415, "unsupported_media_type", body(arrow(ROWS), "text/csv")),
    ("packed in a way that is not taken", 415, "unsupported_media_type", {
        "content": arrow(ROWS), "headers": {"Content-Type": ARROW, "Content-Encoding": "br"}}),
    ("not packed as it says", 400, "malformed_input", {
        "content": arrow(ROWS), "headers": {"Content-Type": ARROW, "Content-Encoding": "gzip"}}),
    ("truncated Arrow", 400, "malformed_input", body(arrow(ROWS, LABELS)[:-300])),
    ("half a schema", 400, "malformed_input", body(arrow(ROWS, LABELS)[:50])),
    ("not Arrow", 400, "malformed_input", body(b"rows, please")),
    ("no rows", 422, "empty_input", body(arrow(ROWS[:0], LABELS[:0]))),
    ("no rows in JSON", 422, "empty_input", rows({"rows": []})),
    ("labels of another type", 422, "invalid_targets", body(arrow(ROWS, [1] * 40))),
    ("targets of another kind", 422, "target_kind_mismatch", batch(
        features=pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 3), target=ROWS[:, 0])),
    ("several labels a row", 422, "target_kind_mismatch", rows({"rows": [[1, 2, 3]], "labels": [["a", "b"]]})),
    ("sparse rows", 422, "schema_mismatch", rows({"rows": [{"indices": [0], "values": [1]}], "labels": ["a"]})),
    ("an unknown column", 422, "schema_mismatch", body(arrow(ROWS, LABELS, colour=LABELS))),
    ("weights on a stream without", 422, "invalid_weights", body(arrow(ROWS, LABELS, weight=np.ones(40)))),
    ("negative weights", 422, "invalid_weights", body(arrow(ROWS, LABELS, weight=-np.ones(40)))),
    ("too many labels", 422, "limit_exceeded", body(arrow(ROWS, [str(i) for i in range(40)]))),
    ("fewer labels than rows", 422, "invalid_targets", rows({"rows": [[1, 2, 3]], "labels": []})),
    ("garbage for JSON", 400, "malformed_input", body(b"{rows", "application/json")),
    ("JSON of another form", 400, "malformed_input", rows({"lines": []})),
    ("too much JSON", 413, "body_too_large", rows({"rows": [[1.0] * 3] * 4_000})),
    ("too much Arrow", 413, "body_too_large", body(arrow(np.zeros((9_000, 3))))),
    ("an empty body", 415, "unsupported_media_type", {"content": b""}),
    ("an empty Arrow body", 400, "malformed_input", body(b"")),
    ("a key without characters", 422, "invalid_request", {
        "content": arrow(ROWS, LABELS), "headers": {"Content-Type": ARROW, "Idempotency-Key": ""}}),
    ("a key that is too long", 422, "invalid_request", {
        "content": arrow(ROWS, LABELS), "headers": {"Content-Type": ARROW, "Idempotency-Key": "k" * 300}}),
    ("a key with another body", 409, "key_conflict", {
        "content": arrow(ROWS[:9], LABELS[:9]), "headers": {"Content-Type": ARROW, "Idempotency-Key": "first"}}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "code", "request_"), [b[1:] for b in BATCHES], ids=[b[0] for b in BATCHES])
def test_batches(served: Served, status: int, code: str, request_: dict[str, Any]) -> None:
    refused(served, status, code, "POST", "/partial_fit", **request_)


REQUESTS: list[tuple[int, str, str, str, dict[str, Any]]] = [
    (404, "not_found", "GET", "/nowhere", {}),
    (405, "method_not_allowed", "PUT", "/partial_fit", {"json": {}}),
    (422, "invalid_request", "POST", "/partial_fit?wait=forever", body(arrow(ROWS, LABELS))),
    (422, "invalid_request", "POST", "/partial_fit?chek=1", body(arrow(ROWS, LABELS))),
    (422, "invalid_request", "POST", "/partial_fit?check&check", body(arrow(ROWS, LABELS))),
    (422, "invalid_request", "POST", "/transform?model=lda&version=1", body(arrow(ROWS))),
    (422, "invalid_request", "GET", "/transform?model=lda&x=1,2,3&version=1", {}),
    (422, "invalid_request", "GET", "/transform?model=lda&x=1,2,3&x=1,2,4", {}),
    (422, "invalid_request", "GET", "/models/lda/projection?versoin=1", {}),
    (422, "invalid_request", "POST", "/unlearn?wiat=applied", {"json": {"positions": [0]}}),
    (404, "unknown_model", "GET", "/models/none", {}),
    (404, "unknown_model", "DELETE", "/models/none", {}),
    (404, "unknown_model", "POST", "/models/none/refine", {}),
    (404, "unknown_model", "POST", "/models/none/snapshot", {}),
    (404, "unknown_model", "GET", "/models/none/projection", {}),
    (404, "unknown_model", "GET", "/transform?model=none&x=1,2,3", {}),
    (404, "unknown_model", "POST", "/transform?model=none", rows({"rows": [[1, 2, 3]]})),
    (404, "unknown_model", "POST", "/predict?model=none", rows({"rows": [[1, 2, 3]]})),
    (409, "model_empty", "POST", "/predict?model=later", rows({"rows": [[1, 2, 3]]})),
    (422, "width_mismatch", "POST", "/predict?model=lda", body(arrow(ROWS[:, :2]))),
    (404, "unknown_job", "GET", "/jobs/none", {}),
    (404, "unknown_job", "DELETE", "/jobs/none", {}),
    (404, "unknown_version", "GET", "/models/lda/projection?version=999999", {}),
    (406, "not_acceptable", "GET", "/models/lda/projection", {"headers": {"Accept": "text/csv"}}),
    (406, "not_acceptable", "POST", "/transform?model=lda", {
        "content": arrow(ROWS), "headers": {"Content-Type": ARROW, "Accept": "text/csv"}}),
    (409, "model_empty", "GET", "/models/later/projection", {}),
    (409, "model_empty", "GET", "/transform?model=later&x=1,2,3", {}),
    (409, "model_empty", "POST", "/transform?model=later", rows({"rows": [[1, 2, 3]]})),
    (422, "invalid_request", "GET", "/transform?x=1,2,3", {}),
    (422, "invalid_request", "GET", "/transform?model=lda", {}),
    (422, "invalid_request", "GET", "/transform?model=lda&x=1,2,three", {}),
    (422, "invalid_request", "GET", "/transform?model=lda&x=1,2,3&indices=1&values=2", {}),
    (422, "invalid_request", "GET", "/transform?model=lda&indices=1", {}),
    (422, "invalid_request", "GET", "/transform?model=lda&indices=1.5&values=2", {}),
    (422, "not_finite", "GET", "/transform?model=lda&x=1,nan,3", {}),
    (422, "invalid_rows", "GET", "/transform?model=lda&x=", {}),
    (422, "invalid_rows", "GET", "/transform?model=lda&indices=1,2&values=1", {}),
    (422, "invalid_index", "GET", "/transform?model=lda&indices=1,1&values=1,2", {}),
    (422, "invalid_index", "GET", "/transform?model=lda&indices=-1&values=1", {}),
    (422, "invalid_index", "GET", "/transform?model=lda&indices=99999999999&values=1", {}),
    (422, "width_mismatch", "GET", "/transform?model=lda&x=1,2", {}),
    (422, "width_mismatch", "POST", "/transform?model=lda", body(arrow(ROWS[:, :2]))),
    (422, "schema_mismatch", "POST", "/transform?model=lda", rows({"rows": [{"x": 1, "y": 2, "z": 3}]})),
    (422, "not_finite", "POST", "/transform?model=lda", body(arrow(NAN))),
    (400, "malformed_input", "POST", "/transform?model=lda", body(arrow(ROWS)[:-300])),
    (422, "unknown_estimator", "PUT", "/models/new", {"json": {"estimator": "umap"}}),
    (422, "invalid_request", "PUT", "/models/new", {"json": {}}),
    (422, "invalid_request", "PUT", "/models/new", {"json": {"estimator": "lda", "colour": 1}}),
    (422, "invalid_parameter", "PUT", "/models/new", {"json": {"estimator": "lda", "params": {"gama": 1}}}),
    (422, "invalid_parameter", "PUT", "/models/new", {"json": {"estimator": "lda", "params": {"gamma": -1.0}}}),
    (422, "invalid_parameter", "PUT", "/models/new", {"json": {"estimator": "lda", "params": {"n_components": "2"}}}),
    (422, "invalid_parameter", "PUT", "/models/new", {"json": {"estimator": "lda", "params": {"n_components": 0}}}),
    (422, "invalid_parameter", "PUT", "/models/new", {"json": {"estimator": "lda", "from": 99}}),
    (422, "invalid_parameter", "PUT", "/models/new%20name", {"json": {"estimator": "lda"}}),
    (400, "malformed_input", "PUT", "/models/new", body(b"{estimator", "application/json")),
    (415, "unsupported_media_type", "PUT", "/models/new", body(b"estimator=lda", "application/x-www-form-urlencoded")),
    (409, "model_exists", "PUT", "/models/lda", {"json": {"estimator": "lda", "params": {"gamma": 1.0}}}),
    (409, "model_exists", "PUT", "/models/lda", {"json": {"estimator": "ccipca"}}),
    (422, "invalid_request", "POST", "/models/lda/refine", {"json": {"tol": 2}}),
    (422, "invalid_request", "POST", "/unlearn", {"json": {}}),
    (422, "invalid_request", "POST", "/unlearn", {"json": {"positions": [0], "ids": ["a"]}}),
    (422, "invalid_request", "POST", "/unlearn", {"json": {"positions": [-1]}}),
    (403, "forbidden", "GET", "/stream", {"headers": {"Origin": "http://example.org"}}),
    (403, "forbidden", "GET", "/stream", {"headers": {"Host": "example.org"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "method", "path", "request_"), REQUESTS, ids=[f"{r[2]} {r[3]} {r[1]}" for r in REQUESTS]
)
def test_requests(served: Served, status: int, code: str, method: str, path: str, request_: dict[str, Any]) -> None:
    refused(served, status, code, method, path, **request_)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"estimator": "lda", "params": {"gama": 1}},
            r"params.gama: lda has no such parameter \(did you mean 'gamma'\?\); it has n_components, gamma",
        ),
        ({"estimator": "lda", "params": {"n_components": "2"}}, "params.n_components: .*given is '2'"),
        ({"estimatr": "lda"}, '"estimator" is one of ccipca, iskm'),
        ({"estimator": "umap"}, '"estimator" is one of ccipca, iskm'),
        ({"estimator": "lda", "publish": {"rows": 0}}, "publish.rows: .*given is 0"),
    ],
)
def test_a_refused_model_says_what_was_given_and_what_there_is(served: Served, spec: dict[str, Any], said: str) -> None:
    told = served.http.put("/models/new", json=spec)
    assert told.status_code == 422
    assert re.search(said, told.json()["detail"]), told.json()["detail"]


@pytest.mark.parametrize(
    "told",
    [b"", b"{}", b"[0]", b'{"rows": [0]}', b'{"id": ["a"]}', b'{"positions": []}', b'{"positions": [0], "ids": ["a"]}'],
)
def test_unlearning_names_its_keys(served: Served, told: bytes) -> None:
    answer = refused(served, 422, "invalid_request", "POST", "/unlearn", **body(told, "application/json"))
    assert 'give either {"positions": […]} or {"ids": […]}; given is ' in answer["detail"]


def test_not_finite_names_row_and_column(served: Served) -> None:
    told = refused(served, 422, "not_finite", "POST", "/partial_fit", **body(arrow(NAN, LABELS)))
    assert (told["row"], told["column"]) == (7, 2)


def test_a_model_that_cannot_use_the_stream_is_a_conflict(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        served.http.post("/partial_fit", json={"rows": [[1.0, 2.0]], "target": [0.5]}).raise_for_status()
        told = refused(served, 409, "model_refuses_stream", "PUT", "/models/a", json={"estimator": "lda"})
        assert told["reason"] == "target_kind_mismatch"


def test_recurrences_and_weights_exclude_one_another(tmp_path: Path) -> None:
    weighted = {"rows": [[1.0, 2.0]], "weights": [2.0]}
    with in_thread(tmp_path / "weighted") as served:
        served.http.post("/partial_fit", json=weighted).raise_for_status()
        refused(served, 409, "model_refuses_stream", "PUT", "/models/a", json={"estimator": "ccipca"})
    with in_thread(tmp_path / "recurrence") as served:
        served.http.put("/models/a", json={"estimator": "ccipca"}).raise_for_status()
        refused(served, 422, "invalid_weights", "POST", "/partial_fit", json=weighted)


def test_an_index_past_the_widest_stream(tmp_path: Path) -> None:
    import scipy.sparse as sp

    with in_thread(tmp_path, max_features=100) as served:
        wide = sp.csr_matrix(([1.0], ([0], [100])), shape=(1, 101))
        refused(served, 422, "invalid_index", "POST", "/partial_fit", **body(sparse_arrow(wide, ["a"])))


def test_no_room_on_the_disk(tmp_path: Path) -> None:
    with in_thread(tmp_path, min_free_bytes=2**60) as served:
        refused(served, 507, "insufficient_storage", "POST", "/partial_fit", **body(arrow(ROWS, LABELS)))
        told = refused(served, 503, "not_ready", "GET", "/readyz")
        assert 0 < told["free_bytes"] < told["needed"] == 2**60


def test_no_room_for_a_saved_estimator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = saved_file_bytes(stream_dr.LDA().fit(ROWS, LABELS))
    with in_thread(tmp_path) as served, monkeypatch.context() as patched:
        patched.setattr("stream_dr.disk.free_bytes", lambda path: 10)
        content = {"content": saved, "headers": {"Content-Type": "application/safetensors"}}
        told = refused(served, 507, "insufficient_storage", "PUT", "/models/saved", **content)
        assert told["free_bytes"] == 10 < told["needed"]
        assert served.http.get("/models").json() == {"models": {}}


def test_a_snapshot_that_does_not_fit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(tmp_path, snapshot_seconds=0.01) as served:
        served.http.put("/models/a", json={"estimator": "lda"}).raise_for_status()
        with monkeypatch.context() as patched:
            patched.setattr("stream_dr.disk.free_bytes", lambda path: 10)
            post(served.http, arrow(ROWS, LABELS)).raise_for_status()
            eventually(lambda: "no snapshot of a" in served.http.get("/readyz").json().get("detail", ""))
            assert "10 bytes are free" in served.http.get("/readyz").json()["detail"]
            assert not list(tmp_path.glob("snapshots/*/*"))
        eventually(lambda: served.http.get("/readyz").json() == {"status": "ready"})
        assert list(tmp_path.glob("snapshots/*/*"))


def test_a_state_that_would_be_too_large(tmp_path: Path) -> None:
    with in_thread(tmp_path, max_state_bytes=1_000) as served:
        served.http.put("/models/a", json={"estimator": "lda"}).raise_for_status()
        told = refused(
            served, 422, "limit_exceeded", "POST", "/partial_fit", **body(arrow(np.ones((2, 90)), ["a", "b"]))
        )
        assert told["needed"] > 1_000
