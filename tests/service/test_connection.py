"""What a connection may send beside bodies, and for how long it may say nothing."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import connection
from service.connection import BESIDE
from tests.service.serving import ARROW, Served, arrow, in_thread

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = arrow([[1, 2], [3, 4]], ["a", "b"])


def learn(how: str, path: str = "/partial_fit") -> bytes:
    """The head of a batch; how: the header that says how its body comes."""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {ARROW}\r\n{how}\r\n\r\n".encode()


CHUNKED = learn("Transfer-Encoding: chunked")
STATED = f"Content-Length: {len(BODY)}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("connection")) as served:
        yield served


@pytest.fixture
def opened(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=10) as opened:
        yield opened


def rest(opened: socket.socket) -> bytes:
    """All that comes until the service closes the connection."""
    found = b""
    try:
        while piece := opened.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def problem(answer: bytes) -> tuple[bytes, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return head.split(b" ")[1], json.loads(body)["code"]


@pytest.mark.parametrize(
    "begin", [b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", b"GET /livez HTTP/1.1\r\na: ", b"GET /", b"G"]
)
def test_a_head_without_end_is_refused(opened: socket.socket, begin: bytes) -> None:
    line = b"a: b\r\n" if begin.endswith(b"\n") else b"aaaaaa"
    opened.sendall(begin + line * (BESIDE // len(line)))
    answer = rest(opened)
    assert problem(answer) == ((b"400", "bad_request") if begin == b"G" else (b"431", "head_too_large"))


def test_a_head_of_nearly_the_bound_is_taken(opened: socket.socket) -> None:
    opened.sendall(GET[:-2] + b"a: b\r\n" * ((BESIDE - 1_000) // 6) + b"\r\n")
    assert opened.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("line", [b"a: b\r\n", b"a"])
def test_what_follows_a_chunked_body_has_an_end(served: Served, opened: socket.socket, line: bytes) -> None:
    before = served.http.get("/stream").json()["rows"]
    body = CHUNKED + b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
    opened.sendall(body + line * (2 * BESIDE // len(line)))
    assert b"200 OK" not in rest(opened)
    assert served.http.get("/stream").json()["rows"] == before


def test_what_follows_a_chunked_body_is_no_header(opened: socket.socket) -> None:
    body = CHUNKED + b"%x\r\n%s\r\n0\r\nIdempotency-Key: late\r\n\r\n" % (len(BODY), BODY)
    for _ in range(2):
        opened.sendall(body)
        assert b'"duplicate":false' in opened.recv(10_000)


def test_many_small_requests_are_not_one_long_head(opened: socket.socket) -> None:
    count = 2 * BESIDE // len(GET)
    opened.sendall(GET * count + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert rest(opened).count(b"200 OK") == count + 1


def test_what_is_no_http_is_a_problem(opened: socket.socket) -> None:
    opened.sendall(b"hello\r\n\r\n")
    assert problem(rest(opened)) == (b"400", "bad_request")


def test_what_is_no_http_is_not_answered_in_the_place_of_a_request(served: Served, opened: socket.socket) -> None:
    served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
    opened.sendall(learn(STATED, "/partial_fit?wait=applied") + BODY + b"hello\r\n\r\n")
    assert not rest(opened).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"GET /livez HTT", GET + b"GET /livez HTTP/1.1\r\nHost:"])
def test_a_connection_that_says_nothing_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.3)
    with socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=10) as opened:
        opened.sendall(begin)
        begun = time.monotonic()
        rest(opened)
        assert 0.2 < time.monotonic() - begun < 3


def test_empty_lines_after_an_answer_do_not_keep_a_connection(
    opened: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.3)
    for _ in range(2):
        opened.sendall(GET)
        assert opened.recv(1 << 16).startswith(b"HTTP/1.1 200")
        opened.sendall(b"\r\n")
        time.sleep(0.1)
    begun = time.monotonic()
    assert rest(opened) == b""
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("length", [9_000, 90_000, 9_000_000])
def test_the_rest_of_an_answered_body_is_not_waited_for_without_end(
    opened: socket.socket, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    opened.sendall(learn(f"Content-Length: {length}", "/partial_fit?wait=never"))
    assert opened.recv(100).startswith(b"HTTP/1.1 422")
    begun = time.monotonic()
    while time.monotonic() - begun < 10:
        try:
            opened.sendall(b"x")
        except OSError:
            break
        time.sleep(0.02)
    assert time.monotonic() - begun < 5


def test_a_body_that_comes_slowly_is_waited_for(opened: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.2)
    opened.sendall(learn(STATED))
    for i in range(0, len(BODY), len(BODY) // 5):
        time.sleep(0.1)
        opened.sendall(BODY[i : i + len(BODY) // 5])
    assert opened.recv(100).startswith(b"HTTP/1.1 200")


def test_too_many_connections_are_told_so(tmp_path: Path) -> None:
    with in_thread(tmp_path, max_connections=3) as served:
        address = ("127.0.0.1", int(served.url.rsplit(":", 1)[1]))
        idle = [socket.create_connection(address, timeout=10) for _ in range(3)]
        answer = served.http.get("/livez")
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "not_ready", "1")
        for silent in idle:
            silent.close()
        begun = time.monotonic()
        while served.http.get("/livez").status_code != 200 and time.monotonic() - begun < 5:
            time.sleep(0.05)
        assert served.http.get("/livez").status_code == 200
