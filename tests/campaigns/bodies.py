"""Mutated bodies against the codec and the service: each is either read or refused with one of our errors.

    python -m tests.campaigns.bodies codec [--runs 20000] [--seed S] [--resume FILE] [--keep DIR]
    python -m tests.campaigns.bodies codec BODY…        prints what becomes of these files
    python -m tests.campaigns.bodies service [--runs 20000] [--seed S] [--resume FILE] [--schemathesis PATH] [--examples 50]
    python -m tests.campaigns.bodies coverage CORPUS -max_total_time=1800 [-seed=S] [other options of libFuzzer]

Body N of a seed is the same in every run, and FILE says which ones were tried, so that a long run is done in parts.

codec: Arrow streams and JSON. Prints how many bodies came to what, and the most memory and time that one took. Bodies that
did harm are stored in DIR. Exits 1 if there are any: a crash, an error that is not one of ours, more memory (64 times its
bytes and 64 MB) or time than is allowed, or a Block that is not sound.

service: each body goes to a service in a process of its own, a third of them in requests whose heads are changed, too.
Exits 1 at a 5xx, a crash, more memory than 64 times a body's bytes and 64 MB, or a stream that a refused body changed.
Then schemathesis runs against the service's own OpenAPI. It is taken from PATH or from --schemathesis (pip install
schemathesis, in an environment of its own if you like). Without it that part is left out and said so.

coverage: bodies that take new ways through stream_dr.arrow are kept and mutated further (pip install atheris). CORPUS is a
folder. It begins with well-formed bodies, grows by what is new, and is used again the next time. The status is not 0 if a
body did harm. That body is stored as crash-… in the current folder.
"""

import argparse
import collections
import random
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import httpx
import numpy as np
import scipy.sparse as sp

import stream_dr
from stream_dr.batch.arrow import block_from_arrow, read_arrow
from stream_dr.batch.block import check_finite
from stream_dr.errors import StreamDRError
from tests.support import bounded, mutating, record
from tests.support.memory import allowed, grown, reset
from tests.support.mutated_bodies import bases
from tests.support.mutated_bodies import body as mutated_body
from tests.support.serving import ARROW, Process, arrow, raw_status

LIMIT = 16 << 20
"""Bytes that a body may unpack to."""

JSON = "application/json"
TARGETS = (
    ("/partial_fit", ARROW, mutating.arrow_stream),
    ("/partial_fit?check", ARROW, mutating.arrow_stream),
    ("/transform?model=lda", ARROW, mutating.arrow_stream),
    ("/partial_fit", JSON, mutating.json_batch),
    ("/transform?model=lda", JSON, mutating.json_batch),
)


def outcome(data: bytes) -> str:
    """Return "read", the code of the error that refused the body, "memory" or "wrong: …"."""
    try:
        if data[:1] in (b"{", b"["):
            block = stream_dr.parse_rows(data, "json", None)
        else:
            block = block_from_arrow(read_arrow(data, LIMIT))
        check_finite(block.X)
    except StreamDRError as e:
        return e.code if len(str(e)) < 10_000 else "wrong: an error of 10,000 letters"
    except MemoryError:
        return "memory"
    except Exception as e:
        return f"wrong: {type(e).__name__}: {e}"[:300]
    if block.sparse:
        fresh = sp.csr_matrix((block.X.data, block.X.indices, block.X.indptr), shape=block.X.shape)
        if not fresh.has_canonical_format:
            return "wrong: indices are not sorted and distinct"
    for name in ("y", "weights", "ids"):
        part = getattr(block, name)
        if part is not None and (part.rows if name == "y" else len(part)) != block.rows:
            return f"wrong: {name} of another number of rows"
    return "read"


def codec(done: record.Record, options: argparse.Namespace) -> None:
    """Read bodies in processes that may end with them."""
    whole = bases(np.random.default_rng(done.seed))
    for data in whole:
        told = outcome(data)  # compiles what is compiled, once for all processes
        if told != "read":
            sys.exit(f"a base is not read: {told}")
    if options.bodies:
        reports = bounded.run(lambda n: options.bodies[n].read_bytes(), judge, 0, len(options.bodies))
        for report in reports:
            print(f"{options.bodies[report.number]}: {report.outcome}")
            done.counts[report.outcome.split(":")[0]] += 1
        bounded.end(done)
    bounded.try_all(done, lambda number: mutated_body(whole, done.seed, number), judge, options.keep)


def judge(number: int, data: bytes) -> str:
    """Return the outcome of a body."""
    return outcome(data)


def service(done: record.Record, options: argparse.Namespace) -> None:
    """Send bodies to a service."""
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
                    stop = min(done.done + 1_000, done.runs)
                    done.add(stop, mutated(process.url, http, range(done.done, stop), done.seed, process.popen.pid))
                print(done.told())
                schemathesis(process.url, options.schemathesis, options.examples)
                states = {name: model["state"] for name, model in http.get("/models").json()["models"].items()}
        finally:
            status = process.stop()
        print(f"models afterwards: {states}; the service ended with {status}")


def mutated(url: str, http: httpx.Client, numbers: range, seed: int, pid: int) -> collections.Counter[str]:
    """Send the bodies and requests of these numbers to the service of process `pid`, and count the answers.

    Raises SystemExit at the first that does harm, or takes more memory than its bytes may.
    """
    statuses: collections.Counter[str] = collections.Counter()
    whole = [*mutating.SOUND, *bases(np.random.default_rng(seed))]
    before = http.get("/stream").json()
    for number in numbers:
        path, kind, make = TARGETS[number % 3 if number % 5 else 3 + number // 5 % 2]
        draw = random.Random(f"{seed}:{number}")
        if number % 2:
            body = make(draw)
        else:
            body = mutated_body(whole, seed, number)
            kind = JSON if body[:1] == b"{" else ARROW
        begun = reset(pid)
        if number % 3:
            answer = http.post(path, content=body, headers={"Content-Type": kind})
            status, text, learns = str(answer.status_code), answer.text, path == "/partial_fit"
        else:
            sent = mutating.request(draw, draw.choice(mutating.SOUND) if number % 2 else body, kind)
            status = text = raw_status(url, sent)
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


def schemathesis(url: str, program: str | None, examples: int) -> None:
    """Run schemathesis, which wants no 5xx and answers as documented."""
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


def coverage(arguments: list[str]) -> None:
    """Let libFuzzer mutate the bodies of a corpus."""
    folders = [Path(given) for given in arguments if not given.startswith("-")]
    if len(folders) != 1:
        sys.exit(__doc__)
    try:
        import atheris
    except ImportError:
        sys.exit("coverage-guided fuzzing needs atheris: pip install atheris")

    for name, module in list(sys.modules.items()):
        for function in vars(module).values() if name.startswith("stream_dr.arrow") else ():
            if isinstance(function, types.FunctionType) and function.__module__ == name:
                atheris.instrument_func(function)

    def one(data: bytes) -> None:
        told = outcome(data)
        if bounded.harmful(told):
            raise RuntimeError(told)

    folders[0].mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(bases(np.random.default_rng(0))):
        (folders[0] / f"base-{number}").write_bytes(data)
        one(data)
    bounds = [f"-timeout={bounded.SECONDS}", f"-rss_limit_mb={(LIMIT + bounded.MEMORY >> 20) + 512}"]
    atheris.Setup([sys.argv[0], *arguments, *bounds, "-max_len=65536"], one)
    atheris.Fuzz()


def main() -> None:
    """Run one of the three."""
    if sys.argv[1:2] == ["coverage"]:
        coverage(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["codec", "service", "coverage"])
    parser.add_argument("bodies", nargs="*", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--schemathesis")
    parser.add_argument("--examples", type=int, default=50)
    options = record.options(parser, runs=20_000)
    {"codec": codec, "service": service}[options.what](record.Record(options), options)


if __name__ == "__main__":
    main()
