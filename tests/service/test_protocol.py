"""Bodies arrive whole, however they are cut up on the way, and so do the requests behind them."""

import gc
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from service import protocol
from service.buffers import Buffers
from service.protocol import AT_ONCE
from tests.service.serving import ARROW, Served, arrow, in_thread


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("protocol"), max_body_bytes=16 << 20) as served:
        yield served


def batch(rows: int) -> bytes:
    return arrow(np.random.default_rng(rows).normal(size=(rows, 64)), [i % 3 for i in range(rows)])


def head(body: bytes, *lines: str) -> bytes:
    told = ["POST /partial_fit HTTP/1.1", "Host: localhost", f"Content-Type: {ARROW}", *lines]
    length = [] if any("chunked" in line for line in lines) else [f"Content-Length: {len(body)}"]
    return "\r\n".join([*told, *length, "", ""]).encode()


def connected(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=30)


def answers(connection: socket.socket, count: int) -> list[dict[str, object]]:
    """The bodies of so many answers, in order."""
    stream, found = connection.makefile("rb"), []
    for _ in range(count):
        lines = iter(stream.readline, b"\r\n")
        lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")]
        found.append(json.loads(stream.read(lengths[0])))
    return found


@pytest.mark.parametrize("piece", [1_000, 65_536, AT_ONCE, AT_ONCE + 1, 10**9])
@pytest.mark.parametrize("rows", [3, 2_000, 10_000])
def test_a_body_in_pieces(served: Served, rows: int, piece: int) -> None:
    body = batch(rows)
    with connected(served) as connection:
        connection.sendall(head(body))
        for at in range(0, len(body), piece):
            connection.sendall(body[at : at + piece])
        assert answers(connection, 1)[0]["rows"] == rows


@pytest.mark.parametrize("piece", [10_000, 3_000_000])
def test_a_chunked_body(served: Served, piece: int) -> None:
    body = batch(6_000)
    with connected(served) as connection:
        connection.sendall(head(body, "Transfer-Encoding: chunked"))
        for at in range(0, len(body), piece):
            part = body[at : at + piece]
            connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert answers(connection, 1)[0]["rows"] == 6_000


def test_requests_one_behind_the_other_are_answered_in_order(served: Served) -> None:
    sizes = [5, 4_000, 7, 9_000, 11]
    with connected(served) as connection:
        sent = b"".join(head(batch(rows)) + batch(rows) for rows in sizes)
        sending = threading.Thread(target=connection.sendall, args=(sent,))
        sending.start()
        assert [answer["rows"] for answer in answers(connection, len(sizes))] == sizes
        sending.join()


def test_many_connections_at_once_keep_their_bytes_apart(served: Served) -> None:
    rows = [1_000 + 137 * i for i in range(12)]
    found: list[object] = []

    def post(count: int) -> None:
        with connected(served) as connection:
            body = batch(count)
            connection.sendall(head(body))
            for at in range(0, len(body), 30_000):
                connection.sendall(body[at : at + 30_000])
            found.append(answers(connection, 1)[0]["rows"])

    threads = [threading.Thread(target=post, args=(count,)) for count in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == rows  # type: ignore[type-var]


def test_a_client_that_waits_to_be_told_to_go_on(served: Served) -> None:
    body = batch(50)
    with connected(served) as connection:
        connection.sendall(head(body, "Expect: 100-continue"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert answers(connection, 1)[0]["rows"] == 50


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(served: Served) -> None:
    before = served.http.get("/stream").json()["rows"]
    body = batch(5_000)
    with connected(served) as connection:
        connection.sendall(head(body) + body[: len(body) // 2])
    assert served.http.post("/partial_fit", content=batch(4), headers={"Content-Type": ARROW}).json()["rows"] == 4
    assert served.http.get("/stream").json()["rows"] == before + 4


def test_a_client_that_goes_away_from_several_requests_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        learn = head(batch(3)).replace(b"/partial_fit", b"/partial_fit?wait=applied") + batch(3)
        for _ in range(10):
            with connected(served) as connection:
                connection.sendall(learn + b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        served.http.post("/partial_fit?wait=applied", content=batch(3), headers={"Content-Type": ARROW})
        assert served.http.get("/stream").json()["rows"] > 3
    assert not caplog.records


def test_a_refused_body_leaves_the_connection_of_others_alone(served: Served) -> None:
    with connected(served) as connection:
        connection.sendall(head(b"x" * (20 << 20)))
        assert answers(connection, 1)[0]["code"] == "body_too_large"
    assert served.http.get("/livez").status_code == 200


def test_a_body_is_received_into_its_place(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = Buffers()
    monkeypatch.setattr(protocol, "_buffers", buffers)
    for rows in (2_000, 2_001):  # 1 MB each, on one connection
        with connected(served) as connection:
            connection.sendall(head(batch(rows)) + batch(rows))
            assert answers(connection, 1)[0]["rows"] == rows
    assert served.http.post("/partial_fit?wait=applied", content=batch(4), headers={"Content-Type": ARROW}).is_success
    deadline = time.monotonic() + 10
    while not buffers.free and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 0 < buffers.free <= 2 * AT_ONCE


@pytest.mark.parametrize("later", [0.0, 0.2])
def test_the_rest_of_a_refused_body_is_not_taken_for_a_request(served: Served, later: float) -> None:
    body = batch(2_000)
    wrong = head(body).replace(b"/partial_fit", b"/partial_fit?wait=never")
    with connected(served) as connection:
        connection.sendall(wrong + body[:100_000])
        time.sleep(later)  # answered by then
        connection.sendall(body[100_000:] + head(body) + body)
        first, second = answers(connection, 2)
    assert (first["code"], second["rows"]) == ("invalid_request", 2_000)


@pytest.mark.parametrize("length", ["1, 1", "-5", "0x10", "9" * 30, "\u0663"])
def test_a_length_that_is_not_one_is_refused(served: Served, length: str) -> None:
    with connected(served) as connection:
        connection.sendall(head(b"").replace(b"Length: 0", f"Length: {length}".encode()) + b"x" * 100_000)
        assert connection.recv(100).split()[1] in (b"400", b"413")
    assert served.http.get("/livez").status_code == 200


@pytest.mark.parametrize("how", ["Content-Length", "chunked"])
def test_bodies_under_way_are_within_the_bound_of_memory(tmp_path: Path, how: str) -> None:
    part = b"x" * (AT_ONCE - 1)
    told = head(part + b"x") if how == "Content-Length" else head(b"", "Transfer-Encoding: chunked") + b"1fffff\r\n"
    with in_thread(tmp_path, max_queue_bytes=2 * AT_ONCE, body_timeout=2) as served, ExitStack() as open_ones:
        connections = [open_ones.enter_context(connected(served)) for _ in range(12)]
        for connection in connections:
            connection.sendall(told + part)
        refused = [connection.recv(100).split()[1] for connection in connections]  # those that wait are 408 in the end
        assert refused.count(b"429") >= 10
        assert set(refused) <= {b"429", b"408"}
        deadline = time.monotonic() + 10
        while "stream_dr_body_bytes 0" not in served.http.get("/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("rest", [1, 1_500_000])
def test_nothing_is_kept_of_a_body_whose_answer_has_begun(
    served: Served, monkeypatch: pytest.MonkeyPatch, rest: int
) -> None:
    buffers = Buffers()
    monkeypatch.setattr(protocol, "_buffers", buffers)
    with connected(served) as connection:
        connection.sendall(head(b"x" * AT_ONCE).replace(ARROW.encode(), b"text/plain") + b"x" * (AT_ONCE - rest))
        assert connection.recv(100).split()[1] == b"415"
        taken = [o for o in gc.get_objects() if type(o) is memoryview and len(o) == AT_ONCE]
        assert not taken


def test_what_comes_with_an_upgrade_is_no_request(served: Served) -> None:
    hidden = b"PUT /models/hidden HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    hidden += b'Content-Length: 19\r\n\r\n{"estimator":"lda"}'
    with connected(served) as connection:
        connection.sendall(head(hidden, "Connection: Upgrade", "Upgrade: h2c"))
        time.sleep(0.1)
        connection.sendall(hidden)
        assert b"".join(iter(lambda: connection.recv(10_000), b"")).count(b"HTTP/1.1 ") == 1
    assert "hidden" not in served.http.get("/models").json()["models"]
