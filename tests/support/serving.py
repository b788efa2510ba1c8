"""Serving: the real service for tests, in a thread of this process or in a process of its own; always on a free port."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow as pa

from service.app import create_app
from service.serve import ServiceServer, bind_socket, open_directory
from service.settings import Settings
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
ARROW = "application/vnd.apache.arrow.stream"
SMALL = {"port": 0, "min_free_bytes": 0, "warm_up": False, "publish_seconds": 0.05, "log_level": "error"}


class Served:
    """A running service: url, an httpx client at it, what it serves, and whether it is ready."""

    def __init__(self, url: str, directory: Any, ready: threading.Event) -> None:
        self.url, self.directory, self.ready = url, directory, ready
        self.http = httpx.Client(base_url=url, timeout=30)


@contextlib.contextmanager
def in_thread(path: Path, until_ready: bool = True, **settings: Any) -> Iterator[Served]:
    """The service on uvicorn in a thread of this process. until_ready: or else until it answers."""
    chosen = Settings(**{"dir": path, **SMALL, **settings})
    listening = bind_socket(chosen)
    with listening, open_directory(chosen) as directory:
        app = create_app(directory, chosen)
        up = threading.Event()
        serving = ServiceServer(app, chosen, up.set)
        thread = threading.Thread(target=serving.run, args=[listening], daemon=True)
        thread.start()
        served = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", directory, up)
        assert up.wait(30) if until_ready else _answers(served.url)
        try:
            with served.http:
                yield served
        finally:
            serving.stop()
            thread.join(30)
        assert not thread.is_alive()


def _answers(url: str) -> bool:
    """Wait until the service answers. Return True if it is alive then."""

    def status() -> int | None:
        with contextlib.suppress(httpx.ConnectError):
            return httpx.get(f"{url}/livez").status_code
        return None

    return wait_until(status, 30) == 200


class Process:
    """`python -m service` in a process of its own; `url` once it answers. under: a command that runs it."""

    def __init__(self, path: Path, under: tuple[str, ...] = (), **settings: Any) -> None:
        chosen = {"dir": path, **SMALL, **settings}
        named = {f"STREAM_DR_{name.upper()}": str(value) for name, value in chosen.items()}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DR_")}
        command = [*under, sys.executable, "-m", "service"]
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, env=clean | named, cwd=ROOT, stderr=pipe, text=True)
        self.url, self.said = "", ""
        while not self.url:
            line = self.popen.stderr.readline()  # type: ignore[union-attr]
            if not line:
                raise RuntimeError(f"the service ended with {self.wait_ended()}: {self.said}")
            self.said += line
            if line.startswith("serving http"):
                self.url = line.split()[1]

    def kill(self) -> None:
        """kill -9."""
        self.popen.kill()
        self.wait_ended()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.popen.send_signal(signal.SIGTERM)
        return self.wait_ended()

    def wait_ended(self) -> int:
        self.said += self.popen.communicate(timeout=60)[1]
        return self.popen.returncode


def arrow(X: Any, y: Any = None, **columns: Any) -> bytes:
    """An Arrow stream of dense rows, with labels and any further columns."""
    X = np.asarray(X, dtype=np.float64)
    arrays = {"features": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])}
    if y is not None:
        arrays["label"] = pa.array(y)
    return stream(arrays | {name: pa.array(values) for name, values in columns.items()})


def sparse_arrow(X: Any, y: Any = None) -> bytes:
    """An Arrow stream of CSR rows; the width is not stated."""
    offsets = pa.array(X.indptr, pa.int32())
    arrays = {
        "indices": pa.ListArray.from_arrays(offsets, pa.array(X.indices, pa.int32())),
        "values": pa.ListArray.from_arrays(offsets, pa.array(X.data)),
    }
    if y is not None:
        arrays["label"] = pa.array(y)
    return stream(arrays)


def stream(arrays: dict[str, Any]) -> bytes:
    """An Arrow stream of one batch of these columns."""
    batch = pa.record_batch(list(arrays.values()), names=list(arrays))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def packed(body: bytes, packing: str, times: int = 1) -> bytes:
    """A body, so many times over, as Content-Encoding `packing` has it."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, packing) as stream:
        for _ in range(times):
            stream.write(body)
    return bytes(out.getvalue())


def post(http: httpx.Client, body: bytes, key: str | None = None, path: str = "/partial_fit") -> httpx.Response:
    """Post an Arrow body."""
    headers = {"Content-Type": ARROW} | ({"Idempotency-Key": key} if key else {})
    return http.post(path, content=body, headers=headers)


def raw_status(url: str, request: bytes) -> str:
    """Send bytes on a connection. Return the status of the answer, or "nothing" if none comes in two seconds."""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=2) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            connection.sendall(request)
            while len(answer) < 12 and (more := connection.recv(1 << 16)):
                answer = (answer + more).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        found = answer.partition(b" ")[2][:3]
        return found.decode("latin1") or "nothing"
