"""The service's two figures, each in one run on this machine, alternated, medians.

    python benchmarks/service.py ingest  [--estimator ccipca --param n_components=10] [--rows 160000] [--rounds 5] [--keys]
    python benchmarks/service.py latency [--seconds 20]

ingest: rows per second of processor time of the service while one client posts 8,000-row sparse batches (generated, one of
four labels a row, d = 47,236, float64; --passes times) until its one model has learned them, beside those of an in-process
replay of the same batches from shards. The client is this process, and its time is not the service's.
latency: GET /transform of one sparse row while batches are posted as fast as they are taken, beside a bare FastAPI route on
uvicorn, asked in turn with it while the same load burns the same CPU.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

ARROW = "application/vnd.apache.arrow.stream"
BARE = """
import sys, uvicorn
from fastapi import FastAPI
from starlette.responses import Response
app = FastAPI()
@app.get("/bare")
async def bare(model: str, indices: str, values: str):
    return Response(b'{"z":[[0.1,0.2,0.3]]}', media_type="application/json")
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""


def shards(folder: Path, rows: int, batch_rows: int) -> None:
    """RCV1-like batches of so many rows with one of four labels a row, as shards."""
    from stream_dr.datasets.generate import WIDTH, generate_rcv1_like
    from stream_dr.shards.folder import ShardWriter

    with ShardWriter(folder, 10 * batch_rows, batch_rows, n_features=WIDTH) as writer:
        for block in generate_rcv1_like(rows, "top4"):
            writer.write(block)
        writer.close()


def bodies(rows: int, batch_rows: int) -> list[bytes]:
    """The same batches, each as an Arrow stream."""
    import pyarrow as pa

    found = []
    with tempfile.TemporaryDirectory() as folder:
        shards(Path(folder), rows, batch_rows)
        for path in sorted(Path(folder).glob("*.arrow*")):
            with pa.OSFile(str(path)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    out = pa.BufferOutputStream()
                    with pa.ipc.new_stream(out, reader.schema) as writer:
                        writer.write_batch(reader.get_batch(number))
                    found.append(out.getvalue().to_pybytes())
    return found


@contextmanager
def service(folder: Path, **settings: Any) -> Iterator[tuple[int, int]]:
    """The service in a process of its own: (port, pid)."""
    told = {"dir": folder, "port": 0, "min_free_bytes": 0, "log_level": "error"} | settings
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DR_")}
    named = {f"STREAM_DR_{name.upper()}": str(value) for name, value in told.items()}
    process = subprocess.Popen([sys.executable, "-m", "service"], env=clean | named, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = next((line for line in process.stderr if line.startswith("serving http")), "")
        yield int(line.rsplit(":", 1)[1]), process.pid
    finally:
        process.terminate()
        status = process.wait(120)
        process.stderr.close()
        if status:
            print(f"the service ended with {status}", file=sys.stderr)


def request(port: int, method: str, path: str, body: bytes | None = None, kind: str = ARROW) -> tuple[int, Any]:
    """One request on a connection of its own."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, body, {"Content-Type": kind} if body else {})
    answer = connection.getresponse()
    told = json.loads(answer.read() or b"null")
    connection.close()
    return answer.status, told


def put(port: int, name: str, key: str, params: dict[str, Any]) -> None:
    """Make a model."""
    body = json.dumps({"estimator": key, "params": params}).encode()
    status, told = request(port, "PUT", f"/models/{name}", body, "application/json")
    if status not in (200, 201):
        raise SystemExit(told)


def post_all(port: int, batches: list[bytes], connections: int, keys: bool = False) -> None:
    """Send all batches over so many connections, until they are durable and learned."""
    left = iter(batches)
    lock = threading.Lock()

    def send() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
            while True:
                with lock:
                    body = next(left, None)
                if body is None:
                    return
                while _posted(connection, body, keys) == 429:
                    time.sleep(0.05)

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while request(port, "GET", "/models")[1]["models"]["m"]["lag"]:
        time.sleep(0.02)


def _posted(connection: socket.socket, body: bytes, key: bool) -> int:
    """The status of one batch's answer, 200 or 429. By hand: http.client takes twice the processor time, which on the
    machine where the service runs is taken from it."""
    lines = ["POST /partial_fit HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {ARROW}", f"Content-Length: {len(body)}"]
    if key:
        lines.append(f"Idempotency-Key: {uuid4()}")
    head = "\r\n".join([*lines, "", ""]).encode()
    sent = connection.sendmsg([head, body])
    connection.sendall(memoryview(body)[max(0, sent - len(head)) :])
    answer = b""
    while (end := answer.find(b"\r\n\r\n")) < 0 or len(answer) < end + 4 + _length(answer[:end]):
        piece = connection.recv(1 << 16)
        if not piece:
            raise SystemExit(f"the service closed the connection after {answer!r}")
        answer += piece
    status = int(answer.split(maxsplit=2)[1])
    if status not in (200, 429):
        raise SystemExit(answer)
    return status


def _length(head: bytes) -> int:
    """The length of an answer's body."""
    found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


def replayed(shards: Path, folder: Path, options: argparse.Namespace, params: dict[str, Any]) -> float:
    """Processor seconds of an in-process replay, without start-up."""
    from stream_dr import Directory, Limits
    from stream_dr.running.replay import ReplaySettings, replay
    from stream_dr.shards.dataset import open_dataset

    with Directory(folder, limits=Limits(min_free_bytes=0)) as directory:
        directory.add_model("m", options.estimator, params)
        data, begun = open_dataset([shards]), time.process_time()
        replay(directory, data, ReplaySettings(loops=options.passes))
        return time.process_time() - begun


def posted(folder: Path, batches: list[bytes], options: argparse.Namespace, params: dict[str, Any]) -> float:
    """Processor seconds of the service while it takes the batches and learns them."""
    with service(folder) as (port, pid):
        put(port, "m", options.estimator, params)
        post_all(port, batches[:1], 1)  # as the first replay: what is loaded once is not counted
        begun = processor_seconds(pid)
        post_all(port, batches * options.passes, options.connections, options.keys)
        return processor_seconds(pid) - begun


def processor_seconds(pid: int) -> float:
    """Return the user and system time of a process so far, all threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ingest(options: argparse.Namespace) -> None:
    """Figure 1."""
    import stream_dr

    params = dict(_param(text) for text in options.param)
    stream_dr.warm_up([stream_dr.ESTIMATORS[options.estimator](**params)])
    batches = bodies(options.rows, options.batch_rows)
    seconds: dict[str, list[float]] = {"replay": [], "http": []}
    with tempfile.TemporaryDirectory(dir=options.dir) as top:
        shards(Path(top) / "shards", options.rows, options.batch_rows)
        replayed(Path(top) / "shards", Path(top) / "first", options, params)
        for turn in range(options.rounds):
            seconds["replay"].append(replayed(Path(top) / "shards", Path(top) / f"r{turn}", options, params))
            seconds["http"].append(posted(Path(top) / f"h{turn}", batches, options, params))
    rate = {name: options.passes * options.rows / statistics.median(taken) for name, taken in seconds.items()}
    ratio = statistics.median(r / h for r, h in zip(seconds["replay"], seconds["http"], strict=True))
    print(
        f"{options.estimator}, batches of {options.batch_rows:,} rows; rows per second of processor time: in-process replay "
        f"{rate['replay']:,.0f}, over HTTP, durable, {rate['http']:,.0f}"
    )
    print(f"ratio {ratio:.2f} (wanted: 0.5 for ccipca of 10 components, 0.35 for lda)")


def latency(options: argparse.Namespace) -> None:
    """Figure 2."""
    batches = bodies(20_000, 1_000)
    bare_port = _free_port()
    bare = subprocess.Popen([sys.executable, "-c", BARE, str(bare_port)])
    try:
        with tempfile.TemporaryDirectory(dir=options.dir) as top, service(Path(top)) as (port, _):
            put(port, "m", "ccipca", {"n_components": 3})
            request(port, "POST", "/partial_fit?wait=applied", batches[0])
            load = subprocess.Popen([sys.executable, __file__, "load", "--port", str(port)])
            try:
                time.sleep(3)
                _compare(port, bare_port, options.seconds)
            finally:
                load.kill()
                load.wait()
    finally:
        bare.kill()
        bare.wait()


def _compare(port: int, bare_port: int, seconds: float) -> None:
    indices = ",".join(str(i * 13) for i in range(80))
    query = f"?model=m&indices={indices}&values={','.join(['0.11'] * 80)}"
    asked = {"transform": (HTTPConnection("127.0.0.1", port), f"/transform{query}")}
    asked["bare"] = (HTTPConnection("127.0.0.1", bare_port), f"/bare{query}")
    taken: dict[str, list[float]] = {name: [] for name in asked}
    deadline = time.monotonic() + seconds
    before = request(port, "GET", "/stream")[1]["rows"]
    while time.monotonic() < deadline:
        for name, (connection, path) in asked.items():
            begun = time.perf_counter()
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            taken[name].append(time.perf_counter() - begun)
            if answer.status != 200:
                raise SystemExit(f"{name}: {answer.status}")
    rows = (request(port, "GET", "/stream")[1]["rows"] - before) / seconds
    print(f"{len(taken['bare'])} of each, under ingest of {rows:,.0f} rows/s")
    for share, name, wanted in ((0.5, "p50", 2.5), (0.99, "p99", 5)):
        found = {k: sorted(v)[int(len(v) * share)] * 1e3 for k, v in taken.items()}
        ratio = found["transform"] / found["bare"]
        told = f"transform {found['transform']:.2f} ms, bare {found['bare']:.2f} ms"
        print(f"{name}: {told}, ratio {ratio:.2f} (at most {wanted} is wanted)")


def load(options: argparse.Namespace) -> None:
    """Post without end (the load of `latency`)."""
    batches = bodies(20_000, 1_000)
    while True:
        post_all(options.port, batches, 2)


def _free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return int(some.getsockname()[1])


def _param(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=["ingest", "latency", "load"])
    parser.add_argument("--estimator", default="ccipca")
    parser.add_argument("--param", action="append", default=[])
    parser.add_argument("--rows", type=int, default=160_000)
    parser.add_argument("--passes", type=int, default=2, help="over the rows, in both")
    parser.add_argument("--batch-rows", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--keys", action="store_true", help="give every batch an idempotency key")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--dir", help="where the temporary directories go")
    options = parser.parse_args()
    globals()[options.figure](options)


if __name__ == "__main__":
    main()
