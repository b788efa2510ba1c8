"""Fuzz the service, the long form: mutated bodies, then schemathesis against the service's own OpenAPI.

    python -m benchmarks.fuzz_service [--count 20000] [--seed 0] [--schemathesis PATH] [--examples 50]

Each body goes to a service in a process of its own. Wanted: no 5xx, no crash, and the stream unchanged by whatever was
refused. schemathesis is taken from PATH or from --schemathesis (pip install schemathesis, in an environment of its own if
you like); without it that part is left out and said so.
"""

import argparse
import collections
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import httpx
import numpy as np

from benchmarks.mutated_bodies import bases
from benchmarks.mutated_bodies import body as structural
from tests.service import mutating
from tests.service.serving import ARROW, Process, arrow

JSON = "application/json"
TARGETS = (
    ("/partial_fit", ARROW, mutating.arrow_stream),
    ("/partial_fit?check", ARROW, mutating.arrow_stream),
    ("/transform?model=lda", ARROW, mutating.arrow_stream),
    ("/partial_fit", JSON, mutating.json_batch),
    ("/transform?model=lda", JSON, mutating.json_batch),
)


def mutated(http: httpx.Client, count: int, seed: int) -> None:
    """Send `count` mutated bodies; raise SystemExit at the first that does harm."""
    statuses: collections.Counter[int] = collections.Counter()
    whole = [*mutating.SOUND, *bases(np.random.default_rng(seed))]
    before = http.get("/stream").json()
    for number in range(count):
        path, kind, make = TARGETS[number % 3 if number % 5 else 3 + number // 5 % 2]
        if number % 2:
            body = make(random.Random(f"{seed}:{number}"))
        else:
            body = structural(whole, seed, number)
            kind = JSON if body[:1] == b"{" else ARROW
        answer = http.post(path, content=body, headers={"Content-Type": kind})
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            raise SystemExit(f"seed {seed}, number {number}: {answer.status_code} {answer.text}")
        after = http.get("/stream").json()
        if after != before and (answer.status_code != 200 or path != "/partial_fit"):
            raise SystemExit(f"seed {seed}, number {number}: refused or asked only, but the stream changed")
        before = after
    print(f"{count} mutated bodies: " + ", ".join(f"{n} × {status}" for status, n in sorted(statuses.items())))


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
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--schemathesis")
    parser.add_argument("--examples", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process = Process(Path(folder), max_features=10_000, log_level="warning")
        try:
            with httpx.Client(base_url=process.url, timeout=60) as http:
                http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
                http.put("/models/pca", json={"estimator": "ccipca"}).raise_for_status()
                first = arrow(mutating.ROWS, list("abcabca"))
                http.post(
                    "/partial_fit?wait=applied", content=first, headers={"Content-Type": ARROW}
                ).raise_for_status()
                mutated(http, options.count, options.seed)
                schemathesis(process.url, options.schemathesis, options.examples)
                states = {name: model["state"] for name, model in http.get("/models").json()["models"].items()}
        finally:
            status = process.stop()
        print(f"models afterwards: {states}; the service ended with {status}")


if __name__ == "__main__":
    main()
