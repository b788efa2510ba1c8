"""Fuzz the service, the long form: mutated bodies, then schemathesis against the service's own OpenAPI.

    python -m tests.campaigns.fuzz_service [--runs 20000] [--seed S] [--resume FILE] [--schemathesis PATH] [--examples 50]

Each body goes to a service in a process of its own, a third of them in requests whose heads are changed, too. Wanted: no
5xx, no crash, no more memory than 64 times a body's bytes and 64 MB, and the stream unchanged by whatever was refused.
schemathesis is taken from PATH or from --schemathesis (pip install schemathesis, in an environment of its own if you like);
without it that part is left out and said so.
"""

import argparse
import collections
import contextlib
import random
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np

from tests.campaigns import record
from tests.campaigns.memory import allowed, grown, reset
from tests.campaigns.mutated_bodies import bases
from tests.campaigns.mutated_bodies import body as structural
from tests.support import mutating
from tests.support.serving import ARROW, Process, arrow

JSON = "application/json"
PART = 1_000
TARGETS = (
    ("/partial_fit", ARROW, mutating.arrow_stream),
    ("/partial_fit?check", ARROW, mutating.arrow_stream),
    ("/transform?model=lda", ARROW, mutating.arrow_stream),
    ("/partial_fit", JSON, mutating.json_batch),
    ("/transform?model=lda", JSON, mutating.json_batch),
)


def mutated(url: str, http: httpx.Client, numbers: range, seed: int, pid: int) -> collections.Counter[str]:
    """Send those bodies and requests to the service of process `pid`; what was answered. Raises SystemExit at the first that
    does harm, or takes more memory than its bytes may."""
    statuses: collections.Counter[str] = collections.Counter()
    whole = [*mutating.SOUND, *bases(np.random.default_rng(seed))]
    before = http.get("/stream").json()
    for number in numbers:
        path, kind, make = TARGETS[number % 3 if number % 5 else 3 + number // 5 % 2]
        draw = random.Random(f"{seed}:{number}")
        if number % 2:
            body = make(draw)
        else:
            body = structural(whole, seed, number)
            kind = JSON if body[:1] == b"{" else ARROW
        begun = reset(pid)
        if number % 3:
            answer = http.post(path, content=body, headers={"Content-Type": kind})
            status, text, learns = str(answer.status_code), answer.text, path == "/partial_fit"
        else:
            sent = mutating.request(draw, draw.choice(mutating.SOUND) if number % 2 else body, kind)
            status = text = raw(url, sent)
            learns = sent.startswith((b"POST /partial_fit", b"POST /partial_fit?wait")) and b"check" not in sent[:40]
        statuses[f"answered {status}"] += 1
        taken = grown(pid, begun)
        statuses["most bytes"] = max(statuses["most bytes"], taken)
        if taken > allowed(len(body)):
            raise SystemExit(f"seed {seed}, number {number}: {len(body)} bytes took {taken}: {status} {text}")
        if status[:1] == "5":
            raise SystemExit(f"seed {seed}, number {number}: {status} {text}")
        after = http.get("/stream").json()
        if after != before and (status != "200" or not learns):
            raise SystemExit(f"seed {seed}, number {number}: refused ({status}) or asked only, but the stream changed")
        before = after
    return statuses


def raw(url: str, request: bytes) -> str:
    """The status that bytes on a connection are answered with; "nothing": none in two seconds."""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=2) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            connection.sendall(request)
            while len(answer) < 12 and (more := connection.recv(1 << 16)):
                answer = (answer + more).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        found = answer.partition(b" ")[2][:3]
        return found.decode("latin1") or "nothing"


def schemathesis(url: str, program: str | None, examples: int) -> None:
    """schemathesis' own run: no 5xx, answers as documented."""
    found = shutil.which(program or "schemathesis")
    if found is None:
        print("schemathesis is not installed; its part was left out")
        return
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        str(Path(found).absolute()),
        "run",
        f"{url}/openapi.json",
        "--checks",
        checks,
        "--max-examples",
        str(examples),
    ]
    command += ["--exclude-path", "/events", "--request-timeout", "30"]
    with tempfile.TemporaryDirectory() as folder:  # it writes what it finds where it runs
        print(f"schemathesis ended with {subprocess.run(command, check=False, cwd=folder).returncode}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemathesis")
    parser.add_argument("--examples", type=int, default=50)
    options = record.options(parser, runs=20_000)
    done = record.Record(options)
    with tempfile.TemporaryDirectory() as folder:
        process = Process(Path(folder), max_features=10_000, body_timeout=0.5)  # what it says is read at the end
        try:
            with httpx.Client(base_url=process.url, timeout=60) as http:
                http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
                http.put("/models/pca", json={"estimator": "ccipca"}).raise_for_status()
                first = arrow(mutating.ROWS, list("abcabca"))
                http.post(
                    "/partial_fit?wait=applied", content=first, headers={"Content-Type": ARROW}
                ).raise_for_status()
                while done.done < done.runs:
                    stop = min(done.done + PART, done.runs)
                    done.add(
                        stop, dict(mutated(process.url, http, range(done.done, stop), done.seed, process.popen.pid))
                    )
                print(done.told())
                schemathesis(process.url, options.schemathesis, options.examples)
                states = {name: model["state"] for name, model in http.get("/models").json()["models"].items()}
        finally:
            status = process.stop()
        print(f"models afterwards: {states}; the service ended with {status}")


if __name__ == "__main__":
    main()
