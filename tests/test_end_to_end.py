"""The whole path as separate commands in separate processes, on sparse rows with string labels.

Shards on disk → `replay` → `serve` → POST and GET over HTTP → SIGTERM → `inspect`, `transform`, `verify`; the answers equal
the library's on the same batches, and the states equal those of a directory that replayed everything from disk.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import httpx
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import stream_dr
from tests.support.waiting import wait_until

pytestmark = pytest.mark.test_all

MODELS = {
    "means": ("class_means", {}),
    "lda": ("lda", {"n_components": 2, "gamma": 1.0}),
    "pc": ("ccipca", {"n_components": 3}),
    "skm": ("iskm", {"n_components": 2}),
}
FEATURES, ROWS, BATCH = 60, 480, 40


def batches(seed=7):
    """Twelve batches of sparse rows with string labels; one class comes late."""
    rng = np.random.default_rng(seed)
    for start in range(0, ROWS, BATCH):
        names = np.array(["sport", "law", "arts"] if start >= ROWS // 3 else ["sport", "law"])
        y = rng.choice(names, BATCH)
        X = sp.random(BATCH, FEATURES, density=0.2, format="csr", random_state=rng)
        shift = sp.csr_matrix((np.ones(BATCH), (np.arange(BATCH), [len(v) for v in y])), shape=X.shape)
        yield sp.csr_matrix(X + shift), y


def record_batch(X, y):
    """One batch in the documented Arrow layout, written with pyarrow alone."""
    X.sort_indices()
    indices = pa.ListArray.from_arrays(pa.array(X.indptr, pa.int32()), pa.array(X.indices, pa.int32()))
    values = pa.ListArray.from_arrays(pa.array(X.indptr, pa.int32()), pa.array(X.data, pa.float64()))
    schema = pa.schema(
        [("indices", indices.type), ("values", values.type), ("label", pa.string())],
        metadata={"n_features": str(FEATURES)},
    )
    return pa.record_batch([indices, values, pa.array(y.tolist())], schema=schema)


def write_shard(path, parts):
    parts = [record_batch(X, y) for X, y in parts]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, parts[0].schema) as writer:
        for part in parts:
            writer.write_batch(part)


def as_stream(batch):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def command(*arguments):
    """Run one stream-dr command in a process of its own and give its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "stream_dr.cli", *map(str, arguments)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def model_options():
    for name, (key, params) in MODELS.items():
        settings = ",".join(f"{k}={v}" for k, v in params.items())
        yield from ("--model", f"{name}={key}" + (f":{settings}" if settings else ""))


class Serving:
    """`stream-dr serve` in a process of its own; ended by SIGTERM, which must give status 0."""

    def __init__(self, directory):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stream_dr.cli", "serve", "--dir", str(directory), "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "STREAM_DR_MIN_FREE_BYTES": "0"},
        )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def __enter__(self):
        def is_ready():
            try:
                if self.client.get("/readyz").status_code == 200:
                    return True
            except httpx.TransportError:
                pass
            if self.process.poll() is not None:
                raise RuntimeError(self.process.stderr.read())
            return False

        wait_until(is_ready, 60)
        return self.client

    def __exit__(self, *_):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        _, messages = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, messages


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A directory that replayed two shards and learned the rest over HTTP; with the answers the service gave."""
    root = tmp_path_factory.mktemp("end_to_end")
    parts = list(batches())
    write_shard(root / "a.arrow", parts[:5])
    write_shard(root / "b.arrow", parts[5:8])
    directory = root / "D"
    command("replay", root / "a.arrow", root / "b.arrow", *model_options(), "--dir", directory)
    with Serving(directory) as client:
        posts = [
            client.post(
                "/partial_fit?wait=applied",
                content=as_stream(record_batch(X, y)),
                headers={"Content-Type": "application/vnd.apache.arrow.stream", "Idempotency-Key": f"k{i}"},
            )
            for i, (X, y) in enumerate(parts[8:])
        ]
        again = client.post(
            "/partial_fit",
            content=as_stream(record_batch(*parts[8])),
            headers={"Content-Type": "application/vnd.apache.arrow.stream", "Idempotency-Key": "k0"},
        )
        row = parts[0][0][:1]
        answers = {
            name: client.get(
                "/transform",
                params={
                    "model": name,
                    "indices": ",".join(map(str, row.indices)),
                    "values": ",".join(map(repr, row.data.tolist())),
                },
            ).json()
            for name in MODELS
        }
    return root, directory, parts, posts, again, answers


def test_each_post_is_one_event_and_a_retry_is_the_same_one(served):
    _, _, _, posts, again, _ = served
    assert [p.status_code for p in posts] == [200] * 4
    assert [p.json()["position"] for p in posts] == [8, 9, 10, 11]
    assert not any(p.json()["duplicate"] for p in posts)
    assert again.json() == {"position": 8, "rows": BATCH, "duplicate": True}


@pytest.mark.parametrize("name", MODELS)
def test_the_service_answers_what_the_library_answers(served, name):
    _, _, parts, _, _, answers = served
    key, params = MODELS[name]
    estimator = stream_dr.ESTIMATORS[key](**params)
    for X, y in parts:
        estimator.partial_fit(X, y)
    expected = estimator.transform(parts[0][0][:1])
    got = np.asarray(answers[name]["z"])
    assert got.shape == expected.shape
    np.testing.assert_allclose(np.abs(got), np.abs(expected), rtol=1e-9, atol=1e-12)
    assert answers[name]["position"] == 11


def test_inspect_shows_every_row_and_the_states_of_a_replay_of_everything(served):
    root, directory, parts, *_ = served
    seen = json.loads(command("inspect", directory, "--json"))
    assert (seen["position"], seen["rows"]) == (11, ROWS)
    assert {m["rows"] for m in seen["models"].values()} == {ROWS}
    write_shard(root / "c.arrow", parts[8:])
    other = root / "all"
    command("replay", root / "a.arrow", root / "b.arrow", root / "c.arrow", *model_options(), "--dir", other)
    alone = json.loads(command("inspect", other, "--json"))
    for name in MODELS:
        assert alone["models"][name]["state_sha256"] == seen["models"][name]["state_sha256"], name


def test_transform_and_verify_read_the_same_directory(served):
    root, directory, parts, *_ = served
    out = root / "out.parquet"
    command("transform", directory, "--model", "lda", root / "a.arrow", "-o", out)
    table = (
        pa.parquet.read_table(out) if hasattr(pa, "parquet") else __import__("pyarrow.parquet").parquet.read_table(out)
    )
    assert table.column_names[-2:] == ["z0", "z1"]
    assert table.num_rows == 5 * BATCH
    assert table["label"].to_pylist() == [v for _, y in parts[:5] for v in y]
    command("verify", directory)
    assert pathlib.Path(directory).is_dir()
