"""Which of our files and functions a request enters, counted by sys.setprofile.

    python -m benchmarks.journeys [post|get|replay] [--list]

post: the third Arrow batch of an LDA, `POST /partial_fit?wait=applied`. get: `GET /transform` of one row. replay:
`stream-dr replay` of two batches. Each runs in a process of its own, the service as `serve` starts it, on loopback.
Counted is what runs in any thread while the request is under way; what importing a module runs is left out, and so are
compiled kernels, and what a timer runs that falls into the window. A file is "deep" where it belongs to the numerics or
to the ground floor (DEEP, and the modules at the top of stream_dr). --list names the files with their functions. The exit
status is 1 where a journey enters more files than its bar allows; tests/test_journeys.py runs this.
"""

import argparse
import contextlib
import http.client
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARROW = "application/vnd.apache.arrow.stream"
DEEP = ("statistics", "solve", "estimators", "feature_maps")
BARS = {"post": (26, "outside numerics and ground floor"), "get": (11, "in all"), "replay": (47, "as post")}
ROWS, FEATURES = 200, 8
GRACE = 0.5
"""Seconds for what follows an answer (snapshots, listeners) to be counted with it."""


class Recorder:
    """Collects the code objects of ours that are called while it is on, in every thread started after it."""

    def __init__(self) -> None:
        self.on = False
        self._entered: set[CodeType] = set()
        self._by_timers: set[CodeType] = set()
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call":
            self._entered.add(frame.f_code)

    @contextlib.contextmanager
    def recording(self, grace: float = 0.0) -> Any:
        """Count what is called in the with-block, and for `grace` seconds after it."""
        self.on = True
        try:
            yield
            time.sleep(grace)
        finally:
            self.on = False

    def watch_timers(self, seconds: float) -> None:
        """Note what is called while nobody asks; it is not counted."""
        with self.recording(seconds):
            pass
        self._by_timers, self._entered = self._entered, set()

    def files(self) -> dict[str, list[str]]:
        """File (relative to the project) → names of the functions that were entered in it."""
        found: dict[str, set[str]] = defaultdict(set)
        for code in self._entered - self._by_timers:
            path = Path(code.co_filename)
            if is_function(code) and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in OURS:
                found[str(path.relative_to(ROOT))].add(code.co_qualname)
        return {name: sorted(found[name]) for name in sorted(found)}


OURS = ("stream_dr", "service")


def is_function(code: CodeType) -> bool:
    """Whether the code is a function's: neither a module's nor a class's body."""
    return bool(code.co_flags & 0x1)  # CO_OPTIMIZED


def deep(name: str) -> bool:
    """Whether a file belongs to the numerics or to the ground floor."""
    top, *inner = Path(name).parts
    return top == "stream_dr" and (len(inner) == 1 or inner[0] in DEEP)


def batch(number: int) -> bytes:
    """An Arrow stream of labelled dense rows."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(number)
    labels = rng.integers(0, 3, ROWS)
    X = rng.normal(size=(ROWS, FEATURES)) + 2 * labels[:, None]
    features = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), FEATURES)
    record = pa.record_batch([features, pa.array([f"c{label}" for label in labels])], names=["features", "label"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    return sink.getvalue().to_pybytes()


def ask(address: str, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> None:
    """One request, on a connection of its own, that must succeed."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body or None, {"content-type": kind} if body else {})
        answer = connection.getresponse()
        told = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {told[:300]!r}")


def drive(address: str, which: str, recorder: Recorder) -> None:
    """Make the model, let two batches be learned, then record the request that is asked for."""
    ask(address, "PUT", "/models/lda", b'{"estimator": "lda"}')
    for number in (1, 2):
        ask(address, "POST", "/partial_fit?wait=applied", batch(number), ARROW)
    row = "/transform?model=lda&x=" + ",".join(["0.5"] * FEATURES)
    ask(address, "GET", row)
    time.sleep(2 * GRACE)
    recorder.watch_timers(3 * GRACE)
    if which == "post":
        body = batch(3)
        with recorder.recording(GRACE):
            ask(address, "POST", "/partial_fit?wait=applied", body, ARROW)
    else:
        with recorder.recording():
            ask(address, "GET", row)


def serve(which: str, recorder: Recorder) -> None:
    """The service in this process, until its one client is done with it."""
    from service.serve import serve
    from service.settings import Settings

    failed: list[BaseException] = []

    def ready(address: str) -> None:
        def client() -> None:
            sys.setprofile(None)
            try:
                drive(address, which, recorder)
            except BaseException as e:
                failed.append(e)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=client, daemon=True).start()

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(dir=Path(folder) / "D", port=0, min_free_bytes=0, warm_up=False, log_level="error")
        serve(settings, on_ready=ready)
    if failed:
        raise failed[0]


def replay(recorder: Recorder) -> None:
    """`stream-dr replay` of two batches in this process."""
    from stream_dr.cli import main

    with tempfile.TemporaryDirectory() as folder:
        for number in (1, 2):
            Path(folder, f"{number}.arrows").write_bytes(batch(number))
        shards = [str(Path(folder, f"{number}.arrows")) for number in (1, 2)]
        arguments = ["replay", *shards, "--dir", str(Path(folder) / "D"), "--model", "lda=lda"]
        sys.argv = ["stream-dr", *arguments]
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            recorder.recording(),
            contextlib.suppress(SystemExit),
        ):
            main()


def show(which: str, listed: bool) -> bool:
    """Print one journey; whether it keeps its bar."""
    recorder = Recorder()
    if which == "replay":
        replay(recorder)
    else:
        serve(which, recorder)
    sys.setprofile(None)
    files = recorder.files()
    outside = [name for name in files if not deep(name)]
    counted = files if which == "get" else outside
    bar, meaning = BARS[which]
    functions = sum(map(len, files.values()))
    print(
        f"{which}: {len(outside)} files outside numerics and ground floor, {len(files)} in all, {functions} functions; "
        f"bar {bar} ({meaning}): {'kept' if len(counted) <= bar else 'NOT kept'}"
    )
    if listed:
        for name, entered in files.items():
            print(f"  {'  ' if deep(name) else ''}{name}: {', '.join(entered)}")
    return len(counted) <= bar


def main() -> int:
    """Every journey that is asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=BARS)
    parser.add_argument("--list", action="store_true", help="name the files and functions")
    given = parser.parse_args()
    if given.which:
        return 0 if show(given.which, given.list) else 1
    command = [sys.executable, "-m", "benchmarks.journeys", *(["--list"] if given.list else [])]
    return max(subprocess.run([*command, which], cwd=ROOT, timeout=300).returncode for which in BARS)


if __name__ == "__main__":
    sys.exit(main())
