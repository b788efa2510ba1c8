"""Client: what goes in comes out of the library; retries are learned once; errors come back as their classes."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from stream_dr import LDA, Client, errors, table
from stream_dr.client.connection import error_from_response
from tests.support.serving import in_thread
from tests.support.waiting import wait_until

RANDOM = np.random.default_rng(8)
Y = RANDOM.choice(["low", "mid", "top"], size=60)
X = RANDOM.normal(size=(60, 4)) + 2 * np.eye(4)[np.searchsorted(["low", "mid", "top"], Y)]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with in_thread(tmp_path) as served, Client(served.url) as client:
        yield client


@pytest.mark.parametrize("form", ["array", "float32", "csr", "table"])
def test_equals_the_library(client: Client, form: str) -> None:
    rows: Any = {
        "array": lambda: X,
        "float32": lambda: X.astype(np.float32),
        "csr": lambda: sp.csr_matrix(np.where(np.abs(X) > 0.3, X, 0.0)),
        "table": lambda: pd.DataFrame(X, columns=list("abcd")),
    }[form]()
    client.put_model("lda", "lda")
    told = client.partial_fit(rows, Y, wait=True)
    assert told == {"position": 0, "rows": 60, "duplicate": False, "lag": 0}
    expected = LDA().fit(rows, Y).transform(rows)
    np.testing.assert_allclose(np.abs(client.transform(rows)), np.abs(expected), rtol=1e-6, atol=1e-9)
    assert client.models()["lda"]["rows"] == client.model("lda")["rows"] == client.stream()["rows"] == 60


def test_targets_of_every_kind(tmp_path: Path) -> None:
    kinds = {
        "class": RANDOM.integers(0, 3, 60),
        "multilabel": [["a"] if i % 2 else ["a", "b"] for i in range(60)],
        "continuous": RANDOM.normal(size=(60, 2)),
    }
    for kind, y in kinds.items():
        with in_thread(tmp_path / kind) as served, Client(served.url) as client:
            client.partial_fit(X, y)
            assert client.stream()["target_kind"] == kind
            client.partial_fit(X)
            client.partial_fit(X, y)
            assert client.stream()["rows"] == 180


def test_whole_floats_are_read_as_the_stream_reads_them(client: Client) -> None:
    client.partial_fit(X, np.arange(60) % 3)
    client.partial_fit(X, (np.arange(60) % 3).astype(float))
    assert client.stream()["labels"] == [0, 1, 2]


def test_a_column_of_whole_numbers_is_one_label_a_row(client: Client) -> None:
    client.partial_fit(X, (np.arange(60) % 2)[:, None])
    assert (client.stream()["target_kind"], client.stream()["labels"]) == ("class", [0, 1])


@pytest.mark.parametrize("y", [np.arange(60.0) % 3, (np.arange(60.0) % 2)[:, None]])
def test_numbers_that_may_be_either_are_asked_about_until_the_stream_has_a_kind(client: Client, y: np.ndarray) -> None:
    with pytest.raises(errors.InvalidTargets, match='Give target="class" or target="continuous"'):
        client.partial_fit(X, y)
    assert client.stream()["target_kind"] is None
    client.partial_fit(X, y, target="class")
    client.partial_fit(X, y)
    assert (client.stream()["target_kind"], client.stream()["labels"]) == ("class", np.unique(y).tolist())
    with pytest.raises(errors.TargetKindMismatch, match="target='continuous' was given"):
        client.partial_fit(X, y, target="continuous")


def test_a_stream_of_numbers_says_how_it_would_be_one_of_classes(client: Client) -> None:
    client.partial_fit(X, np.arange(60.0), target="continuous")
    client.partial_fit(X, np.arange(60.0))
    with pytest.raises(errors.TargetKindMismatch, match='target="class" reads whole numbers as classes'):
        client.put_model("lda", "lda")
    assert client.stream()["target_kind"] == "continuous"


def test_rows_that_pandas_says_have_no_label_are_sent_as_such(client: Client) -> None:
    client.put_model("lda", "lda", gamma=1.0)
    y = pd.Series(Y, dtype="string").where(np.arange(60) % 3 > 0)
    client.partial_fit(pd.DataFrame(X), y, wait=True)
    told = client.model("lda")
    assert (told["rows"], told["rows_skipped"], told["classes"]) == (40, 20, ["low", "mid", "top"])
    expected = LDA(gamma=1.0).fit(X, y)
    assert (expected.n_samples_seen_, expected.classes_.tolist()) == (40, ["low", "mid", "top"])
    np.testing.assert_allclose(told["eigenvalues"], expected.eigenvalues_)


def test_weights_ids_keys_and_unlearning(client: Client) -> None:
    client.put_model("lda", "lda")
    first = client.partial_fit(X, Y, np.ones(60), [f"r{i}" for i in range(60)], key="k")
    assert client.partial_fit(X, Y, np.ones(60), [f"r{i}" for i in range(60)], key="k") == first | {"duplicate": True}
    client.unlearn(ids=["r0", "r1"], wait=True)
    assert client.model("lda")["rows"] == 58
    client.unlearn(positions=[0], wait=True)
    assert client.model("lda")["rows"] == 0


def test_what_cannot_be_sent_is_told_before_it_is(client: Client) -> None:
    with pytest.raises(errors.SchemaMismatch, match="2 ids were given for 60 rows"):
        client.partial_fit(X, Y, ids=["a", "b"])
    with pytest.raises(errors.SchemaMismatch, match=r"row 0 is 0\.0"):
        client.partial_fit(X, Y, ids=np.arange(60.0))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter, match="key goes into a header"):
        client.partial_fit(X, Y, key="ü")
    with pytest.raises(errors.InvalidParameter, match="token goes into a header"):
        Client("http://127.0.0.1:1", token="ü")
    with pytest.raises(errors.InvalidParameter, match="cannot be said in JSON"):
        client.put_model("lda", "lda", gamma=object())
    for name in ("", "..", 3, "\ud800"):
        with pytest.raises(errors.InvalidParameter, match="no model can be called"):
            client.model(name)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidParameter, match="no job can be called"):
            client.job(name)  # type: ignore[arg-type]
    with pytest.raises(errors.SchemaMismatch, match="Unicode"):
        client.partial_fit(X[:2], Y[:2], ids=["a", "\udc00"])
    with pytest.raises(errors.InvalidParameter, match="0 or more"):
        Client("http://127.0.0.1:1", retries=-1)
    with pytest.raises(errors.InvalidParameter, match="give a list"):
        client.partial_fit(X[:2], Y[:2], ids="ab")
    with pytest.raises(errors.InvalidParameter, match="give a list"):
        client.unlearn(ids="r0")
    with pytest.raises(errors.InvalidParameter, match="begin nor end"):
        client.partial_fit(X, Y, key=" a ")
    for labels in ([2**70] + [1] * 59, [2**63, -1] * 30):
        with pytest.raises(errors.InvalidTargets, match=r"pass .*labels as strings"):
            client.partial_fit(X, labels)
    assert client.stream()["rows"] == 0


def test_numbers_of_numpy_and_no_rows(client: Client) -> None:
    client.put_model("lda", "lda", n_components=np.int64(2), gamma=np.float64(0.5))
    client.partial_fit(X, Y, wait=True)
    assert client.transform(X[:0]).shape == (0, 2)
    client.unlearn(positions=np.array([0]), wait=True)  # type: ignore[arg-type]
    assert client.model("lda")["rows"] == 0


def test_positions_and_ids_at_once_take_nothing_out(client: Client) -> None:
    client.put_model("lda", "lda")
    client.partial_fit(X, Y, ids=[f"r{i}" for i in range(60)], wait=True)
    with pytest.raises(errors.InvalidParameter, match="either"):
        client.unlearn(positions=[0], ids=["r1"])
    assert client.model("lda")["rows"] == 60


def test_a_model_published_on_demand(client: Client) -> None:
    demand = {"rows": None, "seconds": None, "idle": False}
    assert client.put_model("lda", "lda", publish=demand, gamma=1.0)["publish"] == demand
    with pytest.raises(errors.NotFitted, match="learned no row"):
        client.publish("lda")
    client.partial_fit(X[:30], Y[:30], wait=True)
    before = client.model("lda")
    client.partial_fit(X[30:], Y[30:])
    wait_until(lambda: client.model("lda")["rows"] >= 60)
    assert client.model("lda")["version"] == before["version"]
    told = client.publish("lda")
    assert (told["version"], told["published_position"]) == (before["version"] + 1, 1)
    assert client.publish("lda") == told
    expected = LDA(gamma=1.0).fit(X, Y).transform(X)
    np.testing.assert_allclose(np.abs(client.transform(X)), np.abs(expected), atol=1e-9)


def test_every_route_has_a_method_named_as_its_operation(tmp_path: Path) -> None:
    """Each is called, and the service has counted a request of each route; left out are the page and what it draws, and
    GET /transform, which is transform of one row."""
    with in_thread(tmp_path) as served, Client(served.url) as client:
        client.put_model("lda", "lda", gamma=1.0, scatter="diagonal")
        first = client.partial_fit(X, Y, wait=True)
        client.partial_fit(X, Y, wait=True)  # of which rows are left once the first are unlearned
        seen: list[dict[str, Any]] = []
        job = client.refine("lda", wait=True, progress=seen.append)
        assert (job["state"], seen[-1]["converged"]) == ("done", True)
        calls: dict[str, Callable[[], Any]] = {
            "partial_fit": lambda: client.partial_fit(X, Y, check=True),
            "unlearn": lambda: client.unlearn([first["position"]], wait=True),
            "transform": lambda: client.transform(X),
            "predict": lambda: client.predict(X),
            "models": client.models,
            "model": lambda: client.model("lda"),
            "put_model": lambda: client.put_model("again", client.export("lda")),
            "delete_model": lambda: client.delete_model("again"),
            "publish": lambda: client.publish("lda"),
            "projection": lambda: client.projection("lda"),
            "create_release": lambda: client.create_release("lda", "a"),
            "releases": lambda: client.releases("lda"),
            "delete_release": lambda: client.delete_release("lda", "a"),
            "export": lambda: client.export("lda"),
            "refine": lambda: client.refine("lda"),
            "snapshot": lambda: client.snapshot("lda", wait=True),
            "job": lambda: client.job(job["id"]),
            "cancel_job": lambda: client.cancel_job(job["id"]),
            "stream": client.stream,
            "events": lambda: next(client.events())["models"]["lda"],
            "livez": client.livez,
            "readyz": client.readyz,
            "metrics": client.metrics,
        }
        paths = served.http.get("/openapi.json").json()["paths"]
        routes = {told["operationId"]: path for path, methods in paths.items() for told in methods.values()}
        assert routes.keys() - {"dashboard", "figures", "transform_one"} == calls.keys()
        answers = {name: call() for name, call in calls.items()}
        assert (answers["livez"], answers["readyz"]) == (True, True)
        assert all(f'route="{routes[name]}"' in client.metrics() for name in calls if routes[name] != "/events")
        assert all(getattr(Client, name).__doc__ for name in calls)


def test_arrays_know_by_what_they_were_answered(client: Client) -> None:
    client.put_model("lda", "lda", gamma=1.0)
    client.partial_fit(X, Y, wait=True)
    z = client.transform(X)
    assert (z.model, z.version, z.position, z.solution, z.unseen) == ("lda", 1, 0, "exact", 0)
    assert (z[:3].version, (2 * z).model, client.predict(X).version) == (1, "lda", 1)
    assert client.predict_proba(X)[0].model == "lda"
    client.partial_fit(X[:30], Y[:30], wait=True)
    kept = client.projection("lda", version=z.version)
    assert (kept["version"], kept["newest"]) == (1, 2) == tuple(client.model("lda")["versions"])
    np.testing.assert_allclose((X - kept["mean"]) @ kept["components"].T, z, atol=1e-9)
    carried, now = z @ kept["map"] + kept["offset"], client.transform(X)
    assert np.linalg.norm(carried - now) < 0.1 * np.linalg.norm(now)


def test_a_stream_of_tables_is_sent_batch_by_batch(client: Client) -> None:
    client.put_model("lda", "lda", gamma=1.0)
    table = pa.table({**dict(zip("abcd", X.T, strict=True)), "y": Y})
    batches = table.to_reader(max_chunksize=25)
    told = client.partial_fit(batches, "y", key="k", wait=True)
    assert told == {"position": 2, "rows": 60, "duplicate": False, "lag": 0}
    assert client.partial_fit(table.to_reader(max_chunksize=25), "y", key="k")["duplicate"]
    expected = LDA(gamma=1.0).fit(X, Y).transform(X)
    np.testing.assert_allclose(client.transform(table.drop_columns(["y"])), expected, atol=1e-9)


def test_an_estimator_goes_to_the_service_and_back(client: Client, tmp_path: Path) -> None:
    lda = LDA(gamma=1.0).fit(pd.DataFrame(X, columns=list("abcd")), Y)
    assert client.put_model("lda", lda)["rows"] == 60
    lda.save(tmp_path / "lda.safetensors")
    assert client.put_model("lda", tmp_path / "lda.safetensors")["version"] == 1
    frame = pd.DataFrame(X, columns=list("abcd"))
    np.testing.assert_array_equal(client.transform(frame[list("dcba")]), lda.transform(frame))
    client.partial_fit(frame, Y, wait=True)
    back = client.export("lda", tmp_path / "back.safetensors")
    np.testing.assert_array_equal(back.transform(frame), client.transform(frame))
    assert client.put_model("copy", tmp_path / "back.safetensors")["rows"] == 120
    with pytest.raises(errors.CannotRefine):
        client.refine("copy")
    with pytest.raises(errors.InvalidParameter, match="nothing else"):
        client.put_model("copy", lda, gamma=1.0)


def test_a_job_that_fails_raises_its_error_and_one_may_take_too_long(client: Client) -> None:
    client.put_model("lda", "lda", scatter="diagonal")
    client.partial_fit(X, Y, wait=True)
    with pytest.raises(errors.InvalidParameter):
        client.refine("lda", max_passes=0)
    with pytest.raises(TimeoutError, match="after 0 seconds"):
        client.wait_job(client.refine("lda", tol=1e-15, max_passes=1000)["id"], timeout=0)


def test_errors_are_raised_as_their_classes(client: Client) -> None:
    with pytest.raises(errors.UnknownModel):
        client.transform(X, model="none")
    with pytest.raises(errors.UnknownModel, match="say model"):
        client.transform(X)
    with pytest.raises(errors.UnknownEstimator):
        client.put_model("a", "umap")
    with pytest.raises(errors.InvalidParameter):
        client.put_model("a", "lda", gamma=-1.0)
    client.put_model("a", "lda")
    with pytest.raises(errors.ModelExists):
        client.put_model("a", "ccipca")
    with pytest.raises(errors.NotFitted):
        client.transform(X, model="a")
    client.partial_fit(X, Y)
    with pytest.raises(errors.WidthMismatch):
        client.partial_fit(X[:, :2], Y)
    with pytest.raises(errors.NotFinite):
        client.partial_fit(X * np.nan, Y)
    with pytest.raises(errors.UnknownJob):
        client.job("none")
    with pytest.raises(errors.InvalidParameter, match="Idempotency-Key"):
        client.partial_fit(X, Y, key="k" * 5_000)
    with pytest.raises(errors.InvalidParameter, match="tol"):
        client.refine("a", tol=-1.0)
    client.delete_model("a")
    with pytest.raises(errors.UnknownModel):
        client.model("a")


def test_a_recurrence_on_a_weighted_stream(client: Client) -> None:
    client.partial_fit(X, Y, np.ones(60))
    with pytest.raises(errors.InvalidWeights, match="takes none"):
        client.put_model("pc", "ccipca")


def test_a_wrong_token(tmp_path: Path) -> None:
    with in_thread(tmp_path, write_token="long-enough") as served:
        with Client(served.url, token="not this one") as client, pytest.raises(errors.RemoteError) as told:
            client.models()
        assert told.value.details["code"] == "unauthorized"
        with Client(served.url, token="long-enough") as client:
            assert client.models() == {}


class Stubborn(BaseHTTPRequestHandler):
    """Breaks off, then has no room (twice, as a proxy says it once), then answers; writes down each request's key and
    body."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        seen: list[tuple[str, bytes]] = self.server.seen  # type: ignore[attr-defined]
        seen.append((self.headers["Idempotency-Key"], self.rfile.read(length)))
        if len(seen) == 1:
            self.close_connection = True
            return
        busy = len(seen) in (2, 3)
        body = b'{"position": 4, "rows": 60, "duplicate": false}'
        self.send_response(429 if busy else 200)
        if busy:
            self.send_header("Retry-After", "0" if len(seen) == 2 else "Sat, 21 Nov 2026 10:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def test_a_lost_answer_is_asked_for_again_with_the_same_key_and_bytes() -> None:
    with HTTPServer(("127.0.0.1", 0), Stubborn) as server:
        server.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with Client(f"http://127.0.0.1:{server.server_port}") as client:
                client._known_target_kind = "class"
                assert client.partial_fit(X, Y)["position"] == 4
        finally:
            server.shutdown()
            thread.join()
        assert len(server.seen) == 4  # type: ignore[attr-defined]
        assert len(set(server.seen)) == 1  # type: ignore[attr-defined]


def test_nobody_there() -> None:
    with Client("http://127.0.0.1:9", retries=1) as client, pytest.raises(errors.RemoteError, match="2 attempts"):
        client.models()


def test_an_answer_that_is_no_problem_of_ours() -> None:
    import httpx

    for body in (b"<html>", b"[]", b'{"code": "x"}'):
        assert error_from_response(httpx.Response(502, content=body)).details["status"] == 502


def test_a_table_as_it_is_goes_to_a_model_that_was_saved(client: Client) -> None:
    frame = pd.DataFrame({"sex": [*Y], "age": X[:, 0]}).astype({"sex": object})
    frame.loc[::7, "age"] = np.nan
    frame.loc[3, "sex"] = None
    survived = np.where(X[:, 0] > 0.5, "yes", "no")
    lda = LDA(gamma=1.0, feature_map=table()).fit(frame, survived)
    client.put_model("lda", lda)
    assert (client.stream()["layout"], client.stream()["names"]) == ("table", ["sex", "age"])
    rows = {"rows": [{"sex": "low", "age": None}, {"age": 1.5}]}
    expected = lda.transform(pd.DataFrame({"sex": ["low", None], "age": [None, 1.5]}, dtype=object))
    told = client._service.send("POST", "/transform", params={"model": "lda"}, json=rows).json()
    np.testing.assert_allclose(told["z"], expected)
    np.testing.assert_allclose(client.transform(frame), lda.transform(frame))
    assert client.partial_fit(frame[["sex"]], survived, check=True)["columns_missing"] == ["age"]
    assert "columns_missing" not in client.partial_fit(frame, survived, wait=True)
    np.testing.assert_allclose(client.transform(frame), lda.partial_fit(frame, survived).transform(frame), atol=1e-9)
    np.testing.assert_allclose(client.export("lda").transform(frame), lda.transform(frame), atol=1e-9)
