"""A request takes at most 64 times its unpacked bytes and 64 MB, whatever it holds; measured in a process of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pytest

from tests.support.memory import allowed, grown, reset
from tests.support.serving import ARROW, Process, packed, stream
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system tells no peak")
TABLE = {"feature_map": {"map": "table"}}
WORDS = pa.array([" ".join(f"w{i}" for i in range(20_000))])


def rows(count: int, **row: Any) -> bytes:
    """JSON rows that are all the same."""
    return b'{"rows":[' + b",".join([orjson.dumps(row)] * count) + b"]}"


def coded(count: int) -> pa.Array:
    """One long text in each row, a byte each."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), WORDS)


BODIES = {
    "a key a row": orjson.dumps({"rows": [{f"k{i}": "a"} for i in range(40_000)]}),
    "a key in one row": orjson.dumps({"rows": [{f"k{i}": "a" for i in range(60_000)}]}),
    "targets and nulls": orjson.dumps({"rows": [[1]] * 20_000, "target": [[1] * 5_000] + [None] * 19_999}),
    "empty texts": rows(80_000, town=""),
    "numbers": rows(90_000, age=1),
    "no value": rows(60_000, age=None),
    "nulls": stream({"age": pa.nulls(2_000_000)}),
    "booleans": stream({"age": pa.array(np.zeros(2_000_000, bool))}),
    "small numbers": stream({"age": pa.array(np.arange(1_000_000) % 90, pa.int8())}),
    "long texts": stream({"town": coded(50_000)}),
    "days": stream({"born": pa.array(np.arange(200_000, dtype=np.int32) % 9_000).cast(pa.date32())}),
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("memory") / "D")
    with httpx.Client(base_url=process.url, timeout=60) as http:
        for name, key in (("pca", "pca"), ("lda", "lda")):
            http.put(f"/models/{name}", json={"estimator": key, "params": TABLE}).raise_for_status()
        first = [{"age": i % 7, "town": "ab"[i % 2], "born": f"2020-01-{1 + i % 28:02}"} for i in range(40)]
        body = {"rows": first, "labels": ["yes", "no"] * 20}
        assert http.post("/partial_fit?wait=applied", json=body).status_code == 200
    yield process
    assert process.stop() == 0


@pytest.mark.test_all
@pytest.mark.parametrize("path", ["/transform?model=pca", "/predict?model=lda", "/partial_fit?check"])
@pytest.mark.parametrize("name", BODIES)
def test_a_request_takes_no_more_than_its_bytes_allow(process: Process, name: str, path: str) -> None:
    body, pid = BODIES[name], process.popen.pid
    before = reset(pid)
    kind = "application/json" if body[:1] == b"{" else ARROW
    answer = httpx.post(process.url + path, content=body, headers={"Content-Type": kind}, timeout=60)
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["code"] in ("limit_exceeded", "schema_mismatch"), answer.text
        assert "end" in answer.json()["detail"]  # what to send
    assert grown(pid, before) <= allowed(len(body))


@pytest.mark.test_all
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize(("kind", "limit"), [("application/json", 1 << 20), (ARROW, 64 << 20)])
def test_a_bomb_is_refused_as_it_is_unpacked(process: Process, kind: str, limit: int, packing: str) -> None:
    bomb, pid = packed(b"\0" * (1 << 20), packing, times=1 << 10), process.popen.pid
    assert len(bomb) < 1 << 20  # and a gigabyte once it is unpacked
    before = reset(pid)
    headers = {"Content-Type": kind, "Content-Encoding": packing}
    answer = httpx.post(f"{process.url}/partial_fit", content=bomb, headers=headers, timeout=60)
    assert (answer.status_code, answer.json()["code"], answer.json()["limit"]) == (413, "body_too_large", limit)
    assert grown(pid, before) <= limit + (16 << 20)


@pytest.mark.test_all
def test_an_answer_too_large_says_how_many_rows_are_taken(process: Process) -> None:
    answer = httpx.post(
        f"{process.url}/transform?model=pca", content=rows(90_000, age=1), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "limit_exceeded")
    most = answer.json()["limit"]
    assert f"Send at most {most} rows a request." in answer.json()["detail"]
    some = httpx.post(
        f"{process.url}/transform?model=pca",
        content=rows(most // 2, age=1),
        headers={"Content-Type": "application/json"},
    )
    assert some.status_code == 200


@pytest.mark.test_all
def test_memory_comes_back(process: Process) -> None:
    """What was refused is let go."""
    pid = process.popen.pid
    before = reset(pid)
    for _ in range(5):
        httpx.post(
            f"{process.url}/partial_fit?check",
            content=BODIES["a key a row"],
            headers={"Content-Type": "application/json"},
        )
        wait_until(lambda: "stream_dr_body_bytes 0.0\n" in httpx.get(f"{process.url}/metrics").text, 10)
    assert grown(pid, before) <= allowed(len(BODIES["a key a row"]))
