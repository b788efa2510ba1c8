"""The lane of batches and queries answers, bounds and counts as the application does; what it does not take goes there."""

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.lane import Batch, Query
from tests.service.serving import ARROW, Served, arrow, in_thread, stream

ROWS = arrow(np.arange(8.0).reshape(4, 2), ["a", "b", "a", "b"])
LARGE = arrow(np.random.default_rng(0).normal(size=(2_000, 64)), ["a", "b"] * 1_000)
NOT_FINITE = arrow([[1.0, np.nan], [3.0, 4.0]], ["a", "b"])
OTHER_LABELS = arrow([[1.0, 2.0], [3.0, 4.0]], [1, 2])
JSON_ROWS = b'{"rows": [[1, 2], [3, 4]], "labels": ["a", "b"]}'


class Told:
    """An answer: status, headers but for the date, the body."""

    def __init__(self, stream: Any) -> None:
        self.status = int(stream.readline().split()[1])
        lines = [line.decode().strip().split(": ", 1) for line in iter(stream.readline, b"\r\n")]
        self.headers = {name.lower(): value for name, value in lines if name.lower() != "date"}
        self.body = json.loads(stream.read(int(self.headers.pop("content-length"))))


class Line:
    """A connection on which requests are written by hand."""

    opened: list["Line"] = []

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=20)
        self._stream = self.socket.makefile("rb")
        self.opened.append(self)

    def send(self, body: bytes, *headers: str, query: str = "", kind: str = ARROW, version: str = "1.1") -> "Line":
        given = {"Host": "localhost", "Content-Type": kind, "Content-Length": str(len(body))}
        lines = [f"{name}: {value}" for name, value in given.items() if not any(h.startswith(name) for h in headers)]
        head = "\r\n".join([f"POST /partial_fit{query} HTTP/{version}", *lines, *headers, "", ""])
        self.socket.sendall(head.encode() + body)
        return self

    def ask(self, path: str, *headers: str, version: str = "1.1") -> "Line":
        told = headers if any(h.startswith("Host") for h in headers) else ("Host: localhost", *headers)
        self.socket.sendall("\r\n".join([f"GET {path} HTTP/{version}", *told, "", ""]).encode())
        return self

    def told(self) -> Told:
        return Told(self._stream)

    def close(self) -> None:
        """Go away."""
        self._stream.close()
        self.socket.close()

    def ended(self) -> bool:
        """Whether the service has closed the connection."""
        return self._stream.read(1) == b""


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every connection, after each test."""
    yield
    while Line.opened:
        Line.opened.pop().close()


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the bodies that went by the lane."""
    lengths: list[int] = []
    came = Batch.came
    monkeypatch.setattr(Batch, "came", lambda self, body: [lengths.append(len(body)), came(self, body)][1])
    return lengths


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("lane"), write_token="w" * 16, read_token="r" * 16) as served:
        line = Line(served)
        assert line.send(ROWS, f"Authorization: Bearer {'w' * 16}").told().status == 200
        yield served


WRITER = f"Authorization: Bearer {'w' * 16}"
READER = {"Authorization": f"Bearer {'r' * 16}"}
BOTH: dict[str, tuple[bytes, list[str], dict[str, str]]] = {
    "rows": (ROWS, [WRITER], {}),
    "many rows": (LARGE, [WRITER], {}),
    "JSON": (JSON_ROWS, [WRITER], {"kind": "application/json; charset=utf-8"}),
    "not Arrow": (b"not Arrow", [WRITER], {}),
    "not finite": (NOT_FINITE, [WRITER], {}),
    "refused by the stream": (OTHER_LABELS, [WRITER], {}),
    "refused by its width": (LARGE[:-8] + b"\0" * 8, [WRITER], {}),
    "reader": (ROWS, [f"Authorization: Bearer {'r' * 16}"], {}),
    "nobody": (ROWS, [], {}),
    "a bad key": (ROWS, [WRITER, "Idempotency-Key: " + "k" * 257], {}),
    "another type": (ROWS, [WRITER], {"kind": "text/csv"}),
    "compressed as a whole": (ROWS, [WRITER, "Content-Encoding: gzip"], {}),
    "nothing": (b"", [WRITER], {}),
    "HTTP/1.0": (ROWS, [WRITER], {"version": "1.0"}),
    "to be closed": (ROWS, [WRITER, "Connection: close"], {}),
}
"""Requests of which none may be answered otherwise by the lane: body, headers, and how they are sent."""


@pytest.mark.parametrize("what", BOTH)
def test_the_lane_answers_as_the_application_does(served: Served, what: str) -> None:
    body, headers, how = BOTH[what]
    lane = Line(served).send(body, *headers, **how).told()
    application = Line(served).send(body, *headers, query="?check=0", **how).told()
    assert (lane.status, lane.headers) == (application.status, application.headers)
    if lane.status == 200:
        assert application.body.pop("position") == lane.body.pop("position") + 1
    assert lane.body == application.body


def test_what_goes_by_the_lane(served: Served, passed: list[int]) -> None:
    taken = ["rows", "many rows", "JSON", "not Arrow", "not finite", "HTTP/1.0", "to be closed"]
    for what in taken:
        body, headers, how = BOTH[what]
        Line(served).send(body, *headers, **how).told()
    assert passed == [len(BOTH[what][0]) for what in taken]


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ([], "?wait=applied"),
        (["Expect: 100-continue"], ""),
        (["X-Twice: 1", "X-Twice: 2"], ""),
        (["Connection: Upgrade", "Upgrade: h2c"], ""),
    ],
    ids=["waits", "asks first", "a header twice", "an upgrade"],
)
def test_what_does_not(served: Served, passed: list[int], headers: list[str], query: str) -> None:
    assert Line(served).send(ROWS, WRITER, *headers, query=query).socket.recv(20).split()[1] in (
        b"200",
        b"202",
        b"100",
        b"400",
    )
    assert passed == []


def test_larger_bodies_go_to_the_application(served: Served, passed: list[int]) -> None:
    body = arrow(np.zeros((3, 100_000)), ["a", "b", "a"])
    assert Line(served).send(body, WRITER).told().body["code"] == "width_mismatch"
    assert passed == []


def test_keys_are_the_same_by_either_way(served: Served) -> None:
    line, key = Line(served), "Idempotency-Key: lane-1"
    first = line.send(ROWS, WRITER, key).told().body
    again = [line.send(ROWS, WRITER, key, query=query).told().body for query in ("", "?check=0")]
    assert not first["duplicate"]
    assert again == [first | {"duplicate": True}] * 2
    assert line.send(JSON_ROWS, WRITER, key, kind="application/json").told().body["code"] == "key_conflict"


def test_both_ways_are_counted_by_the_same_counters(served: Served) -> None:
    def counted() -> dict[str, float]:
        text = served.http.get("/metrics", headers={"Authorization": WRITER.split(": ")[1]}).text
        named = r"^(stream_dr_(?:requests_total|request_seconds_count|rows_received_total)\S*) (\S+)$"
        return {name: float(value) for name, value in re.findall(named, text, re.MULTILINE)}

    before = counted()
    for query in ("", "?check=0"):
        line = Line(served)
        line.send(ROWS, WRITER, query=query).told()
        line.send(b"not Arrow", WRITER, query=query).told()
    grown = {name: value - before.get(name, 0) for name, value in counted().items() if value != before.get(name, 0)}
    assert {name: grown[name] for name in grown if "metrics" not in name} == {
        'stream_dr_requests_total{method="POST",route="/partial_fit",status="200"}': 2,
        'stream_dr_requests_total{method="POST",route="/partial_fit",status="400"}': 2,
        'stream_dr_request_seconds_count{route="/partial_fit"}': 4,
        "stream_dr_rows_received_total": 8,
    }


def test_a_connection_is_kept_or_closed_as_it_was_asked(served: Served) -> None:
    line = Line(served)
    assert [line.send(ROWS, WRITER).told().status for _ in range(3)] == [200] * 3
    assert line.send(ROWS, WRITER, "Connection: close").told().headers["connection"] == "close"
    assert line.ended()


def test_requests_behind_a_batch_are_answered_after_it(served: Served) -> None:
    line = Line(served)
    for body in (LARGE, ROWS, LARGE, b"not Arrow", ROWS):  # LARGE is refused by its width
        line.send(body, WRITER)
    line.socket.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert [line.told().status for _ in range(6)] == [422, 200, 422, 400, 200, 200]


@pytest.mark.parametrize("query", ["", "?check=0"], ids=["lane", "application"])
@pytest.mark.parametrize("body", [ROWS, LARGE], ids=["small", "large"])
def test_a_body_that_does_not_come_is_given_up(tmp_path: Path, query: str, body: bytes) -> None:
    with in_thread(tmp_path, body_timeout=0.3) as served:
        line = Line(served)
        line.send(body[:-9], f"Content-Length: {len(body)}", query=query)
        told = line.told()
        assert (told.status, told.body["code"], told.headers["connection"]) == (408, "request_timeout", "close")
        assert line.ended()
        gone = Line(served).send(body[:-9], f"Content-Length: {len(body)}", query=query)
        time.sleep(0.05)
        gone.close()
        deadline = time.monotonic() + 10
        while 'status="400"' not in (text := served.http.get("/metrics").text) or "stream_dr_body_bytes 0" not in text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert Line(served).send(body).told().status == 200
        assert served.http.get("/stream").json()["rows"] == (4 if body is ROWS else 2_000)


def test_a_body_that_comes_as_it_is_given_up_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    begin = Batch.__init__

    def _begin(self: Batch, lane: Any, http: Any, *args: Any) -> None:
        begin(self, lane, http, *args)
        begun.append(http)

    monkeypatch.setattr(Batch, "__init__", _begin)
    with in_thread(tmp_path, body_timeout=0.3) as served:
        for rest in (ROWS[-9:], ROWS[-9:] + b"\x16\x03\r\n\r\n"):
            line = Line(served).send(ROWS[:-9], f"Content-Length: {len(ROWS)}")
            time.sleep(0.1)
            begun.pop().loop.call_soon_threadsafe(time.sleep, 0.5)  # the body and its timeout are met in one turn
            time.sleep(0.1)
            line.socket.sendall(rest)
            assert line.socket.recv(100)[:12] in (b"HTTP/1.1 408", b"")
        text = served.http.get("/metrics").text
        assert "stream_dr_body_bytes 0" in text
        assert sum(float(n) for n in re.findall(r'requests_total{.*"/partial_fit".*} (.*)', text)) == 2
        assert served.http.get("/stream").json()["rows"] == 0


def test_what_comes_before_bytes_that_are_no_request_is_not_learned(served: Served) -> None:
    line, before = Line(served), served.http.get("/stream", headers=READER).json()["rows"]
    line.send(ROWS + b"\x16\x03\r\n\r\n", f"Content-Length: {len(ROWS)}", WRITER)
    assert line.ended()
    assert Line(served).send(ROWS, WRITER).told().status == 200
    assert served.http.get("/stream", headers=READER).json()["rows"] == before + 4


def test_a_client_that_does_not_read_its_answers_is_not_read_from_without_end(
    served: Served, passed: list[int]
) -> None:
    wordy = stream({"c" * 60_000: pa.array([1.0])} | {"features": pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2))})
    line = Line(served)
    line.socket.settimeout(1.0)
    sent = 0
    try:
        while sent < 300:
            line.send(wordy, WRITER)
            sent += 1
            time.sleep(0.02)  # answered by then: what comes before the answer is the application's in any case
    except TimeoutError:
        pass
    assert 5 < len(passed) < sent < 300
    told = Line(served).send(wordy, WRITER).told()
    assert (told.status, told.body["code"]) == (422, "schema_mismatch")


X = "/transform?model=lda&x=1.0,2.0"
ASKED: dict[str, tuple[str, list[str], str]] = {
    "a dense row": (X, [], "1.1"),
    "a sparse row": ("/transform?model=lda&indices=0,7&values=1.0,2.0", [], "1.1"),
    "no model": ("/transform?x=1.0,2.0", [], "1.1"),
    "no such model": ("/transform?model=none&x=1.0,2.0", [], "1.1"),
    "an empty model": ("/transform?model=new&x=1.0,2.0", [], "1.1"),
    "too wide": ("/transform?model=lda&x=1.0,2.0,3.0", [], "1.1"),
    "not finite": ("/transform?model=lda&x=1.0,nan", [], "1.1"),
    "no numbers": ("/transform?model=lda&x=a,b", [], "1.1"),
    "no parameters": ("/transform", [], "1.1"),
    "another parameter": (X + "&y=1", [], "1.1"),
    "one twice": (X + "&model=lda", [], "1.1"),
    "in escapes": ("/transf%6frm?model=l%64a&x=1.0,%202.0", [], "1.1"),
    "no body": (X, ["Content-Length: 0"], "1.1"),
    "HTTP/1.0": (X, [], "1.0"),
    "to be closed": (X, ["Connection: close"], "1.1"),
    "foreign": (X, ["Host: example.org"], "1.1"),
    "from a foreign page": (X, ["Origin: http://example.org"], "1.1"),
    "an upgrade": (X, ["Connection: Upgrade", "Upgrade: h2c"], "1.1"),
}
"""Queries of which none may be answered otherwise by the lane: path, headers, version."""


FOUND = {"a dense row", "a sparse row", "in escapes", "no body", "HTTP/1.0", "to be closed", "an upgrade"}
"""Those that have an answer."""


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[Query]:
    """The queries that went by the lane."""
    queries: list[Query] = []
    answer = Query.answer
    monkeypatch.setattr(Query, "answer", lambda self: [queries.append(self), answer(self)][1])
    return queries


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(
        tmp_path_factory.mktemp("queries"), publish_rows=10**9, publish_seconds=1e6, publish_idle=False
    ) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        assert Line(served).send(ROWS, query="?wait=applied").told().status == 200
        served.http.put("/models/new", json={"estimator": "lda", "from": "now"}).raise_for_status()
        yield served


@pytest.mark.parametrize("what", ASKED)
def test_queries_are_answered_as_the_application_does(learned: Served, answered: list[Query], what: str) -> None:
    path, headers, version = ASKED[what]
    lane = Line(learned).ask(path, *headers, version=version).told()
    assert len(answered) == (what != "an upgrade")
    application = Line(learned).ask(path, *headers, "X-Twice: 1", "X-Twice: 2", version=version).told()
    assert len(answered) == (what != "an upgrade")
    assert (lane.status, lane.headers, lane.body) == (application.status, application.headers, application.body)
    assert (lane.status == 200) == (what in FOUND)


def test_queries_are_let_in_by_their_token_and_counted(served: Served, answered: list[Query]) -> None:
    def counted() -> dict[str, float]:
        text = served.http.get("/metrics", headers=READER).text
        named = r'^(stream_dr_requests_total{method="GET",route="/transform"\S*) (\S+)$'
        return {name: float(value) for name, value in re.findall(named, text, re.MULTILINE)}

    before = counted()
    for token in ("", "Authorization: Bearer wrong", WRITER, f"Authorization: {READER['Authorization']}"):
        headers = [token] if token else []
        lane = Line(served).ask(X, *headers).told()
        application = Line(served).ask(X, *headers, "X-Twice: 1", "X-Twice: 2").told()
        assert (lane.status, lane.headers, lane.body) == (application.status, application.headers, application.body)
    assert len(answered) == 4
    assert [value - before.get(name, 0) for name, value in sorted(counted().items())] == [4, 4]  # 401 and 404


def test_requests_around_queries_are_answered_in_order(learned: Served, answered: list[Query]) -> None:
    for _ in range(10):
        line, head = Line(learned), f"GET {X} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        post = f"POST /partial_fit HTTP/1.1\r\nHost: localhost\r\nContent-Type: {ARROW}\r\n".encode()
        post += f"Content-Length: {len(ROWS)}\r\n\r\n".encode() + ROWS
        line.socket.sendall(head + post + head + head + post + head)
        told = [line.told().body for _ in range(6)]
        assert ["z" in body for body in told] == [True, False, True, True, False, True]
        assert line.ask(X).told().status == 200
    assert len(answered) >= 20


def test_a_query_before_bytes_that_are_no_request_is_not_answered_either_way(learned: Served) -> None:
    for extra in ("", "X-Twice: 1\r\nX-Twice: 2\r\n"):
        line = Line(learned)
        line.socket.sendall(f"GET {X} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n\x16\x03\r\n\r\n".encode())
        assert line.ended()


def test_who_leaves_before_the_answer_has_given_the_batch_all_the_same(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        for _ in range(20):
            Line(served).send(ROWS).close()
        deadline = time.monotonic() + 10
        while served.http.get("/stream").json()["rows"] < 80 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert served.http.get("/stream").json()["rows"] == 80
        assert "stream_dr_body_bytes 0" in served.http.get("/metrics").text
