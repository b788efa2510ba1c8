"""A service under load for as long as you like, and ended under it.

    python -m tests.campaigns.soak [--runs 1800] [--seed S] [--resume FILE]

Runs are seconds, done in parts of at most 1,800, each with a service and a directory of its own. 16 connections post keyed
batches, 16 ask, one makes and deletes models (200 in 1,800 seconds), refines and has batches unlearned. Then SIGTERM comes
while all of that goes on. Wanted: no answer but success and the 429 and 503 that a client sends again; memory, descriptors
and threads no more in the last quarter than in the second; exit status 0 within the grace; every batch that was acknowledged
once in the log, which `verify` finds sound. Prints the times of answers, p99.9 among them. Exits 1 where something is not as
wanted.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from stream_dr import Directory
from stream_dr.directory.verify import verify
from tests.support import record
from tests.support.serving import ARROW, Process, arrow

PART, GRACE = 1_800, 60
ROWS, FEATURES = 40, 12
CLIENTS = 16
AGAIN = (429, 503)
MODELS: dict[str, Any] = {
    "lda": {"estimator": "lda"},
    "pca": {"estimator": "pca", "params": {"n_components": 3}},
    "wide": {"estimator": "lda", "params": {"scatter": "diagonal", "gamma": 0.1}},
}
MADE = ("lda", "ccipca", "class_means", "iskm", "opls")


class Load:
    """What is done to a service at `url`, until `stop` is set; `acknowledged` by key: the position."""

    def __init__(self, url: str, seed: int, seconds: float) -> None:
        self._address, self._seed, self.seconds = urlsplit(url).netloc, seed, seconds
        self.stop, self.ending = threading.Event(), threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {"post": [], "ask": []}
        self._threads = [
            threading.Thread(target=self._kept, args=(work, number))
            for work, numbers in ((self._post, CLIENTS), (self._ask, CLIENTS), (self._manage, 1))
            for number in range(numbers)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for the end of all connections."""
        for thread in self._threads:
            thread.join()

    def _kept(self, work: Any, number: int) -> None:
        connection = HTTPConnection(self._address, timeout=60)
        try:
            work(connection, number, random.Random(f"{self._seed}:{work.__name__}:{number}"))
        except (OSError, HTTPException) as e:  # nothing answers any more
            if not self.ending.is_set():
                self.counts[f"wrong: {type(e).__name__}: {e}"[:200]] += 1

    def _asked(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Any:
        """What is answered in the end; None where that is an error."""
        while True:
            kind = {"Content-Type": ARROW if body and body[:1] != b"{" else "application/json"} if body else {}
            connection.request(method, path, body, kind | headers)
            answer = connection.getresponse()
            told = json.loads(answer.read() or b"null")
            if answer.status not in AGAIN:
                break
            self.counts[f"answered {answer.status}"] += 1
            self.stop.wait(0.2)
        self.counts[f"answered {answer.status}"] += 1
        if answer.status < 300:
            return told
        self.counts[f"wrong: {method} {path.split('?')[0]}: {answer.status} {told}"[:300]] += 1
        return None

    def _post(self, connection: HTTPConnection, number: int, draw: random.Random) -> None:
        bodies = []
        for body in range(8):
            rng = np.random.default_rng((self._seed, number, body))
            y = rng.integers(0, 3, ROWS)
            bodies.append(arrow(rng.normal(size=(ROWS, FEATURES)) + y[:, None], ["abc"[i] for i in y]))
        sent = 0
        while not self.stop.is_set():
            key, begun = f"{number}-{sent}", time.monotonic()
            told = self._asked(connection, "POST", "/partial_fit", bodies[sent % 8], **{"Idempotency-Key": key})
            self.times["post"].append(time.monotonic() - begun)
            if told is not None:
                self.acknowledged[key] = told["position"]
            sent += 1
            self.stop.wait(draw.uniform(0, 0.6))

    def _ask(self, connection: HTTPConnection, number: int, draw: random.Random) -> None:
        values = ",".join(["0.5"] * FEATURES)
        while not self.stop.is_set():
            begun = time.monotonic()
            self._asked(connection, "GET", f"/transform?model={draw.choice(('lda', 'pca'))}&x={values}")
            self.times["ask"].append(time.monotonic() - begun)
            self.stop.wait(draw.uniform(0, 0.2))

    def _manage(self, connection: HTTPConnection, number: int, draw: random.Random) -> None:
        """Models made and deleted, seven seconds each on average; now and then one is refined, or a batch unlearned."""
        made = 0
        while not self.stop.is_set():
            name = f"made{made}"
            spec = json.dumps({"estimator": draw.choice(MADE), "from": draw.choice(("now", "now", "start"))}).encode()
            self._asked(connection, "PUT", f"/models/{name}", spec)
            made += 1
            self.counts["models made and deleted"] += 1
            if made % 5 == 0:
                key = draw.choice(list(self.acknowledged))
                gone = json.dumps({"positions": [self.acknowledged[key]]}).encode()
                told = self._asked(connection, "POST", "/unlearn", gone, **{"Idempotency-Key": f"gone-{made}"})
                if told is not None:
                    self.acknowledged[f"gone-{made}"] = told["position"]
                    self.counts["batches unlearned"] += 1
            if made % 10 == 0:
                told = self._asked(connection, "POST", "/models/wide/refine", b'{"max_passes": 2}')
                while told is not None and told["state"] in ("waiting", "running") and not self.stop.is_set():
                    self.stop.wait(1)
                    connection.close()
                    told = self._asked(connection, "GET", f"/jobs/{told['id']}")
                if told is not None and told["state"] == "done":
                    self.counts["refined"] += 1
                elif told is not None and not self.stop.is_set():
                    self.counts[f"wrong: refine: {told}"[:300]] += 1
            self.stop.wait(draw.uniform(0, 14))
            connection.close()  # one that is idle for long is closed by the service
            self._asked(connection, "DELETE", f"/models/{name}")


def used(pid: int) -> dict[str, int]:
    """What a process holds: MiB of anonymous memory, descriptors, threads."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("RssAnon", "Threads")}  # type: ignore[index]
    return {
        "MiB": found["RssAnon"] >> 10,
        "threads": found["Threads"],
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def part(folder: Path, seconds: float, seed: int) -> dict[str, float]:
    """What came of one part."""
    process = Process(folder / "D", snapshot_seconds=5, publish_seconds=1, log_level="warning")
    said = threading.Thread(target=lambda: process.popen.stderr.read())  # type: ignore[union-attr]
    said.start()
    connection = HTTPConnection(urlsplit(process.url).netloc, timeout=60)
    for name, spec in MODELS.items():
        connection.request("PUT", f"/models/{name}", json.dumps(spec), {"Content-Type": "application/json"})
        assert connection.getresponse().read()
    rng = np.random.default_rng(seed)
    first = arrow(rng.normal(size=(ROWS, FEATURES)), ["abc"[i % 3] for i in range(ROWS)])
    connection.request("POST", "/partial_fit?wait=applied", first, {"Content-Type": ARROW, "Idempotency-Key": "first"})
    acknowledged = {"first": json.loads(connection.getresponse().read())["position"]}
    connection.close()
    load, samples = Load(process.url, seed, seconds), []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.popen.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.popen.wait(min(5.0, seconds / 20))
        with suppress(FileNotFoundError):
            samples.append(used(process.popen.pid))
    load.ending.set()
    begun = time.monotonic()
    process.popen.send_signal(signal.SIGTERM)
    status = process.popen.wait(4 * GRACE)
    ended = time.monotonic() - begun
    load.stop.set()
    load.join()
    said.join()
    counts = load.counts
    if status or ended > GRACE:
        counts[f"wrong: ended with {status} after {ended:.1f} s"] += 1
    _look(folder / "D", load.acknowledged | acknowledged, counts)
    _held(samples, counts)
    for name, times in load.times.items():
        for share in (50, 99, 99.9):
            counts[f"most {name} p{share} ms"] = float(np.percentile(times, share)) * 1e3  # type: ignore[assignment]
        counts[f"most {name} ms"] = max(times) * 1e3  # type: ignore[assignment]
    return dict(counts) | {"most s to end": ended, "batches acknowledged": len(load.acknowledged)}


def _look(path: Path, acknowledged: dict[str, int], counts: Counter[str]) -> None:
    """Count what of what was acknowledged is not once in the log, and what `verify` finds."""
    with Directory(path, writable=False) as directory:
        known = {key: directory.log.find_key(key) for key in acknowledged}
        counts["wrong: lost"] += sum(getattr(known[key], "position", -1) != at for key, at in acknowledged.items())
        counts["wrong: doubled"] += len(acknowledged) - len(set(acknowledged.values()))
        unacknowledged = directory.position + 1 - len(acknowledged)
        counts["in the log and not acknowledged"] += unacknowledged
        counts["wrong: more than were under way"] += unacknowledged > CLIENTS + 1
        failed = [name for name in MODELS if directory.models[name].failure]
        counts["wrong: models that failed"] += len(failed)
    counts["wrong: damage"] += sum(finding.error is not None for finding in verify(path))


def _held(samples: list[dict[str, int]], counts: Counter[str]) -> None:
    """Count what the process held more of in the last quarter than in the second."""
    quarter = len(samples) // 4
    for name, much in (("MiB", 40), ("threads", 8), ("descriptors", 40)):
        early = max(sample[name] for sample in samples[quarter : 2 * quarter])
        late = max(sample[name] for sample in samples[3 * quarter :])
        counts[f"most {name} in the second quarter"] = early
        counts[f"most {name} in the last quarter"] = late
        if late > 1.1 * early + much:
            counts[f"wrong: {name} grew"] += 1


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = record.options(parser, runs=PART)
    done = record.Record(options)
    while done.done < done.runs:
        seconds = min(PART, done.runs - done.done)
        with tempfile.TemporaryDirectory() as folder:
            done.add(done.done + seconds, part(Path(folder), seconds, done.seed + done.done))
    print(done.told())
    wrong = {name: number for name, number in done.counts.items() if name.startswith("wrong") and number}
    print(wrong or "nothing was wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
