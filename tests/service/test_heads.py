"""Heads of requests are bounded in bytes, before any token is asked for."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.serving import Process

pytestmark = pytest.mark.test_all

KIB, MIB = 1 << 10, 1 << 20
CONNECTIONS, HEAD = 400, 60 * KIB


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "D", max_connections=CONNECTIONS + 50)
    yield process
    assert process.stop() == 0


def connected(process: Process) -> socket.socket:
    address = urlsplit(process.url)
    return socket.create_connection((address.hostname, address.port), timeout=10)


def anonymous(process: Process) -> int:
    """Bytes of the process's own memory."""
    status = Path(f"/proc/{process.popen.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * KIB


def head(size: int) -> bytes:
    """A head that does not end."""
    return b"GET /livez HTTP/1.1\r\nhost: a\r\nx-long: " + b"a" * size


def test_unfinished_heads_take_bounded_memory(process: Process) -> None:
    assert httpx.get(f"{process.url}/livez").status_code == 200
    before, slowest = anonymous(process), 0.0
    with ExitStack() as held:
        sockets = [held.enter_context(closing(connected(process))) for _ in range(CONNECTIONS)]
        for number, connection in enumerate(sockets):
            connection.sendall(head(HEAD))
            if number % 40 == 0:
                begun = time.monotonic()
                assert httpx.get(f"{process.url}/livez", timeout=10).status_code == 200
                slowest = max(slowest, time.monotonic() - begun)
        assert anonymous(process) - before < 2 * CONNECTIONS * 64 * KIB + 32 * MIB
        assert slowest < 5.0


def test_a_head_above_the_bound_is_refused_and_one_below_it_answered(process: Process) -> None:
    with closing(connected(process)) as connection:
        connection.sendall(head(80 * KIB))
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"text/plain" in answer
    assert httpx.get(f"{process.url}/livez?x={'a' * 40 * KIB}").status_code in (200, 422)
    assert httpx.get(f"{process.url}/livez").status_code == 200
