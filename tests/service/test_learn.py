"""Learning over HTTP equals learning in the library; keys, waiting, checking, unlearning."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
import scipy.sparse as sp

import stream_dr
from tests.support.serving import ARROW, Served, arrow, in_thread, post, sparse_arrow
from tests.support.waiting import wait_until

SPECS = {"lda": ("lda", {}), "means": ("class_means", {}), "pca": ("ccipca", {"n_components": 3}), "skm": ("iskm", {})}
RANDOM = np.random.default_rng(11)
CLASSES = np.repeat(np.array(["ant", "bee", "cat"]), 40)[RANDOM.permutation(120)]
DENSE = RANDOM.normal(size=(120, 6)) + np.array([[ord(c[0]) % 7] for c in CLASSES]) * np.arange(6)
SPARSE = sp.csr_matrix(np.where(RANDOM.random((120, 30)) < 0.2, np.round(RANDOM.normal(size=(120, 30)), 3), 0.0))
CUTS = [slice(0, 1), slice(1, 50), slice(50, 51), slice(51, 120)]


@pytest.fixture(params=["dense", "sparse"])
def rows(request: pytest.FixtureRequest) -> Any:
    return DENSE if request.param == "dense" else SPARSE


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with in_thread(tmp_path) as served:
        make_models(served)
        yield served


@pytest.fixture(scope="module", params=["dense", "sparse"])
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Any]]:
    """A service that has learned all rows as Arrow, and the rows; its tests only read."""
    rows = DENSE if request.param == "dense" else SPARSE
    with in_thread(tmp_path_factory.mktemp("learned")) as served:
        make_models(served)
        learn(served, rows)
        yield served, rows


def make_models(served: Served) -> None:
    for name, (key, params) in SPECS.items():
        served.http.put(f"/models/{name}", json={"estimator": key, "params": params}).raise_for_status()


def learn(served: Served, rows: Any, as_json: bool = False) -> None:
    """Post all rows in batches; the last one waits until every model has learned them."""
    for cut in CUTS:
        X, y = rows[cut], CLASSES[cut].tolist()
        query = "?wait=applied" if cut == CUTS[-1] else ""
        if as_json:
            answer = served.http.post(f"/partial_fit{query}", json={"rows": json_from_block(X), "labels": y})
        else:
            answer = post(
                served.http, sparse_arrow(X, y) if sp.issparse(X) else arrow(X, y), path=f"/partial_fit{query}"
            )
        assert answer.status_code == 200, answer.text
        assert answer.json()["rows"] == X.shape[0]
    assert answer.json()["lag"] == 0


def json_from_block(X: Any) -> list[Any]:
    if not sp.issparse(X):
        return X.tolist()
    return [{"indices": X[i].indices.tolist(), "values": X[i].data.tolist()} for i in range(X.shape[0])]


def library(name: str, rows: Any) -> Any:
    """The library's estimator on the same stream, sent as the codec sends it: a sparse width is not stated."""
    key, params = SPECS[name]
    estimator = stream_dr.ESTIMATORS[key](**params)
    for cut in CUTS:
        X = rows[cut]
        block = stream_dr.Block(X, CLASSES[cut], width_stated=not sp.issparse(X))
        estimator.partial_fit(block)
    return estimator


def test_answers_equal_the_library(learned: tuple[Served, Any]) -> None:
    check_answers(*learned)


def test_answers_equal_the_library_of_rows_learned_as_json(served: Served, rows: Any) -> None:
    learn(served, rows, as_json=True)
    check_answers(served, rows)


def check_answers(served: Served, rows: Any) -> None:
    """Compare every model's projection with the library's."""
    for name in SPECS:
        expected = library(name, rows).transform(rows)
        body = sparse_arrow(rows) if sp.issparse(rows) else arrow(rows)
        told = post(served.http, body, path=f"/transform?model={name}").json()
        signs = np.sign(np.sum(expected * told["z"], axis=0))
        np.testing.assert_allclose(np.asarray(told["z"]) * signs, expected, rtol=1e-9, atol=1e-9)
        assert (told["model"], told["position"], told["unseen"]) == (name, 3, 0)


def test_one_row_many_rows_json_and_arrow_agree(learned: tuple[Served, Any]) -> None:
    served, rows = learned
    many = served.http.post("/transform?model=lda", json={"rows": json_from_block(rows)[:2]}).json()
    if sp.issparse(rows):
        first = {"indices": ",".join(map(str, rows[0].indices)), "values": ",".join(map(repr, rows[0].data.tolist()))}
    else:
        first = {"x": ",".join(map(repr, rows[0].tolist()))}
    one = served.http.get("/transform", params={"model": "lda", **first}).json()
    assert set(one) == {"model", "version", "position", "solution", "z"}
    assert set(many) == {*one, "id", "unseen"}
    np.testing.assert_allclose(one["z"][0], many["z"][0], rtol=1e-12, atol=1e-12)
    headers = {"Content-Type": "application/json", "Accept": ARROW}
    answer = served.http.post(
        "/transform?model=lda", content=orjson.dumps({"rows": json_from_block(rows)[:2]}), headers=headers
    )
    table = pa.ipc.open_stream(answer.content).read_all()
    np.testing.assert_array_equal(np.stack(table["z"].to_numpy()), many["z"])
    assert table.schema.metadata[b"model"] == b"lda"


def test_no_rows_are_answered_with_none_in_json_and_arrow(learned: tuple[Served, Any]) -> None:
    served, rows = learned
    empty = sparse_arrow(rows[:0]) if sp.issparse(rows) else arrow(rows[:0])
    for name in SPECS:
        for answer in (
            served.http.post(f"/transform?model={name}", json={"rows": []}),
            post(served.http, empty, path=f"/transform?model={name}"),
        ):
            assert (answer.status_code, answer.json()["z"]) == (200, []), answer.text


def test_ids_and_unseen_are_echoed(served: Served) -> None:
    learn(served, SPARSE)
    batch = {
        "rows": [{"indices": [1, 900], "values": [1.0, 2.0]}, {"indices": [901], "values": [1.0]}],
        "ids": ["u", "v"],
    }
    told = served.http.post("/transform?model=lda", json=batch).json()
    assert (told["id"], told["unseen"]) == (["u", "v"], 2)
    assert served.http.get("/transform?model=lda&indices=1,900&values=1,2").json()["unseen"] == 1
    assert "unseen" not in served.http.get("/transform?model=lda&indices=1&values=1").json()


def test_a_key_is_learned_once(served: Served) -> None:
    body = arrow(DENSE, CLASSES.tolist())
    first = post(served.http, body, "k").json()
    again = post(served.http, body, "k").json()
    assert first == {"position": 0, "rows": 120, "duplicate": False}
    assert again == {"position": 0, "rows": 120, "duplicate": True}
    assert post(served.http, body).json()["position"] == 1
    assert served.http.get("/stream").json()["rows"] == 240


def test_check_admits_without_appending(served: Served) -> None:
    told = post(served.http, arrow(DENSE, CLASSES.tolist()), path="/partial_fit?check").json()
    assert told == {"position": None, "rows": 120, "duplicate": False}
    assert served.http.get("/stream").json()["position"] == -1
    learn(served, DENSE)
    assert post(served.http, arrow(DENSE[:, :2]), path="/partial_fit?check").json()["code"] == "width_mismatch"


def test_check_tells_of_a_key_what_the_post_would(served: Served) -> None:
    body, other = arrow(DENSE), arrow(DENSE[:2])
    post(served.http, body, "once").raise_for_status()
    assert post(served.http, body, "once", path="/partial_fit?check").json()["duplicate"] is True
    told = [post(served.http, other, "once", path=path).json() for path in ("/partial_fit?check", "/partial_fit")]
    assert [problem["code"] for problem in told] == ["key_conflict"] * 2


def test_waiting_too_long_is_202_with_the_lag(tmp_path: Path) -> None:
    with in_thread(tmp_path, wait_timeout=1e-6) as served:
        served.http.put("/models/lda", json={"estimator": "lda"})
        answer = post(served.http, arrow(DENSE, CLASSES.tolist()), path="/partial_fit?wait=applied")
        assert answer.status_code in (200, 202)
        assert answer.json()["position"] == 0
        assert answer.json()["lag"] >= 0


def test_rows_without_targets_are_skipped_and_counted(served: Served) -> None:
    learn(served, DENSE)
    post(served.http, arrow(DENSE), path="/partial_fit?wait=applied").raise_for_status()
    models = served.http.get("/models").json()["models"]
    assert (models["lda"]["rows"], models["lda"]["rows_skipped"], models["pca"]["rows"]) == (120, 120, 240)


def test_unlearning_is_never_having_learned(served: Served) -> None:
    learn(served, DENSE)
    extra = arrow(DENSE[:30] * 3, CLASSES[:30].tolist(), id=[f"row {i}" for i in range(30)])
    position = post(served.http, extra).json()["position"]
    post(served.http, arrow(DENSE[:1] * 9, CLASSES[:1].tolist(), id=["late"])).raise_for_status()
    first = served.http.post("/unlearn", json={"positions": [position]}, headers={"Idempotency-Key": "u"})
    again = served.http.post("/unlearn", json={"positions": [position]}, headers={"Idempotency-Key": "u"})
    assert (first.status_code, again.json()["duplicate"]) == (200, True)
    served.http.post("/unlearn?wait=applied", json={"ids": ["late"]}).raise_for_status()
    for name in SPECS:
        expected = library(name, DENSE).transform(DENSE)
        found = np.asarray(post(served.http, arrow(DENSE), path=f"/transform?model={name}").json()["z"])
        np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-8)


@pytest.mark.test_all
def test_queries_do_not_wait_while_ids_are_looked_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(served, DENSE)
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*_: Any) -> Any:
        begun.set()
        go_on.wait(20)
        return {}

    monkeypatch.setattr("stream_dr.directory.history.History.parse_named_removal", slowly)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(served.http.post, "/unlearn", json={"ids": ["a"]}) for _ in range(8)]
        try:
            assert begun.wait(20)
            time.sleep(0.1)
            for name in SPECS:
                assert post(served.http, arrow(DENSE), path=f"/transform?model={name}").status_code == 200
        finally:
            go_on.set()
        assert {a.result().status_code for a in asked} == {200}


@pytest.mark.test_all
@pytest.mark.parametrize("refused", ["admission", "queue"])
def test_a_refused_body_is_let_go_with_its_answer(
    served: Served, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Not when the garbage collector comes by: that may be a thousand refused bodies later."""
    learn(served, DENSE)
    held: list[Any] = []
    made = stream_dr.rows_draft

    def seen(*given: Any) -> Any:
        draft = made(*given)
        held.append(weakref.ref(draft.block.X))
        if refused == "queue":
            monkeypatch.setattr(served.directory, "limits", served.directory.limits._replace(max_lag=-1))
        return draft

    monkeypatch.setattr(stream_dr, "rows_draft", seen)
    gc.collect()
    gc.disable()
    try:
        told = post(served.http, arrow(np.ones((5, 3))))
        assert (told.status_code, told.json()["code"]) in ((422, "width_mismatch"), (429, "overloaded"))
        wait_until(lambda: held[0]() is None, 5)
        assert held[0]() is None
    finally:
        gc.enable()


def test_named_columns_in_any_order(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        rows = [{"width": float(w), "height": float(h)} for w, h in DENSE[:, :2]]
        batch = {"rows": rows, "labels": CLASSES.tolist()}
        served.http.post("/partial_fit?wait=applied", json=batch).raise_for_status()
        turned = [dict(reversed(row.items())) for row in rows]
        told = [served.http.post("/transform?model=lda", json={"rows": some}).json()["z"] for some in (rows, turned)]
        np.testing.assert_array_equal(*told)
        assert served.http.get("/stream").json()["names"] == ["width", "height"]


@pytest.mark.parametrize("label", [2**64 + 1, -(2**63) - 1, 1e30])
def test_a_label_that_no_answer_can_hold_is_refused_and_the_service_goes_on(tmp_path: Path, label: float) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/m", json={"estimator": "class_means"}).raise_for_status()
        refused = served.http.post("/partial_fit", json={"rows": [[1, 2], [3, 4]], "labels": [label, 1]})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_targets")
        ends = [-(2**63), 2**64 - 1]
        body = {"rows": [[1, 2], [3, 4]], "labels": ends}
        served.http.post("/partial_fit?wait=applied", json=body).raise_for_status()
        assert served.http.get("/stream").json()["labels"] == ends
        assert served.http.get("/models/m").json()["classes"] == ends
        assert served.http.put("/models/m", json={"estimator": "class_means"}).status_code == 200


@pytest.mark.parametrize("size", [1e8, 1e20])
def test_an_outlier_that_is_unlearned_leaves_nothing(served: Served, size: float) -> None:
    """One column of it: too large for the digits of what is left beside it, which the log still has."""
    outlier = DENSE[:1].copy()
    outlier[0, 1] = size
    labels = CLASSES.tolist()
    for rows, kinds in ((DENSE[:60], labels[:60]), (outlier, labels[:1]), (DENSE[60:], labels[60:])):
        assert post(served.http, arrow(rows, kinds), path="/partial_fit?wait=applied").status_code == 200
    assert served.http.post("/unlearn?wait=applied", json={"positions": [1]}).json()["lag"] == 0
    for name, (key, params) in SPECS.items():
        alone = stream_dr.ESTIMATORS[key](**params)
        for cut in (slice(0, 60), slice(60, None)):
            alone.partial_fit(stream_dr.Block(DENSE[cut], CLASSES[cut]))
        expected = alone.transform(DENSE)
        told = np.asarray(post(served.http, arrow(DENSE), path=f"/transform?model={name}").json()["z"])
        signs = np.sign(np.sum(expected * told, axis=0))
        np.testing.assert_allclose(told * signs, expected, rtol=1e-6, atol=1e-6)


def test_unlearned_rows_that_are_still_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demand = {"rows": None, "seconds": None, "idle": False}
    with in_thread(tmp_path, wait_timeout=1.0) as served:
        diagonal = {"estimator": "lda", "params": {"scatter": "diagonal", "gamma": 1.0}}
        served.http.put("/models/refined", json=diagonal).raise_for_status()
        learn(served, DENSE)
        job = served.http.post("/models/refined/refine", json={}).json()
        wait_until(lambda: served.http.get(f"/jobs/{job['id']}").json()["state"] == "done", 20)
        before = served.http.get("/models/refined").json()

        # The refine without the rows stands still, and the old solution is served.
        go_on = threading.Event()
        events = served.directory.history.events
        with monkeypatch.context() as patched:
            patched.setattr(
                served.directory.history, "events", lambda *given, **named: go_on.wait(20) and events(*given, **named)
            )
            answer = served.http.post("/unlearn?wait=applied", json={"positions": [0, 1]})
            assert (answer.status_code, "wait_timeout" in answer.json()["reason"]) == (202, True), answer.text
            told = served.http.get("/models/refined").json()
            assert (told["version"], told["stale_rows"], told["rows"]) == (before["version"], 50, 70)
            go_on.set()
        wait_until(lambda: served.http.get("/models/refined").json()["refined_at"] == 4, 20)
        older = served.http.get(f"/models/refined/projection?version={before['version']}")
        assert (older.status_code, older.json()["code"]) == (404, "unknown_version")

        # A model without a rule learns, and is published on request alone.
        served.http.put("/models/held", json={"estimator": "class_means", "publish": demand}).raise_for_status()
        assert (
            served.http.post(
                "/partial_fit?wait=applied", json={"rows": DENSE[:9].tolist(), "labels": CLASSES[:9].tolist()}
            ).status_code
            == 200
        )
        assert served.http.get("/models/held").json()["version"] == 0
        served.http.post("/models/held/publish").raise_for_status()
        answer = served.http.post("/unlearn?wait=applied", json={"positions": [5]})
        assert (answer.status_code, "POST /models/held/publish" in answer.json()["reason"]) == (202, True), answer.text
        assert served.http.get("/models/held").json()["stale_rows"] == 9
