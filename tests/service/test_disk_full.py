"""A full disk: 507 with its code, nothing acknowledged lost, and on again when there is room."""

import contextlib
import itertools
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stream_dr
from stream_dr import failpoints
from stream_dr.disk import RESERVED_BYTES
from tests.support.serving import arrow, in_thread, post

X = np.random.default_rng(4).normal(size=(1_000, 40))
Y = ["ab"[i % 2] for i in range(1_000)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB and 1,024 files, where this user may mount one."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=1k", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs is not allowed here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_the_commit_finds_no_room(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        post(served.http, arrow(X, Y), "first").raise_for_status()
        with failpoints.failpoints_armed("log.before_commit=enospc"):
            answer = post(served.http, arrow(X, Y), "second")
            assert (answer.status_code, answer.json()["code"]) == (507, "insufficient_storage")
            assert served.http.get("/stream").json()["position"] == 0
        again = post(served.http, arrow(X, Y), "second").json()
        assert again == {"position": 1, "rows": 1_000, "duplicate": False}


def test_files_may_not_grow_any_more(tmp_path: Path) -> None:
    """SQLite calls that an I/O error, as it does a quota: the file is not damaged by it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with in_thread(tmp_path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        first = post(served.http, arrow(X, Y), "first", path="/partial_fit?wait=applied")  # nothing is compiled later
        assert first.status_code == 200
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 10, limits[1]))
            refused = [post(served.http, arrow(X[:n], Y[:n]), f"{n} rows") for n in (200, 1_000)]
            assert [(a.status_code, a.json()["code"]) for a in refused] == [(507, "insufficient_storage")] * 2
            assert served.http.get("/stream").json()["position"] == 0
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        for position, n in enumerate((200, 1_000), start=1):
            again = post(served.http, arrow(X[:n], Y[:n]), f"{n} rows").json()
            assert again == {"position": position, "rows": n, "duplicate": False}
    with stream_dr.Directory(tmp_path, writable=False) as directory:
        assert directory.log.verify().events == 3


@pytest.mark.every_run
def test_a_disk_that_fills_up_and_is_emptied_again(small_disk: Path) -> None:
    with in_thread(small_disk / "D", snapshot_rows=2_000) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        acknowledged = 0
        for number in range(40):
            answer = post(served.http, arrow(X, Y), f"k{number}")
            if answer.status_code != 200:
                break
            acknowledged += 1
        assert (answer.status_code, answer.json()["code"]) == (507, "insufficient_storage"), answer.text
        assert acknowledged > 3
        assert served.http.get("/transform?model=lda&x=" + ",".join(["1"] * 40)).status_code == 200
        assert served.http.get("/livez").status_code == 200
        assert served.http.get("/stream").json()["rows"] == 1_000 * acknowledged
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    with in_thread(small_disk / "D") as served:
        answer = post(served.http, arrow(X, Y), f"k{acknowledged}", path="/partial_fit?wait=applied")
        assert answer.json()["position"] == acknowledged
        assert served.http.get("/models/lda").json()["rows"] == 1_000 * (acknowledged + 1)
    with stream_dr.Directory(small_disk / "D", writable=False) as directory:
        assert directory.log.verify().events == acknowledged + 1


@pytest.mark.every_run
def test_a_full_disk_is_not_ready(small_disk: Path) -> None:
    with in_thread(small_disk / "D", min_free_bytes=0) as served:
        with contextlib.suppress(OSError), open(small_disk / "other", "wb", buffering=0) as other:
            while True:
                other.write(bytes(1 << 12))
        answer = served.http.get("/readyz")
        assert (answer.status_code, answer.json()["code"], answer.json()["free_bytes"]) == (503, "not_ready", 0)
        assert served.http.get("/livez").status_code == 200
        (small_disk / "other").unlink()
        assert served.http.get("/readyz").json() == {"status": "ready"}


@pytest.mark.every_run
def test_a_disk_without_a_free_inode(small_disk: Path) -> None:
    """No file of bodies can be made; the table of models lies in the index, which is open already."""
    with in_thread(small_disk / "D") as served:
        (small_disk / "others").mkdir()
        with contextlib.suppress(OSError):
            for number in itertools.count():
                (small_disk / "others" / str(number)).touch()
        assert served.http.put("/models/lda", json={"estimator": "lda"}).status_code == 201
        refused = post(served.http, arrow(X, Y), "k")
        assert (refused.status_code, refused.json()["code"]) == (507, "insufficient_storage")
        shutil.rmtree(small_disk / "others")
        assert served.http.put("/models/lda", json={"estimator": "lda"}).status_code == 200
        assert post(served.http, arrow(X, Y), "k", path="/partial_fit?wait=applied").json()["position"] == 0


@pytest.mark.every_run
def test_a_start_needs_no_more_room_than_the_directory_keeps_for_it(small_disk: Path) -> None:
    with in_thread(small_disk / "D") as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        post(served.http, arrow(X, Y), path="/partial_fit?wait=applied").raise_for_status()
    with contextlib.suppress(OSError), open(small_disk / "other", "wb", buffering=0) as other:
        while True:
            other.write(bytes(1 << 12))
    for _ in range(20):  # each start leaves the next one enough
        with in_thread(small_disk / "D") as served:
            assert served.http.get("/transform?model=lda&x=" + ",".join(["1"] * 40)).status_code == 200
            assert served.http.get("/stream").json()["rows"] == 1_000
            assert served.http.get("/readyz").status_code == 503
    (small_disk / "other").unlink()
    with in_thread(small_disk / "D") as served:
        assert post(served.http, arrow(X, Y), path="/partial_fit?wait=applied").status_code == 200
    assert (small_disk / "D" / "reserve").stat().st_blocks * 512 == RESERVED_BYTES
