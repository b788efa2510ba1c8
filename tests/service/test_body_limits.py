"""Bodies: types, sizes, time and memory are bounded, and rights asked, before a route sees a byte."""

import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.serving import ARROW, Served, arrow, in_thread, packed
from tests.support.waiting import wait_until

ROWS = arrow(np.arange(8.0).reshape(4, 2), ["a", "b", "a", "b"])
CHUNKED = "Transfer-Encoding: chunked"
LIMITS = {"max_body_bytes": 100_000, "max_json_bytes": 100, "max_queue_bytes": 150_000, "body_timeout": 0.5}


class Line:
    """A connection on which requests are written by hand."""

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=20)
        self._stream = self.socket.makefile("rb")

    def begin(self, length: int | None, *headers: str, path: str = "/partial_fit", kind: str = ARROW) -> "Line":
        """Send a head; length None: the body comes in chunks."""
        how = CHUNKED if length is None else f"Content-Length: {length}"
        given = [
            f"POST {path} HTTP/1.1",
            "Host: localhost",
            how,
            *([f"Content-Type: {kind}"] if kind else []),
            *headers,
        ]
        self.socket.sendall("\r\n".join([*given, "", ""]).encode())
        return self

    def send(self, body: bytes, chunked: bool = False) -> "Line":
        self.socket.sendall(b"%x\r\n%s\r\n" % (len(body), body) if chunked else body)
        return self

    def told(self) -> tuple[int, dict[str, str], Any]:
        """The next answer: status, headers, body."""
        status = int(self._stream.readline().split()[1])
        pairs = (line.decode().strip().split(": ", 1) for line in iter(self._stream.readline, b"\r\n"))
        headers = {name.lower(): value for name, value in pairs}
        return status, headers, json.loads(self._stream.read(int(headers["content-length"])))

    def refused(self) -> tuple[int, str]:
        """The next answer's status and code."""
        status, _, body = self.told()
        return status, body["code"]

    def close(self) -> None:
        """Go away."""
        self._stream.close()
        self.socket.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("bodies"), **LIMITS) as served:
        yield served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with tokens."""
    with in_thread(tmp_path_factory.mktemp("guarded"), write_token="w" * 16, read_token="r" * 16) as served:
        yield served


@pytest.fixture
def line(served: Served) -> Iterator[Line]:
    with opened(served) as line:
        yield line


@contextmanager
def opened(served: Served) -> Iterator[Line]:
    line = Line(served)
    try:
        yield line
    finally:
        line.close()


def body_is_held(served: Served) -> bool:
    """Return True if the service holds bytes of a body."""
    return "stream_dr_body_bytes 0.0\n" not in served.http.get("/metrics").text


def until_none_is_held(served: Served) -> None:
    wait_until(lambda: not body_is_held(served), 10)


@pytest.mark.parametrize("piece", [7, 1_000, 10**6])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_is_taken_however_it_is_cut_up(line: Line, chunked: bool, piece: int) -> None:
    body = arrow(np.ones((4 if piece < 1_000 else 2_000, 4)))
    line.begin(None if chunked else len(body), path="/partial_fit?check")
    for at in range(0, len(body), piece):
        line.send(body[at : at + piece], chunked)
    if chunked:
        line.send(b"", chunked)
    status, _, told = line.told()
    assert (status, told["rows"]) == (200, 4 if piece < 1_000 else 2_000)


def test_a_declared_length_is_refused_before_the_body_is_read(line: Line) -> None:
    line.begin(100_001, "Expect: 100-continue")
    assert line.refused() == (413, "body_too_large")  # and nobody was told to go on


def test_a_chunked_body_is_refused_at_the_byte_that_is_too_many(line: Line) -> None:
    line.begin(None).send(b"a" * 60_000, chunked=True).send(b"b" * 40_001, chunked=True)
    assert line.refused() == (413, "body_too_large")


def test_json_has_a_bound_of_its_own(served: Served) -> None:
    answer = served.http.post("/partial_fit", json={"rows": [[1.0]] * 100})
    assert (answer.status_code, answer.json()["limit"]) == (413, 100)
    detail = answer.json()["detail"]
    assert "(max_json_bytes)" in detail
    assert f"as an Arrow stream ({ARROW}), of which 100,000 bytes are taken (max_body_bytes)" in detail
    answer = served.http.put("/models/a", json={"estimator": "l" * 100})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert "Arrow" not in answer.json()["detail"]  # which would be no model


def test_a_body_that_pydantic_reads_is_bounded_at_its_bytes_too(line: Line) -> None:
    line.begin(None, path="/unlearn", kind="application/json").send(b"[" * 101, chunked=True)
    assert line.refused() == (413, "body_too_large")
    line.close()


@pytest.mark.parametrize(
    ("path", "kind", "encoding"),
    [
        ("/partial_fit", "text/csv", "identity"),
        ("/partial_fit", "", "identity"),
        ("/models/a/refine", ARROW, "identity"),
        ("/transform", ARROW, "br"),
        ("/transform", ARROW, "gzip, zstd"),
        ("/nowhere", "image/png", "identity"),
    ],
)
def test_types_that_no_route_reads(line: Line, path: str, kind: str, encoding: str) -> None:
    line.begin(3, f"Content-Encoding: {encoding}", path=path, kind=kind).send(b"abc")
    assert line.refused() == (415, "unsupported_media_type")


def test_a_packing_that_is_not_taken_is_told_which_are(served: Served) -> None:
    answer = served.http.post("/partial_fit", content=ROWS, headers={"Content-Type": ARROW, "Content-Encoding": "br"})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip, zstd")
    assert "encoding br" in answer.json()["detail"]


@pytest.mark.parametrize("piece", [7, 10**6])
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("packing", "header"), [("gzip", "gzip"), ("zstd", "ZSTD")])
def test_a_packed_body_is_its_plain_bytes(line: Line, packing: str, header: str, chunked: bool, piece: int) -> None:
    body = packed(arrow(np.random.default_rng(0).normal(size=(20 if piece < 10 else 2_000, 4))), packing)
    line.begin(None if chunked else len(body), f"Content-Encoding: {header}", path="/partial_fit?check")
    for at in range(0, len(body), piece):
        line.send(body[at : at + piece], chunked)
    if chunked:
        line.send(b"", chunked)
    status, _, told = line.told()
    assert (status, told["rows"]) == (200, 20 if piece < 10 else 2_000)


def test_a_batch_packed_or_not_is_the_same_batch(tmp_path: Path) -> None:
    def send(path: str, body: bytes, kind: str, packing: str) -> httpx.Response:
        content = body if packing == "identity" else packed(body, packing)
        headers = {"Content-Type": kind, "Content-Encoding": packing, "Idempotency-Key": "one"}
        return served.http.post(path, content=content, headers=headers)

    rows = b'{"rows": [[1, 2], [3, 4]], "labels": ["a", "b"]}'
    for first in ("identity", "gzip", "zstd"):
        with in_thread(tmp_path / first) as served:
            served.http.put("/models/lda", json={"estimator": "lda"})
            assert send("/partial_fit?wait=applied", rows, "application/json", first).json()["duplicate"] is False
            for again in ("gzip", "identity", "zstd"):
                told = send("/partial_fit", rows, "application/json", again).json()
                assert (told["position"], told["duplicate"]) == (0, True)
            assert send("/partial_fit", ROWS, ARROW, "gzip").json()["code"] == "key_conflict"
            assert len(send("/transform", rows, "application/json", "zstd").json()["z"]) == 2
            assert send("/unlearn", b'{"positions": [9]}', "application/json", "gzip").status_code == 409
            assert served.http.get("/stream").json()["rows"] == 2
            until_none_is_held(served)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-3],
        lambda body: body[: len(body) // 2],
        lambda body: body[:-20] + bytes([body[-20] ^ 1]) + body[-19:],
        lambda body: body + b"and more",
        lambda body: body + body[:5],
        lambda body: b"PK" + body,
        lambda body: ROWS,
    ],
    ids=["end", "half", "bit", "trailing", "another begun", "in front", "plain"],
)
def test_a_damaged_packing_is_refused_by_name(served: Served, packing: str, damage: Callable[[bytes], bytes]) -> None:
    body = damage(packed(arrow(np.random.default_rng(0).normal(size=(20, 4))), packing))
    headers = {"Content-Type": ARROW, "Content-Encoding": packing}
    answer = served.http.post("/partial_fit", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_input")
    assert f"said to be {packing}" in answer.json()["detail"]
    until_none_is_held(served)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize(
    ("kind", "times", "setting"),
    [(ARROW, 2_000, "max_body_bytes"), ("application/json", 2, "max_json_bytes")],
)
def test_what_a_body_unpacks_to_has_the_limit_of_its_type(
    served: Served, packing: str, kind: str, times: int, setting: str
) -> None:
    body = packed(b" " * 51, packing, times)
    assert len(body) < 5_000
    headers = {"Content-Type": kind, "Content-Encoding": packing}
    answer = served.http.post("/partial_fit", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert "unpacked" in answer.json()["detail"]
    assert f"({setting})" in answer.json()["detail"]
    until_none_is_held(served)


def test_what_a_body_unpacks_to_is_held(served: Served, line: Line) -> None:
    body = packed(b" " * 95_000, "gzip")
    line.begin(60_000).send(b"x")  # holds what it declares
    headers = {"Content-Type": ARROW, "Content-Encoding": "gzip"}
    answer = served.http.post("/partial_fit", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (429, "overloaded")
    assert line.refused() == (408, "request_timeout")
    until_none_is_held(served)
    assert served.http.post("/partial_fit", content=body, headers=headers).json()["code"] == "malformed_input"


def test_a_body_that_could_never_be_held_packed_and_plain_is_413(tmp_path: Path) -> None:
    with in_thread(tmp_path, max_queue_bytes=500) as served:
        headers = {"Content-Type": ARROW, "Content-Encoding": "gzip"}
        answer = served.http.post("/partial_fit", content=packed(b" " * 490, "gzip"), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert "at most 500 are taken (max_queue_bytes)" in answer.json()["detail"]


def test_who_leaves_in_the_middle_of_a_packed_body_leaves_nothing_behind(served: Served) -> None:
    body = packed(ROWS, "gzip")
    with opened(served) as line:
        line.begin(len(body), "Content-Encoding: gzip").send(body[:20])
        wait_until(lambda: body_is_held(served), 10)
    until_none_is_held(served)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_that_does_not_arrive_in_time(served: Served, line: Line, chunked: bool) -> None:
    begun = time.monotonic()
    line.begin(None if chunked else 1_000).send(b"a" * 10, chunked)
    status, headers, told = line.told()
    assert (status, told["code"], headers["connection"]) == (408, "request_timeout", "close")
    assert 0.4 < time.monotonic() - begun < 5
    until_none_is_held(served)


@pytest.mark.parametrize("chunked", [True, False])
def test_no_memory_left_is_429_and_memory_comes_back(served: Served, chunked: bool) -> None:
    part = b"x" * 60_000
    with ExitStack() as lines:
        several = [lines.enter_context(opened(served)) for _ in range(6)]
        for line in several:
            line.begin(None if chunked else 60_001).send(part, chunked)
        told = [line.told() for line in several]
        assert sorted(status for status, _, _ in told) == [408, 408, 429, 429, 429, 429]
        assert {headers["retry-after"] for status, headers, _ in told if status == 429} == {"1"}
    until_none_is_held(served)


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"max_queue_bytes": 500}, "max_queue_bytes"),
        ({"max_body_bytes": 500}, "max_body_bytes"),
        ({"max_json_bytes": 400, "max_queue_bytes": 500}, "max_queue_bytes"),
    ],
)
def test_a_body_that_could_never_be_held_is_413_and_the_limit_is_named(
    tmp_path: Path, limits: dict[str, int], setting: str
) -> None:
    with in_thread(tmp_path, **limits) as served:
        for chunked in (True, False):
            with opened(served) as line:
                status, _, told = line.begin(None if chunked else 600).send(b"a" * 600, chunked).told()
            assert (status, told["code"]) == (413, "body_too_large"), chunked
            assert f"at most 500 are taken ({setting})" in told["detail"], chunked


@pytest.mark.parametrize("length", ["1, 1", "-5", "0x10", "9" * 30, "\u0663"])
def test_a_length_that_is_not_one_is_refused(served: Served, line: Line, length: str) -> None:
    head = f"POST /partial_fit HTTP/1.1\r\nHost: localhost\r\nContent-Type: {ARROW}\r\nContent-Length: {length}\r\n\r\n"
    line.socket.sendall(head.encode() + b"x" * 1_000)
    assert line.socket.recv(100).split()[1] in (b"400", b"413")
    assert served.http.get("/livez").status_code == 200


@pytest.mark.parametrize("answered_first", [False, True])
def test_the_rest_of_a_refused_body_is_not_taken_for_a_request(line: Line, answered_first: bool) -> None:
    body = arrow(np.ones((2_000, 4)))
    line.begin(len(body), path="/partial_fit?wait=never").send(body[:30_000])
    if answered_first:
        assert select.select([line.socket], [], [], 10)[0]
    line.send(body[30_000:]).begin(len(body), path="/partial_fit?check").send(body)
    assert line.refused() == (422, "invalid_request")
    assert line.told()[2]["rows"] == 2_000


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(served: Served) -> None:
    before = served.http.get("/stream").json()["rows"]
    for part in (ROWS[:9], b""):
        with opened(served) as line:
            line.begin(len(ROWS)).send(part)
            wait_until(lambda: body_is_held(served), 10)
    until_none_is_held(served)
    assert served.http.get("/stream").json()["rows"] == before


def test_who_leaves_before_the_answer_has_given_the_batch_all_the_same(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        for _ in range(20):
            with opened(served) as line:
                line.begin(len(ROWS)).send(ROWS)
        wait_until(lambda: served.http.get("/stream").json()["rows"] >= 80, 10)
        assert served.http.get("/stream").json()["rows"] == 80
        until_none_is_held(served)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/partial_fit", "POST"),
        ("/transform?model=a", "POST"),
        ("/unlearn", "POST"),
        ("/models/a", "PUT"),
        ("/models/a/refine", "POST"),
        ("/nowhere", "POST"),
    ],
)
def test_who_has_no_right_is_told_so_before_the_body_is_read(guarded: Served, path: str, method: str) -> None:
    with opened(guarded) as line:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nContent-Length: {10**12}\r\n"
        line.socket.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert line.refused() == (401, "unauthorized")  # not told to go on: nothing was asked of the body


def test_too_many_connections_are_told_so(tmp_path: Path) -> None:
    with in_thread(tmp_path, max_connections=3) as served, ExitStack() as lines:
        for _ in range(3):
            lines.enter_context(opened(served))
        assert served.http.get("/livez").status_code == 503
        lines.close()
        wait_until(lambda: served.http.get("/livez").status_code == 200, 5)
