"""The process: what it refuses to start with, how a signal ends it, one writer a directory."""

import logging
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest

import stream_dr
from tests.support.serving import Process, arrow, in_thread, post
from tests.support.waiting import wait_until

X = np.random.default_rng(2).normal(size=(50, 4))
Y = ["ab"[i % 2] for i in range(50)]
SAFETENSORS = {"Content-Type": "application/safetensors"}


class Hold(NamedTuple):
    """A warm-up that waits for `go_on`, and the estimators for which it was asked."""

    go_on: threading.Event
    asked: list[object]


@pytest.mark.test_all
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit, by which a process is let open fewer files")
def test_fewer_files_than_connections_need_are_refused_at_the_start(tmp_path: Path) -> None:
    few = ("prlimit", "--nofile=64:400")
    with pytest.raises(RuntimeError, match=r"open 400 files .* max_connections = 300 and 256 .* make 556"):
        Process(tmp_path, few, max_connections=300)
    process = Process(tmp_path, few, max_connections=100)
    with stream_dr.Client(process.url) as client:
        assert client.partial_fit(X, Y)["position"] == 0
    assert process.stop() == 0


@pytest.mark.every_run
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.test_all)])
def test_a_signal_drains_snapshots_and_exits_0(tmp_path: Path, number: int) -> None:
    process = Process(tmp_path)
    with httpx.Client(base_url=process.url, timeout=30) as http:
        http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        for i in range(20):
            post(http, arrow(X, Y), f"k{i}").raise_for_status()
    process.popen.send_signal(number)
    assert process.wait_ended() == 0, process.said
    with stream_dr.Directory(tmp_path, writable=False) as directory:
        model = directory.model("lda")
        assert (directory.position, model.position, model.rows) == (19, 19, 1_000)
        assert model.last_snapshot.position == 19


@pytest.mark.test_all
def test_an_open_events_connection_does_not_hold_up_the_end(tmp_path: Path) -> None:
    process = Process(tmp_path)
    seen = threading.Event()

    def listen() -> None:
        with httpx.Client(base_url=process.url, timeout=30) as http, http.stream("GET", "/events") as events:
            for _ in events.iter_lines():
                seen.set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert seen.wait(20)
    begun = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - begun < 5
    thread.join(10)


def refuses_connections(address: tuple[str, int]) -> bool:
    """Return True if nobody listens at an address."""
    try:
        socket.create_connection(address, 20).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.every_run
@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.test_all)])
def test_a_request_that_stalls_does_not_hold_up_the_end_and_is_told_so(tmp_path: Path, signals: int) -> None:
    process = Process(tmp_path, stop_timeout=1 if signals == 1 else 100, log_level="info")
    address = ("127.0.0.1", int(process.url.rsplit(":", 1)[1]))
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
    paths = ("/partial_fit", "/unlearn")
    begun = time.monotonic()
    with ExitStack() as lines:
        silent, *halves = (lines.enter_context(socket.create_connection(address, 20)) for _ in range(3))
        silent.sendall(b"GET /li")
        for half, path in zip(halves, paths, strict=True):
            half.sendall(head % path.encode())
        wait_until(lambda: "stream_dr_body_bytes 0.0\n" not in httpx.get(f"{process.url}/metrics").text)
        process.popen.send_signal(signal.SIGTERM)
        if signals == 2:
            wait_until(lambda: refuses_connections(address))
            process.popen.send_signal(signal.SIGTERM)
        for half in halves:
            answer = b"".join(iter(lambda: half.recv(10_000), b""))  # noqa: B023
            assert (answer.split()[1], b'"code": "shutting_down"' in answer) == (b"503", True)
        assert process.wait_ended() == 0
    assert time.monotonic() - begun < 20
    assert "Traceback" not in process.said
    for path in paths:
        (line,) = [line for line in process.said.splitlines() if f"POST {path}" in line]
        assert line.endswith(": 503, CancelledError")


@pytest.mark.every_run
def test_posts_that_meet_the_end_are_refused_or_kept(tmp_path: Path) -> None:
    """Clients posting while SIGTERM arrives: every batch acknowledged is in the log, no other is."""
    process = Process(tmp_path)
    acknowledged: list[int] = []

    def keep_posting() -> None:
        with httpx.Client(base_url=process.url, timeout=30) as http:
            while True:
                try:
                    answer = post(http, arrow(X, Y))
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    acknowledged.append(answer.json()["position"])
                else:
                    assert answer.json()["code"] in ("shutting_down", "overloaded")

    threads = [threading.Thread(target=keep_posting) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(acknowledged) >= 20)
    assert process.stop() == 0, process.said
    for thread in threads:
        thread.join(20)
    with stream_dr.Directory(tmp_path, writable=False) as directory:
        assert len(set(acknowledged)) == len(acknowledged) > 0
        assert max(acknowledged) <= directory.position
        assert directory.position + 1 - len(acknowledged) <= len(threads)


@pytest.fixture
def held_warm_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hold]:
    """A warm-up that lasts until the test lets it go on."""
    hold = Hold(threading.Event(), [])

    def warm_up(estimators: list[object]) -> None:
        hold.asked.extend(estimators)
        hold.go_on.wait(30)

    monkeypatch.setattr("stream_dr.running.model_thread.warm_up", warm_up)
    yield hold
    hold.go_on.set()


def add_models(path: Path, **estimators: str) -> None:
    with stream_dr.Directory(path, limits=stream_dr.Limits(min_free_bytes=0)) as directory:
        for name, key in estimators.items():
            directory.add_model(name, key, {})


@pytest.mark.every_run
def test_it_answers_while_it_compiles_and_is_ready_after(tmp_path: Path, held_warm_up: Hold) -> None:
    add_models(tmp_path, lda="lda")
    with in_thread(tmp_path, until_ready=False, warm_up=True) as served:
        answer = served.http.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert "compiling for lda" in answer.json()["detail"]
        assert "stream_dr_ready 0.0\n" in served.http.get("/metrics").text
        assert post(served.http, arrow(X, Y)).json()["position"] == 0
        assert served.http.get("/models/lda").json()["state"] == "catching_up"
        assert not served.ready.is_set()
        held_warm_up.go_on.set()
        assert served.ready.wait(30)
        assert served.http.get("/readyz").json() == {"status": "ready"}


def test_a_new_model_waits_with_a_reason_while_others_publish(tmp_path: Path, held_warm_up: Hold) -> None:
    with in_thread(tmp_path, warm_up=True) as served:
        held_warm_up.go_on.set()
        served.http.put("/models/means", json={"estimator": "class_means"}).raise_for_status()
        wait_until(lambda: served.http.get("/models/means").json()["state"] == "live")

        held_warm_up.go_on.clear()
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        saved = stream_dr.LDA().fit(X, Y)
        stream_dr.save(saved, tmp_path / "saved.safetensors")
        body = (tmp_path / "saved.safetensors").read_bytes()
        served.http.put("/models/saved", content=body, headers=SAFETENSORS).raise_for_status()
        post(served.http, arrow(X, Y)).raise_for_status()
        wait_until(lambda: served.http.get("/models/means").json()["rows"] == len(X))
        wait_until(lambda: served.http.get("/models/means").json()["version"])

        state = served.http.get("/models/lda").json()
        assert (state["state"], state["rows"]) == ("catching_up", 0)
        assert "being compiled" in state["reason"]
        answer = served.http.get("/models/lda/projection")
        assert (answer.status_code, answer.json()["code"]) == (503, "catching_up")
        assert "being compiled" in answer.json()["detail"]
        assert served.http.get("/readyz").json() == {"status": "ready"}
        z = post(served.http, arrow(X), path="/transform?model=saved").raise_for_status().json()["z"]
        assert np.allclose(z, saved.transform(X))

        held_warm_up.go_on.set()
        wait_until(lambda: served.http.get("/models/lda").json()["version"])
        state = served.http.get("/models/lda").json()
        assert (state["state"], state["rows"], state["reason"]) == ("live", len(X), None)


def test_no_warm_up_warms_nothing(tmp_path: Path, held_warm_up: Hold) -> None:
    add_models(tmp_path, lda="lda")
    with in_thread(tmp_path, warm_up=False) as served:
        served.http.put("/models/pca", json={"estimator": "ccipca"}).raise_for_status()
        post(served.http, arrow(X, Y), path="/partial_fit?wait=applied").raise_for_status()
    assert held_warm_up.asked == []


def test_probes_while_it_compiles_are_not_logged(
    tmp_path: Path, held_warm_up: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    add_models(tmp_path, lda="lda")
    caplog.set_level(logging.INFO, "service")
    with in_thread(tmp_path, until_ready=False, warm_up=True) as served:
        assert [served.http.get("/readyz").status_code for _ in range(3)] == [503] * 3
        held_warm_up.go_on.set()
        assert served.ready.wait(30)
        assert served.http.get("/nowhere").status_code == 404
    lines = [record.getMessage() for record in caplog.records if record.name == "service"]
    assert lines == ["GET /nowhere: 404, HTTPException"]


@pytest.mark.every_run
def test_a_stop_while_it_compiles_waits_for_one_model(tmp_path: Path, held_warm_up: Hold) -> None:
    add_models(tmp_path, lda="lda", pca="ccipca")
    with in_thread(tmp_path, until_ready=False, warm_up=True) as served:
        post(served.http, arrow(X, Y)).raise_for_status()
        served.http.put("/models/means", json={"estimator": "class_means"}).raise_for_status()
        threading.Timer(0.5, held_warm_up.go_on.set).start()  # the service is told to stop before
    assert len(held_warm_up.asked) == 1
    assert not served.ready.is_set()
    with stream_dr.Directory(tmp_path, writable=False) as directory:
        assert directory.position == 0


@pytest.mark.test_all
def test_without_cached_kernels_another_model_publishes_while_one_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    process = Process(tmp_path / "stream", warm_up=True)
    with httpx.Client(base_url=process.url, timeout=60) as http:
        http.put("/models/means", json={"estimator": "class_means"}).raise_for_status()
        post(http, arrow(X, Y), path="/partial_fit?wait=applied").raise_for_status()

        http.put("/models/pca", json={"estimator": "ccipca"}).raise_for_status()
        position = post(http, arrow(X, Y)).raise_for_status().json()["position"]
        wait_until(lambda: http.get("/models/means").json()["published_position"] == position)
        assert http.get("/models/pca").json()["state"] == "catching_up"
        wait_until(lambda: http.get("/models/pca").json()["published_position"] == position)
    assert process.stop() == 0
